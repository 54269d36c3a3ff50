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
// It does not hold the values that steps return, and does not call steps. The same calls in the same order lead to the same decisions. The Run
// of package kahn is one coordinator. An engine that performs steps elsewhere can be another.
//
// The exported names, by task, are:
//
//   - The vocabulary: [Status], [CauseKind], [SkipKind], the join rules ([Join]), and what a status means for a remote call ([CallAction]).
//     Package kahn has most of these names too, for programs that call Execute.
//   - The graph: a [Net] holds the nodes, the edges, the tiers, the side edges and the order in which ready nodes start. [Build] makes a Net
//     from lists. A [Builder] makes it step by step, for a compiler that works between these steps. The Plan of package kahn holds a Net.
//   - The run: a [State] is one run of a Net. Any goroutine may call its methods. kahn.NewState makes a State for a Plan. An engine that
//     performs steps elsewhere needs only State, [Task], [Token], [Outcome], [CheckVerdict] and the vocabulary.
//   - The lock: a [Locked] is a State whose lock the coordinator holds. With a Locked the coordinator can do several things in one critical
//     section.
package machine
