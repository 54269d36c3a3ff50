package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// serveTwo serves two runs of a graph for a minute, and returns the errors that OnError got.
func serveTwo(t *testing.T, rn *kahn.Runner, g *kahn.Graph, retention []store.Retention, opts ...kahn.Option) (told []error) {
	t.Helper()
	db, mu := new(store.Memory), new(sync.Mutex)
	for i := range 2 {
		n, err := kahn.Prepare(g, kahn.RunID(fmt.Sprint("r", i)))
		require.NoError(t, err)
		_, _, err = db.Create(t.Context(), n)
		require.NoError(t, err)
	}
	step := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	over := make(chan error, 1)
	go func() {
		over <- rn.Serve(t.Context(), kahn.Service{Store: db, Retention: retention, Workflows: []kahn.Workflow{{Graph: g, Step: step, Options: opts}}, OnError: func(run string, q store.Queue, err error) {
			mu.Lock()
			defer mu.Unlock()
			if run != "" || q != (store.Queue{}) && q.Workflow != "w" {
				err = fmt.Errorf("run %q, queue %v: %w", run, q, err)
			}
			told = append(told, err)
		}})
	}()
	time.Sleep(time.Minute)
	require.NoError(t, rn.Shutdown(t.Context()))
	require.NoError(t, <-over)
	return told
}

// TestServeWarnings: Serve reports each warning about a workflow once, however many runs it performs.
func TestServeWarnings(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		keyLimit int
		nodes    []kahn.Node
		opts     []kahn.Option
		keeps    []store.Retention
		shared   []kahn.Group
		want     string // "" if there is no warning
		is       error
	}{
		"none":                       {nodes: []kahn.Node{{ID: "a"}}},
		"a policy that does nothing": {nodes: []kahn.Node{{ID: "a", Retry: kahn.Retry{InitialDelay: time.Second}}}, want: `warning: node "a": bad value: retry: MaxAttempts is not set`, is: kahn.ErrBadValue},
		"a key without a bound":      {nodes: []kahn.Node{{ID: "a", Key: "k"}}, want: "its Key bounds nothing", is: kahn.ErrBadOption},
		"a bound without a key":      {keyLimit: 1, nodes: []kahn.Node{{ID: "a"}}, want: "no node of the workflows has a Key", is: kahn.ErrBadOption},
		"a key with a bound":         {keyLimit: 1, nodes: []kahn.Node{{ID: "a", Key: "k"}}},
		"a retention":                {nodes: []kahn.Node{{ID: "a"}}, keeps: []store.Retention{{For: time.Hour}, {Workflow: "w", For: time.Hour}}},
		"a retention of another workflow": {nodes: []kahn.Node{{ID: "a"}}, keeps: []store.Retention{{For: time.Hour}, {Workflow: "W", For: time.Hour}},
			want: `Retention 2 is for runs of workflow "W", which is not served; did you mean "w"?`, is: kahn.ErrBadOption},
		"a shared group": {nodes: []kahn.Node{{ID: "a", Sub: (&kahn.Graph{Groups: []kahn.Group{{Name: "db"}}}).Add(kahn.Node{ID: "b", Groups: []string{"db"}})}}, shared: []kahn.Group{{Name: "db", Limit: 2}}},
		"a shared group that no graph declares": {nodes: []kahn.Node{{ID: "a", Sub: (&kahn.Graph{Groups: []kahn.Group{{Name: "db"}}}).Add(kahn.Node{ID: "b", Groups: []string{"db"}})}},
			shared: []kahn.Group{{Name: "db", Rate: kahn.Rate{Starts: 1, Per: time.Second}}, {Name: "dbs", Limit: 2}}, want: `group "dbs" of Runner.Shared bounds nothing, unless steps return graphs: no graph of the workflows declares it; did you mean "db"?`, is: kahn.ErrBadOption},
		"a gate that outlasts its run": {nodes: []kahn.Node{{ID: "a", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour}}}, opts: []kahn.Option{kahn.Timeout(time.Hour - time.Minute)},
			want: `warning: the deadline of the gate lies beyond the run's Timeout: node "a"`, is: kahn.ErrGateOutlasts},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rn := &kahn.Runner{KeyLimit: row.keyLimit}
				if row.shared != nil {
					rn.Shared = &kahn.Shared{Store: new(store.Memory), Groups: row.shared}
				}
				told := serveTwo(t, rn, (&kahn.Graph{Name: "w"}).Add(row.nodes...), row.keeps, row.opts...)
				if row.want == "" {
					require.Empty(t, told)
					return
				}
				require.Len(t, told, 1, "%v", errors.Join(told...))
				require.ErrorIs(t, told[0], row.is)
				require.ErrorContains(t, told[0], row.want)
			})
		})
	}
}

