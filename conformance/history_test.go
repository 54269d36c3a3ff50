package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// lastLong declares five steps of 10 ms and then one of 50. On two slots they take 50 ms if the long one is first, and 70 if it is last.
func lastLong(durations map[string]time.Duration) (*kahn.Graph, kahn.StepFunc) {
	g := &kahn.Graph{Name: "last long"}
	for i := range 5 {
		g.Add(kahn.Node{ID: fmt.Sprint("short", i), Kind: "short"})
	}
	g.Add(kahn.Node{ID: "long", Kind: "long"})
	return g, func(ctx context.Context, s *kahn.Step) (any, error) {
		d := 10 * ms
		if s.Kind() == "long" {
			d = 50 * ms
		}
		if of, ok := durations[s.ID()]; ok {
			d = of
		}
		return takes(d)(ctx, s)
	}
}

func TestHistory(t *testing.T) {
	inBubble(t, "a run is ordered by what the one before has taught", func(t *testing.T) {
		g, step := lastLong(nil)
		h := &kahn.History{}
		for i, want := range []time.Duration{70 * ms, 50 * ms, 50 * ms} {
			r := try(t, g, step, kahn.Limit(2), h)
			require.Equal(t, want, r.Duration, "run %d", i)
		}
		mean, ok := h.Mean("last long", "long")
		require.True(t, ok)
		require.Equal(t, 50*ms, mean)
		_, ok = h.Mean("last long", "other")
		require.False(t, ok)
		_, ok = h.Mean("other", "long")
		require.False(t, ok)
	})

	inBubble(t, "paths that were never seen count with the mean of their kind", func(t *testing.T) {
		g, step := lastLong(nil)
		h := &kahn.History{}
		try(t, g, step, h)
		other := &kahn.Graph{Name: "last long"}
		for i := range 5 {
			other.Add(kahn.Node{ID: fmt.Sprint("new", i), Kind: "short"})
		}
		other.Add(kahn.Node{ID: "newer", Kind: "long"})
		require.Equal(t, 50*ms, try(t, other, step, kahn.Limit(2), h).Duration)
		g.Name = "another workflow"
		require.Equal(t, 70*ms, try(t, g, step, kahn.Limit(2), h).Duration, "of another workflow nothing is known")
	})

	inBubble(t, "a declared estimate wins", func(t *testing.T) {
		g, step := lastLong(nil)
		h := &kahn.History{}
		try(t, g, step, h)
		declared := &kahn.Graph{Name: g.Name}
		for _, n := range g.Nodes() {
			if n.ID == "long" {
				n.Estimate = 1 * ms
			}
			declared.Add(n)
		}
		require.Equal(t, 70*ms, try(t, declared, step, kahn.Limit(2), h).Duration)
	})

	inBubble(t, "the option Estimates wins", func(t *testing.T) {
		g, step := lastLong(nil)
		h := &kahn.History{}
		try(t, g, step, h)
		same := try(t, g, takes(10*ms))
		require.Equal(t, 70*ms, try(t, g, step, kahn.Limit(2), h, kahn.Estimates(same.Result)).Duration)
	})

	inBubble(t, "the mean moves by a quarter", func(t *testing.T) {
		h := &kahn.History{}
		for _, d := range []time.Duration{100 * ms, 20 * ms, 20 * ms} {
			try(t, graph(kahn.Node{ID: "A"}), takes(d), h)
		}
		mean, _ := h.Mean("", "A")
		require.Equal(t, 65*ms, mean) // the mean is 100 ms, then 80 ms, then 65 ms
	})

	inBubble(t, "only the last attempt of a node that completed teaches", func(t *testing.T) {
		h, memo := &kahn.History{}, &kahn.Memo{}
		g := graph(
			kahn.Node{ID: "fails"}, kahn.Node{ID: "after", After: []string{"fails"}},
			kahn.Node{ID: "retried", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 7 * time.Second, Jitter: kahn.JitterNone}},
			kahn.Node{ID: "fallback", Fallback: func(context.Context, error) (any, error) { return 1, nil }},
			kahn.Node{ID: "memo", Memo: "1"}, kahn.Node{ID: "slow", Timeout: 5 * ms}, kahn.Node{ID: "sent"},
			kahn.Node{ID: "is", Test: func(kahn.View) (any, error) { return true, nil }},
			kahn.Node{ID: "off", Disabled: true}, kahn.Node{ID: "fine"},
		)
		step := func(ctx context.Context, s *kahn.Step) (any, error) {
			_, sent := s.Resumed()
			switch {
			case s.ID() == "fails", s.ID() == "fallback", s.ID() == "retried" && s.Attempt() == 1:
				return fails(30*ms)(ctx, s)
			case s.ID() == "sent" && !sent:
				return nil, kahn.Suspend("sent", nil, nil)
			}
			return takes(10*ms)(ctx, s)
		}
		run := func() {
			r, err := kahn.Start(t.Context(), g, step, h, memo)
			require.NoError(t, err)
			synctest.Wait()
			time.Sleep(time.Second)
			require.NoError(t, r.Signal(context.Background(), "sent", 1))
			_, err = r.Wait()
			require.Error(t, err)
		}
		run()
		for id, want := range map[string]bool{
			"fails": false, "after": false, "retried": true, "fallback": false, "memo": true, "slow": false, "sent": false, "is": false, "off": false, "fine": true,
		} {
			mean, ok := h.Mean("", id)
			require.Equal(t, want, ok, id)
			if ok {
				require.Equal(t, 10*ms, mean, id)
			}
		}
		*h = kahn.History{}
		run()
		_, ok := h.Mean("", "memo")
		require.False(t, ok, "the output is that of an earlier run")

		_, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "mocked"}), nil, h, kahn.TestMode{Mocks: map[string]kahn.Mock{"mocked": {Value: 1}}})
		require.NoError(t, err)
		_, ok = h.Mean("", "mocked")
		require.False(t, ok)
	})

	inBubble(t, "items and iterations share a path, composites have one", func(t *testing.T) {
		h := &kahn.History{}
		inner := graph(kahn.Node{ID: "x"})
		g := graph(
			kahn.Node{ID: "M", Params: map[string]any{"list": []int{1, 2, 3}}, Map: &kahn.Map{Over: "list"}, Sub: inner},
			kahn.Node{ID: "L", Sub: inner, Loop: &kahn.Loop{MaxIterations: 2, Until: func(kahn.View) (bool, error) { return false, nil }, OnLimit: kahn.LoopStop}},
			kahn.Node{ID: "S", Sub: inner},
		)
		try(t, g, takes(10*ms), h)
		for path, want := range map[string]time.Duration{"M": 10 * ms, "M[]": 10 * ms, "M[]/x": 10 * ms, "L": 20 * ms, "L#/x": 10 * ms, "S": 10 * ms, "S/x": 10 * ms} {
			mean, ok := h.Mean("", path)
			require.True(t, ok, path)
			require.Equal(t, want, mean, path)
		}
		data, err := json.Marshal(h)
		require.NoError(t, err)
		require.NotContains(t, string(data), "M[0]")
	})

	inBubble(t, "a nested run is ordered, too", func(t *testing.T) {
		inner, step := lastLong(nil)
		g := graph(kahn.Node{ID: "S", Sub: inner})
		h := &kahn.History{}
		require.Equal(t, 70*ms, try(t, g, step, kahn.Limit(2), h).Duration)
		require.Equal(t, 50*ms, try(t, g, step, kahn.Limit(2), h).Duration)
	})

	inBubble(t, "a resumed run keeps its estimates", func(t *testing.T) {
		for _, knows := range []bool{true, false} {
			g, step := lastLong(nil)
			gated := &kahn.Graph{Name: g.Name}
			gated.Add(kahn.Node{ID: "G", Kind: kahn.KindGate})
			for _, n := range g.Nodes() {
				n.After = []string{"G"}
				gated.Add(n)
			}
			h := &kahn.History{}
			if knows {
				try(t, g, step, h)
			}
			r, err := kahn.Execute(t.Context(), gated, step, kahn.Limit(2), h)
			require.NoError(t, err)
			require.Equal(t, kahn.RunSuspended, r.Status)
			var other kahn.History // a History that suggests another order than the first life's
			mixed := map[string]time.Duration{"long": 1 * ms}
			if !knows {
				mixed = nil // the first life knew no durations; the other History has the real ones
			}
			_, contrary := lastLong(mixed)
			try(t, g, contrary, &other)
			began := time.Now()
			res, err := kahn.Execute(t.Context(), gated, step, kahn.Limit(2), &other, kahn.Resume(reload(t, r.Snapshot())), kahn.EarlySignals(map[string]any{"G": 1}))
			require.NoError(t, err)
			require.Equal(t, kahn.RunCompleted, res.Status)
			want := 50 * ms
			if !knows {
				want = 70 * ms
			}
			require.Equal(t, want, time.Since(began), "knows: %t", knows)
		}
	})

	inBubble(t, "a Runner feeds and reads its History", func(t *testing.T) {
		g, step := lastLong(nil)
		rn := &kahn.Runner{Learn: &kahn.History{}}
		for _, want := range []time.Duration{70 * ms, 50 * ms} {
			res, err := rn.Execute(t.Context(), g, step, kahn.Limit(2))
			require.NoError(t, err)
			require.Equal(t, want, res.Duration)
		}
		own := &kahn.History{}
		res, err := rn.Execute(t.Context(), g, step, kahn.Limit(2), own)
		require.NoError(t, err)
		require.Equal(t, 70*ms, res.Duration, "the run has a History of its own")
	})

	t.Run("nil is refused", func(t *testing.T) {
		_, err := kahn.Execute(t.Context(), graph(kahn.Node{ID: "A"}), nothing, nil)
		require.ErrorIs(t, err, kahn.ErrBadOption)
	})
}

