package orders

import "github.com/seed-c794f7ef/kahn/typed"

// The arguments have the order of the parameters.
var _ = typed.New("swapped", func(b *typed.Block) typed.Val[bool] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	cost := typed.Do1(b, "price", price, order)
	return typed.Do2(b, "bill", bill, cost, order) // want `type typed.Val\[int\] of cost does not match inferred type typed.Val\[Order\]`
})
