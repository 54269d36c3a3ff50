package orders

import (
	"context"

	"github.com/seed-c794f7ef/kahn/typed"
)

// A value cannot be taken before it is made.
var _ = typed.New("cycle", func(b *typed.Block) typed.Val[Order] {
	order := typed.Do1(b, "load", func(context.Context, int) (Order, error) { return Order{}, nil }, cost) // want `undefined: cost`
	cost := typed.Do1(b, "price", price, order)
	_ = cost
	return order
})
