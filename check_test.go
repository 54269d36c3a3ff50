package kahn_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/seed-c794f7ef/kahn"
)

// checkEvents holds the event stream of a finished run against what every stream must satisfy.
func checkEvents(t testing.TB, g *kahn.Graph, res *kahn.Result, events []kahn.Event) {
	t.Helper()
	if err := eventErrors(g, res, events); err != nil {
		t.Errorf("event stream: %v\n%s", err, eventText(events))
	}
}

var (
	runTerminal  = []kahn.EventType{kahn.EventRunCompleted, kahn.EventRunFailed, kahn.EventRunCancelled, kahn.EventRunTimedOut}
	nodeTerminal = map[kahn.EventType]kahn.Status{
		kahn.EventNodeCompleted: kahn.Completed, kahn.EventNodeFailed: kahn.Failed, kahn.EventNodeAborted: kahn.Aborted,
		kahn.EventNodeCancelled: kahn.Cancelled, kahn.EventNodeSkipped: kahn.Skipped,
	}
)

// place finds the node that an event is about: the graph that it stands in, the path up to it, and its id there. Of an item
// "M[2]" that is the map.
func place(g *kahn.Graph, path string) (in *kahn.Graph, prefix, id string, ok bool) {
	for _, n := range g.Nodes() {
		if n.ID == path {
			return g, "", n.ID, true
		}
		rest, found := strings.CutPrefix(path, n.ID)
		if !found || rest == "" || !strings.ContainsRune("/[#", rune(rest[0])) {
			continue
		}
		item, inner, deeper := strings.Cut(rest, "/")
		switch {
		case !deeper && rest[0] == '[':
			return g, "", n.ID, true
		case deeper && n.Sub != nil:
			in, prefix, id, ok = place(n.Sub, inner)
			return in, n.ID + item + "/" + prefix, id, ok
		}
	}
	return nil, "", "", false
}

// inside reports whether a path is that of a node inside a composite.
func inside(path, composite string) bool {
	rest, ok := strings.CutPrefix(path, composite)
	return ok && rest != "" && strings.ContainsRune("/[#", rune(rest[0]))
}

// life is what a stream tells of one node.
type life struct {
	queued, started int
	refused         kahn.EventType // its last event, if that says that it was refused
	reentered       int            // starts after a wait, in the same attempt
	gate            bool           // it is completed by a signal, without a start
	terminal        kahn.Status
}

