package inspector

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// graphReply is a graph as the page draws it.
type graphReply struct {
	// Inside is the path of the composite that contains the graph; "" for the outermost graph. The path of a node is Prefix followed by
	// its id.
	Inside    string      `json:"inside,omitempty"`
	Prefix    string      `json:"prefix,omitempty"`
	Iteration int         `json:"iteration,omitempty"` // the number of the loop's current or last iteration; 0 if the composite is no loop
	Known     bool        `json:"known"`               // false if the composite has no graph yet
	Nodes     []graphNode `json:"nodes"`
	Edges     []graphEdge `json:"edges"`
	Groups    []string    `json:"groups"`
	Note      string      `json:"note,omitempty"` // why the response is incomplete
	Total     int         `json:"total"`          // the number of nodes of the graph; Nodes lists fewer if the graph is too large to draw
}

type graphNode struct {
	ID        string   `json:"id"`
	Label     string   `json:"label,omitempty"`
	Kind      string   `json:"kind,omitempty"`
	Type      string   `json:"type"` // step, condition, gate, sub, map or loop
	Tier      int      `json:"tier"`
	Groups    []string `json:"groups,omitempty"`
	Cleanup   bool     `json:"cleanup,omitempty"`
	Composite bool     `json:"composite,omitempty"` // the node may have nodes inside
}

type graphEdge struct {
	From  int    `json:"from"` // From and To are indices in Nodes
	To    int    `json:"to"`
	Label string `json:"label,omitempty"`
	On    string `json:"on,omitempty"`   // failure or always; empty if the edge waits for success
	Data  bool   `json:"data,omitempty"` // the edge delivers data only
}

// mostNodes is the maximum number of nodes of one graph in a response; further nodes are left out.
const mostNodes = 20_000

// The type `inside` is one graph of a run: the outermost graph, or the graph in a composite.
type inside struct {
	plan      *kahn.Plan // nil if unknown
	known     bool       // whether the graph exists
	prefix    string
	iteration int
	nodes     func(func(kahn.NodeResult) bool)
}

// The function `look` returns the graph in the composite with the given path, or the outermost graph of the run if the path is empty.
func look(run subject, path string) (inside, error) {
	if path == "" {
		return inside{plan: run.Plan(), known: true, nodes: run.Nodes()}, nil
	}
	in, err := run.Inside(path)
	if err != nil {
		return inside{}, err
	}
	return inside{plan: in.Plan, known: in.Plan != nil || in.Nodes != nil, prefix: in.Prefix, iteration: in.Iteration, nodes: slices.Values(in.Nodes)}, nil
}

// A place says where a node is: its number in a plan, and the graph that contains it.
type place struct {
	plan   *kahn.Plan
	ref    machine.Ref
	in     inside
	parent string // the path of the composite that contains the node, "" in the outermost graph
}

// The method `node` returns the node's declaration, or the zero Node if the plan is unknown.
func (at place) node() kahn.Node {
	if at.plan == nil {
		return kahn.Node{}
	}
	return at.plan.Node(at.ref)
}

// looked caches the graphs that one request has read. The key is the path of the composite, or "" for the outermost graph. With this cache, a
// request for a list of nodes reads the graph of each composite only once, however many of its nodes are listed. A nil map caches nothing.
type looked map[string]inside

// The method `look` returns a graph from the cache. If the graph is not there, the method calls the function `look` and caches the result.
func (x looked) look(run subject, path string) (inside, error) {
	if in, ok := x[path]; ok {
		return in, nil
	}
	in, err := look(run, path)
	if err == nil && x != nil {
		x[path] = in
	}
	return in, err
}

// The method `place` returns the place of a node of the run that the request names.
func (c *call) place(path string) (place, error) { return find(c.target, path, c.looked) }

