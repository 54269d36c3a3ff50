package inspector

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// storedRun is a run in its stored state. Later changes in the store do not change the storedRun.
type storedRun struct {
	row         *store.Run
	snapshot    *kahn.Snapshot // nil for a run that has not begun
	workflow    *Workflow      // nil if Options.Workflows lacks the plan of the run
	here        *kahn.Run      // the Runner's run with the same id and plan, which may be older than the stored state; nil if there is none
	nodes       []*storedPlace // the nodes of the graph, in declaration order
	places      map[string]*storedPlace
	counts      map[kahn.Status]int
	started     time.Time
	heard       time.Time             // when the run's process last gave a sign of life
	events      *store.EventLog       // nil if the store keeps no events
	requests    []store.PostedRequest // the last few requests that wait or were refused
	unclaimable []store.QueueState    // queues that no live process serves
	held        tenure                // whether a process performs the run
	line        *lineRow              // the run's place in its line; nil if the run is not pending, or if the store is no store.TurnStore
}

// The type `tenure` says whether a process performs a stored run that has begun and not ended.
type tenure uint8

const (
	heldUnknown tenure = iota // the store is no store.LeaseReader, or the run has not begun, or the run has ended
	heldBySome                // a process holds the run's lease
	heldByNone                // no process holds the lease: the run waits or was left, or its process has died
)

// tenureOf asks the store whether a process performs a run.
func (h *handler) tenureOf(ctx context.Context, row *store.Run) (tenure, error) {
	from, ok := h.Store.(store.LeaseReader)
	if !ok || row.Status == kahn.RunPending || row.Status.Terminal() {
		return heldUnknown, nil
	}
	switch owner, _, err := from.ReadLease(ctx, row.ID); {
	case err != nil:
		return heldUnknown, err
	case owner == "":
		return heldByNone, nil
	}
	return heldBySome, nil
}

// The method `lost` reports whether the run has lost its process: its status is running, but no process performs the run.
func (s *storedRun) lost() bool { return s.held == heldByNone && s.Status() == kahn.RunRunning }

// If the run is lost, the method `gone` returns when the run's process was last heard of; otherwise it returns "".
func (s *storedRun) gone() string {
	if !s.lost() {
		return ""
	}
	return stamp(s.heard)
}

// storedPlace is a node of a stored run.
type storedPlace struct {
	kahn.SnapshotNode
	parent *storedPlace // nil for a node of the run's graph
	plan   *kahn.Plan   // the plan of the node's graph; nil if unknown
	nodes  []*storedPlace
}

// The method `prefix` returns the part of the node's path that precedes the node's id.
func (x *storedPlace) prefix() string {
	if x.parent == nil {
		return ""
	}
	return x.parent.Prefix
}

// jsonValue is a value of a stored run as the codec has encoded it.
type jsonValue json.RawMessage

func newStoredRun(row *store.Run, snapshot *kahn.Snapshot, w *Workflow, here *kahn.Run) (*storedRun, error) {
	s := &storedRun{row: row, snapshot: snapshot, workflow: w, here: here, places: map[string]*storedPlace{}, counts: map[kahn.Status]int{}}
	var nodes []kahn.SnapshotNode
	switch plan := s.Plan(); {
	case snapshot != nil:
		var err error
		if nodes, err = snapshot.Nodes(plan); err != nil {
			return nil, err
		}
	case plan != nil:
		for ref, id := range plan.Declared() {
			n := plan.Node(ref)
			nodes = append(nodes, kahn.SnapshotNode{NodeResult: kahn.NodeResult{ID: id, RunID: row.ID, Kind: n.Kind, Label: n.Label, Tier: plan.Tier(ref)}})
		}
	}
	s.heard = kahn.LastSign(row, nodes)
	s.nodes = s.add(nodes, nil, s.Plan())
	for _, n := range s.nodes {
		s.counts[n.Status]++
		if !n.Start.IsZero() && (s.started.IsZero() || n.Start.Before(s.started)) {
			s.started = n.Start
		}
	}
	return s, nil
}

// The method `add` adds the nodes of one graph and the nodes inside them. If two nodes have the same path, the field `places` contains the outer
// node.
func (s *storedRun) add(nodes []kahn.SnapshotNode, parent *storedPlace, plan *kahn.Plan) (list []*storedPlace) {
	for _, n := range nodes {
		if raw, ok := n.Output.(json.RawMessage); ok {
			n.Output = jsonValue(raw)
		}
		if n.Decision != nil {
			if raw, ok := n.Decision.Value.(json.RawMessage); ok {
				n.Decision.Value = jsonValue(raw)
			}
		}
		if n.Wait != nil {
			if raw, ok := n.Wait.Info.(json.RawMessage); ok {
				if n.Wait.Info = jsonValue(raw); string(raw) == "null" {
					n.Wait.Info = nil
				}
			}
		}
		if n.Wait != nil && plan == nil {
			n.Choices = n.Wait.Choices
		}
		x := &storedPlace{SnapshotNode: n, parent: parent, plan: plan}
		if s.places[n.ID] == nil {
			s.places[n.ID] = x
		}
		list = append(list, x)
	}
	for _, x := range list {
		if x.Inside != nil {
			x.nodes = s.add(x.Inside, x, x.Plan)
		}
	}
	return list
}

