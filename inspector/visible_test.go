package inspector

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// asks returns a graph that waits for an answer.
func asks(tenant string) *kahn.Graph {
	return (&kahn.Graph{Name: "asks " + tenant}).Add(kahn.Node{ID: "sign", Kind: kahn.KindGate})
}

// ofTenant shows a client only the runs whose label names that client.
func ofTenant(r *http.Request, run RunInfo) bool {
	if run.Labels["tenant"] == "panics" {
		panic("no")
	}
	return run.Labels["tenant"] == r.Header.Get("X-User")
}

// twoTenants returns a desk with two runs of each tenant: a running one and a stored one.
func twoTenants(t *testing.T) *desk {
	t.Helper()
	memory, rn := &store.Memory{}, &kahn.Runner{}
	t.Cleanup(func() { _ = rn.Shutdown(context.Background()) })
	for _, tenant := range []string{"ann", "bob", "panics"} {
		describe := kahn.Describe(store.Spec{Labels: map[string]string{"tenant": tenant}})
		for _, id := range []string{"live ", "stored "} {
			start := rn.Start
			opts := []kahn.Option{kahn.RunID(id + tenant), describe, kahn.Durable(memory)}
			if id == "stored " {
				start = kahn.Start
			}
			run, err := start(t.Context(), asks(tenant), nil, opts...)
			require.NoError(t, err)
			_, err = run.WaitFor(t.Context(), "sign", kahn.Suspended)
			require.NoError(t, err)
			if id == "stored " {
				run.Leave()
				_, _ = run.Wait()
			}
		}
	}
	return serveRunner(t, rn, Options{Store: memory, Visible: ofTenant})
}

// A client sees only its own runs: in lists, in counts, and by id.
func TestVisible(t *testing.T) {
	t.Parallel()
	d := twoTenants(t)
	for _, user := range []string{"ann", "bob"} {
		mine := func(path string, params ...string) string {
			code, body, _ := d.ask(http.MethodGet, path+queried(params...), "", as(user))
			require.Equal(t, http.StatusOK, code, "%s", body)
			return string(body)
		}
		other := map[string]string{"ann": "bob", "bob": "ann"}[user]
		for _, path := range []string{"api/v1/info", "api/v1/runs", "api/v1/gates", "api/v1/stored"} {
			text := mine(path)
			require.NotContains(t, text, other, path)
			require.NotContains(t, text, "panics", path)
			require.Contains(t, text, "asks "+user, path)
		}
		require.Contains(t, mine("api/v1/info"), `"counts":{"suspended":1}`)
		require.Contains(t, mine("api/v1/runs"), `"total":1}`)
		require.Contains(t, mine("api/v1/gates"), `"total":2,`)
		for _, id := range []string{"live ", "stored "} {
			for i := range routes {
				x := &routes[i]
				if params := queryOf(x, id+other); len(params) > 0 && params[0] == "run" {
					f := d.refusal(http.StatusNotFound, x.method, x.path+queried(params...), goodBody(x), as(user))
					require.Equal(t, "unknown_run", f.Code, x.path)
				}
			}
			require.Contains(t, mine("api/v1/run", "run", id+user), user)
		}
		require.Equal(t, http.StatusNotFound, func() int { code, _, _ := d.ask(http.MethodGet, "api/v1/schedules", "", as(user)); return code }())
	}
	require.Contains(t, d.audit.String(), "function=Visible")
}

// A stream reports only a client's own runs.
func TestVisibleInStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{History: 1}
		h := Handler(free(Options{Runner: rn, Visible: ofTenant}))
		tabs := map[string]*tab{}
		for _, user := range []string{"ann", "bob"} {
			tabs[user] = openTab(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("X-User", user)
				h.ServeHTTP(w, r)
			}), "")
		}
		time.Sleep(time.Second)
		for _, id := range []string{"ann", "bob", "ann"} {
			g := (&kahn.Graph{Name: "quick"}).Add(kahn.Node{ID: "n", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }})
			_, err := rn.Execute(t.Context(), g, nil, kahn.RunID("run of "+id+time.Now().Format(" 05")), kahn.Describe(store.Spec{Labels: map[string]string{"tenant": id}}))
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		for user, p := range tabs {
			told := map[string]int{}
			for _, m := range messages[runsMessage](t, p, "runs") {
				for _, row := range m.Runs {
					require.Contains(t, row.ID, "run of "+user)
					told[row.ID]++
				}
				for _, id := range m.Removed {
					require.Contains(t, id, "run of "+user)
				}
			}
			require.Len(t, told, map[string]int{"ann": 2, "bob": 1}[user])
			p.close()
		}
		require.NoError(t, rn.Shutdown(t.Context()))
	})
}