// The function `find` returns the place of the node at a path. An id may contain slashes and brackets, so the first id of the path may end at any
// slash or bracket. Therefore find tries each beginning of the path that is the id of a node.
func find(run subject, path string, seen looked) (place, error) {
	if s, ok := run.(*storedRun); ok {
		return s.find(path)
	}
	if _, err := run.Node(path); err != nil {
		return place{}, err
	}
	in, err := seen.look(run, "")
	if err != nil {
		return place{}, err
	}
	if at, ok := findIn(run, in, "", path, seen); ok {
		return at, nil
	}
	return place{}, unknownPath(path)
}

// findIn looks for the node with the given path in the graph `in`, and in the graphs inside it. The path must begin with in.prefix. The argument
// `parent` is the path of the composite that contains the graph `in`.
func findIn(run subject, in inside, parent, path string, seen looked) (place, bool) {
	rest := path[len(in.prefix):]
	if ref, ok := in.plan.Ref(rest); ok {
		return place{in.plan, ref, in, parent}, true
	}
	for end := range len(rest) {
		id := rest[:end]
		switch rest[end] {
		case '/':
			if i := strings.LastIndexByte(id, '#'); i > 0 && !strings.ContainsAny(id[i:], "/[") {
				id = id[:i]
			}
		case '[':
		default:
			continue
		}
		if _, ok := in.plan.Ref(id); !ok {
			continue
		}
		next, err := seen.look(run, in.prefix+id)
		if err != nil || next.plan == nil || next.plan == in.plan || !strings.HasPrefix(path, next.prefix) {
			continue
		}
		if at, ok := findIn(run, next, in.prefix+id, path, seen); ok {
			return at, true
		}
	}
	return place{}, false
}

// typeOf returns the type of a node. The page chooses the node's picture by this type. The argument `item` says whether the node is an item of a
// map.
func typeOf(n kahn.Node, item bool) string {
	switch {
	case n.Loop != nil:
		return "loop"
	case n.Map != nil && !item:
		return "map"
	case n.Sub != nil:
		return "sub"
	case n.Kind == kahn.KindGate || n.Gate != nil:
		return "gate"
	case n.Test != nil || n.TestExpr != "":
		return "condition"
	}
	return "step"
}

func (c *call) graph() (any, error) {
	path := c.query.text("inside")
	in, err := look(c.target, path)
	if err != nil {
		return nil, err
	}
	reply := graphReply{Inside: path, Prefix: in.prefix, Iteration: in.iteration, Nodes: []graphNode{}, Edges: []graphEdge{}, Groups: []string{}}
	if reply.Known = in.known; in.plan == nil {
		c.bareGraph(&reply, in)
		return reply, nil
	}
	reply.Total = in.plan.Len()
	index := map[string]int{}
	for ref, id := range in.plan.Declared() {
		if len(reply.Nodes) == mostNodes {
			break
		}
		n := in.plan.Node(ref)
		index[id] = len(reply.Nodes)
		kind := typeOf(n, n.ID != id || isItem(path, in.prefix+id))
		reply.Nodes = append(reply.Nodes, graphNode{
			ID: id, Label: n.Label, Kind: n.Kind, Type: kind, Tier: in.plan.Tier(ref), Groups: n.Groups, Cleanup: n.Cleanup,
			Composite: kind == "sub" || kind == "map" || kind == "loop",
		})
	}
	for e, side := range in.plan.Edges() {
		from, ok := index[e.From]
		to, ok2 := index[e.To]
		if !ok || !ok2 {
			continue
		}
		x := graphEdge{From: from, To: to, Label: e.Label, Data: side || e.DataOnly}
		if e.On != kahn.OnSuccess {
			x.On = e.On.String()
		}
		reply.Edges = append(reply.Edges, x)
	}
	for _, g := range in.plan.Groups() {
		reply.Groups = append(reply.Groups, g.Name)
	}
	return reply, nil
}

