package inspector

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// brokenStore is a store whose List returns an error.
type brokenStore struct{ store.Memory }

func (*brokenStore) List(context.Context, store.Query) (store.Page, error) {
	return store.Page{}, errors.New("password in the connection string")
}

// Runs that are only in the store are listed with their nodes. Runs that the Runner also has are marked.
func TestStored(t *testing.T) {
	t.Parallel()
	memory := &store.Memory{}
	g := &kahn.Graph{Name: "orders"}
	g.Add(
		kahn.Node{ID: "a", Do: func(context.Context, *kahn.Step) (any, error) { return 1, nil }},
		kahn.Node{ID: "b", After: []string{"a"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }},
	)
	elsewhere, here := &kahn.Runner{}, &kahn.Runner{}
	for id, rn := range map[string]*kahn.Runner{"elsewhere": elsewhere, "here": here} {
		run, err := rn.Start(t.Context(), g, nil, kahn.RunID(id), kahn.Durable(memory), kahn.Describe(store.Spec{Labels: map[string]string{"tenant": "acme"}}))
		require.NoError(t, err)
		_, _ = run.Wait()
	}
	waiting, err := kahn.Prepare(g, kahn.RunID("later"), kahn.RunKey("acme"), kahn.RunPriority(7))
	require.NoError(t, err)
	_, _, err = memory.Create(t.Context(), waiting)
	require.NoError(t, err)

	serve := func(o Options) *desk {
		d := &desk{t: t}
		d.server = httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(o))))
		t.Cleanup(d.server.Close)
		return d
	}
	d := serve(Options{Runner: here, Store: memory})
	require.True(t, get[infoReply](d, "api/v1/info").Stored)
	have := map[string]storedRow{}
	after := ""
	for {
		params := []string{"limit", "2"}
		if after != "" {
			params = append(params, "after", after)
		}
		page := get[storedReply](d, "api/v1/stored", params...)
		for _, row := range page.Runs {
			have[row.ID] = row
		}
		if after = page.Next; after == "" {
			break
		}
	}
	require.Len(t, have, 3)
	require.Equal(t, kahn.RunFailed, have["elsewhere"].Status)
	require.Equal(t, map[string]string{"tenant": "acme"}, have["elsewhere"].Labels)
	require.False(t, have["elsewhere"].Here)
	require.True(t, have["here"].Here)
	require.Equal(t, kahn.RunPending, have["later"].Status)
	require.Len(t, get[storedReply](d, "api/v1/stored", "status", "failed", "prefix", "else").Runs, 1)
	require.Equal(t, "acme", have["later"].Key)
	require.Equal(t, 7, have["later"].Priority)
	require.Empty(t, have["here"].Key)
	of := get[storedReply](d, "api/v1/stored", "key", "acme").Runs
	require.Len(t, of, 1)
	require.Equal(t, "later", of[0].ID)
	require.Empty(t, get[storedReply](d, "api/v1/stored", "key", "acm").Runs)
	closed := serve(Options{Runner: here, Store: memory, Authorize: func(_ *http.Request, a Action) error {
		if a == ViewData {
			return errBroken
		}
		return nil
	}})
	require.Equal(t, ViewData, closed.refusal(http.StatusForbidden, http.MethodGet, "api/v1/stored?key=acme", "").Action)
	for _, row := range get[storedReply](closed, "api/v1/stored").Runs {
		require.Empty(t, row.Key)
	}
	require.Equal(t, "bad_query", d.refusal(http.StatusBadRequest, http.MethodGet, "api/v1/stored?after=%3Cnone%3E", "").Code)

	// A handler needs only a store, no Runner. Without ViewData there are no labels.
	alone := serve(Options{Store: memory, Authorize: func(_ *http.Request, a Action) error {
		if a == ViewData {
			return errors.New("no")
		}
		return nil
	}})
	require.Empty(t, get[runsReply](alone, "api/v1/runs").Runs)
	for _, row := range get[storedReply](alone, "api/v1/stored").Runs {
		require.Empty(t, row.Labels)
		require.False(t, row.Here)
	}
	none := serve(Options{Runner: here})
	require.Equal(t, "no_store", none.refusal(http.StatusNotFound, http.MethodGet, "api/v1/stored", "").Code)
	audit := &syncBuffer{}
	broken := serve(Options{Store: &brokenStore{}, Log: slog.New(slog.NewTextHandler(audit, nil))})
	f := broken.refusal(http.StatusBadGateway, http.MethodGet, "api/v1/stored", "")
	require.Equal(t, "the store has not answered", f.Message)
	require.Contains(t, audit.String(), "password in the connection string")
}

