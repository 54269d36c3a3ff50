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

// What is tried is a value or an error, and not a value.
var _ = typed.New("tried", func(b *typed.Block) typed.Val[int] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	return typed.Do1(b, "price", price, typed.Try(b, "tried", order)) // want `typed.Val\[typed.Tried\[Order\]\]. of typed.Try\(.*\) does not match inferred type typed.Val\[Order\]|type typed.Val\[typed.Tried\[Order\]\] of typed.Try\(.*\) does not match`
})
