package inspector

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestCauseFirst: the row of a failed run begins with the error of the step, and names the node of that step, at any depth.
func TestCauseFirst(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }
	leaf := func() *kahn.Graph { return (&kahn.Graph{}).Add(kahn.Node{ID: "leaf", Do: fails}) }
	rows := map[string]any{"rows": []any{1, 2}}
	for _, c := range []struct {
		node        kahn.Node
		path, cause string
	}{
		{kahn.Node{ID: "n", Do: fails}, "n", "the disk is full"},
		{kahn.Node{ID: "sub", Sub: leaf()}, "sub/leaf", "the disk is full"},
		{kahn.Node{ID: "outer", Sub: (&kahn.Graph{}).Add(kahn.Node{ID: "sub", Sub: leaf()})}, "outer/sub/leaf", "the disk is full"},
		{kahn.Node{ID: "each", Map: &kahn.Map{Over: "rows"}, Params: rows, Do: fails}, "each[0]", "the disk is full"},
		{kahn.Node{ID: "each", Map: &kahn.Map{Over: "rows"}, Params: rows, Sub: leaf()}, "each[0]/leaf", "the disk is full"},
		{kahn.Node{ID: "p", Do: func(context.Context, *kahn.Step) (any, error) { panic("no disk") }}, "p", "panic: no disk"},
	} {
		d := newDesk(t, nil)
		run, err := d.rn.Start(t.Context(), (&kahn.Graph{Name: "fails"}).Add(c.node), nil, kahn.RunID("fails"))
		require.NoError(t, err)
		_, _ = run.Wait()
		row := get[runsReply](d, "api/v1/runs", "workflow", "fails").Runs[0]
		require.Equal(t, []string{c.path, c.cause}, []string{row.ErrorPath, row.Error}, c.node.ID)
		_ = get[nodeReply](d, "api/v1/node", "run", "fails", "path", row.ErrorPath) // the link leads to a node
	}
}

// TestStopCause requires that the row of a cancelled or aborted run says who asked for the stop, why, and with which error. This holds for runs
// of the Runner and for runs that only a store has, with and without kept events.
func TestStopCause(t *testing.T) {
	t.Parallel()
	waits := func() *kahn.Graph {
		return (&kahn.Graph{Name: "waits"}).Add(kahn.Node{ID: "n", Kind: kahn.KindGate})
	}
	by := kahn.Request{Actor: "ann", Reason: "wrong input"}
	for name, c := range map[string]struct {
		stop                  func(*kahn.Run) error
		opts                  []kahn.Option
		status                kahn.RunStatus
		cause, by, why, error string
	}{
		"cancelled":            {func(r *kahn.Run) error { return r.Cancel(by) }, nil, kahn.RunCancelled, "cancel_run", "ann", "wrong input", ""},
		"cancelled, no events": {func(r *kahn.Run) error { return r.Cancel() }, []kahn.Option{kahn.Retain(0)}, kahn.RunCancelled, "cancel_run", "", "", ""},
		"aborted":              {func(r *kahn.Run) error { return r.AbortAll(nil, by) }, nil, kahn.RunFailed, "abort_all", "ann", "wrong input", ""},
		"aborted with an error": {func(r *kahn.Run) error { return r.AbortAll(errBroken, kahn.Request{Reason: "look"}) }, nil, kahn.RunFailed, "abort_all", "", "look",
			"the disk is full"},
		"timed out": {func(*kahn.Run) error { return nil }, []kahn.Option{kahn.Timeout(time.Millisecond)}, kahn.RunFailed, "run_timeout", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := &store.Memory{}
			d := newDesk(t, func(o *Options) { o.Store = memory })
			live, err := d.rn.Start(t.Context(), waits(), nil, append(c.opts, kahn.RunID("live"))...)
			require.NoError(t, err)
			stored, err := kahn.Start(t.Context(), waits(), nil, append(c.opts, kahn.RunID("stored"), kahn.Durable(memory))...)
			require.NoError(t, err)
			for _, run := range []*kahn.Run{live, stored} {
				_, _ = run.WaitFor(t.Context(), "n", kahn.Suspended)
				require.NoError(t, c.stop(run))
				_, _ = run.Wait()
			}
			want := []any{c.status, c.cause, c.by, c.why, c.error, ""}
			for _, id := range []string{"live", "stored"} {
				row := get[runRow](d, "api/v1/run", "run", id)
				require.Equal(t, want, []any{row.Status, row.Cause, row.StoppedBy, row.StopReason, row.Error, row.ErrorPath}, id)
			}
			row := get[runsReply](d, "api/v1/runs", "workflow", "waits").Runs[0]
			require.Equal(t, want, []any{row.Status, row.Cause, row.StoppedBy, row.StopReason, row.Error, row.ErrorPath}, "list")
			viewer := newDesk(t, func(o *Options) { o.Runner, o.Store, o.Authorize = d.rn, memory, onlyViews })
			for _, id := range []string{"live", "stored"} {
				row := get[runRow](viewer, "api/v1/run", "run", id)
				require.Equal(t, []string{c.cause, "", "", ""}, []string{row.Cause, row.StoppedBy, row.StopReason, row.Error}, id)
			}
		})
	}
}

// onlyViews refuses everything but View.
func onlyViews(_ *http.Request, a Action) error {
	if a != View {
		return errors.New("only to view")
	}
	return nil
}
