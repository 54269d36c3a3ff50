package inspector

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

const testToken = "0123456789abcdef-token"

// free returns the options with an Authorize that admits every client.
func free(o Options) Options {
	if o.Authorize == nil {
		o.Authorize = func(*http.Request, Action) error { return nil }
	}
	return o
}

// asked sends a request to a handler.
func asked(h http.Handler, method, path, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	q := httptest.NewRequest(method, path, strings.NewReader(body))
	q.Host = "localhost:8080"
	if method == http.MethodPost {
		q.Header.Set("Content-Type", jsonType)
		q.Header.Set("Idempotency-Key", "k")
	}
	if change != nil {
		change(q)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w
}

func bearer(token string) func(*http.Request) {
	return func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+token) }
}

// Without Authorize, only clients with the token are admitted, even on this machine: a proxy on this machine looks like one of its users.
func TestToken(t *testing.T) {
	t.Parallel()
	audit := &syncBuffer{}
	h := Handler(Options{Runner: &kahn.Runner{}, Token: testToken, Log: slog.New(slog.NewTextHandler(audit, nil))})
	for i := range routes {
		x := &routes[i]
		if x.path == "" || x.open {
			continue
		}
		for name, change := range map[string]func(*http.Request){
			"nothing": nil, "a wrong token": bearer("wrong"), "no token": bearer(""), "a longer one": bearer(testToken + "x"), "a part of it": bearer(testToken[:20]),
			"another scheme": func(q *http.Request) { q.Header.Set("Authorization", "Basic "+testToken) },
			"a local user":   func(q *http.Request) { q.RemoteAddr = "127.0.0.1:5000" },
			"a cookie of another": func(q *http.Request) {
				q.AddCookie(&http.Cookie{Name: newTokenGate(testToken).cookie, Value: newTokenGate(testToken + "2").pass})
			},
			"the token as cookie": func(q *http.Request) {
				q.AddCookie(&http.Cookie{Name: newTokenGate(testToken).cookie, Value: testToken})
			},
			"the token as query": func(q *http.Request) { q.URL.RawQuery = "token=" + testToken },
		} {
			w := asked(h, x.method, "/"+x.path, goodBody(x), change)
			require.Equal(t, http.StatusUnauthorized, w.Code, "%s %s %s", x.method, x.path, name)
			require.Contains(t, w.Body.String(), `"token_needed"`)
		}
	}
	for _, path := range []string{"/", "/assets/notices.txt"} { // these pages need no token: they ask for the token
		require.Equal(t, http.StatusOK, asked(h, http.MethodGet, path, "", nil).Code, path)
	}
	for _, remote := range []string{"127.0.0.1:5000", "10.0.0.1:5000"} {
		w := asked(h, http.MethodGet, "/api/v1/info", "", func(q *http.Request) {
			bearer(testToken)(q)
			q.RemoteAddr = remote
			q.Header.Set("X-Forwarded-For", "10.0.0.1")
		})
		require.Equal(t, http.StatusOK, w.Code, remote)
	}
	require.NotContains(t, audit.String(), testToken)
}

