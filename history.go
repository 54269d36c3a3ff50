package kahn

import (
	"container/list"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/saturate"
	"github.com/seed-c794f7ef/kahn/machine"
)

// History learns from runs how long their nodes take. A later run of the same workflow uses these durations: of the ready nodes with equal priority,
// it starts the node with the longest remaining path first. If the run has a limit on concurrency, a History helps as much as exact [Node.Estimate]
// values. Without a limit, the History changes only what [Run.Forecast] and [Run.Estimate] return. A History is an option, or the field Learn of a
// [Runner]. Any number of runs and goroutines may share a History. The zero value is an empty History. A History encodes as JSON.
//
// A History distinguishes workflows by Graph.Name. For the path of each node it stores an exponentially weighted mean, in which the last duration
// has the weight 1/4. All items of a map share one path, and a node in a loop has the same path in every iteration. For an unknown path, the
// estimate is the mean of the node's Kind in the workflow. If the Kind is also unknown, the estimate is the mean of all nodes. An estimate that the
// graph declares, as Node.Estimate or Map.Estimate, takes precedence. In a run with [Estimates], the History applies only inside composites.
//
// When a run ends, the History learns how long the last attempt of each completed node took; docs/engine.md lists the exceptions. A run always uses
// the estimates that the History had when the run started, even after another process has continued the run.
type History struct {
	// Limit is the maximum number of paths that the History keeps, over all workflows. When there are more paths than Limit, the History forgets the
	// workflow that was updated least recently. If a single workflow has more paths than Limit, the History keeps the paths that it learned first.
	// Zero means 100,000. Limit must not be changed once the History is in use. The JSON does not contain Limit.
	Limit int

	mu        sync.Mutex // guards the fields below; never locked while a run's lock is held
	workflows map[string]*list.Element
	recent    list.List // of *workflow; the workflow that was updated last is at the back
	paths     int       // the number of paths of all workflows together
}

const defaultHistoryLimit = 100_000

// workflow contains what a History has learned about one workflow.
type workflow struct {
	name  string
	nodes map[string]learnedNode // by path
	known *estimates             // computed from nodes; nil until a run needs it
}

type learnedNode struct {
	Mean int64  `json:"mean_ns"`
	Kind string `json:"kind,omitempty"`
}

// estimates are the expected durations of the nodes of a workflow, in ns. They never change.
type estimates struct {
	Paths map[string]int64 `json:"paths"`
	Kinds map[string]int64 `json:"kinds"` // for each Kind, the mean duration of its paths
	All   int64            `json:"all"`   // the mean duration of all paths
}

// observation is the duration of one node in a run.
type observation struct {
	path, kind string
	took       int64
}

// The method `apply` configures a run to use the durations that h has learned, and to report the durations of its nodes to h.
func (h *History) apply(c *config) error {
	if h == nil {
		return fmt.Errorf("%w: nil History", ErrBadOption)
	}
	c.history = h
	return nil
}

// Mean returns the weighted mean duration of the node at the given path in the graph with the given name. It returns
// false for an unknown path.
func (h *History) Mean(graph, path string) (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.workflows[graph]; e != nil {
		n, ok := e.Value.(*workflow).nodes[path]
		return time.Duration(n.Mean), ok
	}
	return 0, false
}

// The method `teach` adds the durations of the nodes of one run to h.
func (h *History) teach(name string, seen []observation) {
	if len(seen) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.workflow(name)
	w.known = nil
	for _, o := range seen {
		n, ok := w.nodes[o.path]
		switch {
		case ok:
			n.Mean += (o.took - n.Mean) / 4
		case !h.space(w):
			continue
		default:
			n.Mean = o.took
			h.paths++
		}
		n.Kind = o.kind
		w.nodes[o.path] = n
	}
}

// The method `workflow` returns the workflow with this name, and moves it to the back of the list. It adds a workflow that h does not have yet.
func (h *History) workflow(name string) *workflow {
	if e := h.workflows[name]; e != nil {
		h.recent.MoveToBack(e)
		return e.Value.(*workflow)
	}
	if h.workflows == nil {
		h.workflows = map[string]*list.Element{}
	}
	w := &workflow{name: name, nodes: map[string]learnedNode{}}
	h.workflows[name] = h.recent.PushBack(w)
	return w
}

