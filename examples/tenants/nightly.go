package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
)

// scheduleNightly checks that each run has the key of the tenant whose schedule created the run. No process served the schedules last night, so the
// program creates and performs last night's runs now.
func scheduleNightly(ctx context.Context, out io.Writer, file string, with bool) (err error) {
	p, err := open(file, &kahn.Runner{MaxRuns: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	g := (&kahn.Graph{Name: "nightly", Inputs: tenant}).Add(kahn.Node{ID: "sum", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		return kahn.Root[string](s, "tenant")
	}})
	tenants := []string{"a", "b", "c"}
	var list []schedule.Schedule
	for _, tenant := range tenants {
		s := schedule.Schedule{Name: tenant + "-nightly", Workflow: "nightly", Cron: "0 2 * * *", Inputs: func(time.Time) (map[string]any, error) {
			return map[string]any{"tenant": tenant}, nil
		}}
		if with {
			s.Key = tenant
		}
		list = append(list, s)
	}
	scheduler, err := schedule.New(p.runner, kahn.Service{Store: p.db, Workflows: []kahn.Workflow{{Graph: g}}, KeyRuns: 1}, list...)
	if err != nil {
		return err
	}
	p.serve(func() error { return scheduler.Serve(ctx) })
	if err := p.has(ctx, kahn.RunPending, len(tenants)); err != nil {
		return err
	}
	for _, s := range list {
		if _, err := scheduler.Backfill(ctx, s.Name, time.Now().Add(-24*time.Hour), time.Now()); err != nil {
			return err
		}
	}
	if err := errors.Join(p.has(ctx, kahn.RunCompleted, len(tenants)), p.has(ctx, kahn.RunPending, len(tenants))); err != nil {
		return err
	}
	page, err := p.db.List(ctx, store.Query{})
	if err != nil {
		return err
	}
	for _, r := range page.Runs {
		if tenant := tenantOf(r.ID); r.Key != tenant || !strings.HasSuffix(r.ID, "T02:00:00Z") {
			return fmt.Errorf("run %s has the key %q, not %q, or another time than 02:00", r.ID, r.Key, tenant)
		}
	}
	_, err = fmt.Fprintln(out, "nightly: a, b and c have a run each at 02:00, with the key of the tenant: last night's has completed, the next one is pending")
	return err
}

// The method `has` waits until at least the given number of runs in the file have the given status.
func (p *process) has(ctx context.Context, status kahn.RunStatus, runs int) error {
	for {
		counts, err := p.db.Count(ctx, store.Filter{Statuses: []kahn.RunStatus{status}})
		if err != nil {
			return err
		}
		n := 0
		for _, c := range counts {
			n += c.Runs
		}
		if n >= runs {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