// The cookie is set once the client sent the token. Scripts and other sites cannot reach the cookie, and it does not
// reveal the token.
func TestSession(t *testing.T) {
	t.Parallel()
	audit := &syncBuffer{}
	h := Handler(Options{Runner: &kahn.Runner{}, Token: testToken, Log: slog.New(slog.NewTextHandler(audit, nil))})
	open := func(body string, change func(*http.Request)) *httptest.ResponseRecorder {
		return asked(h, http.MethodPost, "/"+sessionPath, body, change)
	}
	for body, want := range map[string]int{`{"token":"wrong"}`: 401, `{"token":""}`: 401, `{}`: 401, `{"token":1}`: 400, `{"tokens":"x"}`: 400, ``: 400, `{"token":"` + strings.Repeat("x", maxBody) + `"}`: 413} {
		w := open(body, nil)
		require.Equal(t, want, w.Code, "%.40s", body)
		require.Empty(t, w.Header()["Set-Cookie"])
	}
	require.Contains(t, audit.String(), "outcome=token_needed")
	good := `{"token":"` + testToken + `"}`
	require.Equal(t, http.StatusForbidden, open(good, func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") }).Code)
	require.Equal(t, http.StatusForbidden, open(good, func(q *http.Request) { q.Host = "evil.example" }).Code)
	require.Equal(t, http.StatusUnsupportedMediaType, open(good, func(q *http.Request) { q.Header.Set("Content-Type", "text/plain") }).Code)
	w := open(good, nil)
	require.Equal(t, http.StatusAccepted, w.Code)
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	c := cookies[0]
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.Empty(t, c.Path+c.Domain, "it is for the endpoints of this page alone")
	require.False(t, c.Secure, "else a page without TLS would not get it back")
	require.NotContains(t, c.Value, testToken)
	require.Equal(t, http.StatusOK, asked(h, http.MethodGet, "/api/v1/info", "", func(q *http.Request) { q.AddCookie(c) }).Code)
	other := Handler(Options{Runner: &kahn.Runner{}, Token: testToken + "2", Log: slog.New(slog.DiscardHandler)})
	require.Equal(t, http.StatusUnauthorized, asked(other, http.MethodGet, "/api/v1/info", "", func(q *http.Request) { q.AddCookie(c) }).Code)
	tls := asked(h, http.MethodPost, "https://localhost/"+sessionPath, good, nil)
	require.True(t, tls.Result().Cookies()[0].Secure)
	require.NotContains(t, audit.String(), testToken)

	decided := Handler(free(Options{Runner: &kahn.Runner{}}))
	require.Equal(t, http.StatusNotFound, asked(decided, http.MethodPost, "/"+sessionPath, good, nil).Code)
}

// Without a token, each handler generates its own and logs it once.
func TestGeneratedToken(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 2 {
		audit := &syncBuffer{}
		h := Handler(Options{Runner: &kahn.Runner{}, Log: slog.New(slog.NewTextHandler(audit, nil))})
		_, token, ok := strings.Cut(strings.TrimSpace(audit.String()), " token=")
		require.True(t, ok, audit.String())
		require.Len(t, token, 32)
		require.False(t, seen[token])
		seen[token] = true
		require.Equal(t, http.StatusOK, asked(h, http.MethodGet, "/api/v1/info", "", bearer(token)).Code)
		require.Equal(t, 1, strings.Count(audit.String(), token))
	}
}

// A request is rejected, even with the token, if its host is neither this machine nor listed: another site may have pointed the name of its own
// host at this machine.
func TestHosts(t *testing.T) {
	t.Parallel()
	plain := Handler(Options{Runner: &kahn.Runner{}, Token: testToken})
	hosted := Handler(Options{Runner: &kahn.Runner{}, Token: testToken, Hosts: []string{"Ops.example.com"}})
	open := Handler(free(Options{Runner: &kahn.Runner{}, Hosts: []string{"ops.example.com"}}))
	for _, c := range []struct {
		h    http.Handler
		host string
		want int
	}{
		{plain, "localhost:8080", 200},
		{plain, "LOCALHOST", 200},
		{plain, "[::1]:8080", 200},
		{plain, "127.8.8.8", 200},
		{plain, "localhost.", 200},
		{plain, "ops.example.com", 403},
		{plain, "localhost.evil.example", 403},
		{plain, "127.0.0.1.evil.example", 403},
		{plain, "", 403},
		{hosted, "ops.example.com", 200},
		{open, "ops.example.com:443", 200},
		{open, "other.example.com", 403},
	} {
		w := asked(c.h, http.MethodGet, "/api/v1/info", "", func(q *http.Request) {
			bearer(testToken)(q)
			q.Host = c.host
		})
		require.Equal(t, c.want, w.Code, c.host)
	}
}
