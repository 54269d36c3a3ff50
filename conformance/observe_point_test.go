package conformance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/reactive"
)

// A sight holds the values that one observer has read from a State's signals. A value that was not read is nil or missing.
type sight struct {
	nodes  []nodeSight // by Ref
	counts map[kahn.Status]int
	run    *kahn.RunStatus
}

type nodeSight struct {
	status         *kahn.Status
	ready, blocked *bool
}

// A point describes a State between two transitions.
type point struct {
	status         []kahn.Status
	ready, blocked []bool
	over           bool
}

// points returns the points before, between and after the transitions.
func points(plan *kahn.Plan, st *machine.State, changes []machine.Change) []point {
	n := plan.Len()
	var preds [][]machine.Ref
	for r := range n {
		var from []machine.Ref
		for e := range st.Inputs(machine.Ref(r)) {
			p, _ := plan.Ref(plan.Edge(e).From)
			from = append(from, p)
		}
		preds = append(preds, from)
	}
	status, ready, blocked, started := make([]kahn.Status, n), make([]bool, n), make([]bool, n), make([]bool, n)
	take := func() point {
		p := point{slices.Clone(status), slices.Clone(ready), slices.Clone(blocked), true}
		for r := range n {
			if p.status[r] == kahn.Idle && slices.ContainsFunc(preds[r], func(f machine.Ref) bool { return started[f] }) {
				p.status[r] = kahn.Waiting
			}
			p.over = p.over && p.status[r].Terminal()
		}
		return p
	}
	all := []point{take()}
	for _, c := range changes {
		if c.Blocked {
			blocked[c.Ref] = true
		} else {
			status[c.Ref] = c.Status
			ready[c.Ref] = ready[c.Ref] || c.Status == kahn.Ready
			started[c.Ref] = started[c.Ref] || c.Status > kahn.Ready
		}
		all = append(all, take())
	}
	return all
}

// shows reports whether all values of the sight are equal to the values of the point.
func (p *point) shows(s *sight) bool {
	for r, n := range s.nodes {
		if n.status != nil && *n.status != p.status[r] || n.ready != nil && *n.ready != p.ready[r] || n.blocked != nil && *n.blocked != p.blocked[r] {
			return false
		}
	}
	for status, count := range s.counts {
		for _, x := range p.status {
			if x == status {
				count--
			}
		}
		if count != 0 {
			return false
		}
	}
	return s.run == nil || s.run.Terminal() == p.over
}

// look reads signals of the State in random order, each with a probability of 1/every. Between two reads it calls the function "between", which
// may change the State.
func look(rng *rand.Rand, st *machine.State, r reactive.Reader, n, every int, between func()) *sight {
	s := &sight{nodes: make([]nodeSight, n), counts: map[kahn.Status]int{}}
	reads := []func(){func() { x := st.RunStatusSignal().Get(r); s.run = &x }}
	for i := range n {
		at := machine.Ref(i)
		reads = append(reads,
			func() { x := st.StatusSignal(at).Get(r); s.nodes[i].status = &x },
			func() { x := st.ReadySignal(at).Get(r); s.nodes[i].ready = &x },
			func() { x := st.BlockedSignal(at).Get(r); s.nodes[i].blocked = &x })
	}
	for status := kahn.Idle; status <= kahn.Aborted; status++ {
		reads = append(reads, func() { s.counts[status] = st.CountSignal(status).Get(r) })
	}
	for _, i := range rng.Perm(len(reads)) {
		if rng.IntN(every) == 0 {
			reads[i]()
			between()
		}
	}
	return s
}

// handDriven is a State that the test drives at random.
type handDriven struct {
	t       *testing.T
	rng     *rand.Rand
	plan    *kahn.Plan
	st      *machine.State
	running []machine.Task
	waiting []machine.Task
}

