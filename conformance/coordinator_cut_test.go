package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// courier drives a run through a script, with or without cuts: at a cut the run continues in another Coordinator, from the JSON form of a snapshot.
type courier struct {
	t    *testing.T
	plan *kahn.Plan
	opts []kahn.Option
	cuts bool
	c    *kahn.Coordinator
	now  time.Time
	sent map[string]string // the tokens of the latest calls, by path
	log  []string          // the calls, with their times
}

// bothWays performs a script without and with cuts. It requires that the calls are the same, and are `want` unless `want` is nil.
func bothWays(t *testing.T, g *kahn.Graph, opts []kahn.Option, want []string, script func(x *courier)) {
	t.Helper()
	for _, cuts := range []bool{false, true} {
		x := &courier{t: t, plan: compiled(t, g), opts: append(slices.Clone(opts), kahn.RunID("r")), cuts: cuts, now: deskEpoch, sent: map[string]string{}}
		var err error
		x.c, err = kahn.NewCoordinator(x.plan, x.now, x.opts...)
		require.NoError(t, err)
		x.take()
		script(x)
		if want == nil {
			want = x.log
		}
		require.Equal(t, want, x.log, "cuts: %v", cuts)
	}
}

func (x *courier) cut() {
	if x.cuts {
		x.c = continued(x.t, x.c, x.plan, x.now, x.opts...)
		x.take()
	}
}

// take takes the calls that have begun.
func (x *courier) take() {
	for s, ok := x.c.Next(); ok; s, ok = x.c.Next() {
		x.sent[s.Path()] = x.c.Token(s)
		x.log = append(x.log, fmt.Sprint(x.now.Sub(deskEpoch), " ", s.Path()))
	}
}

func (x *courier) reply(path string, value any, failed error) {
	x.t.Helper()
	s, err := x.c.Attempt(x.sent[path])
	require.NoError(x.t, err, path)
	require.NoError(x.t, x.c.Return(s, value, failed))
	x.take()
}

// wait sets the clock.
func (x *courier) wait(until time.Duration) {
	x.now = deskEpoch.Add(until)
	x.c.Advance(x.now)
	x.take()
}

// due requires that the run waits until the given time, or for no time if it is 0.
func (x *courier) due(want time.Duration) {
	x.t.Helper()
	at, ok := x.c.Due()
	require.Equal(x.t, want != 0, ok, "due at %v", at)
	if ok {
		require.Equal(x.t, want, at.Sub(deskEpoch))
	}
}

func secondTryAfter(d time.Duration) kahn.Retry {
	return kahn.Retry{MaxAttempts: 2, InitialDelay: d, Jitter: kahn.JitterNone}
}

// A loop that is interrupted during a pause may get another attempt. Its backoff is no pause. The nodes inside the ended attempt are not known any more.
func TestCutInBackoffAfterPause(t *testing.T) {
	g := graph(kahn.Node{
		ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{While: whileLess(2), MaxIterations: 2, Pause: time.Minute}, Timeout: 30 * time.Second,
		Retry: secondTryAfter(10 * time.Second),
	})
	for _, inPause := range []bool{false, true} {
		bothWays(t, g, nil, []string{"0s L#1/x", "40s L#1/x"}, func(x *courier) {
			first := x.sent["L#1/x"]
			x.reply("L#1/x", 1, nil)
			x.due(30 * time.Second) // the Timeout precedes the end of the pause
			if inPause {
				x.cut()
			}
			x.wait(30 * time.Second)
			attemptIs(t, x.c, first, kahn.ErrAnswered)
			x.cut()
			attemptIs(t, x.c, first, kahn.ErrAnswered)
			x.due(40 * time.Second)
			x.wait(40 * time.Second)
			x.due(70 * time.Second)
		})
	}
}

// With one slot, a loop whose pause was interrupted is concluded only after the running attempt has returned. A cut in between loses no conclusion.
func TestCutAfterInterruptedPause(t *testing.T) {
	g := graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{While: whileLess(2), MaxIterations: 2, Pause: time.Minute}, Priority: 1}, after("w"))
	bothWays(t, g, []kahn.Option{kahn.Limit(1)}, []string{"0s L#1/x", "0s w"}, func(x *courier) {
		x.reply("L#1/x", 1, nil)
		x.c.Run().Cancel()
		s, ok := x.c.NextStop()
		require.True(t, ok)
		require.Equal(t, "w", s.Path())
		x.cut()
		x.reply("w", nil, errStep)
		require.Equal(t, kahn.RunCancelled, x.c.Run().Status())
	})
}

