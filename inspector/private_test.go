package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

const secret = "S3CRET"

// secrets returns a desk. Its run, and a run in its store, have a secret in every place where user code can put a text.
func secrets(t *testing.T, o Options) *desk {
	t.Helper()
	d := &desk{t: t, rn: &kahn.Runner{}, audit: &syncBuffer{}}
	says := func(context.Context, *kahn.Step) (any, error) { return secret, nil }
	graph := func() *kahn.Graph {
		g := &kahn.Graph{Name: "w"}
		return g.Add(
			kahn.Node{ID: "output", Config: secret, Do: says},
			kahn.Node{ID: "error", ContinueOnFail: true, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New(secret) }},
			kahn.Node{ID: "skip", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Skip(secret) }},
			kahn.Node{ID: "route", Routes: true, Do: says},
			kahn.Node{ID: "next", In: []kahn.Edge{{From: "route", Label: "other"}, {From: "output", Param: "rows"}}, Do: says},
			kahn.Node{ID: "log", Do: func(_ context.Context, s *kahn.Step) (any, error) {
				s.Log(slog.LevelWarn, secret)
				s.Emit(secret)
				return nil, nil
			}},
			kahn.Node{ID: "each", Map: &kahn.Map{Over: "list", Key: func(v any) string { return v.(string) }}, Params: map[string]any{"list": []string{secret}}, Do: says},
			kahn.Node{ID: "slot", Key: secret, Do: says},
			kahn.Node{ID: "asks", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("token", secret, nil) }},
			kahn.Node{ID: "gate", Kind: kahn.KindGate},
		)
	}
	run, err := d.rn.Start(t.Context(), graph(), nil, kahn.RunID("r"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.rn.Shutdown(context.Background()) })
	require.NoError(t, run.Signal(t.Context(), "gate", kahn.Decision{Value: secret, Actor: "bob", Comment: secret}))
	_, err = run.WaitFor(t.Context(), "asks", kahn.Suspended)
	require.NoError(t, err)
	d.run = run
	memory := &store.Memory{}
	elsewhere, err := kahn.Start(t.Context(), graph(), nil, kahn.RunID("stored"), kahn.Durable(memory), kahn.Describe(store.Spec{Labels: map[string]string{"tenant": secret}}))
	require.NoError(t, err)
	require.NoError(t, elsewhere.Signal(t.Context(), "gate", kahn.Decision{Value: secret, Actor: "bob", Comment: secret}))
	_, err = elsewhere.WaitFor(t.Context(), "asks", kahn.Suspended)
	require.NoError(t, err)
	elsewhere.Leave()
	_, _ = elsewhere.Wait()
	plan, err := graph().Compile()
	require.NoError(t, err)
	o.Runner, o.Store, o.Workflows, o.Log = d.rn, memory, []Workflow{{Plan: plan}}, slog.New(slog.NewTextHandler(d.audit, nil))
	o.Start = map[string]StartFunc{
		"fails":  func(context.Context, json.RawMessage) (*kahn.Run, error) { return nil, errors.New(secret) },
		"panics": func(context.Context, json.RawMessage) (*kahn.Run, error) { panic(secret) },
	}
	for name, err := range sentinels {
		o.Start[name] = func(context.Context, json.RawMessage) (*kahn.Run, error) {
			return nil, fmt.Errorf("customer %s: %w", secret, err)
		}
	}
	d.server = httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(o))))
	t.Cleanup(d.server.Close)
	return d
}

// sentinels are errors of package kahn that a function of the host may wrap.
var sentinels = map[string]error{"bad_value": kahn.ErrBadValue, "graph_changed": kahn.ErrGraphChanged, "not_due": kahn.ErrNotDue, "not_ended": kahn.ErrDuplicateRun, "unknown_node": kahn.ErrUnknownNode}

// If an error of the host wraps an error of package kahn, the response has the code of kahn's error, and the text of the host's
// error.
func TestErrorsOfTheHostThatWrapASentinel(t *testing.T) {
	t.Parallel()
	without := Options{Authorize: func(_ *http.Request, a Action) error {
		if a == ViewData {
			return errors.New("no")
		}
		return nil
	}}
	for _, c := range []struct {
		o    Options
		want func(error) string
	}{
		{Options{}, func(err error) string { return "customer " + secret + ": " + err.Error() }},
		{Options{Redact: func(*http.Request, Value) any { return "hidden" }}, func(error) string { return "hidden" }},
		{without, error.Error},
	} {
		d := secrets(t, c.o)
		for code, err := range sentinels {
			_, data, _ := d.ask(http.MethodPost, "api/v1/start?workflow="+code, "{}")
			var reply faultReply
			require.NoError(t, json.Unmarshal(data, &reply))
			require.Equal(t, []any{code, c.want(err)}, []any{reply.Error.Code, reply.Error.Message})
		}
	}
}

