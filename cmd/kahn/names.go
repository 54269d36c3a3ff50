package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/expression"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// The type `names` has the gates that the flag -answer may name, and the inputs that the flag -input may name.
type names struct {
	gates, inputs map[string]bool   // a gate has its path, with [0] or #1 for each item or iteration
	labels        map[string]string // the labels of gates, by path
	computed      *bool             // whether a template computes the name of an input; the graph may then use any input
}

// numbers matches the numbers of items and iterations in the path of a node.
var numbers = regexp.MustCompile(`\[\d+\]|#\d+`)

// declaredPath returns the path of a node without the numbers of items and iterations. In the result, M[] means all items of the map M, and
// M/x means the node x in each item.
func declaredPath(path string) string {
	path = numbers.ReplaceAllStringFunc(path, func(number string) string {
		if strings.HasPrefix(number, "[") {
			return "[]"
		}
		return ""
	})
	return strings.ReplaceAll(path, "[]/", "/")
}

// unnumbered takes the numbers of items and iterations out of a path: "M[2]/x" becomes "M[/x", and "L#1/x" becomes "L#/x".
func unnumbered(path string) string {
	return numbers.ReplaceAllStringFunc(path, func(number string) string { return number[:1] })
}

// namesOf collects the names from a graph.
func namesOf(g *kahn.Graph) names {
	n := namesUsed(g)
	for _, in := range g.Inputs {
		n.inputs[in.Name] = n.inputs[in.Name] || in.Name != here
	}
	return n
}

// namesUsed is like namesOf, but omits inputs that the graph declares and does not use.
func namesUsed(g *kahn.Graph) names {
	n := names{map[string]bool{}, map[string]bool{}, map[string]string{}, new(bool)}
	n.look(g, "")
	return n
}

func (n names) look(g *kahn.Graph, prefix string) {
	fed := map[string]bool{} // nodes to which an edge leads; the parameters of the other nodes are the inputs of the run
	for _, e := range g.Edges() {
		fed[e.To] = true
	}
	for _, node := range g.Nodes() {
		if node.Kind == kahn.KindGate {
			n.gates[prefix+node.ID] = true
			n.labels[declaredPath(prefix+node.ID)] = node.Label
		}
		if !kinds[node.Kind].verbatim {
			n.findCalls(node.Config, !fed[node.ID])
		} else if !fed[node.ID] {
			n.inputs["input"] = true // jq reads the parameter `input`
		}
		if by := node.CompensateBy; by != nil && !kinds[by.Kind].verbatim {
			n.findCalls(by.Config, !fed[node.ID])
		}
		for _, port := range node.Ports {
			n.inputs[port.Name] = true
		}
		n.find(node.WhenExpr, node.TestExpr)
		if node.Loop != nil {
			n.find(node.Loop.UntilExpr)
		}
		if node.Map != nil && !fed[node.ID] {
			n.inputs[node.Map.Over] = true
		}
		if node.Sub != nil {
			for _, in := range node.Sub.Inputs { // a composite without edges passes the run's inputs to the nodes inside
				n.inputs[in.Name] = true
			}
			inner := prefix + node.ID
			if node.Map != nil {
				inner += "[0]"
			}
			if node.Loop != nil {
				inner += "#1"
			}
			n.look(node.Sub, inner+"/")
		}
	}
}

// The method `find` adds the names of the inputs that expressions read.
func (n names) find(texts ...string) {
	accept := func(string) error { return nil }
	for _, text := range texts {
		parsed, err := expression.Evaluator{}.Parse(text)
		checker, ok := parsed.(interface {
			Check(ancestor, input func(name string) error) error
		})
		if ok && err == nil { // err is nil if the text is not "": the load of the definition has refused invalid expressions
			_ = checker.Check(accept, func(name string) error { // neither function returns an error
				n.inputs[name] = true
				return nil
			})
		}
	}
}

// findCalls adds the names of the inputs that the templates of a config read. If params is true, it also adds the names of parameters.
func (n names) findCalls(config any, params bool) {
	_, _ = mapTexts("", config, func(_, text string) (any, error) { // the function below returns no error
		calls, _ := callsIn(text) // the load of the definition has refused invalid templates
		for _, call := range calls {
			switch reads := call.function == "input" || params && call.function == "param"; {
			case reads && call.computed:
				*n.computed = true
			case reads:
				n.inputs[call.name] = true
			}
		}
		return nil, nil
	})
}

// The method `label` returns the label of a gate. Its argument is the path of the gate in a run.
func (n names) label(gate string) string { return n.labels[declaredPath(gate)] }

// The method `isGate` reports whether a path names a gate, in a run or in a definition.
func (n names) isGate(path string) bool {
	_, is := n.labels[declaredPath(path)]
	return is
}

// The method `check` returns an error if an answer names no gate, if the graph neither declares nor uses an input, or if an input has
// the name `here`. In a dry run an answer may name a gate in all items of a map.
func (n names) check(answers, inputs pairs, dry bool) error {
	for _, gate := range slices.Sorted(maps.Keys(answers)) {
		same := func(known string) bool {
			return unnumbered(known) == unnumbered(gate) || dry && declaredPath(known) == declaredPath(gate)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(n.gates)), same) {
			return fmt.Errorf("-answer: there is no gate %q%s", gate, choices(gate, "gates are", n.gates))
		}
	}
	for _, input := range slices.Sorted(maps.Keys(inputs)) {
		if input == here {
			return fmt.Errorf("-input: %s is the folder of the definition", here)
		}
		if !n.inputs[input] && !*n.computed {
			return fmt.Errorf("-input: there is no input %q%s", input, choices(input, "inputs are", n.inputs))
		}
	}
	return nil
}

// The function `choices` returns a text that lists the valid names, and suggests the name that is most similar to the written name.
func choices(written, are string, of map[string]bool) string {
	if len(of) == 0 {
		return ": the definition has none"
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(of)), func(name string) bool { return !of[name] })
	text := "; " + are + " " + strings.Join(names, ", ")
	if meant, ok := nearest.Name(written, names); ok {
		text += fmt.Sprintf("; did you mean %q?", meant)
	}
	return text
}
