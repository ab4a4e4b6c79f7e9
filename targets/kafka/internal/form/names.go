// Package form holds what the parts of the Kafka target have to agree on: the names of topics, groups and transactional
// ids, the form of the records in them, and the messages between writers and owners. The audit has a decoder of its own.
package form

import (
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
)

var (
	trialForm = regexp.MustCompile(`^[a-z0-9]{1,40}$`)
	errTrial  = errors.New("kafka: a trial id is 1 to 40 lower-case letters and digits")
)

// CheckTrial refuses an id that can't begin the name of a topic.
func CheckTrial(trial string) error {
	if !trialForm.MatchString(trial) {
		return fmt.Errorf("%w, not %q", errTrial, trial)
	}
	return nil
}

// Partitions is how many partitions the topic of events has.
const Partitions = 4

// Events names the topic of events.
func Events(trial string) string { return trial + "-events" }

// View names the topic of a projection: the rows of its view, its ledger and its checkpoint.
func View(trial, view string) string { return trial + "-view-" + view }

// Group names the consumer group whose offsets are the checkpoint of a projection.
func Group(trial, view string) string { return trial + "-" + view }

// Transactional names the transactional id of the owners of a partition.
func Transactional(trial string, partition int32) string {
	return trial + "-p" + strconv.Itoa(int(partition))
}

// TransactionalView names the transactional id of the projectors of a view.
func TransactionalView(trial, view string) string { return trial + "-view-" + view }

// PartitionOf returns the partition of a stream.
func PartitionOf(stream string, partitions int32) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(stream))
	return int32(h.Sum32() % uint32(partitions))
}
