package riverkahn_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestRedrive: a program posts a redrive, in Go or in SQL, and a job performs it. A refused redrive gets an answer, and does not change the run.
// If a redrive was posted without a job, the search for runs without a job finds it.
func TestRedrive(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	schema := x.withFunctions(t)
	g := (&kahn.Graph{Name: "orders"}).Add(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []int{1, 2, 3}}}, kahn.Node{ID: "sum", After: []string{"M"}})
	var mu sync.Mutex
	failed, calls := map[string]bool{}, map[string][]string{}
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		if key := s.RunID() + s.Path(); s.Path() == "M[1]" && !failed[key] {
			failed[key] = true
			return nil, errors.New("broken")
		}
		if failed[s.RunID()+"M[1]"] {
			calls[s.RunID()] = append(calls[s.RunID()], s.Path())
		}
		return nil, nil
	}
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: step, Options: []kahn.Option{kahn.Limit(1)}}}})
	outside := x.client(t)
	posts := map[string]func(t *testing.T, id string, nodes []string) error{
		"by Go": func(t *testing.T, id string, nodes []string) error {
			q, err := kahn.PrepareRedrive(nodes, kahn.Request{Actor: "ann"})
			require.NoError(t, err)
			q.ID = nodes[0]
			posted, err := outside.Post(t.Context(), id, q)
			require.True(t, posted)
			return err
		},
		"by SQL": func(t *testing.T, id string, nodes []string) error {
			_, err := x.pool.Exec(t.Context(), "SELECT "+schema+".post_redrive($1, $2, $3, actor => 'ann')", id, nodes[0], nodes)
			return err
		},
		"without a job": func(t *testing.T, id string, nodes []string) error {
			_, err := x.store.Post(t.Context(), id, store.Request{ID: nodes[0], Kind: store.KindRedrive, Value: []byte(`{"nodes": ["` + nodes[0] + `"]}`), Actor: "ann"})
			return err
		},
	}
	for id, post := range posts {
		create(t, c, g, id)
		x.reaches(t, id, kahn.RunFailed)
		mu.Lock()
		calls[id] = nil // the other items of the map may have been called after the failure
		mu.Unlock()
		for _, node := range []string{"M[7]", "M[1]"} {
			require.NoError(t, post(t, id, []string{node}), id)
			var q store.PostedRequest
			require.Eventually(t, func() bool {
				var err error
				q, err = x.store.FindRequest(t.Context(), id, node)
				return err == nil && q.Status != store.RequestWaiting
			}, 90*time.Second, 10*time.Millisecond, "%s: %s", id, node)
			require.Equal(t, node == "M[1]", q.Status == store.RequestApplied, "%s: %s", id, q.Refused)
			require.Equal(t, node == "M[7]", strings.Contains(q.Refused, `"M[7]": the map has 3 items`))
		}
		x.reaches(t, id, kahn.RunCompleted)
		mu.Lock()
		require.Equal(t, []string{"M[1]", "sum"}, slices.Clone(calls[id]), id)
		mu.Unlock()
		res, err := kahn.ReadResult(t.Context(), g, x.store, id)
		require.NoError(t, err)
		require.Equal(t, "ann", res.RedriveRequest.Actor)
	}
	_, err := x.pool.Exec(t.Context(), "SELECT "+schema+".post_redrive('nobody', '1')", pgx.QueryExecModeSimpleProtocol)
	require.ErrorContains(t, err, "unknown run nobody")
}
