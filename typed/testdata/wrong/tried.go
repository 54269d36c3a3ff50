package orders

import "github.com/seed-c794f7ef/kahn/typed"

// A Tried is a value or an error, not a plain value.
var _ = typed.New("tried", func(b *typed.Block) typed.Val[int] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	return typed.Do1(b, "price", price, typed.Try(b, "tried", order)) // want `typed.Val\[typed.Tried\[Order\]\]. of typed.Try\(.*\) does not match inferred type typed.Val\[Order\]|type typed.Val\[typed.Tried\[Order\]\] of typed.Try\(.*\) does not match`
})
