package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// placeOrder writes an order and creates its run in one transaction.
func placeOrder(ctx context.Context, s *sqlite.Store, g *kahn.Graph, text string) (run string, err error) {
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // after the commit, Rollback does nothing
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

// A process performs a run. A second Store for the same file, as in another process, reads the events as they are stored.
func Example_events() {
	dir, err := os.MkdirTemp("", "runs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, path := context.Background(), filepath.Join(dir, "runs.db")
	performing, err1 := sqlite.Open(path, sqlite.Options{})
	reading, err2 := sqlite.Open(path, sqlite.Options{})
	if err := errors.Join(err1, err2); err != nil {
		fmt.Println(err)
		return
	}
	g := (&kahn.Graph{Name: "poem"}).Add(kahn.Node{ID: "write", Do: func(_ context.Context, step *kahn.Step) (any, error) {
		step.Emit("Shall I compare thee")
		step.Emit("to a summer's day?")
		return nil, nil
	}})
	n, err := kahn.Prepare(g, kahn.RunID("sonnet-18"))
	if err == nil {
		_, _, err = performing.Create(ctx, n)
	}
	if err != nil {
		fmt.Println(err)
		return
	}

	shown := make(chan error)
	go func() {
		log, err := store.OpenEvents(ctx, reading, "sonnet-18")
		if err != nil {
			shown <- err
			return
		}
		log.Poll = 10 * time.Millisecond
		for e, err := range log.Events(ctx, 0) {
			if err != nil {
				shown <- err
				return
			}
			if delta, ok := e.Payload.(event.Delta); ok {
				fmt.Println(e.ID, e.Path, delta.Chunk)
			} else {
				fmt.Println(e.ID, e.Type)
			}
		}
		shown <- nil
	}()

	_, err = kahn.Execute(ctx, g, nil, kahn.RunID("sonnet-18"), kahn.Durable(performing), kahn.StoreEvents())
	if err := errors.Join(err, <-shown, performing.Close(), reading.Close()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 1 run.started
	// 2 node.queued
	// 3 node.started
	// 4 write Shall I compare thee
	// 5 write to a summer's day?
	// 6 node.completed
	// 7 run.completed
}