// bareGraph fills in the reply for a graph whose plan is unknown. If the run is a stored run, it adds the nodes. Otherwise it only counts them.
func (c *call) bareGraph(reply *graphReply, in inside) {
	s := c.stored()
	for n := range in.nodes {
		if reply.Total++; s == nil || len(reply.Nodes) == mostNodes {
			continue
		}
		kind, composite := s.shape(n.ID)
		reply.Nodes = append(reply.Nodes, graphNode{ID: strings.TrimPrefix(n.ID, in.prefix), Label: n.Label, Kind: n.Kind, Type: kind, Tier: n.Tier, Composite: composite})
	}
	if s != nil && in.known && !s.isMap(reply.Inside) {
		reply.Note = "The edges are not known: " + s.planNote()
	}
}

// isItem reports whether a path names an item of the map whose path is `parent`.
func isItem(parent, path string) bool {
	return parent != "" && strings.HasPrefix(path, parent+"[")
}

// stateReply lists the statuses of all nodes of a graph.
type stateReply struct {
	Run runRow `json:"run"`
	// Prefix is defined as in graphReply. It changes when the composite begins, and with each iteration of a loop.
	Prefix string `json:"prefix,omitempty"`
	// Event is the id of the last event before the statuses were read. The reply includes all changes up to this event.
	Event uint64 `json:"event"`
	// Status contains one letter for each node (see letters), in the order of graphReply.Nodes.
	Status string `json:"status"`
	// Attempts contains, for each node with more than one attempt, the number of attempts. The key is the node's index in Status.
	Attempts map[int]int `json:"attempts"`
	// Late contains, for each running node with an estimate, the time in milliseconds until the node counts as late. The key is the node's index
	// in Status. The time is negative if the node is late already. For a stored run Late is empty, because its nodes have no estimates.
	Late map[int]float64 `json:"late_in_ms,omitempty"`
	// Insides contains, for each composite that has begun, the numbers of nodes inside it. The key is the composite's index in Status.
	Insides map[int]insideCounts `json:"insides"`
}

// insideCounts counts the nodes in a composite's graph by status.
type insideCounts struct {
	Iteration int            `json:"iteration,omitempty"` // the number of the loop's current or last iteration; 0 if the composite is no loop
	Counts    map[string]int `json:"counts"`
}

// mostInsides is the maximum number of entries in stateReply.Insides, and also in stateReply.Late; further entries are left out.
const mostInsides = 1_000

// letters has one letter for each status: idle (i), waiting (w), ready (q), running (r), retrying (t), suspended (s), completed (c), failed (f),
// aborted (a), cancelled (x) and skipped (k).
const letters = "iwqrtscfaxk"

func (c *call) state() (any, error) {
	reply := stateReply{Attempts: map[int]int{}, Insides: map[int]insideCounts{}, Late: map[int]float64{}}
	_, reply.Event = c.target.EventRange()
	in, err := look(c.target, c.query.text("inside"))
	if err != nil {
		return nil, err
	}
	reply.Prefix = in.prefix
	var status strings.Builder
	for n := range in.nodes {
		if status.Len() == mostNodes {
			break
		}
		if n.Attempts > 1 {
			reply.Attempts[status.Len()] = n.Attempts
		}
		// The step of an unfinished node may have returned kahn.Expand. Only the method Inside shows whether it has.
		if n.Attempts > 0 && (n.Sub != nil || !n.Status.Terminal() || c.stored() != nil) && len(reply.Insides) < mostInsides {
			if counts, ok := countsInside(c.target, n.ID); ok {
				reply.Insides[status.Len()] = counts
			}
		}
		if in, ok := lateIn(c.target, n); ok && len(reply.Late) < mostInsides {
			reply.Late[status.Len()] = millis(in)
		}
		status.WriteByte(letters[n.Status])
	}
	reply.Status = status.String()
	reply.Run = c.row()
	return reply, nil
}

// countsInside counts the nodes in a composite by status. It returns false if the node is not a composite or has not begun.
func countsInside(run subject, path string) (insideCounts, bool) {
	in, err := run.Inside(path)
	if err != nil || in.Nodes == nil {
		return insideCounts{}, false
	}
	x := insideCounts{Iteration: in.Iteration, Counts: map[string]int{}}
	for _, n := range in.Nodes {
		x.Counts[n.Status.String()]++
	}
	return x, true
}

