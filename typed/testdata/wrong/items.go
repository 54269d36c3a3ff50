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

// The function of an Each takes an item of the list, and its keys are those of such items.
var _ = typed.New("items", func(b *typed.Block) typed.Val[[]int] {
	orders := typed.Do0(b, "list", list)
	ids, _ := typed.Each(b, "load", orders, load)                            // want `type func\(context.Context, string\) \(Order, error\) of load does not match inferred type func\(context.Context, Order\) \(T, error\)`
	costs, _ := typed.Each(b, "price", orders, price, typed.Items[string]{}) // want `cannot use typed.Items\[string\]\{\} \(value of struct type typed.Items\[string\]\) as typed.Items\[Order\] value in argument to typed.Each|type typed.Items\[string\] of typed.Items\[string\]\{\} does not match`
	_ = ids
	return costs
})
