package orders

import "github.com/seed-c794f7ef/kahn/typed"

// The compensation takes another type than its node's value.
var _ = typed.New("undo", func(b *typed.Block) typed.Val[bool] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	cost := typed.Do1(b, "price", price, order).Compensate(typed.Undo1(unbill, order))   // want `cannot use typed.Undo1\(unbill, order\) \(value of struct type typed.Undo\[bool\]\) as typed.Undo\[int\] value`
	return typed.Do2(b, "bill", bill, order, cost).Compensate(typed.Undo1(unbill, cost)) // want `type typed.Val\[int\] of cost does not match inferred type typed.Val\[Order\]`
})
