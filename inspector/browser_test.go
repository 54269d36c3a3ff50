//go:build browser

package inspector

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
)

var scenario = flag.String("scenario", "", "for TestPage: only the scenarios whose names contain this text")
var pictures = flag.String("pictures", "", "for TestPage: instead of the scenarios, write pictures of large graphs to docs, with names that begin with this text")

// TestPage drives the page in chromium against a real Runner. It needs chromium and node in the PATH, and the packages of
// page/package-lock.json.
func TestPage(t *testing.T) {
	s := &stand{memory: &store.Memory{}}
	report := (&kahn.Graph{Name: "report"}).Add(kahn.Node{ID: "n"})
	nothing := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	served := &kahn.Runner{}
	scheduler, err := schedule.New(served, kahn.Service{Store: s.memory, Workflows: []kahn.Workflow{{Graph: report, Step: nothing}}},
		schedule.Schedule{Name: "<b>nightly", Workflow: "report", Cron: "30 2 * * *", Zone: "Europe/Berlin"})
	require.NoError(t, err)
	serving := make(chan error, 1)
	go func() { serving <- scheduler.Serve(t.Context()) }()
	defer func() {
		require.NoError(t, served.Shutdown(context.Background()))
		require.NoError(t, <-serving)
	}()
	unserved(t, s.memory)
	pay, err := paying().Compile()
	require.NoError(t, err)
	s.desk = newDesk(t, func(o *Options) {
		waiting, err := kahn.Prepare(order(), kahn.RunID("stored"), kahn.RunKey("acme"), kahn.RunPriority(7))
		require.NoError(t, err)
		_, _, err = s.memory.Create(t.Context(), waiting)
		require.NoError(t, err)
		plan, err := order().Compile()
		require.NoError(t, err)
		refunding, err := refund().Compile()
		require.NoError(t, err)
		working, err := works(nil).Compile()
		require.NoError(t, err)
		o.Store = s.memory
		o.Scheduler = scheduler
		o.Workflows = []Workflow{{Plan: plan, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			return o.Runner.Start(ctx, order(), nil, opts...)
		}}, {Plan: refunding}, {Plan: working, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			return o.Runner.Start(ctx, works(nil), nil, opts...)
		}}, {Plan: pay, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			return o.Runner.Start(ctx, paying(), nil, opts...)
		}}}
	})
	s.stage = map[string]play{
		"orders":  {graph: s.graph},
		"chain":   {graph: func() *kahn.Graph { return layered("chain", 16, 3, takes(300*time.Millisecond)) }},
		"storm":   {graph: storm},
		"chatter": {graph: chatter, opts: []kahn.Option{kahn.Retain(100_000)}},
		"hostile": {graph: hostile},
		"mailing": {graph: many},
		"letters": {graph: mails},
		"waiting": {graph: func() *kahn.Graph {
			return (&kahn.Graph{Name: "waiting"}).Add(kahn.Node{ID: "ok", Kind: kahn.KindGate})
		}},
		"cached":     {graph: cached, opts: []kahn.Option{&kahn.Memo{}}},
		"crews":      {graph: func() *kahn.Graph { return crews(nothing) }},
		"composites": {graph: func() *kahn.Graph { return composites(nothing) }},
		"rounds":     {graph: rounds},
		"big5000":    {graph: func() *kahn.Graph { return layered("big5000", 50, 100, nothing) }},
		"big20000":   {graph: func() *kahn.Graph { return layered("big20000", 100, 200, breaks("n90.0")) }},
		"purchase":   {graph: purchase},
		"purchases":  {graph: purchase, left: []string{"legal", "cfo"}},
		"sixty":      {graph: sixty},
		"tables":     {graph: tables},
		"paths":      {graph: paths, opts: []kahn.Option{kahn.Limit(1)}},
		"elsewhere":  {graph: order, left: []string{"review", "flaky"}},
		"foreign":    {graph: s.graph, left: []string{"flaky", "each", "approve"}}, // the service does not have the plan of this run
		"short":      {graph: short},
		"asking":     {graph: asking},
		"leading":    {graph: leading},
		"paying":     {graph: paying, opts: []kahn.Option{kahn.Inputs(map[string]any{"eur": "wrong"})}},
		"migrating":  {graph: func() *kahn.Graph { return migrating(takes(time.Minute)) }},
		"refund":     {graph: refund},
		"refunds":    {graph: refund, left: []string{}}, // another process has performed the run
		"sunk":       {graph: func() *kahn.Graph { return sinks(false) }},
		"sinking":    {graph: func() *kahn.Graph { return sinks(true) }},
		"spends":     {graph: spends, left: []string{"approve"}},
		"spent":      {graph: spends},
		"wide":       {graph: func() *kahn.Graph { return layered("wide", 25, 40, nothing) }},
		"huge":       {graph: func() *kahn.Graph { return layered("huge", 100, 100, nothing) }},
	}
	for name, play := range expecting(t) {
		s.stage[name] = play
	}
	onlyView := s.opts
	onlyView.Authorize = func(_ *http.Request, a Action) error {
		if a != View {
			return errors.New("only to view")
		}
		return nil
	}
	withToken := s.opts
	withToken.Token = testToken
	mux := http.NewServeMux()
	mux.Handle("/token/", Handler(withToken))
	mux.Handle("/debug/kahn/", Handler(free(s.opts)))
	mux.Handle("/buffered/", buffered(Handler(free(s.opts))))
	mux.Handle("/hostile/", hostilePage(t, s.opts))
	mux.Handle("/view/", Handler(free(onlyView)))
	mux.Handle("/stage/", s)
	s.server.Close()
	s.server = httptest.NewServer(mux)
	defer s.server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 24*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "test/page.mjs", s.server.URL, *scenario)
	if *pictures != "" {
		cmd = exec.CommandContext(ctx, "node", "test/screenshots.mjs", s.server.URL+"/#token=", *pictures)
	}
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
	if *pictures != "" {
		return
	}
	require.Positive(t, passed)
	if *scenario == "" {
		require.Contains(t, s.audit.String(), "actor=ann")
	}
}

// unserved adds a schedule to a store whose process has ended.
func unserved(t *testing.T, memory *store.Memory) {
	t.Helper()
	rn := &kahn.Runner{}
	s, err := schedule.New(rn, kahn.Service{Store: memory, Workflows: []kahn.Workflow{{Graph: (&kahn.Graph{Name: "audit"}).Add(kahn.Node{ID: "n"}), Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}}},
		schedule.Schedule{Name: "weekly audit", Workflow: "audit", Cron: "0 4 * * 1", Missed: schedule.None, Overlap: schedule.Allow})
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background()) }()
	require.Eventually(t, func() bool {
		list, _, err := memory.Schedules(context.Background())
		return err == nil && slices.ContainsFunc(list, func(x store.ScheduleState) bool { return x.Name == "weekly audit" })
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, rn.Shutdown(context.Background()))
	require.NoError(t, <-served)
}
