// Package orders has the steps of the pipelines in the folders beside this file. Each pipeline is checked together with this file only.
package orders

import "context"

type Order struct{ ID string }

type Carrier string

const Air Carrier = "air"

func load(context.Context, string) (Order, error)    { return Order{}, nil }
func price(context.Context, Order) (int, error)      { return 0, nil }
func bill(context.Context, Order, int) (bool, error) { return true, nil }
func choose(context.Context) (Carrier, error)        { return Air, nil }
func list(context.Context) ([]Order, error)          { return nil, nil }

func unbill(context.Context, Order, bool) error { return nil }
