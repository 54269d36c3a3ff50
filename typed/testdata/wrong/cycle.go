package wrong

import (
	"context"

	"github.com/seed-c794f7ef/kahn/typed"
)

type Order struct{ ID string }

type Carrier string

const Air Carrier = "air"

func load(context.Context, string) (Order, error)    { return Order{}, nil }
func price(context.Context, Order) (int, error)      { return 0, nil }
func bill(context.Context, Order, int) (bool, error) { return true, nil }
func choose(context.Context) (Carrier, error)        { return Air, nil }
func list(context.Context) ([]Order, error)          { return nil, nil }

// A value cannot be taken before it is made.
var _ = typed.New("cycle", func(b *typed.Block) typed.Val[Order] {
	order := typed.Do1(b, "load", func(context.Context, int) (Order, error) { return Order{}, nil }, cost) // want `undefined: cost`
	cost := typed.Do1(b, "price", price, order)
	_ = cost
	return order
})
