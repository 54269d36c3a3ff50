// The join rule of a node decides whether the node runs, depending on how its predecessors end. By default all predecessors must succeed.
// Here one mirror is enough: when the first mirror answers, kahn stops the others.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	slow := func(ctx context.Context, _ *kahn.Step) (any, error) {
		<-ctx.Done() // the run ends the context of a step that is no longer needed
		return nil, ctx.Err()
	}
	fast := func(context.Context, *kahn.Step) (any, error) { return "the file", nil }
	mirrors := []string{"Oslo", "Rome", "Lima"}
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "Oslo", Do: slow},
		kahn.Node{ID: "Rome", Do: fast},
		kahn.Node{ID: "Lima", Do: slow},
		kahn.Node{ID: "unpack", Join: kahn.AnySucceeded, CancelLosers: true, After: mirrors, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			for _, m := range mirrors {
				if file, ok := s.Upstream(m); ok {
					return fmt.Sprint("unpacked ", file, " from ", m), nil
				}
			}
			return nil, nil
		}},
	)
	res, err := kahn.Execute(context.Background(), g, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Output())
	for _, m := range mirrors {
		n, _ := res.Node(m)
		fmt.Println(m, "is done:", n.Status == kahn.Completed)
	}
}
