package kahn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Map performs a node once for each item of a list. For each item it calls the node's Do or the host's step function, or begins a nested run of
// the node's Sub. The items are independent: if some of them fail, the others are still performed, unless FailFast is set. The node's output is an
// []any of the items' outputs, in the order of the list.
//
// A step gets its item, index and path from [Step.Item], [Step.Index] and [Step.Path]. Besides the parameters and upstream values of the node, it
// has two parameters named "item" and "index". The nested run of a Sub gets the node's parameters and these two as its root inputs. The node's Retry,
// Timeout, Priority, Memo and Compensate apply to each item. In a map of steps, Groups, Key and KeyFrom apply to each item, too. Other settings apply
// to the map as a whole, for example OverallTimeout, Fallback and ContinueOnFail. Guards and ports are evaluated before the list is read. In the run,
// the map is one node. The results of the items are in NodeResult.Sub.
type Map struct {
	// Over names the parameter that contains the items, as a slice or an array. Compile reports a parameter that nothing can provide. If the node has
	// neither ports nor in-edges, the parameter may be a root input. If the graph does not declare this input, and the run lacks it, the node
	// fails with [CauseContractInput]. The node also fails with this cause if the value is a []byte or no list at all. In all other cases a null or
	// missing value counts as an empty list, whose output is an empty list. But a null or missing value of a required port skips the node.
	Over string
	// Limit is the largest number of items that are performed at the same time. Suspended items do not count. When the signal for
	// a suspended item with a Sub arrives, the item continues at once, even if this exceeds the limit. Zero means that only the run's own limit applies.
	Limit int
	// ToleratedCount is the largest number of items that may fail. ToleratedPercent is the largest percentage of all items that may fail. If both are
	// zero, no item may fail; if both are set, both apply. If more items fail, the node fails with [CauseMapItems] and a [*MapError]. If items fail
	// and the map tolerates this, the node completes, but the run is degraded.
	ToleratedCount   int
	ToleratedPercent float64
	// FailFast aborts the unfinished items as soon as more items have failed than the map tolerates.
	FailFast bool
	// Key returns the concurrency key of an item. For example, if the key is a host or a tenant, [KeyLimit] and [KeyRate] limit the calls for each
	// host or tenant. If Key returns "", the item has no key. Only a map of steps may have a Key, since the nodes of a Sub have their own keys. The
	// node must then have neither a Key nor a KeyFrom of its own. Key is called once for each item before any item begins, and again when the run
	// continues from a snapshot. A panic of Key fails the node.
	Key func(item any) string `json:"-"`
	// Estimate returns the expected duration of an item, which replaces the node's Estimate for this item. If items wait for slots, the item with the
	// longest estimate begins first. Like Key, Estimate is called before any item begins, and again when the run continues from a snapshot.
	Estimate func(item any) time.Duration `json:"-"`
	// If Compact is true, the output has no element for an item that failed or skipped itself. Otherwise the element of this item is null.
	Compact bool
}

// The method `exceeded` reports whether more items have failed than the map tolerates. The parameter n is the number of all items.
func (m *Map) exceeded(failed, n int) bool {
	if m.ToleratedPercent > 0 && float64(failed)*100 > m.ToleratedPercent*float64(n) {
		return true
	}
	return failed > m.ToleratedCount && (m.ToleratedCount > 0 || m.ToleratedPercent == 0)
}

// MapError is the error of a map that failed because more items failed than it tolerates, or because an item returned [AbortRun]. It unwraps to the
// errors of the failed items.
type MapError struct {
	// Results are the outputs of the items, by index. The output of an item that did not complete is null.
	Results []any
	// Failed is the number of items that failed.
	Failed int
	// Errs are the errors of the items that failed, each a [*NodeError], in the order of the list.
	Errs []error
	// Indexes are the indexes of the failed items in the list.
	Indexes []int
}

// Error returns a text with the number of failed items and the first error.
func (e *MapError) Error() string {
	text := fmt.Sprintf("%d of %d items failed", e.Failed, len(e.Results))
	if len(e.Errs) > 0 {
		text += ", the first: " + errorText(e.Errs[0])
	}
	return text
}

// Unwrap returns the errors of the failed items.
func (e *MapError) Unwrap() []error { return e.Errs }

// Item returns the item that the step processes. In nested maps, this is the item of the innermost map. ok is false outside maps.
func (s *Step) Item() (value any, ok bool) {
	if c := s.given(); c != nil {
		return c.Item, c.InMap
	}
	s.read(readItem, "")
	if items, i := s.run.innermost(s.ref, readItem); items != nil {
		return s.run.clone(items.at(i)), true
	}
	return nil, false
}