// drive makes one random call to the State.
func (h *handDriven) drive() {
	switch h.rng.IntN(8) {
	case 0, 1, 2:
		task, ok := h.st.Next()
		switch {
		case !ok:
		case task.Check:
			v := machine.CheckVerdict{}
			if h.rng.IntN(3) == 0 {
				v = machine.CheckVerdict{Skip: kahn.SkipWhenGuard}
			}
			_ = h.st.Checked(task.Token, v)
		case task.Gate:
			require.NoError(h.t, h.st.Suspend(task.Token))
			h.waiting = append(h.waiting, task)
		default:
			h.running = append(h.running, task)
		}
	case 3:
		if h.rng.IntN(30) == 0 {
			h.st.AbortAll()
		}
	case 4:
		if len(h.waiting) > 0 {
			i := h.rng.IntN(len(h.waiting))
			task := h.waiting[i]
			h.waiting = slices.Delete(h.waiting, i, i+1)
			_ = h.st.Settle(task.Token, completed) // refused if the node was aborted meanwhile
		}
	default:
		if len(h.running) > 0 {
			i := h.rng.IntN(len(h.running))
			task := h.running[i]
			h.running = slices.Delete(h.running, i, i+1)
			_ = somehow(h.rng, h.st, task)
		}
	}
}

// policyGraph returns a random graph of nodes with different failure policies, some with guards, and gates.
func policyGraph(rng *rand.Rand, n int) *kahn.Graph {
	var g kahn.Graph
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i)}
		node.OnUpstreamFailure = []machine.UpstreamPolicy{kahn.UpstreamAbort, kahn.UpstreamSkip, kahn.UpstreamPropagate, kahn.UpstreamSubstitute}[rng.IntN(4)]
		switch rng.IntN(5) {
		case 0:
			node.When = func(kahn.View) (bool, error) { return true, nil }
		case 1:
			node.Kind = kahn.KindGate
		}
		for range min(rng.IntN(4), i) {
			if from := fmt.Sprint("n", rng.IntN(i)); !slices.Contains(node.After, from) {
				node.After = append(node.After, from)
			}
		}
		g.Add(node)
	}
	return &g
}

// TestCallbacksSeeOnePoint: an effect, a computed, a cleanup or a batch sees the State as it was between two transitions, whichever signals it
// reads and however the State changes meanwhile. Signals are created at any time.
func TestCallbacksSeeOnePoint(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t, size(150, 40, 10_000)) {
		rng := rand.New(rand.NewPCG(seed, 13))
		const n = 9
		mode := []kahn.Option{kahn.Eager, kahn.Waves}[rng.IntN(2)]
		plan, st := stateOf(t, policyGraph(rng, n), mode)
		(*machine.Locked)(st).KeepLog()
		h := &handDriven{t: t, rng: rng, plan: plan, st: st}
		disposed := false
		var now []*sight // sights read from outside, between two calls
		var nowAt []int  // for each of these, the number of transitions before it
		var sights []*sight
		callback := func(w reactive.Writer) {
			sights = append(sights, look(rng, st, w, n, 1+rng.IntN(12), func() {
				if rng.IntN(5) == 0 {
					h.drive()
				}
				if rng.IntN(2000) == 0 { // a callback sees the same point until it returns
					st.Dispose()
					disposed = true
				}
			}))
		}
		var initial []machine.Change // the changes that NewState made
		for r := range plan.Declared() {
			if st.Status(r) == kahn.Ready {
				initial = append(initial, machine.Change{Ref: r, Status: kahn.Ready})
			}
		}
		var effects []*reactive.Effect
		for step := 0; !st.Done() && !disposed && step < 2000; step++ {
			switch rng.IntN(12) {
			case 0:
				e, err := reactive.NewEffect(st.Scope(), func(w reactive.Writer) {
					callback(w)
					if rng.IntN(4) == 0 {
						w.OnCleanup(callback)
					}
					if rng.IntN(6) == 0 {
						_, _ = reactive.NewEffect(w, callback)
					}
				})
				require.NoError(t, err)
				effects = append(effects, e)
			case 1:
				_ = reactive.Batch(st.Scope(), callback)
			case 4:
				_ = reactive.Batch(st.Scope(), func(w reactive.Writer) {
					now, nowAt = append(now, look(rng, st, w, n, 1+rng.IntN(12), func() {})), append(nowAt, len(transitions(st)))
				})
			case 2:
				seen := reactive.NewComputed(st.Scope(), func(r reactive.Reader) int {
					sights = append(sights, look(rng, st, r, n, 4, func() {}))
					return len(sights)
				})
				effects = append(effects, effect(t, st.Scope(), func(w reactive.Writer) { seen.Get(w) }))
			case 3:
				if len(effects) > 3 {
					effects[rng.IntN(len(effects))].Dispose()
				}
			default:
				h.drive()
			}
			if len(effects) > 12 {
				effects[0].Dispose()
				effects = effects[1:]
			}
		}
		require.NoError(t, st.Scope().Err())
		changes := slices.Concat(initial, transitions(st))
		all := points(plan, st, changes)[len(initial):]
		for _, s := range sights {
			require.True(t, slices.ContainsFunc(all, func(p point) bool { return p.shows(s) }), "seed %d: %s was never so", seed, s)
		}
		for i, s := range now {
			require.True(t, all[nowAt[i]].shows(s), "seed %d: %s, after %d transitions", seed, s, nowAt[i])
		}
	}
}