// nodeRow is a node in the table.
type nodeRow struct {
	Path     string      `json:"path"`
	ID       string      `json:"id"`
	Label    string      `json:"label,omitempty"`
	Kind     string      `json:"kind,omitempty"`
	Status   kahn.Status `json:"status"`
	Tier     int         `json:"tier"`
	Attempts int         `json:"attempts"`
	Start    string      `json:"start,omitempty"`
	Millis   float64     `json:"duration_ms"`
	Estimate *float64    `json:"estimate_ms,omitempty"` // the expected duration of the node; nil if unknown, as in stored runs
	Late     bool        `json:"late,omitempty"`        // the running attempt has taken longer than lateAfter allows
	Memoized bool        `json:"memoized,omitempty"`    // the output comes from an earlier run
	// SlotOf is the name of the node's first full group: a group in which no slot is free. It is set only in lists of nodes, and only for ready
	// nodes of the outermost graph.
	SlotOf string `json:"slot_of,omitempty"`
	Error  string `json:"error,omitempty"` // the first line of the error
}

type nodesReply struct {
	Nodes []nodeRow `json:"nodes"`
	// Next is the value of the parameter "after" for the next page; 0 on the last page.
	Next int `json:"next,omitempty"`
}

func (c *call) nodes() (any, error) {
	in, err := look(c.target, c.query.text("inside"))
	if err != nil {
		return nil, err
	}
	reply := nodesReply{Nodes: []nodeRow{}}
	q, statuses, after, limit := strings.ToLower(c.query.text("q")), c.query.texts["status"], c.query.numbers["after"], c.query.numbers["limit"]
	nodes, full := in.nodes, map[string]bool{}
	if c.query.text("order") == "trouble" {
		nodes = slices.Values(slices.SortedStableFunc(in.nodes, func(a, b kahn.NodeResult) int { return cmp.Compare(troubleOfNode(a), troubleOfNode(b)) }))
	}
	i := 0
	for n := range nodes {
		i++
		if i <= after || statuses != nil && !slices.Contains(statuses, n.Status.String()) ||
			!strings.Contains(strings.ToLower(n.ID), q) && !strings.Contains(strings.ToLower(n.Label), q) {
			continue
		}
		if len(reply.Nodes) == limit {
			reply.Next = i - 1
			break
		}
		row := c.nodeRow(n, in.prefix)
		if n.Status == kahn.Ready && in.prefix == "" {
			row.SlotOf = c.fullGroup(n.ID, full)
		}
		reply.Nodes = append(reply.Nodes, row)
	}
	return reply, nil
}

// troubleOfNode returns the rank of a node in a list that begins with the nodes in trouble.
func troubleOfNode(n kahn.NodeResult) int {
	switch n.Status {
	case kahn.Failed:
		return 0
	case kahn.Suspended, kahn.Retrying:
		return 1
	case kahn.Running:
		return 2
	case kahn.Ready:
		return 3
	default:
		return 4
	}
}

func (c *call) nodeRow(n kahn.NodeResult, prefix string) nodeRow {
	row := nodeRow{
		Path: n.ID, ID: strings.TrimPrefix(n.ID, prefix), Label: n.Label, Kind: n.Kind, Status: n.Status, Tier: n.Tier, Attempts: n.Attempts,
		Start: stamp(n.Start), Millis: float64(n.Duration.Microseconds()) / 1000, Memoized: n.Memoized, Error: firstLine(c.shownError(n.ID, n.Err)),
	}
	if estimate, ok := estimateOf(c.target, n.ID); ok {
		row.Estimate = expectedMillis(estimate)
		in, runs := lateIn(c.target, n)
		row.Late = runs && in < 0
	}
	return row
}

