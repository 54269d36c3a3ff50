package riverkahn_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
)

// A queue counts as live from the Start to the Stop of a Performer that has the queue's plan. The queue of a plan that no process has does not count
// as live.
func TestUnclaimable(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	gate := kahn.Node{ID: "gate", Kind: kahn.KindGate}
	v1, v2 := (&kahn.Graph{Name: "w"}).Add(gate), (&kahn.Graph{Name: "w"}).Add(gate, kahn.Node{ID: "more", After: []string{"gate"}})
	p := &riverkahn.Performer{Store: x.store, Workflows: []riverkahn.Workflow{{Graph: v1}}}
	config := x.config()
	require.NoError(t, p.Register(config))
	client, err := river.NewClient(riverpgxv5.New(x.pool), config)
	require.NoError(t, err)
	c := riverkahn.Client{Store: x.store, River: client}
	create(t, c, v1, "one")
	create(t, c, v2, "two")
	unclaimable := func() (plans []string) {
		t.Helper()
		list, err := store.Unclaimable(t.Context(), x.store)
		require.NoError(t, err)
		for _, q := range list {
			plans = append(plans, q.Plan)
		}
		return plans
	}
	hash := func(g *kahn.Graph) string {
		plan, err := g.Compile()
		require.NoError(t, err)
		return plan.Hash()
	}
	require.ElementsMatch(t, []string{hash(v1), hash(v2)}, unclaimable())
	require.NoError(t, p.Start(context.Background(), client))
	require.Equal(t, []string{hash(v2)}, unclaimable())
	x.reaches(t, "one", kahn.RunSuspended)
	require.NoError(t, p.Stop(context.Background(), client))
	require.Len(t, unclaimable(), 2)
}

// Start returns an error if the client or the Performer cannot be started.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	p := new(riverkahn.Performer)
	require.ErrorIs(t, p.Start(t.Context(), nil), machine.ErrBadValue)
	require.ErrorIs(t, p.Stop(t.Context(), nil), machine.ErrBadValue)
	require.ErrorIs(t, p.Start(t.Context(), new(river.Client[pgx.Tx])), machine.ErrBadValue)
}

// TestOwners: if two Performers in one process have the same owner, the second gets an error until the first has stopped. A Performer with
// two owners is refused.
func TestOwners(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	us, them := []kahn.Option{kahn.Lease("us", time.Minute)}, []kahn.Option{kahn.Lease("them", 0)}
	first := &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo, Options: us}}}
	c := x.perform(t, first)
	second := &riverkahn.Performer{Store: x.store, Workflows: []riverkahn.Workflow{{Graph: gated(0), Step: echo, Options: us}}}
	config := x.config()
	require.NoError(t, second.Register(config))
	client, err := river.NewClient(riverpgxv5.New(x.pool), config)
	require.NoError(t, err)
	err = second.Start(t.Context(), client)
	require.ErrorIs(t, err, store.ErrOwnerInUse)
	require.ErrorContains(t, err, `another Performer of this process has not stopped`)
	require.NoError(t, first.Stop(t.Context(), c.River))
	require.NoError(t, second.Start(context.Background(), client))
	require.NoError(t, second.Stop(t.Context(), client))

	both := []riverkahn.Workflow{{Graph: order(), Step: echo, Options: us}, {Graph: gated(0), Step: echo, Options: them}}
	require.ErrorIs(t, (&riverkahn.Performer{Store: x.store, Workflows: both}).Register(x.config()), machine.ErrBadValue)
}
