// Package reactive has signals, values computed from them, and effects, for Go.
//
//	var sc reactive.Scope
//	price, count := reactive.NewSignal(&sc, 3), reactive.NewSignal(&sc, 2)
//	total := reactive.NewComputed(&sc, func(r reactive.Reader) int { return price.Get(r) * count.Get(r) })
//	shown, err := reactive.NewEffect(&sc, func(w reactive.Writer) { fmt.Println(total.Get(w)) })
//
// A [Signal] is a value that its holder sets. A [Computed] is calculated from what it reads, when somebody asks and something
// that it has read has changed. An [Effect] runs when something that it has read has changed. Dependencies are found by reading:
// callbacks get a tracker, a [Reader] or a [Writer], and what they read with it is what they depend on. Several writes in a
// [Batch] are one change.
//
// Nobody ever sees a combination of values that never was, everything runs at most once for a batch, and a computed that comes
// out as it was before stops the change there. A change costs what it touches: each edge of the graph of dependencies is
// visited once, no callback runs that need not, and nothing is allocated when the dependencies stay what they were.
//
// Signals that change together belong to a [Scope], which has one lock. There is no goroutine: callbacks run on the goroutine
// that caused the change.
package reactive
