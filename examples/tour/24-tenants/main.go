// A tenant with one run does not wait for all the runs of a tenant with many. The key of a run is its tenant, and the keys of the due runs take
// turns. The program examples/tenants shows more limits for tenants.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

func main() {
	ctx := context.Background()
	done := make(chan string)
	report := (&kahn.Graph{Name: "report"}).Add(kahn.Node{ID: "write", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		done <- s.RunID()
		return nil, nil
	}})

	var db store.Memory // use a database if several processes share the runs
	create := func(id, tenant string, priority int) {
		run, err := kahn.Prepare(report, kahn.RunID(id), kahn.RunKey(tenant), kahn.RunPriority(priority))
		if err == nil {
			_, _, err = db.Create(ctx, run)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	for i := range 4 {
		create(fmt.Sprint("acme-", i), "acme", 0)
	}
	create("globex-0", "globex", 0)
	create("acme-urgent", "acme", 1) // this run begins before acme's other runs; globex still gets its turn

	runner := &kahn.Runner{MaxRuns: 1} // one run at a time, so that the output shows the order
	served := make(chan error)
	go func() {
		served <- runner.Serve(ctx, kahn.Service{Store: &db, KeyRuns: 1, Workflows: []kahn.Workflow{{Graph: report}}})
	}()
	for range 6 {
		fmt.Println(<-done)
	}
	if err := runner.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
}
