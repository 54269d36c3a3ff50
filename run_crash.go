package kahn

import (
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn/event"
)

// defaultMaxCrashes is the bound without the option MaxCrashes.
const defaultMaxCrashes = 3

// MaxCrashes bounds how often in a row the process may die during attempts of one node: once more, and the node fails with
// [CauseCrashed] when the run goes on, so that a step that takes its process down does not do so for ever. It is not retried; catch
// edges, error boundaries, ContinueOnFail and Fallback apply; the Fallback may take the process down as often again. Crashes are known under [Durable] alone; a life that was left because its store did not answer counts as one
// for the attempts that were under way. Any end of an attempt sets the count back. Negative means no bound. Node.MaxCrashes is for a node by itself. Default: 3.
func MaxCrashes(n int) Option {
	return optionFunc(func(c *config) error { c.maxCrashes = n; return nil })
}

// doomed reports why a node fails when the run goes on: the process has died too often during its attempts, or the store has refused its
// output.
func (r *Run) doomed(ref Ref) error {
	x := r.extras[ref]
	switch {
	case x == nil:
		return nil
	case x.refused != nil:
		return x.refused
	case x.crashes == 0:
		return nil
	}
	if most := r.mostCrashes(ref); most < 0 || int(x.crashes) <= most {
		return nil
	}
	return fmt.Errorf("%w: %d", ErrCrashed, x.crashes)
}

// mostCrashes is how often in a row the process may die during attempts of a node; negative for no bound.
func (r *Run) mostCrashes(ref Ref) int {
	if n := r.plan.node(ref).MaxCrashes; n != 0 {
		return n
	}
	return r.cfg.maxCrashes
}

// saves reports whether the Fallback of a doomed node is called: not if the output that was refused is that of the Fallback, nor when the process
// has died as often since the node was doomed as it may die before.
func (r *Run) saves(ref Ref) bool {
	x, most := r.extras[ref], r.mostCrashes(ref)
	bound := most
	if x.refused == nil {
		bound = 2*most + 1
	}
	return r.wantsFallback(ref) && !r.records[ref].fallback && (most < 0 || int(x.crashes) <= bound)
}

// causeOfDoom is the cause of the failure of a doomed node.
func causeOfDoom(err error) CauseKind {
	if errors.Is(err, ErrCrashed) {
		return CauseCrashed
	}
	return CauseStoreRejected
}

// endDoomed ends the doomed nodes, before anything else happens in this life. A node that its Fallback may save begins an attempt that calls
// nothing but that.
func (h *held) endDoomed(now int64) {
	h.each(func(h *held) {
		r := h.run
		for _, ref := range r.plan.declared {
			err, rec := r.doomed(ref), &r.records[ref]
			if err == nil || r.st.Status(ref) != Ready || r.saves(ref) {
				continue
			}
			rec.value, rec.end, rec.noRetry, rec.fallback = err, now, event.NoRetryCause, false
			if err := r.st.Fail(r.st.Token(ref), causeOfDoom(err)); err != nil {
				r.st.NoteBug(err)
			}
			r.disarmNode(ref)
			r.react(ref, false)
		}
	})
}

// resultOfDoom is the result of the attempt of a doomed node, which its Fallback follows.
func (r *Run) resultOfDoom(ref Ref) attemptResult {
	r.st.Lock()
	defer r.st.Unlock()
	err := r.doomed(ref)
	return attemptResult{err: err, kind: causeOfDoom(err)}
}
