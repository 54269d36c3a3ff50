package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// resumed lets another process continue the run, and returns the run when it waits at its gate again.
func (x *elsewhere) resumed() *kahn.Run {
	x.t.Helper()
	run, err := kahn.Start(x.t.Context(), x.graph, nil, kahn.RunID("order 17"), kahn.Durable(x.memory))
	require.NoError(x.t, err)
	x.t.Cleanup(func() {
		run.Leave()
		_, _ = run.Wait()
	})
	_, err = run.WaitFor(x.t.Context(), "review", kahn.Suspended)
	require.NoError(x.t, err)
	return run
}

// act performs an action with its own key, and returns the status in the response.
func (x *elsewhere) act(path, body, key string) string {
	x.t.Helper()
	code, data, _ := x.ask(http.MethodPost, path, body, as("ann"), func(q *http.Request) { q.Header.Set("Idempotency-Key", key) })
	require.Equal(x.t, http.StatusAccepted, code, "%s", data)
	endpoint, _, _ := strings.Cut(path, "?")
	requireConforms(x.t, http.MethodPost, endpoint, data)
	var done doneReply
	require.NoError(x.t, json.Unmarshal(data, &done))
	return done.Status
}

const approvePath = "api/v1/signal?path=review%2Fapprove&run=order+17"

// held takes the lease of the run, like a process that no longer responds, and returns a function that releases the
// lease.
func (x *elsewhere) held() (release func()) {
	x.t.Helper()
	lease, _, err := x.memory.Acquire(x.t.Context(), "order 17", "another process", time.Hour)
	require.NoError(x.t, err)
	return func() { require.NoError(x.t, x.memory.Release(x.t.Context(), lease)) }
}

// requests returns the requests that the page lists for the run.
func (x *elsewhere) requests() []requestRow {
	x.t.Helper()
	return get[runRow](x.desk, "api/v1/run", "run", "order 17").Requests
}

// If another process performs a run, that process gets the requests for the run. Requests with the same key are one request, whichever handlers
// received them.
func TestRequestsReachThePerformer(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	run := x.resumed()
	require.Equal(t, "requested", x.act("api/v1/node/cancel?path=flaky&run=order+17", "{}", "k1"))
	_, err := run.WaitFor(t.Context(), "flaky", kahn.Cancelled)
	require.NoError(t, err)
	require.Equal(t, "requested", x.act(approvePath, `{"value":"ship","comment":"ok"}`, "k2"))
	_, err = run.WaitFor(t.Context(), "review", kahn.Completed)
	require.NoError(t, err)
	_, _ = run.Wait() // cancelling flaky aborts the nodes that need its value
	approve, err := run.Node("review/approve")
	require.NoError(t, err)
	require.Equal(t, []any{"ship", "ann", "ok"}, []any{approve.Decision.Value, approve.Decision.Actor, approve.Decision.Comment})
	_, here := x.rn.Run("order 17")
	require.False(t, here)
	require.Contains(t, x.audit.String(), "action=signal actor=ann")
	require.Contains(t, x.audit.String(), "outcome=requested")
	stored, err := x.memory.Load(t.Context(), "order 17")
	require.NoError(t, err)
	require.EqualValues(t, 2, stored.Posted)
	require.Empty(t, x.requests(), "they have had their effect")
}

