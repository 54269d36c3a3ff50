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
//   - To perform runs: [Performer], [Workflow], [Retention]. [RunArgs] are the arguments of a run's job, and [QueueOf] returns the job's queue.
//   - To create and steer runs: [Client] with [CreateOptions] and [PriorityLabel]. [Client.Post] stores a signal, a cancel or a redrive, with which
//     the run continues.
//   - To perform steps on other machines: [Remote] sends the steps, [Server] performs them, and [KindQueue] returns their queue.
//   - To post requests and wake runs from SQL: [Functions].
//
// The store keeps the state of runs. River keeps the queues: it decides which process performs a run, when, and in which order. Create River's
// tables with package rivermigrate or with River's command.
//
// # The job of a run
//
// A run has at most one job that has not ended. The job names the run, and is in the queue of the run's plan, see [QueueOf]. A process works the
// queues of its own Workflows' plans, so versions of a workflow run side by side. The job performs the run until the run ends, waits for a signal,
// or backs off or pauses for more than 5 s. Then the process completes the job. If the run continues later without a signal, the process also
// schedules the next job for that time. River begins scheduled jobs up to 5 s late.
//
// # Faults
//
// The run has its own timeouts and retries. Its job has no timeout, so River's rescuer leaves it alone. The job is completed even if the run fails. A
// job fails if the run cannot begin, for example because of its options, or if the transaction that completes the job fails. River then retries the
// job. After 25 failures River discards the job, and the process that looks for runs without a job inserts another one.
//
// If a process dies or hangs, its jobs stay in the state running. The leases of the jobs' runs run out after 30 s, or after the time that
// [kahn.Lease] sets. Every few seconds one process looks for running jobs whose runs have no lease any more. It replaces each of these jobs by a
// new job, with which the run continues. If the process that hung recovers, it cannot write to the run any more.
//
// Every minute one process looks for due runs without a job in the queue of their plan, and inserts the job. For example, the job was cancelled or
// deleted, or the program called [postgres.Store.Post] instead of [Client.Post]. The process also looks for nodes that wait for a job of a [Remote]
// although the job is gone, and fails their attempts.
//
// River elects one of the clients of its schema as the leader. The leader inserts only the periodic jobs of its own configuration. So a program must
// configure each client that it starts with [Server.Register] or [Performer.Register]. A Performer without Workflows is enough.
package riverkahn
