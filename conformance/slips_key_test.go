package conformance_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// A Key is first looked up as a whole, and then as a path.
func TestNestedKey(t *testing.T) {
	type name struct {
		First  string `json:"first"`
		Last   string
		hidden string
	}
	type user struct {
		Name *name          `json:"name"`
		More map[string]any `json:"more"`
	}
	ann := user{Name: &name{"Ann", "Lee", "x"}, More: map[string]any{"a.b": 1, "a": map[string]int{"b": 2, "c": 3}, "null": nil}}
	outputs := map[string]any{
		"map":     map[string]any{"user": ann, "user.name": "exact"},
		"outputs": kahn.Outputs{"user": ann},
		"struct":  ann, "pointer": &ann, "text": "ann", "nothing": (*user)(nil),
		"json": map[string]any{"user": map[string]any{"name": "Ann"}},
	}
	const none = "nothing was delivered"
	for _, row := range []struct {
		output, key string
		want        any
	}{
		{"map", "user.name", "exact"},
		{"map", "user.name.first", "Ann"}, // user.name is a text without fields, so the lookup uses the name of user
		{"outputs", "user.name.first", "Ann"},
		{"outputs", "user.Name.first", none}, // the JSON name replaces the Go name
		{"outputs", "user.name.LAST", "Lee"},
		{"outputs", "user.name.hidden", none},
		{"outputs", "user.more.a.b", 1},
		{"outputs", "user.more.a.c", 3},
		{"outputs", "user.more.null", nil},
		{"outputs", "user.more.null.x", none},
		{"outputs", "user..name", none},
		{"outputs", "user.", none},
		{"struct", "more.a.c", 3}, {"pointer", "name.first", "Ann"},
		{"text", "x", none}, {"nothing", "name", none},
		{"json", "user.name", "Ann"}, {"json", "user.mane", none},
	} {
		inBubble(t, row.output+" "+row.key, func(t *testing.T) {
			g := graph(after("A"), kahn.Node{ID: "B", In: []kahn.Edge{{From: "A", Key: row.key, Param: "p"}}})
			r := try(t, g, func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "A" {
					return outputs[row.output], nil
				}
				if v, ok := s.Param("p"); ok {
					require.Equal(t, row.want, v)
				} else {
					require.Equal(t, row.want, none)
				}
				return nil, nil
			})
			r.expect("A:ok B:ok", "completed")
		})
	}
}