// The method `space` forgets old workflows, but not w, until there is room for one more path. It reports whether there is room.
func (h *History) space(w *workflow) bool {
	limit := h.Limit
	if limit == 0 {
		limit = defaultHistoryLimit
	}
	for h.paths >= limit && h.recent.Front().Value != any(w) {
		oldest := h.recent.Remove(h.recent.Front()).(*workflow)
		delete(h.workflows, oldest.name)
		h.paths -= len(oldest.nodes)
	}
	return h.paths < limit
}

// The method `estimates` returns the estimates of a workflow, or nil if the History contains no paths of the workflow.
func (h *History) estimates(name string) *estimates {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.workflows[name]
	if e == nil || len(e.Value.(*workflow).nodes) == 0 {
		return nil
	}
	w := e.Value.(*workflow)
	if w.known == nil {
		w.known = w.estimates()
	}
	return w.known
}

func (w *workflow) estimates() *estimates {
	x := &estimates{Paths: make(map[string]int64, len(w.nodes)), Kinds: map[string]int64{}}
	number := map[string]int64{}
	for path, n := range w.nodes {
		x.Paths[path] = n.Mean
		x.Kinds[n.Kind] = saturate.Add(x.Kinds[n.Kind], n.Mean)
		x.All = saturate.Add(x.All, n.Mean)
		number[n.Kind]++
	}
	for kind := range x.Kinds {
		x.Kinds[kind] /= number[kind]
	}
	x.All /= int64(len(w.nodes))
	return x
}

// The method `of` returns the expected duration of a node that declares no Estimate.
func (x *estimates) of(path, kind string) int64 {
	if took, ok := x.Paths[path]; ok {
		return took
	}
	if took, ok := x.Kinds[kind]; ok {
		return took
	}
	return x.All
}

// historyFile is the JSON form of a History.
type historyFile struct {
	Workflows []workflowFile `json:"workflows"` // ordered by the last update, the latest at the end
}

type workflowFile struct {
	Name  string                 `json:"name"`
	Nodes map[string]learnedNode `json:"nodes"`
}

// MarshalJSON encodes everything that h has learned.
func (h *History) MarshalJSON() ([]byte, error) {
	return json.Marshal(h.file()) // encoded without the lock, since runs need the lock when they end
}

func (h *History) file() historyFile {
	h.mu.Lock()
	defer h.mu.Unlock()
	file := historyFile{Workflows: []workflowFile{}}
	for e := h.recent.Front(); e != nil; e = e.Next() {
		w := e.Value.(*workflow)
		file.Workflows = append(file.Workflows, workflowFile{w.name, maps.Clone(w.nodes)})
	}
	return file
}

