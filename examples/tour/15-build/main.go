// This program is a parallel build that shows its progress on the terminal. Every package is a node, and every import is an edge.
// At most four packages are compiled at once. Of the packages that are ready, the one with the longest remaining path begins first.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/progress"
)

var imports = map[string][]string{
	"errors": nil, "unicode": nil, "sync": nil,
	"strings": {"errors", "unicode"},
	"os":      {"errors", "sync"},
	"io":      {"errors", "sync"},
	"fmt":     {"strings", "os", "io"},
	"log":     {"fmt"},
	"net":     {"os", "io", "fmt"},
	"http":    {"net", "log"},
	"main":    {"http", "log"},
}

func main() {
	compile := func(_ context.Context, s *kahn.Step) (any, error) {
		time.Sleep(10 * time.Millisecond) // stands in for a compiler
		return s.ID() + ".a", nil
	}
	var g kahn.Graph
	for name, needed := range imports {
		g.Add(kahn.Node{ID: name, After: needed})
	}
	p := progress.New(os.Stderr, progress.Auto)
	res, err := kahn.Execute(context.Background(), &g, compile, append(p.Options(), kahn.Limit(4))...)
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("built", res.Count(kahn.Completed), "packages, the last one into", res.Output())
}
