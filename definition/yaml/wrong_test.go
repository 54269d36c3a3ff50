package yaml_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/definition/yaml"
)

// reader is an Evaluator that rejects texts that begin with two parentheses.
type reader struct{}

func (reader) Parse(text string) (kahn.Expression, error) {
	if strings.HasPrefix(text, "((") {
		return nil, errors.New("it begins with ((")
	}
	return anything{}, nil
}

// anything is an Expression that names no nodes or inputs.
type anything struct{}

func (anything) Evaluate(context.Context, kahn.View) (any, error) { return true, nil }

// Each wrong document of the table is rejected with the expected message, place and suggestion.
func TestWrongDocuments(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("testdata/wrong.txt")
	require.NoError(t, err)
	documents := strings.Split(string(table), "\n=== ")[1:]
	require.Greater(t, len(documents), 100)
	for _, document := range documents {
		name, rest, _ := strings.Cut(document, "\n")
		text, want, ok := strings.Cut(rest, "\n---\n")
		require.True(t, ok, name)
		loader := definition.Loader{
			File:    "w",
			Kinds:   map[string]definition.Kind{"exec": {}, "http": {}, "mail": {}},
			Prepare: func(g *kahn.Graph) { g.Evaluator = reader{} },
			CheckSchedule: func(s *definition.Schedule) error {
				if s.Cron == "daily" {
					return errors.Join(&kahn.Problem{Field: "Cron", Err: errors.New("it has one field"), Suggestion: "@daily"})
				}
				return nil
			},
		}
		if strings.HasSuffix(name, ".yaml") {
			loader.Parse = yaml.Parse
		}
		_, err := loader.Load([]byte(text + "\n"))
		var all *definition.Error
		if !errors.As(err, &all) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, p := range all.Problems {
			line := strings.TrimPrefix(p.Error(), "definition: w:")
			if p.Suggestion != "" {
				line += " ~> " + p.Suggestion
			}
			got = append(got, line)
		}
		if all := strings.Join(got, "\n"); all != strings.TrimSuffix(want, "\n") {
			t.Errorf("%s\ngot\n%s\nwant\n%s", name, all, want)
		}
	}
}
