// Package machine is a run as a deterministic machine of numbers: statuses, joins, slots and the ready queue, without a clock, a
// goroutine, a context, a value of the host or a call of its code. A coordinator reports what has happened, and is told what to do next.
//
//   - The vocabulary: [Status], [CauseKind], [SkipKind], the join rules ([Join]), and what a status means for a remote call
//     ([CallAction]). Package kahn has the same names for what a host of Execute writes.
//   - [Net] is the graph: nodes, edges, tiers, side edges, the order. [Build] makes one from lists; a [Builder] makes it in steps, for
//     a compiler that has work of its own between them. The Plan of package kahn holds one.
//   - [State] is one run of a Net. Its methods may be called on any goroutine. kahn.NewState makes one for a Plan. An engine that drives
//     runs elsewhere needs it with [Task], [Token], [Outcome], [CheckVerdict] and the vocabulary, and nothing else of this package.
//   - [Locked] is a State for a coordinator that holds the lock itself, because it does more than one thing in a critical section.
//
// The run of package kahn is a coordinator of a State. An engine that performs steps elsewhere is another:
//
//	for t, ok := st.Next(); ok; t, ok = st.Next() {
//		// have t.Ref performed, and report with t.Token when it has ended:
//		st.Settle(t.Token, machine.Outcome{Status: machine.Completed})
//	}
//
// The same calls in the same order give the same decisions.
package machine