func eventErrors(g *kahn.Graph, res *kahn.Result, events []kahn.Event) error {
	if len(events) < 2 || events[0].Type != kahn.EventRunStarted {
		return fmt.Errorf("it does not begin with %s", kahn.EventRunStarted)
	}
	nodes := map[string]*life{}
	var composites []string // running ones
	for i, e := range events {
		if e.ID != uint64(i+1) {
			return fmt.Errorf("event %d has id %d", i+1, e.ID)
		}
		if slices.Contains(runTerminal, e.Type) != (i == len(events)-1) {
			return fmt.Errorf("%v is, or is not, the last event", e)
		}
		if i > 0 && e.Time.Before(events[i-1].Time) {
			return fmt.Errorf("%v is before its predecessor", e)
		}
		if e.Node == "" {
			continue
		}
		in, prefix, id, ok := place(g, e.Path)
		if !ok {
			return fmt.Errorf("%v: no such node", e)
		}
		n := nodes[e.Path]
		if n == nil {
			n = &life{gate: isGate(in, id)}
			nodes[e.Path] = n
		}
		if n.terminal != kahn.Idle {
			return fmt.Errorf("%v after the node's end", e)
		}
		if n.refused != "" && (e.Type == kahn.EventNodeStarted || e.Type == kahn.EventNodeSkipped) {
			return fmt.Errorf("%v after %s", e, n.refused)
		}
		n.refused = ""
		if prefix != "" || strings.HasPrefix(e.Path, id+"[") {
			if !slices.ContainsFunc(composites, func(c string) bool { return inside(e.Path, c) }) {
				return fmt.Errorf("%v while nothing that it is inside of runs", e)
			}
		}
		switch e.Type {
		case kahn.EventContractViolated, kahn.EventModerationFlagged:
			n.refused = e.Type
			phase := kahn.PhaseOutput
			if n.started == 0 {
				phase = kahn.PhaseInput
			}
			if p, ok := e.Payload.(kahn.ContractViolated); ok && (p.Phase != phase || len(p.Errors) == 0) {
				return fmt.Errorf("%v after %d starts", e, n.started)
			}
			if p, ok := e.Payload.(kahn.ModerationFlagged); ok && p.Phase != phase {
				return fmt.Errorf("%v after %d starts", e, n.started)
			}
		case kahn.EventNodeQueued:
			n.queued++
		case kahn.EventNodeStarted:
			n.started++
			if n.started != e.Attempt+n.reentered || n.queued != 0 && n.queued != n.started {
				return fmt.Errorf("%v: attempt %d after %d queued, %d started", e, e.Attempt, n.queued, n.started)
			}
			composites = append(composites, e.Path)
			maps.DeleteFunc(nodes, func(path string, _ *life) bool { return inside(path, e.Path) }) // all inside begins anew
		case kahn.EventNodeSuspended:
			if n.started > 0 {
				n.reentered++
			}
		case kahn.EventNodeCompleted:
			if n.started == 0 && !n.gate {
				return fmt.Errorf("%v without a start", e)
			}
		case kahn.EventNodeBlocked:
			next := events[min(i+1, len(events)-1)]
			policy := e.Payload.(kahn.NodeBlocked).Policy
			if policy != kahn.UpstreamSubstitute && (next.Path != e.Path || nodeTerminal[next.Type] == kahn.Idle) {
				return fmt.Errorf("%v is not followed by what the policy does", e)
			}
		}
		if status := nodeTerminal[e.Type]; status != kahn.Idle {
			n.terminal = status
		}
		if e.Type == kahn.EventNodeStarted && !early(in, id) && !strings.HasSuffix(e.Path, "]") {
			for _, edge := range in.Edges() {
				if edge.To != id {
					continue
				}
				before := strings.TrimSuffix(e.Path, id) + edge.From
				if from := nodes[before]; from == nil || from.terminal == kahn.Idle {
					return fmt.Errorf("%v before the end of %s", e, before)
				}
			}
		}
		if n.terminal != kahn.Idle || e.Type == kahn.EventNodeRetried {
			composites = slices.DeleteFunc(composites, func(c string) bool { return c == e.Path })
			for path, inner := range nodes {
				if inside(path, e.Path) && inner.terminal == kahn.Idle {
					return fmt.Errorf("%v before the end of %s", e, path)
				}
			}
		}
	}
	return resultErrors(res, nodes, "")
}

// resultErrors compares the nodes of a result, those inside of composites too, with what the stream told of them.
func resultErrors(res *kahn.Result, nodes map[string]*life, prefix string) error {
	for r := range res.Nodes() {
		n := nodes[prefix+r.ID]
		if n == nil {
			n = &life{}
		}
		if n.terminal != r.Status {
			return fmt.Errorf("node %s is %v in the result and %v in the stream", prefix+r.ID, r.Status, n.terminal)
		} else if n.started != r.Attempts+n.reentered {
			return fmt.Errorf("node %s has %d attempts in the result and %d in the stream", prefix+r.ID, r.Attempts, n.started)
		}
		if r.Sub != nil {
			if err := resultErrors(r.Sub, nodes, prefix+r.ID+"/"); err != nil {
				return err
			}
		}
	}
	return nil
}

// early reports whether a node may start before all its predecessors have ended.
func early(g *kahn.Graph, id string) bool {
	for _, n := range g.Nodes() {
		switch {
		case n.ID != id:
		case n.Join > 255: // AtLeast
			return true
		default:
			return n.Join == kahn.AnySucceeded || n.Join == kahn.OneFailed || n.Join == kahn.OneDone
		}
	}
	return false
}

func isGate(g *kahn.Graph, id string) bool {
	return slices.ContainsFunc(g.Nodes(), func(n kahn.Node) bool { return n.ID == id && n.Kind == kahn.KindGate && n.Do == nil })
}
