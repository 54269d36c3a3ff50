// Package kahn executes a directed acyclic graph of steps inside the process of its host. It offers the rules of a workflow engine, at a few
// times the cost of a hand-written loop.
//
//	var g kahn.Graph
//	g.Add(
//		kahn.Node{ID: "fetch", Kind: "http", Retry: kahn.Retry{MaxAttempts: 3}, Timeout: 5 * time.Second},
//		kahn.If("ok?", func(v kahn.View) (bool, error) { return v.Status("fetch") != kahn.Failed, nil }, "fetch"),
//		kahn.Node{ID: "store", Kind: "sql", In: []kahn.Edge{{From: "ok?", Label: "true"}, {From: "fetch", Param: "rows"}}},
//		kahn.Node{ID: "alert", Kind: "mail", In: []kahn.Edge{{From: "ok?", Label: "false"}}},
//	)
//	res, err := kahn.Execute(ctx, &g, kahn.Mux{"http": doHTTP, "sql": doSQL, "mail": doMail}.Step, kahn.Limit(8))
//
// # Six words
//
// A [Graph] is plain data: nodes and edges. A [Plan] is a compiled Graph: validated, numbered and immutable. A [StepFunc] is the host's function
// that performs one attempt of one node. A [Run] is one execution: its State, its workers and its events. A [machine.State] is the reactive core:
// it knows the status of every node, and which nodes are ready or blocked by a failure. The reactive core drives the run: it announces which nodes
// are ready, and workers or a host act on the announcement, see [machine.State.Drive]. An [Event] reports one fact about a run. The events of a run
// have one total order.
//
//	Graph --Compile--> Plan --Start--> Run --Wait--> Result
//	                                   |  \
//	                    StepFunc <---- State  ----> Events
//
// # The names to learn first
//
// Fifteen names are enough for most programs: [Graph], [Node] and [Edge]; [Execute], with a [StepFunc] or a [Mux]; [Step] and [Param], with
// which a step gets its inputs; [If] and [Switch]; [Retry] and [Permanent]; [Limit]; [Result] and [Output].
//
// The other names are listed by task. If a function returns an [Option], its result can be passed to Execute.
//
//   - Graphs and plans: [Defaults], [Port], [Input], [Group], [Plan], [Plan.Edges]; [GraphError], [Problem].
//   - Pipelines whose wiring the compiler checks: package typed.
//   - Branches, joins and failures: [On], [Join] and its rules, [AtLeast], [SkipCascade], [UpstreamAbort], [Handling],
//     [NoMatch]; [FailureMode], [StatusRule], [EndVerdict], [AbortRun], [Skip].
//   - Guards and conditions: [View]; as texts [Expression], [Truthy], [GuardPolicy].
//   - Data: [Inputs], [Upstream], [Root], [Outputs], [Graph.RegisterMerge], [Contribution], [CloneInputs], [UpstreamItems],
//     [OutputItems]; [InputError].
//   - Graphs within graphs: Node.Sub, [Map], [MapError], [Loop], [LoopLimit], [Expand]; [KindTrigger], [Fire], [PruneMode].
//   - Functions around steps: [StepOf], [Use], [Around], [PerRun], [Memo], [Refresh], [File] and [FileRef], [Kinds].
//   - Limits and order: [KeyLimit], [Rate], [KeyRate], [RateLimited], [Mode], [Estimates], [History].
//   - Undoing: Node.Compensate, [CompensateBy], [NoEffect], [Step.Compensated], [Step.Compensating], [Compensation], [Undoing],
//     [Run.Compensation].
//   - Time: [Timeout], [NoTimeout], [CleanupTimeout], [CancelGrace], [CancelWithContext]; [RetryStandard], [RetryJittered],
//     [Jitter], [Random].
//   - Waiting for people and machines: [Gate], [GateTimeout], [Suspend], [SuspendUntil], [SuspendFor], [AwaitRun], [SuspendMode], [Run.Signal],
//     [Decision], [View.Decision], [EarlySignals], [Run.Waiting], [Wait], [ChoiceError].
//   - Stopping: [Run.Cancel], [Run.AbortAll], [Run.Leave], [StopMode], [Request].
//   - Usage and labels: [Step.Use], [Usage], [UsageInputTokens], [UsageOutputTokens], [Run.Usage], [Result.Usage], [Budget], [ErrBudget];
//     [Step.SetLabel], [Run.Labels].
//   - Results and causes: [Status], [RunStatus], [NodeResult], [Attempt], [Cause], [CauseKind], [event.SkipReason], [machine.SkipKind];
//     [RunError], [NodeError], [UpstreamError], [PanicError].
//   - Continuing later or elsewhere: [Snapshot], [SnapshotNode], [Resume], [AllowGraphChange]; [Redrive], [RedrivePreview], [RedriveMode];
//     [Fork], [ForkPreview]; [Codec], [Encoding], [Types].
//   - Surviving a crash: [Durable], [Lease], [MaxCrashes], [StoreEvents], [ReadSnapshot],
//     [ReadResult], [ReadRun], [StoredRun], [LastSign]; package store.
//   - Runs that other processes perform, and how to find them: [Prepare], [PrepareSignal], [PrepareRedrive], [Describe], [RunKey],
//     [RunPriority]; store.Admin, store.Inbox.
//   - Continuing with another version of a graph: [Adopt], [AdoptSnapshot], [AdoptPreview], [Adoption], [AdoptNode].
//   - Many runs of a store at once: [Plan.Enqueue]; package bulk.
//   - Many runs: [Runner], [Shared], [Runner.Watch], [RunChange], [Runner.Redrive], [Runner.Serve], [Service], [Workflow], [RunID],
//     [Idempotent], [IdempotencyStore], [IdempotencyKey].
//   - Following runs: [OnEvent], [LogTo], [Event] and package event, [Start], [Run] and [Run.Events], [Retain], [EventOutputs], [TraceID],
//     [OnNode], [Run.WaitFor], [Run.Watch]; packages metrics, trace and profile.
//   - Looking into a running run: [Run.Counts], [Run.Node], [Run.Nodes], [Run.Inside], [Inside], [Run.Inputs],
//     [PathError]; [Run.Why], [Why], [WhyKind], [Bound]; [Run.Forecast], [Forecast], [Run.Estimate].
//   - Judging inputs and outputs: [Contract], [Violation], [ContractError]; [Moderate],
//     [Moderation], [Flag], [ModerationError]; [event.Phase].
//   - Testing: [TestMode], [Mock], [OnMissing], [Assertion], [Assert], [AssertStatus], [AssertSkip], [AssertError], [AssertCompensation],
//     [AssertCalls], [AssertOutput]; [TestSummary], [TestNode]; package
//     kahntest.
//   - Driving a run from elsewhere: [Coordinator], [NewCoordinator], [ExpandedGraphs], [GraphCalls], [Call], [Predecessor], [NewStep], [Reply];
//     [ViewData], [NodeData], [NewView]; [CauseOf], [Retry.Next].
//   - Driving a run by hand: [NewState], [RestoreState], [Values], [Plan.Check], [Plan.Inputs],
//     [Plan.Evaluate], [Plan.Conclude]; packages machine and reactive, with [machine.State], [machine.State.Drive],
//     [machine.Task], [machine.Outcome].
//
// # Edges resolve, nodes decide
//
// A node never looks at its predecessors. Every in-edge resolves exactly once, when its source is terminal, into one of four classes: satisfied,
// neutral (the source was skipped), dead (the outcome of the source selects other edges), or failed. A join rule, [AllSucceeded] by default,
// counts the edges in each class, and decides once whether the node becomes ready, is skipped, or is blocked by a failure. The upstream policy of a
// blocked node decides whether the node is aborted, skipped, failed or run with defaults.
//
//	            guard, inputs            slot free            returned
//	idle/waiting ------------> ready -------------> running -----------> completed
//	     |                       ^                     |
//	     |                       +---- retrying <------+ failed, another attempt granted
//	     +--> skipped | aborted | cancelled | failed
//
// Final statuses do not depend on timing. For the same graph and the same outcomes of steps, they are the same in [Eager] and
// [Waves] mode, under every [Limit], and in any order of completion. The exception is a [FailureMode] that stops work early.
//
// # Branches and data
//
// A node is on a branch if a labelled edge or a catch edge (see [OnFailure]) leads to it. This node runs only if the branch is taken. A plain edge
// to the node only delivers data: if it could make the node run, the label would have no effect. For example, in "fetch; if there are rows:
// store(rows)" a plain edge delivers the rows, and in "refund(order) if charge failed" a plain edge delivers the order. These edges are side edges,
// which [Plan.Edges] marks. A side edge delays the node, and blocks the node if the source of the edge fails. But it does not make the node run.
//
// A plain edge is no side edge if it comes from another branch of the same condition, directly or through other nodes. Then it can make the node
// run. For example, in "if x: prepare; then store" two edges lead to the node "store": the edge of the branch "false", and a plain edge from
// the node "prepare", which is on the branch "true".
//
// These rules hold for the join rules [AllSucceeded] and [Boundary]. Under Boundary, however, a side edge does not block the node. The other join
// rules count a side edge like any other edge.
//
// The usual rules apply to the nodes after the first node of a branch. Suppose that plain edges lead from X and A to T, and that X is on a branch
// that was not taken. Then T runs after A alone. But if T has [SkipStrict], or a required port that X feeds, T is skipped.
//
// # Failure
//
// A failed node failed by itself. An aborted node was stopped, or never started, because of a failure elsewhere in the run. A cancelled node was
// stopped, or never started, on request. A skipped node was not on the chosen path. A failure is handled when a later node that accepts failures
// has run: an error boundary ([If], [Switch]), the target of a catch edge ([OnFailure]), or a node whose join rule tolerates failure. If a run had
// failures and all of them were handled, the run completes and is Degraded. A single unhandled failure fails the run. Cleanup nodes and the end node
// always run, and do not handle failures.
//
// # Undoing what was done
//
// The function Compensate of a node undoes the effects of the node. A run undoes its nodes if the run is about to end failed, cancelled or timed
// out. The undoing begins when all nodes except cleanup nodes and the end node have ended. Cleanup nodes and the end node run afterwards, unless
// they began earlier. Compensate is called for a node that completed. It is also called for a node that began and then failed or was stopped,
// because this node may have had an effect. But it is not called if each attempt of this node returned [NoEffect]. The successors of a node are
// undone before the node. Independent nodes are undone at the same time. If all failures of a run were handled, the run undoes only its failed
// nested runs, iterations and items.
//
// The first stop of a run does not interrupt a compensation, but a later call of [Run.AbortAll] does. A compensation that fails permanently fails the
// run with [CauseCompensationFailed]. If the run has a store and its process dies, the process that continues the run also continues the undoing. A
// [Redrive] performs undone nodes again, under another [Step.IdempotencyKey].
//
// # How to test a graph
//
// The option [TestMode] runs a graph with mocks instead of steps. The graph's joins, guards, conditions, merges and policies apply, and gates do
// not wait. [Result].Test lists the mocked nodes, the uncovered nodes and the failed assertions:
//
//	res, err := kahn.Execute(ctx, g, step, kahn.TestMode{
//		OnMissing: kahn.MissingStub, // steps without a mock complete with nothing
//		Mocks: map[string]kahn.Mock{
//			"fetch":  {Value: rows},
//			"charge": {Sequence: []kahn.Mock{{Err: errBusy}, {Value: receipt}}}, // the second attempt succeeds
//		},
//		Assertions: []kahn.Assertion{
//			kahn.AssertStatus("ship", kahn.Completed),
//			kahn.AssertSkip("refund", kahn.SkipConditionBranch),
//		},
//	})
//
// Package kahntest is for tests in Go. It provides step functions that follow a script and record their calls, and functions that compare all
// statuses of a run in one line. It can run a test in fake time, in which backoffs take no time. It also checks that the events of a run follow the
// rules.
//
// # Guarantees
//
// Execute returns when the run has ended, is suspended or was left, and every goroutine of the run has returned. Execute abandons attempts and sinks
// that do not return in time (see [CancelGrace]), and the [Result] names them. A panic or a runtime.Goexit in a step fails only the attempt, and
// never reaches the host. kahn holds no lock while it calls user code. Nothing depends on map iteration order. The work of a run is linear in its
// nodes and edges, and the stack depth is constant. Several runs may use the same Graph or Plan at once.
//
// # Waiting, and continuing elsewhere
//
// A gate (see [KindGate]) and a step that returns [Suspend] wait for a signal from outside. While they wait, they hold neither a slot nor a
// goroutine. If nothing is left to do but wait, the run is suspended. A suspended [Run] from [Start] stays in memory until [Run.Signal] continues it.
// [Execute] does not wait: it returns a [Result] with a [Snapshot], and [Resume] continues the run from the Snapshot in any process. [Redrive]
// performs failed nodes again. With a [store.Store] every completion is a transaction. If a process crashes, a process that starts the run again
// continues the run from the last transaction.
//
// # What it is not
//
// kahn does not distribute work, and it is not a scheduler: it runs a graph immediately, in this process. In a run that is continued after a crash,
// steps are called at least once, not exactly once. Steps are not sandboxed: a step that ignores its context is abandoned, not killed.
package kahn
