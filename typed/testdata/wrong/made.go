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

// Only nodes and inputs make values.
var _ = typed.New("made", func(b *typed.Block) typed.Val[int] {
	return typed.Val[int]{src: nil} // want `unknown field src in struct literal of type typed.Val\[int\]|cannot refer to unexported field src`
})
