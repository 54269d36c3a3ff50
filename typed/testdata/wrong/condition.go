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

// A condition is a bool.
var _ = typed.New("condition", func(b *typed.Block) typed.Val[int] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	cost := typed.Do1(b, "price", price, order)
	dear, cheap := typed.If(cost) // want `cannot use cost \(variable of struct type typed.Val\[int\]\) as typed.Val\[bool\] value in argument to typed.If`
	_, _ = dear, cheap
	return cost
})
