// A graph can be a document that people write. Package definition reads JSON, and definition/yaml reads YAML. Both report every mistake with
// its place.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"log"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/definition/yaml"
)

//go:embed greeting.yaml
var document string

func main() {
	host := kahn.Mux{
		"name": func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Param[string](s, "name") },
		"join": func(_ context.Context, s *kahn.Step) (any, error) { return kahn.Param[string](s, "text") },
	}
	g, err := yaml.Load([]byte(document), definition.Limits{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	res, err := kahn.Execute(context.Background(), g, host.Step, kahn.Kinds(host))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", res.Output())

	wrong := strings.NewReplacer("after:", "afer:", "timeout: 5s", "timeout: 5").Replace(document)
	_, err = yaml.Load([]byte(wrong), definition.Limits{}, nil)
	fmt.Println(err)
}
