package wire

import (
	"encoding/binary"
	"sync"
)

// Kafka is the protocol of Apache Kafka without TLS. A commit is an EndTxn that commits, and a Produce outside of
// transactions. Versions of these two that are newer than known here are passed on as any other request.
//
// The answer to a commit is its error code. It is told of the request alone: a request that is refused since the
// producer was fenced did nothing, though an earlier one for the same transaction may have.
func Kafka() Protocol { return kafkaProtocol{} }

type kafkaProtocol struct{}

func (kafkaProtocol) framers() (requests, replies framer) {
	x := &kafkaExchange{}
	return &kafkaRequests{exchange: x}, &kafkaReplies{exchange: x}
}

func (kafkaProtocol) greets() bool { return false }

const (
	// kafkaMaxMessage is what a server accepts at most, by default.
	kafkaMaxMessage = 100 << 20
	// kafkaMaxCommit bounds a commit that is kept back until it is whole. Of a longer one the beginning is the frame
	// that rules act on.
	kafkaMaxCommit = 4 << 20
	// kafkaMaxReply bounds the answer to a commit that is looked into.
	kafkaMaxReply = 64 << 10
	// kafkaPeek is how much of a Produce may have to be seen to tell what it is: the head, with two names.
	kafkaPeek = 1 << 10
)

// Numbers of the requests that matter, and the versions known here.
const (
	kafkaProduce       = 0
	kafkaSaslHandshake = 17
	kafkaAPIVersions   = 18
	kafkaEndTxn        = 26

	kafkaLastKey         = 2000 // far above every number in use; what is beyond is no Kafka
	kafkaProduceVersions = 13
	kafkaEndTxnVersions  = 5
)

// kafkaRequest is an unanswered request.
type kafkaRequest struct {
	correlation  uint32
	key, version int16
	commit       bool
}

// kafkaExchange is what the two directions of a connection know together: which requests are unanswered.
type kafkaExchange struct {
	mu   sync.Mutex
	open []kafkaRequest // oldest first; a server answers in this order
}

func (x *kafkaExchange) asked(q kafkaRequest) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = append(x.open, q)
}

// first returns the request that is answered next, if it has this number.
func (x *kafkaExchange) first(correlation uint32) (q kafkaRequest, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.open) == 0 || x.open[0].correlation != correlation {
		return kafkaRequest{}, false
	}
	return x.open[0], true
}

func (x *kafkaExchange) told() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = x.open[1:]
}

// kafkaRequests splits what a client sends.
type kafkaRequests struct {
	splitter
	exchange *kafkaExchange
}

func (f *kafkaRequests) feed(p []byte, emit func(frame)) { f.scan(p, emit, f.next) }

func (f *kafkaRequests) next(r *run, at int) int {
	rest := r.data[at:]
	if len(rest) < 4 {
		return 0
	}
	size := int(binary.BigEndian.Uint32(rest))
	if size < 10 || size > kafkaMaxMessage {
		f.giveUp()
		return 0
	}
	if len(rest) < 14 {
		return 0
	}
	total := size + 4
	q := kafkaRequest{
		key: int16(binary.BigEndian.Uint16(rest[4:])), version: int16(binary.BigEndian.Uint16(rest[6:])),
		correlation: binary.BigEndian.Uint32(rest[8:]),
	}
	nameless := q.key == 7 && q.version == 0 // of ControlledShutdown, between servers
	name := int(int16(binary.BigEndian.Uint16(rest[12:])))
	if q.key < 0 || q.key > kafkaLastKey || q.version < 0 || !nameless && (name < -1 || name+10 > size) ||
		q.key == kafkaSaslHandshake && q.version == 0 { // raw tokens follow
		f.giveUp()
		return 0
	}
	if len(rest) < min(total, kafkaPeek) {
		return 0
	}
	var session string
	body := rest[14:min(total, len(rest))]
	if !nameless && name > 0 {
		if len(body) < name {
			if len(rest) < total {
				return 0
			}
			f.giveUp()
			return 0
		}
		session, body = string(body[:name]), body[name:]
	}
	commit, answered := kafkaCommit(q, body)
	q.commit = commit
	if q.commit && len(rest) < total && total <= kafkaMaxCommit {
		return 0 // a commit is one frame: kept, cut or sent on as a whole
	}
	turns := 0
	if answered {
		f.exchange.asked(q)
		turns = 1
	}
	out := frame{commit: q.commit, session: session}
	now := total
	if len(rest) < total {
		now = len(rest)
		f.skip, f.ends = total-len(rest), turns
	} else {
		out.turns = turns
	}
	r.special(at, at+now, out)
	return now
}

