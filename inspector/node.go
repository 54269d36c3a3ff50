package inspector

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// nodeReply describes one node.
type nodeReply struct {
	nodeRow
	Parent    string   `json:"parent,omitempty"` // the path of the composite that contains the node
	Type      string   `json:"type"`
	Composite bool     `json:"composite,omitempty"`
	Groups    []string `json:"groups,omitempty"`
	// Timeout bounds each attempt of a step, and Overall bounds all its attempts together; 0 means no bound. Both are nil if the node is not a
	// step, or if the plan is unknown.
	Timeout *float64 `json:"timeout_ms,omitempty"`
	Overall *float64 `json:"overall_timeout_ms,omitempty"`
	// Slots describes the node's groups, if the plan is known.
	Slots     []groupSlots `json:"slots,omitempty"`
	Key       string       `json:"key,omitempty"`
	Flags     []string     `json:"flags,omitempty"` // special properties of the result
	Hit       *hitReply    `json:"hit,omitempty"`   // the earlier run that produced a memoized output; nil if there is none
	Labels    []string     `json:"labels,omitempty"`
	Usage     kahn.Usage   `json:"usage,omitempty"` // the usage of the node's ended attempts and of the nodes inside it
	Why       whyReply     `json:"why"`
	Cause     string       `json:"cause,omitempty"`
	Origins   []string     `json:"origins,omitempty"`
	Errors    []string     `json:"errors,omitempty"` // the error and the errors that it wraps, the outermost first
	Config    *value       `json:"config,omitempty"`
	Inputs    []input      `json:"inputs,omitempty"`
	Output    *value       `json:"output,omitempty"`
	Tries     []attempt    `json:"tries"`
	Upstream  []neighbour  `json:"upstream"`
	Following []neighbour  `json:"downstream"`
	Gate      *gate        `json:"gate,omitempty"`
	Decision  *answered    `json:"decision,omitempty"`
	Undone    *undoneReply `json:"undone,omitempty"`   // the progress of undoing the node; nil if there is none
	Requests  []requestRow `json:"requests,omitempty"` // only for a node of a stored run
	Actions   []string     `json:"actions"`            // the actions that are possible now: signal, cancel, retry, redrive, compensate
	Data      bool         `json:"data"`               // whether the client may see values
	Note      string       `json:"note,omitempty"`     // what the response lacks
	// Gone is the time at which the run's process was last heard of. It is set only if a stored run has lost its process: the run has the status
	// running, but no process performs it.
	Gone string `json:"gone,omitempty"`
}

// whyReply explains the state of a node.
type whyReply struct {
	Kind  kahn.WhyKind `json:"kind"`
	Text  string       `json:"text"`
	Since string       `json:"since,omitempty"`
	Until string       `json:"until,omitempty"`
	Nodes []string     `json:"nodes,omitempty"`
	More  int          `json:"more,omitempty"`
}

type input struct {
	Name  string `json:"name"`
	Open  bool   `json:"open,omitempty"` // the input may still change
	Value *value `json:"value,omitempty"`
}

type attempt struct {
	Number int     `json:"n"`
	Start  string  `json:"start,omitempty"`
	End    string  `json:"end,omitempty"`
	Error  string  `json:"error,omitempty"`
	Delay  float64 `json:"delay_ms,omitempty"` // the delay before the next attempt
}

// neighbour is a predecessor or a successor of the described node, with the edge between the two nodes and the state of this edge.
type neighbour struct {
	Path   string      `json:"path"`
	Status kahn.Status `json:"status"`
	Label  string      `json:"label,omitempty"`
	Param  string      `json:"param,omitempty"`
	On     string      `json:"on,omitempty"`
	Data   bool        `json:"data,omitempty"`
	Edge   string      `json:"edge"` // open, taken or dead
}

// mostNeighbours is the maximum number of in-edges of a node in a response, and also of its out-edges; further edges are left out.
const mostNeighbours = 200

