package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/expression"
)

// checkLabels warns about each edge with a label that the test of the edge's source never yields. No run takes this edge.
func (c *checker) checkLabels(root *definition.Value) {
	answers := map[*definition.Value]map[string][]string{} // by graph and by id of a node: the labels that the node's test may yield
	for at, n := range nodesOf(root) {
		if member(n, "choices") != nil || text(n, "test") == "" { // Compile reports labels that are not among the choices
			continue
		}
		parsed, err := expression.Evaluator{}.Parse(text(n, "test"))
		test, ok := parsed.(interface{ Answers() []string })
		if err != nil || !ok {
			continue
		}
		if known := test.Answers(); known != nil {
			if answers[at.graph] == nil {
				answers[at.graph] = map[string][]string{}
			}
			answers[at.graph][text(n, "id")] = known
		}
	}
	if len(answers) == 0 {
		return
	}
	done := map[*definition.Value]bool{}
	for at, n := range nodesOf(root) {
		of := answers[at.graph]
		for _, branch := range fields(member(n, "branches")) {
			c.checkLabel(of[text(n, "id")], text(n, "id"), branch.Key, branch.KeyAt, at.in(".branches."+branch.Key))
		}
		for _, key := range []string{"after", "needs", "next"} {
			c.checkLabelsOf(of, text(n, "id"), member(n, key), at.in("."+key), key == "next")
		}
		if !done[at.graph] {
			done[at.graph] = true
			outer := at
			outer.path, outer.node = at.path[:strings.LastIndex(at.path, ".nodes[")]+".edges", ""
			c.checkLabelsOf(of, "", member(at.graph, "edges"), outer, false)
		}
	}
}

// checkLabelsOf checks the labels of one edge or of a list of edges. If `from` is true, the edges lead from the node with the given
// id; otherwise each edge names its source.
func (c *checker) checkLabelsOf(answers map[string][]string, id string, v *definition.Value, at place, from bool) {
	if v == nil {
		return
	}
	for i := range items(v) {
		c.checkLabelsOf(answers, id, &v.Items[i], at.in(fmt.Sprintf("[%d]", i)), from)
	}
	label := member(v, "label")
	if label == nil || label.Type != definition.Text {
		return
	}
	if !from {
		id = text(v, "from")
	}
	c.checkLabel(answers[id], id, label.Text, label.At, at.in(".label"))
}

// labelClasses maps each label that has a synonym to its class. Labels of one class have the same meaning.
var labelClasses = map[string]string{"true": "true", "yes": "true", "false": "false", "no": "false"}

func (c *checker) checkLabel(answers []string, id, label string, position definition.Position, at place) {
	class := labelClasses[strings.ToLower(label)]
	takes := func(answer string) bool {
		return answer == label || class != "" && labelClasses[strings.ToLower(answer)] == class
	}
	if answers == nil || label == "default" || slices.ContainsFunc(answers, takes) {
		return
	}
	c.addAt(position, problem{
		Path: at.path, Node: at.node, Severity: isWarning, Suggestion: meant(label, append(slices.Clone(answers), "default")),
		Message: fmt.Sprintf("the branch %q is never taken: the test of %q answers %s", label, id, some(answers)),
	})
}
