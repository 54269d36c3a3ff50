package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// TestWhy lists every kind of reason, as data and as text.
func TestWhy(t *testing.T) {
	t.Parallel()
	var begun time.Time
	since := func(x time.Time) time.Duration {
		if x.IsZero() {
			return -1
		}
		return x.Sub(begun)
	}
	type asked struct {
		path  string
		kind  kahn.WhyKind
		text  string
		check func(t *testing.T, y kahn.Why)
	}
	tail := kahn.Retry{MaxAttempts: 2, InitialDelay: 50 * ms, Jitter: kahn.JitterNone}
	slowStore := func(method string, latency time.Duration) kahn.Option {
		return kahn.Durable(storetest.WithFaults(new(store.Memory), func(m string) storetest.Fault {
			if m == method {
				return storetest.Fault{Latency: latency}
			}
			return storetest.Fault{}
		}))
	}
	stuck := func(ctx context.Context, _ *kahn.Step) (any, error) {
		time.Sleep(time.Second)
		return nil, errStep
	}
	many := graph(kahn.Node{ID: "end", Kind: kahn.KindEnd})
	for i := range 25 {
		many.Add(kahn.Node{ID: fmt.Sprint("n", i), Do: takes(20 * ms)})
	}
	for _, test := range []struct {
		name  string
		g     *kahn.Graph
		opts  []kahn.Option
		after time.Duration
		act   func(*kahn.Run)
		asked []asked
	}{
		{name: "waiting", after: 10 * ms, g: graph(kahn.Node{ID: "a", Do: takes(20 * ms)}, kahn.Node{ID: "b"}, kahn.Node{ID: "c", In: []kahn.Edge{{From: "b"}, {From: "a", Param: "p"}}}, after("d", "c"), kahn.Node{ID: "end", Kind: kahn.KindEnd}), asked: []asked{
			{"c", kahn.WhyWaiting, "it waits for a", func(t *testing.T, y kahn.Why) {
				require.Equal(t, []kahn.Edge{{From: "a", To: "c", Param: "p"}}, y.Edges)
				require.Equal(t, kahn.Waiting, y.Status)
			}},
			{"d", kahn.WhyWaiting, "it waits for c", func(t *testing.T, y kahn.Why) { require.Equal(t, kahn.Idle, y.Status) }},
			{"end", kahn.WhyWaiting, "it waits for a, c, d", nil},
			{"a", kahn.WhyRunning, "it is running", func(t *testing.T, y kahn.Why) {
				require.Equal(t, []time.Duration{0, -1}, []time.Duration{since(y.Since), since(y.Until)})
			}},
			{"b", kahn.WhyEnded, "it has completed", nil},
		}},
		{name: "more nodes than a Why names", after: 10 * ms, g: many, asked: []asked{
			{"end", kahn.WhyWaiting, "", func(t *testing.T, y kahn.Why) {
				require.Len(t, y.Nodes, 20)
				require.Equal(t, 5, y.More)
			}},
		}},
		{name: "tier", after: 10 * ms, opts: []kahn.Option{kahn.Waves}, g: graph(kahn.Node{ID: "a", Do: takes(20 * ms)}, after("b"), kahn.Node{ID: "c", Do: takes(20 * ms)}, after("d", "b"), after("e", "d")), asked: []asked{
			{"d", kahn.WhyTier, "its tier has not begun: it waits for a, c", nil},
			{"e", kahn.WhyTier, "its tier has not begun: it waits for a, c", nil},
		}},
		{name: "slots", after: 10 * ms, opts: []kahn.Option{kahn.Limit(2)}, g: graph(kahn.Node{ID: "a", Priority: 1, Do: takes(20 * ms)}, kahn.Node{ID: "b", Priority: 1, Do: takes(30 * ms)}, after("c")), asked: []asked{
			{"c", kahn.WhySlot, "it waits for a slot of the run, held by a, b", func(t *testing.T, y kahn.Why) {
				require.Equal(t, kahn.Bound{Scope: kahn.BoundRun, Limit: 2, Used: 2}, y.Bound)
				require.Equal(t, time.Duration(0), since(y.Since))
			}},
		}},
		{name: "groups", after: 10 * ms, opts: []kahn.Option{kahn.KeyLimit(1)}, g: (&kahn.Graph{Groups: []kahn.Group{{Name: "db", Limit: 1}}}).Add(
			kahn.Node{ID: "a", Groups: []string{"db"}, Do: takes(20 * ms)}, kahn.Node{ID: "b", Groups: []string{"db"}}, kahn.Node{ID: "x", Key: "k", Do: takes(20 * ms)}, kahn.Node{ID: "y", Key: "k"},
			kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "in", Groups: []string{"db"}})},
		), asked: []asked{
			{"b", kahn.WhySlot, "it waits for a slot of the group db, held by a", func(t *testing.T, y kahn.Why) {
				require.Equal(t, kahn.Bound{Scope: kahn.BoundGroup, Name: "db", Limit: 1, Used: 1}, y.Bound)
			}},
			{"y", kahn.WhySlot, "it waits for a slot of the key k, held by x", nil},
			{"S/in", kahn.WhySlot, "it waits for a slot of the group db, held by a", nil},
		}},
		{name: "slots, without a need for tokens", after: 10 * ms, act: func(r *kahn.Run) { r.Cancel() }, opts: []kahn.Option{kahn.Drain}, g: (&kahn.Graph{Groups: []kahn.Group{{Name: "calls", Rate: kahn.Rate{Starts: 1, Per: time.Hour}}, {Name: "db", Limit: 1}}}).Add(
			kahn.Node{ID: "a", Groups: []string{"calls", "db"}, Priority: 1, Do: takes(20 * ms)}, kahn.Node{ID: "tidy", Groups: []string{"calls", "db"}, Cleanup: true},
		), asked: []asked{
			{"tidy", kahn.WhySlot, "it waits for a slot of the group db, held by a", nil},
		}},
		{name: "a tree", after: 10 * ms, opts: []kahn.Option{kahn.Limit(2)}, g: graph(
			kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x", Do: takes(20 * ms)}, kahn.Node{ID: "y", Do: takes(20 * ms)})},
			kahn.Node{ID: "M", Map: &kahn.Map{Over: "l", Limit: 1}, Params: map[string]any{"l": []int{1, 2}}, Do: takes(20 * ms), Priority: -1}), asked: []asked{
			{"S/x", kahn.WhyRunning, "it is running", nil},
			{"M[0]", kahn.WhySlot, "it waits for a slot of the run, held by S/x, S/y", nil},
		}},
		{name: "a map", after: 10 * ms, g: graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "l", Limit: 1}, Params: map[string]any{"l": []int{1, 2}}, Do: takes(20 * ms)}), asked: []asked{
			{"M[1]", kahn.WhySlot, "it waits for a slot of the map M, held by M[0]", nil},
		}},
		{name: "rate", after: 30 * ms, opts: []kahn.Option{kahn.Rate{Starts: 1, Per: 100 * ms}, kahn.KeyRate(kahn.Rate{Starts: 1, Per: time.Second})}, g: graph(kahn.Node{ID: "a", Priority: 1, Key: "k"}, after("b"), kahn.Node{ID: "c", Key: "k"}), asked: []asked{
			{"b", kahn.WhyRate, "", func(t *testing.T, y kahn.Why) {
				require.Equal(t, kahn.Bound{Scope: kahn.BoundRun}, y.Bound)
				require.Equal(t, 100*ms, since(y.Until))
			}},
			{"c", kahn.WhyRate, "", func(t *testing.T, y kahn.Why) {
				require.Equal(t, kahn.Bound{Scope: kahn.BoundKey, Name: "k"}, y.Bound)
				require.Equal(t, time.Second, since(y.Until))
			}},
		}},
		{name: "backoff", after: 30 * ms, g: graph(kahn.Node{ID: "a", Retry: tail, Do: fails(10 * ms)}), asked: []asked{
			{"a", kahn.WhyBackoff, "", func(t *testing.T, y kahn.Why) {
				require.Equal(t, []any{10 * ms, 60 * ms, errStep}, []any{since(y.Since), since(y.Until), y.Err})
			}},
		}},
		{name: "signals", after: 10 * ms, g: graph(
			kahn.Node{ID: "gate", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Minute, Choices: []string{"red", "green"}}},
			kahn.Node{ID: "asks", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("token", "info", nil) }},
			kahn.Node{ID: "S", Sub: graph(gate("in"))}), asked: []asked{
			{"gate", kahn.WhySignal, "it waits for an answer", func(t *testing.T, y kahn.Why) {
				require.Equal(t, []string{"red", "green"}, y.Choices)
				require.Equal(t, []time.Duration{0, time.Minute}, []time.Duration{since(y.Since), since(y.Until)})
				require.Equal(t, "gate", y.Wait.Token)
			}},
			{"asks", kahn.WhySignal, "it waits for an answer", func(t *testing.T, y kahn.Why) {
				require.Equal(t, []any{"token", "info"}, []any{y.Wait.Token, y.Wait.Info})
				require.Nil(t, y.Choices)
			}},
			{"S", kahn.WhySignal, "inside it S/in waits for an answer", nil},
			{"S/in", kahn.WhySignal, "it waits for an answer", func(t *testing.T, y kahn.Why) { require.Equal(t, "S/in", y.Wait.Node) }},
		}},
		{name: "held by a wait", after: 10 * ms, opts: []kahn.Option{kahn.SuspendStop}, g: graph(gate("gate"), kahn.Node{ID: "a", Do: takes(5 * ms)}, kahn.Node{ID: "b", After: []string{"a"}}), asked: []asked{
			{"b", kahn.WhyHeld, "nothing else is started as long as gate waits for an answer", nil},
		}},
		{name: "left", after: 30 * ms, act: (*kahn.Run).Leave, g: graph(kahn.Node{ID: "a", Do: takes(20 * ms)}, after("b", "a"), kahn.Node{ID: "c", Do: takes(time.Second)}), asked: []asked{
			{"b", kahn.WhyHeld, "the run was left: nothing more starts in this process", nil},
		}},
		{name: "checking", after: 10 * ms, g: graph(kahn.Node{ID: "a", When: func(kahn.View) (bool, error) { time.Sleep(20 * ms); return true, nil }}), asked: []asked{
			{"a", kahn.WhyChecking, "it is being checked", func(t *testing.T, y kahn.Why) { require.Equal(t, kahn.Idle, y.Status) }},
		}},
		{name: "order", after: 10 * ms, opts: []kahn.Option{kahn.Limit(1)}, g: graph(kahn.If("test", func(kahn.View) (bool, error) { time.Sleep(20 * ms); return true, nil }), after("b")), asked: []asked{
			{"b", kahn.WhyOrder, "it waits for its turn after test", nil},
		}},
		{name: "order after an interruption", after: 30 * ms, opts: []kahn.Option{kahn.Limit(1)}, act: func(r *kahn.Run) { r.Cancel() }, g: graph(kahn.Node{ID: "a", Priority: 1, Do: stuck}, kahn.Node{ID: "tidy", Cleanup: true}), asked: []asked{
			{"a", kahn.WhyStopping, "it was asked to stop: run cancelled", func(t *testing.T, y kahn.Why) {
				require.Equal(t, kahn.CauseCancelRun, y.Cause.Kind)
				require.Equal(t, 5*time.Second, since(y.Until).Truncate(time.Second))
			}},
			{"tidy", kahn.WhyOrder, "it waits for its turn after a", nil},
		}},
		{name: "stopping", after: 10 * ms, act: func(r *kahn.Run) { r.Cancel() }, opts: []kahn.Option{kahn.Drain}, g: graph(kahn.Node{ID: "a", Do: takes(time.Second)}, kahn.Node{ID: "tidy", Cleanup: true, Timeout: 50 * ms, Do: takes(40 * ms)}), asked: []asked{
			{"a", kahn.WhyStopping, "it may finish: run cancelled", nil},
			{"tidy", kahn.WhyCleanup, "it cleans up", func(t *testing.T, y kahn.Why) { require.Equal(t, 50*ms, since(y.Until)) }},
		}},
		{name: "stopping because of a failure", after: 10 * ms, g: graph(kahn.Node{ID: "a", Do: stuck}, kahn.Node{ID: "b", Critical: true, Do: fails(5 * ms)}), asked: []asked{
			{"a", kahn.WhyStopping, "", func(t *testing.T, y kahn.Why) { require.Equal(t, []string{"b"}, y.Cause.Origins) }},
		}},
		{name: "timed out", after: 10 * ms, g: graph(kahn.Node{ID: "a", Timeout: 5 * ms, Do: stuck}, kahn.Node{ID: "b", Timeout: 50 * ms, Do: stuck}), asked: []asked{
			{"a", kahn.WhyStopping, "it was asked to stop: timed out", func(t *testing.T, y kahn.Why) {
				require.Equal(t, []any{kahn.CauseTimeout, 5*time.Second + 5*ms}, []any{y.Cause.Kind, since(y.Until)})
			}},
			{"b", kahn.WhyRunning, "it is running", func(t *testing.T, y kahn.Why) { require.Equal(t, 50*ms, since(y.Until)) }},
		}},
		{name: "paused", after: 10 * ms, g: graph(kahn.Node{ID: "L", Sub: graph(after("x")), Loop: &kahn.Loop{While: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 2, Pause: 20 * ms, OnLimit: kahn.LoopStop}}), asked: []asked{
			{"L", kahn.WhyPaused, "", func(t *testing.T, y kahn.Why) { require.Equal(t, 20*ms, since(y.Until)) }},
		}},
		{name: "a store that is slow to take a start", after: 10 * ms, opts: []kahn.Option{slowStore("Commit", 30*ms)}, g: graph(after("a")), asked: []asked{
			{"a", kahn.WhyStore, "it waits until the store has confirmed earlier changes", func(t *testing.T, y kahn.Why) { require.Equal(t, kahn.Running, y.Status) }},
		}},
		{name: "a store that is slow to take what was used inside", after: 40 * ms, opts: []kahn.Option{slowStore("Commit", 30*ms)}, g: graph(kahn.Node{ID: "S", Sub: graph(
			kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) { s.Use("calls", 1); return nil, nil }}, after("y", "x"))}), asked: []asked{
			{"S", kahn.WhyRunning, "it is running", nil},
			{"S/y", kahn.WhyStore, "it waits until the store has confirmed earlier changes", nil},
		}},
		{name: "a store that is slow to take what made it ready", after: 10 * ms, opts: []kahn.Option{slowStore("Commit", 30*ms)}, g: graph(kahn.If("a", func(kahn.View) (bool, error) { return true, nil })), asked: []asked{
			{"a", kahn.WhyStore, "it waits until the store has confirmed earlier changes", func(t *testing.T, y kahn.Why) { require.Equal(t, kahn.Ready, y.Status) }},
		}},
		{name: "a store that is still busy with an earlier change", after: 60 * ms, opts: []kahn.Option{slowStore("Commit", 30*ms)}, g: graph(kahn.Node{ID: "a", Do: takes(10 * ms)}, kahn.Node{ID: "b", Do: takes(20 * ms)},
			kahn.If("c", func(kahn.View) (bool, error) { return true, nil }, "b")), asked: []asked{ // the end of a is being written from 40 ms to 70 ms, and b has ended at 50 ms
			{"c", kahn.WhyStore, "it waits until the store has confirmed earlier changes", func(t *testing.T, y kahn.Why) { require.Equal(t, kahn.Ready, y.Status) }},
		}},
		{name: "ended", after: 10 * ms, g: graph(kahn.Node{ID: "bad", Do: always(errStep)}, after("victim", "bad"), kahn.Node{ID: "off", Disabled: true}, after("next", "off"),
			kahn.If("ok?", func(kahn.View) (bool, error) { return true, nil }), branch("no", "ok?", "false"), kahn.Node{ID: "slow", Do: takes(time.Second)}), asked: []asked{
			{"bad", kahn.WhyEnded, "it failed: step_error: the step broke", func(t *testing.T, y kahn.Why) {
				require.ErrorIs(t, y.Err, errStep)
				require.Equal(t, kahn.CauseStepError, y.Cause.Kind)
			}},
			{"victim", kahn.WhyEnded, "a failure upstream: bad", func(t *testing.T, y kahn.Why) {
				require.Equal(t, []kahn.Edge{{From: "bad", To: "victim"}}, y.Edges)
			}},
			{"off", kahn.WhyEnded, "it is disabled", nil},
			{"next", kahn.WhyEnded, "off was skipped", func(t *testing.T, y kahn.Why) { require.Equal(t, []kahn.Edge{{From: "off", To: "next"}}, y.Edges) }},
			{"no", kahn.WhyEnded, `ok? answered "true", not "false"`, func(t *testing.T, y kahn.Why) { require.Equal(t, "false", y.Edges[0].Label) }},
		}},
	} {
		inBubble(t, test.name, func(t *testing.T) {
			begun = time.Now()
			run, err := kahn.Start(t.Context(), test.g, nothing, append(slices.Clone(test.opts), kahn.RunID("r"))...)
			require.NoError(t, err)
			if test.act != nil {
				time.Sleep(5 * ms)
				test.act(run)
				time.Sleep(test.after - 5*ms)
			} else {
				time.Sleep(test.after)
			}
			synctest.Wait()
			for _, a := range test.asked {
				y, err := run.Why(a.path)
				require.NoError(t, err)
				require.Equal(t, a.kind, y.Kind, "%s: %v", a.path, y)
				if a.text != "" {
					require.Equal(t, a.text, y.String())
				}
				if a.check != nil {
					a.check(t, y)
				}
			}
			for range 100 {
				if run.Leave(); run.Status().Terminal() {
					break
				}
				run.Cancel()
				time.Sleep(time.Second)
			}
			_, _ = run.Wait()
		})
	}
}

