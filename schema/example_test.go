package schema_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schema"
)

func Example() {
	g := kahn.Graph{Schemas: schema.Compiler{}}
	g.Add(kahn.Node{ID: "price", OutputSchema: `{
		"type": "object",
		"required": ["amount"],
		"properties": {"amount": {"type": "integer", "minimum": 0}, "currency": {"enum": ["EUR", "USD"]}}
	}`})
	_, err := kahn.Execute(context.Background(), &g, func(context.Context, *kahn.Step) (any, error) {
		return map[string]any{"amount": -5, "currency": "DM"}, nil
	})
	var broken *kahn.ContractError
	if errors.As(err, &broken) {
		for _, v := range broken.Violations {
			fmt.Println(v)
		}
	}
	// Output:
	// /amount: expected at least 0, got -5
	// /currency: expected one of "EUR", "USD", got "DM"
}
