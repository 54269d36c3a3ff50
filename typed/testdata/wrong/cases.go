package orders

import "github.com/seed-c794f7ef/kahn/typed"

// A case is a constant of the choice's type.
var _ = typed.New("cases", func(b *typed.Block) typed.Val[Carrier] {
	by := typed.Do0(b, "by", choose)
	sw := typed.Switch(by)
	typed.Do0(sw.Case(Aer), "fly", choose) // want `undefined: Aer`
	typed.Do0(sw.Case(7), "walk", choose)  // want `cannot use 7 \(untyped int constant\) as Carrier value in argument to sw.Case`
	return by
})