// UnmarshalJSON replaces everything that h has learned by the decoded History, as far as the Limit allows. If data is not the JSON of a History,
// UnmarshalJSON returns an error and does not change h. The error matches [ErrBadValue] if a mean is negative or a workflow occurs twice.
func (h *History) UnmarshalJSON(data []byte) error {
	var file historyFile
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, w := range file.Workflows {
		if names[w.Name] {
			return fmt.Errorf("%w: History: workflow %s occurs twice", ErrBadValue, quoteID(w.Name))
		}
		names[w.Name] = true
		for path, n := range w.Nodes {
			if n.Mean < 0 {
				return fmt.Errorf("%w: History: workflow %s: node %s: the mean %d ns is negative", ErrBadValue, quoteID(w.Name), quoteID(path), n.Mean)
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workflows, h.paths = nil, 0
	h.recent.Init()
	for _, file := range file.Workflows {
		w := h.workflow(file.Name)
		for _, path := range slices.Sorted(maps.Keys(file.Nodes)) {
			if h.space(w) {
				w.nodes[path] = file.Nodes[path]
				h.paths++
			}
		}
	}
	return nil
}

// learnedPrefix returns the prefix that the paths of a run's nodes have in a History. It contains no numbers of items or iterations.
func (r *Run) learnedPrefix() string {
	if r.outer == nil {
		return ""
	}
	outer := r.outer.learnedPrefix()
	if r.outer.items == nil { // if r.outer is the run of a map's items, outer already ends with the name of the map and "[]"
		outer += r.outer.plan.names[r.within.ref]
	}
	switch {
	case r.items != nil:
		return outer + "[]"
	case r.iteration > 0:
		return outer + "#/"
	}
	return outer + "/"
}

// learnedPath returns the path of a node in a History.
func (r *Run) learnedPath(prefix string, ref machine.Ref) string {
	if r.items != nil {
		return prefix
	}
	return prefix + r.plan.names[ref]
}

// The method `schedule` returns the order of a run that uses a History; nil means the plan's own order.
func (r *Run) schedule() *machine.Schedule {
	known := r.estimates()
	if known == nil {
		return nil
	}
	p, prefix := r.plan, r.learnedPrefix()
	s := p.net.Order(func(ref machine.Ref) int64 {
		n := p.node(ref)
		switch {
		case p.estimates != nil:
			return int64(p.estimates[ref])
		case n.Estimate > 0:
			return int64(n.Estimate)
		}
		return known.of(r.learnedPath(prefix, ref), n.Kind)
	})
	return &s
}

// The type `learning` connects a run to its History.
type learning struct {
	known   *estimates  // the estimates that the run uses; nil if it uses none
	lessons []lesson    // the durations that the History must still learn
	news    atomic.Bool // whether there are lessons; written under the run's lock
}

// A lesson is a duration that the History must still learn: how long a node of a run took.
type lesson struct {
	run  *Run
	ref  machine.Ref
	took int64
}

// The method `estimates` returns the estimates that the run uses, or nil if it uses none.
func (r *Run) estimates() *estimates {
	if x := r.outermost().learning; x != nil {
		return x.known
	}
	return nil
}

// noteLessons records the durations of the nodes that completed since this process began or continued the run, so that teach can pass them to the
// History. The caller holds the run's lock.
//
//go:noinline
func (r *Run) noteLessons() {
	root := r.outermost()
	before := len(root.learning.lessons)
	for ref := range r.records {
		if took, ok := r.lesson(machine.Ref(ref)); ok {
			root.learning.lessons = append(root.learning.lessons, lesson{r, machine.Ref(ref), took})
		}
	}
	if before == 0 && len(root.learning.lessons) > 0 {
		root.learning.news.Store(true)
		root.timers++ // so that Wait returns only after the History has learned
	}
}

// The method `teach` passes the durations that noteLessons has recorded to the run's History. r must be an outermost run. The caller does not hold
// the run's lock. teach releases this lock before it takes the lock of the History, which other runs also use.
//
//go:noinline
func (r *Run) teach() {
	r.st.Lock()
	lessons := r.learning.lessons
	r.learning.lessons = nil
	r.learning.news.Store(false)
	r.st.Unlock()
	if lessons == nil { // another goroutine has taken the lessons
		return
	}
	seen := make([]observation, len(lessons))
	var of *Run
	prefix := ""
	for i, l := range lessons {
		if l.run != of {
			of, prefix = l.run, l.run.learnedPrefix()
		}
		seen[i] = observation{of.learnedPath(prefix, l.ref), of.plan.node(l.ref).Kind, l.took}
	}
	r.cfg.history.teach(r.plan.name, seen)
	r.st.Lock()
	r.timers--
	r.release(r.now())
}

// The method `lesson` returns the duration of the last attempt of a node. ok is false if the History must not learn the duration.
func (r *Run) lesson(ref machine.Ref) (took int64, ok bool) {
	rec, p := &r.records[ref], &r.plan.net
	if r.st.Word(ref).Status() != Completed || rec.attempts == 0 || rec.fallback || p.Is(ref, machine.FlagMocked|machine.FlagGate) || p.Is(ref, machine.FlagInline) && !p.Is(ref, machine.FlagComposite) {
		return 0, false
	}
	start := rec.start
	if x := r.extras[ref]; x != nil {
		if x.Memoized || x.decision != nil || x.reentries > 0 {
			return 0, false
		}
		start = r.attemptStart(ref, x)
	}
	return rec.end - start, start >= 0 && rec.end >= start // start is negative if the attempt began before this process continued the run
}
