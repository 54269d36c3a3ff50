package orders

import (
	"context"

	"github.com/seed-c794f7ef/kahn/typed"
)

// The result has the type of the pipeline.
var p = typed.New("result", func(b *typed.Block) typed.Val[int] {
	return typed.Do1(b, "load", load, typed.Root[string](b, "id")) // want `cannot use typed.Do1\(.*\) \(value of struct type typed.Val\[Order\]\) as typed.Val\[int\] value in return statement`
})

func run(ctx context.Context) (string, error) {
	return typed.Run(ctx, p) // want `cannot use typed.Run\(ctx, p\) \(value of type int\) as string value in return statement`
}