// A request is listed as waiting until the run takes it. The same action with the same key on another handler is the same request.
func TestRequestWaits(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	release := x.held()
	require.Empty(t, x.requests())
	require.Equal(t, "requested", x.act("api/v1/cancel?run=order+17", `{"reason":"out of stock"}`, "k"))
	other := newElsewhere(t, order(), func(_ *elsewhere, o *Options) { o.Store = x.memory })
	require.Equal(t, "requested", other.act("api/v1/cancel?run=order+17", `{"reason":"out of stock"}`, "k"))
	restarted := newElsewhere(t, order(), func(_ *elsewhere, o *Options) { o.Store = x.memory })
	f := restarted.refusal(http.StatusUnprocessableEntity, http.MethodPost, approvePath, `{"value":"ship"}`, as("ann"), func(q *http.Request) { q.Header.Set("Idempotency-Key", "k") })
	require.Equal(t, "key_reused", f.Code)
	list := x.requests()
	require.Len(t, list, 1)
	require.NotEmpty(t, list[0].Posted)
	list[0].Posted = ""
	require.Equal(t, requestRow{Kind: store.KindCancel, Status: store.RequestWaiting, By: "ann", Comment: "out of stock"}, list[0])

	require.Equal(t, "requested", x.act(approvePath, `{"value":"ship"}`, "k2"))
	require.Len(t, x.requests(), 2)
	of := get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "review/approve").Requests
	require.Len(t, of, 1)
	require.Equal(t, []any{store.KindSignal, "review/approve", `"ship"`}, []any{of[0].Kind, of[0].Path, string(of[0].Value.JSON)})

	release()
	_, err := kahn.Execute(t.Context(), x.graph, nil, kahn.RunID("order 17"), kahn.Durable(x.memory))
	require.Error(t, err)
	require.Equal(t, kahn.RunCancelled, x.status("order 17"))
	require.Equal(t, "finished", x.refusal(http.StatusConflict, http.MethodPost, "api/v1/node/cancel?path=last&run=order+17", "{}").Code)
}

// A request that the run would refuse is rejected before it is posted, and the response has the possible choices. If the run itself refuses a
// request, the request is listed with the reason.
func TestRequestRefused(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	x.held()
	for _, c := range []struct {
		code, path, body string
		status           int
		choices          []string
	}{
		{"no_such_choice", approvePath, `{"value":"burn"}`, http.StatusUnprocessableEntity, []string{"ship", "hold"}},
		{"unknown_gate", "api/v1/signal?path=last&run=order+17", `{"value":"ship"}`, http.StatusNotFound, []string{"review/approve"}},
		{"unknown_node", "api/v1/node/cancel?path=nobody&run=order+17", "{}", http.StatusNotFound, []string{"review", "flaky", "last"}},
		{"unknown_node", "api/v1/node/cancel?path=review%2Fapprove&run=order+17", "{}", http.StatusNotFound, []string{"review", "flaky", "last"}},
		{"wrong_status", "api/v1/node/cancel?path=fetch&run=order+17", "{}", http.StatusConflict, nil},
		{"not_here", "api/v1/abort?run=order+17", "{}", http.StatusConflict, nil},
	} {
		f := x.refusal(c.status, http.MethodPost, c.path, c.body)
		require.Equal(t, []any{c.code, c.choices}, []any{f.Code, f.Choices}, c.path)
	}
	require.Empty(t, x.requests())

	blind := newElsewhere(t, order(), func(_ *elsewhere, o *Options) { o.Workflows = nil })
	q, err := kahn.PrepareSignal("review/approve", kahn.Decision{Value: "burn", ID: "of another program"})
	require.NoError(t, err)
	_, err = blind.memory.Post(t.Context(), "order 17", q)
	require.NoError(t, err)
	require.Len(t, blind.requests(), 1)
	blind.resumed()
	require.Eventually(t, func() bool {
		list := blind.requests() // the handler caches a loaded run for a short time
		return len(list) == 1 && list[0].Status == store.RequestRefused
	}, loadTime, tick)
	require.Contains(t, blind.requests()[0].Refused, "choose one of")
}

// A client without ViewData sees that a run has requests, but not what they contain.
func TestRequestsWithoutData(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), func(_ *elsewhere, o *Options) {
		o.Authorize = func(_ *http.Request, a Action) error {
			if a == ViewData {
				return errors.New("no")
			}
			return nil
		}
	})
	x.held()
	require.Equal(t, "requested", x.act(approvePath, `{"value":"ship","comment":"secret"}`, "k"))
	list := x.requests()
	require.Len(t, list, 1)
	require.Equal(t, requestRow{Kind: store.KindSignal, Path: "review/approve", Status: store.RequestWaiting, Posted: list[0].Posted}, list[0])
}