// previewReply lists the nodes that a redrive or a fork would run, or the nodes with which a stored run would continue.
type previewReply struct {
	// Nodes are the paths of the nodes that would run, in declaration order, but at most mostPreviewed. Total is the number of all nodes that
	// would run.
	Nodes []string `json:"nodes"`
	Total int      `json:"total"`
	// Asks are the gates in Nodes: each of them would ask again. Completed are the other nodes in Nodes that have already completed. A composite
	// is not in Completed if only a part of it would run again.
	Asks      []string `json:"asks,omitempty"`
	Completed []string `json:"completed,omitempty"`
	CanFork   bool     `json:"can_fork,omitempty"` // whether a fork is possible, too; a fork may have other inputs
	// If the action needs despite_handlers because nodes have handled failures, Refused is the error of a request without despite_handlers.
	// Otherwise Refused is "".
	Refused string `json:"refused,omitempty"`
	// Inputs are the inputs of the run. The nodes would get them again. Only clients that may view_data see them.
	Inputs []input `json:"inputs,omitempty"`
}

var errNotEnded = &fault{Status: http.StatusConflict, Code: "not_ended", Message: "the run has not ended"}

// mostPreviewed is the maximum number of nodes that a preview lists; further nodes are only counted.
const mostPreviewed = 500

// The method `unended` lists the nodes of the outermost graph with which a stored run will continue: the nodes that have begun but not ended, and
// the nodes that are ready to begin.
func (s *storedRun) unended() previewReply {
	reply := previewReply{Nodes: []string{}}
	for n := range s.Nodes() {
		switch n.Status {
		case kahn.Ready, kahn.Running, kahn.Retrying, kahn.Suspended:
			if reply.Total++; len(reply.Nodes) < mostPreviewed {
				reply.Nodes = append(reply.Nodes, n.ID)
			}
		}
	}
	return reply
}

func (c *call) preview() (any, error) {
	plan, begin := c.target.Plan(), c.query.texts["node"]
	var modes []kahn.Option
	if m := undoMode(c.query.text("compensations")); m != "" {
		modes = append(modes, m.option())
	}
	switch s := c.stored(); {
	case s != nil && s.due() && begin == nil && modes == nil:
		return s.unended(), nil
	case !over(c.target):
		return nil, errNotEnded
	case plan == nil:
		return nil, errNoPlan
	}
	from, err := c.snapshot()
	if err != nil {
		return nil, err
	}
	list, err := kahn.RedrivePreview(plan, from, begin, modes...)
	return c.previewed(from, list, err)
}

// The method `previewed` makes the reply to a preview. The argument `from` is the snapshot of the run; `list` and `err` are the results of
// kahn.RedrivePreview or kahn.ForkPreview.
func (c *call) previewed(from *kahn.Snapshot, list []string, err error) (any, error) {
	reply := previewReply{Nodes: append([]string{}, list[:min(len(list), mostPreviewed)]...), Total: len(list), Inputs: c.rootInputs(from)}
	if errors.Is(err, kahn.ErrHandlers) {
		reply.Refused, err = text(err), nil
	}
	if err != nil {
		return nil, err
	}
	reply.CanFork = slices.Contains(c.h.actionsOf(c.target), "fork")
	c.looked = looked{}
	for i, path := range reply.Nodes {
		at, err := c.place(path)
		if err == nil && at.plan != nil && at.node().Kind == kahn.KindGate && at.node().Do == nil {
			reply.Asks = append(reply.Asks, path)
			continue
		}
		partly := i+1 < len(reply.Nodes) && beneath(reply.Nodes[i+1], path)
		if res, err := c.target.Node(path); err == nil && res.Status == kahn.Completed && !partly {
			reply.Completed = append(reply.Completed, path)
		}
	}
	return reply, nil
}

// rootInputs returns the inputs of the run in a snapshot, as far as the client may see them.
func (c *call) rootInputs(from *kahn.Snapshot) (list []input) {
	if !c.mayViewData() {
		return nil
	}
	inputs := from.Inputs()
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		v := inputs[name]
		if raw, ok := v.(json.RawMessage); ok {
			v = jsonValue(raw)
		}
		list = append(list, input{Name: name, Value: c.shownWithin(Value{RunID: c.target.ID(), Kind: Input, Name: name, Value: v}, shownBasis)})
	}
	return list[:min(len(list), mostInputs)]
}
