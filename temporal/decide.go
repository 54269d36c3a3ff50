package temporal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// decide calls a function of the plan if Options.Pure is false. The history records the result of a Go function, so a replay does not call
// the function. A function that is given as text depends only on its arguments, so a replay calls it again.
func (x *interpreter) decide(path, field string, call func() (any, error)) (value any, err error) {
	if n, _ := x.plan.At(path); isText(n, field) {
		return call()
	}
	reply, err := x.record(path, field, call)
	if err != nil {
		x.broken = err
		return nil, err
	}
	if p, panicked := reply.Err.(*kahn.PanicError); panicked {
		panic(p.Value) // the run makes a PanicError of this panic, as if the function had panicked in the run
	}
	return reply.Value, reply.Err
}

// isText reports whether a field of a node is given as text, in place of a Go function.
func isText(n kahn.Node, field string) bool {
	return field == "When" && n.WhenExpr != "" || field == "Test" && n.TestExpr != "" || field == "Loop" && n.Loop != nil && n.Loop.UntilExpr != ""
}

// The method record returns the recorded result of a call, or makes the call and records its result. An error of the called
// function is in the reply. The method itself returns an error if the SDK returns an error, or if the SDK panics because the history differs.
func (x *interpreter) record(path, field string, call func() (any, error)) (reply kahn.Reply, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("kahn/temporal: %s of node %q: %v", field, path, v)
		}
	}()
	var data json.RawMessage
	recorded := workflow.SideEffect(x.ctx, func(workflow.Context) any {
		step := func(context.Context, *kahn.Step) (any, error) { return call() }
		withoutDeadlockDetection(x.ctx, func() {
			reply = <-begin(context.Background(), kahn.Call{Path: path, Codec: x.host.texts.Codec}, step, nil)
			_, _, data = x.write(path, reply, remarked{})
		})
		return data
	})
	if err := recorded.Get(&data); err != nil {
		return reply, err
	}
	reply, _ = x.texts.replyOf(outcome{Reply: data})
	return reply, nil
}

// ErrImpure is matched by the error of a workflow task in which a function has returned two different results for the same arguments, although it
// must depend on its arguments alone: see Options.Pure and Kind.Workflow.
var ErrImpure = errors.New("a function that must depend only on its arguments returned different results")

// verified records which functions of plans a worker has called twice.
type verified struct {
	always bool // call the function twice at every call: in tests, and in replays of recorded histories
	mu     sync.Mutex
	once   map[string]bool
}

// The method asks reports whether the worker must call the function twice now. It returns true for the first call of the function,
// and for all calls if v.always is set.
func (v *verified) asks(plan, path, field string) bool {
	if v.always {
		return true
	}
	key := plan + " " + withoutNumbers(path) + " " + field
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.once[key] {
		return false
	}
	if v.once == nil {
		v.once = map[string]bool{}
	}
	v.once[key] = true
	return true
}

// withoutNumbers returns a path without the numbers of items and iterations, since all items and iterations of a node share its functions.
func withoutNumbers(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		b.WriteByte(path[i])
		if path[i] == '[' || path[i] == '#' {
			for i+1 < len(path) && '0' <= path[i+1] && path[i+1] <= '9' {
				i++
			}
		}
	}
	return b.String()
}

// verify calls a function that was declared as pure. If this is the worker's first call of the function, verify calls it twice. If the results
// differ, the workflow task fails. Temporal then records no result of the task, so no history depends on the function.
func (x *interpreter) verify(path, field string, call func() (any, error)) (any, error) {
	n, _ := x.plan.At(path)
	if isText(n, field) || !x.pure.asks(x.in.Plan.Print, path, field) {
		return call()
	}
	first, again := caught(x.ctx, call), caught(x.ctx, call)
	if !x.alike(first, again) {
		x.broken = fmt.Errorf("%w: %s of node %q has returned %s, and then %s", ErrImpure, field, path, first, again)
		return nil, x.broken
	}
	switch {
	case first.panicked != nil:
		panic(first.panicked)
	case first.goexit:
		return nil, kahn.ErrGoexit
	}
	return first.value, first.err
}

// returned says how a call of a function ended: with a value, with an error, by a panic or by Goexit.
type returned struct {
	value    any
	err      error
	panicked any
	goexit   bool
}

func (r returned) String() string {
	switch {
	case r.panicked != nil:
		return fmt.Sprintf("the panic %q", shorten(fmt.Sprint(r.panicked), maxSummary))
	case r.goexit:
		return "no value: it has ended its goroutine"
	case r.err != nil:
		return fmt.Sprintf("the error %q", shorten(r.err.Error(), maxSummary))
	}
	return shorten(fmt.Sprintf("%v", r.value), maxSummary)
}

// caught makes a call on a new goroutine, since the called function may end its goroutine.
func caught(ctx workflow.Context, call func() (any, error)) (r returned) {
	withoutDeadlockDetection(ctx, func() {
		done := make(chan struct{})
		r.goexit = true
		go func() {
			defer close(done)
			defer func() {
				if r.panicked = recover(); r.panicked != nil {
					r.goexit = false
				}
			}()
			r.value, r.err = call()
			r.goexit = false
		}()
		<-done
	})
	return r
}

// alike reports whether two calls would leave the same record in a history.
func (x *interpreter) alike(a, b returned) bool {
	if a.goexit || b.goexit {
		return a.goexit == b.goexit
	}
	if a.String() != b.String() && (a.panicked != nil || b.panicked != nil || a.err != nil || b.err != nil) {
		return false
	}
	if reflect.DeepEqual(a.value, b.value) {
		return true
	}
	one, err := x.host.texts.Encode(a.value)
	other, otherErr := x.host.texts.Encode(b.value)
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}
