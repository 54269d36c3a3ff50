package temporal

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// A short call leaves out what its worker can compute from the plan, from the activity, and from other members of the call. The history keeps each
// call, so short calls make the history much shorter. A worker of an earlier version cannot read short calls: it hands a short task back, as if it
// did not have the plan. So the input of the workflow says whether the calls of a run are short.

// shortPrint is the length of the hash that names the plan in a short task.
const shortPrint = 12

// A foresight is what a worker computes from a plan alone, for the calls of the plan's nodes.
type foresight struct {
	plan  *kahn.Plan
	once  sync.Once
	nodes map[string]foreseen // by path, without the numbers of items and iterations
}

// foreseen is what a worker computes for the calls of one node.
type foreseen struct {
	id, kind, label string
	tier            int
	params          map[string]any // the node's static parameters
	edges           []kahn.Edge    // into the node, in the order of their declaration
	isItem          bool
}

// The method `at` returns what is foreseen for the node at a path, and the part of the path before the node's id.
func (f *foresight) at(path string) (n foreseen, prefix string) {
	f.once.Do(f.look)
	n, ok := f.nodes[path]
	if !ok {
		n = f.nodes[genericPath(path)]
	}
	if i := strings.LastIndexByte(path, '['); i >= 0 && !strings.HasSuffix(path, n.id) { // the node is a map, and the path leads to an item
		path, n.tier, n.isItem = path[:i], 0, true
	}
	return n, strings.TrimSuffix(path, n.id)
}

// look sets f.nodes.
func (f *foresight) look() {
	f.nodes = map[string]foreseen{}
	for prefix, p := range levels(f.plan) {
		for r := range p.Declared() {
			n := p.Node(r)
			f.nodes[prefix+n.ID] = foreseen{id: n.ID, kind: n.Kind, label: n.Label, tier: p.Tier(r), params: n.Params}
		}
		for e := range p.Edges() {
			n := f.nodes[prefix+e.To]
			n.edges = append(n.edges, kahn.Edge{From: e.From, Param: e.Param})
			f.nodes[prefix+e.To] = n
		}
	}
}

// genericPath returns a path without the numbers of items and iterations: "M/x" for "M[2]/x" and for "M#2/x".
func genericPath(path string) string {
	return strings.NewReplacer("[]", "", "#", "").Replace(withoutNumbers(path))
}

// The parameters that an item's step has in addition to the parameters of its map.
const (
	itemParam  = "item"
	indexParam = "index"
)

// predecessors returns the ids of the predecessors, each once, in the order of their edges.
func (n foreseen) predecessors() []string {
	list := make([]string, 0, len(n.edges))
	seen := make(map[string]bool, len(n.edges))
	for _, e := range n.edges {
		if !seen[e.From] {
			seen[e.From] = true
			list = append(list, e.From)
		}
	}
	return list
}

// The method `given` computes a call's parameters from the plan and from the call's root inputs, upstream values, item and index. Usually the
// result equals the parameters of the call. It can differ if a parameter merges several values or gets the value of a port.
func (n foreseen) given(c *kahn.Call) map[string]any {
	m := map[string]any{}
	if len(n.edges) == 0 {
		maps.Copy(m, c.Root)
	}
	maps.Copy(m, n.params)
	for _, e := range n.edges {
		if value, ok := c.Upstream[e.From]; ok && e.Param != "" {
			m[e.Param] = value
		}
	}
	if n.isItem {
		m[itemParam], m[indexParam] = c.Item, c.Index
	}
	return m
}

// shorten returns the short form of a call that Temporal gets at the given time. If each predecessor has delivered a value, the result "values" has
// these values in order, and the short call leaves them out. If the method `fill` cannot restore the call from its short form, shorten returns the
// call itself and false.
func (f *foresight) shorten(c kahn.Call, now time.Time) (short kahn.Call, values []any, ok bool) {
	n, _ := f.at(c.Path)
	short = c
	short.RunID, short.ID, short.Path, short.IdempotencyKey, short.Predecessors, short.View.ID, short.View.RunStatus = "", "", "", "", nil, "", kahn.RunPending
	if c.Kind == n.kind {
		short.Kind = ""
	}
	if c.Label == n.label {
		short.Label = ""
	}
	if c.Tier == n.tier {
		short.Tier = 0
	}
	if c.Attempt == 1 {
		short.Attempt = 0
	}
	if c.Queued.Equal(now) {
		short.Queued = time.Time{}
	}
	if before := n.predecessors(); len(before) == len(c.Upstream) {
		for _, id := range before {
			if value, ok := c.Upstream[id]; ok {
				values = append(values, value)
			}
		}
		if short.Upstream = nil; len(values) < len(before) {
			short.Upstream, values = c.Upstream, nil
		}
	}
	short.Params = missingIn(n.given(&c), c.Params)
	if n.isItem {
		short.Root = missingIn(c.Params, c.Root)
	}
	for _, part := range []func(){
		func() {},
		func() { short.Predecessors = c.Predecessors }, // needed after an early join, or if a predecessor has not completed
		func() {
			short.IdempotencyKey, short.ID, short.View.ID, short.View.RunStatus = c.IdempotencyKey, c.ID, c.View.ID, c.View.RunStatus
		},
	} {
		part()
		whole := short
		f.fill(&whole, values, c.Path, c.RunID, c.Queued)
		if reflect.DeepEqual(whole, c) {
			return short, values, true
		}
	}
	return c, nil, false
}

