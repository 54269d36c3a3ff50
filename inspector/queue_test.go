package inspector

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// stranding returns a store with pending runs of two workflows. The second workflow has two versions.
func stranding(t *testing.T, runs map[*kahn.Graph][]string) *store.Memory {
	t.Helper()
	memory := &store.Memory{}
	for g, ids := range runs {
		for _, id := range ids {
			n, err := kahn.Prepare(g, kahn.RunID(id))
			require.NoError(t, err)
			_, _, err = memory.Create(t.Context(), n)
			require.NoError(t, err)
		}
	}
	return memory
}

func versions(t *testing.T) (orders, first, second *kahn.Graph, queues map[*kahn.Graph]store.Queue) {
	t.Helper()
	orders, first, second = &kahn.Graph{Name: "orders"}, &kahn.Graph{Name: "mails"}, &kahn.Graph{Name: "mails"}
	orders.Add(kahn.Node{ID: "n"})
	first.Add(kahn.Node{ID: "n"})
	second.Add(kahn.Node{ID: "n"}, kahn.Node{ID: "m"})
	queues = map[*kahn.Graph]store.Queue{}
	for _, g := range []*kahn.Graph{orders, first, second} {
		plan, err := g.Compile()
		require.NoError(t, err)
		queues[g] = store.Queue{Workflow: g.Name, Plan: plan.Hash()}
	}
	return orders, first, second, queues
}

// all reads the list of stored runs in pages of two, and returns the ids.
func (d *desk) all(params ...string) (ids []string) {
	d.t.Helper()
	for after := ""; ; {
		page := get[storedReply](d, "api/v1/stored", append(slices.Clone(params), "limit", "2", "after", after)...)
		require.LessOrEqual(d.t, len(page.Runs), 2)
		for _, row := range page.Runs {
			ids = append(ids, row.ID)
		}
		if after = page.Next; after == "" {
			return ids
		}
	}
}

// If no live process serves a queue, its runs are marked with the queue and the time until which it was served. They can be listed separately.
func TestUnclaimable(t *testing.T) {
	t.Parallel()
	orders, first, second, queues := versions(t)
	memory := stranding(t, map[*kahn.Graph][]string{orders: {"o1", "o2"}, first: {"a1", "a2", "a3"}, second: {"b1"}})
	before := time.Now()
	for process, g := range map[string]*kahn.Graph{"alive": orders, "gone": first} {
		require.NoError(t, memory.Announce(t.Context(), store.Announcement{Process: process, Queues: []store.Queue{queues[g]}, TTL: time.Hour}))
	}
	require.NoError(t, memory.Announce(t.Context(), store.Announcement{Process: "gone"}))
	rn := &kahn.Runner{}
	_, err := kahn.Execute(t.Context(), first, func(context.Context, *kahn.Step) (any, error) { return nil, nil }, kahn.RunID("ended"), kahn.Durable(memory))
	require.NoError(t, err)
	d := serveRunner(t, rn, Options{Store: memory})

	page := get[storedReply](d, "api/v1/stored")
	marks := map[string]*queueRow{}
	for _, row := range page.Runs {
		marks[row.ID] = row.Queue
	}
	for _, id := range []string{"o1", "o2", "ended"} {
		require.Nil(t, marks[id], id)
	}
	served := marks["a1"].Since
	at, err := time.Parse(time.RFC3339Nano, served)
	require.NoError(t, err)
	require.WithinRange(t, at, before.Add(-time.Second), time.Now())
	require.Equal(t, &queueRow{Workflow: "mails", Plan: queues[first].Plan, Runs: 3, Since: served}, marks["a1"])
	require.Equal(t, &queueRow{Workflow: "mails", Plan: queues[second].Plan, Runs: 1}, marks["b1"])
	require.Equal(t, 4, page.UnclaimableRuns)
	require.ElementsMatch(t, []*queueRow{marks["a1"], marks["b1"]}, page.Unclaimable)
	require.Equal(t, marks["b1"], get[runRow](d, "api/v1/run", "run", "b1").Queue)
	require.Nil(t, get[runRow](d, "api/v1/run", "run", "o1").Queue)

	for _, c := range []struct {
		params, want []string
	}{
		{nil, []string{"a1", "a2", "a3", "b1"}}, {[]string{"prefix", "a"}, []string{"a1", "a2", "a3"}}, {[]string{"status", "pending"}, []string{"a1", "a2", "a3", "b1"}},
		{[]string{"workflow", "mails"}, []string{"a1", "a2", "a3", "b1"}}, {[]string{"workflow", "orders"}, nil}, {[]string{"status", "completed"}, nil},
	} {
		require.ElementsMatch(t, c.want, d.all(append(c.params, "queue", "unclaimable")...), "%v", c.params)
	}
	f := d.refusal(http.StatusBadRequest, http.MethodGet, "api/v1/stored?queue=lost", "")
	require.Equal(t, []any{"bad_query", []string{"unclaimable"}}, []any{f.Code, f.Choices})
	for _, cursor := range []string{"?", "bm9uZQ", queueCursor{queues[second], "none"}.String()} {
		require.Contains(t, d.refusal(http.StatusBadRequest, http.MethodGet, "api/v1/stored"+queried("queue", "unclaimable", "after", cursor), "").Message, "not a cursor of this list", cursor)
	}
}

// No live process serves a queue, but this process performs some of its runs. The list does not mark them. It marks the other runs of the queue,
// and a run of the same graph that has no store does not change their number.
func TestUnclaimableHere(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	run, err := x.rn.Start(t.Context(), x.graph, nil, kahn.RunID("own"), kahn.Durable(x.memory))
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "review", kahn.Suspended)
	require.NoError(t, err)
	_, err = x.rn.Start(t.Context(), x.graph, nil, kahn.RunID("without a store"))
	require.NoError(t, err)
	page := get[storedReply](x.desk, "api/v1/stored")
	require.Equal(t, 1, page.UnclaimableRuns)
	for _, row := range page.Runs {
		require.Equal(t, row.ID != "own", row.Queue != nil, row.ID)
	}
	require.Equal(t, []string{"order 17"}, x.all("queue", "unclaimable"))
	alone := newElsewhere(t, order(), func(x *elsewhere, o *Options) { o.Store = noInbox{x.memory} })
	require.Nil(t, get[runRow](alone.desk, "api/v1/run", "run", "order 17").Queue, "the store does not know queues")
}

// forgetful is a store whose Queues returns an error.
type forgetful struct{ *store.Memory }

func (forgetful) Queues(context.Context) ([]store.QueueState, error) {
	return nil, errors.New("password in the connection string")
}

// If a store cannot list its queues, the handler returns an error, and the store's own error goes only to the log.
func TestQueuesThatFail(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) { o.Store = forgetful{x.memory} })
	for _, path := range []string{"api/v1/stored", "api/v1/run?run=order+17"} {
		require.Equal(t, "the store has not answered", x.refusal(http.StatusBadGateway, http.MethodGet, path, "").Message)
	}
	require.Contains(t, x.audit.String(), "password in the connection string")
}
