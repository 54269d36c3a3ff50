package inspector

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// undoDesk returns a desk whose run "stuck" has a failed refund.
func undoDesk(t *testing.T, o Options) (*desk, *refunds) {
	t.Helper()
	x := &refunds{fails: map[string]error{"stuck": kahn.Permanent(errBroken)}}
	d := &desk{t: t, audit: &syncBuffer{}}
	o.Log, o.Actor = slog.New(slog.NewTextHandler(d.audit, nil)), func(r *http.Request) string { return r.Header.Get("X-User") }
	if o.Runner == nil {
		o.Runner = &kahn.Runner{}
	}
	start, opts := o.Runner.Start, []kahn.Option{kahn.RunID("stuck"), kahn.StoreEvents()}
	if o.Store != nil { // another process has performed the run
		start, opts = kahn.Start, append(opts, kahn.Durable(o.Store))
	} else {
		opts = opts[:1]
	}
	run, err := start(t.Context(), x.graph(), nil, opts...)
	require.NoError(t, err)
	_, err = run.Wait()
	require.ErrorIs(t, err, kahn.ErrCompensation)
	if len(o.Workflows) > 0 {
		o.Workflows[0].Plan = run.Plan()
		if o.Workflows[0].Perform != nil {
			o.Workflows[0].Perform = func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
				return o.Runner.Start(ctx, x.graph(), nil, opts...)
			}
		}
	}
	d.rn = o.Runner
	d.server = httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(o))))
	t.Cleanup(d.server.Close)
	return d, x
}

// performs is a Perform function of a workflow, for tests in which it is not called.
func performs(context.Context, ...kahn.Option) (*kahn.Run, error) { return nil, nil }

// ended waits for the end of the Runner's run.
func (d *desk) ended() {
	run, ok := d.rn.Run("stuck")
	require.True(d.t, ok)
	_, _ = run.Wait()
}

// A failed compensation is in the inbox, and the node shows what is known about it. An operator repeats the compensation or declares that the
// effects were undone by hand, and the log says who did so. This holds for runs of the Runner, and for stored runs that this process performs.
func TestFailedCompensations(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]func() Options{
		"live":   func() Options { return Options{} },
		"stored": func() Options { return Options{Store: &store.Memory{}, Workflows: []Workflow{{Perform: performs}}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, x := undoDesk(t, options())
			inbox := get[gatesReply](d, "api/v1/gates")
			require.Equal(t, 1, inbox.Failed)
			require.Len(t, inbox.Compensations, 1)
			require.Equal(t, [3]string{"stuck", "orders", "failed"}, [3]string{inbox.Compensations[0].Run, inbox.Compensations[0].Workflow, inbox.Compensations[0].Status.String()})
			require.NotEmpty(t, inbox.Compensations[0].Ended)
			require.Equal(t, inbox, get[gatesReply](d, "api/v1/gates", "run", "stuck"), "the list of one run")
			require.Contains(t, get[runRow](d, "api/v1/run", "run", "stuck").Actions, "compensate")
			pay := get[nodeReply](d, "api/v1/node", "run", "stuck", "path", "pay")
			require.Contains(t, pay.Actions, "compensate")
			require.Equal(t, "failed", pay.Undone.State)
			require.False(t, pay.Undone.Unknown)
			require.Equal(t, 1, pay.Undone.Attempts)
			require.NotEmpty(t, pay.Undone.Began)
			require.NotEmpty(t, pay.Undone.Ended)
			require.Equal(t, "the disk is full", pay.Undone.Error)
			ship := get[nodeReply](d, "api/v1/node", "run", "stuck", "path", "ship")
			require.Nil(t, ship.Undone)
			require.NotContains(t, ship.Actions, "compensate")
			require.Equal(t, []string{"pay"}, get[previewReply](d, "api/v1/redrive", "run", "stuck", "compensations", "by_hand").Nodes)
			f := d.refusal(http.StatusBadRequest, http.MethodPost, "api/v1/redrive?run=stuck", `{"compensations":"perhaps"}`, as("ann"))
			require.Contains(t, f.Message, "perhaps")
			_ = d.refusal(http.StatusBadRequest, http.MethodPost, "api/v1/redrive?run=stuck", `{"compensations":"repeat","despite_handlers":true}`, as("ann"))
			require.EqualValues(t, 1, x.calls.Load())

			d.post("api/v1/redrive", `{"compensations":"repeat","nodes":["pay"],"reason":"once more"}`, "run", "stuck")
			d.ended()
			require.EqualValues(t, 2, x.calls.Load(), "the refund was called again, and no step was")
			require.Equal(t, 1, get[gatesReply](d, "api/v1/gates").Failed)
			d.post("api/v1/redrive", `{"compensations":"by_hand","reason":"called the bank"}`, "run", "stuck")
			d.ended()
			require.EqualValues(t, 2, x.calls.Load())
			require.Zero(t, get[gatesReply](d, "api/v1/gates").Failed)
			require.Zero(t, get[gatesReply](d, "api/v1/gates", "run", "stuck").Failed)
			row := get[runRow](d, "api/v1/run", "run", "stuck")
			require.Equal(t, [2]string{"failed", "done"}, [2]string{row.Status.String(), row.Compensation})
			require.NotContains(t, row.Actions, "compensate")
			undone := get[nodeReply](d, "api/v1/node", "run", "stuck", "path", "pay").Undone
			require.Equal(t, "done", undone.State)
			require.True(t, undone.ByHand)
			require.Equal(t, [2]string{"ann", "called the bank"}, [2]string{undone.By, undone.Comment})
			said := ""
			for _, line := range get[logReply](d, "api/v1/log", "run", "stuck", "path", "pay").Lines {
				said += line.Text + "\n"
			}
			require.Regexp(t, `(?s)compensating.*\ncompensation failed: the disk is full`, said)
			require.Regexp(t, `undone by hand.*ann.*called the bank`, said)
			require.Contains(t, d.audit.String(), "compensations=by_hand")
			require.Contains(t, d.audit.String(), "actor=ann")
			_ = d.refusal(http.StatusNotFound, http.MethodPost, "api/v1/redrive?run=stuck", `{"compensations":"by_hand"}`, as("ann"))
		})
	}
}

