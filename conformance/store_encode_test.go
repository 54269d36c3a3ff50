package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// countingCodec counts how often it encodes each value.
type countingCodec struct {
	kahn.Types
	mu    sync.Mutex
	times map[string]int
}

func (c *countingCodec) Encode(v any) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil {
		c.times = map[string]int{}
	}
	c.times[fmt.Sprint(v)]++
	return c.Types.Encode(v)
}

// TestEncodedOnce: a durable run calls the codec once for each value, since the codec may encrypt the value or store it elsewhere.
func TestEncodedOnce(t *testing.T) {
	t.Parallel()
	says := func(v any) kahn.StepFunc { return func(context.Context, *kahn.Step) (any, error) { return v, nil } }
	g := graph(
		kahn.Node{ID: "T", Kind: kahn.KindTrigger},
		kahn.Node{ID: "A", Do: says("output"), After: []string{"T"}},
		kahn.Node{ID: "R", Do: script(errStep, nil), Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: ms}, After: []string{"T"}},
		kahn.Node{ID: "F", Do: breaks("F"), Fallback: func(context.Context, error) (any, error) { return "fallback", nil }, After: []string{"T"}},
		kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []string{"i1", "i2"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			return fmt.Sprint("item ", s.Index()), nil
		}, After: []string{"A"}},
		subgraph("S", graph(kahn.Node{ID: "x", Do: says("inside")}), "A"),
		kahn.Node{ID: "early", Kind: kahn.KindGate, After: []string{"M"}},
		kahn.Node{ID: "W", After: []string{"early"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if _, ok := s.Resumed(); !ok {
				return nil, kahn.Suspend("", "info", "state")
			}
			return "resumed", nil
		}},
		kahn.Node{ID: "late", Kind: kahn.KindGate, After: []string{"W"}},
		kahn.Node{ID: "Z", Do: says("last"), After: []string{"late"}},
	)
	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		codec := new(countingCodec)
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, nil, mode, kahn.Durable(new(store.Memory)), kahn.Encoding(codec), kahn.Fire("T", "payload"),
			kahn.Inputs(map[string]any{"in": "input"}), kahn.EarlySignals(map[string]any{"early": "answer"}), kahn.OnEvent(rec.add))
		require.NoError(t, err)
		for _, gate := range []string{"W", "late"} {
			_, err := run.WaitFor(t.Context(), gate, kahn.Suspended)
			require.NoError(t, err)
			require.NoError(t, run.Signal(context.Background(), gate, "signal "+gate))
		}
		res, err := run.Wait()
		require.NoError(t, err)
		require.NoError(t, kahntest.CheckEvents(g, res, rec.all()))
		for value, n := range codec.times {
			most := 1
			if value == "<nil>" {
				continue // gates without Info wait
			}
			if value == "payload" || value == "inside" {
				most = 2 // the run and the trigger share a value, and so do x and S
			}
			if n > most {
				t.Errorf("%v: %s was encoded %d times", mode, value, n)
			}
		}
		for _, value := range []string{"output", "fallback", "item 0", "[i1 i2]", "inside", "answer", "info", "state", "signal W", "signal late", "last", "input", "payload"} {
			require.Positive(t, codec.times[value], value)
		}
	}
}

// TestEncodedOnceAtCreation: a run that was created with a payload and inputs does not encode them again when it begins.
func TestEncodedOnceAtCreation(t *testing.T) {
	t.Parallel()
	codec, db := new(countingCodec), new(store.Memory)
	g := graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger}, after("A", "T"))
	n, err := kahn.Prepare(g, kahn.RunID("r"), kahn.Encoding(codec), kahn.Fire("T", "payload"), kahn.Inputs(map[string]any{"in": "input"}))
	require.NoError(t, err)
	_, _, err = db.Create(t.Context(), n)
	require.NoError(t, err)
	res, err := kahn.Execute(t.Context(), g, nop, kahn.RunID("r"), kahn.Encoding(codec), kahn.Durable(db))
	require.NoError(t, err)
	trigger, _ := res.Node("T")
	require.Equal(t, "payload", trigger.Output)
	require.Equal(t, 1, codec.times["input"])
	require.Equal(t, 2, codec.times["payload"]) // the second text is the output of the trigger
}

// TestDeltasInRecords: the size of the write for a delta does not grow with the number of nodes.
func TestDeltasInRecords(t *testing.T) {
	t.Parallel()
	written := func(nodes int) (bytes int) {
		g := new(kahn.Graph)
		for i := range nodes {
			n := kahn.Node{ID: fmt.Sprintf("n%04d", i)}
			if i > 0 {
				n.After = []string{fmt.Sprintf("n%04d", i-1)}
			}
			g.Add(n)
		}
		j := new(journal)
		res, err := kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
			s.Emit("chunk")
			return nil, nil
		}, kahn.RunID("r"), kahn.Durable(j))
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		for _, c := range j.writes {
			data, err := json.Marshal(c)
			require.NoError(t, err)
			bytes += len(data)
		}
		return bytes
	}
	small, large := written(100), written(400)
	require.Less(t, float64(large)/float64(small), 4.2, "%d bytes for 100 nodes, %d for 400", small, large)
}