func (s *sight) String() string {
	text := ""
	for r, n := range s.nodes {
		if n.status != nil {
			text += fmt.Sprintf(" n%d %v", r, *n.status)
		}
		if n.ready != nil {
			text += fmt.Sprintf(" n%d ready %v", r, *n.ready)
		}
		if n.blocked != nil {
			text += fmt.Sprintf(" n%d blocked %v", r, *n.blocked)
		}
	}
	return fmt.Sprint(text, " ", s.counts, " ", s.run)
}

// TestCountsInTheMiddle: an effect starts a node between two reads of the counts, and both reads agree.
func TestCountsInTheMiddle(t *testing.T) {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.Node{ID: "c", After: []string{"a"}})
	_, st := stateOf(t, &g)
	ready := st.CountSignal(kahn.Ready)
	var seen []map[kahn.Status]int
	effect(t, st.Scope(), func(w reactive.Writer) {
		if len(seen) == 0 {
			_, ok := st.Next()
			require.True(t, ok)
		}
		counts := map[kahn.Status]int{kahn.Ready: ready.Get(w)}
		for _, status := range []kahn.Status{kahn.Idle, kahn.Waiting, kahn.Running} {
			counts[status] = st.CountSignal(status).Get(w)
		}
		seen = append(seen, counts)
	})
	require.Equal(t, []map[kahn.Status]int{
		{kahn.Ready: 1, kahn.Idle: 2, kahn.Waiting: 0, kahn.Running: 0},
		{kahn.Ready: 0, kahn.Idle: 0, kahn.Waiting: 2, kahn.Running: 1},
	}, seen)
}

// TestScopeOfAStateDisposed: after the scope was disposed, effects do not run any more.
func TestScopeOfAStateDisposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		run, err := kahn.Start(t.Context(), chainGraph(2), func(context.Context, *kahn.Step) (any, error) { <-release; return nil, nil })
		require.NoError(t, err)
		synctest.Wait()
		st := run.State()
		status := st.StatusSignal(0)
		effect(t, st.Scope(), func(w reactive.Writer) { status.Get(w) })
		st.Scope().Dispose()
		close(release)
		res, err := run.Wait()
		require.NoError(t, err)
		require.Empty(t, res.Warnings, "nothing is busy with signals")
		require.Equal(t, kahn.Running, status.Load())
		require.Equal(t, kahn.Completed, st.StatusSignal(1).Load())
		require.Equal(t, 2, st.CountSignal(kahn.Completed).Load())
		require.Equal(t, kahn.RunCompleted, st.RunStatusSignal().Load(), "what is asked for later shows what is then")
	})
}

// TestDormantComposite: if all nodes inside a composite wait, all observers see the composite as suspended, and so do its signals.
func TestDormantComposite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inner, g kahn.Graph
		inner.Add(kahn.Node{ID: "gate", Kind: kahn.KindGate})
		g.Add(kahn.Node{ID: "sub", Sub: &inner})
		run, err := kahn.Start(t.Context(), &g, nil)
		require.NoError(t, err)
		st := run.State()
		status, suspended := st.StatusSignal(0), st.CountSignal(kahn.Suspended)
		synctest.Wait()
		now, _ := run.NodeStatus("sub")
		require.Equal(t, kahn.Suspended, now)
		require.Equal(t, kahn.Suspended, status.Load())
		require.Equal(t, 1, suspended.Load())
		run.Cancel()
		_, _ = run.Wait()
		require.Equal(t, kahn.Cancelled, status.Load())
		require.Equal(t, 0, suspended.Load())
	})
}
