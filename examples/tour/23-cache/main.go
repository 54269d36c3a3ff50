// kahn calls a costly step only once for each input and each version of the step. A second process finds the outputs for which the first process
// has paid.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// corpus returns a graph that embeds each document, and joins the vectors into an index. The field Memo of a node is the version of the step's code.
func corpus(version string, docs []string) *kahn.Graph {
	embed := func(_ context.Context, s *kahn.Step) (any, error) {
		text, err := kahn.Param[string](s, "item")
		fmt.Printf("  embed %q\n", text)
		return len(text), err
	}
	index := func(_ context.Context, s *kahn.Step) (any, error) {
		vectors, _, err := kahn.UpstreamItems[int](s, "embed")
		return vectors, err
	}
	return new(kahn.Graph).Add(
		kahn.Node{ID: "embed", Map: &kahn.Map{Over: "docs", Limit: 1}, Params: map[string]any{"docs": docs}, Memo: version, Do: embed},
		kahn.Node{ID: "index", After: []string{"embed"}, Do: index},
	)
}

func main() {
	dir, err := os.MkdirTemp("", "cache")
	if err == nil {
		err = errors.Join(perform(dir), os.RemoveAll(dir))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func perform(dir string) error {
	for _, run := range []struct {
		about, version string
		docs           []string
	}{
		{"the first process", "v1", []string{"a cat", "a dog"}},
		{"another one, with one more document", "v1", []string{"a cat", "a giraffe", "a dog"}},
		{"a better model", "v2", []string{"a cat"}},
	} {
		fmt.Println(run.about)
		memo := &kahn.Memo{Cache: store.DirCache{Dir: dir}} // each process has its own Memo, and all processes share the folder
		res, err := kahn.Execute(context.Background(), corpus(run.version, run.docs), nil, memo)
		if err != nil {
			return err
		}
		fmt.Println(" ", res.Output())
	}
	return nil
}
