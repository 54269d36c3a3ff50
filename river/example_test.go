package riverkahn_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store/postgres"
)

// One process creates a run of a workflow, and performs it.
func ExamplePerformer() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	s, err := postgres.Open(ctx, pool, postgres.Options{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close() }()

	graph := (&kahn.Graph{Name: "order"}).Add(kahn.Node{ID: "pay"}, kahn.Node{ID: "ship", After: []string{"pay"}})
	step := func(_ context.Context, s *kahn.Step) (any, error) { return s.ID() + " done", nil }

	p := &riverkahn.Performer{
		Store:     s,
		Workflows: []riverkahn.Workflow{{Graph: graph, Step: step}},
		Retention: []riverkahn.Retention{{For: 30 * 24 * time.Hour}},
	}
	config := &river.Config{}
	if err := p.Register(config); err != nil {
		panic(err)
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		panic(err)
	}
	if err := p.Start(ctx, client); err != nil {
		panic(err)
	}
	defer func() { _ = p.Stop(ctx, client) }()

	n, err := kahn.Prepare(graph, kahn.RunID("order-17"))
	if err != nil {
		panic(err)
	}
	c := riverkahn.Client{Store: s, River: client}
	stored, created, err := c.Create(ctx, n, riverkahn.CreateOptions{})
	fmt.Println(stored, created, err)
}