// missingIn returns the wanted values that the map "have" lacks, or has with another value.
func missingIn(have, wanted map[string]any) map[string]any {
	var missing map[string]any
	for name, value := range wanted {
		if other, ok := have[name]; !ok || !reflect.DeepEqual(other, value) {
			set(&missing, name, value)
		}
	}
	return missing
}

// fill sets the fields that a short call leaves out. The parameter "queued" is the time at which Temporal got the call.
func (f *foresight) fill(c *kahn.Call, values []any, path, run string, queued time.Time) {
	n, prefix := f.at(path)
	c.Path, c.RunID, c.ID = path, run, cmp.Or(c.ID, n.id)
	c.Kind, c.Label, c.Tier, c.Attempt = cmp.Or(c.Kind, n.kind), cmp.Or(c.Label, n.label), cmp.Or(c.Tier, n.tier), cmp.Or(c.Attempt, 1)
	c.IdempotencyKey = kahn.NewStep(context.Background(), *c, nil).IdempotencyKey()
	c.View.ID, c.View.RunStatus = cmp.Or(c.View.ID, c.ID), cmp.Or(c.View.RunStatus, kahn.RunRunning)
	if c.Queued.IsZero() {
		c.Queued = queued
	}
	before := n.predecessors()
	if c.Predecessors == nil {
		c.Predecessors = make([]kahn.Predecessor, len(before))
		for i, id := range before {
			c.Predecessors[i] = kahn.Predecessor{ID: id, Path: prefix + id, Status: kahn.Completed}
		}
	}
	if len(c.Upstream) == 0 {
		c.Upstream = map[string]any{}
		for i, value := range values {
			c.Upstream[before[i]] = value
		}
	}
	params := n.given(c)
	maps.Copy(params, c.Params)
	c.Params = params
	if n.isItem {
		root := maps.Clone(params)
		delete(root, itemParam)
		delete(root, indexParam)
		maps.Copy(root, c.Root)
		c.Root = root
	}
}

func set(m *map[string]any, name string, value any) {
	if *m == nil {
		*m = map[string]any{}
	}
	(*m)[name] = value
}

// A short call is written in one of these forms:
//
//	[v, ...]                           only the values of its predecessors
//	{...}                              only other members
//	{"values": [v, ...], "call": {..}} both
type valuesAndCall struct {
	Values []json.RawMessage `json:"values"`
	Call   json.RawMessage   `json:"call"`
}

// valuesPrefix is the beginning of the JSON of a valuesAndCall. No call begins with it.
var valuesPrefix = []byte(`{"values":`)

// emptyCall is the JSON of a call without members. Its task leaves it out.
const emptyCall = "{}"

// shortText returns the JSON of a call in its short form, or in its whole form if it has no short form.
func (h *host) shortText(id planID, c kahn.Call, now time.Time) (data json.RawMessage, isShort bool, err error) {
	c, values, isShort := h.foresights[id.short()].shorten(c, now)
	if data, err = json.Marshal(c); err != nil || values == nil {
		return data, isShort, err
	}
	form := valuesAndCall{make([]json.RawMessage, len(values)), data}
	for i, value := range values {
		if form.Values[i], err = encode(c.Codec, value); err != nil {
			return nil, isShort, fmt.Errorf("upstream: %w", err)
		}
	}
	if string(data) == emptyCall {
		data, err = json.Marshal(form.Values)
	} else {
		data, err = json.Marshal(form)
	}
	return data, isShort, err
}

func encode(codec kahn.Codec, value any) (json.RawMessage, error) {
	if codec == nil {
		codec = kahn.Types(nil)
	}
	return codec.Encode(value)
}