// If another process performs the run, the handler posts a request that says who asks, and for what.
func TestFailedCompensationsElsewhere(t *testing.T) {
	t.Parallel()
	for mode, calls := range map[string]int64{"repeat": 2, "by_hand": 1} {
		memory := &store.Memory{}
		d, x := undoDesk(t, Options{Store: memory, Workflows: []Workflow{{}}})
		_ = d.refusal(http.StatusNotFound, http.MethodPost, "api/v1/redrive?run=stuck", `{"compensations":"repeat","nodes":["ship"]}`, as("ann"))
		reply := d.post("api/v1/redrive", `{"compensations":"`+mode+`","nodes":["pay"],"reason":"called the bank"}`, "run", "stuck")
		require.Contains(t, string(reply), "requested")
		requests := get[runRow](d, "api/v1/run", "run", "stuck").Requests
		require.Len(t, requests, 1)
		require.Equal(t, [3]string{mode, "ann", "called the bank"}, [3]string{string(requests[0].Compensations), requests[0].By, requests[0].Comment})
		delete(x.fails, "stuck")
		_, err := kahn.Execute(t.Context(), x.graph(), nil, kahn.RunID("stuck"), kahn.Durable(memory))
		require.NotErrorIs(t, err, kahn.ErrCompensation)
		require.Equal(t, calls, x.calls.Load())
		var undone *undoneReply
		require.Eventually(t, func() bool { // the handler reads the store only now and then
			undone = get[nodeReply](d, "api/v1/node", "run", "stuck", "path", "pay").Undone
			return undone.State == "done"
		}, 20*time.Second, 50*time.Millisecond)
		require.Equal(t, mode == "by_hand", undone.ByHand)
		require.Equal(t, mode == "by_hand", strings.Contains(undone.By, "ann"))
	}
}

// The page marks a node whose effect is unknown. A client without ViewData sees neither errors nor who has undone something.
func TestUndoneIsTold(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{}
	g := (&kahn.Graph{Name: "orders"}).Add(
		kahn.Node{ID: "pay", Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }, Compensate: func(context.Context, *kahn.Step) error { return kahn.Permanent(errBroken) }},
	)
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("r"))
	require.NoError(t, err)
	_, _ = run.Wait()
	d := &desk{t: t, server: httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(Options{Runner: rn, Authorize: func(_ *http.Request, a Action) error {
		if a != View {
			return errBroken
		}
		return nil
	}}))))}
	t.Cleanup(d.server.Close)
	undone := get[nodeReply](d, "api/v1/node", "run", "r", "path", "pay").Undone
	require.True(t, undone.Unknown)
	require.Equal(t, "failed", undone.State)
	require.Empty(t, undone.Error)
	_ = d.refusal(http.StatusForbidden, http.MethodPost, "api/v1/redrive?run=r", `{"compensations":"by_hand"}`)
}

// If the store does not answer, the inbox still has the Runner's gates.
func TestInboxWithoutStore(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(o *Options) { o.Store = &brokenStore{} })
	inbox := get[gatesReply](d, "api/v1/gates")
	require.NotEmpty(t, inbox.Gates)
	require.Empty(t, inbox.Compensations)
	require.Contains(t, inbox.Note, "does not answer")
}

// refunds are orders that fail after they were paid. Their refunds either return an error, or wait until they are released.
type refunds struct {
	fails map[string]error // by run
	calls atomic.Int64
	held  chan struct{} // nil if no refund waits
	runs  []string      // the runs whose refund waits
}

func (x *refunds) graph() *kahn.Graph {
	succeeds := func(context.Context, *kahn.Step) (any, error) { return "receipt", nil }
	refund := func(_ context.Context, s *kahn.Step) error {
		x.calls.Add(1)
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

// Operators can list runs by the state of their compensations: runs of the Runner and stored runs.
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
	for n, err := range begun["busy"].Events(t.Context(), 0) {
		require.NoError(t, err)
		if n.Type == "node.compensating" {
			break
		}
	}
	d := &desk{t: t, server: httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(Options{Runner: rn, Store: memory}))))}
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

	alone := &desk{t: t, server: httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(Options{Runner: &kahn.Runner{}, Store: memory}))))}
	t.Cleanup(alone.server.Close)
	require.Equal(t, "failed", get[runRow](alone, "api/v1/run", "run", "stuck").Compensation, "also of a run that only the store has")
	close(x.held)
	_, _ = begun["busy"].Wait()
	require.Len(t, get[storedReply](d, "api/v1/stored", "compensation", "done").Runs, 2)
}
