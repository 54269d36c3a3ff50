package conformance_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// deafCache is a cache whose Put fails.
type deafCache struct{ store.DirCache }

func (deafCache) Get(context.Context, string) ([]byte, bool, error) { return nil, false, errDisk }
func (deafCache) Put(context.Context, string, []byte) error         { return errDisk }

// The memo, in memory and in a cache, drops the output of an undone node: a step, an item, or a sub-graph that is memoized as a whole. Outputs of
// nodes that were not undone, and outputs that another run has stored since, are still found.
func TestMemoOfWhatWasUndone(t *testing.T) {
	for _, kind := range []string{"step", "reads", "map", "sub"} {
		for _, m := range []*kahn.Memo{{}, {Cache: store.DirCache{Dir: t.TempDir()}}} {
			var mu sync.Mutex // pay and look run at the same time
			calls, fails := map[string]int{}, true
			do := func(_ context.Context, s *kahn.Step) (any, error) {
				mu.Lock()
				calls[s.ID()]++
				mu.Unlock()
				if kind == "reads" {
					return kahn.Root[string](s, "card")
				}
				return "receipt", nil
			}
			undo := func(context.Context, *kahn.Step) error { return nil }
			pay := kahn.Node{ID: "pay", Memo: "v1", Do: do, Compensate: undo}
			switch kind {
			case "map":
				pay.Map, pay.Params = &kahn.Map{Over: "items"}, map[string]any{"items": []any{"a"}}
			case "sub":
				pay = kahn.Node{ID: "pay", Memo: "v1", Sub: new(kahn.Graph).Add(kahn.Node{ID: "in", Do: do, Compensate: undo})}
			}
			g := new(kahn.Graph).Add(pay, kahn.Node{ID: "look", Memo: "v1", Do: do},
				kahn.Node{ID: "ship", After: []string{"pay", "look"}, Do: func(context.Context, *kahn.Step) (any, error) {
					if fails {
						return nil, errSoldOut
					}
					return nil, nil
				}})
			perform := func() (*kahn.Result, error) {
				return kahn.Execute(t.Context(), g, nil, m, kahn.Inputs(map[string]any{"card": "7"}))
			}
			_, err := perform()
			require.ErrorIs(t, err, errSoldOut)
			fails = false
			for run, hits := range []bool{false, true} {
				res, err := perform()
				require.NoError(t, err)
				if kind != "map" {
					require.Equal(t, hits, must(res.Node("pay")).Memoized, "%s, run %d", kind, run)
				}
				require.True(t, must(res.Node("look")).Memoized, "it was not undone")
			}
			for _, id := range []string{"pay", "in"} {
				if id != "look" && calls[id] > 0 {
					require.Equal(t, 2, calls[id], "%s: %s", kind, id)
				}
			}
			require.Equal(t, 1, calls["look"])
			fails = true // the hit comes from another run, and is not undone here
			_, err = perform()
			require.ErrorIs(t, err, errSoldOut)
			fails = false
			res, err := perform()
			require.NoError(t, err)
			require.True(t, kind == "map" || must(res.Node("pay")).Memoized)
		}
	}
}

// Nodes are undone even if the cache fails.
func TestBrokenCacheOfWhatIsUndone(t *testing.T) {
	undone := 0
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "pay", Memo: "v1", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { undone++; return nil }},
		kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errSoldOut }},
	)
	res, err := kahn.Execute(t.Context(), g, nil, &kahn.Memo{Cache: deafCache{}})
	require.ErrorIs(t, err, errSoldOut)
	require.Equal(t, 1, undone)
	require.Equal(t, kahn.CompensationDone, must(res.Node("pay")).Compensation)
}

// The log lines of a compensation lie between its beginning and its end, as for an attempt. A compensation has no output: emitting a chunk only
// logs a warning.
func TestCompensationsLogAndEmit(t *testing.T) {
	for _, s := range []*store.Memory{nil, {}} {
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "pay", Do: func(_ context.Context, s *kahn.Step) (any, error) { s.Emit("paid"); return 1, nil }, Compensate: func(_ context.Context, s *kahn.Step) error {
				s.Log(slog.LevelWarn, "the bank is slow")
				s.Emit("refunded")
				return nil
			}},
			kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errSoldOut }},
		)
		rec := newRecorder()
		opts := []kahn.Option{kahn.OnEvent(rec.add)}
		if s != nil {
			opts = append(opts, kahn.Durable(s), kahn.StoreEvents())
		}
		res, err := kahn.Execute(t.Context(), g, nil, opts...)
		require.True(t, errors.Is(err, errSoldOut))
		require.NoError(t, kahntest.CheckEvents(g, res, rec.all()))
		var said []string
		for _, e := range rec.all() {
			switch p := e.Payload.(type) {
			case event.LogRecord:
				said = append(said, p.Message)
			case event.Delta:
				said = append(said, p.Chunk.(string))
			case event.Compensation:
				said = append(said, string(e.Type))
			}
		}
		require.Equal(t, []string{"paid", "node.compensating", "the bank is slow", "Emit is not for compensations, which have no output: use Log", "node.compensated"}, said)
	}
}
