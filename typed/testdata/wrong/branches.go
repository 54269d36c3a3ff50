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

// The branches of an Either have one type.
var _ = typed.New("branches", func(b *typed.Block) typed.Val[int] {
	then, otherwise := typed.If(typed.Do0(b, "if", func(context.Context) (bool, error) { return true, nil }))
	order := typed.Do1(then, "load", load, typed.Root[string](b, "id"))
	cost := typed.Do0(otherwise, "price", func(context.Context) (int, error) { return 0, nil })
	return typed.Either(b, "either", cost, order) // want `type typed.Val\[Order\] of order does not match inferred type typed.Val\[int\]`
})