// A node waits for a key that a node inside an expanded node holds. If the run repeats the attempts inside, since it does not know the graph, the key is
// free. So the waiting node begins, even if the step of the expanded node does not return its graph again.
func TestCutWithoutTheGraphOfTheHolder(t *testing.T) {
	inner := graph(kahn.Node{ID: "n", Key: "k"})
	for _, waits := range []kahn.Node{{ID: "m", Key: "k", After: []string{"b"}}, subgraph("S", graph(kahn.Node{ID: "m", Key: "k"}), "b")} {
		g := graph(kahn.Node{ID: "E"}, after("b"), waits)
		for _, again := range []error{kahn.Permanent(errStep), kahn.Expand(inner, nil, nil)} {
			bothWays(t, g, []kahn.Option{kahn.KeyLimit(1)}, nil, func(x *courier) {
				x.reply("E", nil, kahn.Expand(inner, nil, nil))
				x.reply("b", nil, nil)
				require.NotContains(t, fmt.Sprint(x.log), "m]", "the key is taken")
				x.cut()
				if x.cuts {
					x.reply("E", nil, again)
				} else {
					x.reply("E/n", nil, nil)
				}
				for len(x.c.InFlight()) > 0 {
					require.NoError(t, x.c.Return(x.c.InFlight()[0], nil, nil))
					x.take()
				}
				require.True(t, x.c.Run().Status().Terminal(), "cuts %v: %v", x.cuts, x.log)
				slices.Sort(x.log)
				x.log = slices.DeleteFunc(slices.Compact(x.log), func(call string) bool { return call == "0s E/n" })
			})
		}
	}
}

// The Timeout of a composite's attempt ends with the attempt, also if an earlier attempt of the composite was restored in the same life.
func TestCutBeforeNextAttempt(t *testing.T) {
	g := graph(kahn.Node{ID: "S", Sub: graph(after("x")), Timeout: time.Hour, Retry: secondTryAfter(time.Minute)}, after("w"))
	bothWays(t, g, nil, []string{"0s w", "0s S/x", "1m0s S/x"}, func(x *courier) {
		x.cut()
		x.reply("S/x", nil, kahn.Permanent(errStep))
		x.wait(time.Minute)
		x.due(time.Hour + time.Minute)
		x.reply("S/x", 1, nil)
		x.due(0)
		x.cut()
		x.due(0)
	})
}

// TestResumedBeforeNextAttempt does the same without a Coordinator: a run with an armed Timeout would not end.
func TestResumedBeforeNextAttempt(t *testing.T) {
	calls := 0
	g := graph(kahn.Node{ID: "S", Sub: graph(after("x")), Timeout: time.Hour, Retry: secondTryAfter(time.Minute)})
	step := func(context.Context, *kahn.Step) (any, error) {
		switch calls++; calls {
		case 1:
			return nil, kahn.Suspend("t", nil, nil)
		case 2:
			return nil, kahn.Permanent(errStep)
		}
		return "done", nil
	}
	inBubble(t, "", func(t *testing.T) {
		res, err := kahn.Execute(t.Context(), g, step)
		require.NoError(t, err)
		require.Equal(t, kahn.RunSuspended, res.Status)
		start := time.Now()
		res, err = kahn.Execute(t.Context(), g, step, kahn.Resume(reload(t, res.Snapshot())), kahn.EarlySignals(map[string]any{"t": 1}))
		require.NoError(t, err)
		require.Equal(t, 3, calls)
		require.Equal(t, time.Minute, time.Since(start), "only the backoff takes time")
		require.Equal(t, kahn.RunCompleted, res.Status)
	})
}

func keyed(id, key string, priority int) kahn.Node {
	return kahn.Node{ID: id, Key: key, Priority: priority}
}