// The state of an edge follows from its source.
func TestFate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		edge kahn.Edge
		from kahn.NodeResult
		want string
	}{
		{kahn.Edge{}, kahn.NodeResult{Status: kahn.Running}, "open"},
		{kahn.Edge{}, kahn.NodeResult{Status: kahn.Completed}, "taken"},
		{kahn.Edge{}, kahn.NodeResult{Status: kahn.Failed}, "dead"},
		{kahn.Edge{}, kahn.NodeResult{Status: kahn.Failed, Tolerated: true}, "taken"},
		{kahn.Edge{}, kahn.NodeResult{Status: kahn.Skipped}, "dead"},
		{kahn.Edge{Label: "yes"}, kahn.NodeResult{Status: kahn.Completed, Labels: []string{"yes"}}, "taken"},
		{kahn.Edge{Label: "yes"}, kahn.NodeResult{Status: kahn.Completed, Labels: []string{"no"}}, "dead"},
		{kahn.Edge{Label: "yes"}, kahn.NodeResult{Status: kahn.Completed}, "dead"}, // no label matches the node's answer
		{kahn.Edge{On: kahn.OnAlways}, kahn.NodeResult{Status: kahn.Aborted}, "taken"},
		{kahn.Edge{On: kahn.OnFailure}, kahn.NodeResult{Status: kahn.Completed}, "dead"},
		{kahn.Edge{On: kahn.OnFailure, Causes: []kahn.CauseKind{kahn.CauseTimeout}}, kahn.NodeResult{Status: kahn.Failed, Cause: kahn.Cause{Kind: kahn.CauseTimeout}}, "taken"},
		{kahn.Edge{On: kahn.OnFailure, Causes: []kahn.CauseKind{kahn.CauseTimeout}}, kahn.NodeResult{Status: kahn.Failed, Cause: kahn.Cause{Kind: kahn.CausePanic}}, "dead"},
	} {
		require.Equal(t, c.want, fate(c.edge, c.from, false), "%+v", c)
	}
}

// The list of stored runs begins with the runs that need somebody: first a run whose process has died, then a run that waits for an answer. The
// inbox counts both, and a count follows the filters.
func TestStoredUrgent(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil) // the run "order 17", which waits for answers
	atWork := make(chan struct{})
	require.NoError(t, died(x.memory, "died", works(atWork), atWork))
	done, err := kahn.Execute(t.Context(), works(nil), nil, kahn.RunID("done"), kahn.Durable(x.memory))
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, done.Status)
	ids := func(rows []storedRow) (list []string) {
		for _, row := range rows {
			list = append(list, row.ID)
		}
		return list
	}
	all := get[storedReply](x.desk, "api/v1/stored")
	require.Equal(t, []string{"died", "order 17"}, ids(all.Urgent))
	require.NotEmpty(t, all.Urgent[0].Gone)
	require.NotEmpty(t, all.Urgent[1].Waiting)
	require.ElementsMatch(t, []string{"died", "order 17", "done"}, ids(all.Runs))
	require.Equal(t, []string{"order 17"}, ids(get[storedReply](x.desk, "api/v1/stored", "status", "suspended").Urgent))
	require.Equal(t, []string{"died"}, ids(get[storedReply](x.desk, "api/v1/stored", "prefix", "di").Urgent))
	require.Empty(t, get[storedReply](x.desk, "api/v1/stored", "status", "completed").Urgent)
	require.Empty(t, get[storedReply](x.desk, "api/v1/stored", "limit", "1", "after", get[storedReply](x.desk, "api/v1/stored", "limit", "1").Next).Urgent)
	inbox := get[gatesReply](x.desk, "api/v1/gates")
	require.Equal(t, []int{1, 1}, []int{inbox.StoredGone, inbox.StoredWaiting})

	require.Equal(t, storedCount{Total: 3}, get[storedCount](x.desk, "api/v1/stored/count"))
	require.Equal(t, storedCount{Total: 2}, get[storedCount](x.desk, "api/v1/stored/count", "prefix", "d"))
	require.Equal(t, storedCount{Total: 2}, get[storedCount](x.desk, "api/v1/stored/count", "workflow", "works"))
	require.Equal(t, storedCount{Total: 1}, get[storedCount](x.desk, "api/v1/stored/count", "workflow", "works", "status", "completed"))
	only := serveRunner(t, x.rn, Options{Store: x.memory, Visible: func(_ *http.Request, run RunInfo) bool { return run.Workflow == "works" }})
	require.Equal(t, storedCount{Total: 2}, get[storedCount](only, "api/v1/stored/count"))
	require.Equal(t, []string{"died"}, ids(get[storedReply](only, "api/v1/stored").Urgent))
}

// With order=trouble the list begins with failed runs, then has the runs that wait, and ends with the runs that have ended well. The pages of the
// list are the same list.
func TestTroubleFirst(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{}
	start := func(id string, n kahn.Node) {
		run, err := rn.Start(t.Context(), (&kahn.Graph{Name: "g"}).Add(n), nil, kahn.RunID(id))
		require.NoError(t, err)
		if n.Kind == kahn.KindGate {
			_, err = run.WaitFor(t.Context(), n.ID, kahn.Suspended)
			require.NoError(t, err)
			t.Cleanup(func() { _ = run.Cancel() })
			return
		}
		_, _ = run.Wait()
	}
	fails := kahn.Node{ID: "n", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }}
	works := kahn.Node{ID: "n", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}
	start("failed 1", fails)
	start("asks", kahn.Node{ID: "n", Kind: kahn.KindGate})
	start("failed 2", fails)
	start("works", works)
	d := serveRunner(t, rn, Options{})
	list := func(params ...string) (ids []string) {
		for before := []string(nil); ; {
			page := get[runsReply](d, "api/v1/runs", append(append([]string{"limit", "1"}, params...), before...)...)
			for _, row := range page.Runs {
				ids = append(ids, row.ID)
			}
			if page.Next == "" {
				return ids
			}
			before = []string{"before", page.Next}
		}
	}
	require.Equal(t, []string{"works", "failed 2", "asks", "failed 1"}, list())
	require.Equal(t, []string{"failed 2", "failed 1", "asks", "works"}, list("order", "trouble"))
}