func (s *storedRun) ID() string             { return s.row.ID }
func (s *storedRun) Name() string           { return s.row.Workflow }
func (s *storedRun) Status() kahn.RunStatus { return s.row.Status }
func (s *storedRun) Started() time.Time     { return s.started }

// FirstStarted returns the same as Started, since the store does not have the time at which a process continued the run.
func (s *storedRun) FirstStarted() time.Time { return s.started }

// Plan returns the plan of the run, or nil if neither Options.Workflows nor the Runner has it.
func (s *storedRun) Plan() *kahn.Plan {
	switch {
	case s.workflow != nil:
		return s.workflow.Plan
	case s.here != nil:
		return s.here.Plan()
	}
	return nil
}

// Counts returns the number of the graph's nodes in each status.
func (s *storedRun) Counts() map[kahn.Status]int { return s.counts }

// Node returns the stored result of a node.
func (s *storedRun) Node(path string) (kahn.NodeResult, error) {
	x, err := s.place(path)
	if err != nil {
		return kahn.NodeResult{}, err
	}
	return x.NodeResult, nil
}

func (s *storedRun) place(path string) (*storedPlace, error) {
	if x := s.places[path]; x != nil {
		return x, nil
	}
	return nil, s.astray(path)
}

// The method `astray` returns the error for a path at which there is no node: the error that a live run in this state returns. If the plan is
// unknown, its choices are the nodes that have begun.
func (s *storedRun) astray(path string) *kahn.PathError {
	var in *storedPlace // the innermost composite to which the path leads
	for id, x := range s.places {
		if rest, ok := strings.CutPrefix(path, id); ok && x.Composite && rest != "" && strings.ContainsRune("/[#", rune(rest[0])) && (in == nil || len(id) > len(in.ID)) {
			in = x
		}
	}
	e, list := &kahn.PathError{Path: path}, s.nodes
	if in != nil {
		list = in.nodes
		switch e.Within = in.ID; {
		case in.Iteration > 0 && !strings.HasPrefix(path, in.Prefix):
			e.Reason = fmt.Sprintf("is at iteration %d", in.Iteration)
		case len(list) > 0:
			if strings.HasPrefix(path, in.Prefix) {
				e.Within = strings.TrimSuffix(in.Prefix, "/")
			}
		case in.Status.Terminal():
			e.Reason = "is " + in.Status.String() + ", and nothing in it was performed"
		case in.Iteration > 0:
			e.Reason = "pauses before its next iteration"
		default:
			e.Reason = "has not begun"
		}
	}
	if e.Reason == "" {
		e.Choices = pathsOf(list, nil)
	}
	return e
}

// pathsOf returns the paths of the nodes in the list that the function `chosen` selects; nil selects all.
func pathsOf(list []*storedPlace, chosen func(*storedPlace) bool) (paths []string) {
	for _, x := range list {
		if chosen == nil || chosen(x) {
			paths = append(paths, x.ID)
		}
	}
	return paths
}

// The method `find` returns the place of the node with the given path.
func (s *storedRun) find(path string) (place, error) {
	x, err := s.place(path)
	if err != nil {
		return place{}, err
	}
	at := place{plan: x.plan, in: inside{plan: x.plan, known: true, nodes: s.Nodes()}}
	if x.parent != nil {
		up := x.parent
		at.parent = up.ID
		at.in = inside{plan: up.Plan, known: true, prefix: up.Prefix, iteration: up.Iteration, nodes: resultsOf(up.nodes)}
	}
	if x.plan != nil {
		at.ref, _ = x.plan.Ref(strings.TrimPrefix(path, at.in.prefix))
	}
	return at, nil
}

// The method `shape` returns the type that the page shows for a node whose plan is unknown. The result `composite` means that the node may have
// nodes inside.
func (s *storedRun) shape(path string) (kind string, composite bool) {
	x := s.places[path]
	switch {
	case x == nil || !x.Composite && x.Wait == nil:
		return "step", false
	case x.Wait != nil:
		return "gate", false
	case x.Iteration > 0:
		return "loop", true
	case s.isMap(path):
		return "map", true
	}
	return "sub", true
}

