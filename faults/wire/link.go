package wire

import (
	"fmt"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"

	"github.com/eventproof/eventproof/history"
)

const (
	// maxQueued bounds what a link keeps in memory; beyond it the sender is slowed down, as by a full network.
	maxQueued = 16 << 20
	// maxMerged bounds the joining of small neighbours into one write.
	maxMerged = 4 << 10
)

// link carries one direction of one connection through the pipe of a toxic. All of its state lives here and
// not in the pipe, since toxiproxy interrupts and restarts pipes when it changes a chain.
type link struct {
	conn   *conn
	dir    Directions
	framer framer
	gone   <-chan struct{} // the side that this link writes to has left

	queue  []entry
	queued int       // bytes in queue
	stamp  time.Time // of the chunk being split, kept for the toxics that follow
	ended  bool      // nothing more comes in
	sealed bool      // what still comes in is dropped, and the link closes when the queue is empty
	alone  bool      // nobody reads what this link writes
}

// entry is a run of bytes on its way.
type entry struct {
	data    []byte
	stamp   time.Time
	arrived int64
	rule    *Rule // keeps the entry until due, or until it is lifted; nil = free
	due     int64
	before  func() bool     // asked before the entry is offered to the other side; false = drop it
	fate    func(sent bool) // called when it was taken, or dropped
}

// free reports whether the entry may leave.
func (e *entry) free(now int64) bool {
	return e.rule == nil || now >= e.due || e.rule.isLifted()
}

// pipe carries bytes until the link is over or interrupted.
func (l *link) pipe(stub *toxics.ToxicStub) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		answered := l.awaitsAnswer()
		if l.over(answered) {
			l.finish(stub)
			return
		}
		var (
			in     <-chan *stream.StreamChunk
			out    chan<- *stream.StreamChunk
			next   *stream.StreamChunk
			lifted <-chan struct{}
			due    <-chan time.Time
			gone   = l.gone
		)
		if !l.ended && l.queued < maxQueued {
			in = stub.Input
		}
		if len(l.queue) > 0 {
			e := &l.queue[0]
			now := l.conn.now()
			if e.free(now) {
				if e.before != nil {
					ok := e.before()
					e.before = nil
					if !ok {
						l.pop(false)
						continue
					}
				}
				out, next = stub.Output, &stream.StreamChunk{Data: e.data, Timestamp: e.stamp}
			} else {
				lifted = e.rule.lifted
				if e.due != forever {
					timer.Reset(time.Duration(e.due - now))
					due = timer.C
				}
			}
		}
		if l.alone {
			gone = nil
		}
		select {
		case <-stub.Interrupt:
			return
		case c := <-in:
			if c == nil {
				l.end()
			} else {
				l.take(c)
			}
		case out <- next:
			l.pop(true)
		case <-lifted:
		case <-due:
		case <-answered:
		case <-gone:
			l.abandon()
		}
	}
}

// awaitsAnswer returns the channel to wait on before an up link may close its server side: a parked commit was
// sent on for a client that has left.
func (l *link) awaitsAnswer() <-chan struct{} {
	if l.dir != Up || !l.ended || len(l.queue) > 0 || l.alone {
		return nil
	}
	return l.conn.unresolved()
}

// over reports whether nothing is left to be carried.
func (l *link) over(answered <-chan struct{}) bool {
	switch {
	case l.alone && l.dir == Up:
		return true // the server is gone
	case l.sealed:
		return len(l.queue) == 0
	}
	return l.ended && len(l.queue) == 0 && answered == nil
}

// finish closes the far side and reads on until the near side ends, so that nobody is left waiting to be read.
func (l *link) finish(stub *toxics.ToxicStub) {
	stub.Close()
	if !l.ended {
		for range stub.Input {
		}
		l.announce()
	}
	l.conn.linkEnded()
	l.conn.proxy.links.Done()
}

// announce tells the other link that the source of this one has ended.
func (l *link) announce() {
	if l.dir == Up {
		close(l.conn.clientGone)
		return
	}
	l.conn.serverEnded()
	close(l.conn.serverGone)
}

// end handles the end of the source.
func (l *link) end() {
	l.ended = true
	if rest := l.framer.rest(); len(rest) > 0 && !l.sealed {
		l.push(entry{data: rest})
	}
	l.announce()
}

// abandon drops everything: nobody reads it.
func (l *link) abandon() {
	l.alone = true
	for len(l.queue) > 0 {
		l.pop(false)
	}
}

// take splits a chunk and decides on every frame of it.
func (l *link) take(c *stream.StreamChunk) {
	l.stamp = c.Timestamp
	l.conn.proxy.meter.count(l.dir, len(c.Data), l.conn.probe)
	was := l.framer.unreadable()
	l.framer.feed(c.Data, func(f frame) {
		if l.dir == Up {
			l.request(f)
		} else {
			l.reply(f)
		}
	})
	if !was && l.framer.unreadable() && l.conn.proxy.opts.Protocol != nil && l.dir == Up {
		l.conn.proxy.meter.unreadable.Add(1)
	}
}

