// A report is written every night at half past two in Berlin. The program also writes the reports of three past nights. In one of these nights,
// clocks went back and half past two came twice; the program writes only one report for that night.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
)

func main() {
	ctx := context.Background()
	ticks := make(chan string)
	report := (&kahn.Graph{Name: "report"}).Add(kahn.Node{ID: "write", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		tick, err := kahn.Root[string](s, "tick")
		ticks <- tick
		return nil, err
	}})

	var runner kahn.Runner
	service := kahn.Service{Store: new(store.Memory), Workflows: []kahn.Workflow{{Graph: report}}} // use a database if several processes serve the schedule
	s, err := schedule.New(&runner, service, schedule.Schedule{Name: "report", Cron: "30 2 * * *", Zone: "Europe/Berlin"})
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }() // instead of runner.Serve

	made := time.Date(2025, 10, 25, 0, 0, 0, 0, time.UTC)
	var created []string
	for {
		created, err = s.Backfill(ctx, "report", made, made.AddDate(0, 0, 3))
		// Until Serve has written the schedule, Backfill returns ErrUnknownSchedule, and the program tries again.
		if !errors.Is(err, schedule.ErrUnknownSchedule) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(created)
	var written []string
	for range created {
		written = append(written, <-ticks)
	}
	slices.Sort(written)
	fmt.Println(written)

	list, err := s.List(ctx, 1, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(list[0].Name, "continues tonight:", time.Until(list[0].Next[0]) <= 25*time.Hour)
	if err := runner.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
}
