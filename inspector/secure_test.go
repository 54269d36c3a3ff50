package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// goodQuery returns a query that a route accepts, for the run of a desk.
func goodQuery(d *desk, x *route) []string { return queryOf(x, d.id()) }

// queryOf returns a query that a route accepts, for the given run.
func queryOf(x *route, run string) []string {
	var params []string
	for _, p := range x.params {
		switch {
		case p.Name == "run" && p.Required:
			params = append(params, "run", run)
		case p.Name == "path" && p.Required:
			params = append(params, "path", "approve")
		case p.Name == "of":
			params = append(params, "of", "output")
		case p.Name == "workflow" && p.Required:
			params = append(params, "workflow", "orders")
		case p.Name == "schedule":
			params = append(params, "schedule", "report")
		}
	}
	return params
}

// goodBody returns a body that a route accepts.
func goodBody(x *route) string {
	switch {
	case x.method == http.MethodGet:
		return ""
	case x.path == sessionPath:
		return `{"token":"` + testToken + `"}`
	case x.path == "api/v1/signal":
		return `{"value":"ship"}`
	}
	return `{}`
}

// Every endpoint rejects every malicious request without performing anything, and its response has the headers that protect a browser.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	header := func(name, value string) func(*http.Request) {
		return func(q *http.Request) { q.Header.Set(name, value) }
	}
	d := newDesk(t, nil)
	before, _ := json.Marshal(get[runsReply](d, "api/v1/runs"))
	for i := range 2 * len(routes) {
		x := &routes[i/2]
		id := []string{d.id(), "stored"}[i%2]
		good, body := queryOf(x, id), goodBody(x)
		post := x.method == http.MethodPost
		type attack struct {
			name, method, path, body string
			change                   func(*http.Request)
			want                     int
			code                     string
		}
		path := x.path + queried(good...)
		plus := func(more ...string) string { return x.path + queried(append(slices.Clone(good), more...)...) }
		attacks := []attack{
			{"method", "DELETE", path, body, nil, 405, "method_not_allowed"},
			{"method with a body", "PATCH", path, body, nil, 405, "method_not_allowed"},
			{"preflight", "OPTIONS", path, "", header("Origin", "https://evil.example"), 405, "method_not_allowed"},
			{"host", x.method, path, body, func(q *http.Request) { q.Host = "evil.example" }, 403, "host_refused"},
			{"rebound host", x.method, path, body, func(q *http.Request) { q.Host = "localhost.evil.example:80" }, 403, "host_refused"},
			{"unknown parameter", x.method, plus("admin", "1"), body, nil, 400, "bad_query"},
			{"path escape", x.method, "..%2f" + path, body, nil, 404, "not_found"},
			{"backslash", x.method, "assets%5c..%5c" + path, body, nil, 404, "not_found"},
			{"path below", x.method, x.path + "/more" + queried(good...), body, nil, 404, "not_found"},
			{"broken escape", x.method, x.path + "?" + "run=%zz", body, nil, 400, "bad_query"},
		}
		for _, p := range x.params {
			if !p.Many && !(p.Number) {
				attacks = append(attacks, attack{"twice " + p.Name, x.method, plus(p.Name, "a", p.Name, "b"), body, nil, 400, "bad_query"})
			}
			if p.Number {
				for _, n := range []string{"-1", "1e9", "99999999999", "x"} {
					attacks = append(attacks, attack{"number " + n, x.method, plus(p.Name, n), body, nil, 400, "bad_query"})
				}
			}
			if p.Choices != nil && !p.Required {
				attacks = append(attacks, attack{"choice " + p.Name, x.method, plus(p.Name, "<script>"), body, nil, 400, "bad_query"})
			}
			attacks = append(attacks, attack{"no UTF-8 " + p.Name, x.method, x.path + "?" + p.Name + "=%ff", body, nil, 400, "bad_query"})
			if p.Required {
				attacks = append(attacks, attack{"missing " + p.Name, x.method, x.path, body, nil, 400, "bad_query"})
			}
			switch p.Name {
			case "run":
				attacks = append(attacks, attack{"unknown run", x.method, strings.Replace(plus(), queried("run", id)[1:], "run=nobody", 1), body, nil, 404, "unknown_run"})
				if !p.Required {
					attacks[len(attacks)-1].path = plus("run", "nobody")
				}
				long := strings.Repeat("a", 100_000)
				attacks = append(attacks, attack{"long run", x.method, x.path + "?" + strings.Replace(strings.TrimPrefix(queried(good...), "?"), queried("run", id)[1:], "", 1) + "&run=" + long, body, nil, 404, "unknown_run"})
			case "path":
				if p.Required && (id == d.id() || !x.live) {
					attacks = append(attacks, attack{"unknown node", x.method, strings.Replace(path, "path=approve", "path=..%2F..%2Fetc%2Fpasswd", 1), body, nil, 404, "unknown_node"})
				}
			}
		}
		if !post {
			attacks = append(attacks, attack{"path of a parent", x.method, "assets/x..%2f..%2f" + path, body, nil, 404, "not_found"})
		} else {
			attacks = append(attacks,
				attack{"GET", "PUT", path, body, nil, 405, "method_not_allowed"},
				attack{"origin", x.method, path, body, header("Origin", "https://evil.example"), 403, "origin_refused"},
				attack{"fetch site", x.method, path, body, header("Sec-Fetch-Site", "cross-site"), 403, "origin_refused"},
				attack{"null origin", x.method, path, body, header("Origin", "null"), 403, "origin_refused"},
				attack{"form", x.method, path, body, header("Content-Type", "application/x-www-form-urlencoded"), 415, "not_json"},
				attack{"text", x.method, path, body, header("Content-Type", "text/plain; application/json"), 415, "not_json"},
				attack{"no content type", x.method, path, body, header("Content-Type", ""), 415, "not_json"},
				attack{"no key", x.method, path, body, header("Idempotency-Key", ""), 400, "no_key"},
				attack{"long key", x.method, path, body, header("Idempotency-Key", strings.Repeat("k", maxKey+1)), 400, "no_key"},
				attack{"large body", x.method, path, `{"reason":"` + strings.Repeat("x", maxBody) + `"}`, nil, 413, "too_large"},
				attack{"unknown field", x.method, path, `{"admin":true}`, nil, 400, "bad_body"},
				attack{"no object", x.method, path, `[]`, nil, 400, "bad_body"},
				attack{"null", x.method, path, `null`, nil, 400, "bad_body"},
				attack{"empty", x.method, path, ``, nil, 400, "bad_body"},
				attack{"two values", x.method, path, body + body, nil, 400, "bad_body"},
				attack{"no UTF-8 body", x.method, path, "{\"reason\":\"\xff\"}", nil, 400, "bad_body"},
				attack{"cut", x.method, path, `{"reason":`, nil, 400, "bad_body"},
				attack{"deep", x.method, path, `{"value":` + strings.Repeat("[", maxBody-20), nil, 400, "bad_body"},
				attack{"wrong type", x.method, path, `{"reason":[],"comment":{},"nodes":"a","inputs":1,"value":1}`, nil, 400, "bad_body"},
				attack{"other charset", x.method, path, body, header("Content-Type", "application/json+x"), 415, "not_json"},
				attack{"site of another port", x.method, path, body, header("Origin", "http://127.0.0.1:1"), 403, "origin_refused"},
			)
		}
		for _, a := range attacks {
			if x.open && a.code == "no_key" {
				continue // the request needs no key
			}
			req := a.change
			if req == nil {
				req = func(*http.Request) {}
			}
			recorded := len(d.audit.String())
			code, data, headers := d.ask(a.method, a.path, a.body, req, func(q *http.Request) {
				if q.Method != http.MethodPost { // so that DELETE and PUT are not refused just because of their content type
					q.Header.Set("Content-Type", "application/json")
				}
				req(q)
			})
			at := fmt.Sprintf("%s %.200s: %s", x.method, x.path, a.name)
			require.Equal(t, a.want, code, "%s: %.300s", at, data)
			var reply faultReply
			require.NoError(t, json.Unmarshal(data, &reply), at)
			require.Equal(t, a.code, reply.Error.Code, at)
			if slices.Contains([]string{"not_json", "no_key", "bad_body"}, a.code) && !x.open { // the request is an action
				require.Contains(t, d.audit.String()[recorded:], "outcome="+a.code, at)
			}
			require.Contains(t, headers.Get("Content-Security-Policy"), "default-src 'none'", at)
			require.Equal(t, "nosniff", headers.Get("X-Content-Type-Options"), at)
			require.Equal(t, "no-store", headers.Get("Cache-Control"), at)
			require.Equal(t, jsonType, headers.Get("Content-Type"), at)
		}
	}
	after, _ := json.Marshal(get[runsReply](d, "api/v1/runs"))
	require.Equal(t, string(before), string(after))
}

