package inspector

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// refunds are orders that fail after they were paid, by what becomes of the refund: it returns an error, or waits until it is let go.
type refunds struct {
	fails map[string]error // by run
	held  chan struct{}    // nil: none waits
	runs  []string         // whose refund waits
}

func (x *refunds) graph() *kahn.Graph {
	succeeds := func(context.Context, *kahn.Step) (any, error) { return "receipt", nil }
	refund := func(_ context.Context, s *kahn.Step) error {
		if slices.Contains(x.runs, s.RunID()) {
			<-x.held
		}
		return x.fails[s.RunID()]
	}
	return (&kahn.Graph{Name: "orders"}).Add(
		kahn.Node{ID: "pay", Do: succeeds, Compensate: refund},
		kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if s.RunID() == "fine" {
				return nil, nil
			}
			return nil, errBroken
		}},
	)
}

// Operators find runs by what they undo, among those of the Runner and those of the store.
func TestRunsByCompensation(t *testing.T) {
	t.Parallel()
	x := &refunds{fails: map[string]error{"stuck": kahn.Permanent(errBroken)}, held: make(chan struct{}), runs: []string{"busy"}}
	memory, rn := &store.Memory{}, &kahn.Runner{}
	g := x.graph()
	begun := map[string]*kahn.Run{}
	for _, id := range []string{"fine", "undone", "stuck", "busy"} {
		run, err := rn.Start(t.Context(), g, nil, kahn.RunID(id), kahn.Durable(memory))
		require.NoError(t, err)
		begun[id] = run
	}
	for _, id := range []string{"fine", "undone", "stuck"} {
		_, _ = begun[id].Wait()
	}
	for n := range begun["busy"].Events(t.Context(), 0) {
		if n.Type == "node.compensating" {
			break
		}
	}
	d := &desk{t: t, server: httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(Options{Runner: rn, Store: memory})))}
	t.Cleanup(d.server.Close)
	for state, id := range map[string]string{"running": "busy", "done": "undone", "failed": "stuck"} {
		live := get[runsReply](d, "api/v1/runs", "compensation", state)
		require.Len(t, live.Runs, 1, state)
		require.Equal(t, 1, live.Total)
		require.Equal(t, [2]string{id, state}, [2]string{live.Runs[0].ID, live.Runs[0].Compensation})
		stored := get[storedReply](d, "api/v1/stored", "compensation", state)
		require.Len(t, stored.Runs, 1, state)
		require.Equal(t, [2]string{id, state}, [2]string{stored.Runs[0].ID, stored.Runs[0].Compensation})
		require.Equal(t, state, get[runRow](d, "api/v1/run", "run", id).Compensation)
	}
	require.Empty(t, get[runsReply](d, "api/v1/runs", "compensation", "failed", "workflow", "others").Runs)
	require.Empty(t, get[storedReply](d, "api/v1/stored", "compensation", "failed", "status", "running").Runs)
	require.Empty(t, get[runRow](d, "api/v1/run", "run", "fine").Compensation)
	code, _, _ := d.ask(http.MethodGet, "api/v1/stored?compensation=none", "")
	require.Equal(t, http.StatusBadRequest, code)

	alone := &desk{t: t, server: httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(Options{Runner: &kahn.Runner{}, Store: memory})))}
	t.Cleanup(alone.server.Close)
	require.Equal(t, "failed", get[runRow](alone, "api/v1/run", "run", "stuck").Compensation, "also of a run that only the store has")
	close(x.held)
	_, _ = begun["busy"].Wait()
	require.Len(t, get[storedReply](d, "api/v1/stored", "compensation", "done").Runs, 2)
}
