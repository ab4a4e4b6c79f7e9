package dynamodb

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"time"
)

const (
	iteratorLife = 15 * time.Minute
	maxRecords   = 1000
	shardPrefix  = "shardId-"
)

func (s *shard) id() string { return fmt.Sprintf("%s%020d", shardPrefix, s.number) }

// streamOf finds a stream by its ARN. The stream of a deleted table is gone with it.
func (s *Server) streamOf(arn string) (*table, *apiError) {
	name, label, _ := strings.Cut(strings.TrimPrefix(arn, arnPrefix), "/stream/")
	if t := s.tables[name]; t != nil && t.stream != nil && t.def.Label == label && strings.HasPrefix(arn, arnPrefix) {
		return t, nil
	}
	return nil, fault(excNotFound, "Requested resource not found: Stream: %s not found", arn)
}

type listStreamsInput struct {
	TableName               string
	Limit                   *int
	ExclusiveStartStreamArn string
}

func (in *listStreamsInput) tableNames() []string { return nil }

func (s *Server) listStreams(_ context.Context, _ *request, in *listStreamsInput) (any, error) {
	limit, err := limitOf(in.Limit, 100)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []map[string]string{}
	for _, name := range sortedKeys(s.tables) {
		d := s.tables[name].def
		if d.View == "" || in.TableName != "" && in.TableName != name || d.streamArn() <= in.ExclusiveStartStreamArn {
			continue
		}
		out = append(out, map[string]string{"StreamArn": d.streamArn(), "StreamLabel": d.Label, "TableName": name})
	}
	if len(out) > limit {
		return map[string]any{"Streams": out[:limit], "LastEvaluatedStreamArn": out[limit-1]["StreamArn"]}, nil
	}
	return map[string]any{"Streams": out}, nil
}

func limitOf(limit *int, most int) (int, *apiError) {
	if limit == nil {
		return most, nil
	}
	if *limit < 1 || *limit > most {
		return 0, invalid("1 validation error detected: Value '%d' at 'limit' failed to satisfy constraint: Member must have value between 1 and %d", *limit, most)
	}
	return *limit, nil
}

type describeStreamInput struct {
	StreamArn             string
	Limit                 *int
	ExclusiveStartShardId string //nolint:revive // the parameter's name on the wire
}

func (in *describeStreamInput) tableNames() []string { return nil }

type sequenceRange struct {
	StartingSequenceNumber string
	EndingSequenceNumber   string `json:"EndingSequenceNumber,omitempty"`
}

type shardOutput struct {
	ShardID  string        `json:"ShardId"`
	ParentID string        `json:"ParentShardId,omitempty"`
	Range    sequenceRange `json:"SequenceNumberRange"`
}

