// Package profile shows the steps of runs in the profiles and execution traces of the Go runtime. Its functions return options for
// runs.
package profile

import (
	"context"
	"runtime/pprof"
	"runtime/trace"

	"github.com/seed-c794f7ef/kahn"
)

// Labels labels the work of steps in profiles: every attempt runs with the pprof labels kahn.workflow (the name of the graph), kahn.node
// (the node's path) and kahn.kind. Goroutines that the attempt starts inherit the labels. A middleware sets the labels: see [kahn.Use].
func Labels() kahn.Option {
	return kahn.PerRun(func() []kahn.Option {
		var workflow string
		named := kahn.Around(func(_ context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
			workflow = r.Name()
			return nil, nil
		})
		return []kahn.Option{named, kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
			return func(ctx context.Context, s *kahn.Step) (out any, err error) {
				labels := pprof.Labels("kahn.workflow", workflow, "kahn.node", s.Path(), "kahn.kind", s.Kind())
				pprof.Do(ctx, labels, func(ctx context.Context) { out, err = next(ctx, s) })
				return out, err
			}
		})}
	})
}

// Trace shows the run in execution traces, see package runtime/trace. The run is a task "kahn.run", whose log contains the graph's name and the run's
// id. Every attempt is a region of this task, and the region's type is the node's path. The task begins and ends with the run: see [kahn.Around]. A
// middleware begins and ends the regions. While no trace is being taken, Trace costs next to nothing.
func Trace() kahn.Option {
	return kahn.PerRun(func() []kahn.Option {
		task := kahn.Around(func(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
			ctx, task := trace.NewTask(ctx, "kahn.run")
			trace.Log(ctx, "kahn.workflow", r.Name())
			trace.Log(ctx, "kahn.run_id", r.ID())
			return ctx, func(*kahn.Result) { task.End() }
		})
		return []kahn.Option{task, kahn.Use(func(next kahn.StepFunc) kahn.StepFunc {
			return func(ctx context.Context, s *kahn.Step) (any, error) {
				if trace.IsEnabled() {
					defer trace.StartRegion(ctx, s.Path()).End()
				}
				return next(ctx, s)
			}
		})}
	})
}
