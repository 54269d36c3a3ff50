//go:build browser

package inspector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// play is a graph and the way to run it. With left, another process runs it over the service's store, and leaves it when these nodes wait.
type play struct {
	graph func() *kahn.Graph
	opts  []kahn.Option
	left  []string
}

// stand is a service with a page and with controls for tests: it starts runs, and cuts connections.
type stand struct {
	*desk
	stage  map[string]play
	memory *store.Memory
	count  atomic.Int64
	held   sync.Map // leases that another process holds, by run
}

func (s *stand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch name := strings.TrimPrefix(r.URL.Path, "/stage/"); name {
	case "cut":
		s.server.CloseClientConnections()
	case "hold": // another process has a run, and does not respond
		id := r.URL.Query().Get("run")
		lease, _, err := s.memory.Acquire(r.Context(), id, "another process", time.Hour)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.held.Store(id, lease)
	case "died": // the process of a run dies
		id, atWork := fmt.Sprint("died-", s.count.Add(1)), make(chan struct{})
		if err := died(s.memory, id, works(atWork), atWork); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, id)
	case "take": // another process cancels a run of the store
		if lease, ok := s.held.LoadAndDelete(r.URL.Query().Get("run")); ok {
			_ = s.memory.Release(r.Context(), lease.(store.Lease)) // otherwise the run cannot be started
		}
		run, err := kahn.Start(context.Background(), order(), nil, kahn.RunID(r.URL.Query().Get("run")), kahn.Durable(s.memory))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		run.Cancel()
		_, _ = run.Wait() // the page shows how it ended
	default:
		play := s.stage[name]
		start, opts := s.rn.Start, append(slices.Clone(play.opts), kahn.RunID(fmt.Sprint(name, "-", s.count.Add(1))))
		if play.left != nil {
			start, opts = kahn.Start, append(opts, kahn.Durable(s.memory))
		}
		run, err := start(context.Background(), play.graph(), nil, opts...)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, path := range play.left {
			_, _ = run.WaitFor(r.Context(), path, kahn.Suspended, kahn.Retrying) // otherwise the page shows another status
		}
		if play.left != nil {
			if len(play.left) == 0 {
				_, _ = run.Wait() // it ends in that process
			}
			run.Leave()
			_, _ = run.Wait()
		}
		_, _ = io.WriteString(w, run.ID())
	}
}

// buffered returns a proxy that passes on a response only when it is complete.
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
func (h *holding) Flush()                         {} // claims to flush, but does not
func (h *holding) Write(data []byte) (int, error) { return h.body.Write(data) }

// refund returns an order whose goods are missing and whose refund fails, the first of two times.
func refund() *kahn.Graph {
	var calls atomic.Int64
	fails := func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("no truck") }
	return (&kahn.Graph{Name: "refund"}).Add(
		kahn.Node{ID: "reserve", Do: func(context.Context, *kahn.Step) (any, error) { return "seat 7", nil }, Compensate: func(context.Context, *kahn.Step) error { return nil }},
		kahn.Node{ID: "pay", Do: fails, After: []string{"reserve"}, Retry: kahn.Retry{MaxAttempts: 1}, Compensate: func(context.Context, *kahn.Step) error {
			if calls.Add(1) > 1 {
				return kahn.Permanent(errors.New("the account is closed"))
			}
			return kahn.Permanent(errors.New("the bank does not answer"))
		}},
	)
}

// spends returns a graph that asks a model twice, since the first answer is an error, and then waits for a signal. One name in its usage
// has the maximum length.
func spends() *kahn.Graph {
	return (&kahn.Graph{Name: "spends"}).Add(
		kahn.Node{ID: "ask", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Millisecond}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Tokens(601, 150)
			s.Use("cents", 0.125)
			s.Use(strings.Repeat("long", 25), 1)
			s.Use("<b>"+flipped, 1e18)
			if s.Attempt() == 1 {
				return nil, errors.New("overloaded")
			}
			return nil, nil
		}},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"ask"}},
	)
}

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

