package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// rehearsal records the steps that a run would call.
type rehearsal struct {
	mu    sync.Mutex // guards lines
	lines strings.Builder
}

// The method `rehearse` runs the graph with mocks for all steps, one step at a time, and prints the steps.
func (h *host) rehearse(ctx context.Context) int {
	roots, err := h.roots()
	if err != nil {
		return h.t.refuse(err)
	}
	r := &rehearsal{}
	mocks := map[string]kahn.Mock{}
	r.mock(h.graph, "", nil, mocks)
	for gate, answer := range h.answers {
		mocks[declaredPath(gate)] = kahn.Mock{Value: answer}
	}
	res, err := kahn.Execute(withRoots(ctx, h.graph, roots), h.graph, h.step,
		kahn.Inputs(roots), kahn.Limit(1), kahn.Timeout(h.timeout), kahn.TestMode{Mocks: mocks})
	if res == nil {
		return h.t.refuse(err)
	}
	reportNodes(&r.lines, res)
	code := exitOK
	switch {
	case res.Status == kahn.RunCompleted:
		r.lines.WriteString("no step was run\n")
	case res.Status == kahn.RunCancelled, errors.Is(err, kahn.ErrRunTimeout):
		r.lines.WriteString("no step was run; the dry run was stopped\n")
		code = exitCode(res)
	default:
		r.lines.WriteString("no step was run; the nodes after a failure depend on outputs that a dry run does not have\n")
	}
	h.t.write(r.lines.String())
	return code
}

// The method `mock` fills the map `mocks` with a mock for each step of the graph g and of its sub-graphs. If g is a sub-graph, the set `unknown` has
// the inputs of g that come from steps of the enclosing graphs. For the outermost graph the set is nil. If the list of a map comes from a step, a
// dry run does not know the items, so noteMap replaces the map.
func (r *rehearsal) mock(g *kahn.Graph, prefix string, unknown map[string]bool, mocks map[string]kahn.Mock) {
	made := map[string]map[string]bool{} // by node: the parameters that come from steps
	for _, e := range g.Edges() {
		if made[e.To] == nil {
			made[e.To] = map[string]bool{}
		}
		made[e.To][e.Param] = true
	}
	for _, n := range g.Nodes() {
		path, params := prefix+n.ID, made[n.ID]
		if params == nil {
			params = unknown
		}
		switch {
		case n.Map != nil && params[n.Map.Over]:
			mocks[path] = kahn.Mock{Do: r.noteMap}
		case n.Sub != nil:
			r.mock(n.Sub, path+"/", params, mocks)
		case kinds[n.Kind].step != nil && n.TestExpr == "":
			if n.Map != nil {
				path += "[]"
			}
			mocks[path] = kahn.Mock{Do: r.note}
		}
	}
}

// noteMap replaces a map whose list is unknown. It records what a run would do for each item, and returns an empty list.
func (r *rehearsal) noteMap(_ context.Context, s *kahn.Step) (any, error) {
	what := "its graph"
	if s.Kind() != "" {
		text, err := json.Marshal(s.Config())
		if err != nil {
			return nil, err
		}
		what = fmt.Sprintf("%s %s", s.Kind(), foreign.VisibleJSON(text))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.lines, "would run %s[]: %s, for each item of a list that a step makes\n", screenText(s.Path()), what)
	return []any{}, nil
}

// The method `note` replaces a step. It records the path, the kind and the config of this step, and returns the output that the kind has in dry
// runs.
func (r *rehearsal) note(_ context.Context, s *kahn.Step) (any, error) {
	config := s.Config()
	if !kinds[s.Kind()].verbatim {
		switch expanded, err := expand(s, config); {
		case err == nil:
			config = expanded
		case s.Err() != nil, errors.Is(err, errBound):
			return nil, err
		default: // the config needs outputs that a dry run does not have, so note records the config as it is written
		}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.lines, "would run %s: %s %s\n", screenText(s.Path()), s.Kind(), foreign.VisibleJSON(text))
	return kinds[s.Kind()].empty, nil
}
