package orders

import "github.com/seed-c794f7ef/kahn/typed"

// The function of an Each takes an item of the list, and its Items have the same item type.
var _ = typed.New("items", func(b *typed.Block) typed.Val[[]int] {
	orders := typed.Do0(b, "list", list)
	ids, _ := typed.Each(b, "load", orders, load)                            // want `type func\(context.Context, string\) \(Order, error\) of load does not match inferred type func\(context.Context, Order\) \(T, error\)`
	costs, _ := typed.Each(b, "price", orders, price, typed.Items[string]{}) // want `cannot use typed.Items\[string\]\{\} \(value of struct type typed.Items\[string\]\) as typed.Items\[Order\] value in argument to typed.Each|type typed.Items\[string\] of typed.Items\[string\]\{\} does not match`
	_ = ids
	return costs
})
