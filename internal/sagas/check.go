package sagas

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// Check returns all defects of an ended run. It compares the Result and the events of the run with what the World has recorded.
func (w *World) Check(g *kahn.Graph, res *kahn.Result, err error, events []kahn.Event) (wrong []string) {
	wrong = w.Wrong
	ends, reported := map[string]kahn.Status{}, map[string]bool{}
	for _, e := range events {
		switch e.Type {
		case event.NodeCompleted:
			ends[e.Path] = kahn.Completed
		case event.NodeFailed, event.NodeAborted, event.NodeCancelled, event.NodeSkipped:
			ends[e.Path] = kahn.Failed
		case event.NodeCompensated:
			if reported[e.Path] = e.Payload.(event.Compensation).Err != nil; reported[e.Path] && (res.Status == kahn.RunCompleted || !errors.Is(err, kahn.ErrCompensation)) {
				wrong = append(wrong, fmt.Sprintf("%s could not be undone, and the run is %v: %v", e.Path, res.Status, err))
			}
		}
	}
	for path := range w.Has {
		bad := ""
		if res.Status != kahn.RunCompleted {
			bad = "the run"
		}
		for _, around := range enclosing(path) {
			if bad == "" && ends[around] != kahn.Completed {
				bad = around
			}
			if reported[around] {
				reported[path] = true
			}
		}
		if bad != "" && !reported[path] {
			wrong = append(wrong, fmt.Sprintf("%s has an effect that is neither undone nor reported, and %s has not completed", path, bad))
		}
	}
	plan, _ := g.Compile()
	for n := range res.Nodes() {
		if d, _ := plan.At(n.ID); n.Sub != nil || d.Compensate == nil || d.Map != nil {
			continue
		}
		switch {
		case res.Status == kahn.RunCompleted && (w.Undone[n.ID] > 0 || n.Compensation != kahn.CompensationNone):
			wrong = append(wrong, fmt.Sprintf("%s was undone in a run that has completed", n.ID))
		case n.Compensation == kahn.CompensationRunning,
			n.Compensation == kahn.CompensationDone && (w.Undone[n.ID] == 0 || w.Ended[n.ID] == 0),
			n.Compensation == kahn.CompensationNone && w.Undone[n.ID] > 0,
			(n.Compensation == kahn.CompensationFailed) != (n.CompensationErr != nil) || (n.CompensationErr != nil) != reported[n.ID]:
			wrong = append(wrong, fmt.Sprintf("%s: %v, %v, undone %d times, %v", n.ID, n.Status, n.Compensation, w.Undone[n.ID], n.CompensationErr))
		}
		for path, e := range w.Ended { // all nodes downstream of n and all nodes inside them must have been undone before n
			if top := topOf(path); w.Begun[n.ID] > 0 && slices.Contains(plan.Ancestors(top), n.ID) && (e == 0 && !reported[path] || e > w.Begun[n.ID]) {
				wrong = append(wrong, fmt.Sprintf("%s was undone before %s", n.ID, path))
			}
		}
	}
	return append(wrong, phases(g, events)...)
}

// The function `enclosing` returns the paths of the composites around a node.
func enclosing(path string) (list []string) {
	for i := range len(path) {
		switch path[i] {
		case '/', '[', '#':
			if path[i] != '/' || !strings.Contains(path[strings.LastIndexByte(path[:i], '/')+1:i], "#") {
				list = append(list, path[:i])
			}
		}
	}
	return list
}

// topOf returns the first id in a path, which is the id of a node of the outermost graph.
func topOf(path string) string {
	if i := strings.IndexAny(path, "/[#"); i >= 0 {
		return path[:i]
	}
	return path
}

// The function `phases` checks that all nodes except cleanup nodes and end nodes have ended before the first node is undone. It also checks that no
// cleanup node or end node begins between the first and the last event about undoing a node.
func phases(g *kahn.Graph, events []kahn.Event) (wrong []string) {
	late := map[string]bool{}
	plan, _ := g.Compile()
	for r := range plan.Declared() {
		n := plan.Node(r)
		late[n.ID] = n.Cleanup || n.Kind == kahn.KindEnd
	}
	own := func(e kahn.Event) bool { return e.Path == e.Node && topOf(e.Path) == e.Path && e.Node != "" }
	first, last := -1, -1
	for i, e := range events {
		if own(e) && (e.Type == event.NodeCompensating || e.Type == event.NodeCompensated) {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	for i, e := range events {
		undoes := e.Type == event.NodeCompensating || e.Type == event.NodeCompensated
		switch {
		case first < 0 || !own(e) || undoes:
		case i > first && !late[e.Node], i > first && i < last && e.Type == event.NodeStarted && e.Attempt == 1:
			wrong = append(wrong, fmt.Sprintf("%v lies between compensations", e))
		}
	}
	return wrong
}