// The method `short` returns the beginning of a hash of the plan's name and fingerprint. The fingerprint alone is not enough, since plans with the
// same fingerprint may have different functions.
func (id planID) short() string {
	sum := sha256.Sum256([]byte(id.Name + "\x00" + id.Print))
	return hex.EncodeToString(sum[:])[:shortPrint]
}

// The method `read` decodes the call of a task. The parameter "run" is the run id of the workflow's execution, and "queued" is the time at which
// Temporal got the task.
func (h *host) read(t task, run string, queued time.Time) (c kahn.Call, err error) {
	c.Codec = h.given
	text := json.RawMessage(emptyCall)
	if t.Call != nil {
		if text, err = h.texts.read(t.Call); err != nil {
			return c, err
		}
	}
	if t.Of == "" {
		return c, json.Unmarshal(text, &c)
	}
	form := valuesAndCall{Call: text}
	switch {
	case bytes.HasPrefix(text, valuesPrefix):
		err = json.Unmarshal(text, &form)
	case bytes.HasPrefix(text, []byte("[")):
		form.Call = json.RawMessage(emptyCall)
		err = json.Unmarshal(text, &form.Values)
	}
	if err == nil {
		err = json.Unmarshal(form.Call, &c)
	}
	values := make([]any, len(form.Values))
	for i := range values {
		if err == nil {
			values[i], err = h.given.Decode(form.Values[i])
		}
	}
	f := h.foresights[t.Of]
	if n, _ := f.at(t.Path); err == nil && len(values) > len(n.predecessors()) {
		err = fmt.Errorf("the call has %d values for %d predecessors", len(values), len(n.predecessors()))
	}
	if err != nil {
		return c, err
	}
	f.fill(&c, values, t.Path, cmp.Or(t.Run, run), queued)
	return c, nil
}

// The method `task` returns the task of an attempt. The parameter "run" is the id of the run, and "in" is the run id of the workflow's execution.
func (c call) task(id planID, run, in string) task {
	execution := ""
	if run == in {
		run, execution = "", in[max(0, len(in)-executionBytes):]
	}
	t := task{Path: c.Path, Call: c.Call, Details: c.Details}
	if !c.Short {
		t.Plan, t.Remarks = id, true
		return t
	}
	t.Of, t.Run, t.Execution = id.short(), run, execution
	if string(t.Call) == emptyCall {
		t.Call = nil
	}
	return t
}

// If a short task does not contain the id of its run, it contains the last executionBytes characters of the run id of the workflow's execution.
const executionBytes = 6

// isOfAnother reports whether the execution of the workflow that made the task is not the execution of the activity. This happens if an operator
// resets the workflow while the attempt is in flight. The worker then cannot know the id of the run.
func (t task) isOfAnother(execution string) bool {
	return t.Run == "" && !strings.HasSuffix(execution, t.Execution)
}

// shortTask is the JSON of a task with a short call. It is a list, so that histories do not repeat the names of members. The last elements may be
// left out.
type shortTask []json.RawMessage

// moreOfTask is the last element of a shortTask.
type moreOfTask struct {
	Run     string  `json:"run,omitempty"`
	Details details `json:"details,omitempty"`
}

// plainTask is a task without its methods.
type plainTask task

// MarshalJSON implements [json.Marshaler].
func (t task) MarshalJSON() ([]byte, error) {
	if t.Of == "" {
		return json.Marshal(plainTask(t))
	}
	list := []any{t.Of + t.Execution, t.Path}
	if more := t.Run != "" || t.Details != nil; t.Call != nil || more {
		if list = append(list, json.RawMessage(emptyCall)); t.Call != nil {
			list[2] = t.Call
		}
		if more {
			list = append(list, moreOfTask{t.Run, t.Details})
		}
	}
	return json.Marshal(list)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *task) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*plainTask)(t))
	}
	var list shortTask
	var more moreOfTask
	err := json.Unmarshal(data, &list)
	for i, into := range []any{&t.Of, &t.Path, &t.Call, &more} {
		if err == nil && i < len(list) {
			err = json.Unmarshal(list[i], into)
		}
	}
	t.Run, t.Details = more.Run, more.Details
	if len(t.Of) > shortPrint {
		t.Of, t.Execution = t.Of[:shortPrint], t.Of[shortPrint:]
	}
	return err
}

// planOf returns the plan of a task.
func (h *host) planOf(t task) (*kahn.Plan, error) {
	if t.Of == "" {
		return h.plan(t.Plan)
	}
	if f := h.foresights[t.Of]; f != nil {
		return f.plan, nil
	}
	return nil, fmt.Errorf("kahn/temporal: %w with the short fingerprint %q", ErrUnknownPlan, t.Of)
}