// TestDeltasOfFormerRecords: former versions stored delta counts in the run's record. Delta numbers continue from these counts.
func TestDeltasOfFormerRecords(t *testing.T) {
	t.Parallel()
	g := graph(kahn.Node{ID: "A"}, subgraph("S", graph(kahn.Node{ID: "x"}), "A"))
	var s store.Memory
	lease, _, err := s.Acquire(t.Context(), "r", "former", 1e9)
	require.NoError(t, err)
	plan, err := g.Compile()
	require.NoError(t, err)
	header := fmt.Sprintf(`{"version": 1, "hash": %q, "run": "r", "epoch": 1, "status": "running", "taken": "2026-01-02T03:04:05Z", "last_event": 40, "deltas": {"A": 2, "S/x": 3}}`, plan.Hash())
	_, err = s.Commit(t.Context(), lease, store.Commit{Sequence: 1, Run: json.RawMessage(header), Status: kahn.RunRunning})
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), lease))
	rec := newRecorder()
	_, err = kahn.Execute(t.Context(), g, func(_ context.Context, s *kahn.Step) (any, error) {
		s.Emit("chunk")
		return nil, nil
	}, kahn.RunID("r"), kahn.Durable(&s), kahn.OnEvent(rec.add))
	require.NoError(t, err)
	var got []string
	for _, e := range rec.all() {
		if e.Type == event.NodeDelta {
			got = append(got, fmt.Sprint(e.Path, " ", e.Payload.(event.Delta).Index))
		}
	}
	require.Equal(t, []string{"A 3", "S/x 4"}, got)
}

// loopOf returns a loop that collects the outputs of a number of iterations.
func loopOf(iterations int, pause time.Duration) kahn.Node {
	return kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		return fmt.Sprintf("output of iteration %d", s.Iteration()), nil
	}}), Loop: &kahn.Loop{MaxIterations: iterations, OnLimit: kahn.LoopStop, Collect: true, Pause: pause, While: func(kahn.View) (bool, error) { return true, nil }}}
}

// TestCollectedOutputs: a loop that collects its outputs writes each output once. If it is resumed after any write, it still has all outputs.
func TestCollectedOutputs(t *testing.T) {
	t.Parallel()
	written := func(iterations int) (bytes int) {
		j, codec := new(journal), new(countingCodec)
		_, err := kahn.Execute(t.Context(), graph(loopOf(iterations, 0)), nil, kahn.RunID("r"), kahn.Durable(j), kahn.Encoding(codec))
		require.NoError(t, err)
		for value, n := range codec.times {
			require.LessOrEqual(t, n, 3, value) // for x, for the loop, and for the next iteration
		}
		for _, c := range j.writes {
			data, err := json.Marshal(c)
			require.NoError(t, err)
			bytes += len(data)
		}
		return bytes
	}
	small, large := written(20), written(80)
	require.Less(t, float64(large)/float64(small), 4.2, "%d bytes for 20 iterations, %d for 80", small, large)

	attempts := 0
	for name, g := range map[string]*kahn.Graph{
		"a loop":                 graph(loopOf(4, 0)),
		"a loop that pauses":     graph(loopOf(4, time.Second)),
		"a loop inside of items": graph(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []int{1, 2}}, Sub: graph(loopOf(3, 0))}),
		"a loop in a later attempt": graph(kahn.Node{ID: "S", Sub: graph(loopOf(3, 0), kahn.Node{ID: "fails", After: []string{"L"}, Do: func(context.Context, *kahn.Step) (any, error) {
			if attempts++; attempts == 1 { // the first attempt that this process performs
				return nil, errStep
			}
			return nil, nil
		}}), Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: ms}}),
	} {
		inBubble(t, name, func(t *testing.T) {
			whole := new(journal)
			want, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(whole))
			require.NoError(t, err)
			for writes := range whole.len() {
				attempts = 0
				rec := newRecorder()
				s := whole.replay(t, "r", writes)
				got, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(s), kahn.OnEvent(rec.add))
				require.NoError(t, err, "after %d writes", writes)
				require.Equal(t, want.Output(), got.Output(), "after %d writes", writes)
				require.NoError(t, kahntest.CheckEvents(g, got, rec.all()))
			}
		})
	}
}

// TestMissingOutput: a stored run that lacks the output of an iteration does not continue as if that iteration had returned no output.
func TestMissingOutput(t *testing.T) {
	t.Parallel()
	g, j := graph(loopOf(5, 0)), new(journal)
	_, err := kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(j))
	require.NoError(t, err)
	half := new(store.Memory)
	lease, _, err := half.Acquire(t.Context(), "r", "o", time.Minute)
	require.NoError(t, err)
	for _, c := range j.writes[:len(j.writes)-2] {
		c.Nodes = slices.DeleteFunc(slices.Clone(c.Nodes), func(n store.NodeRecord) bool { return n.Node == "L#2" })
		_, err := half.Commit(t.Context(), lease, c)
		require.NoError(t, err)
	}
	require.NoError(t, half.Release(t.Context(), lease))
	_, err = kahn.Execute(t.Context(), g, nil, kahn.RunID("r"), kahn.Durable(half))
	require.ErrorIs(t, err, kahn.ErrBadValue)
	require.ErrorContains(t, err, `"L"`)
}
