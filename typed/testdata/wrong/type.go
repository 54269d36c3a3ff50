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

// The parameters of the function and the values have the same types.
var _ = typed.New("type", func(b *typed.Block) typed.Val[int] {
	id := typed.Root[string](b, "id")
	return typed.Do1(b, "price", price, id) // want `type typed.Val\[string\] of id does not match inferred type typed.Val\[Order\]`
})
