package orders

import "github.com/seed-c794f7ef/kahn/typed"

// A condition is a bool.
var _ = typed.New("condition", func(b *typed.Block) typed.Val[int] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	cost := typed.Do1(b, "price", price, order)
	dear, cheap := typed.If(cost) // want `cannot use cost \(variable of struct type typed.Val\[int\]\) as typed.Val\[bool\] value in argument to typed.If`
	_, _ = dear, cheap
	return cost
})
