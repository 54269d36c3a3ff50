package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// postRedrive posts a redrive of the run "r", as a process without the graph would.
func postRedrive(t testing.TB, db store.Inbox, nodes []string, opts ...kahn.Option) (id string) {
	t.Helper()
	q, err := kahn.PrepareRedrive(nodes, kahn.Request{Actor: "ann", Reason: "mended"}, opts...)
	require.NoError(t, err)
	postRequest(t, db, q)
	return q.ID
}

// repaired is a store and a step function. The function records its calls and fails for the named paths until it is mended.
type repaired struct {
	served
	bad    []string
	mended bool
}

func (s *repaired) step(_ context.Context, step *kahn.Step) (any, error) {
	s.note("%s", step.Path())
	if !s.mended && slices.Contains(s.bad, step.Path()) {
		return nil, errStep
	}
	return step.Path(), nil
}

// failed performs the run "r" of a graph and expects that it fails.
func (s *repaired) failed(t *testing.T, g *kahn.Graph) {
	t.Helper()
	res, _ := kahn.Execute(t.Context(), g, s.step, kahn.Durable(s), kahn.RunID("r"), kahn.Limit(1))
	require.True(t, res.Status.Terminal())
	s.take()
	s.mended = true
}

func (s *repaired) serve(t *testing.T, g *kahn.Graph) (end func()) {
	t.Helper()
	return serve(t, &kahn.Runner{Options: []kahn.Option{kahn.Limit(1)}}, kahn.Service{Store: s, OnError: s.told, Workflows: []kahn.Workflow{{Graph: g, Step: s.step}}})
}

// Any process may post a redrive of a run that has ended. A process that serves the run's graph performs the redrive.
func TestRedrivePosted(t *testing.T) {
	orders := flow("orders", after("A"), mapped("M", []int{1, 2, 3}, kahn.Map{}), subgraph("S", graph(after("x"), after("y", "x")), "A"), after("Z", "M", "S"))
	shop := shopOf()
	shop.Name = "shop"
	for name, tt := range map[string]struct {
		g       *kahn.Graph
		bad     string
		nodes   []string
		opts    []kahn.Option
		calls   string
		refused string
	}{
		"all that failed, inside of composites": {g: orders, bad: "M[1] S/y", calls: "M[1] S/y Z"},
		"an item":                               {g: orders, bad: "M[1]", nodes: []string{"M[1]"}, calls: "M[1] Z"},
		"an item that completed":                {g: orders, bad: "Z", nodes: []string{"M[2]"}, calls: "M[2] Z"},
		"a composite that goes on inside":       {g: orders, bad: "S/y", nodes: []string{"S"}, calls: "S/y Z"},
		"a composite anew":                      {g: orders, bad: "S/y", nodes: []string{"S"}, opts: []kahn.Option{kahn.Anew}, calls: "S/x S/y Z"},
		"a run that completed":                  {g: orders, bad: "none", nodes: []string{"S/y"}, calls: "S/y Z"},
		"what follows is kept":                  {g: orders, bad: "none", nodes: []string{"S/y"}, opts: []kahn.Option{kahn.KeepDescendants}, calls: "S/y"},
		"a path that leads nowhere":             {g: orders, bad: "M[1]", nodes: []string{"M[3]"}, refused: `"M[3]": the map has 3 items`},
		"an unknown node":                       {g: orders, bad: "M[1]", nodes: []string{"B"}, refused: `unknown node: "B"`},
		"what was answered":                     {g: shop, bad: "ship", refused: `"refund" has run because of "ship"`},
		"what was answered, despite that":       {g: shop, bad: "ship", opts: []kahn.Option{kahn.DespiteHandlers}, calls: "ship"},
	} {
		inBubble(t, name, func(t *testing.T) {
			db := &repaired{bad: strings.Fields(tt.bad)}
			db.failed(t, tt.g)
			before := db.status(t, "r")
			end := db.serve(t, tt.g)
			time.Sleep(time.Second)
			require.Empty(t, db.take())
			id := postRedrive(t, db, tt.nodes, tt.opts...)
			time.Sleep(time.Second)
			status, why := became(t, db, id)
			require.Equal(t, strings.Fields(tt.calls), append([]string{}, db.take()...))
			if tt.refused != "" {
				require.Equal(t, store.RequestRefused, status)
				require.Contains(t, why, tt.refused)
				require.Equal(t, before, db.status(t, "r"))
				end()
				return
			}
			require.Equal(t, store.RequestApplied, status, why)
			require.Equal(t, kahn.RunCompleted, db.status(t, "r"))
			counted(t, db)
			s, err := kahn.ReadSnapshot(t.Context(), db, "r")
			require.NoError(t, err)
			require.Equal(t, 2, s.Epoch())
			res, err := kahn.ReadResult(t.Context(), tt.g, db, "r")
			require.NoError(t, err)
			require.Equal(t, kahn.Request{Actor: "ann", Reason: "mended"}, res.RedriveRequest)

			posted, err := db.Post(t.Context(), "r", store.Request{ID: id, Kind: store.KindRedrive, Value: mustRedrive(t, tt.nodes, tt.opts...).Value})
			require.NoError(t, err)
			require.False(t, posted, "it is the same request again")
			time.Sleep(time.Second)
			require.Empty(t, db.take())
			end()
		})
	}
}

