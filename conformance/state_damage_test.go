package conformance_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// prodder calls the methods of a State at random. A call that the State refuses must change nothing. A transition that is not in the table
// panics.
type prodder struct {
	plan *kahn.Plan
	st   *machine.State
	rng  *rand.Rand
	ends bool // whether attempts end without a retry or a suspension
}

// token returns the current token of a node, as the State stores it.
func (p *prodder) token(r machine.Ref) machine.Token {
	return machine.Token{Ref: r, Attempt: int32(binary.LittleEndian.Uint32(p.st.Snapshot().Words[8*r:]))}
}

func (p *prodder) outcome(r machine.Ref) machine.Outcome {
	switch p.rng.IntN(8) {
	case 0:
		return machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError}
	case 1:
		return machine.Outcome{Status: kahn.Skipped}
	case 2:
		return machine.Outcome{Status: kahn.Cancelled, Cause: kahn.CauseExternal}
	}
	out := machine.Outcome{Status: kahn.Completed}
	out.Route, _ = p.plan.Route(r, p.rng.IntN(2) == 0)
	return out
}

// act calls one method for one node.
func (p *prodder) act(r machine.Ref) {
	token := p.token(r)
	switch p.st.Status(r) {
	case kahn.Idle, kahn.Waiting:
		_ = p.st.Checked(machine.Token{Ref: r}, []machine.CheckVerdict{{}, {Skip: kahn.SkipWhenGuard}, {Fail: kahn.CausePanic}}[p.rng.IntN(3)])
	case kahn.Ready:
		if p.rng.IntN(2) == 0 && !p.ends {
			_ = p.st.Suspend(token)
		} else {
			_ = p.st.Settle(token, p.outcome(r))
		}
	case kahn.Running:
		switch kind := p.rng.IntN(4); {
		case kind == 0 && !p.ends:
			_ = p.st.Retry(token)
		case kind == 1 && !p.ends:
			_ = p.st.Suspend(token)
		default:
			_ = p.st.Settle(token, p.outcome(r))
		}
	case kahn.Retrying:
		_ = p.st.Requeue(token)
	case kahn.Suspended:
		if p.st.Resume(token) != nil {
			_ = p.st.Settle(token, p.outcome(r))
		}
	}
}

// prod makes n random calls.
func (p *prodder) prod(n int) {
	for range n {
		r := machine.Ref(p.rng.IntN(p.plan.Len()))
		switch p.rng.IntN(40) {
		case 0:
			_ = p.st.StopNode(r, kahn.CauseCancelNode)
		case 1:
			_ = p.st.AbortNode(r, kahn.CauseSiblingFailure)
		case 2:
			_ = p.st.Drain(kahn.CauseFailFast)
		case 3:
			_ = p.st.Stop(kahn.CauseCancelRun)
		case 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15:
			_, _ = p.st.Next()
		default:
			p.act(r)
		}
	}
}

// end aborts all nodes and ends the nodes that are still running. It reports whether the run has ended.
func (p *prodder) end() bool {
	p.st.AbortAll()
	for i := range 30 {
		p.ends = i >= 10 // otherwise a node may be retried in the last round
		for range 2 * p.plan.Len() {
			_, _ = p.st.Next()
		}
		for r := range p.plan.Declared() {
			p.act(r)
		}
	}
	return p.st.Done()
}

// look calls every reading method of a State.
func (p *prodder) look() {
	for r := range p.plan.Declared() {
		_, _ = p.st.Cause(r)
		_, _ = p.plan.SkipReason(p.st, r), p.st.Taken(r)
		for range p.st.Inputs(r) {
			continue
		}
	}
	_, _ = p.st.RunStatus(machine.StatusEscaped)
}

// damageGraphs returns graphs whose nodes together use every flag of a node's word. A word is the number in which the State stores a node's
// status and flags.
func damageGraphs() map[string]*kahn.Graph {
	yes := func(kahn.View) (bool, error) { return true, nil }
	return map[string]*kahn.Graph{
		"plain":    graph(after("a"), after("b", "a"), after("c", "a", "b"), after("d")),
		"boundary": graph(after("a"), after("b", "a"), kahn.Node{ID: "c", After: []string{"a", "b"}, Join: kahn.Boundary}, after("d", "c")),
		"cleanup":  graph(after("a"), kahn.Node{ID: "b", After: []string{"a"}, Cleanup: true}, kahn.Node{ID: "c", Cleanup: true}),
		"end":      graph(after("a"), after("b", "a"), kahn.Node{ID: "end", Kind: kahn.KindEnd}),
		"composite": graph(kahn.Node{ID: "a", Sub: graph(after("x"))}, after("b", "a"),
			kahn.Node{ID: "c", Sub: graph(after("x")), After: []string{"a"}}),
		"gate": graph(kahn.Node{ID: "a", Kind: kahn.KindGate}, after("b", "a"), kahn.Node{ID: "c", Kind: kahn.KindGate, After: []string{"b"}}),
		"early": graph(after("a"), after("b"), after("c"), kahn.Node{ID: "any", After: []string{"a", "b"}, Join: kahn.AnySucceeded, CancelLosers: true},
			kahn.Node{ID: "two", After: []string{"a", "b", "c"}, Join: kahn.AtLeast(2)}, kahn.Node{ID: "bad", After: []string{"b"}, Join: kahn.OneFailed}),
		"choice": graph(kahn.If("a", yes), kahn.Node{ID: "b", In: []kahn.Edge{{From: "a", Label: "true"}}},
			kahn.Node{ID: "c", In: []kahn.Edge{{From: "a", Label: "false"}}}, kahn.Node{ID: "d", After: []string{"b", "c"}, SkipMode: kahn.SkipSatisfy}),
		"guard": graph(kahn.Node{ID: "a", When: yes}, kahn.Node{ID: "b", After: []string{"a"}, SkipMode: kahn.SkipSatisfy}, kahn.Node{ID: "c", Disabled: true}, after("d", "c")),
		"policies": graph(kahn.Node{ID: "a", ContinueOnFail: true}, after("b"), kahn.Node{ID: "c", After: []string{"a", "b"}, OnUpstreamFailure: kahn.UpstreamSubstitute},
			kahn.Node{ID: "d", After: []string{"b"}, OnUpstreamFailure: kahn.UpstreamPropagate}, kahn.Node{ID: "e", After: []string{"b"}, OnUpstreamFailure: kahn.UpstreamSkip}),
	}
}