// kafkaCommit tells from the beginning of a request's body whether it commits, and whether it is answered at all.
func kafkaCommit(q kafkaRequest, body []byte) (commit, answered bool) {
	d := decoder{b: body}
	switch {
	case q.key == kafkaProduce && q.version <= kafkaProduceVersions:
		d.flexible = q.version >= 9
		d.tags() // of the header
		transactional := false
		if q.version >= 3 {
			transactional = d.text()
		}
		acks := d.int(2)
		return !d.short && !transactional, d.short || acks != 0
	case q.key == kafkaEndTxn && q.version <= kafkaEndTxnVersions:
		d.flexible = q.version >= 3
		d.tags() // of the header
		d.text()
		d.int(8) // producer's number
		d.int(2) // and epoch
		return d.int(1) == 1 && !d.short, true
	}
	return false, true
}

// kafkaReplies splits what a server sends.
type kafkaReplies struct {
	splitter
	exchange *kafkaExchange
}

func (f *kafkaReplies) feed(p []byte, emit func(frame)) { f.scan(p, emit, f.next) }

func (f *kafkaReplies) next(r *run, at int) int {
	rest := r.data[at:]
	if len(rest) < 4 {
		return 0
	}
	size := binary.BigEndian.Uint32(rest)
	if size < 4 || size > 1<<30 {
		f.giveUp()
		return 0
	}
	if len(rest) < 8 {
		return 0
	}
	total := int(size) + 4
	q, ok := f.exchange.first(binary.BigEndian.Uint32(rest[4:]))
	if !ok {
		f.giveUp()
		return 0
	}
	if q.commit && total <= kafkaMaxReply {
		if len(rest) < total {
			return 0
		}
		f.exchange.told()
		r.special(at, at+total, frame{turns: 1, answer: kafkaAnswer(q, rest[8:total])})
		return total
	}
	f.exchange.told()
	f.skip, f.ends = total, 1
	return 0
}

// kafkaAnswer reads the error code in the answer to a commit.
func kafkaAnswer(q kafkaRequest, body []byte) answer {
	d := decoder{b: body}
	switch q.key {
	case kafkaEndTxn:
		d.flexible = q.version >= 3
		d.tags() // of the header
		d.int(4) // throttle time
		if code := int16(d.int(2)); !d.short {
			return kafkaCode(code)
		}
	case kafkaProduce:
		return produceAnswer(&d, q.version)
	}
	return undecided
}

// produceAnswer reads the error codes of all partitions. Where they differ, the request is undecided.
func produceAnswer(d *decoder, version int16) answer {
	d.flexible = version >= 9
	d.tags() // of the header
	all := noAnswer
	for range d.count() {
		if version >= 13 {
			d.skip(16) // number of the topic
		} else {
			d.text()
		}
		for range d.count() {
			d.int(4) // partition
			code := int16(d.int(2))
			d.int(8) // first offset
			if version >= 2 {
				d.int(8) // time
			}
			if version >= 5 {
				d.int(8) // start of the log
			}
			if version >= 8 {
				for range d.count() {
					d.int(4)
					d.text()
					d.tags()
				}
				d.text()
			}
			d.tags()
			if d.short {
				return undecided
			}
			switch a := kafkaCode(code); {
			case all == noAnswer:
				all = a
			case all != a:
				all = undecided
			}
		}
		d.tags()
	}
	if d.short || all == noAnswer {
		return undecided
	}
	return all
}

// kafkaCode judges an error code. The refusals that are certain are those that a server gives before it does
// anything and that it will not change its mind about. That it does not lead the partition (6), or does not have it
// (3), is none of them: it can have appended before it lost it.
func kafkaCode(code int16) answer {
	switch code {
	case 0:
		return committed
	case
		2,      // the records are corrupt
		10, 18, // too large
		17,     // no such topic name
		19,     // too few replicas, before anything was appended
		29, 53, // not allowed
		45,     // out of sequence
		47, 90, // fenced
		49,      // no such producer
		87, 100: // invalid record, no such topic
		return rolledBack
	}
	return undecided
}
