package temporal

import (
	"context"
	"encoding/json"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// decide makes a call of a function of the plan. Of a Go function that was not declared as pure the history has what it has returned, and a replay does not call
// it. Texts depend on their arguments alone.
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
		panic(p.Value) // the run makes a PanicError of it, as of the function's own
	}
	return reply.Value, reply.Err
}

// isText reports whether a node has a text in place of a function.
func isText(n kahn.Node, field string) bool {
	return field == "When" && n.WhenExpr != "" || field == "Test" && n.TestExpr != "" || field == "Loop" && n.Loop != nil && n.Loop.UntilExpr != ""
}

// record returns what the history has of a call, or makes it. An error, which may be a panic of the SDK that finds another history, is not the
// function's.
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