func (s *Server) describeStream(_ context.Context, _ *request, in *describeStreamInput) (any, error) {
	limit, bad := limitOf(in.Limit, 100)
	if bad != nil {
		return nil, bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, bad := s.streamOf(in.StreamArn)
	if bad != nil {
		return nil, bad
	}
	description := map[string]any{
		"StreamArn": in.StreamArn, "StreamLabel": t.def.Label, "StreamStatus": "ENABLED", "StreamViewType": t.def.View,
		"TableName": t.def.Name, "KeySchema": t.def.Key.elements(), "CreationRequestDateTime": seconds(t.def.Created),
	}
	shards := []shardOutput{}
	for _, sh := range t.stream.shards {
		if in.ExclusiveStartShardId != "" && sh.id() <= in.ExclusiveStartShardId {
			continue
		}
		if len(shards) == limit {
			description["LastEvaluatedShardId"] = shards[limit-1].ShardID
			break
		}
		out := shardOutput{ShardID: sh.id(), Range: sequenceRange{StartingSequenceNumber: sequenceText(sh.first)}}
		if sh.parent >= 0 {
			out.ParentID = t.stream.shards[sh.parent].id()
		}
		if sh.last > 0 {
			out.Range.EndingSequenceNumber = sequenceText(sh.last)
		}
		shards = append(shards, out)
	}
	description["Shards"] = shards
	return map[string]any{"StreamDescription": description}, nil
}

// shardOfID finds a shard by its id.
func (s *stream) shardOfID(id string) (*shard, *apiError) {
	n, err := strconv.Atoi(strings.TrimPrefix(id, shardPrefix))
	if err != nil || n < 0 || n >= len(s.shards) || s.shards[n].id() != id {
		return nil, fault(excNotFound, "Requested resource not found: Shard: %s not found", id)
	}
	return s.shards[n], nil
}

// iterator is what a ShardIterator says in an opaque form: the next record to read.
type iterator struct {
	Arn   string `json:"a"`
	Shard string `json:"s"`
	Next  uint64 `json:"n"`
	Made  int64  `json:"t"` // ms of wall-clock time
}

func (it iterator) String() string {
	text, err := json.Marshal(it)
	if err != nil {
		panic(err) // it holds only strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseIterator(text string) (it iterator, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return it, false
	}
	return it, json.Unmarshal(b, &it) == nil
}

type shardIteratorInput struct {
	StreamArn         string
	ShardId           string //nolint:revive // the parameter's name on the wire
	ShardIteratorType string
	SequenceNumber    string
}

func (in *shardIteratorInput) tableNames() []string { return nil }

func (s *Server) getShardIterator(_ context.Context, _ *request, in *shardIteratorInput) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, bad := s.streamOf(in.StreamArn)
	if bad != nil {
		return nil, bad
	}
	sh, bad := t.stream.shardOfID(in.ShardId)
	if bad != nil {
		return nil, bad
	}
	it := iterator{Arn: in.StreamArn, Shard: in.ShardId, Made: s.clock.Wall().UnixMilli()}
	byNumber := in.ShardIteratorType == "AT_SEQUENCE_NUMBER" || in.ShardIteratorType == "AFTER_SEQUENCE_NUMBER"
	if byNumber != (in.SequenceNumber != "") {
		return nil, invalid("SequenceNumber %q does not go with ShardIteratorType %s", in.SequenceNumber, in.ShardIteratorType)
	}
	switch in.ShardIteratorType {
	case "TRIM_HORIZON":
		it.Next = sh.first
	case "LATEST":
		it.Next = t.stream.last + 1
	case "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER":
		n, ok := parseSequence(in.SequenceNumber)
		if !ok || n < sh.first || sh.last > 0 && n > sh.last || n > t.stream.last+1 {
			return nil, invalid("Invalid SequenceNumber: %s is not in shard %s", in.SequenceNumber, in.ShardId)
		}
		it.Next = n
		if in.ShardIteratorType == "AFTER_SEQUENCE_NUMBER" {
			it.Next++
		}
	default:
		return nil, invalid("Member must satisfy enum value set: [AFTER_SEQUENCE_NUMBER, LATEST, AT_SEQUENCE_NUMBER, TRIM_HORIZON]: shardIteratorType %q", in.ShardIteratorType)
	}
	return map[string]any{"ShardIterator": it.String()}, nil
}

type getRecordsInput struct {
	ShardIterator string
	Limit         *int
}

// tableNames implements input.
func (in *getRecordsInput) tableNames() []string {
	it, _ := parseIterator(in.ShardIterator)
	name, _, _ := strings.Cut(strings.TrimPrefix(it.Arn, arnPrefix), "/stream/")
	return []string{name}
}

type recordOutput struct {
	EventID   string       `json:"eventID"`
	EventName string       `json:"eventName"`
	Version   string       `json:"eventVersion"`
	Source    string       `json:"eventSource"`
	Region    string       `json:"awsRegion"`
	Change    changeOutput `json:"dynamodb"`
}

type changeOutput struct {
	Created  float64 `json:"ApproximateCreationDateTime"`
	Keys     item    `json:"Keys"`
	NewImage item    `json:"NewImage,omitempty"`
	OldImage item    `json:"OldImage,omitempty"`
	Sequence string  `json:"SequenceNumber"`
	Size     int     `json:"SizeBytes"`
	View     string  `json:"StreamViewType"`
}

