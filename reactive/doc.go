// Package reactive keeps values up to date: if a signal changes, the values that are computed from it change too, and effects run.
//
//	var sc reactive.Scope
//	price, count := reactive.NewSignal(&sc, 3), reactive.NewSignal(&sc, 2)
//	total := reactive.NewComputed(&sc, func(r reactive.Reader) int { return price.Get(r) * count.Get(r) })
//	shown, err := reactive.NewEffect(&sc, func(w reactive.Writer) { fmt.Println(total.Get(w)) }) // prints 6
//	err = price.Store(4)                                                                         // prints 8
//	shown.Dispose()
//
// The host sets a [Signal]. The function of a [Computed] computes a value from other values that it reads. If these values have changed, the next
// read of the computed calls the function again. An [Effect] runs when a value that it has read has changed. Each callback gets a tracker, which
// is a [Reader] or a [Writer]. The callback depends on the values that it gets with its tracker. The writes in one [Batch] count as one change.
//
// Callbacks never see inconsistent values, and each effect runs at most once for a batch. If the new value of a computed equals the old value, its
// dependents do not run. The cost of a change is proportional to the affected part of the dependency graph: the change visits each edge once, and
// causes only necessary callbacks to run. While the dependencies stay the same, nothing is allocated.
//
// Signals that change together belong to a [Scope], which has one lock. The package starts no goroutines: callbacks run on the goroutine
// that caused the change.
package reactive
