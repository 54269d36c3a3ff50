package main

import (
	"maps"
	"slices"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

// scope is what the templates of a node may name.
type scope struct {
	inputs []string   // root inputs; nil: any
	params []string   // parameters, if closed
	closed bool       // the node has no parameters but params
	plan   *kahn.Plan // of the graph of the node; nil if it is not known
	id     string     // of the node
}

// scopes has the plans of the graphs of a document, each with the parameters that its edges deliver, by node.
type scopes struct {
	outermost *kahn.Plan
	plans     map[*definition.Value]*kahn.Plan
	delivered map[*kahn.Plan]map[string][]string
}

func planned(outermost *kahn.Plan) *scopes {
	return &scopes{outermost, map[*definition.Value]*kahn.Plan{}, map[*kahn.Plan]map[string][]string{}}
}

// of returns the scope of a node, without its inputs. Composites come before the nodes inside.
func (s *scopes) of(at place, n *definition.Value) scope {
	plan, inside := s.plans[at.graph]
	if !inside {
		plan = s.outermost
	}
	if plan == nil {
		return scope{}
	}
	id := text(n, "id")
	ref, ok := plan.Ref(id)
	if !ok {
		return scope{}
	}
	if sub := member(n, "graph"); sub != nil {
		s.plans[sub] = plan.Sub(ref)
	}
	node := plan.Node(ref)
	from, fed := s.edges(plan)[id]
	params := slices.AppendSeq(slices.Clone(from), maps.Keys(node.Params))
	for _, port := range node.Ports {
		params = append(params, port.Name)
	}
	if node.Map != nil {
		params = append(params, "item", "index")
	}
	closed := fed || len(node.Ports) > 0
	if names := declared(at.graph); !closed && !inside && names != nil { // the root inputs are parameters of the node
		params, closed = append(append(params, names...), here), true
	}
	slices.Sort(params)
	return scope{params: params, closed: closed, plan: plan, id: id}
}

// edges returns the parameters that the edges of a graph deliver, by node. A node with edges that deliver none is among them.
func (s *scopes) edges(plan *kahn.Plan) map[string][]string {
	params := s.delivered[plan]
	if params == nil {
		params = map[string][]string{}
		for e := range plan.Edges() {
			list := params[e.To]
			if e.Param != "" {
				list = append(list, e.Param)
			}
			params[e.To] = list
		}
		s.delivered[plan] = params
	}
	return params
}
