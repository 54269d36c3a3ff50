package orders

import "github.com/seed-c794f7ef/kahn/typed"

// A value that nothing takes is an unused variable.
var _ = typed.New("unused", func(b *typed.Block) typed.Val[Order] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	cost := typed.Do1(b, "price", price, order) // want `declared and not used: cost`
	return order
})
