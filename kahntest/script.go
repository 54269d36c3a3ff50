package kahntest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// Script performs the steps of a run as a script says, and records its calls. Pass its method Step to the run as the step function. Several runs may
// use a Script at once. With the zero value, every node completes.
type Script struct {
	// Acts maps a node's path to the acts of the node's first attempt, its second attempt, and so on. All further attempts follow the last act. [Run]
	// fails the test if the graph has no node at one of the paths: see [Script.Check].
	Acts map[string][]Act
	// Undos is like Acts, but for the attempts to undo a node. It has an effect on nodes that have a CompensateBy, or whose Compensate is [Script.Undo].
	// The Value of an act in Undos is not used.
	Undos map[string][]Act
	// Else is called for each attempt of a node without Acts, and for each attempt to undo a node without Undos. If Else is nil, an attempt of such a
	// node returns the node's id, and an attempt to undo it succeeds.
	Else kahn.StepFunc

	mu    sync.Mutex
	calls []Call
}

// Act says what one attempt does. With the zero value, the attempt completes with a null output.
type Act struct {
	// Delay is the time that passes before the attempt does anything else. If the context of the attempt ends earlier, the attempt fails with the
	// context's error.
	Delay time.Duration
	// Panic, if not nil, is the value with which the attempt panics.
	Panic any
	// Do, if not nil, is the function that the attempt calls. The attempt returns the results of Do.
	Do kahn.StepFunc
	// Value and Err are what the attempt returns if Do is nil.
	Value any
	Err   error
}

// Call is one call of a step.
type Call struct {
	// Node is the path of the node.
	Node    string
	Attempt int
	Params  map[string]any
	// Undo means that the call undoes the node.
	Undo bool
}

// Step is the step function to pass to a run.
func (s *Script) Step(ctx context.Context, step *kahn.Step) (any, error) {
	undo := step.Compensating()
	s.mu.Lock()
	s.calls = append(s.calls, Call{Node: step.Path(), Attempt: step.Attempt(), Params: step.Params(), Undo: undo})
	s.mu.Unlock()
	if met, ok := ctx.Value(scriptsKey{}).(*scripts); ok {
		met.add(s)
	}
	acts := s.Acts[step.Path()]
	if undo {
		acts = s.Undos[step.Path()]
	}
	switch {
	case len(acts) > 0:
		return acts[min(step.Attempt(), len(acts))-1].perform(ctx, step)
	case s.Else != nil:
		return s.Else(ctx, step)
	}
	return step.ID(), nil
}

// Undo is a function for the field Compensate of a [kahn.Node]. It follows Undos.
func (s *Script) Undo(ctx context.Context, step *kahn.Step) error {
	_, err := s.Step(ctx, step)
	return err
}

// The type `scripts` collects the scripts that the steps of a run have followed.
type scripts struct {
	mu   sync.Mutex
	list []*Script
}

// scriptsKey is the context key of the *scripts of a run.
type scriptsKey struct{}

func (m *scripts) add(s *Script) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.list, s) {
		m.list = append(m.list, s)
	}
}

// maxPaths bounds the length of the list of paths. Without it, the length may grow exponentially with the depth of nesting.
const maxPaths = 10_000

// The expression `number` matches the number of an item or an iteration in a path.
var number = regexp.MustCompile(`\[\d+\]|#\d+`)

