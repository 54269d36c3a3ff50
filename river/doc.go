// Package riverkahn performs runs of package kahn as jobs of River, on any number of processes that share a database of PostgreSQL.
//
//	s, err := postgres.Open(ctx, pool, postgres.Options{})
//	…
//	p := &riverkahn.Performer{Store: s, Workflows: []riverkahn.Workflow{{Graph: graph, Step: step}}}
//	config := &river.Config{}
//	err = p.Register(config)
//	…
//	client, err := river.NewClient(riverpgxv5.New(pool), config)
//	…
//	err = p.Start(ctx, client)
//	…
//	defer p.Stop(ctx, client)
//
// Any process can create runs, even with a client of River that works no jobs:
//
//	c := riverkahn.Client{Store: s, River: client}
//	n, err := kahn.Prepare(graph, kahn.RunID("order-17"), kahn.Inputs(inputs))
//	…
//	_, _, err = c.Create(ctx, n, riverkahn.CreateOptions{})
//
// The names of this package, by task:
//
//   - Performing runs: [Performer], [Workflow], [Retention]; [RunArgs] is the job of a run, [QueueOf] its queue.
//   - Creating and steering runs: [Client] with [CreateOptions] and [PriorityLabel]. [Client.Post] stores a signal, a cancel or a redrive, and the
//     run continues.
//   - Steps on other machines: [Remote] sends them, [Server] performs them, [KindQueue] is their queue.
//   - From SQL: [Functions].
//
// The store keeps the state of runs. River keeps the queues: it decides which process performs a run, when, and in which order. Its tables come
// from rivermigrate, or from River's command.
//
// # The job of a run
//
// A run has at most one job that has not ended. The job names the run, and is in the queue of the run's plan, see [QueueOf]. A process works the
// queues of the plans that it has, so versions of a workflow run side by side. The job performs the run until the run ends, waits for a signal,
// or backs off or pauses for more than 5 s. Then the job is completed. If the run is to continue at some time without a signal, a job is
// scheduled for that time. River begins scheduled jobs up to 5 s late.
//
// # Faults
//
// The run has its own timeouts and retries. Its job has no timeout, so River's rescuer leaves it alone. The job is completed even if the run fails. A
// job fails if the run cannot begin, for example because of its options, or if the transaction that gives the job back fails. River's retry policy
// applies then. After 25 failures River discards the job; then the process that looks for runs without a job inserts another one.
//
// A process that dies, or hangs, leaves a job in the state running. The lease of the job's run runs out after 30 s, or after the time that
// [kahn.Lease] sets. Every few seconds one process looks for running jobs whose runs have no lease any more. It discards each of these jobs, and
// inserts another job, with which the run continues. If a process that hung recovers, it cannot write to the run any more.
//
// Every minute one process also looks for due runs without a job in the queue of their plan. It also looks for nodes that wait for a job of a
// [Remote] although the job no longer exists. A run has no job if its job was cancelled or deleted, or if the run became due without a [Client], for
// example by [postgres.Store.Post].
//
// River elects a client of the schema as its leader, and the leader inserts only its own periodic jobs. So each client of the schema that a program
// starts must be configured by [Server.Register] or [Performer.Register]. A Performer without Workflows is enough.
package riverkahn