// A run that waits for a slot keeps its place in the line if other runs contend for slots of their own.
func TestCutKeepsOffers(t *testing.T) {
	late := keyed("x", "k", 0)
	late.After = []string{"w"}
	g := graph(
		kahn.Node{ID: "M", Map: &kahn.Map{Over: "items", Limit: 1}, Key: "k", Priority: 2, Params: map[string]any{"items": numbers(2)}},
		kahn.Node{ID: "A", Sub: graph(after("w"), late)},
		kahn.Node{ID: "B", Sub: graph(after("w"), late)},
	)
	bothWays(t, g, []kahn.Option{kahn.KeyLimit(1)}, nil, func(x *courier) {
		require.ElementsMatch(t, []string{"0s M[0]", "0s A/w", "0s B/w"}, x.log)
		x.reply("A/w", 1, nil)
		x.reply("B/w", 1, nil)
		x.cut()
		x.reply("M[0]", 1, nil)
		x.cut()
		x.reply("M[1]", 1, nil)
		x.cut()
		x.reply("A/x", 1, nil)
		require.Equal(t, []string{"0s M[1]", "0s A/x", "0s B/x"}, x.log[3:])
	})
}

// A node that a hold keeps from starting does not decline again after a cut: another run would get an offer, out of turn.
func TestCutKeepsHeldNodes(t *testing.T) {
	plain := func(id string, priority int) kahn.Node { return kahn.Node{ID: id, Priority: priority} }
	z := kahn.Node{ID: "z", After: []string{"y"}, Priority: 9}
	late := keyed("x", "k", 7)
	late.After = []string{"w"}
	g := graph(
		kahn.Node{ID: "Y", Sub: graph(keyed("y", "k", 9), z)},
		kahn.Node{ID: "S", Sub: graph(plain("s", 8), keyed("h", "k", 1))},
		kahn.Node{ID: "B", Sub: graph(plain("w", 7), late)},
		kahn.Node{ID: "Q", Sub: graph(plain("q", 6))},
		kahn.Node{ID: "A", Sub: graph(keyed("x", "k", 5))},
		kahn.Node{ID: "R", Sub: graph(plain("r", 0), plain("t", 0))},
	)
	opts := []kahn.Option{kahn.Limit(4), kahn.KeyLimit(1), kahn.SuspendStop}
	bothWays(t, g, opts, []string{"0s Y/y", "0s S/s", "0s B/w", "0s Q/q", "0s R/r", "0s R/t", "0s Y/z", "0s A/x", "0s B/x"}, func(x *courier) {
		x.reply("S/s", nil, kahn.Suspend("", nil, nil)) // S/h is held, and A/x waits for the key
		x.reply("B/w", 1, nil)                          // B/x waits for the key behind A/x
		x.reply("Y/y", 1, nil)                          // A/x gets the key, but all slots are taken
		x.cut()
		x.reply("Q/q", 1, nil)
		x.reply("A/x", 1, nil)
	})
}

// A cut does not change when the run learns that a token has fallen due. A/x has waited longest, and its token is due after 10 ms. So A/x begins before
// N/e/z, which needs no token, since its run is being stopped.
func TestCutKeepsClockOfRates(t *testing.T) {
	inner := graph(keyed("z", "k", 0))
	e, c := keyed("e", "k", 2), keyed("c", "k", 0)
	e.Cleanup, c.Cleanup, c.After = true, true, []string{"p"}
	late := keyed("x", "k", 1)
	late.After = []string{"w"}
	g := graph(
		kahn.Node{ID: "N", Sub: graph(e), Timeout: 5 * ms},
		kahn.Node{ID: "A", Sub: graph(after("w"), late)},
		kahn.Node{ID: "T", Sub: graph(after("p"), c), Timeout: 5 * ms},
	)
	opts := []kahn.Option{kahn.KeyLimit(1), kahn.KeyRate(kahn.Rate{Starts: 1, Per: 10 * ms})}
	bothWays(t, g, opts, nil, func(x *courier) {
		require.ElementsMatch(t, []string{"0s N/e", "0s T/p", "0s A/w"}, x.log)
		x.reply("A/w", 1, nil)
		x.wait(5 * ms)
		x.reply("T/p", nil, errStep) // T/c waits for the slot of N/e, behind A/x
		x.wait(15 * ms)
		x.cut()
		x.reply("N/e", nil, kahn.Expand(inner, nil, nil))
		require.Equal(t, "15ms A/x", x.log[3])
	})
}