func mustRedrive(t testing.TB, nodes []string, opts ...kahn.Option) store.Request {
	t.Helper()
	q, err := kahn.PrepareRedrive(nodes, kahn.Request{}, opts...)
	require.NoError(t, err)
	return q
}

// Several redrives of one run are posted. If the first one is refused, the next one is performed. Once one begins, all later ones are refused.
func TestRedrivePostedInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, db := flow("turns", after("A"), after("B")), &repaired{bad: []string{"A", "B"}}
		db.failed(t, g)
		var ids []string
		for _, nodes := range [][]string{{"X"}, {"Y"}, {"A"}, {"B"}} {
			ids = append(ids, postRedrive(t, db, nodes))
		}
		end := db.serve(t, g)
		time.Sleep(time.Second)
		end()
		require.Equal(t, []string{"A"}, db.take())
		require.Equal(t, kahn.RunFailed, db.status(t, "r"))
		for i, want := range []string{`refused unknown node: "X" (there is "A", "B")`, `refused unknown node: "Y" (there is "A", "B")`, "applied ", `refused the run has not ended: run "r" was redriven after the request was posted`} {
			status, why := became(t, db, ids[i])
			require.Equal(t, want, status.String()+" "+why)
		}
	})
}

// If a caller redrives a run, redrives that were posted before are refused.
func TestRedrivePostedBesideAnother(t *testing.T) {
	t.Parallel()
	g, db := flow("beside", after("A"), after("B", "A")), &repaired{bad: []string{"B"}}
	db.failed(t, g)
	id := postRedrive(t, db, []string{"A"})
	res, err := kahn.Execute(t.Context(), g, db.step, kahn.Durable(db), kahn.RunID("r"), kahn.Redrive(nil, nil))
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)
	require.Equal(t, []string{"B"}, db.take())
	status, why := became(t, db, id)
	require.Equal(t, store.RequestRefused, status)
	require.Contains(t, why, "was redriven after the request was posted")
}

// If no process calls Serve, the next call of Execute for the run performs the posted redrive, but not if it passes another version of the graph.
func TestRedrivePostedByHand(t *testing.T) {
	t.Parallel()
	g, db := flow("by hand", after("A"), after("B", "A")), &repaired{bad: []string{"B"}}
	opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r")}
	db.failed(t, g)
	_, err := kahn.Execute(t.Context(), g, db.step, opts...)
	require.ErrorIs(t, err, kahn.ErrFinished)
	id := postRedrive(t, db, []string{"nowhere"})
	_, err = kahn.Execute(t.Context(), g, db.step, opts...)
	require.ErrorIs(t, err, kahn.ErrFinished)
	require.ErrorIs(t, err, kahn.ErrUnknownNode)
	require.ErrorContains(t, err, "nowhere")
	status, _ := became(t, db, id)
	require.Equal(t, store.RequestRefused, status)

	id = postRedrive(t, db, nil)
	_, err = kahn.Execute(t.Context(), flow("by hand", after("A"), after("C", "A")), db.step, opts...)
	require.ErrorIs(t, err, kahn.ErrGraphChanged)
	status, _ = became(t, db, id)
	require.Equal(t, store.RequestWaiting, status)
	res, err := kahn.Execute(t.Context(), g, db.step, opts...)
	require.NoError(t, err)
	require.Equal(t, 2, res.Count(kahn.Completed))
	status, _ = became(t, db, id)
	require.Equal(t, store.RequestApplied, status)
	require.Equal(t, kahn.RunCompleted, db.status(t, "r"))
}

// A redrive for a graph version that no live process serves keeps waiting, is reported, and protects its run from Prune.
func TestRedrivePostedOfAnotherVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		former, present, db := flow("versions", after("A")), flow("versions", after("A"), after("B")), &repaired{bad: []string{"A"}}
		db.failed(t, former)
		end := db.serve(t, present)
		id := postRedrive(t, db, nil)
		time.Sleep(2 * time.Minute)
		require.Contains(t, db.take(), "told versions: no live process performs its runs")
		end()
		status, _ := became(t, db, id)
		require.Equal(t, store.RequestWaiting, status)
		pruned, err := db.Prune(t.Context(), store.PruneQuery{EndedBefore: time.Now()})
		require.NoError(t, err)
		require.Zero(t, pruned.Runs)
		db.take()
		end = db.serve(t, former)
		time.Sleep(time.Second)
		end()
		require.Equal(t, []string{"A"}, db.take())
	})
}

// cutOff is a store that stops answering at one write: before it applies the write, or afterwards.
type cutOff struct {
	*store.Memory
	writes int // the number of writes that are answered
	after  bool
	dead   bool
}