func (c *call) node() (any, error) {
	path := c.query.text("path")
	at, err := c.place(path)
	if err != nil {
		return nil, err
	}
	res, err := c.target.Node(path)
	if err != nil {
		return nil, err
	}
	why, err := c.target.Why(path)
	if err != nil {
		return nil, err
	}
	n, kind := at.node(), ""
	if s := c.stored(); s != nil && at.plan == nil {
		kind, _ = s.shape(path)
	} else {
		kind = typeOf(n, isItem(at.parent, path))
	}
	_, noComposite := c.target.Inside(path)
	reply := nodeReply{
		nodeRow: c.nodeRow(res, at.in.prefix), Parent: at.parent, Type: kind, Composite: noComposite == nil,
		Groups: n.Groups, Flags: flagsOf(res), Hit: c.hit(res.Hit), Labels: res.Labels, Cause: res.Cause.Kind.String(), Origins: res.Cause.Origins,
		Why: c.why(path, why), Data: c.mayViewData(), Tries: []attempt{}, Actions: c.nodeActions(at, res), Undone: c.undone(res), Usage: res.Usage,
	}
	if kind == "step" && at.plan != nil {
		reply.Timeout, reply.Overall = expectedMillis(max(0, n.Timeout)), expectedMillis(max(0, n.OverallTimeout))
	}
	reply.Slots = c.groupSlots(n.Groups)
	reply.Upstream, reply.Following = c.neighbours(at)
	for _, a := range res.History() {
		reply.Tries = append(reply.Tries, attempt{a.Number, stamp(a.Start), stamp(a.End), c.shownError(path, a.Err), float64(a.Delay) / float64(time.Millisecond)})
	}
	if why.Wait != nil {
		c.edges = adjacency{}
		g := c.gate(*why.Wait)
		g.Bases = c.bases(g.Run, path, c.basesOf(path))
		reply.Gate = &g
	}
	if s := c.stored(); s != nil {
		reply.Requests, reply.Gone = c.requests(s, path), s.gone()
	}
	if reply.Data {
		c.addData(&reply, n, res)
	}
	return reply, nil
}

// groupSlots says how many members of a group run now, how many may run at once, and whether the failure of a member stops the other members.
type groupSlots struct {
	Name  string `json:"name"`
	Limit int    `json:"limit,omitempty"` // how many members may run at the same time; 0: any number
	// Used is the number of members that run now. It is nil while a composite runs, because the composite may contain further members.
	Used    *int `json:"used,omitempty"`
	Cancels bool `json:"cancels,omitempty"` // whether the failure of a member stops the other members
}

// groupSlots describes the groups with the given names. It leaves out groups that the outermost graph of the run does not declare.
func (c *call) groupSlots(names []string) (list []groupSlots) {
	plan := c.target.Plan()
	if plan == nil {
		return nil
	}
	for _, g := range plan.Groups() {
		if !slices.Contains(names, g.Name) {
			continue
		}
		x := groupSlots{Name: g.Name, Limit: g.Limit, Cancels: g.CancelOnFailure}
		if used, ok := running(c.target, plan, g.Name); ok {
			x.Used = &used
		}
		list = append(list, x)
	}
	return list
}

// fullGroup returns the name of the first full group of a node: a group in which no slot is free. It returns "" if no group of the node is known
// to be full. The map `full` caches for each group whether it is full.
func (c *call) fullGroup(id string, full map[string]bool) string {
	plan := c.target.Plan()
	if plan == nil {
		return ""
	}
	ref, ok := plan.Ref(id)
	if !ok {
		return ""
	}
	for _, name := range plan.Node(ref).Groups {
		if _, known := full[name]; !known {
			full[name] = slices.ContainsFunc(c.groupSlots([]string{name}), func(g groupSlots) bool { return g.Limit > 0 && g.Used != nil && *g.Used >= g.Limit })
		}
		if full[name] {
			return name
		}
	}
	return ""
}

// The function `running` counts the running members of a group. The result `ok` is false if a composite runs, because the composite may contain
// further members.
func running(run subject, plan *kahn.Plan, group string) (used int, ok bool) {
	for res := range run.Nodes() {
		ref, known := plan.Ref(res.ID)
		if !known || res.Status != kahn.Running {
			continue
		}
		if _, err := run.Inside(res.ID); err == nil {
			return 0, false
		}
		if slices.Contains(plan.Node(ref).Groups, group) {
			used++
		}
	}
	return used, true
}

