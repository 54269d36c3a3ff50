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

// Nor can it be taken by itself.
var _ = typed.New("itself", func(b *typed.Block) typed.Val[Order] {
	order := typed.Do1(b, "again", func(_ context.Context, o Order) (Order, error) { return o, nil }, order) // want `undefined: order`
	return order
})