// chatter logs 2,000 lines a second for six seconds. Before that, one node logs one line, and chatter itself logs
// 8,000.
func chatter() *kahn.Graph {
	return (&kahn.Graph{Name: "chatter"}).Add(
		kahn.Node{ID: "early", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			s.Log(slog.LevelInfo, "the needle")
			return nil, nil
		}},
		kahn.Node{ID: "talker", After: []string{"early"}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			for i := range 8_000 {
				s.Log(slog.LevelInfo, fmt.Sprintf("before %d", i))
			}
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := range 600 {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				for k := range 20 {
					s.Log(slog.LevelInfo, fmt.Sprintf("line %d", 20*i+k))
				}
			}
			return nil, nil
		}},
	)
}

// Texts that would be markup, and texts that hide their content with marks that change the direction of a line or with control
// characters.
const (
	markup  = `<img src=x onerror="window.broken=1"><script>window.broken=1</script>`
	flipped = "rtl\u202egnp.exe\u2066\x1b[2J\u200b"
)

// hostile returns a graph with such texts, and very long ones, wherever a page shows a text of a run.
func hostile() *kahn.Graph {
	say := func(v any, err error) kahn.StepFunc {
		return func(_ context.Context, s *kahn.Step) (any, error) {
			s.Log(slog.LevelError, markup+flipped+"\x00\xff")
			return v, err
		}
	}
	inner := (&kahn.Graph{}).Add(kahn.Node{ID: flipped, Do: say(nil, nil)}, kahn.Node{ID: markup, After: []string{flipped}, Do: say(nil, nil)})
	g := &kahn.Graph{Name: markup + flipped, Groups: []kahn.Group{{Name: flipped}}}
	return g.Add(
		kahn.Node{ID: markup, Label: markup, Kind: markup, Config: map[string]any{markup: markup}, Groups: []string{flipped}, Do: say(markup, nil)},
		kahn.Node{ID: flipped, Groups: []string{flipped}, In: []kahn.Edge{{From: markup, Param: flipped}}, Do: say(map[string]any{"\u202e": "\u2066"}, nil)},
		kahn.Node{ID: strings.Repeat("long", 25_000), After: []string{markup}, Do: say(strings.Repeat("x", 10<<20), nil)},
		kahn.Node{ID: "fails", After: []string{markup}, ContinueOnFail: true, Do: say(nil, fmt.Errorf("%s: %w", flipped, errors.New(markup+"\xff")))},
		kahn.Node{ID: "invalid", Label: "\xff\xfe", After: []string{"fails"}, Do: say("a\xffb", nil)},
		kahn.Node{ID: "inside" + flipped, After: []string{"invalid"}, Sub: inner},
		kahn.Node{ID: "asks", After: []string{"invalid"}, Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{markup, flipped}}},
		kahn.Node{ID: "shows", After: []string{"invalid"}, Do: func(context.Context, *kahn.Step) (any, error) {
			return nil, kahn.Suspend("", map[string]any{markup: flipped}, nil)
		}},
		kahn.Node{ID: "follows", In: []kahn.Edge{{From: "asks", Label: flipped}}, Do: say(nil, nil)},
	)
}

// hostilePage returns a page whose host has such texts, too: names of workflows, users and stored runs.
func hostilePage(t *testing.T, o Options) http.Handler {
	t.Helper()
	memory := &store.Memory{}
	run, err := kahn.Prepare((&kahn.Graph{Name: markup + flipped}).Add(kahn.Node{ID: "n"}), kahn.RunID(markup+flipped), kahn.RunKey(markup+flipped), kahn.Describe(store.Spec{Labels: map[string]string{flipped: markup}}))
	require.NoError(t, err)
	_, _, err = memory.Create(t.Context(), run)
	require.NoError(t, err)
	o.Store = memory
	o.Start = map[string]StartFunc{flipped + markup: o.Start["orders"]}
	o.Actor = func(*http.Request) string { return flipped + markup }
	return Handler(free(o))
}