// Index returns the index of the item that Item returns, or -1 outside maps.
func (s *Step) Index() int {
	if c := s.given(); c != nil {
		if !c.InMap {
			return -1
		}
		return c.Index
	}
	s.read(readIndex, "")
	_, i := s.run.innermost(s.ref, readIndex)
	return i
}

// The type `items` contains the items of a map.
type items struct {
	m      *Map
	list   reflect.Value   // a slice or an array
	plan   *Plan           // contains a node for each item
	failed int             // the number of items that have failed so far; guarded by the run's lock
	abort  bool            // whether an item returned AbortRun; guarded by the run's lock
	text   json.RawMessage // the encoded list; nil if the codec was not called
	stored bool            // whether the list was sent to the store; guarded by the run's lock
}

// The method `keep` restores the list of a map that had ended when the snapshot was taken. If the snapshot does not contain the list, keep does
// nothing.
func (x *items) keep(n *nodeState) {
	if n.List == nil {
		return
	}
	if list := reflect.ValueOf(n.List.value); (list.Kind() == reflect.Slice || list.Kind() == reflect.Array) && list.Len() == len(x.plan.names) {
		x.list, x.stored = list, n.apart
	}
}

func (x *items) len() int {
	if !x.list.IsValid() {
		return 0
	}
	return x.list.Len()
}

func (x *items) at(i int) any { return x.list.Index(i).Interface() }

// itemsOf makes the items of a map. The argument `value` is the value of the parameter that Over names. The argument `key` is the key that the node's
// KeyFrom yields for all items, or "" if there is no such key. itemsOf calls Map.Key and Map.Estimate through protect.
func (p *Plan) itemsOf(ref machine.Ref, value any, key string, protect func(func() error) error) (*items, error) {
	n := p.node(ref)
	x := &items{m: n.Map}
	if !isNull(value) {
		x.list = reflect.ValueOf(value)
		switch kind := x.list.Kind(); {
		case kind != reflect.Slice && kind != reflect.Array, x.list.Type().Elem().Kind() == reflect.Uint8:
			return nil, fmt.Errorf("%w: parameter %s is a %T, not a list", ErrType, quoteID(n.Map.Over), value)
		case x.list.Len() > maxNodes:
			return nil, fmt.Errorf("%w: more than %d items", ErrBadValue, maxNodes)
		}
	}
	x.plan = p.items[ref].repeated(n.ID, x.len())
	source, is := p.keySources[ref]
	perItem := is && source.item
	if !perItem && n.Map.Key == nil && key == "" {
		if n.Map.Estimate == nil {
			return x, nil
		}
		return x, protect(func() error { return x.distinguish(nil) })
	}
	keyOf := func(i int) (string, error) {
		if perItem {
			v, found := x.input(machine.Ref(i), source.name)
			return source.key(v, found)
		}
		if n.Map.Key != nil {
			return n.Map.Key(x.at(i)), nil
		}
		return key, nil
	}
	return x, protect(func() error { return x.distinguish(keyOf) })
}

// The method `distinguish` sets the keys of the items, unless keyOf is nil, and their estimates, if the map has an Estimate.
func (x *items) distinguish(keyOf func(i int) (string, error)) error {
	p, n := x.plan, x.len()
	if keyOf != nil {
		groups, members := slices.Clone(p.groups), map[string][]int32{}
		common := []int32(nil)
		if n > 0 {
			common = p.net.Groups(0)
		}
		member := make([][]int32, n)
		p.rare().keys = make([]string, n)
		for i := range n {
			key, err := keyOf(i)
			if err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
			if _, known := members[key]; !known {
				members[key] = common
				if key != "" {
					members[key] = append(slices.Clip(common), int32(len(groups)))
					groups = append(groups, group{Group: Group{Name: key}, key: true})
				}
			}
			p.keys[i], member[i] = key, members[key]
		}
		p.rare().groups = groups
		p.net.SetGroups(member, p.bounds())
	}
	if x.m.Estimate != nil {
		p.rare().estimates = make([]time.Duration, n)
		for i := range n {
			p.estimates[i] = max(x.m.Estimate(x.at(i)), 0)
		}
		p.net.Reorder(func(r machine.Ref) int64 { return int64(p.estimates[r]) })
	}
	return nil
}