var errCutOff = errors.New("cut off")

func (s *cutOff) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	if s.writes--; s.writes < 0 {
		if s.after && !s.dead {
			_, _ = s.Memory.Commit(ctx, l, c)
		}
		s.dead = true
		return 0, errCutOff
	}
	return s.Memory.Commit(ctx, l, c)
}

func (s *cutOff) Renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	if s.dead {
		return errCutOff
	}
	return s.Memory.Renew(ctx, l, ttl)
}

func (s *cutOff) Release(ctx context.Context, l store.Lease) error {
	if s.dead {
		return errCutOff
	}
	return s.Memory.Release(ctx, l)
}

// If a process dies at any write of a posted redrive, the redrive is neither lost nor performed twice.
func TestRedrivePostedSurvivesCrashes(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		for writes := range 6 {
			for _, late := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					g, db := flow("crashes", after("A"), mapped("M", []int{1, 2, 3}, kahn.Map{}), after("Z", "M")), &repaired{bad: []string{"M[1]"}}
					db.failed(t, g)
					nodes, calls := []string{"M[1]"}, []string{"M[1]", "Z"}
					if refused {
						nodes, calls = []string{"M[9]"}, nil
					}
					id := postRedrive(t, db, nodes)
					opts := []kahn.Option{kahn.RunID("r"), kahn.Limit(1)}
					_, _ = kahn.Execute(t.Context(), g, db.step, append(opts, kahn.Durable(&cutOff{Memory: &db.Memory, writes: writes, after: late}))...)
					time.Sleep(time.Minute) // the lease of the dead process runs out
					for range 2 {
						_, err := kahn.Execute(t.Context(), g, db.step, append(opts, kahn.Durable(db))...)
						require.True(t, err == nil || errors.Is(err, kahn.ErrFinished), "%v", err)
					}
					status, why := became(t, db, id)
					s, err := kahn.ReadSnapshot(t.Context(), db, "r")
					require.NoError(t, err)
					diary := slices.Compact(db.take()) // if the end of an attempt was not written, the attempt is repeated
					require.Equal(t, calls, diary, "after %d writes, %v", writes, late)
					if refused {
						require.Equal(t, store.RequestRefused, status)
						require.Equal(t, 1, s.Epoch())
						return
					}
					require.Equal(t, store.RequestApplied, status, why)
					require.Equal(t, 2, s.Epoch(), "after %d writes, %v", writes, late)
					require.Equal(t, kahn.RunCompleted, db.status(t, "r"))
				})
			}
		}
	}
}

// The events of a posted redrive name the requester, and continue the log of the run.
func TestRedrivePostedEvents(t *testing.T) {
	t.Parallel()
	g, db := flow("events", after("A"), after("B", "A")), &repaired{bad: []string{"B"}}
	opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents()}
	_, err := kahn.Execute(t.Context(), g, db.step, opts...)
	require.Error(t, err)
	db.mended = true
	postRedrive(t, db, nil)
	res, err := kahn.Execute(t.Context(), g, db.step, opts...)
	require.NoError(t, err)
	events := storedEvents(t, db, "r")
	checkEvents(t, g, res, events)
	r := trial{res, t, nil, events}
	invalidated := r.find(event.NodeInvalidated, "B")
	require.Len(t, invalidated, 1)
	require.Equal(t, kahn.Request{Actor: "ann", Reason: "mended"}, invalidated[0].Payload.(event.Invalidation).Request)
	r.count(event.NodeInvalidated, "A", 0)
}

// PrepareRedrive returns an error for an invalid redrive.
func TestPrepareRedrive(t *testing.T) {
	t.Parallel()
	_, err := kahn.PrepareRedrive([]string{"A", ""}, kahn.Request{})
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, err = kahn.PrepareRedrive([]string{"\xff"}, kahn.Request{})
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, err = kahn.PrepareRedrive(nil, kahn.Request{Actor: "\xff"})
	require.ErrorIs(t, err, kahn.ErrBadValue)
	_, err = kahn.PrepareRedrive(nil, kahn.Request{}, nil)
	require.ErrorIs(t, err, kahn.ErrBadOption)
	q, err := kahn.PrepareRedrive([]string{"M[1]"}, kahn.Request{}, kahn.Anew, kahn.DespiteHandlers)
	require.NoError(t, err)
	require.JSONEq(t, `{"nodes": ["M[1]"], "anew": true, "despite_handlers": true}`, string(q.Value))
	require.NotEqual(t, mustRedrive(t, nil).ID, mustRedrive(t, nil).ID)

	db := new(store.Memory)
	_, err = kahn.Execute(t.Context(), graph(gate("G")), nothing, kahn.Durable(db), kahn.RunID("r"))
	require.NoError(t, err)
	_, err = db.Post(t.Context(), "r", q)
	require.ErrorIs(t, err, kahn.ErrNotEnded)
	_, err = db.Post(t.Context(), "nobody", q)
	require.ErrorIs(t, err, kahn.ErrUnknownRun)
}