// When a slot of a group becomes free, the first node in the group's queue gets it. Until that node begins, Why says that the other nodes wait
// for their turn after it.
func TestWhyInLine(t *testing.T) {
	t.Parallel()
	db := func(id string) kahn.Node { return kahn.Node{ID: id, Groups: []string{"db"}} }
	var c *kahn.Coordinator
	texts := map[string]string{}
	x := kahn.Node{ID: "x", After: []string{"a"}, When: func(kahn.View) (bool, error) { // Why is called before b begins
		for _, id := range []string{"a", "b", "c", "d", "x", "y"} {
			y, err := c.Run().Why(id)
			require.NoError(t, err)
			texts[id] = y.String()
		}
		return true, nil
	}}
	c = coordinate(t, (&kahn.Graph{Groups: []kahn.Group{{Name: "db", Limit: 1}}}).Add(db("a"), db("b"), db("c"), db("d"), x, after("y", "a")))
	a := nextOf(t, c, "a")
	_, ok := c.Next()
	require.False(t, ok)
	require.NoError(t, c.Return(a, nil, nil))
	require.Equal(t, map[string]string{
		"a": "it has completed", "b": "it is next", "c": "it waits for its turn after b", "d": "it waits for its turn after b", "x": "it is being checked", "y": "it waits for its turn after b",
	}, texts)
}

