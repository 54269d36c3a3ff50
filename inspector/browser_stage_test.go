//go:build browser

package inspector

import (
	"bytes"
	"cmp"
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

// play is a graph, and how a test runs it. If left is set, another process runs the graph over the service's store, and leaves the run when the
// nodes in left wait.
type play struct {
	graph func() *kahn.Graph
	opts  []kahn.Option
	left  []string
}

// stand is a service with a page. Tests have further endpoints, with which they start runs and cut connections.
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
	case "hold": // another process holds a run and hangs
		id := r.URL.Query().Get("run")
		lease, _, err := s.memory.Acquire(r.Context(), id, "another process", time.Hour)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.held.Store(id, lease)
	case "died": // the process of a run has died
		id, atWork := fmt.Sprint("died-", s.count.Add(1)), make(chan struct{})
		if err := died(s.memory, id, works(atWork), atWork); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, id)
	case "revive": // another process continues a run whose process has died
		run, err := kahn.Start(context.Background(), works(nil), nil, kahn.RunID(r.URL.Query().Get("run")), kahn.Durable(s.memory))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = run.Wait() // the page shows how the run ended
	case "line": // three runs of a tenant wait for their turn in a queue that another process serves, and a fourth for tomorrow
		if err := s.line(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
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
		_, _ = run.Wait() // the page shows how the run ended
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
				_, _ = run.Wait() // the run ends in the other process
			}
			run.Leave()
			_, _ = run.Wait()
		}
		_, _ = io.WriteString(w, run.ID())
	}
}

func (s *stand) line(ctx context.Context) error {
	for i, priority := range []int{0, 5, 0, 0} {
		n, err := kahn.Prepare((&kahn.Graph{Name: "lined"}).Add(kahn.Node{ID: "n"}), kahn.RunID(fmt.Sprint("lined-", i+1)), kahn.RunKey("initech"), kahn.RunPriority(priority))
		if err != nil {
			return err
		}
		if i == 3 {
			n.NotBefore = time.Now().Add(24 * time.Hour)
		}
		if _, _, err = s.memory.Create(ctx, n); err != nil {
			return err
		}
		if err := s.memory.Announce(ctx, store.Announcement{Process: "another process", Queues: []store.Queue{n.Queue()}, TTL: time.Hour}); err != nil {
			return err
		}
	}
	return nil
}

// mails sends 12 letters. In each run, the first attempts for five of them fail, and the graph tolerates this.
func mails() *kahn.Graph {
	var again sync.Map
	return (&kahn.Graph{Name: "letters"}).Add(
		kahn.Node{ID: "each", Map: &kahn.Map{Over: "letters", ToleratedCount: 5}, Params: map[string]any{"letters": make([]int, 12)}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			switch path := s.Path(); path {
			case "each[1]", "each[3]", "each[5]", "each[7]", "each[9]":
				if _, known := again.LoadOrStore(path, true); !known {
					return nil, errors.New("unknown address")
				}
			}
			return nil, nil
		}},
		kahn.Node{ID: "sum", After: []string{"each"}, Do: takes(0)},
	)
}

// cached returns a graph whose first node has a memo.
func cached() *kahn.Graph {
	return (&kahn.Graph{Name: "cached"}).Add(
		kahn.Node{ID: "load", Memo: "v1", Do: func(context.Context, *kahn.Step) (any, error) { return "rows", nil }},
		kahn.Node{ID: "send", After: []string{"load"}, Do: takes(0)},
	)
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

// refund returns an order whose goods are missing. The order's refund fails at the first attempt.
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

// longError returns an error with a text of 41 lines.
func longError() error {
	text := "the first line of the cause"
	for i := range 40 {
		text += fmt.Sprintf("\nline %d of the trace", i+2)
	}
	return kahn.Permanent(errors.New(text))
}

// sinks returns a graph that fails deep in a sub-graph with a long name. If waits is set, the run does not end, since another node takes longer
// than the scenario.
func sinks(waits bool) *kahn.Graph {
	fails := func(context.Context, *kahn.Step) (any, error) { return nil, longError() }
	inner := (&kahn.Graph{}).Add(kahn.Node{ID: "leaf", Do: fails})
	g := (&kahn.Graph{Name: "sinks"}).Add(kahn.Node{ID: strings.Repeat("deep-", 40), Sub: inner})
	if waits {
		g.Add(kahn.Node{ID: "slow", Do: takes(15 * time.Second)})
	}
	return g
}

// spends returns a graph that calls a model twice, since the first answer is an error, and then waits for a signal. One of its usage names has
// the maximum length.
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

// chatter logs 2,000 lines a second for six seconds. Before that, one node logs a single line, and chatter itself logs 8,000 lines.
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

// Texts that a page must not interpret: as markup, as marks that change the direction of a line, or as control characters.
const (
	markup  = `<img src=x onerror="window.broken=1"><script>window.broken=1</script>`
	flipped = "rtl\u202egnp.exe\u2066\x1b[2J\u200b"
)

// hostile returns a graph that has such texts, and very long texts, wherever a page shows a text of a run.
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

// hostilePage returns a page whose host also has such texts: in the names of workflows, users and stored runs.
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

// many returns a graph with a map of 10,000 items that send letters. The first attempts of two items fail, and the map tolerates this.
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
		kahn.Node{ID: "end", After: []string{"loop", "sub2", "sub"}, Do: do}, // the path through loop also leads from sub to the end
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

// purchase returns a graph with two gates. From each gate, an edge with a label leads to the same node.
func purchase() *kahn.Graph {
	return (&kahn.Graph{Name: "purchase"}).Add(
		kahn.Node{ID: "quote", Do: takes(0)},
		kahn.Node{ID: "legal", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"yes", "no"}}, After: []string{"quote"}},
		kahn.Node{ID: "cfo", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"approve", "reject"}}, After: []string{"quote"}},
		kahn.Node{ID: "order", In: []kahn.Edge{{From: "legal", Label: "yes"}, {From: "cfo", Label: "approve"}}, Do: takes(0)},
		kahn.Node{ID: "file", After: []string{"order"}, Do: takes(0)},
	)
}

