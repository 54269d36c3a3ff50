//go:build browser

package inspector

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// stand is a service with a page, and with what a test does to it: it starts runs, and cuts connections.
type stand struct {
	*desk
	stage map[string]func() *kahn.Graph
	count atomic.Int64
}

func (s *stand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch name := strings.TrimPrefix(r.URL.Path, "/stage/"); name {
	case "cut":
		s.server.CloseClientConnections()
	default:
		run, err := s.rn.Start(context.Background(), s.stage[name](), nil, kahn.RunID(fmt.Sprint(name, "-", s.count.Add(1))))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, run.ID())
	}
}

// buffered is a proxy on the way that passes an answer on when it has all of it.
func buffered(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held := &holding{header: w.Header()}
		h.ServeHTTP(held, r)
		if held.code != 0 {
			w.WriteHeader(held.code)
		}
		_, _ = w.Write(held.body.Bytes())
	})
}

type holding struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (h *holding) Header() http.Header            { return h.header }
func (h *holding) WriteHeader(code int)           { h.code = code }
func (h *holding) Flush()                         {} // it says that it has, and has not
func (h *holding) Write(data []byte) (int, error) { return h.body.Write(data) }

// storm emits 10,000 deltas a second for ten seconds.
func storm() *kahn.Graph {
	g := &kahn.Graph{Name: "storm"}
	for i := range 10 {
		g.Add(kahn.Node{ID: fmt.Sprint("gust", i), Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for range 1_000 {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				for range 10 {
					s.Emit("drop")
				}
			}
			return "calm", nil
		}})
	}
	return g.Add(kahn.Node{ID: "after", After: []string{"gust0", "gust9"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }})
}

// hostile has texts that would be markup, or hide what they are, wherever a text of a run is shown.
func hostile() *kahn.Graph {
	const markup = `<img src=x onerror="window.broken=1"><script>window.broken=1</script>`
	g := &kahn.Graph{Name: markup}
	say := func(v any, err error) kahn.StepFunc {
		return func(_ context.Context, s *kahn.Step) (any, error) {
			s.Log(slog.LevelError, markup+"\u202egnp.exe\x00\xff")
			return v, err
		}
	}
	return g.Add(
		kahn.Node{ID: markup, Label: markup, Config: map[string]any{markup: markup}, Do: say(markup, nil)},
		kahn.Node{ID: "rtl\u202egnp.exe", In: []kahn.Edge{{From: markup, Param: markup}}, Do: say(map[string]any{"\u202e": "\u2066"}, nil)},
		kahn.Node{ID: strings.Repeat("long", 25_000), After: []string{markup}, Do: say(strings.Repeat("x", 10<<20), nil)},
		kahn.Node{ID: "fails", After: []string{markup}, ContinueOnFail: true, Do: say(nil, errors.New(markup+"\xff"))},
		kahn.Node{ID: "invalid", After: []string{"fails"}, Do: say("a\xffb", nil)},
		kahn.Node{ID: "asks", After: []string{"invalid"}, Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{markup, "\u202eon"}}},
	)
}

var scenario = flag.String("scenario", "", "for TestPage: only the scenarios whose names contain this text")

// TestPage drives the page in chromium against a real Runner. It needs chromium and node in the PATH, and the packages of
// page/package-lock.json.
func TestPage(t *testing.T) {
	s := &stand{desk: newDesk(t, nil)}
	nothing := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	slow := func(ctx context.Context, _ *kahn.Step) (any, error) {
		select {
		case <-time.After(300 * time.Millisecond):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.stage = map[string]func() *kahn.Graph{
		"orders":  s.graph,
		"chain":   func() *kahn.Graph { return layered("chain", 16, 3, slow) },
		"storm":   storm,
		"hostile": hostile,
		"wide":    func() *kahn.Graph { return layered("wide", 25, 40, nothing) },
		"huge":    func() *kahn.Graph { return layered("huge", 100, 100, nothing) },
	}
	mux := http.NewServeMux()
	page := Handler(s.opts)
	mux.Handle("/debug/kahn/", page)
	mux.Handle("/buffered/", buffered(page))
	mux.Handle("/stage/", s)
	s.server.Close()
	s.server = httptest.NewServer(mux)
	defer s.server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "test/page.mjs", s.server.URL, *scenario)
	cmd.Dir = "page"
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	passed := 0
	for in := bufio.NewScanner(out); in.Scan(); {
		t.Log(in.Text())
		if strings.HasPrefix(in.Text(), "ok ") {
			passed++
		}
	}
	require.NoError(t, cmd.Wait())
	require.Positive(t, passed)
	require.Contains(t, s.audit.String(), "actor=ann")
}