// itemNode returns the node that a map performs for each of its items.
func itemNode(n *node) *node {
	item := Node{
		ID: n.ID, Kind: n.Kind, Label: n.Label, Config: n.Config, Do: n.Do, Sub: n.Sub, Retry: n.Retry, Timeout: n.Timeout,
		Priority: n.Priority, Estimate: n.Estimate, Groups: n.Groups, Key: n.Key,
	}
	if x := n.Undo; x != nil {
		item.Compensate, item.CompensateBy, item.CompensateRetry, item.CompensateTimeout = x.do, x.by, x.retry, x.timeout
	}
	item.Memo, item.MemoName, item.MemoKey, item.Files = n.Memo, n.MemoName, n.MemoKey, n.Files
	if n.Sub != nil {
		item.Groups, item.Key = nil, "" // the node is a composite, and composites hold no slots
	}
	kept := &node{}
	kept.keep(&item)
	return kept
}

// The method `repeated` makes a plan of n nodes, named id[0], id[1] and so on, from a plan of one node. The n nodes share one declaration.
func (p *Plan) repeated(id string, n int) *Plan {
	names := make([]string, n)
	q := &Plan{
		name: p.name, nodes: slices.Repeat(p.nodes, n), routers: p.routers, end: noRef, composite: p.composite, undoes: p.undoes, shared: &shared{}, force: p.force,
		planRare: &planRare{itemOf: id, body: p.subs[0], groups: p.groups, groupIndex: p.groupIndex, lacks: p.lacks},
	}
	for i := range names {
		names[i] = id + "[" + strconv.Itoa(i) + "]"
		q.longest = len(names[i])
	}
	q.net = p.net.Repeat(names)
	q.names, q.declared, q.decl, q.end = q.net.Numbering()
	q.leaves = q.declared
	return q
}

// The method `item` returns the node that performs an item. The argument is the id of this node, such as "M[2]".
func (p *Plan) item(id string) (machine.Ref, bool) {
	digits, ok := strings.CutPrefix(id, p.itemOf+"[")
	if !ok {
		return noRef, false
	}
	i, err := strconv.Atoi(strings.TrimSuffix(digits, "]"))
	if err != nil || i < 0 || i >= len(p.names) || p.names[i] != id {
		return noRef, false
	}
	return machine.Ref(i), true
}

// The method `sub` returns the plan of a node's Sub, or nil if the node has none.
func (p *Plan) sub(r machine.Ref) *Plan {
	if p.body != nil {
		return p.body
	}
	return p.subs[r]
}

// At returns the declaration of the node that has the given path in a run of the plan (see [Step.Path]), and reports whether there is such a node.
// The path is "x" for a node of the graph, "S/x" for a node of a sub-graph, "M[2]" for an item of a map, and "L#1/x" for a node in an iteration of a
// loop. At accepts any item index and any iteration number. It does not find nodes inside expanded nodes, since the plan does not contain
// the graphs that steps return.
func (p *Plan) At(path string) (n Node, ok bool) {
	for p != nil {
		r, ok := p.Ref(path)
		if i := strings.LastIndexByte(path, '['); !ok && i >= 0 && strings.HasSuffix(path, "]") {
			r, ok = p.Ref(path[:i])
			ok = ok && p.node(r).Map != nil
		}
		if ok {
			return p.Node(r), true
		}
		p, path = p.inside(path)
	}
	return Node{}, false
}

// The method `inside` finds the composite into which a path leads. It returns the plan of the composite's graph, and the rest of the path. If there
// is no such composite, it returns nil. No id has the form of a path into another node, so the path leads into at most one composite of p.
func (p *Plan) inside(path string) (sub *Plan, rest string) {
	// An id may contain a slash, so any slash in the path may follow the composite's id.
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if r, ok := p.compositeOf(path[:i]); ok {
			return p.sub(r), path[i+1:]
		}
	}
	return nil, ""
}

// The method `innermost` returns the items of the innermost map around the node, and the index of the item that contains the node or is the node. The
// index is -1 outside maps. The search begins with the node's run, and continues with the runs around it. When the search leaves the nested run of a
// memoized composite, innermost records the input `read` in this run's field `seen` (see sights).
func (r *Run) innermost(ref machine.Ref, read string) (*items, int) {
	for ; r.items == nil; ref, r = r.within.ref, r.outer {
		if r.outer == nil {
			return nil, -1
		}
		r.seen.note(read, "")
	}
	return r.items, int(ref)
}

// The method `home` returns the run and the node that supply the inputs of a node, and the flags of that node's step. For an item these are the outer
// run, the map and the map's flags.
func (r *Run) home(ref machine.Ref, flags stepFlags) (*Run, machine.Ref, stepFlags) {
	if r.items != nil {
		return r.outer, r.within.ref, r.within.flags
	}
	return r, ref, flags
}

