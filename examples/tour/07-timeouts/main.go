// A timeout bounds each attempt of a step, and a fallback provides an output after the last attempt has failed.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	g := new(kahn.Graph).Add(
		kahn.Node{
			ID:      "price",
			Timeout: 10 * time.Millisecond,
			Retry:   kahn.Retry{MaxAttempts: 2, InitialDelay: time.Millisecond},
			Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
				<-ctx.Done() // a service that never answers
				return nil, ctx.Err()
			},
			Fallback: func(_ context.Context, err error) (any, error) {
				fmt.Println("yesterday's price is used:", err)
				return 99, nil
			},
		},
		kahn.Node{ID: "offer", In: []kahn.Edge{{From: "price", Param: "price"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			price, err := kahn.Param[int](s, "price")
			return price + 20, err
		}},
	)
	res, err := kahn.Execute(context.Background(), g, nil, kahn.Timeout(time.Minute)) // a timeout for the whole run
	if err != nil {
		log.Fatal(err)
	}
	price, _ := res.Node("price")
	fmt.Println(price.Status, price.Output, "attempts:", price.Attempts, "fallback:", price.Fallback)
	fmt.Println(res.Status, res.Output())
}
