package orders

import "github.com/seed-c794f7ef/kahn/typed"

// A value is a variable: a misspelt one does not exist.
var _ = typed.New("misspelt", func(b *typed.Block) typed.Val[int] {
	order := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
	_ = order
	return typed.Do1(b, "price", price, ordre) // want `undefined: ordre`
})