// A request that Authorize refuses gets no data: tested for every endpoint and every set of actions.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	var may []Action
	d := newDesk(t, func(o *Options) {
		o.Authorize = func(_ *http.Request, a Action) error {
			if slices.Contains(may, a) {
				return nil
			}
			return errors.New("secret reason")
		}
	})
	all := []Action{View, ViewData, Signal, Cancel, Redrive, Start, Schedule}
	for i := range 2 * len(routes) {
		x := &routes[i/2]
		good := queryOf(x, []string{d.id(), "stored"}[i%2])
		for _, missing := range all {
			may = slices.DeleteFunc(slices.Clone(all), func(a Action) bool { return a == missing })
			if missing != View && missing != x.action {
				continue
			}
			f := d.refusal(http.StatusForbidden, x.method, x.path+queried(good...), goodBody(x))
			require.Equal(t, fault{Code: "forbidden", Message: "you may not do this", Action: missing}, *f)
		}
	}
	for i := range routes { // the response for a hidden run or node must equal the response for an unknown one
		x := &routes[i]
		for _, missing := range []Action{View, x.action} {
			if missing == "" {
				continue
			}
			may = slices.DeleteFunc(slices.Clone(all), func(a Action) bool { return a == missing })
			_, there, had := d.ask(x.method, x.path+queried(goodQuery(d, x)...), goodBody(x))
			_, nowhere, has := d.ask(x.method, x.path+queried(queryOf(x, "nobody")...), goodBody(x))
			require.Equal(t, string(there), string(nowhere), x.path)
			had.Del("Date")
			has.Del("Date")
			require.Equal(t, had, has, x.path)
		}
	}
	may = nil
	require.Equal(t, View, d.refusal(http.StatusForbidden, http.MethodGet, "", "").Action)
	require.Equal(t, View, d.refusal(http.StatusForbidden, http.MethodGet, "assets/x.js", "").Action)
	require.Equal(t, View, d.refusal(http.StatusForbidden, http.MethodGet, "nothing", "").Action)
	require.Equal(t, kahn.RunRunning, d.run.Status())
	require.Contains(t, d.audit.String(), "outcome=forbidden")
	require.NotContains(t, d.audit.String(), "outcome=done")

	// Without ViewData the response has neither values nor texts of user code.
	may = []Action{View}
	for _, path := range []string{"fetch", "flaky", "approve"} {
		code, body, _ := d.ask(http.MethodGet, "api/v1/node"+queried("run", d.id(), "path", path), "")
		require.Equal(t, http.StatusOK, code)
		for _, secret := range []string{"disk", "table", "long"} {
			require.NotContains(t, string(body), secret)
		}
	}
}