// RestoreState refuses a snapshot with one flipped bit, unless it is a snapshot of another possible run of the same graph. In that case the restored
// State obeys the transition rules, answers all reading methods, and comes to an end.
func TestStateSnapshotEveryBit(t *testing.T) {
	t.Parallel()
	refused, accepted := 0, 0
	for name, g := range damageGraphs() {
		plan, err := g.Compile()
		require.NoError(t, err)
		for seed := range seeds(t, size(12, 3, 400)) {
			mode := kahn.Mode(seed % 2)
			st, err := kahn.NewState(plan, mode)
			require.NoError(t, err)
			p := &prodder{plan, st, rand.New(rand.NewPCG(seed, 3)), false}
			p.prod(int(seed) * 3 % 40)
			x := st.Snapshot()
			for bit := -1; bit < 8*len(x.Words); bit++ {
				y := x
				y.Words = slices.Clone(x.Words)
				if bit >= 0 {
					y.Words[bit/8] ^= 1 << (bit % 8)
				}
				st, err := kahn.RestoreState(plan, y, mode)
				if err != nil {
					require.ErrorIs(t, err, kahn.ErrBadValue)
					require.NotEqual(t, -1, bit, "%s, seed %d: %v", name, seed, err)
					refused++
					continue
				}
				accepted++
				p := &prodder{plan, st, rand.New(rand.NewPCG(seed, uint64(bit))), false}
				p.look()
				p.prod(20)
				require.True(t, p.end(), "%s, seed %d, bit %d of node %d", name, seed, bit%64, bit/64)
				p.look()
			}
		}
	}
	require.Greater(t, refused, 3*accepted, "%d accepted", accepted)
}

// A State's snapshot can be restored only with the same mode. The other options may differ, since the restoring process sets them.
func TestStateSnapshotUnderOtherOptions(t *testing.T) {
	t.Parallel()
	modes := []kahn.Option{kahn.Eager, kahn.Waves}
	others := []kahn.Option{kahn.Limit(1), kahn.SuspendStop, kahn.AbortRunning, kahn.Drain, kahn.KeyLimit(1), kahn.StatusStrict, kahn.Rate{Starts: 1, Per: 1}}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		plan, err := versionGraph(rng).Compile()
		require.NoError(t, err)
		mode := rng.IntN(2)
		st, err := kahn.NewState(plan, modes[mode], others[rng.IntN(len(others))])
		require.NoError(t, err)
		p := &prodder{plan, st, rng, false}
		p.prod(rng.IntN(40))
		_, err = kahn.RestoreState(plan, st.Snapshot(), modes[1-mode])
		require.ErrorIs(t, err, kahn.ErrBadValue)
		require.ErrorContains(t, err, "Waves")
		require.ErrorContains(t, err, "Eager")
		p.st, err = kahn.RestoreState(plan, st.Snapshot(), modes[mode], others[rng.IntN(len(others))])
		require.NoError(t, err)
		for i := 0; !p.st.Done(); i++ {
			require.Less(t, i, 3000, "seed %d", seed)
			require.NoError(t, p.st.Advance(int64(i)))
			_, _ = p.st.Next()
			p.act(machine.Ref(rng.IntN(plan.Len())))
		}
	}
}

// A node that waits for its next attempt has begun an attempt, is no gate, and is not being stopped. RestoreState refuses any other snapshot.
func TestStateSnapshotOfRetries(t *testing.T) {
	t.Parallel()
	retrying := func(words []byte, r machine.Ref, from kahn.Status) { words[8*r+4] += byte(kahn.Retrying) - byte(from) } // the status is in the lower four bits
	var st *machine.State
	var a, g machine.Ref
	for name, row := range map[string]struct {
		call   func(machine.Token) error
		damage func(words []byte)
	}{
		"no attempt has begun": {func(of machine.Token) error { return st.Retry(of) }, func(words []byte) { binary.LittleEndian.PutUint32(words[8*a:], 0) }},
		"a stopped node":       {func(machine.Token) error { return st.StopNode(a, kahn.CauseCancelNode) }, func(words []byte) { retrying(words, a, kahn.Running) }},
		"a gate": {func(machine.Token) error { return nil }, func(words []byte) {
			retrying(words, g, kahn.Ready)
			binary.LittleEndian.PutUint32(words[8*g:], 1)
		}},
	} {
		var plan *kahn.Plan
		plan, st = stateOf(t, graph(after("a"), gate("g")))
		a, g = ref(t, plan, "a"), ref(t, plan, "g")
		task, ok := st.Next()
		require.True(t, ok)
		require.Equal(t, a, task.Ref)
		require.NoError(t, row.call(task.Token))
		x := st.Snapshot()
		_, err := kahn.RestoreState(plan, x)
		require.NoError(t, err, name)
		row.damage(x.Words)
		_, err = kahn.RestoreState(plan, x)
		require.ErrorIs(t, err, kahn.ErrBadValue, name)
	}
}