// isMap reports whether the nodes in a composite are items of a map.
func (s *storedRun) isMap(path string) bool {
	x := s.places[path]
	return x != nil && x.Inside != nil && x.Prefix != x.ID+"/" && x.Iteration == 0
}

// planNote says why the plan of a graph is unknown.
func (s *storedRun) planNote() string {
	if s.Plan() != nil {
		return "a step returned this graph while the run was running, and the store does not keep such graphs."
	}
	return fmt.Sprintf("Options.Workflows has no workflow %.60q with the plan %.16s.", s.row.Workflow, s.row.Plan)
}

// Nodes yields the stored results of the graph's nodes. If the plan is unknown, Nodes leaves out idle nodes.
func (s *storedRun) Nodes() iter.Seq[kahn.NodeResult] { return resultsOf(s.nodes) }

func resultsOf(nodes []*storedPlace) iter.Seq[kahn.NodeResult] {
	return func(yield func(kahn.NodeResult) bool) {
		for _, n := range nodes {
			if !yield(n.NodeResult) {
				return
			}
		}
	}
}

// Inside returns the stored data of the nodes in a composite.
func (s *storedRun) Inside(path string) (kahn.Inside, error) {
	x, err := s.place(path)
	switch {
	case err != nil:
		return kahn.Inside{}, err
	case !x.Composite:
		return kahn.Inside{}, fmt.Errorf("%w: %.60q is not a composite", kahn.ErrBadValue, path)
	}
	in := kahn.Inside{Plan: x.Plan, Prefix: x.Prefix, Iteration: x.Iteration}
	if x.nodes != nil {
		in.Nodes = slices.Collect(resultsOf(x.nodes))
	}
	return in, nil
}

// Inputs returns an error, because a store does not have the inputs of steps.
func (s *storedRun) Inputs(string) (params map[string]any, open []string, err error) {
	return nil, nil, errNoInputs
}

var errNoInputs = &fault{Status: http.StatusNotFound, Code: "no_value", Message: "the store does not have the inputs of steps"}

// Waiting returns the waits of the run. A composite has no wait of its own: Waiting returns the waits of the nodes inside it.
func (s *storedRun) Waiting() []kahn.Wait {
	if s.Status().Terminal() {
		return nil
	}
	return waitsOf(s.nodes, nil)
}

func waitsOf(nodes []*storedPlace, list []kahn.Wait) []kahn.Wait {
	for _, n := range nodes {
		if n.Wait != nil {
			list = append(list, *n.Wait)
		}
		list = waitsOf(n.nodes, list)
	}
	return list
}

// EventRange returns the ids of the first and the last stored event; zeros if there is none.
func (s *storedRun) EventRange() (first, last uint64) {
	if s.events == nil {
		return 0, 0
	}
	if first, last = s.events.EventRange(); last == 0 {
		return 0, 0
	}
	return first, last
}

// Events yields the stored events with ids greater than `after`.
func (s *storedRun) Events(ctx context.Context, after uint64) iter.Seq2[kahn.Event, error] {
	if s.events == nil {
		return func(func(kahn.Event, error) bool) {}
	}
	return s.events.Events(ctx, after)
}

// The method `due` reports whether the run can continue now, without an answer. It returns true for a running run, and for a suspended run whose
// WakeAt has passed, unless a process performs the run. If the store cannot say whether a process performs the run, the method assumes that no
// process does.
func (s *storedRun) due() bool {
	switch s.Status() {
	case kahn.RunRunning:
		return s.held != heldBySome
	case kahn.RunSuspended:
		return s.held != heldBySome && !s.row.WakeAt.IsZero() && !s.row.WakeAt.After(time.Now())
	}
	return false
}

