// Package machine decides what a run does next: a coordinator reports events, and the State answers which nodes are ready.
//
//	st, err := kahn.NewState(plan) // or New, for a Net that you have built
//	for t, ok := st.Next(); ok; t, ok = st.Next() {
//		// perform the node t.Ref, here or elsewhere, and report its outcome with t.Token:
//		st.Settle(t.Token, machine.Outcome{Status: machine.Completed})
//	}
//	status, degraded := st.RunStatus(machine.StatusEscaped)
//
// The State is a deterministic state machine: it holds statuses, joins, slots and the ready queue. It has no clock, goroutine or context.
// It does not hold the values that steps return, and does not call steps. The same calls in the same order give the same decisions. The run
// of package kahn is one coordinator; an engine that performs steps elsewhere is another.
//
// The exported names, by task, are:
//
//   - The vocabulary: [Status], [CauseKind], [SkipKind], the join rules ([Join]), and what a status means for a remote call ([CallAction]).
//     Package kahn has the same names, for programs that call Execute.
//   - The graph: [Net] has the nodes, edges, tiers, side edges and the order. [Build] makes a Net from lists; a [Builder] makes it step by
//     step, for a compiler that works between the steps. The Plan of package kahn holds a Net.
//   - The run: [State] is one run of a Net. Its methods may be called on any goroutine. kahn.NewState makes a State for a Plan. An engine
//     that drives runs elsewhere needs only State, [Task], [Token], [Outcome], [CheckVerdict] and the vocabulary.
//   - The lock: [Locked] is a State whose lock the coordinator holds, so that the coordinator can do several things in one critical
//     section.
package machine
