package orders

import (
	"context"

	"github.com/seed-c794f7ef/kahn/typed"
)

// The branches of an Either have one type.
var _ = typed.New("branches", func(b *typed.Block) typed.Val[int] {
	then, otherwise := typed.If(typed.Do0(b, "if", func(context.Context) (bool, error) { return true, nil }))
	order := typed.Do1(then, "load", load, typed.Root[string](b, "id"))
	cost := typed.Do0(otherwise, "price", func(context.Context) (int, error) { return 0, nil })
	return typed.Either(b, "either", cost, order) // want `type typed.Val\[Order\] of order does not match inferred type typed.Val\[int\]`
})
