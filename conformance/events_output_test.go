package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

type fruit struct {
	Name string `json:"name"`
}

// TestEventOutputsOnce: each output is encoded once, for all readers of the events together.
func TestEventOutputsOnce(t *testing.T) {
	t.Parallel()
	give := func(v any) kahn.StepFunc { return func(context.Context, *kahn.Step) (any, error) { return v, nil } }
	codec := new(countingCodec)
	g := graph(kahn.Node{ID: "A", Do: give("output of A")}, subgraph("S", graph(kahn.Node{ID: "x", Do: give("output of x")})), kahn.Node{ID: "last", After: []string{"A", "S"}, Do: give("last output")})
	run, err := kahn.Start(t.Context(), g, nil, kahn.Encoding(codec), kahn.EventOutputs(100))
	require.NoError(t, err)
	_, err = run.Wait()
	require.NoError(t, err)
	var readers sync.WaitGroup
	for range 5 {
		readers.Go(func() {
			outputs := 0
			for e, err := range run.Events(t.Context(), 0) {
				if err != nil {
					t.Error(err)
				}
				if p, ok := e.Payload.(event.Completion); ok && strings.Contains(string(p.Output.Value), "output of") {
					outputs++
				}
			}
			if outputs != 3 { // the outputs of A, of x and of S
				t.Errorf("%d outputs", outputs)
			}
		})
	}
	readers.Wait()
	// An output is encoded when its node ends, and once more for the events. The nodes x and S have the same output, and so do the
	// node "last" and the run.
	for value, most := range map[string]int{"output of A": 2, "output of x": 4, "last output": 3} {
		if n := codec.times[value]; n > most || n < 2 {
			t.Errorf("%s was encoded %d times", value, n)
		}
	}
}

// With the option EventOutputs events contain outputs as plain JSON, up to a size limit.
func TestEventOutputs(t *testing.T) {
	t.Parallel()
	give := func(v any) kahn.StepFunc { return func(context.Context, *kahn.Step) (any, error) { return v, nil } }
	g := graph(
		kahn.Node{ID: "number", Do: give(7)}, kahn.Node{ID: "fruit", Do: give(fruit{"fig"})}, kahn.Node{ID: "null"},
		kahn.Node{ID: "long", Do: give(strings.Repeat("x", 100))}, kahn.Node{ID: "func", Do: give(func() {})},
		kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x", Do: give("inside")})}, after("last", "number", "fruit", "null", "long", "func", "S"),
	)
	outputs := func(r trial) (texts []string) {
		for _, e := range r.events {
			var out event.Output
			switch p := e.Payload.(type) {
			case event.Completion:
				out = p.Output
			case event.RunEnd:
				out = p.Aggregation
			default:
				continue
			}
			data, err := json.Marshal(e)
			require.NoError(t, err)
			var again kahn.Event
			require.NoError(t, json.Unmarshal(data, &again))
			switch p := again.Payload.(type) {
			case event.Completion:
				require.Equal(t, []any{string(out.Value), out.Bytes, out.Err == nil}, []any{string(p.Output.Value), p.Output.Bytes, p.Output.Err == nil})
			case event.RunEnd:
				require.Equal(t, []any{string(out.Value), out.Bytes}, []any{string(p.Aggregation.Value), p.Aggregation.Bytes})
			}
			text := fmt.Sprintf("%s %s %d", e.Path, out.Value, out.Bytes)
			if out.Err != nil {
				require.ErrorIs(t, out.Err, kahn.ErrNotEncodable)
				text += " error"
			}
			texts = append(texts, text)
		}
		return texts
	}
	inBubble(t, "by option", func(t *testing.T) {
		r := try(t, g, nothing, kahn.EventOutputs(64), kahn.Limit(1), kahn.EventOutputs(60))
		require.ElementsMatch(t, []string{
			"number 7 1", `fruit {"name":"fig"} 14`, "null null 4", "long  102", "func  0 error", `S/x "inside" 8`, `S "inside" 8`, "last null 4", " null 4",
		}, outputs(r))
	})
	inBubble(t, "types of the host", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "fruit", Do: give(fruit{"fig"})}), nothing, kahn.EventOutputs(0), kahn.Encoding(kahn.Types{"fruit": fruit{}}))
		require.Equal(t, []string{`fruit {"name":"fig"} 14`, ` {"name":"fig"} 14`}, outputs(r))
	})
	inBubble(t, "a codec that writes no JSON", func(t *testing.T) {
		r := try(t, graph(kahn.Node{ID: "fruit", Do: give(fruit{"fig"})}), nothing, kahn.EventOutputs(64), kahn.Encoding(halfWritten{}))
		out := r.find(event.RunFailed, "")[0].Payload.(event.RunEnd).Aggregation
		require.ErrorIs(t, out.Err, kahn.ErrNotEncodable)
		require.Nil(t, out.Value)
	})
	inBubble(t, "by default", func(t *testing.T) {
		r := try(t, g, nothing)
		for _, text := range outputs(r) {
			require.True(t, strings.HasSuffix(text, "  0"), text)
		}
	})
	_, err := kahn.Execute(t.Context(), g, nothing, kahn.EventOutputs(-1))
	require.ErrorIs(t, err, kahn.ErrBadOption)
}