// TestWhyOfSharedBounds calls Why for two runs of a Runner that share a slot and a rate.
func TestWhyOfSharedBounds(t *testing.T) {
	t.Parallel()
	inBubble(t, "shared", func(t *testing.T) {
		for _, test := range []struct {
			rn   *kahn.Runner
			want kahn.Bound
			kind kahn.WhyKind
		}{
			{&kahn.Runner{Limit: 1}, kahn.Bound{Scope: kahn.BoundRunner, Limit: 1, Used: 1}, kahn.WhySlot},
			{&kahn.Runner{Limit: 1, Shared: &kahn.Shared{Store: new(store.Memory), Limit: 2}}, kahn.Bound{Scope: kahn.BoundRunner, Limit: 1, Used: 1}, kahn.WhySlot}, // the limit that processes share has a free slot
			{&kahn.Runner{KeyLimit: 1}, kahn.Bound{Scope: kahn.BoundRunnerKey, Name: "k", Limit: 1, Used: 1}, kahn.WhySlot},
			{&kahn.Runner{Rate: kahn.Rate{Starts: 1, Per: 100 * ms}}, kahn.Bound{Scope: kahn.BoundRunner}, kahn.WhyRate},
			{&kahn.Runner{KeyRate: kahn.Rate{Starts: 1, Per: 100 * ms}}, kahn.Bound{Scope: kahn.BoundRunnerKey, Name: "k"}, kahn.WhyRate},
		} {
			begun := time.Now()
			g := graph(kahn.Node{ID: "a", Key: "k", Do: takes(20 * ms)})
			first, err := test.rn.Start(t.Context(), g, nil)
			require.NoError(t, err)
			synctest.Wait()
			other, err := test.rn.Start(t.Context(), g, nil)
			require.NoError(t, err)
			synctest.Wait()
			y, err := other.Why("a")
			require.NoError(t, err)
			require.Equal(t, test.kind, y.Kind, "%v", y)
			require.Equal(t, test.want, y.Bound)
			if test.kind == kahn.WhyRate {
				require.Equal(t, begun.Add(100*ms), y.Until)
			}
			_, _ = first.Wait()
			_, _ = other.Wait()
			require.NoError(t, test.rn.Shutdown(t.Context()))
		}
	})
}

