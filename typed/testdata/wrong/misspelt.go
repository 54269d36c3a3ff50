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

// A value is a variable: a misspelt one does not exist.
var _ = typed.New("misspelt", func(b *typed.Block) typed.Val[int] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	_ = order
	return typed.Do1(b, "price", price, ordre) // want `undefined: ordre`
})
