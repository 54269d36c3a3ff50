package kahn

import (
	"context"
	"runtime/pprof"
	"runtime/trace"
)

// PprofLabels labels the work of steps in profiles: every attempt runs with the pprof labels kahn.workflow (the name of the
// graph), kahn.node (the node's path) and kahn.kind, and so do goroutines that inherit them. It is a middleware, see [Use],
// and applies where middleware does.
func PprofLabels() Option {
	return Use(func(next StepFunc) StepFunc {
		return func(ctx context.Context, s *Step) (out any, err error) {
			labels := pprof.Labels("kahn.workflow", s.run.outermost().plan.name, "kahn.node", s.run.path(s.ref), "kahn.kind", s.Kind())
			pprof.Do(ctx, labels, func(ctx context.Context) { out, err = next(ctx, s) })
			return out, err
		}
	})
}

// RuntimeTrace shows the run in execution traces, see package runtime/trace: as a task "kahn.run", with the graph's name
// and the run's id in its log, and every attempt as a region of the task that has the node's path for its type. The regions
// are a middleware, see [Use]. While no trace is being taken it costs next to nothing.
func RuntimeTrace() Option {
	return optionFunc(func(c *config) error {
		c.traceTask = true
		return Use(func(next StepFunc) StepFunc {
			return func(ctx context.Context, s *Step) (any, error) {
				if trace.IsEnabled() {
					defer trace.StartRegion(ctx, s.run.path(s.ref)).End()
				}
				return next(ctx, s)
			}
		}).apply(c)
	})
}

// beginTask begins the run's task for the execution trace and hands it to the steps with their context.
func (r *Run) beginTask() {
	r.ctx, r.task = trace.NewTask(r.ctx, "kahn.run")
	r.base = r.ctx
	trace.Log(r.ctx, "kahn.workflow", r.plan.name)
	trace.Log(r.ctx, "kahn.run_id", r.ID())
}
