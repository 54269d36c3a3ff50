// If a step fails, kahn can call it again, after pauses that grow. A step marks its error as permanent if another attempt would fail, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	policy := kahn.Retry{MaxAttempts: 4, InitialDelay: 5 * time.Millisecond, Jitter: kahn.JitterNone}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "busy", Retry: policy, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			if s.Attempt() < 3 {
				return nil, errors.New("connection refused")
			}
			return "an answer", nil
		}},
		kahn.Node{ID: "locked", Retry: policy, Do: func(context.Context, *kahn.Step) (any, error) {
			return nil, kahn.Permanent(errors.New("wrong password"))
		}},
	)
	res, err := kahn.Execute(context.Background(), g, nil)
	for n := range res.Nodes() {
		fmt.Printf("%s: %v, attempts: %d\n", n.ID, n.Status, n.Attempts)
		for _, a := range n.History() {
			fmt.Printf("  attempt %d: error %v, then a pause of %v\n", a.Number, a.Err, a.Delay)
		}
	}
	fmt.Println(err)
}
