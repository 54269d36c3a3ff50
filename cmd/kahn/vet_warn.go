package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// unused returns warnings about parts of a graph that have no effect in this command: keys of nodes, inputs that no node reads, parameters that a jq
// program does not read, and the config of a node with a test. It also warns about files that do not exist, and about jq programs that get no input.
func unused(g *kahn.Graph) []error {
	w := warner{}
	used := namesUsed(g)
	for i, in := range g.Inputs {
		if in.Name != here && !used.inputs[in.Name] && !*used.computed {
			w.add(&kahn.Problem{Field: fmt.Sprintf("Inputs[%d]", i), Err: fmt.Errorf("nothing uses the input %q", in.Name)})
		}
	}
	w.graph(g, "")
	return w.found
}

type warner struct{ found []error }

func (w *warner) add(p *kahn.Problem) { w.found = append(w.found, p) }

func (w *warner) graph(g *kahn.Graph, path string) {
	programs := map[string]bool{} // the ids of nodes of kind jq; the value is true if an edge leads to the node
	fed := map[string]bool{}      // the ids of nodes of kind jq; the value is true if the node has a parameter named "input"
	for _, n := range g.Nodes() {
		switch _, performed := kinds[n.Kind]; {
		case n.TestExpr != "" && performed && n.Config != nil:
			w.add(&kahn.Problem{Graph: path, Node: n.ID, Field: "Config", Err: errors.New("the node has a test, so its config is not used")})
		case n.Kind == "jq" && n.Sub == nil && n.Map == nil && len(n.Ports) == 0:
			programs[n.ID] = false
			fed[n.ID] = n.Params["input"] != nil
		}
		if n.KeyFrom != "" {
			w.add(&kahn.Problem{Graph: path, Node: n.ID, Field: "KeyFrom", Err: errors.New("the key bounds nothing: kahn run has no limit for keys; a group has one")})
		}
		if n.Key != "" {
			w.add(&kahn.Problem{Graph: path, Node: n.ID, Field: "Key", Err: errors.New("the key bounds nothing: kahn run has no limit for keys; a group has one")})
		}
		for i, name := range n.Files {
			if info, err := os.Stat(name); err != nil || info.IsDir() {
				w.add(&kahn.Problem{Graph: path, Node: n.ID, Field: fmt.Sprintf("Files[%d]", i), Err: fmt.Errorf("there is no file %q, from the folder in which kahn runs", name)})
			}
		}
		if n.Sub != nil {
			inner := n.ID
			if path != "" {
				inner = path + "/" + n.ID
			}
			w.graph(n.Sub, inner)
		}
	}
	for i, e := range g.Edges() {
		if _, is := programs[e.To]; !is {
			continue
		}
		programs[e.To] = true
		switch e.Param {
		case "":
		case "input":
			fed[e.To] = true
		default:
			w.add(&kahn.Problem{Graph: path, Edge: i + 1, Err: fmt.Errorf("the program of %q reads the parameter \"input\", and not %q", e.To, e.Param)})
		}
	}
	for _, n := range g.Nodes() {
		if follows, is := programs[n.ID]; is && follows && !fed[n.ID] {
			w.add(&kahn.Problem{Graph: path, Node: n.ID, Err: errors.New(`no edge delivers the parameter "input", so the program gets null`)})
		}
	}
}

// undelivered returns a problem for each edge whose key names no field of its source's output. It checks the sources whose kind decides these fields.
func undelivered(g *kahn.Graph, path string) (found []error) {
	outputs := map[string][]string{} // by id: the fields of the output
	of := map[string]string{}        // by id: the kind
	for _, n := range g.Nodes() {
		if k, ok := kinds[n.Kind]; ok && !k.open && n.Sub == nil && n.Map == nil && n.TestExpr == "" && len(n.Outputs) == 0 {
			object, _ := k.empty.(map[string]any)
			outputs[n.ID], of[n.ID] = slices.Sorted(maps.Keys(object)), n.Kind
		}
		if n.Sub != nil {
			inner := n.ID
			if path != "" {
				inner = path + "/" + n.ID
			}
			found = append(found, undelivered(n.Sub, inner)...)
		}
	}
	for i, e := range g.Edges() {
		kind, known := of[e.From]
		name, _, _ := strings.Cut(e.Key, ".")
		if !known || e.On == kahn.OnFailure || name == "" || name == "output" || slices.Contains(outputs[e.From], name) {
			continue
		}
		text := fmt.Sprintf("the output of kind %s has no field %q", kind, name)
		suggestion := meant(name, outputs[e.From])
		switch {
		case suggestion != "":
			text += fmt.Sprintf("; did you mean %q?", suggestion)
		case len(outputs[e.From]) > 0:
			text += fmt.Sprintf(" (choose from %s)", strings.Join(outputs[e.From], ", "))
		default:
			text += "; without a key the edge delivers the whole output"
		}
		found = append(found, &kahn.Problem{Graph: path, Edge: i + 1, Field: "Key", Err: errors.New(text), Suggestion: suggestion})
	}
	return found
}
