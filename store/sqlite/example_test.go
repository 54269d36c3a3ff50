package sqlite_test

import (
	"context"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// placeOrder writes an order and creates its run in one transaction: neither is there without the other.
func placeOrder(ctx context.Context, s *sqlite.Store, g *kahn.Graph, text string) (run string, err error) {
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	var number int64
	if err := tx.QueryRowContext(ctx, "INSERT INTO orders (text) VALUES (?) RETURNING number", text).Scan(&number); err != nil {
		return "", err
	}
	n, err := kahn.Prepare(g, kahn.RunID(fmt.Sprint("order-", number)), kahn.Inputs(map[string]any{"order": number}))
	if err != nil {
		return "", err
	}
	if _, _, err := s.CreateTx(ctx, tx, n); err != nil {
		return "", err
	}
	return n.ID, tx.Commit()
}

func ExampleStore_CreateTx() {
	ctx := context.Background()
	s, err := sqlite.Open(":memory:", sqlite.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := s.Close(); err != nil {
			fmt.Println(err)
		}
	}()
	if _, err := s.DB().ExecContext(ctx, "CREATE TABLE orders (number INTEGER PRIMARY KEY, text TEXT)"); err != nil {
		fmt.Println(err)
		return
	}
	g := (&kahn.Graph{Name: "order"}).Add(kahn.Node{ID: "ship", Do: func(_ context.Context, step *kahn.Step) (any, error) {
		order, err := kahn.Root[int64](step, "order")
		return fmt.Sprint("order ", order, " is shipped"), err
	}})
	id, err := placeOrder(ctx, s, g, "a chair")
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := kahn.Execute(ctx, g, nil, kahn.RunID(id), kahn.Durable(s))
	if err != nil {
		fmt.Println(err)
		return
	}
	n, _ := res.Node("ship")
	fmt.Println(id, n.Output)
	// Output: order-1 order 1 is shipped
}