func (s *Server) getRecords(_ context.Context, r *request, in *getRecordsInput) (any, error) {
	limit, bad := limitOf(in.Limit, maxRecords)
	if bad != nil {
		return nil, bad
	}
	it, ok := parseIterator(in.ShardIterator)
	if !ok {
		return nil, invalid("Invalid ShardIterator: %q", in.ShardIterator)
	}
	now := s.clock.Wall().UnixMilli()
	if now-it.Made > iteratorLife.Milliseconds() {
		return nil, fault(excExpiredIterator, "The iterator is older than 15 minutes")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, bad := s.streamOf(it.Arn)
	if bad != nil {
		return nil, bad
	}
	sh, bad := t.stream.shardOfID(it.Shard)
	if bad != nil {
		return nil, bad
	}
	from := sort.Search(len(sh.records), func(i int) bool { return sh.records[i].seq >= it.Next })
	end, size := from, 0
	for end < len(sh.records) && end-from < limit {
		if size += sh.records[end].size(); size > maxPageSize && end > from {
			break
		}
		it.Next = sh.records[end].seq + 1
		end++
	}
	out := map[string]any{}
	// The end of a closed shard is the end of its iterators.
	if end < len(sh.records) || sh.last == 0 {
		it.Made = now
		out["NextShardIterator"] = it.String()
	}
	records := make([]recordOutput, 0, end-from)
	for _, rec := range s.disturbed(r, sh.records, from, end) {
		records = append(records, rec.output(t.def.View))
	}
	out["Records"] = records
	return out, nil
}

// disturbed are the records from..end, and what faults make of them. Only deliveries that have something to disturb
// count as hits.
func (s *Server) disturbed(r *request, all []streamRecord, from, end int) []streamRecord {
	records := all[from:end:end]
	if from > 0 {
		if f, hit := s.switches.hit(StreamDuplicate, r); hit {
			records = all[from-1-f.rand.IntN(min(from, 10)) : end : end]
		}
	}
	if mixable(records) {
		if f, hit := s.switches.hit(StreamReorder, r); hit {
			records = mixed(records, f.rand)
		}
	}
	return records
}

func (r streamRecord) itemKey() string { return string(r.keys.append(nil)) }

// mixable reports whether there are records of more than one item.
func mixable(records []streamRecord) bool {
	for _, r := range records {
		if !r.keys.equal(records[0].keys) {
			return true
		}
	}
	return false
}

// mixed shuffles records, until the order is another one, but leaves those of each item in their order.
func mixed(records []streamRecord, rng *rand.Rand) []streamRecord {
	byItem := map[string][]streamRecord{}
	for _, r := range records {
		byItem[r.itemKey()] = append(byItem[r.itemKey()], r)
	}
	places := make([]string, len(records))
	for i, r := range records {
		places[i] = r.itemKey()
	}
	for {
		rng.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
		for i, r := range records {
			if places[i] == r.itemKey() {
				continue
			}
			out := make([]streamRecord, 0, len(records))
			for _, k := range places {
				out = append(out, byItem[k][0])
				byItem[k] = byItem[k][1:]
			}
			return out
		}
	}
}

func (r streamRecord) size() int { return r.keys.size() + r.old.size() + r.new.size() }

func (r streamRecord) output(view string) recordOutput {
	out := recordOutput{
		EventID: fmt.Sprintf("%032x", r.seq), Version: "1.1", Source: "aws:dynamodb", Region: region,
		Change: changeOutput{Created: seconds(r.at), Keys: r.keys, Sequence: sequenceText(r.seq), View: view},
	}
	switch {
	case r.old == nil:
		out.EventName = "INSERT"
	case r.new == nil:
		out.EventName = "REMOVE"
	default:
		out.EventName = "MODIFY"
	}
	size := r.keys.size()
	if view == "NEW_IMAGE" || view == "NEW_AND_OLD_IMAGES" {
		out.Change.NewImage = r.new
		size += r.new.size()
	}
	if view == "OLD_IMAGE" || view == "NEW_AND_OLD_IMAGES" {
		out.Change.OldImage = r.old
		size += r.old.size()
	}
	out.Change.Size = size
	return out
}

// SplitShards closes all shards of a table's stream and opens a child for each, as the real one does from time to
// time. It is part of the log.
func (s *Server) SplitShards(tableName string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, bad := s.table(tableName)
	if bad != nil {
		return bad
	}
	if t.stream == nil {
		return fault(excNotFound, "Table %s has no stream", tableName)
	}
	return s.commit(logRecord{Kind: recordSplit, Table: tableName})
}