// request decides on a frame from the client.
func (l *link) request(f frame) {
	c := l.conn
	c.setName(f.session)
	if l.sealed {
		return
	}
	if l.swallowed(f, history.BiteRequestCut, history.LandedNo, f.commit) {
		return
	}
	e := entry{data: f.data}
	if f.commit {
		for _, r := range c.proxy.active() {
			if r.spec.Action == CutRequest && r.acquire(c, true) {
				l.sealed = true
				c.biteAtOnce(r, history.Bite{Form: history.BiteRequestCut, Landed: history.LandedNo, Text: "commit never forwarded"})
				return
			}
			if r.spec.Action == ParkRequest && c.unresolved() == nil && r.acquire(c, true) {
				l.parkEntry(&e, r)
				break
			}
		}
	}
	c.mu.Lock()
	c.asked += f.turns
	c.mu.Unlock()
	l.push(e)
}

// parkEntry makes a commit wait until the rule is lifted.
func (l *link) parkEntry(e *entry, r *Rule) {
	c := l.conn
	e.rule, e.due = r, forever
	c.park(r, c.now())
	e.before = c.release
	e.fate = func(sent bool) {
		if !sent {
			c.unpark(history.BiteRequestCut, history.LandedNo, "parked, and cut before it was sent on")
		}
	}
}

// reply decides on a frame from the server.
func (l *link) reply(f frame) {
	c := l.conn
	c.setName(f.session)
	c.answered(f)
	if l.sealed {
		return
	}
	landed := f.answer.landed()
	if l.swallowed(f, history.BiteReplyDropped, landed, landed == history.LandedYes) {
		return
	}
	e := entry{data: f.data}
	for _, r := range c.proxy.active() {
		if r.spec.Action == DropReply && f.answer == committed && r.acquire(c, true) {
			l.sealed = true
			c.biteAtOnce(r, history.Bite{Form: history.BiteReplyDropped, Landed: history.LandedYes, Text: "commit forwarded, its reply cut"})
			return
		}
		if r.spec.Action == HoldReply && (r.spec.All || f.answer == committed) && r.acquire(c, !r.spec.All) {
			l.holdEntry(&e, r, f)
			break
		}
	}
	l.push(e)
}

// holdEntry makes a reply wait until the rule is lifted.
func (l *link) holdEntry(e *entry, r *Rule, f frame) {
	c := l.conn
	e.rule, e.due = r, forever
	if f.turns == 0 && f.answer != committed {
		e.fate = func(bool) { r.end(c) } // a part of a reply; its end is what counts
		return
	}
	since := c.now()
	landed := f.answer.landed()
	c.touched(r)
	e.fate = func(sent bool) {
		now := c.now()
		text := fmt.Sprintf("reply delivered after %v", time.Duration(now-since).Round(time.Microsecond))
		if !sent {
			text = "reply held until its client had left"
		}
		c.bite(r, history.Bite{T: now, Form: history.BiteReplyHeld, Landed: landed, Since: since, Text: text})
		r.end(c)
	}
}

// swallowed drops a frame if a rule says so. A link that has lost bytes never passes any again.
func (l *link) swallowed(f frame, form history.BiteForm, landed history.Landed, telling bool) bool {
	c := l.conn
	for _, r := range c.proxy.active() {
		if !r.on(Swallow, l.dir) || !r.acquire(c, false) {
			continue
		}
		b := history.Bite{Form: form, Text: fmt.Sprintf("%d bytes swallowed", len(f.data))}
		if telling {
			b.Landed, b.Text = landed, "commit swallowed"
			if l.dir == Down {
				b.Text = "reply to a commit swallowed"
			}
		}
		c.spoil(r)
		if r.isLifted() {
			c.close() // Withdraw may have looked for spoilt connections before this one was
		}
		c.biteAtOnce(r, b)
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost != nil && c.lost.on(Swallow, l.dir)
}

// push queues an entry, under the delay that is in force.
func (l *link) push(e entry) {
	if l.alone {
		if e.fate != nil {
			e.fate(false)
		}
		return
	}
	e.stamp, e.arrived = l.stamp, l.conn.now()
	if e.rule == nil {
		l.delayEntry(&e)
	}
	if n := len(l.queue); n > 0 && e.rule == nil {
		last := &l.queue[n-1]
		if last.rule == nil && last.fate == nil && len(last.data)+len(e.data) <= maxMerged {
			last.data = append(last.data, e.data...)
			l.queued += len(e.data)
			return
		}
	}
	l.queue = append(l.queue, e)
	l.queued += len(e.data)
}

func (l *link) delayEntry(e *entry) {
	c := l.conn
	for _, r := range c.proxy.active() {
		if !r.on(Delay, l.dir) || !r.acquire(c, false) {
			continue
		}
		e.rule, e.due = r, e.arrived+int64(r.delay())
		arrived, size := e.arrived, len(e.data)
		c.touched(r)
		e.fate = func(sent bool) {
			now := c.now()
			text := fmt.Sprintf("%d bytes delayed %v", size, time.Duration(now-arrived).Round(time.Microsecond))
			if !sent {
				text = fmt.Sprintf("%d bytes delayed until their receiver had left", size)
			}
			c.bite(r, history.Bite{T: now, Form: history.BiteDelayed, Since: arrived, Text: text})
			r.end(c)
		}
		return
	}
}

// pop removes the first entry, which was sent or is dropped.
func (l *link) pop(sent bool) {
	e := l.queue[0]
	l.queue[0] = entry{}
	l.queue = l.queue[1:]
	l.queued -= len(e.data)
	if e.fate != nil {
		e.fate(sent)
	}
}
