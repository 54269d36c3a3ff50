package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// names are what the flags -answer and -input may name.
type names struct {
	gates, inputs map[string]bool
}

var (
	inExpression = regexp.MustCompile(`\binputs(?:\.(\w+)|\[['"]([^'"]+)['"]\])`) // in a guard or a condition
	numbers      = regexp.MustCompile(`\[\d+\]|#\d+`)                             // of items and iterations, in the path of a gate
)

// namesOf collects the names from a graph.
func namesOf(g *kahn.Graph) names {
	n := names{map[string]bool{}, map[string]bool{}}
	n.look(g, "")
	return n
}

func (n names) look(g *kahn.Graph, prefix string) {
	for _, in := range g.Inputs {
		n.inputs[in.Name] = true
	}
	fed := map[string]bool{} // the others take parameters from the inputs
	for _, e := range g.Edges() {
		fed[e.To] = true
	}
	for _, node := range g.Nodes() {
		if node.Kind == kahn.KindGate {
			n.gates[prefix+node.ID] = true
		}
		if !kinds[node.Kind].verbatim {
			n.findCalls(node.Config, !fed[node.ID])
		} else if !fed[node.ID] {
			n.inputs["input"] = true // the parameter of jq
		}
		for _, port := range node.Ports {
			n.inputs[port.Name] = true
		}
		n.find(node.WhenExpr, node.TestExpr)
		if node.Loop != nil {
			n.find(node.Loop.UntilExpr)
		}
		if node.Sub != nil {
			n.look(node.Sub, prefix+node.ID+"/")
		}
	}
}

// find adds the names of inputs in the texts of expressions.
func (n names) find(texts ...string) {
	for _, text := range texts {
		for _, found := range inExpression.FindAllStringSubmatch(text, -1) {
			n.inputs[found[1]+found[2]] = true
		}
	}
}

// findCalls adds the names of inputs in the templates of a config, and those of parameters, if these are inputs.
func (n names) findCalls(v any, params bool) {
	switch v := v.(type) {
	case string:
		calls, _ := callsIn(v) // what cannot be parsed was refused before
		for _, call := range calls {
			if call.function == "input" || params && call.function == "param" {
				n.inputs[call.name] = true
			}
		}
	case []any:
		for _, item := range v {
			n.findCalls(item, params)
		}
	case map[string]any:
		for _, item := range v {
			n.findCalls(item, params)
		}
	}
}

// check refuses answers and inputs that the graph does not use.
func (n names) check(answers, inputs pairs) error {
	for _, gate := range slices.Sorted(maps.Keys(answers)) {
		if !n.gates[numbers.ReplaceAllString(gate, "")] {
			return fmt.Errorf("-answer: there is no gate %q%s", gate, choices(gate, "gates are", n.gates))
		}
	}
	for _, input := range slices.Sorted(maps.Keys(inputs)) {
		if !n.inputs[input] {
			return fmt.Errorf("-input: there is no input %q%s", input, choices(input, "inputs are", n.inputs))
		}
	}
	return nil
}

// choices lists the valid names, and suggests a similar one.
func choices(written, are string, of map[string]bool) string {
	if len(of) == 0 {
		return ": the definition has none"
	}
	names := slices.Sorted(maps.Keys(of))
	text := "; " + are + " " + strings.Join(names, ", ")
	if meant, ok := nearest.Name(written, names); ok {
		text += fmt.Sprintf("; did you mean %q?", meant)
	}
	return text
}