// Why explains the state of a node as far as the store shows it. Only the process that performs the run knows whether a
// ready node waits for a limit or for its turn.
func (s *storedRun) Why(path string) (kahn.Why, error) {
	x, err := s.place(path)
	if err != nil {
		return kahn.Why{}, err
	}
	y := kahn.Why{Status: x.Status}
	switch status := x.Status; {
	case status.Terminal():
		y.Kind, y.Cause, y.Skip, y.Err = kahn.WhyEnded, x.Cause, x.Skip, x.Err
	case s.Status() == kahn.RunPending:
		y.Kind, y.Until = kahn.WhyPending, s.row.WakeAt
	case x.Wait != nil:
		y.Kind, y.Wait, y.Choices, y.Since, y.Until = kahn.WhySignal, x.Wait, x.Choices, x.Wait.Since, x.Wait.Deadline
	case status == kahn.Suspended: // a composite
		waits := waitsOf(x.nodes, nil)
		if y.Kind = kahn.WhySignal; len(waits) == 0 {
			y.Kind = kahn.WhyHeld // a process has left the run
		}
		for _, wait := range waits {
			addName(&y, wait.Node)
		}
	case status == kahn.Retrying:
		y.Kind, y.Until = kahn.WhyBackoff, x.Until
		if tries := x.History(); x.Sleeps {
			y.Since = x.Start.Add(x.Duration)
		} else if len(tries) > 0 {
			last := tries[len(tries)-1]
			y.Since, y.Err = last.End, last.Err
		}
	case status == kahn.Running && !x.Until.IsZero():
		y.Kind, y.Until = kahn.WhyPaused, x.Until
	case status == kahn.Running:
		y.Kind = kahn.WhyRunning
		if tries := x.History(); len(tries) > 0 {
			y.Since = tries[len(tries)-1].Start
		}
	case status == kahn.Ready && s.Status() == kahn.RunSuspended:
		y.Kind = kahn.WhyHeld
	case status == kahn.Ready:
		y.Kind = kahn.WhyOrder
	default:
		y.Kind = kahn.WhyWaiting
		s.addOpen(&y, x)
	}
	return y, nil
}

// addOpen adds a node's in-edges whose sources have not ended, and the paths of these sources.
func (s *storedRun) addOpen(y *kahn.Why, x *storedPlace) {
	if x.plan == nil {
		return
	}
	prefix := x.prefix()
	for e := range x.plan.Edges() {
		if prefix+e.To != x.ID {
			continue
		}
		if from := s.places[prefix+e.From]; from != nil && !from.Status.Terminal() {
			if len(y.Edges) < mostNames {
				y.Edges = append(y.Edges, e)
			}
			addName(y, from.ID)
		}
	}
}

// mostNames is the maximum length of the lists in an explanation.
const mostNames = 20

func addName(y *kahn.Why, path string) {
	switch {
	case slices.Contains(y.Nodes, path):
	case len(y.Nodes) < mostNames:
		y.Nodes = append(y.Nodes, path)
	default:
		y.More++
	}
}

// The method `spans` returns the attempts of all nodes in the order of their starts, but at most `limit` attempts. The result `truncated` is true if
// there are further attempts.
func (s *storedRun) spans(zero time.Time, limit int) (spans []span, truncated bool) {
	spans = []span{}
	for _, x := range s.places {
		tries := x.History()
		for i, a := range tries {
			if a.Start.IsZero() {
				continue
			}
			status := x.Status
			if i < len(tries)-1 {
				status = kahn.Retrying
			}
			at := span{Path: x.ID, Attempt: a.Number, Queued: millis(a.Start.Sub(zero)), Start: millis(a.Start.Sub(zero)), Status: status.String()}
			if !a.End.IsZero() {
				at.End = millis(a.End.Sub(zero))
			}
			spans = append(spans, at)
		}
	}
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Attempt, b.Attempt))
	})
	return spans[:min(len(spans), limit)], len(spans) > limit
}

// storedRow returns the row of a run of the store, with only what every client may see.
func (h *handler) storedRow(s *storedRun) runRow {
	row := runRow{
		ID: s.ID(), Workflow: s.Name(), Status: s.Status(), Arrived: stamp(s.row.Created), Started: stamp(s.started), Ended: stamp(s.row.Ended),
		Actions: h.actionsOf(s), Stored: true, Queue: h.queueOf(s.row, s.unclaimable), Compensation: compensationName(s.row.Compensation), Usage: s.row.Usage,
	}
	row.count(s)
	row.First, row.Last = s.EventRange()
	if h.Visible != nil {
		row.Queue = nil // the store's counts include runs that the client may not see
	}
	if s.Plan() == nil {
		row.Note = "Nodes that have not begun are missing: " + s.planNote()
	}
	if !row.Status.Terminal() {
		row.Note = strings.TrimSpace(s.tenureNote() + " " + row.Note)
		if row.Gone = s.gone(); row.Gone != "" {
			row.Millis = took(s.started, s.heard)
		} else {
			row.addRunning(s)
		}
		row.CanContinue = s.workflow != nil && s.workflow.Perform != nil
		row.addWaits(s)
		return row
	}
	row.addEnd(s)
	row.Ended, row.Millis = stamp(s.row.Ended), took(s.started, lastEnd(s, s.started))
	return row
}

// tenureNote says whether a process performs an unfinished run.
func (s *storedRun) tenureNote() string {
	switch {
	case s.held == heldBySome:
		return "Another process performs the run."
	case s.Status() == kahn.RunRunning && s.held == heldByNone: // the field Gone says that no process performs the run
	case s.Status() == kahn.RunRunning:
		return "The store does not record whether a process performs the run now."
	}
	return ""
}
