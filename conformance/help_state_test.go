package conformance_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/strict"
	"github.com/seed-c794f7ef/kahn/machine"
)

// This file has States that a test drives, and functions that inspect the State of a run.

func init() { strict.Transitions = true }

func stateOf(t testing.TB, g *kahn.Graph, opts ...kahn.Option) (*kahn.Plan, *machine.State) {
	t.Helper()
	plan, err := g.Compile()
	require.NoError(t, err)
	st, err := kahn.NewState(plan, opts...)
	require.NoError(t, err)
	return plan, st
}

func ref(t testing.TB, p *kahn.Plan, id string) machine.Ref {
	t.Helper()
	r, ok := p.Ref(id)
	require.True(t, ok)
	return r
}

var completed = machine.Outcome{Status: kahn.Completed}

// coordinator drives a State with exported methods only. Steps end in random order, and some outcomes are delivered twice or late.
type coordinator struct {
	t       *testing.T
	s       *scenario
	plan    *kahn.Plan
	st      *machine.State
	rng     *rand.Rand
	outputs map[string]any
	running []machine.Task
	limit   int
}

func (c *coordinator) settle(task machine.Task) {
	id := c.plan.ID(task.Ref)
	out := machine.Outcome{Status: kahn.Completed}
	var output any = id
	switch outcome := c.s.outcomes[id]; outcome {
	case "", "ok":
	case "err":
		out = machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError}
	case "skip":
		out = machine.Outcome{Status: kahn.Skipped}
	case "cancel":
		require.NoError(c.t, c.st.CancelNode(task.Ref))
		require.ErrorIs(c.t, c.st.Settle(task.Token, out), kahn.ErrStale)
		return
	case "null":
		output = nil
	default:
		output = outcome
	}
	if out.Status == kahn.Completed {
		out.Route, _ = c.plan.Route(task.Ref, output)
		c.outputs[id] = output
	}
	require.NoError(c.t, c.st.Settle(task.Token, out))
	if c.rng.IntN(3) == 0 { // a duplicate delivery must change nothing
		before := c.statuses()
		require.ErrorIs(c.t, c.st.Settle(task.Token, machine.Outcome{Status: kahn.Failed, Cause: kahn.CausePanic}), kahn.ErrStale)
		require.Equal(c.t, before, c.statuses())
	}
}

func (c *coordinator) statuses() (all []kahn.Status) {
	for r := range c.plan.Declared() {
		all = append(all, c.st.Status(r))
	}
	return all
}

// verdict performs a check of a node: the guard, then its required ports, which the matrix rows bind to one edge each.
func (c *coordinator) verdict(r machine.Ref) machine.CheckVerdict {
	n := c.plan.Node(r)
	if n.When != nil {
		if pass, _ := n.When(kahn.View{}); !pass {
			return machine.CheckVerdict{Skip: kahn.SkipWhenGuard}
		}
	}
	for i, port := range n.Ports {
		var value any
		for i, d := range c.st.Inputs(r) {
			e := c.plan.Edge(i)
			if e.Param != port.Name {
				continue
			}
			switch d {
			case machine.DeliverOutput:
				value = c.outputs[e.From]
			case machine.DeliverError:
				value = errStep
			case machine.DeliverDefault:
				value = ""
			}
		}
		if value == nil {
			return machine.CheckVerdict{Skip: kahn.SkipNullPropagation, Port: i}
		}
	}
	return machine.CheckVerdict{}
}

// cutState encodes a State's snapshot as JSON and continues the State from it.
func cutState(t testing.TB, plan *kahn.Plan, st *machine.State, opts ...kahn.Option) *machine.State {
	before := st.Snapshot()
	data, err := json.Marshal(before)
	require.NoError(t, err)
	var x machine.StateSnapshot
	require.NoError(t, json.Unmarshal(data, &x))
	next, err := kahn.RestoreState(plan, x, opts...)
	require.NoError(t, err)
	after := next.Snapshot()
	before.Gates, after.Gates = nil, nil // gates that were handed out are handed out again
	require.Equal(t, before, after, "it has another snapshot at once")
	for r, id := range plan.Declared() {
		require.Equal(t, st.Status(r), next.Status(r), id)
	}
	return next
}

func coordinate(t *testing.T, g *kahn.Graph, opts ...kahn.Option) *kahn.Coordinator {
	plan, err := g.Compile()
	require.NoError(t, err)
	c, err := kahn.NewCoordinator(plan, deskEpoch, opts...)
	require.NoError(t, err)
	return c
}

// nextOf returns the next attempt, which must belong to the given node.
func nextOf(t *testing.T, c *kahn.Coordinator, path string) *kahn.Step {
	t.Helper()
	s, ok := c.Next()
	require.True(t, ok, "there is no next attempt")
	require.Equal(t, path, s.Path())
	return s
}

var deskEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the time at which a synctest bubble begins

// core locks and returns the State of a run.
func core(run *kahn.Run) (s *machine.Locked, unlock func()) {
	s = (*machine.Locked)(run.State())
	s.Lock()
	return s, s.Unlock
}

// leftovers returns the slots that a run's State still holds, and the nodes that are not terminal. It returns "" if the run has ended.
func leftovers(run *kahn.Run) string {
	s, unlock := core(run)
	defer unlock()
	return strings.Join(append(s.HeldSlots(), s.Leftovers()...), ", ")
}

// heldSlots returns the slots that a run still holds after it was left, or "".
func heldSlots(run *kahn.Run) string {
	s, unlock := core(run)
	defer unlock()
	return strings.Join(s.HeldSlots(), ", ")
}

// transitions returns the transitions of nodes since KeepLog was called.
func transitions(st *machine.State) []machine.Change {
	return slices.DeleteFunc(slices.Clone((*machine.Locked)(st).Changes()), func(c machine.Change) bool { return c.Wave != 0 })
}

// tolerateBugs turns invalid transitions into warnings, as in production, until undo is called. In tests such a transition panics.
func tolerateBugs() (undo func()) {
	strict.Transitions = false
	return func() { strict.Transitions = true }
}