// addData adds the values to the reply. It is called only for a client that may ViewData.
func (c *call) addData(reply *nodeReply, n kahn.Node, res kahn.NodeResult) {
	path := reply.Path
	if key := cmp.Or(n.Key, res.Key); key != "" {
		reply.Key = c.shownText(Value{Path: path, Kind: Key, Value: key})
	}
	for err, depth := res.Err, 0; err != nil && depth < 10; depth++ {
		reply.Errors = append(reply.Errors, c.shownError(path, err))
		x, ok := err.(interface{ Unwrap() error })
		if !ok {
			break
		}
		err = x.Unwrap()
	}
	if n.Config != nil {
		reply.Config = c.shown(Value{Path: path, Kind: Config, Value: n.Config})
	}
	if res.Status == kahn.Completed || res.Output != nil {
		reply.Output = c.shown(Value{Path: path, Kind: Output, Value: res.Output})
	}
	reply.Decision = c.decision(path, res.Decision)
	if c.stored() != nil {
		reply.Note = "The store does not have the inputs of steps."
		return
	}
	params, open, err := c.target.Inputs(path)
	if err != nil {
		return // a function of the host panicked while it copied the values
	}
	for name, v := range params {
		reply.Inputs = append(reply.Inputs, input{Name: name, Open: slices.Contains(open, name), Value: c.shown(Value{Path: path, Kind: Input, Name: name, Value: v})})
	}
	for _, name := range open {
		if _, known := params[name]; !known {
			reply.Inputs = append(reply.Inputs, input{Name: name, Open: true})
		}
	}
	slices.SortFunc(reply.Inputs, func(a, b input) int { return strings.Compare(a.Name, b.Name) })
	reply.Inputs = reply.Inputs[:min(len(reply.Inputs), mostInputs)]
}

// The method `decision` returns the parts of a gate's answer that the client may see.
func (c *call) decision(path string, d *kahn.Decision) *answered {
	if d == nil {
		return nil
	}
	x := &answered{By: clip(d.Actor, shownText), Comment: c.dataText(Value{Path: path, Kind: Answer, Name: "comment", Value: d.Comment})}
	if d.Value != nil {
		x.Value = c.shown(Value{Path: path, Kind: Answer, Value: d.Value})
	}
	return x
}

// The method `why` describes a node's state in words. From clients that may not ViewData it hides errors, messages of user code, and keys. It
// also hides the ids of runs of which the client may not know.
func (c *call) why(path string, y kahn.Why) whyReply {
	if c.h.Visible != nil {
		y.Runs = slices.DeleteFunc(slices.Clone(y.Runs), func(id string) bool {
			run, ok := c.h.Runner.Run(id)
			return !ok || !c.h.seesLive(c.r, run)
		})
	}
	if own, ok := y.Err.(*kahn.NodeError); ok { // replace the inner error: the text of a NodeError includes the text of its field Err
		hidden := *own
		hidden.Err = c.plain(path, own.Err)
		y.Err = &hidden
	} else if y.Err != nil {
		y.Err = c.plain(path, y.Err)
	}
	y.Cause.Err = y.Err
	for _, said := range []*string{&y.Skip.Message, &y.Skip.Answer, &y.Skip.Expression} {
		*said = c.dataText(Value{Path: path, Kind: Reason, Value: *said})
	}
	if y.Bound.Scope == kahn.BoundKey || y.Bound.Scope == kahn.BoundRunnerKey || y.Bound.Scope == kahn.BoundSharedKey {
		if y.Bound.Name = c.dataText(Value{Path: path, Kind: Key, Value: y.Bound.Name}); y.Bound.Name == "" {
			y.Bound.Name = "(not shown)"
		}
	}
	return whyReply{Kind: y.Kind, Text: clip(y.String(), shownText), Since: stamp(y.Since), Until: stamp(y.Until), Nodes: y.Nodes, More: y.More}
}

// The method `plain` returns an error that contains only the text that the client may see.
func (c *call) plain(path string, err error) error {
	if shown := c.shownError(path, err); shown != "" {
		return plainError(shown)
	}
	return plainError("an error that is not shown")
}

// plainError is an error that consists of a text.
type plainError string

func (e plainError) Error() string { return string(e) }

