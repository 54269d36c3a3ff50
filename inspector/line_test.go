package inspector

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestStoredLine requires that the place of a pending run counts the runs with its key that begin before it: runs of a higher priority, and
// runs of its priority that became due before it.
func TestStoredLine(t *testing.T) {
	t.Parallel()
	memory := &store.Memory{}
	create := func(id, key string, priority int, from time.Time) {
		n, err := kahn.Prepare(order(), kahn.RunID(id), kahn.RunKey(key), kahn.RunPriority(priority))
		require.NoError(t, err)
		n.NotBefore = from
		_, _, err = memory.Create(t.Context(), n)
		require.NoError(t, err)
	}
	create("urgent", "acme", 9, time.Time{})
	create("early", "acme", 0, time.Time{})
	create("other", "globex", 9, time.Time{})
	create("tomorrow", "acme", 9, time.Now().Add(24*time.Hour))
	create("mine", "acme", 0, time.Time{})
	create("last", "acme", 0, time.Time{})
	create("overdue", "acme", 0, time.Now().Add(-time.Hour))
	create("low", "acme", -1, time.Time{})
	create("performed", "acme", -2, time.Time{})
	_, _, err := memory.Acquire(t.Context(), "performed", "a process", time.Hour)
	require.NoError(t, err)

	d := newDesk(t, func(o *Options) { o.Store = memory })
	for id, ahead := range map[string]int{"urgent": 0, "overdue": 1, "early": 2, "mine": 3, "last": 4, "low": 5, "other": 0} {
		row := get[runRow](d, "api/v1/run", "run", id)
		require.NotNil(t, row.Line, id)
		require.Equal(t, ahead, row.Line.Ahead, id)
		require.False(t, row.Line.More)
	}
	row := get[runRow](d, "api/v1/run", "run", "low")
	require.Equal(t, []any{"acme", -1, 1}, []any{row.Key, row.Priority, row.Line.Running})
	row = get[runRow](d, "api/v1/run", "run", "tomorrow")
	require.NotEmpty(t, row.Line.From)
	require.Zero(t, row.Line.Ahead)

	d = newDesk(t, func(o *Options) {
		o.Store = memory
		o.Visible = func(_ *http.Request, run RunInfo) bool { return run.ID == "mine" }
	})
	require.Nil(t, get[runRow](d, "api/v1/run", "run", "mine").Line, "the place counts hidden runs")
}

// TestLine requires that the place of a pending run of the Runner counts the pending runs that arrived before it.
func TestLine(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{MaxRuns: 1}
	d := newDesk(t, func(o *Options) { o.Runner = rn })
	released := make(chan struct{})
	g := (&kahn.Graph{Name: "waits"}).Add(kahn.Node{ID: "n", Do: func(context.Context, *kahn.Step) (any, error) { <-released; return nil, nil }})
	for i := range 4 {
		_, err := rn.Start(t.Context(), g, nil, kahn.RunID(fmt.Sprint("run-", i)))
		require.NoError(t, err)
	}
	require.Nil(t, get[runRow](d, "api/v1/run", "run", "run-0").Line)
	for i := 1; i < 4; i++ {
		require.Equal(t, &lineRow{Ahead: i - 1, Running: 1, Limit: 1}, get[runRow](d, "api/v1/run", "run", fmt.Sprint("run-", i)).Line)
	}
	close(released)
}