// brokenInbox is a store whose Post returns an error.
type brokenInbox struct{ *store.Memory }

func (brokenInbox) Post(context.Context, string, store.Request) (bool, error) {
	return false, errors.New("password in the connection string")
}

// If the store has not confirmed a request, the client may repeat it with the same key.
func TestRequestIsNotConfirmed(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) { o.Store = brokenInbox{x.memory} })
	x.held()
	for range 2 {
		f := x.refusal(http.StatusBadGateway, http.MethodPost, "api/v1/cancel?run=order+17", "{}", func(q *http.Request) { q.Header.Set("Idempotency-Key", "k") })
		require.Equal(t, "the store has not answered", f.Message)
	}
	require.Contains(t, x.audit.String(), "password in the connection string")
}

// remote is a store that passes actions to its runs itself. Another process performs its run.
type remote struct {
	*store.Memory
	run *kahn.Run
	ids []string
}

func (x *remote) of(id string) (*kahn.Run, error) {
	if x.ids = append(x.ids, id); id != x.run.ID() {
		return nil, kahn.ErrUnknownRun
	}
	return x.run, nil
}

func (x *remote) Signal(ctx context.Context, id, gate string, value any) error {
	run, err := x.of(id)
	if err != nil {
		return err
	}
	return run.Signal(ctx, gate, value)
}

func (x *remote) Cancel(_ context.Context, id string, q kahn.Request) error {
	run, err := x.of(id)
	if err != nil {
		return err
	}
	return run.Cancel(q)
}

func (x *remote) Abort(_ context.Context, id string, cause error, q kahn.Request) error {
	run, err := x.of(id)
	if err != nil {
		return err
	}
	return run.AbortAll(cause, q)
}

func (x *remote) CancelNode(_ context.Context, id, node string) error {
	run, err := x.of(id)
	if err != nil {
		return err
	}
	return run.CancelNode(node)
}

// A store that passes actions to its runs itself answers gates and stops runs; the handler neither performs runs nor posts requests.
func TestController(t *testing.T) {
	t.Parallel()
	db := &remote{}
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) {
		db.Memory, o.Store, o.Workflows = x.memory, db, []Workflow{{Plan: x.plan}}
	})
	db.run = x.resumed()
	require.Equal(t, []string{"cancel", "abort"}, get[runRow](x.desk, "api/v1/run", "run", "order 17").Actions)
	require.Equal(t, []string{"signal"}, get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "review/approve").Actions)
	require.Equal(t, "no_such_choice", x.refusal(http.StatusUnprocessableEntity, http.MethodPost, approvePath, `{"value":"burn"}`).Code)
	require.Empty(t, db.ids)
	require.Equal(t, "accepted", x.act(approvePath, `{"value":"ship"}`, "k1"))
	approve, err := db.run.Node("review/approve")
	require.NoError(t, err)
	require.Equal(t, []any{"ship", "ann"}, []any{approve.Decision.Value, approve.Decision.Actor})
	require.Equal(t, "accepted", x.act("api/v1/node/cancel?path=flaky&run=order+17", "{}", "k2"))
	_, err = db.run.WaitFor(t.Context(), "flaky", kahn.Cancelled)
	require.NoError(t, err)
	_, _ = db.run.Wait()
	require.Equal(t, "finished", x.refusal(http.StatusConflict, http.MethodPost, "api/v1/abort?run=order+17", "{}").Code)

	y := newElsewhere(t, order(), func(x *elsewhere, o *Options) { o.Store = &remote{Memory: x.memory} })
	again := y.opts.Store.(*remote)
	again.run = y.resumed()
	require.Equal(t, "accepted", y.act("api/v1/abort?run=order+17", `{"reason":"enough"}`, "k3"))
	res, _ := again.run.Wait()
	require.Equal(t, []any{kahn.RunFailed, kahn.Request{Actor: "ann", Reason: "enough"}}, []any{res.Status, res.StopRequest})
	require.Equal(t, []string{"order 17"}, again.ids)
}