// halfWritten is a codec that returns incomplete JSON.
type halfWritten struct{ kahn.Types }

func (halfWritten) Encode(any) (json.RawMessage, error) { return json.RawMessage(`{"name":`), nil }

// slowCodec is a codec that asks the run for its counts. If the run called the codec under the run's lock, the call would deadlock.
type slowCodec struct {
	kahn.Types
	run func() *kahn.Run
}

func (c slowCodec) Encode(v any) (json.RawMessage, error) {
	if r := c.run(); r != nil {
		r.Counts()
	}
	return c.Types.Encode(v)
}

func TestEventOutputsWithoutLock(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var started *kahn.Run
	codec := slowCodec{run: func() *kahn.Run {
		mu.Lock()
		defer mu.Unlock()
		return started
	}}
	run, err := kahn.Start(t.Context(), graph(kahn.Node{ID: "a", Do: takes(5 * ms)}, after("b", "a")), nothing, kahn.EventOutputs(0), kahn.Encoding(codec))
	require.NoError(t, err)
	mu.Lock()
	started = run
	mu.Unlock()
	require.NotEmpty(t, readAll(t, run, 0))
	_, err = run.Wait()
	require.NoError(t, err)
}

// If no node handles a failure, the event of the failed node says that the failure is routed to the end of the graph.
func TestRoutedToEnd(t *testing.T) {
	t.Parallel()
	catch := func(id, from string, causes ...kahn.CauseKind) kahn.Node {
		return kahn.Node{ID: id, In: []kahn.Edge{{From: from, On: kahn.OnFailure, Causes: causes}}}
	}
	inBubble(t, "failures", func(t *testing.T) {
		g := graph(
			kahn.Node{ID: "alone", Do: always(errStep)}, kahn.Node{ID: "followed", Do: always(errStep)}, after("victim", "followed"),
			kahn.Node{ID: "caught", Do: always(errStep)}, catch("catch", "caught"),
			kahn.Node{ID: "missed", Do: always(errStep)}, catch("no catch", "missed", kahn.CauseTimeout),
			kahn.Node{ID: "tolerated", Do: always(errStep), ContinueOnFail: true},
			kahn.Node{ID: "bounded", Do: always(errStep)}, kahn.If("ok?", func(v kahn.View) (bool, error) { return true, nil }, "bounded"),
			kahn.Node{ID: "passed on", After: []string{"followed"}, OnUpstreamFailure: kahn.UpstreamPropagate},
			kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x", Do: always(errStep)}, kahn.Node{ID: "y", After: []string{"x"}, OnUpstreamFailure: kahn.UpstreamPropagate}), ContinueOnFail: true},
		)
		r := try(t, g, nothing)
		got := map[string]string{}
		for _, e := range r.events {
			if p, ok := e.Payload.(event.NodeEnd); ok && e.Type == event.NodeFailed {
				require.Equal(t, p.RoutedToEnd, p.OriginalFailedStep != "")
				got[e.Path] = p.OriginalFailedStep
			}
		}
		require.Equal(t, map[string]string{
			"alone": "alone", "followed": "followed", "caught": "", "missed": "missed", "tolerated": "", "bounded": "", "passed on": "followed",
			"S/x": "S/x", "S/y": "S/x", "S": "",
		}, got)
	})
}

// The run's last event says whether a stop was requested, even if no node was running. Observers of nodes get the run's id.
func TestCancellationRequested(t *testing.T) {
	t.Parallel()
	inBubble(t, "ends", func(t *testing.T) {
		for _, act := range []func(*kahn.Run){func(r *kahn.Run) { r.Cancel() }, func(r *kahn.Run) { r.AbortAll(errors.New("enough")) }, func(*kahn.Run) {}} {
			ids := map[string]bool{}
			var mu sync.Mutex
			r := tryControlled(t, t.Context(), graph(kahn.Node{ID: "a", Do: takes(time.Second)}, kahn.Node{ID: "S", Sub: graph(after("x"))}), nothing, soon(act), kahn.RunID("r7"),
				kahn.OnNode(func(n kahn.NodeResult) {
					mu.Lock()
					defer mu.Unlock()
					ids[n.RunID] = true
				}))
			require.Equal(t, r.CancelRequested, r.events[len(r.events)-1].Payload.(event.RunEnd).CancellationRequested)
			require.Equal(t, map[string]bool{"r7": true}, ids)
			n, _ := r.Node("a")
			require.Empty(t, n.RunID)
		}
	})
}
