// Package reactive keeps values up to date: when a signal is set, all values computed from it are updated, and effects run.
//
//	var sc reactive.Scope
//	price, count := reactive.NewSignal(&sc, 3), reactive.NewSignal(&sc, 2)
//	total := reactive.NewComputed(&sc, func(r reactive.Reader) int { return price.Get(r) * count.Get(r) })
//	shown, err := reactive.NewEffect(&sc, func(w reactive.Writer) { fmt.Println(total.Get(w)) }) // prints 6
//	err = price.Store(4)                                                                         // prints 8
//	shown.Dispose()
//
// The host sets a [Signal]. A [Computed] is computed from the values that its function reads. The function is called again when the computed is
// read after a change of these values. An [Effect] runs when a value that it has read has changed. Callbacks get a tracker, a [Reader] or a
// [Writer], and depend on the values that they read with it. The writes in one [Batch] count as one change.
//
// Callbacks never see inconsistent values, and each callback runs at most once for a batch. A change does not spread beyond a computed whose
// value stays the same. The cost of a change is proportional to the affected part of the dependency graph: each edge is visited once, and only
// necessary callbacks run. While the dependencies stay the same, nothing is allocated.
//
// Signals that change together belong to a [Scope], which has one lock. The package starts no goroutines: callbacks run on the goroutine
// that caused the change.
package reactive
