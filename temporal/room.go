package temporal

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// ErrTooLarge is matched by an error about values that are too large for Temporal: the results of a run, its inputs, or an answer. If a
// run ends with this error, its Result has no outputs.
var ErrTooLarge = errors.New("too large for Temporal")

// room estimates the size of a run's snapshot if there is no BlobStore. If the output of a node would make the snapshot too large for
// Temporal, the node fails.
type room struct {
	measured int // the compressed size of the snapshot at the last measurement, in bytes
	since    int // the snapshot has grown by at most this many bytes since the last measurement
}

const (
	roomBytes = packedBytes - 64<<10 // the bound on the snapshot's bytes; it leaves room for the records of nodes that fail or never start
	nodeBytes = 512                  // the most bytes that a node takes in a snapshot, without its path and values
	smallText = 2 << 10              // a result or an answer of at most this many bytes is never refused
)

// weight returns the most bytes that a result can add to the snapshot. It counts the node's output again for each composite around the
// node, since the output of the composite may contain the node's output.
func weight(path string, size int) int {
	return nodeBytes + 2*len(path) + size*(1+strings.Count(path, "/")+strings.Count(path, "["))
}

// begin initialises the room from the snapshot, the inputs and the payload in the input of an execution.
func (r *room) begin(in input) {
	if p := in.Snapshot; p != nil {
		r.measured = max(len(p.JSON), len(p.Gzip))
	}
	for _, value := range in.Inputs {
		r.since += len(value)
	}
	if in.Fired != nil {
		r.since += len(in.Fired.Payload)
	}
}

// measurement has compressed sizes, in bytes.
type measurement struct {
	Run    int `json:"run"` // the snapshot
	Result int `json:"result"`
}

// The method bound replaces a result by an error if the snapshot has no room for the result. The history records the measured sizes, since another
// version of Go may compress differently.
func (x *interpreter) bound(s *kahn.Step, reply kahn.Reply, data json.RawMessage) kahn.Reply {
	if x.texts.blobs {
		return reply
	}
	most := weight(s.Path(), len(data))
	if x.room.measured+x.room.since+most <= roomBytes {
		x.room.since += most
		return reply
	}
	if !x.since(boundVersion) {
		return reply
	}
	var m measurement
	recorded := workflow.SideEffect(x.ctx, func(workflow.Context) any { return x.measure(data) })
	if err := recorded.Get(&m); err != nil {
		x.broken = err
		return reply
	}
	x.room.measured, x.room.since = m.Run, min(most, weight(s.Path(), m.Result))
	if m.Run+x.room.since <= roomBytes || len(data) <= smallText {
		return reply
	}
	x.room.since = nodeBytes + smallText
	return kahn.Reply{Err: kahn.Permanent(fmt.Errorf("kahn/temporal: node %q: its %d bytes of JSON do not fit into the results of the run: these are already %d bytes, compressed, and Temporal takes %d: see Options.Blobs",
		s.Path(), len(data), m.Run, packedBytes))}
}

// measure returns the compressed sizes of the snapshot and of a result.
func (x *interpreter) measure(data []byte) (m measurement) {
	m = measurement{x.room.measured + x.room.since, len(data)}
	withoutDeadlockDetection(x.ctx, func() {
		if snapshot, err := json.Marshal(x.c.Run().Snapshot()); err == nil { // an error is reported at the end of the run
			m.Run = compressed(snapshot)
		}
		m.Result = min(m.Result, compressed(data))
	})
	return m
}

func compressed(data []byte) int {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		return len(data)
	}
	return b.Len()
}

// answerWeight returns the weight of an answer. The value counts twice, because it also becomes the output of the gate.
func answerWeight(gate string, size int) int { return weight(gate, 2*size) }

// The method answered adds the weight of an answer to x.room.
func (x *interpreter) answered(r signalRequest) { x.room.since += answerWeight(r.Gate, len(r.Value)) }

// fitsAnswer returns an error if an answer does not fit into the snapshot. It does not change x.room.
func (x *interpreter) fitsAnswer(r signalRequest) error {
	if x.texts.blobs || len(r.Value) <= smallText || x.room.measured+x.room.since+answerWeight(r.Gate, len(r.Value)) <= roomBytes {
		return nil
	}
	if m := x.measure(r.Value); m.Run+answerWeight(r.Gate, m.Result) > roomBytes {
		return fmt.Errorf("kahn/temporal: %w: the answer, %d bytes of JSON, does not fit into the results of the run, which are already %d bytes, compressed: see Options.Blobs", ErrTooLarge, len(r.Value), m.Run)
	}
	return nil
}

// The method stay continues a run in this execution. The caller has left the run for a new execution, but the snapshot is too large for
// one. So stay aborts the run, unless the run is already undoing nodes.
func (x *interpreter) stay(from *kahn.Snapshot, why error) error {
	opts := append(x.always(), kahn.Resume(from))
	c, err := kahn.NewCoordinator(x.plan, workflow.Now(x.ctx), opts...)
	if err != nil {
		return err
	}
	x.c, x.full = c, true
	for n := range x.c.Run().Nodes() {
		if n.Compensation == kahn.CompensationRunning { // the run is undoing nodes, and ends when it has undone them
			return nil
		}
	}
	_ = x.c.Run().AbortAll(why) // returns kahn.ErrAtRest if the run can only wait; then the run stays suspended
	return nil
}

// tooLarge returns the failure of a run whose snapshot is too large. The Result of this run has no outputs. If the snapshot is still too
// large without the outputs, the Result does not have the nodes in composites either, and at last no errors.
func (x *interpreter) tooLarge(res *kahn.Result, why error) error {
	out := output{Status: res.Status, Rule: x.in.Settings.StatusRule, Error: why.Error()}
	o := sdk.ApplicationErrorOptions{NonRetryable: true}
	data, err := json.Marshal(res.Snapshot())
	for _, drop := range lesser {
		if err != nil || o.Details != nil {
			break
		}
		var short *packed
		if data, err = without(data, drop); err == nil {
			short, err = packJSON(data)
		}
		if short != nil {
			out.Snapshot = *short
			o.Details = []any{out}
		} else if errors.Is(err, ErrTooLarge) {
			err = nil
		}
	}
	return sdk.NewApplicationErrorWithOptions(why.Error(), failedRun, o)
}

// lesser has the names of those members of a snapshot that a Result does not need. The members that matter least come first.
var lesser = []map[string]bool{
	{"value": true, "merged": true, "saved": true, "signal": true, "list": true, "previous": true, "collected": true, "inputs": true, "fired": true, "signals": true, "answered": true, "deltas": true},
	{"inside": true},
	{"error": true, "last_error": true, "guard_error": true, "stop_error": true, "attempt_errors": true, "retried": true, "stop": true},
}

// The function without removes the members of the given names from JSON, at any depth.
func without(data []byte, names map[string]bool) ([]byte, error) {
	var value any
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	if err := in.Decode(&value); err != nil {
		return nil, err
	}
	for todo := []any{value}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch at := at.(type) {
		case map[string]any:
			for name, member := range at {
				if names[name] {
					delete(at, name)
				} else {
					todo = append(todo, member)
				}
			}
		case []any:
			todo = append(todo, at...)
		}
	}
	return json.Marshal(value)
}
