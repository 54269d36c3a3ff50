package right

import (
	"context"

	"github.com/seed-c794f7ef/kahn/typed"
)

type Order struct{ ID string }

func load(context.Context, string) (Order, error)    { return Order{}, nil }
func price(context.Context, Order) (int, error)      { return 0, nil }
func bill(context.Context, Order, int) (bool, error) { return true, nil }

var Pipeline = typed.New("order", func(b *typed.Block) typed.Val[bool] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	return typed.Do2(b, "bill", bill, order, typed.Do1(b, "price", price, order))
})

func Run(ctx context.Context) (bool, error) { return typed.Run(ctx, Pipeline) }
