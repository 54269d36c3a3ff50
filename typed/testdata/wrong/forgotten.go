package orders

import "github.com/seed-c794f7ef/kahn/typed"

// An input that is not given is a missing argument.
var _ = typed.New("forgotten", func(b *typed.Block) typed.Val[bool] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	return typed.Do2(b, "bill", bill, order) // want `not enough arguments in call to typed.Do2`
})
