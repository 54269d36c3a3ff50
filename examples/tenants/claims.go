package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// tenant declares the root input of all graphs in this package.
var tenant = []kahn.Input{{Name: "tenant"}}

// takeTurns checks a case in which one tenant has 200 runs and another tenant has a single run. The single run must be the second run that begins.
func takeTurns(ctx context.Context, out io.Writer, file string, with bool) error {
	m := newGauge()
	g := (&kahn.Graph{Name: "report", Inputs: tenant}).Add(kahn.Node{ID: "write", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
		return m.during(ctx, s, 0)
	}})
	w := work{graph: g, processes: 1, places: 1, keyless: !with, runs: []load{{"a", 200}, {"b", 1}}}
	if err := w.perform(ctx, file); err != nil {
		return err
	}
	number := slices.Index(m.begun, "b-1") + 1
	fmt.Fprintf(out, "turns:   200 runs of a are due before the one run of b, which begins as number %d\n", number)
	if number != 2 {
		return fmt.Errorf("the run of b is to begin as number 2, not as number %d", number)
	}
	return nil
}

// boundRuns checks that each tenant has at most two runs at once in both processes together. It also checks that all runs of the tenants b and c end
// before the last of the 40 runs of the tenant a.
func boundRuns(ctx context.Context, out io.Writer, file string, with bool) error {
	m := newGauge()
	g := (&kahn.Graph{Name: "order", Inputs: tenant}).Add(kahn.Node{ID: "ship", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
		return m.during(ctx, s, 20*time.Millisecond, tenantOf(s.RunID()))
	}})
	w := work{graph: g, processes: 2, places: 8, runs: []load{{"a", 40}, {"b", 4}, {"c", 4}}}
	if with {
		w.keyRuns = 2
	}
	if err := w.perform(ctx, file); err != nil {
		return err
	}
	later := len(m.ended) - 1 - max(last(m.ended, "b"), last(m.ended, "c"))
	fmt.Fprintf(out, "runs:    two processes perform %d runs of a at once, %d of b and %d of c; %d runs of a end after the last one of the others\n",
		m.most["a"], m.most["b"], m.most["c"], later)
	if later == 0 {
		return errors.New("the others have waited for all runs of a")
	}
	return m.within(2, "a", "b", "c")
}

// The function `last` returns the index of the last run of a tenant, or -1 if the tenant has no run.
func last(runs []string, tenant string) int {
	for i, run := range slices.Backward(runs) {
		if tenantOf(run) == tenant {
			return i
		}
	}
	return -1
}

// shareLimits checks three bounds for both processes together: on the running fetches of each tenant, on the running mails, and on all running steps.
// The key of a fetch is its tenant. All mails have the same key.
func shareLimits(ctx context.Context, out io.Writer, file string, with bool) error {
	m := newGauge()
	fetch := func(ctx context.Context, s *kahn.Step) (any, error) {
		return m.during(ctx, s, 10*time.Millisecond, tenantOf(s.RunID()), "steps")
	}
	mail := func(ctx context.Context, s *kahn.Step) (any, error) {
		return m.during(ctx, s, 10*time.Millisecond, "mails", "steps")
	}
	g := &kahn.Graph{Name: "report", Inputs: tenant}
	for _, part := range []string{"north", "east", "south", "west"} {
		g.Add(kahn.Node{ID: "fetch-" + part, KeyFrom: "tenant", Do: fetch},
			kahn.Node{ID: "mail-" + part, Key: "kind:mail", After: []string{"fetch-" + part}, Do: mail})
	}
	w := work{graph: g, processes: 2, places: 8, runs: []load{{"a", 8}, {"b", 4}, {"c", 4}}}
	if with {
		w.shared = &kahn.Shared{Name: "reports", Limit: 5, KeyLimit: 2}
	}
	if err := w.perform(ctx, file); err != nil {
		return err
	}
	fmt.Fprintf(out, "shared:  two processes perform %d fetches of a at once, %d of b, %d of c and %d mails, and %d steps in all\n",
		m.most["a"], m.most["b"], m.most["c"], m.most["mails"], m.most["steps"])
	return errors.Join(m.within(2, "a", "b", "c", "mails"), m.within(5, "steps"))
}

// explain checks that Run.Why names the slot for which a node waits, and the run that holds this slot. The two runs are in different
// processes.
func explain(ctx context.Context, out io.Writer, file string, _ bool) (err error) {
	g := (&kahn.Graph{Name: "report", Inputs: tenant}).Add(kahn.Node{ID: "fetch", KeyFrom: "tenant"})
	begun, release := make(chan struct{}, 2), make(chan struct{})
	step := func(ctx context.Context, _ *kahn.Step) (any, error) {
		begun <- struct{}{}
		select {
		case <-release:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	var runs [2]*kahn.Run
	for i := range runs {
		p, err := open(file, &kahn.Runner{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.close()) }()
		p.runner.Shared = &kahn.Shared{Store: p.db, KeyLimit: 1}
		runs[i], err = p.runner.Start(ctx, g, step, kahn.Durable(p.db), kahn.RunID(fmt.Sprintf("b-%d", i+1)), kahn.Inputs(map[string]any{"tenant": "b"}))
		if err != nil {
			return err
		}
		if i == 0 {
			select {
			case <-begun:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	for why := (kahn.Why{}); ; {
		if why, err = runs[1].Why("fetch"); err != nil {
			return err
		}
		if strings.Contains(why.String(), "held by run b-1") {
			fmt.Fprintf(out, "why:     fetch of b-2, in process 2: %v\n", why)
			break
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%w; the answer is: %v", err, why)
		}
	}
	close(release)
	for _, r := range runs {
		if _, failed := r.Wait(); failed != nil {
			return failed
		}
	}
	return nil
}