// The method `input` returns one of the two inputs that an item has besides the inputs of its map: "item" or "index".
func (x *items) input(ref machine.Ref, name string) (value any, ok bool) {
	switch name {
	case inputItem:
		if !x.list.IsValid() { // the list of a map that ended before the run was continued may be lost
			return nil, false
		}
		return x.at(int(ref)), true
	case inputIndex:
		return int(ref), true
	}
	return nil, false
}

const (
	inputItem      = "item"
	inputIndex     = "index"
	inputIteration = "iteration"
	inputPrevious  = "previous"
)

// itemsRun makes the nested run that performs the items of a map.
func (r *Run) itemsRun(step *Step, x *items) *Run {
	c := r.nested(step, x.plan, r.prefix, 0)
	cfg := *c.cfg
	cfg.limit = x.m.Limit
	cfg.onFailure, cfg.statusRule = Continue, StatusEscaped // the failure of an item concerns only the map
	c.items, c.cfg = x, &cfg
	c.setKeys()
	x.failed, x.abort = 0, false
	return c
}

// itemFailed counts the failure of an item. Under FailFast, it stops the other items if more items have failed than the map tolerates. The caller
// holds the run's lock.
func (r *Run) itemFailed(ref machine.Ref, abortRun bool) {
	x := r.items
	x.failed++
	if abortRun {
		x.abort = true
		r.outdate()
	}
	if x.m.FailFast && r.st.StoppedFor() == CauseNone && x.m.exceeded(x.failed, x.len()) {
		err := fmt.Errorf("%w: %s failed", ErrAborted, quoteID(r.plan.names[ref]))
		r.stop(CauseFailFast, ref, &stopCause{err, context.Canceled}, r.cfg.stopMode.manner())
	}
}

// ofItems returns the conclusion of a map. The run c of the map's items has ended.
func (w *worker) ofItems(c *Run) conclusion {
	x := c.items
	if kind := c.stoppedBy; kind != CauseNone && c.verdict.status != RunCompleted {
		return conclusion{Outcome: machine.Outcome{Status: kind.StopStatus(), Cause: kind}, err: c.outcome().err}
	}
	out := make([]any, 0, len(c.plan.names))
	degraded := false
	for ref, w := range c.st.Words() {
		switch {
		case w.Status() == Completed:
			out = append(out, c.records[ref].value)
			degraded = degraded || w.Is(machine.WordTolerated)
		case !x.m.Compact:
			out = append(out, nil)
		}
	}
	failed := c.failedItems()
	if failed != nil && (x.abort || x.m.exceeded(failed.Failed, x.len())) {
		return conclusion{Outcome: machine.Outcome{Status: Failed, Cause: CauseMapItems}, err: failed, noRetry: event.NoRetryCause, abortRun: x.abort}
	}
	done := w.conclude(attemptResult{value: out})
	done.Degraded = done.Status == Completed && (degraded || failed != nil)
	return done
}

// check validates a map.
func (m *Map) check(n *node, bad report) {
	switch {
	case m.Over == "":
		bad(ErrBadValue, "Map", "Map.Over is empty: name the parameter that contains the items")
	case m.Key != nil && n.Sub != nil:
		bad(ErrBadValue, "Map.Key", "Map.Key is for maps of steps: the nodes of a Sub have keys of their own")
	case m.Key != nil && n.Key != "":
		bad(ErrBadValue, "Map.Key", "it has both a Key and a Map.Key")
	case m.Limit < 0:
		bad(ErrBadValue, "Map.Limit", "Map.Limit %d is negative", m.Limit)
	case m.ToleratedCount < 0:
		bad(ErrBadValue, "Map.ToleratedCount", "Map.ToleratedCount %d is negative", m.ToleratedCount)
	case !(m.ToleratedPercent >= 0 && m.ToleratedPercent <= 100): // also true for NaN
		bad(ErrBadValue, "Map.ToleratedPercent", "Map.ToleratedPercent %v is not from 0 to 100", m.ToleratedPercent)
	}
}

// UpstreamItems returns, as a []T, the value that the edge from a map delivered. The output of item i has the index i. For an item without an
// output, the element is the zero T. If no item failed, errs is nil. Otherwise errs has the length of the list, and errs[i] is the error of item i
// or nil. UpstreamItems also works for a map that failed with a [*MapError].
//
// If the map has Compact set and no item failed, the list contains only the outputs, without gaps. The error matches [ErrType] if an element has
// another type, and [ErrNoValue] if the node delivered nothing. It matches [ErrTooEarly] if an early join did not wait for the map.
func UpstreamItems[T any](s *Step, id string) (list []T, errs []error, err error) {
	v, ok := s.Upstream(id)
	if !ok {
		if err := s.tooEarly(id, ""); err != nil {
			return nil, nil, fmt.Errorf("upstream %s: %w", quoteID(id), err)
		}
	}
	failed := s.View().Err(id)
	if e := (*MapError)(nil); !ok && !errors.As(failed, &e) {
		return nil, nil, fmt.Errorf("upstream %s: %w", quoteID(id), s.noUpstream(id))
	}
	return typedItems[T](v, ok, failed, "upstream", id)
}