// everything requests every response about every node of both runs, including error responses.
func (d *desk) everything(each func(where, body string)) {
	for i := range routes {
		x := &routes[i]
		if x.path == "api/v1/stream" || x.path == "" || x.path == "api/v1/openapi.json" {
			continue
		}
		for _, run := range []string{"r", "stored"} {
			for _, path := range []string{"output", "error", "skip", "route", "next", "log", "each", "each[0]", "slot", "asks", "gate", "nowhere"} {
				for _, of := range []string{"output", "input", "config", "info"} {
					var params []string
					for _, p := range x.params {
						switch {
						case p.Name == "run":
							params = append(params, "run", run)
						case p.Name == "path" && p.Required:
							params = append(params, "path", path)
						case p.Name == "of":
							params = append(params, "of", of)
						case p.Name == "name":
							params = append(params, "name", "rows")
						case p.Name == "level":
							params = append(params, "level", "debug")
						case p.Name == "workflow" && p.Required:
							params = append(params, "workflow", map[bool]string{true: "fails", false: "panics"}[run == "r"])
						}
					}
					if x.path == "api/v1/cancel" || x.path == "api/v1/abort" || x.path == "api/v1/leave" || x.path == "api/v1/node/cancel" {
						continue // the run must stay unchanged
					}
					if x.path == "api/v1/signal" && path == "asks" {
						continue
					}
					code, body, header := d.ask(x.method, x.path+queried(params...), goodBody(x))
					each(fmt.Sprintf("%s %s %v: %d", x.method, x.path, params, code), string(body)+fmt.Sprint(header))
					if !strings.Contains(fmt.Sprint(params), "path") {
						break
					}
				}
			}
		}
	}
}

// A client without ViewData gets no data: not in responses, error responses or headers.
func TestNothingLeaksWithoutViewData(t *testing.T) {
	t.Parallel()
	d := secrets(t, Options{Authorize: func(_ *http.Request, a Action) error {
		if a == ViewData {
			return errors.New(secret)
		}
		return nil
	}})
	d.everything(func(where, body string) { require.NotContains(t, body, secret, where) })
}

// If Redact hides every value, no response has a value.
func TestNothingLeaksPastRedact(t *testing.T) {
	t.Parallel()
	d := secrets(t, Options{Redact: func(*http.Request, Value) any { return "hidden" }})
	hidden := 0
	d.everything(func(where, body string) {
		require.NotContains(t, body, secret, where)
		hidden += strings.Count(body, "hidden")
	})
	require.Greater(t, hidden, 100)
	open := secrets(t, Options{})
	shown := map[string]bool{}
	open.everything(func(where, body string) {
		if strings.Contains(body, secret) {
			shown[strings.Fields(where)[1]] = true
		}
	})
	for _, path := range []string{"node", "nodes", "value", "log", "gates", "signal", "start", "stored"} {
		require.True(t, shown["api/v1/"+path], "the secret is in %s, else this test shows nothing", path)
	}
}

// A client with only View gets no data through the stream.
func TestNothingLeaksThroughTheStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{}
		g := &kahn.Graph{Name: "w"}
		g.Add(
			kahn.Node{ID: "g", Kind: kahn.KindGate},
			kahn.Node{ID: "bad", After: []string{"g"}, Key: secret, Config: secret, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				s.Log(slog.LevelError, secret)
				return nil, errors.New(secret)
			}},
		)
		run, err := rn.Start(t.Context(), g, nil, kahn.RunID("r"))
		require.NoError(t, err)
		synctest.Wait()
		p := openTab(t.Context(), Handler(free(Options{Runner: rn})), "r")
		time.Sleep(time.Second)
		require.NoError(t, run.Signal(context.Background(), "g", kahn.Decision{Value: secret, Actor: "bob", Comment: secret}))
		_, _ = run.Wait()
		time.Sleep(time.Second)
		require.NotEmpty(t, messages[nodesMessage](t, p, "nodes"))
		p.close()
		require.NotContains(t, p.text.String(), secret)
	})
}