// The info of a waiting step is data.
func TestAuthorizeInfo(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{}
	g := &kahn.Graph{}
	run, err := rn.Start(t.Context(), g.Add(kahn.Node{ID: "asks", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Suspend("token", "secret info", nil) }}), nil)
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "asks", kahn.Suspended)
	require.NoError(t, err)
	for _, may := range []bool{false, true} {
		d := &desk{t: t, rn: rn, run: run}
		d.server = httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(Options{Runner: rn, Authorize: func(_ *http.Request, a Action) error {
			if a == ViewData && !may {
				return errors.New("no")
			}
			return nil
		}}))))
		gates := get[gatesReply](d, "api/v1/gates")
		require.Len(t, gates.Gates, 1)
		require.Equal(t, may, gates.Gates[0].Info != nil)
		require.Equal(t, may, get[nodeReply](d, "api/v1/node", "run", run.ID(), "path", "asks").Gate.Info != nil)
		d.server.Close()
	}
	run.Cancel()
	_, _ = run.Wait()
}

// The handler calls Redact before a value of user code leaves the handler. If Redact panics, the value is withheld.
func TestRedact(t *testing.T) {
	t.Parallel()
	kinds := map[ValueKind]bool{}
	d := newDesk(t, func(o *Options) {
		o.Redact = func(_ *http.Request, v Value) any {
			kinds[v.Kind] = true
			if v.Kind == Config {
				panic("no")
			}
			return "hidden"
		}
	})
	for i := range routes {
		x := &routes[i]
		if x.method != http.MethodGet || x.path == "api/v1/stream" {
			continue
		}
		for _, path := range []string{"fetch", "flaky", "each[0]", "approve"} {
			params := goodQuery(d, x)
			for i := range params {
				if params[i] == "approve" {
					params[i] = path
				}
			}
			_, body, _ := d.ask(http.MethodGet, x.path+queried(params...), "")
			for _, secret := range []string{"the disk", "slow <b>", "\"rows\":", "longlong"} {
				require.NotContains(t, string(body), secret, "%s %s", x.path, path)
			}
		}
	}
	require.Subset(t, kinds, map[ValueKind]bool{Config: true, Output: true, Input: true, Error: true, Line: true})
	require.JSONEq(t, `"withheld: Redact has panicked"`, string(get[nodeReply](d, "api/v1/node", "run", d.id(), "path", "fetch").Config.JSON))
}