// Check returns an error that matches [kahn.ErrUnknownNode] if a path in Acts is not the path of a node that the step function performs. It also
// returns this error if a path in Undos is not the path of a node that can be undone. The error lists valid paths, and suggests a similar one. Check
// accepts every path inside a node that a step performs, since the step may return a graph with [kahn.Expand]. It checks nothing if the graph has
// more than 10,000 valid paths.
func (s *Script) Check(g *kahn.Graph) error {
	if len(s.Acts)+len(s.Undos) == 0 {
		return nil
	}
	if g == nil {
		return kahn.ErrNoGraph
	}
	places, all := placesOf(nil, g, "")
	if !all {
		return nil
	}
	expands := map[string]bool{}
	for _, p := range places {
		expands[p.path] = expands[p.path] || p.step
	}
	var problems []error
	look := func(acts map[string][]Act, field, what string, is func(place) bool) {
		known, choices := map[string]bool{}, []string(nil)
		for _, p := range places {
			if is(p) {
				known[p.path], choices = true, append(choices, p.path)
			}
		}
		found := func(path string) bool {
			for i, c := range []byte(path) {
				if c == '/' && expands[path[:i]] {
					return true
				}
			}
			return known[path]
		}
		for _, path := range slices.Sorted(maps.Keys(acts)) {
			first := number.ReplaceAllStringFunc(path, func(n string) string {
				if n[0] == '#' {
					return "#1"
				}
				return "[0]"
			})
			if !found(path) && !found(first) {
				problems = append(problems, fmt.Errorf("%s: %w that %s: %q%s", "Script."+field, kahn.ErrUnknownNode, what, path, instead(path, choices)))
			}
		}
	}
	look(s.Acts, "Acts", "the step function performs", func(p place) bool { return p.script })
	look(s.Undos, "Undos", "has a Compensate", func(p place) bool { return p.undo })
	return errors.Join(problems...)
}

// A place is a node that has a step or can be undone. The field `path` is the node's path, with the first item of each map and the first iteration of
// each loop. The other fields say whether the node has a step (`step`), whether the run's step function performs this step (`script`), and whether
// the node can be undone (`undo`).
type place struct {
	path               string
	step, script, undo bool
}

// placesOf appends the places of a graph, and reports whether the list is complete.
func placesOf(list []place, g *kahn.Graph, prefix string) ([]place, bool) {
	for _, n := range g.Nodes() {
		path := prefix + n.ID
		if n.Map != nil {
			path += "[0]"
		}
		p := place{path: path, undo: n.Compensate != nil || n.CompensateBy != nil}
		if n.Loop != nil {
			path += "#1"
		}
		switch {
		case len(list) >= maxPaths:
			return list, false
		case n.Sub != nil:
			var all bool
			if list, all = placesOf(list, n.Sub, path+"/"); !all {
				return list, false
			}
		case n.Test == nil && n.TestExpr == "" && n.Kind != kahn.KindTrigger && (n.Kind != kahn.KindGate || n.Do != nil):
			p.step, p.script = true, n.Do == nil
		}
		if p.step || p.undo {
			list = append(list, p)
		}
	}
	return list, true
}

// The function `instead` returns the end of an error message. It suggests the choice that is most similar to the written text, if one is similar, and
// lists the first choices.
func instead(written string, choices []string) string {
	const most = 20
	text := ""
	if meant, ok := nearest.Name(written, choices); ok {
		text = fmt.Sprintf("; did you mean %q?", meant)
	}
	switch {
	case len(choices) == 0:
		return text + " (there are none)"
	case len(choices) > most:
		return fmt.Sprintf("%s (known: %s and %d more)", text, strings.Join(choices[:most], ", "), len(choices)-most)
	}
	return fmt.Sprintf("%s (known: %s)", text, strings.Join(choices, ", "))
}

func (a *Act) perform(ctx context.Context, step *kahn.Step) (any, error) {
	if a.Delay > 0 {
		timer := time.NewTimer(a.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if a.Panic != nil {
		panic(a.Panic)
	}
	if a.Do != nil {
		return a.Do(ctx, step)
	}
	return a.Value, a.Err
}

// Calls returns the calls so far, in the order in which they began.
func (s *Script) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// CallsOf returns the calls of one node, including calls that undo it.
func (s *Script) CallsOf(node string) []Call {
	return slices.DeleteFunc(s.Calls(), func(c Call) bool { return c.Node != node })
}

// RequireCalls ends the test unless the text `want` names the calls in their order, as in "A B B C". A call that undoes node B is written "undo:B".
// The steps of nodes that run at the same time may be called in any order. To fix the order, pass kahn.Limit(1) to the run. This limit does not apply
// to compensations.
func RequireCalls(t testing.TB, s *Script, want string) {
	t.Helper()
	var got []string
	for _, c := range s.Calls() {
		if c.Undo {
			c.Node = "undo:" + c.Node
		}
		got = append(got, c.Node)
	}
	called := strings.Join(got, " ")
	if names := strings.Fields(want); !slices.Equal(strings.Fields(called), names) { // ids may have spaces
		t.Fatalf("called   %s\nexpected %s", called, strings.Join(names, " "))
	}
}
