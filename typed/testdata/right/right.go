package orders

import (
	"context"

	"github.com/seed-c794f7ef/kahn/typed"
)

var Pipeline = typed.New("order", func(b *typed.Block) typed.Val[bool] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	return typed.Do2(b, "bill", bill, order, typed.Do1(b, "price", price, order)).Compensate(typed.Undo1(unbill, order))
})

func Run(ctx context.Context) (bool, error) { return typed.Run(ctx, Pipeline) }
