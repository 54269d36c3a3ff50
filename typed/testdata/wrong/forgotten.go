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

// An input that is not given is a missing argument.
var _ = typed.New("forgotten", func(b *typed.Block) typed.Val[bool] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	return typed.Do2(b, "bill", bill, order) // want `not enough arguments in call to typed.Do2`
})
