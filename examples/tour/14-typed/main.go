// With package typed, the result of one Go function is an argument of the next. The compiler checks these connections: it rejects a misspelt
// or forgotten input, a cycle, and a value of the wrong type.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/typed"
)

type order struct {
	ID    string
	Items []string
	Cents int
}

func load(_ context.Context, id string) (order, error) {
	return order{id, []string{"apple", "stone", "pear"}, 12000}, nil
}
func items(_ context.Context, o order) ([]string, error) { return o.Items, nil }
func isDear(_ context.Context, o order) (bool, error)    { return o.Cents > 10000, nil }
func insure(_ context.Context, o order) (string, error)  { return "an insured parcel", nil }
func wrap(_ context.Context, o order) (string, error)    { return "a parcel", nil }
func pick(_ context.Context, item string) (string, error) {
	if item == "stone" {
		return "", errors.New("we do not sell stones")
	}
	return "picked " + item, nil
}
func receipt(_ context.Context, o order, parcel string, picked []string, errs []error) (string, error) {
	return fmt.Sprintf("order %s: %s with %q, problems: %v", o.ID, parcel, picked, errors.Join(errs...)), nil
}

func main() {
	checkout := typed.New("checkout", func(b *typed.Block) typed.Val[string] {
		o := typed.Do1(b, "load", load, typed.Root[string](b, "id"))
		dear, cheap := typed.If(typed.Do1(b, "dear?", isDear, o))
		parcel := typed.Either(b, "parcel", typed.Do1(dear, "insure", insure, o), typed.Do1(cheap, "wrap", wrap, o))
		picked, errs := typed.Each(b, "pick", typed.Do1(b, "items", items, o), pick, typed.Items[string]{ToleratedCount: 1})
		return typed.Do4(b, "receipt", receipt, o, parcel, picked, errs)
	})
	text, err := typed.Run(context.Background(), checkout, kahn.Inputs(map[string]any{"id": "7"}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
}