// The handler recognizes its paths wherever it is mounted.
func TestMount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pattern, path, want string }{
		{"/debug/kahn/", "/debug/kahn/", ""},
		{"/debug/kahn/", "/debug/kahn/api/v1/info", "api/v1/info"},
		{"GET ops.example.com/debug/kahn/", "/debug/kahn/api/v1/info", "api/v1/info"},
		{"/", "/api/v1/info", "api/v1/info"},
		{"/t/{tenant}/", "/t/a%2Fb/api/v1/info", "api/v1/info"},
		{"/t/{rest...}", "/t/api/v1/info", "api/v1/info"},
		{"/debug/kahn/", "/api/v1/info", "api/v1/info"}, // behind http.StripPrefix
		{"", "/api/v1/info", "api/v1/info"},
	} {
		rest, ok := within(c.pattern, c.path)
		require.True(t, ok)
		require.Equal(t, c.want, rest, "%+v", c)
	}
	_, ok := within("/debug/kahn", "")
	require.False(t, ok)
	require.Equal(t, "./kahn/", slashed("/debug/kahn?x=/y"))
	require.Equal(t, "./javascript:x/", slashed("/javascript:x"))

	strip := http.NewServeMux()
	strip.Handle("/debug/kahn/", http.StripPrefix("/debug/kahn", Handler(free(Options{Runner: &kahn.Runner{}}))))
	strip.Handle("/slash/", http.StripPrefix("/slash/", Handler(free(Options{Runner: &kahn.Runner{}}))))
	strip.Handle("/a/b/", http.StripPrefix("/a", Handler(free(Options{Runner: &kahn.Runner{}}))))
	strip.Handle("/t/{tenant}/x/", http.StripPrefix("/t/acme", Handler(free(Options{Runner: &kahn.Runner{}}))))
	strip.Handle("/api/", http.StripPrefix("/api", Handler(free(Options{Runner: &kahn.Runner{}}))))
	admin := http.NewServeMux()
	admin.Handle("/kahn/", Handler(free(Options{Runner: &kahn.Runner{}})))
	admin.Handle("/admin/", Handler(free(Options{Runner: &kahn.Runner{}})))
	strip.Handle("/admin/", http.StripPrefix("/admin", admin))
	strip.Handle("/bare", http.StripPrefix("/bare", Handler(free(Options{Runner: &kahn.Runner{}}))))
	for path, want := range map[string]int{"/debug/kahn/": 200, "/debug/kahn/api/v1/info": 200, "/debug/kahn": 307, "/bare": 301,
		"/admin/kahn/": 200, "/admin/kahn/api/v1/info": 200, "/admin/admin/": 200, "/admin/admin/api/v1/info": 200, "/admin/kahn/api": 404,
		"/slash/": 200, "/slash/api/v1/info": 200, "/a/b/": 200, "/a/b/api/v1/info": 200, "/t/acme/x/api/v1/info": 200, "/t/acme/x/": 200, "/api/": 200, "/api/api/v1/info": 200, "/api/v1/info": 404} {
		q := httptest.NewRequest(http.MethodGet, path, nil)
		q.RemoteAddr, q.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		strip.ServeHTTP(w, q)
		require.Equal(t, want, w.Code, path)
	}
}

// The error for an invalid option names the option.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		`Options.Hosts[0], \"https://ops.example.com\", is not a host name`: {Runner: &kahn.Runner{}, Hosts: []string{"https://ops.example.com"}},
		`Options.Hosts[1], \"\", is not a host name`:                        {Runner: &kahn.Runner{}, Hosts: []string{"ops.example.com", ""}},
		`Options.Start[\"x\"] has no name or no function`:                   {Runner: &kahn.Runner{}, Start: map[string]StartFunc{"x": nil}},
		"Options.Token has fewer than 16 bytes":                             {Runner: &kahn.Runner{}, Token: "short"},
		"Options.Token and Options.Authorize are both set":                  free(Options{Runner: &kahn.Runner{}, Token: testToken}),
		"Options.Workflows[0].Plan is nil":                                  {Runner: &kahn.Runner{}, Workflows: []Workflow{{}}},
		"Options.Runner and Options.Store are both nil":                     {}, "Options.MaxStreams is negative": {Runner: &kahn.Runner{}, MaxStreams: -1}, "Options.Reauthorize 15ns: is its unit missing?": {Runner: &kahn.Runner{}, Reauthorize: 15}, "Options.Reauthorize is negative": {Runner: &kahn.Runner{}, Reauthorize: -1},
	} {
		w := httptest.NewRecorder()
		Handler(o).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusInternalServerError, w.Code)
		require.Contains(t, w.Body.String(), name)
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no JSON") }

