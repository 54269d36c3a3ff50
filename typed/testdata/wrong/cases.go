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

// A case is a constant of the type of the choice.
var _ = typed.New("cases", func(b *typed.Block) typed.Val[Carrier] {
	by := typed.Do0(b, "by", choose)
	sw := typed.Switch(by)
	typed.Do0(sw.Case(Aer), "fly", choose) // want `undefined: Aer`
	typed.Do0(sw.Case(7), "walk", choose)  // want `cannot use 7 \(untyped int constant\) as Carrier value in argument to sw.Case`
	return by
})
