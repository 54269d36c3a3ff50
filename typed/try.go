package typed

import (
	"encoding/json"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
)

// Tried is the result of a node that may fail: its value, or its error.
type Tried[T any] struct {
	Value T
	// Err is nil if the node completed. If the node failed, Err is the error of its last attempt. If the node was aborted because of another node's
	// failure, Err is a [*kahn.UpstreamError].
	Err error
}

// triedJSON is the JSON form of a Tried. [kahn.Types] encodes the error, so that the decoded error matches the same sentinel errors.
type triedJSON struct {
	Value json.RawMessage `json:"value,omitempty"`
	Err   json.RawMessage `json:"error,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (t Tried[T]) MarshalJSON() (data []byte, err error) {
	var x triedJSON
	if t.Err != nil {
		x.Err, err = kahn.Types(nil).Encode(t.Err)
	} else {
		x.Value, err = json.Marshal(t.Value)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(x)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Tried[T]) UnmarshalJSON(data []byte) error {
	var x triedJSON
	if err := json.Unmarshal(data, &x); err != nil {
		return err
	}
	*t = Tried[T]{}
	if x.Err == nil {
		return json.Unmarshal(x.Value, &t.Value)
	}
	v, err := kahn.Types(nil).Decode(x.Err)
	if err != nil {
		return err
	}
	is := false
	if t.Err, is = v.(error); !is {
		return fmt.Errorf("%w: the error of a Tried is a %T", kahn.ErrBadValue, v)
	}
	return nil
}

// Try adds a node that runs after the node of v has completed, has failed or was aborted. The value of the new node is the value of v, or the
// error. The failure counts as handled: it does not fail the run. The new node has an edge and a catch edge from the node of v. If the node of v
// fails or is aborted, other nodes that take v are skipped. Without a Try they would be aborted.
//
// Try does not catch cancelled nodes. b must be the block in which v was made.
func Try[T any](b *Block, id string, v Val[T]) Val[Tried[T]] {
	src := b.add(id, false)
	if src == nil {
		return Val[Tried[T]]{}
	}
	value := input(src, v, 1)
	build := b.in.build
	if len(src.takes) > 0 {
		of := src.takes[0]
		switch {
		case of.input:
			build.report("node %q: %w: Try takes the input %q, and an input does not fail: call Try for the value of a node, in the pipeline of that node", id, kahn.ErrBadValue, of.id)
		case of.block != b:
			build.report("node %q: %w: Try takes %q in %v, but %q is made in %v: call Try in the block that makes the value, so that the failure is handled whichever branch is taken",
				id, ErrBranch, of.id, b, of.id, of.block)
		default:
			src.more().tries = of
		}
	}
	return add(src, func(s *kahn.Step) (t Tried[T], err error) {
		if s.View().Status(value.name) != kahn.Completed {
			v, _ := s.Upstream(value.name)
			if e, is := v.(*kahn.NodeError); is && e.Err != nil {
				return Tried[T]{Err: e.Err}, nil
			}
			if failure, is := v.(error); is {
				return Tried[T]{Err: failure}, nil
			}
		}
		t.Value, err = value.get(s)
		return t, err
	})
}
