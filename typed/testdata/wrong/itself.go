package orders

import (
	"context"

	"github.com/seed-c794f7ef/kahn/typed"
)

// A node cannot take its own value.
var _ = typed.New("itself", func(b *typed.Block) typed.Val[Order] {
	order := typed.Do1(b, "again", func(_ context.Context, o Order) (Order, error) { return o, nil }, order) // want `undefined: order`
	return order
})