// The ETag of a response depends only on what the client may see, so it does not reveal that hidden data has changed.
func TestETagTellsNothingHidden(t *testing.T) {
	t.Parallel()
	for _, may := range []bool{false, true} {
		shown := "first text"
		d := newDesk(t, func(o *Options) {
			o.Redact = func(*http.Request, Value) any { return shown }
			o.Authorize = func(_ *http.Request, a Action) error {
				if a == ViewData && !may {
					return errors.New("no")
				}
				return nil
			}
		})
		for path, shows := range map[string]bool{ // whether the response has values
			"api/v1/node" + queried("run", d.id(), "path", "fetch"): true,
			"api/v1/gates":                          true, // the outputs of the predecessors
			"api/v1/state" + queried("run", d.id()): false,
			"api/v1/run" + queried("run", d.id()):   false,
		} {
			shown = "first text"
			code, before, header := d.ask(http.MethodGet, path, "")
			require.Equal(t, http.StatusOK, code, path)
			tag := header.Get("ETag")
			require.NotEmpty(t, tag, path)
			require.Equal(t, may && shows, strings.Contains(string(before), `"first text"`), "%s: %s", path, before)
			shown = "another one"
			code, after, again := d.ask(http.MethodGet, path, "", func(q *http.Request) { q.Header.Set("If-None-Match", tag) })
			if may && shows {
				require.Equal(t, http.StatusOK, code, path)
				require.NotEqual(t, tag, again.Get("ETag"), path)
				require.Contains(t, string(after), `"another one"`)
			} else {
				require.Equal(t, []any{http.StatusNotModified, tag}, []any{code, again.Get("ETag")}, path)
				require.Empty(t, after, path)
			}
		}
	}

	// A matching ETag does not bypass Authorize.
	refuse := false
	d := newDesk(t, func(o *Options) {
		o.Authorize = func(*http.Request, Action) error {
			if refuse {
				return errors.New("no")
			}
			return nil
		}
	})
	_, _, header := d.ask(http.MethodGet, "api/v1/graph"+queried("run", d.id()), "")
	refuse = true
	for _, tag := range []string{header.Get("ETag"), "*"} {
		code, _, _ := d.ask(http.MethodGet, "api/v1/graph"+queried("run", d.id()), "", func(q *http.Request) { q.Header.Set("If-None-Match", tag) })
		require.Equal(t, http.StatusForbidden, code)
	}
}

// If a function of the host panics, the handler refuses the request. Each action leaves an audit record, even if its goroutine ends.
func TestFunctionsOfTheHostThatPanic(t *testing.T) {
	t.Parallel()
	var authorize, actor bool
	d := newDesk(t, func(o *Options) {
		o.Authorize = func(*http.Request, Action) error {
			if authorize {
				panic("authorize")
			}
			return nil
		}
		o.Actor = func(*http.Request) string {
			if actor {
				panic("who is it")
			}
			return "ann"
		}
		o.Start["ends"] = func(context.Context, json.RawMessage) (*kahn.Run, error) { runtime.Goexit(); return nil, nil }
		o.Start["panics"] = func(context.Context, json.RawMessage) (*kahn.Run, error) { panic("no orders") }
		o.Store = &panickyStore{}
	})
	authorize = true
	require.Equal(t, "forbidden", d.refusal(http.StatusForbidden, http.MethodGet, "api/v1/info", "").Code)
	require.Contains(t, d.audit.String(), "function=Authorize")
	authorize, actor = false, true
	require.Empty(t, get[infoReply](d, "api/v1/info").Actor)
	d.post("api/v1/node/retry", "{}", "run", d.id(), "path", "flaky")
	require.Contains(t, d.audit.String(), "action=node/retry actor=\"\"")
	actor = false
	require.Equal(t, "failed", d.refusal(http.StatusInternalServerError, http.MethodPost, "api/v1/start?workflow=panics", "{}").Code)
	require.Contains(t, d.audit.String(), "no orders")
	for _, path := range []string{"api/v1/stored", "api/v1/run?run=x"} {
		require.Equal(t, "store", d.refusal(http.StatusBadGateway, http.MethodGet, path, "").Code)
	}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.server.URL+"/debug/kahn/api/v1/start?workflow=ends", strings.NewReader("{}"))
	require.NoError(t, err)
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Idempotency-Key", "ends")
	if res, err := http.DefaultClient.Do(q); err == nil { // net/http sends an empty body or cuts the connection
		require.NoError(t, res.Body.Close())
	}
	again := d.refusal(http.StatusInternalServerError, http.MethodPost, "api/v1/start?workflow=ends", "{}", func(q *http.Request) { q.Header.Set("Idempotency-Key", "ends") })
	require.Equal(t, "the action did not return", again.Message)
	require.Equal(t, 1, strings.Count(d.audit.String(), "workflow=ends outcome=failed"))
}

// panickyStore panics.
type panickyStore struct{ store.Memory }

func (*panickyStore) List(context.Context, store.Query) (store.Page, error) { panic("List") }
func (*panickyStore) Load(context.Context, string) (*store.Run, error)      { panic("Load") }