// For a node in a group's queue, Why names exactly the nodes to which the group has already offered its free slot.
func TestWhyOfALine(t *testing.T) {
	var run *kahn.Run
	asked := map[string]string{}
	db := []string{"db"}
	g := (&kahn.Graph{Groups: []kahn.Group{{Name: "db", Limit: 1}}}).Add(
		kahn.Node{ID: "a", Groups: db, Priority: 3}, kahn.Node{ID: "b", Groups: db, Priority: 2}, kahn.Node{ID: "c", Groups: db, Priority: 1},
		kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "d", Groups: db})}, after("other", "a"),
		kahn.If("test", func(kahn.View) (bool, error) {
			for _, path := range []string{"a", "b", "c", "S/d"} {
				y, err := run.Why(path)
				require.NoError(t, err)
				asked[path] = y.String()
			}
			return true, nil
		}, "a"),
	)
	c := coordinate(t, g)
	run = c.Run()
	require.NoError(t, c.Return(nextOf(t, c, "a"), nil, nil)) // the test is evaluated before b begins
	require.Equal(t, map[string]string{"a": "it has completed", "b": "it is next", "c": "it waits for its turn after b", "S/d": "it waits for its turn after b"}, asked)
}

// If a slot is free, Why names no limit for a ready node, but the nodes that begin before it. This also holds in graphs with composites.
func TestWhyWithFreeSlot(t *testing.T) {
	t.Parallel()
	var c *kahn.Coordinator
	texts := map[string]string{}
	test := kahn.If("test", func(kahn.View) (bool, error) { // Why is called before b begins
		for _, id := range []string{"b", "S"} {
			y, err := c.Run().Why(id)
			require.NoError(t, err)
			texts[id] = y.String()
		}
		return true, nil
	}, "a")
	c = coordinate(t, graph(after("a"), after("b", "a"), test, subgraph("S", graph(after("x")), "test")), kahn.Limit(2))
	require.NoError(t, c.Return(nextOf(t, c, "a"), nil, nil))
	require.Equal(t, map[string]string{"b": "it is next", "S": "it waits for test"}, texts)
}
