package inspector

import (
	"slices"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// A lead says at which nodes the graph continues after one outcome. The outcome is an answer to a gate, a failure of the gate, or an answer of a
// condition that directly follows the gate.
type lead struct {
	Answer string   `json:"answer,omitempty"` // the answer; if On and Answer are empty: any answer
	On     string   `json:"on,omitempty"`     // failure or always, if the lead is for one of these outcomes and not for an answer
	By     string   `json:"by,omitempty"`     // the path of the condition that gives the answer; empty if the gate itself gives the answer
	To     []string `json:"to,omitempty"`     // the paths of the first few nodes
	More   int      `json:"more,omitempty"`   // the number of further nodes
	// If the answer leads to no node, Skips are the paths of the first few nodes that the answer skips, because they need another answer.
	Skips []string `json:"skips,omitempty"`
}

// onDeadline returns the value of gate.OnDeadline: what happens if a wait has no answer at its deadline. It returns "" if the plan is unknown.
func onDeadline(at place) string {
	switch n := at.node(); {
	case at.plan == nil:
		return ""
	case n.Gate == nil:
		return "again"
	case n.Gate.OnTimeout == kahn.GateLabel:
		return "timeout"
	}
	return "fail"
}

// leadsOf returns the leads of a gate; nil for a step that waits. There is a lead for each offered answer, and one for the answer "timeout" if
// the gate gives it at its deadline. There is also a lead for a failure, and one for the edges that wait for any end of the gate. If no out-edge
// of the gate has a label, a single lead stands for all answers. If a plain edge leads from the gate to a condition, leadsOf adds the leads of
// the condition.
func (c *call) leadsOf(at place, g gate) (list []lead) {
	if n := at.node(); n.Kind != kahn.KindGate || n.Do != nil {
		return nil
	}
	out := c.effectsOf(at.plan, at.plan.ID(at.ref))
	answers := g.Choices
	if len(answers) == 0 {
		answers = c.labelsOf(at)
	}
	if g.OnDeadline == "timeout" && !slices.Contains(answers, "timeout") {
		answers = append(slices.Clip(answers), "timeout")
	}
	if slices.ContainsFunc(out, func(e kahn.Edge) bool { return e.Label != "" }) {
		for _, answer := range answers {
			taken := func(e kahn.Edge) bool { return e.On == kahn.OnSuccess && follows(at.plan, at.ref, answer, e.Label) }
			x := leadTo(at, lead{Answer: answer}, out, taken)
			if x.To == nil {
				x.Skips = leadTo(at, lead{}, out, func(e kahn.Edge) bool { return e.On == kahn.OnSuccess && !taken(e) && needsAll(at.plan, e.To) }).To
			}
			list = append(list, x)
		}
	} else if x := leadTo(at, lead{}, out, func(e kahn.Edge) bool { return e.On == kahn.OnSuccess }); x.To != nil {
		list = append(list, x)
	}
	for _, on := range []kahn.On{kahn.OnFailure, kahn.OnAlways} {
		if x := leadTo(at, lead{On: on.String()}, out, func(e kahn.Edge) bool { return e.On == on }); x.To != nil {
			list = append(list, x)
		}
	}
	for _, e := range out {
		if e.Label == "" && e.On == kahn.OnSuccess && len(list) < mostLeads {
			list = append(list, c.branchesOf(at, e.To)...)
		}
	}
	return list[:min(len(list), mostLeads)]
}

// mostLeads is the maximum number of leads of a gate in a response; further leads are left out.
const mostLeads = 20

// branchesOf returns a lead for each label at the out-edges of a condition or another node. It returns nil for a node without labelled out-edges.
func (c *call) branchesOf(at place, id string) (list []lead) {
	out := c.effectsOf(at.plan, id)
	for _, e := range out {
		if e.Label == "" || slices.ContainsFunc(list, func(x lead) bool { return x.Answer == e.Label }) {
			continue
		}
		list = append(list, leadTo(at, lead{Answer: e.Label, By: at.in.prefix + id}, out, func(other kahn.Edge) bool { return other.Label == e.Label }))
	}
	return list
}

// effectsOf returns the out-edges by which a node affects whether other nodes run. It looks only at the node's first mostNeighbours out-edges.
func (c *call) effectsOf(plan *kahn.Plan, id string) (list []kahn.Edge) {
	out := c.edgesOf(plan).from[id]
	for _, e := range out[:min(len(out), mostNeighbours)] {
		if !e.DataOnly && !observes(plan, e.To) {
			list = append(list, e)
		}
	}
	return list
}

// leadTo adds the targets of the chosen edges to a lead.
func leadTo(at place, x lead, edges []kahn.Edge, chosen func(kahn.Edge) bool) lead {
	for _, e := range edges {
		switch path := at.in.prefix + e.To; {
		case !chosen(e) || slices.Contains(x.To, path):
		case len(x.To) < few:
			x.To = append(x.To, path)
		default:
			x.More++
		}
	}
	return x
}

// needsAll reports whether a node runs only if each of its in-edges is taken.
func needsAll(plan *kahn.Plan, id string) bool {
	ref, ok := plan.Ref(id)
	if !ok {
		return false
	}
	join := plan.Node(ref).Join
	return join == 0 || join.Rule() == kahn.AllSucceeded
}

// The function `follows` reports whether an answer of a node takes the edges with the given label. Every answer takes the edges without a label.
func follows(plan *kahn.Plan, ref machine.Ref, answer, label string) bool {
	if label == "" {
		return true
	}
	taken, _ := plan.Route(ref, answer)
	own, _ := plan.Route(ref, label)
	return slices.ContainsFunc(taken, func(branch int32) bool { return slices.Contains(own, branch) })
}