// TestServeLogsWarnings: without OnError, slog.Default logs a warning. The test sets the default logger, so it does not run in parallel.
func TestServeLogsWarnings(t *testing.T) {
	var out bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(was)
	synctest.Test(t, func(t *testing.T) {
		g := (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "a", Key: "k"})
		rn, over := new(kahn.Runner), make(chan error, 1)
		go func() {
			over <- rn.Serve(t.Context(), kahn.Service{Store: new(store.Memory), Workflows: []kahn.Workflow{{Graph: g, Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil }}}})
		}()
		synctest.Wait()
		require.NoError(t, rn.Shutdown(t.Context()))
		require.NoError(t, <-over)
	})
	require.Equal(t, 1, strings.Count(out.String(), "level=WARN"), out.String())
	require.Contains(t, out.String(), "its Key bounds nothing")
}

// TestServeWithoutUnits: Serve refuses times whose unit was forgotten.
func TestServeWithoutUnits(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]func(s *kahn.Service){
		"Serve: Poll 5ns is":        func(s *kahn.Service) { s.Poll = 5 },
		"Serve: RestAfter 5ns is":   func(s *kahn.Service) { s.RestAfter = 5 },
		"Serve: PruneEvery 60ns is": func(s *kahn.Service) { s.PruneEvery = 60 },
		"Lease: the time 30ns":      func(s *kahn.Service) { s.Workflows[0].Options = []kahn.Option{kahn.Lease("", 30)} },
		"keeps runs for 30ns":       func(s *kahn.Service) { s.Retention = []store.Retention{{For: 30}} },
	} {
		s := kahn.Service{Store: new(store.Memory), Workflows: []kahn.Workflow{{Graph: (&kahn.Graph{Name: "w"}).Add(kahn.Node{ID: "a", Kind: kahn.KindGate})}}}
		set(&s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends a Serve that does not refuse the time
		err := new(kahn.Runner).Serve(ctx, s)
		cancel()
		require.ErrorIs(t, err, kahn.ErrBadOption, want)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "is its unit missing?")
	}
}

// grantless is a store that grants no slots.
type grantless struct{ *store.Memory }

func (grantless) Grant(context.Context, string, time.Duration, []store.GrantRequest) ([]store.Granted, error) {
	return nil, errors.New("no grants today")
}

// TestSharedOnErrorFails: slog.Default logs an error only if Shared.OnError has panicked. The test sets the default logger, so it does not run in
// parallel.
func TestSharedOnErrorFails(t *testing.T) {
	var out bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(was)
	for _, panics := range []bool{false, true} {
		told, want := 0, 0
		synctest.Test(t, func(t *testing.T) {
			rn := &kahn.Runner{Shared: &kahn.Shared{Store: grantless{new(store.Memory)}, Limit: 1, OnError: func(error) {
				if told++; panics {
					panic("of OnError")
				}
			}}}
			run, err := rn.Start(t.Context(), graph(after("a")), nothing)
			require.NoError(t, err)
			time.Sleep(time.Second)
			run.Cancel()
			_, _ = run.Wait()
			require.NoError(t, rn.Shutdown(t.Context()))
		})
		require.NotZero(t, told)
		if panics {
			want = told
		}
		require.Equal(t, want, strings.Count(out.String(), "Shared.OnError has failed"), out.String())
	}
}
