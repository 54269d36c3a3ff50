package inspector

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// This file collects what a person needs to answer a gate: the words to choose from, the schema of the answer, and the values that the decision
// depends on.

// opposites maps a word to its opposite. If a gate declares only one word and also accepts the opposite of this word, the page offers both. For
// example, if the only labelled edge of a gate has the label "approved", the page also offers "rejected".
var opposites = map[string]string{
	"approved": "rejected", "approve": "reject", "true": "false", "yes": "no", "rejected": "approved", "reject": "approve", "false": "true", "no": "yes",
}

// The method `offered` returns the answers that the page offers for a gate: the accepted answers that the graph declares, without their synonyms.
// If a gate answers "timeout" by itself at its deadline, its edge label "timeout" does not count as declared. If the graph declares only one
// accepted answer and the gate accepts the opposite, the page offers both. If the graph declares none of the answers that the gate accepts, or if
// the plan is unknown, the page offers every answer that the gate accepts.
func (c *call) offered(at place, accepted []string) []string {
	if at.plan == nil {
		return accepted
	}
	n := at.node()
	var declared []string
	if n.Gate != nil {
		declared = n.Gate.Choices
	}
	if len(declared) == 0 {
		for _, label := range c.labelsOf(at) {
			if n.Gate == nil || n.Gate.OnTimeout != kahn.GateLabel || label != "timeout" {
				declared = append(declared, label)
			}
		}
	}
	var list []string
	for _, word := range declared {
		if slices.Contains(accepted, word) && !slices.Contains(list, word) {
			list = append(list, word)
		}
	}
	if len(list) == 1 && slices.Contains(accepted, opposites[list[0]]) {
		list = append(list, opposites[list[0]])
	}
	if len(list) == 0 {
		return accepted
	}
	return list
}

// adjacency caches the edges of plans, by node. With this cache, a request for a list of gates reads the edges of each plan only once, however
// many gates the plan has.
type adjacency map[*kahn.Plan]*edgesByNode

type edgesByNode struct{ from, to map[string][]kahn.Edge }

// edgesOf returns the edges of a plan, by source and by target. It sets DataOnly in side edges.
func (c *call) edgesOf(plan *kahn.Plan) *edgesByNode {
	if x := c.edges[plan]; x != nil {
		return x
	}
	x := &edgesByNode{from: map[string][]kahn.Edge{}, to: map[string][]kahn.Edge{}}
	for e, side := range plan.Edges() {
		e.DataOnly = e.DataOnly || side
		x.from[e.From], x.to[e.To] = append(x.from[e.From], e), append(x.to[e.To], e)
	}
	if c.edges != nil {
		c.edges[plan] = x
	}
	return x
}

// labelsOf returns the labels of a node's out-edges, in the order of declaration.
func (c *call) labelsOf(at place) (labels []string) {
	for _, e := range c.edgesOf(at.plan).from[at.plan.ID(at.ref)] {
		if e.Label != "" && !slices.Contains(labels, e.Label) {
			labels = append(labels, e.Label)
		}
	}
	return labels
}

// answerSchema returns the JSON Schema of a gate's answers. It returns nil if the plan is unknown or the gate has no schema. It also returns nil
// if the schema is Go code (a kahn.Contract), is not JSON, or is too large to be shown.
func answerSchema(at place) json.RawMessage {
	if at.plan == nil {
		return nil
	}
	gate := at.node().Gate
	if gate == nil || gate.Schema == nil {
		return nil
	}
	var text []byte
	switch s := gate.Schema.(type) {
	case kahn.Contract:
		return nil
	case string:
		text = []byte(s)
	case []byte:
		text = s
	default:
		var err error
		if text, err = encode(s); err != nil {
			return nil
		}
	}
	if len(text) > shownValue || !json.Valid(text) {
		return nil
	}
	return text
}

// A basis is a value that the answer to a gate may depend on: an input of the gate, or the output of a predecessor.
type basis struct {
	Name  string `json:"name"`           // the name of the input, or the id of the predecessor
	Path  string `json:"path,omitempty"` // the path of the predecessor; empty for an input of the gate
	Value *value `json:"value"`
}

// rawBasis is a basis whose value may contain more than the client may see.
type rawBasis struct {
	name, path string
	value      any
}

// These bounds limit the values that are shown with a gate. They are small, since a list may contain hundreds of gates.
const (
	mostBases  = 8    // maximum number of values
	shownBasis = 2048 // maximum size of each value, in bytes
)

// basesOf returns the inputs of the gate or, if there are none, the outputs of the gate's direct predecessors. It returns at most mostBases
// values. For a gate of a stored run it always returns outputs, because the store does not have the inputs.
func (c *call) basesOf(path string) (list []rawBasis) {
	params, _, err := c.target.Inputs(path)
	if err == nil && len(params) > 0 {
		for _, name := range slices.Sorted(maps.Keys(params)) {
			list = append(list, rawBasis{name: name, value: params[name]})
		}
		return list[:min(len(list), mostBases)]
	}
	at, err := c.place(path)
	if err != nil || at.plan == nil {
		return nil
	}
	for _, e := range c.edgesOf(at.plan).to[at.plan.ID(at.ref)] {
		if len(list) == mostBases || slices.ContainsFunc(list, func(b rawBasis) bool { return b.name == e.From }) {
			continue
		}
		if res, err := c.target.Node(at.in.prefix + e.From); err == nil && res.Output != nil {
			list = append(list, rawBasis{name: e.From, path: at.in.prefix + e.From, value: res.Output})
		}
	}
	return list
}

// The method `bases` returns the values in the form in which the client may see them; nil if the client may not ViewData.
func (c *call) bases(run, path string, raw []rawBasis) (list []basis) {
	if !c.mayViewData() {
		return nil
	}
	for _, b := range raw {
		v := Value{RunID: run, Path: cmp.Or(b.path, path), Kind: Output, Value: b.value}
		if b.path == "" {
			v.Kind, v.Name = Input, b.name
		}
		list = append(list, basis{Name: clip(b.name, shownText), Path: b.path, Value: c.shownWithin(v, shownBasis)})
	}
	return list
}