// OutputItems returns the output of a map from a Result, in the form that [UpstreamItems] returns. The error matches [ErrUnknownNode] if the id is
// unknown.
func OutputItems[T any](r *Result, id string) (list []T, errs []error, err error) {
	n, ok := r.Node(id)
	if !ok {
		return nil, nil, r.performed().plan.unknownOwn(id)
	}
	failed := n.Err
	ref, _ := r.performed().plan.Ref(id)
	if items := r.performed().endedItems(ref); items != nil {
		if e := items.failedItems(); e != nil {
			failed = e
		}
	}
	return typedItems[T](n.Output, n.Status == Completed, failed, "output of", id)
}

func typedItems[T any](v any, ok bool, failed error, what, id string) (list []T, errs []error, err error) {
	values, is := v.([]any)
	var e *MapError
	switch {
	case errors.As(failed, &e):
		values, errs = e.Results, make([]error, len(e.Results))
		for i, place := range e.Indexes {
			errs[place] = e.Errs[i]
		}
	case !ok || v == nil:
		return nil, nil, fmt.Errorf("%s %s: %w", what, quoteID(id), ErrNoValue)
	case !is:
		return nil, nil, fmt.Errorf("%s %s: %w: %T instead of the list that a map returns", what, quoteID(id), ErrType, v)
	}
	list = make([]T, len(values))
	for i, value := range values {
		if value == nil {
			continue
		}
		if list[i], is = value.(T); !is {
			return nil, nil, fmt.Errorf("%s %s: item %d: %w: %T instead of %T", what, quoteID(id), i, ErrType, value, list[i])
		}
	}
	return list, errs, nil
}

// endedItems returns the run of a map's items, if the map completed and its output does not come from its Fallback. Otherwise it returns nil.
func (r *Run) endedItems(ref machine.Ref) *Run {
	if r.plan.node(ref).Map == nil || r.st.Word(ref).Status() != Completed || r.records[ref].fallback {
		return nil
	}
	if x := r.extras[ref]; x != nil && x.comp != nil && x.comp.child != nil && x.comp.child.items != nil {
		return x.comp.child
	}
	return nil
}

// failedItems returns a MapError with the failures of a map's items, or nil if no item failed. The run r of the items has ended.
func (r *Run) failedItems() *MapError {
	var e *MapError
	for ref, w := range r.st.Words() {
		if status := w.Status(); status == Failed || status == Cancelled {
			if e == nil {
				e = &MapError{Results: make([]any, len(r.plan.names))}
			}
			e.Errs, e.Indexes = append(e.Errs, r.nodeError(ref)), append(e.Indexes, int(ref))
		}
	}
	if e == nil {
		return nil
	}
	e.Failed = len(e.Errs)
	for ref, w := range r.st.Words() {
		if w.Status() == Completed {
			e.Results[ref] = r.records[ref].value
		}
	}
	return e
}

// checkItems makes the items of a map. It is called after all other checks of the map.
func (w *worker) checkItems(res checkResult, flags stepFlags) checkResult {
	r, ref := w.run, w.task.Ref
	m := r.plan.node(ref).Map
	if m == nil || !r.plan.net.Is(ref, machine.FlagComposite) { // a mocked map has no items to check
		return res
	}
	value, ok := r.assembled(ref, flags, m.Over, res.merged)
	if !ok {
		if names := r.paramNames(ref); !slices.Contains(names, m.Over) {
			res.verdict.Fail = CauseContractInput
			res.err = fmt.Errorf("parameter %s: %w: %s", quoteID(m.Over), ErrNoValue, r.plan.noSuchParam(ref, m.Over, names))
			return res
		}
	}
	if res.items, res.err = r.plan.itemsOf(ref, value, res.key, w.protect); res.err != nil {
		res.verdict.Fail = CauseContractInput
		if p := (*PanicError)(nil); errors.As(res.err, &p) {
			res.verdict.Fail = CausePanic
		}
		return res
	}
	text, err := r.keep(value)
	if err != nil { // a list that cannot be encoded fails the node, since snapshots contain lists
		res.verdict.Fail, res.err = causeOfKeep(err), fmt.Errorf("parameter %s: %w", quoteID(m.Over), err)
	}
	res.items.text = text
	return res
}
