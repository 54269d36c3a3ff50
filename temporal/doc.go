// Package temporal runs graphs of package kahn on Temporal: the run is a workflow, and each attempt of a step is an activity, on any worker.
//
// A worker has the plans and the step function:
//
//	w, err := temporal.NewWorker(client, "orders", temporal.Options{Plans: []*kahn.Plan{plan}, Step: mux.Step})
//	err = w.Run(worker.InterruptCh())
//
// Whoever starts a run, in whatever process, gets the Result that kahn.Execute returns:
//
//	res, err := temporal.Execute(ctx, client, temporal.Workflow{ID: "order-17", TaskQueue: "orders", Plan: plan}, inputs)
//
// One workflow performs all plans. It drives a [kahn.Coordinator], so that statuses, skip reasons, retries, composites and the Result are
// those of a run in one process. Temporal keeps the history, fires the timers, and hands the attempts to workers. An attempt whose worker
// is lost is performed again, with the same number and the same idempotency key.
//
// What a plan needs of one process does not carry over: [Check] names each node concerned, with the reason. docs/temporal.md in the
// repository lists everything that differs.
package temporal