func TestHistoryAsJSON(t *testing.T) {
	t.Parallel()
	const text = `{"workflows":[{"name":"a","nodes":{"x":{"mean_ns":10,"kind":"k"},"y":{"mean_ns":0}}},{"name":"b","nodes":{}}]}`
	var h kahn.History
	require.NoError(t, json.Unmarshal([]byte(text), &h))
	mean, ok := h.Mean("a", "x")
	require.True(t, ok)
	require.Equal(t, 10*time.Nanosecond, mean)
	data, err := json.Marshal(&h)
	require.NoError(t, err)
	require.Equal(t, text, string(data))
	for _, bad := range []string{
		`{"workflows":[{"name":"a","nodes":{"x":{"mean_ns":-1}}}]}`,
		`{"workflows":[{"name":"a","nodes":{}},{"name":"a","nodes":{}}]}`,
	} {
		require.ErrorIs(t, json.Unmarshal([]byte(bad), &h), kahn.ErrBadValue)
	}
	require.Error(t, json.Unmarshal([]byte(`{"workflows":1}`), &h))
	again, err := json.Marshal(&h)
	require.NoError(t, err)
	require.Equal(t, text, string(again), "what was refused has changed nothing")
}

// TestHistoryIsBounded teaches more paths than the limit: whole workflows are forgotten, the least recent first.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := &kahn.History{Limit: 5}
	run := func(name string, nodes int) {
		g := &kahn.Graph{Name: name}
		for i := range nodes {
			g.Add(kahn.Node{ID: fmt.Sprint(i)})
		}
		_, err := kahn.Execute(t.Context(), g, nothing, h)
		require.NoError(t, err)
	}
	known := func(name string) (n int) {
		for i := range 20 {
			if _, ok := h.Mean(name, fmt.Sprint(i)); ok {
				n++
			}
		}
		return n
	}
	run("a", 2)
	run("b", 2)
	run("a", 2)
	run("c", 2)
	require.Equal(t, []int{2, 0, 2}, []int{known("a"), known("b"), known("c")}, "b has not learned for the longest time")
	run("d", 9)
	require.Equal(t, []int{0, 0, 5}, []int{known("a"), known("c"), known("d")})
	data, err := json.Marshal(h)
	require.NoError(t, err)
	less := &kahn.History{Limit: 3}
	require.NoError(t, json.Unmarshal(data, less))
	n := 0
	for i := range 9 {
		if _, ok := less.Mean("d", fmt.Sprint(i)); ok {
			n++
		}
	}
	require.Equal(t, 3, n)
}

// TestHistoryIsShared: runs of two workflows teach and read one History at the same time, while it is encoded.
func TestHistoryIsShared(t *testing.T) {
	t.Parallel()
	h := &kahn.History{Limit: 40}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 20 {
				g := &kahn.Graph{Name: fmt.Sprint(i % 2)}
				for j := range 30 {
					g.Add(kahn.Node{ID: fmt.Sprint(j + k)})
				}
				_, err := kahn.Execute(context.Background(), g, nothing, h, kahn.Limit(2))
				if err == nil {
					_, err = json.Marshal(h)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