type loops struct{ Next *loops }

// Whatever the values of user code are, the response is JSON of bounded size. A download has the whole value.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	ring := &loops{}
	ring.Next = ring
	values := map[string]any{
		"script": "<script>alert(1)</script>", "rtl": "\u202egnp.exe", "huge": strings.Repeat("\u00e4", 5<<20), "invalid": "a\xff\xfeb", "func": func() {}, "chan": make(chan int),
		"panics": panics{}, "ring": ring, "nil": nil, "nul": "a\x00b", "nested": []any{map[string]any{"<b>": "</script>"}},
	}
	g := &kahn.Graph{Name: "<img src=x onerror=alert(1)>\xff"}
	long := strings.Repeat("n", 100_000)
	for name, v := range values {
		g.Add(kahn.Node{ID: name, Label: "<b>" + name, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Log(0, fmt.Sprintf("%s\xff<script>", name))
			s.Emit(v)
			return v, nil
		}})
	}
	g.Add(kahn.Node{ID: long, Do: func(context.Context, *kahn.Step) (any, error) {
		return nil, errors.New(strings.Repeat("<e>\xff", 1<<20))
	}})
	d := &desk{t: t, rn: &kahn.Runner{}}
	run, err := d.rn.Start(t.Context(), g, nil, kahn.RunID("<i>\u202e"))
	require.NoError(t, err)
	_, _ = run.Wait()
	d.server = httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(Options{Runner: d.rn}))))
	defer d.server.Close()
	for _, path := range []string{"api/v1/run", "api/v1/graph", "api/v1/state", "api/v1/nodes", "api/v1/timeline", "api/v1/log"} {
		code, body, _ := d.ask(http.MethodGet, path+queried("run", run.ID()), "")
		require.Equal(t, http.StatusOK, code, path)
		requireConforms(t, http.MethodGet, path, body)
		require.Less(t, len(body), 1<<20, path)
	}
	for name := range values {
		node := get[nodeReply](d, "api/v1/node", "run", run.ID(), "path", name)
		require.Equal(t, kahn.Completed, node.Status)
		require.LessOrEqual(t, len(node.Output.Text)+len(node.Output.JSON), shownValue, name)
		code, body, header := d.ask(http.MethodGet, "api/v1/value"+queried("run", run.ID(), "path", name, "of", "output"), "")
		if name == "ring" {
			require.Equal(t, http.StatusUnprocessableEntity, code)
			continue
		}
		require.Equal(t, http.StatusOK, code, name)
		require.NotEmpty(t, body)
		require.Contains(t, header.Get("Content-Disposition"), "attachment", name)
	}
	node := get[nodeReply](d, "api/v1/node", "run", run.ID(), "path", long)
	require.Equal(t, kahn.Failed, node.Status)
	require.LessOrEqual(t, len(node.Errors[0]), shownText)
}

// If a function of the host panics or calls Goexit, the client gets a response, and a repeated request with the same key gets the same response.
func TestHostilePanics(t *testing.T) {
	t.Parallel()
	d := newDesk(t, func(o *Options) {
		o.Start["panics"] = func(context.Context, json.RawMessage) (*kahn.Run, error) { panic("no") }
		o.Start["nil"] = func(context.Context, json.RawMessage) (*kahn.Run, error) { return nil, nil }
	})
	for range 2 {
		key := func(q *http.Request) { q.Header.Set("Idempotency-Key", "p") }
		require.Equal(t, "failed", d.refusal(http.StatusInternalServerError, http.MethodPost, "api/v1/start?workflow=panics", `{}`, key).Code)
	}
	require.Equal(t, "failed", d.refusal(http.StatusInternalServerError, http.MethodPost, "api/v1/start?workflow=nil", `{}`).Code)
	require.Equal(t, "unknown_workflow", d.refusal(http.StatusNotFound, http.MethodPost, "api/v1/start?workflow=x", `{}`).Code)
}
