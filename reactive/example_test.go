package reactive_test

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/reactive"
)

// Signals, a computed and an effect, on their own.
func ExampleScope() {
	sc := new(reactive.Scope)
	price, count := reactive.NewSignal(sc, 3), reactive.NewSignal(sc, 2)
	total := reactive.NewComputed(sc, func(r reactive.Reader) int { return price.Get(r) * count.Get(r) })
	shown, err := reactive.NewEffect(sc, func(w reactive.Writer) { fmt.Println("total", total.Get(w)) })
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = reactive.Batch(sc, func(w reactive.Writer) {
		price.Set(w, 4)
		count.Set(w, 5)
	})
	shown.Dispose()
	_ = price.Store(100)
	// Output:
	// total 6
	// total 20
}