// crews returns a graph with members of a group before and after a node outside the group.
func crews(do kahn.StepFunc) *kahn.Graph {
	g := &kahn.Graph{Name: "crews", Groups: []kahn.Group{{Name: "db"}, {Name: "mail"}}}
	return g.Add(
		kahn.Node{ID: "read1", Groups: []string{"db"}, Do: do}, kahn.Node{ID: "read2", Groups: []string{"db"}, Do: do},
		kahn.Node{ID: "think", After: []string{"read1", "read2"}, Do: do},
		kahn.Node{ID: "write1", Groups: []string{"db"}, After: []string{"think"}, Do: do}, kahn.Node{ID: "write2", Groups: []string{"db"}, After: []string{"think"}, Do: do},
		kahn.Node{ID: "tell", Groups: []string{"mail"}, After: []string{"write1"}, Do: do},
	)
}

// many sends 10,000 letters. In a run the first attempts fail for two of them, which is tolerated.
func many() *kahn.Graph {
	var again sync.Map
	letters := make([]int, 10_000)
	return (&kahn.Graph{Name: "mailing"}).Add(
		kahn.Node{ID: "each", Map: &kahn.Map{Over: "letters", ToleratedCount: 2}, Params: map[string]any{"letters": letters}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if path := s.Path(); path == "each[7]" || path == "each[4200]" {
				if _, known := again.LoadOrStore(path, true); !known {
					return nil, errors.New("unknown address")
				}
			}
			return nil, nil
		}},
		kahn.Node{ID: "sum", After: []string{"each"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }},
	)
}

// composites returns a graph with a sub-graph, a map of sub-graphs in it, a loop, and a node that its step expands.
func composites(do kahn.StepFunc) *kahn.Graph {
	item := (&kahn.Graph{}).Add(kahn.Node{ID: "cut", Do: do}, kahn.Node{ID: "paste", After: []string{"cut"}, Do: do})
	inner := (&kahn.Graph{}).Add(
		kahn.Node{ID: "list", Do: func(context.Context, *kahn.Step) (any, error) { return []any{1, 2, 3}, nil }},
		kahn.Node{ID: "each", Map: &kahn.Map{Over: "rows"}, In: []kahn.Edge{{From: "list", Param: "rows"}}, Sub: item},
	)
	again := func(kahn.View) (bool, error) { return true, nil }
	g := &kahn.Graph{Name: "composites"}
	return g.Add(
		kahn.Node{ID: "sub", Sub: inner},
		kahn.Node{ID: "loop", After: []string{"sub"}, Sub: item, Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again}},
		kahn.Node{ID: "sub2", After: []string{"sub"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(item, nil, nil) }},
		kahn.Node{ID: "end", After: []string{"loop", "sub2", "sub"}, Do: do}, // sub comes before it through loop
	)
}

// rounds returns a graph with a loop with a gate in each iteration, followed by a sub-graph with a node of the same
// id.
func rounds() *kahn.Graph {
	again := func(kahn.View) (bool, error) { return true, nil }
	ask := (&kahn.Graph{}).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"again"}}})
	g := &kahn.Graph{Name: "rounds"}
	same := (&kahn.Graph{}).Add(kahn.Node{ID: "loop", Do: takes(0)})
	return g.Add(kahn.Node{ID: "last", After: []string{"loop"}, Sub: same}, kahn.Node{ID: "loop", Sub: ask, Loop: &kahn.Loop{MaxIterations: 3, OnLimit: kahn.LoopStop, While: again}})
}

// paths returns a graph with a critical path by dependencies, fetch and write, that differs from the critical path by slots if there
// is one slot: write then waits for other.
func paths() *kahn.Graph {
	g := &kahn.Graph{Name: "paths"}
	return g.Add(
		kahn.Node{ID: "fetch", Do: takes(100 * time.Millisecond)},
		kahn.Node{ID: "other", Do: takes(200 * time.Millisecond)},
		kahn.Node{ID: "write", After: []string{"fetch"}, Do: takes(50 * time.Millisecond)},
	)
}

// takes returns a step that does nothing for some time.
func takes(d time.Duration) kahn.StepFunc {
	return func(ctx context.Context, _ *kahn.Step) (any, error) {
		select {
		case <-time.After(d):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
