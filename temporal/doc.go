// Package temporal runs graphs of package kahn on Temporal: a run is a workflow, and each attempt of a step is an activity, which any worker
// may perform.
//
// A worker has the plans and the step function:
//
//	w, err := temporal.NewWorker(client, "orders", temporal.Options{Plans: []*kahn.Plan{plan}, Step: mux.Step})
//	err = w.Run(worker.InterruptCh())
//
// A program in any process starts a run with Execute, and gets the same Result as from kahn.Execute:
//
//	res, err := temporal.Execute(ctx, client, temporal.Workflow{ID: "order-17", TaskQueue: "orders", Plan: plan}, inputs)
//
// The code of one workflow performs all plans. It drives a [kahn.Coordinator], so statuses, skip reasons, retries, composites and the
// Result are the same as for a run in one process. Temporal keeps the history, fires the timers, and hands the attempts to workers. If the worker of
// an attempt is lost, the attempt is performed again, with the same number and the same idempotency key.
//
// The names by task:
//
//   - Workers: [NewWorker], [Options], [Kind], [StepWorkflow]; [Registry] for a worker or a test environment of the SDK.
//   - Before deploying: [Check], [Options.Warnings], [Options.Replayer], [ErrImpure].
//   - Runs: [Execute], [Start], [Attach], [Workflow], [Settings], [Fire]; [Run] has the methods that answer, stop, redrive, adopt and read a run.
//   - Starting and answering runs without [Run]: [Input], [ExecuteChild], [Child], [SignalName], and the names of queries and updates.
//   - Long values: Options.Blobs, [CodedBlobs], [PruneBlobs], [BlobPrune], [ErrTooLarge].
//   - Finding runs: [Store], [RegisterSearchAttributes], [WorkflowAttribute], [StatusAttribute].
//
// Some features of a plan need a single process, so they do not carry over. [Check] names each node concerned, with the reason. docs/temporal.md in
// the repository lists everything that differs.
package temporal