// sixty returns a graph of 60 nodes: six nodes, a gate, and the nodes after it.
func sixty() *kahn.Graph {
	g := &kahn.Graph{Name: "sixty"}
	ok := kahn.Node{ID: "ok", Kind: kahn.KindGate}
	for i := range 6 {
		n := kahn.Node{ID: fmt.Sprint("early", i), Do: takes(0)}
		g.Add(n)
		ok.After = append(ok.After, n.ID)
	}
	g.Add(ok)
	for i := range 53 {
		g.Add(kahn.Node{ID: fmt.Sprint("late", i), After: []string{"ok"}, Do: takes(0)})
	}
	return g
}

// tables returns a graph of 300 nodes in 15 layers. One node fails, which stops many nodes in the later layers.
func tables() *kahn.Graph {
	g := &kahn.Graph{Name: "tables"}
	id := func(layer, i int) string { return fmt.Sprintf("table_%02d_%02d_customer_orders_daily", layer, i%20) }
	for layer := range 15 {
		for i := range 20 {
			n := kahn.Node{ID: id(layer, i), Do: takes(0)}
			if layer > 0 {
				n.After = []string{id(layer-1, i), id(layer-1, i+7), id(layer-1, i+10)}
			}
			if layer == 6 && i == 4 {
				n.Do = func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("duplicate key") }
			}
			g.Add(n)
		}
	}
	return g
}

// breaks returns a step that fails for one node.
func breaks(path string) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		if s.Path() == path {
			return nil, errors.New("the disk is full")
		}
		return nil, nil
	}
}

// paths returns a graph whose critical path by dependencies is fetch and write. If the run has one slot, the critical path by slots differs,
// since write then waits for other.
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

// failsAfter returns a step that takes some time and fails.
func failsAfter(d time.Duration) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (any, error) {
		_, err := takes(d)(ctx, s)
		return nil, cmp.Or(err, errors.New("the disk is full"))
	}
}

// expecting has runs with a History, one of which is later than expected, and the same run without a History.
func expecting(t *testing.T) map[string]play {
	g := func(took time.Duration, nodes ...kahn.Node) func() *kahn.Graph {
		return func() *kahn.Graph {
			return (&kahn.Graph{Name: "expecting"}).Add(kahn.Node{ID: "load", Do: takes(took)}).Add(nodes...)
		}
	}
	report := kahn.Node{ID: "report", After: []string{"load"}, Do: takes(30 * time.Second)}
	knows := []kahn.Option{taught(t, "expecting", map[string]time.Duration{"load": 28 * time.Second, "report": 30 * time.Second, "slow": 500 * time.Millisecond, "file": 40 * time.Second, "near": 6 * time.Second})}
	unmoved := []kahn.Option{taught(t, "expecting", map[string]time.Duration{"slow": 500 * time.Millisecond, "report": 30 * time.Second})} // no run teaches it: the step slow fails
	return map[string]play{
		"expected": {graph: g(50*time.Second, report), opts: knows},
		"unaware":  {graph: g(50*time.Second, report)},
		"overdue": {graph: func() *kahn.Graph {
			return (&kahn.Graph{Name: "expecting"}).Add(kahn.Node{ID: "slow", Do: failsAfter(20 * time.Second)})
		}, opts: unmoved},
		"stuck": {graph: func() *kahn.Graph {
			return (&kahn.Graph{Name: "expecting"}).Add(kahn.Node{ID: "slow", Label: "Count the rows", Do: failsAfter(time.Minute)}, kahn.Node{ID: "report", After: []string{"slow"}, Do: takes(0)})
		}, opts: unmoved},
		"near": {graph: func() *kahn.Graph {
			return (&kahn.Graph{Name: "expecting"}).Add(kahn.Node{ID: "near", Do: takes(6 * time.Second)})
		}, opts: knows},
		"answering": {graph: func() *kahn.Graph {
			return (&kahn.Graph{Name: "expecting"}).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate}, kahn.Node{ID: "file", After: []string{"ask"}, Do: takes(0)})
		}, opts: knows},
	}
}
