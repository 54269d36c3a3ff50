package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/reactive"
)

// hub coordinates the calls of a job. It subscribes effects to the State of the job. An effect is a function that is called when the State changes.
// [machine.State.Drive] subscribes the effects that call the methods `start` and `abort`. All effects run on the goroutine that calls coordinate, so
// the hub needs no lock of its own.
type hub struct {
	out     io.Writer
	plan    *kahn.Plan
	st      *machine.State
	rpc     *rpc
	calls   map[string]machine.Token // the tokens of all calls that were started, by the ids of the calls
	current map[machine.Ref]string   // the id of each node's latest call
	refused int                      // how many answers came twice or too late
	ended   kahn.RunStatus
}

const maxAttempts = 3

func newHub(out io.Writer, g *kahn.Graph, rpc *rpc) (*hub, error) {
	plan, err := g.Compile()
	if err != nil {
		return nil, err
	}
	st, err := kahn.NewState(plan)
	if err != nil {
		return nil, err
	}
	return &hub{out: out, plan: plan, st: st, rpc: rpc, calls: map[string]machine.Token{}, current: map[machine.Ref]string{}}, nil
}

// coordinate runs the job to its end.
func (h *hub) coordinate() error {
	defer h.st.Dispose() // after Dispose, no effect runs
	for ref := range h.plan.Declared() {
		if err := h.observe(ref); err != nil {
			return err
		}
	}
	if err := h.st.Drive(h.start, h.abort); err != nil {
		return err
	}
	if err := h.abortInVain("publish", "audit"); err != nil {
		return err
	}
	if _, err := h.st.RunStatusSignal().Subscribe(h.st.Scope(), func(_ reactive.Writer, s kahn.RunStatus) { h.ended = s }); err != nil {
		return err
	}
	for !h.ended.Terminal() {
		h.deliver(<-h.rpc.answers)
	}
	for a := range h.rpc.hangUp() { // answers that arrive after the end of the job change nothing
		h.deliver(a)
	}
	fmt.Fprintf(h.out, "%-8s %v; %d calls, %d answers that came twice or too late\n", "run", h.ended, len(h.calls), h.refused)
	return h.st.Scope().Err()
}

// observe subscribes an effect that prints the terminal status of a node.
func (h *hub) observe(ref machine.Ref) error {
	id := h.plan.ID(ref)
	_, err := h.st.StatusSignal(ref).Subscribe(h.st.Scope(), func(_ reactive.Writer, s kahn.Status) {
		switch {
		case s == kahn.Skipped:
			fmt.Fprintf(h.out, "%-8s skipped: %v\n", id, h.plan.SkipReason(h.st, ref))
		case s.CallAction() == machine.CallAbort && h.current[ref] == "":
			fmt.Fprintf(h.out, "%-8s %v before there was a call\n", id, s)
		case s.Terminal():
			fmt.Fprintf(h.out, "%-8s %v\n", id, s)
		}
	})
	return err
}

// abortInVain subscribes an effect. When the node `blocked` can no longer start, the effect aborts the node `then`, unless `then` has ended.
// AbortNode makes all changes that follow from the abort before it returns. The effects of these changes run after this effect.
func (h *hub) abortInVain(blocked, then string) error {
	b, _ := h.plan.Ref(blocked)
	x, _ := h.plan.Ref(then)
	_, err := h.st.BlockedSignal(b).Subscribe(h.st.Scope(), func(_ reactive.Writer, is bool) {
		if is && !h.st.Status(x).Terminal() {
			if err := h.st.AbortNode(x, kahn.CauseAbortAll); err != nil {
				panic(err) // the panic becomes the error of the effect
			}
		}
	})
	return err
}

// The method `start` starts the call of an attempt that has begun. No node of the job needs a check or is a gate, so every task is an attempt.
func (h *hub) start(task machine.Task) {
	id := h.plan.ID(task.Ref)
	call := fmt.Sprintf("%s#%d", id, task.Attempt)
	h.calls[call], h.current[task.Ref] = task.Token, call
	fmt.Fprintf(h.out, "%-8s start call %s\n", id, call)
	h.rpc.call(call, id, int(task.Attempt))
}

// abort aborts the call of an attempt that was stopped.
func (h *hub) abort(t machine.Token) {
	call := h.current[t.Ref]
	fmt.Fprintf(h.out, "%-8s abort call %s\n", h.plan.ID(t.Ref), call)
	h.rpc.abort(call)
}

// deliver reports an answer to the State. If the answer is not for the current attempt of its node, the State returns ErrStale, and the
// hub only counts the answer.
func (h *hub) deliver(a answer) {
	token := h.calls[a.call]
	status, cause := a.status.NodeStatus(token.Attempt < maxAttempts && !a.final, kahn.CauseNone)
	var err error
	switch status {
	case kahn.Running:
		return // the call has started, not ended
	case kahn.Retrying:
		if err = h.st.Retry(token); err == nil {
			err = h.st.Requeue(token) // retried at once; for a delay the hub would need a timer
		}
	default:
		err = h.st.Settle(token, machine.Outcome{Status: status, Cause: cause})
	}
	if errors.Is(err, kahn.ErrStale) {
		h.refused++
	} else if err != nil {
		panic(err)
	}
}
