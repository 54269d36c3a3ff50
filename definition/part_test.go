package definition_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

// names is an expression that is a list of names: of nodes, or of inputs if they begin with a dollar sign. "(" is a syntax error.
type names string

func (n names) Evaluate(context.Context, kahn.View) (any, error) { return true, nil }

func (n names) Check(ancestor, input func(string) error) error {
	for name := range strings.FieldsSeq(string(n)) {
		err := error(nil)
		if of, is := strings.CutPrefix(name, "$"); is {
			err = input(of)
		} else {
			err = ancestor(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type namesEvaluator struct{}

func (namesEvaluator) Parse(text string) (kahn.Expression, error) {
	if strings.Contains(text, "(") {
		return nil, errors.New("a bracket is not closed")
	}
	return names(text), nil
}

// urls is a SchemaCompiler whose schemas allow only objects with the single member url.
type urls struct{}

func (urls) Compile(schema any) (kahn.Contract, error) {
	if schema == false {
		return nil, errors.New("no schema")
	}
	return urls{}, nil
}

func (urls) Check(v any) (found []kahn.Violation) {
	config, _ := v.(map[string]any)
	if config["url"] == nil {
		found = append(found, kahn.Violation{Message: "there is no url"})
	}
	return found
}

// Load checks guards, configs and contracts even if the document has other problems, unless a check depends on parts that could not be read.
func TestEverythingInOneRound(t *testing.T) {
	t.Parallel()
	const nodes = `"nodes": [
{"id": "a", "kind": "http", "config": {"url": "x"}%s},
{"id": "b", "kind": "http", "config": {"uri": "x"}, "after": "a", "when": "a c"},
{"id": "c", "kind": "http", "config": {"url": "x"}, "when": "(", "input_schema": false},
{"id": "d", "kind": "htpt", "config": {"url": "x"}, "after": "a", "test": "nobody"},
{"id": "e", "test": "$usr"}]`
	texts := []string{"b config", "c when", "c input_schema", "d kind"}
	withNodes := append([]string{"d test", "e test"}, texts...)
	all := append([]string{"b when"}, withNodes...)
	for name, row := range map[string]struct {
		field, outside string // the wrong text: a field of node a, or a part outside nodes
		want           []string
	}{
		"a duration":       {`, "timeout": 5`, ``, append([]string{"a timeout"}, all...)},
		"a misspelt field": {`, "timout": "5s"`, ``, append([]string{"a timout"}, all...)},
		"a policy":         {`, "retry": {"max_attempts": -1}`, ``, append([]string{"a retry.max_attempts"}, all...)},
		"no boolean":       {`, "routes": 3`, ``, append([]string{"a routes", "e test"}, texts...)},
		"a strange field":  {`, "zzzzz": 3`, ``, append([]string{"a zzzzz", "e test"}, texts...)},
		"an unknown node":  {`, "next": "x"`, ``, append([]string{"a next"}, withNodes...)},
		"no edge":          {``, `"edges": [5], `, append([]string{"$.edges[0]"}, withNodes...)},
		"an input":         {``, `"inputs": [5], `, append([]string{"$.inputs[0]", "b when", "d test"}, texts...)},
		"a top field":      {``, `"strict_gaurds": true, `, append([]string{"$.strict_gaurds"}, all...)},
		"a default":        {``, `"defaults": {"timout": "5s"}, `, append([]string{"$.defaults.timout"}, all...)},
		"any top field":    {``, `"zzzzz": true, `, append([]string{"$.zzzzz"}, texts...)},
		"no id":            {`}, {"id": 5`, ``, append([]string{"$.nodes[1].id"}, texts...)},
	} {
		inputs := `"inputs": ["user"], `
		if strings.Contains(row.outside, "inputs") {
			inputs = ""
		}
		_, err := definition.Loader{
			Kinds:   map[string]definition.Kind{"http": {Config: []byte("true")}},
			Prepare: func(g *kahn.Graph) { g.Evaluator, g.Schemas, g.StrictGuards = namesEvaluator{}, urls{}, true },
		}.Load([]byte(`{"version": 1, ` + inputs + row.outside + fmt.Sprintf(nodes, row.field) + "}"))
		var found *definition.Error
		require.ErrorAs(t, err, &found, name)
		var got []string
		for _, p := range found.Problems {
			require.NotZero(t, p.Position.Line, "%s: %v", name, p)
			place := p.Path
			if p.Node != "" {
				place = p.Node + " " + place[strings.Index(place, "].")+2:]
			}
			got = append(got, place)
		}
		require.ElementsMatch(t, row.want, got, "%s: %v", name, err)
	}
}

// Load also checks groups and the labels of branches in such documents. It does not report problems that only follow from parts that could not
// be read.
func TestGroupsAndLabelsInOneRound(t *testing.T) {
	t.Parallel()
	const text = `{"version": 1, %s"nodes": [
{"id": "a", "routes": true, "choices": ["red", "blue"]%s},
{"id": "b", "after": {"from": "a", "label": "rde"}, "groups": ["ent"]%s},
{"id": "S", "graph": {"groups": [{"name": "own"}%s], "nodes": [
{"id": "x", "routes": true, "choices": ["red"], "branches": {"no": "y"}}, {"id": "y", "groups": ["own", "disk"]%s}]}}]}`
	const groups = `"groups": [{"name": "net"}], `
	const label, group, labelInside, groupInside = "b after.label", "b groups[0]", "S/x branches.no", "S/y groups[1]"
	for name, row := range map[string]struct {
		outside, a, b, inside, y string // further parts of the document
		want                     []string
	}{
		"nothing else":              {groups, "", "", "", "", []string{label, group, labelInside, groupInside}},
		"a duration":                {groups, "", `, "timeout": 5`, "", "", []string{"b timeout", label, group, labelInside, groupInside}},
		"a duration inside":         {groups, "", "", "", `, "timeout": 5`, []string{"S/y timeout", label, group, labelInside, groupInside}},
		"a policy":                  {groups, `, "retry": {"max_attempts": -1}`, "", "", "", []string{"a retry.max_attempts", label, group, labelInside, groupInside}},
		"an unknown node":           {groups, "", `, "next": "nobody"`, "", "", []string{"b next", label, group, labelInside, groupInside}},
		"an unknown node inside":    {groups, "", "", "", `, "next": "nobody"`, []string{"S/y next", label, group, labelInside, groupInside}},
		"another edge":              {`"edges": [{"from": "a", "to": "S", "label": "geren"}, 5], `, "", "", "", "", []string{"$.edges[1]", "$.edges[0].label", label, group, labelInside, groupInside}},
		"edges that have moved":     {`"edges": [{"from": "a", "to": "S", "label": "geren"}], `, "", `, "needs": "a"`, "", "", []string{"b needs", label, group, labelInside, groupInside}},
		"a strange field":           {groups, `, "zzzzz": 3`, "", "", "", []string{"a zzzzz", group, labelInside, groupInside}},
		"a misspelt field":          {groups, `, "chioces": ["rde"]`, "", "", "", []string{"a chioces", group, labelInside, groupInside}},
		"a kind":                    {groups, `, "kind": 5`, "", "", "", []string{"a kind", group, labelInside, groupInside}},
		"groups of the node":        {groups, "", "", "", `, "gruops": 5`, []string{"S/y gruops", label, group, labelInside}},
		"a top field":               {groups + `"nmae": "x", `, "", "", "", "", []string{"$.nmae", label, group, labelInside, groupInside}},
		"any top field":             {groups + `"zzzzz": 1, `, "", "", "", "", []string{"$.zzzzz", label, labelInside}},
		"an input":                  {groups + `"inputs": 5, `, "", "", "", "", []string{"$.inputs", label, group, labelInside, groupInside}},
		"a name inside":             {groups, "", "", "", `}], "name": 5, "edges": [{"from": "x", "to": "y", "label": "red"`, []string{"S graph.name", label, group, labelInside, groupInside}},
		"a group":                   {`"groups": [{"name": "net"}, {"nmae": "ent"}], `, "", "", "", "", []string{"$.groups[1].nmae", label, labelInside}},
		"a group inside":            {groups, "", "", `, {"nmae": "disk"}`, "", []string{"S graph.groups[1].nmae", label, labelInside}},
		"an id":                     {groups, `}, {"id": 5`, "", "", "", []string{"$.nodes[1].id"}},
		"a list that is not a list": {groups, "", "", "", `}], "edges": [{"from": "x", "to": 5`, []string{"S graph.edges[0].to", label, group, labelInside, groupInside}},
	} {
		_, err := definition.Loader{}.Load(fmt.Appendf(nil, text, row.outside, row.a, row.b, row.inside, row.y))
		var found *definition.Error
		require.ErrorAs(t, err, &found, name)
		var got []string
		for _, p := range found.Problems {
			place := p.Path
			if p.Node != "" {
				end := strings.LastIndex(place, "].")
				if p.Node == "S" || strings.HasSuffix(place, "]") { // the problem is in a list of the node
					end = strings.Index(place, "].")
				}
				if strings.HasPrefix(p.Node, "S/") {
					end = strings.LastIndex(place, "nodes[") + len("nodes[0")
				}
				place = p.Node + " " + place[end+2:]
			}
			got = append(got, place)
		}
		require.ElementsMatch(t, row.want, got, "%s: %v", name, err)
	}
}

// Load does not report a problem that only follows from an unread field.
func TestNoConsequencesOfWhatIsLost(t *testing.T) {
	t.Parallel()
	for _, node := range []string{
		`{"id": "a", "kind": "http", "config": null}`,
		`{"id": "a", "loop": {"until": 5, "max_iterations": 3}, "graph": {"nodes": []}}`,
		`{"id": "a", "map": {"over": 5}, "kind": "http", "config": {"url": "x"}}`,
		`{"id": "a", "config": {"url": "x"}, "kind": 7, "choices": ["x"]}`,
		`{"id": "a", "kind": "http", "config": {"url": "x"}, "outputs": [5]}, {"id": "b", "kind": "http", "config": {"url": "x"}, "after": {"from": "a", "key": "k"}}`,
		`{"id": "a", "kind": "http", "config": {"url": "x"}, "join": "at_last(2)"}, {"id": "b", "test": "a", "after": "a"}`,
	} {
		_, err := definition.Loader{
			Kinds:   map[string]definition.Kind{"http": {Config: []byte("true")}},
			Prepare: func(g *kahn.Graph) { g.Evaluator, g.Schemas, g.StrictGuards = namesEvaluator{}, urls{}, true },
		}.Load([]byte(`{"version": 1, "nodes": [` + node + `]}`))
		var found *definition.Error
		require.ErrorAs(t, err, &found, node)
		require.Len(t, found.Problems, 1, "%s: %v", node, err)
	}
}