// flagsOf returns the names of the special properties that a node's result has.
func flagsOf(res kahn.NodeResult) (list []string) {
	for _, x := range []struct {
		is   bool
		name string
	}{
		{res.Memoized, "memoized"}, {res.Fallback, "fallback"}, {res.Mocked, "mocked"}, {res.Tolerated, "tolerated"}, {res.Abandoned, "abandoned"},
	} {
		if x.is {
			list = append(list, x.name)
		}
	}
	return list
}

// nodeActions returns the actions on a node that are possible in the present statuses of the node and of the run.
func (c *call) nodeActions(at place, res kahn.NodeResult) []string {
	list, run, ofRun := []string{}, c.target, c.h.actionsOf(c.target)
	ended := over(run)
	_, waits := waitOf(run, res.ID)
	if ended && res.Compensation == kahn.CompensationFailed && res.Undoing != nil && slices.Contains(ofRun, "compensate") {
		list = append(list, "compensate")
	}
	if s := c.stored(); s != nil {
		switch {
		case res.Status == kahn.Suspended && waits && slices.Contains(ofRun, "cancel"):
			list = append(list, "signal")
		case slices.Contains(ofRun, "redrive") && ended:
			list = append(list, "redrive")
		}
		if slices.Contains(ofRun, "cancel") && s.judgeCancel(res.ID) == nil {
			list = append(list, "cancel")
		}
		return list
	}
	switch {
	case ended:
	case res.Status == kahn.Suspended && waits:
		list = append(list, "signal")
	case res.Status == kahn.Retrying:
		list = append(list, "retry")
	}
	if !ended && !res.Status.Terminal() && at.parent == "" && run.Status() != kahn.RunPending {
		list = append(list, "cancel")
	}
	if ended {
		list = append(list, "redrive")
	}
	return list
}

// neighbours returns the predecessors and the successors of a node, each with its edge to or from the node. If the plan is unknown, it returns
// none.
func (c *call) neighbours(at place) (up, down []neighbour) {
	up, down = []neighbour{}, []neighbour{}
	if at.plan == nil {
		return up, down
	}
	id := at.plan.ID(at.ref)
	for e, side := range at.plan.Edges() {
		if e.To != id && e.From != id {
			continue
		}
		other, list := e.From, &up
		if e.From == id {
			other, list = e.To, &down
		}
		from, err := c.target.Node(at.in.prefix + e.From)
		if err != nil || len(*list) == mostNeighbours {
			continue
		}
		res := from
		if other != e.From {
			if res, err = c.target.Node(at.in.prefix + other); err != nil {
				continue
			}
		}
		x := neighbour{Path: at.in.prefix + other, Status: res.Status, Label: e.Label, Param: e.Param, Data: side || e.DataOnly, Edge: fate(e, from, observes(at.plan, e.To))}
		if e.On != kahn.OnSuccess {
			x.On = e.On.String()
		}
		*list = append(*list, x)
	}
	return up, down
}

// The function `observes` reports whether a node is a cleanup node or the end node. Such a node runs in any case, even if its predecessors fail.
func observes(plan *kahn.Plan, id string) bool {
	ref, ok := plan.Ref(id)
	if !ok {
		return false
	}
	n := plan.Node(ref)
	return n.Cleanup || n.Kind == kahn.KindEnd
}

// The function `fate` returns the state of an edge: open, taken or dead. The argument `from` is the result of the edge's source, and `observed`
// says whether the edge's target is a cleanup node or the end node. For an edge that waits for success, a tolerated failure counts as success.
func fate(e kahn.Edge, from kahn.NodeResult, observed bool) string {
	if !from.Status.Terminal() {
		return "open"
	}
	taken := observed
	switch failed := from.Status == kahn.Failed || from.Status == kahn.Aborted; {
	case observed:
	case e.On == kahn.OnAlways:
		taken = true
	case e.On == kahn.OnFailure:
		taken = failed && (len(e.Causes) == 0 || slices.Contains(e.Causes, from.Cause.Kind))
	default:
		taken = (from.Status == kahn.Completed || from.Tolerated) && (e.Label == "" || slices.Contains(from.Labels, e.Label))
	}
	if taken {
		return "taken"
	}
	return "dead"
}
