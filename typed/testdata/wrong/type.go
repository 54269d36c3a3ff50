package orders

import "github.com/seed-c794f7ef/kahn/typed"

// The parameters of the function and the values have the same types.
var _ = typed.New("type", func(b *typed.Block) typed.Val[int] {
	id := typed.Root[string](b, "id")
	return typed.Do1(b, "price", price, id) // want `type typed.Val\[string\] of id does not match inferred type typed.Val\[Order\]`
})
