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
