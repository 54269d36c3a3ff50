package verify

import (
	"maps"
	"slices"
	"strings"
)

// class is the class to which an in-edge resolves.
type class byte

const (
	dataOnly  class = 'D' // a data-only edge has no class, and the join ignores it
	satisfied class = 'S'
	neutral   class = 'N'
	dead      class = 'X'
	failure   class = 'F'
)

// value says what the model knows about a value.
type value byte

// answer returns the text of a condition's answer, for an edge that was not taken.
func (p *prediction) answer(e *edge) string {
	n, f := p.g.node(e.from), p.fates[e.from]
	switch {
	case e.label == "" || f.status != "ok":
		return ""
	case f.fallback:
		return fallbackValue(n.id)
	case n.outcome == "label":
		return strings.Join(n.labels, ", ")
	case n.outcome == "null":
		return "null"
	}
	return "1"
}

const (
	missing value = iota
	null
	present
)

// fate is the model's prediction for a node.
type fate struct {
	status  string // ok F X C S
	reason  string // the reason of a skip: ann br up when null pf rule self
	source  string // the node that the reason names
	label   string // the label of the edge not taken, for br
	answer  string // the condition's answer, for br
	port    string // for null
	routing bool   // whether the skip began at a branch that was not taken

	cause     string // the cause, as kahn spells it
	own       bool   // whether the node failed by itself, not by the policy propagate
	tolerated bool
	origins   []string // in the order of declaration

	ready    bool // whether the node became ready
	fallback bool
	attempts int // the number of attempts that a step node starts
	output   value
	taken    []string // labels of the edges that a condition takes
	root     bool     // whether the node was decided without its in-edges
	subst    bool     // whether the node runs with defaults for missing values
}

// prediction is the model's prediction for a run.
type prediction struct {
	g         *graph // complete
	ancestors map[string]map[string]bool
	fates     map[string]*fate
	computed  map[string]string // the run's status by status rule, before the verdict of the end node
	status    map[string]string // the run's status after the verdict
	degraded  map[string]bool
}

// findAncestors finds the ancestors of every node, over edges of every kind.
func (p *prediction) findAncestors() {
	p.ancestors = map[string]map[string]bool{}
	for _, n := range p.g.sorted() {
		found := map[string]bool{}
		for _, e := range p.g.in(n.id) {
			found[e.from] = true
			maps.Copy(found, p.ancestors[e.from])
		}
		p.ancestors[n.id] = found
	}
}

// shielded reports whether an error boundary between the edge's source and target judges the source's failure instead of the target.
func (p *prediction) shielded(e *edge) bool {
	for _, via := range p.g.in(e.to) {
		if c := p.g.node(via.from); c.rule() == "bnd" && p.ancestors[c.id][e.from] {
			return true
		}
	}
	return false
}

// predict computes the prediction for the graph.
func predict(g *graph) *prediction {
	g = g.complete()
	p := &prediction{g: g, fates: map[string]*fate{}, status: map[string]string{}, computed: map[string]string{},
		degraded: map[string]bool{}}
	p.findAncestors()
	for _, n := range g.sorted() {
		p.fates[n.id] = p.decide(n)
	}
	for _, rule := range []string{"escaped", "leaves", "strict"} {
		p.status[rule], p.degraded[rule] = p.runStatus(rule)
	}
	return p
}

// resolve is the table of edge classes. The first row that matches decides.
func (p *prediction) resolve(e *edge) class {
	src, f := p.g.node(e.from), p.fates[e.from]
	label := e.label
	broken := f.status == "F" || f.status == "X"
	switch {
	case e.data:
		return dataOnly
	case f.status == "ok" && e.on == '!':
		return dead
	case f.status == "ok" && label != "" && !slices.Contains(f.taken, label):
		return dead
	case f.status == "ok":
		return satisfied
	case f.status == "S":
		return neutral
	case f.tolerated && e.on != '!' && label == "":
		return satisfied
	case f.tolerated && label != "":
		return dead
	case broken && e.on == '!' && catches(e, f):
		return satisfied
	case e.on == '*':
		return satisfied
	case broken && e.on == 0 && p.caught(src):
		return dead
	case e.on == 0 && p.shielded(e):
		return neutral
	}
	return failure
}

func catches(e *edge, f *fate) bool { return len(e.causes) == 0 || slices.Contains(e.causes, f.cause) }

// caught reports whether a catch edge takes the failure of the node.
func (p *prediction) caught(n *node) bool {
	return slices.ContainsFunc(p.g.out(n.id), func(e *edge) bool {
		return e.on == '!' && !e.data && catches(e, p.fates[n.id])
	})
}

// seen returns the class of an in-edge from the view of its target. Under "satisfy", a predecessor that was skipped for a reason of its own
// counts as satisfied.
func (p *prediction) seen(n *node, e *edge) class {
	c := p.resolve(e)
	if c == neutral && n.skip == "sat" && !p.routing(e) {
		return satisfied
	}
	return c
}

// routing reports whether an edge that resolved to N comes from a branch that was not taken.
func (p *prediction) routing(e *edge) bool {
	if f := p.fates[e.from]; f.status == "S" {
		return f.routing
	}
	return true // the edge is shielded
}

func (p *prediction) count(n *node, c class) (count int) {
	for _, e := range p.g.in(n.id) {
		if p.seen(n, e) == c {
			count++
		}
	}
	return count
}

// decide performs the checks of a node in order.
func (p *prediction) decide(n *node) *fate {
	if n.end {
		return p.run(n, &fate{})
	}
	if n.off {
		return &fate{status: "S", reason: "ann", root: true}
	}
	f := &fate{}
	switch p.join(n) {
	case "skip":
		return p.skip(n)
	case "blocked":
		origins := p.origins(n)
		cause := "upstream_cancelled"
		for _, id := range origins {
			if p.fates[id].status == "F" {
				cause = "upstream_failure"
			}
		}
		switch n.up {
		case "", "abort":
			return &fate{status: "X", cause: cause, origins: origins}
		case "skip":
			return &fate{status: "S", reason: "pf", source: p.first(n, failure).from}
		case "prop":
			return &fate{status: "F", cause: cause, origins: origins}
		case "def":
			if p.noDefaults(n) {
				return p.skip(n)
			}
			f.subst = true
		}
	}
	undecided := n.guard == "err" || n.guard == "panic"
	switch {
	case n.guard == "0", undecided && n.guardErr == "skip":
		f.status, f.reason = "S", "when"
		return f
	case undecided && n.guardErr != "allow": // the same holds without a policy, since the guards of these graphs are Go functions
		return p.broken(n, f, "condition_error")
	}
	if n.merge == "bad" {
		for _, e := range p.g.in(n.id) {
			if e.param != "" && len(p.group(n, e.param)) > 1 && p.fed(n, e.param, f) != missing {
				return p.broken(n, f, "merge_error")
			}
		}
	}
	for _, port := range n.ports {
		if port.required && p.input(n, port, f) != present {
			source := ""
			for _, e := range p.group(n, port.name) {
				source = e.from // the last edge in declaration order decides
			}
			f.status, f.reason, f.port, f.source = "S", "null", port.name, source
			return f
		}
	}
	return p.run(n, f)
}

// join is the table of join rules for resolved edges. It returns run, skip or blocked.
func (p *prediction) join(n *node) string {
	s, f, x := p.count(n, satisfied), p.count(n, failure), p.count(n, dead)
	u := p.count(n, neutral) + x
	total := s + f + u
	switch {
	case total == 0:
		return "run"
	case x == total:
		return "skip" // routing decides before the rule
	}
	choose := func(run, skip bool) string {
		switch {
		case run:
			return "run"
		case skip:
			return "skip"
		}
		return "blocked"
	}
	switch n.rule() {
	case "all":
		if n.skip == "strict" && u > 0 && f == 0 {
			return "skip"
		}
		return choose(f == 0 && p.countReasons(n, satisfied) > 0, f == 0)
	case "any", "done1":
		return choose(s > 0, f == 0)
	case "k":
		return choose(s >= n.k, f == 0)
	case "done":
		return "run"
	case "1fail":
		return choose(f > 0, true)
	case "allfail":
		return choose(f == total, true)
	case "nofail":
		return choose(f == 0, false)
	case "noskip":
		return choose(u == 0, true)
	case "allskip":
		return choose(u == total, true)
	case "1done":
		return choose(s+f > 0, true)
	case "bnd":
		return choose(p.countReasons(n, satisfied)+p.countReasons(n, failure) > 0, true)
	}
	panic("the model does not know the rule " + n.rule())
}

func (p *prediction) first(n *node, c class) *edge {
	for _, e := range p.g.in(n.id) {
		if p.seen(n, e) == c {
			return e
		}
	}
	return nil
}

// skip returns the fate of a node that its join skips. It contains the reason, and the node from which the skip came.
func (p *prediction) skip(n *node) *fate {
	s, x := p.count(n, satisfied), p.count(n, dead)
	total := s + x + p.count(n, neutral) + p.count(n, failure)
	byRule := false
	switch n.rule() {
	case "1fail", "allfail", "allskip":
		byRule = true
	case "any", "k":
		byRule = s > 0
	}
	if byRule && x < total {
		return &fate{status: "S", reason: "rule"}
	}
	routing := true
	for _, e := range p.g.in(n.id) {
		if p.seen(n, e) == neutral {
			routing = routing && p.routing(e)
		}
	}
	if e := p.first(n, dead); e != nil {
		return &fate{status: "S", reason: "br", source: e.from, label: e.label, answer: p.answer(e), routing: routing}
	}
	return &fate{status: "S", reason: "up", source: p.first(n, neutral).from, routing: routing}
}

// origins returns the nodes whose failure or cancellation reaches n.
func (p *prediction) origins(n *node) (ids []string) {
	reached := map[string]bool{}
	for _, e := range p.g.in(n.id) {
		if p.seen(n, e) == failure {
			for _, id := range p.fates[e.from].origins {
				reached[id] = true
			}
		}
	}
	for _, m := range p.g.nodes { // declaration order
		if reached[m.id] {
			ids = append(ids, m.id)
		}
	}
	return ids
}

func (p *prediction) group(n *node, param string) (edges []*edge) {
	for _, e := range p.g.in(n.id) {
		if e.param == param {
			edges = append(edges, e)
		}
	}
	return edges
}

// delivered returns the value that an edge delivers to its target.
func (p *prediction) delivered(n *node, e *edge, f *fate) value {
	src := p.fates[e.from]
	c := p.seen(n, e)
	switch {
	case src.status == "ok" && (c == satisfied || c == dataOnly):
		if e.key != "" && e.key != "output" {
			return missing // in the model, outputs have no ports, so the edge delivers nothing
		}
		return src.output
	case c == satisfied && (src.status == "F" || src.status == "X") && !(src.tolerated && e.on != '!'):
		return present // the value is the error
	case f.subst && (c == failure || c == neutral):
		return present // the value is the default
	}
	return missing
}

// fed returns the merged value of a parameter's edges.
func (p *prediction) fed(n *node, param string, f *fate) value {
	last := missing
	for _, e := range p.group(n, param) {
		if v := p.delivered(n, e, f); v != missing {
			last = v
		}
	}
	if n.merge == "array" && last != missing && len(p.group(n, param)) > 1 {
		return present // the value is a list, even if it contains only null
	}
	return last
}

// input returns the value of a port, by precedence.
func (p *prediction) input(n *node, port port, f *fate) value {
	if v := p.fed(n, port.name, f); v != missing {
		return v
	}
	for _, s := range n.sets {
		if s.name == port.name {
			if s.null {
				return null
			}
			return present
		}
	}
	if v, ok := rootInputs[port.name]; ok {
		if v == nil {
			return null
		}
		return present
	}
	if port.fallback {
		return present
	}
	return missing
}

// broken predicts that the node fails by itself, with the given cause.
func (p *prediction) broken(n *node, f *fate, cause string) *fate {
	f.status, f.cause, f.own = "F", cause, true
	f.origins = []string{n.id}
	f.tolerated = n.cof
	return f
}

// The codings of the outcome cancel say what cancels the node, and how the step reacts.
const (
	externalCancel = iota // the step reports that its call was aborted
	heededCancel          // CancelNode, and the step returns the error of its context
	erringCancel          // CancelNode, and the step returns another error
	keptCancel            // CancelNode, but the step returns a value, which is kept
)

// run predicts the end of a node that became ready.
func (p *prediction) run(n *node, f *fate) *fate {
	f.ready, f.attempts = true, 1
	condition := p.g.condition(n)
	outcome := n.outcome
	tries := n.tries
	if n.test {
		tries = 0 // a condition that failed to decide is not evaluated again
	}
	if outcome == "flaky" && tries > 1 {
		f.attempts, outcome = 2, "ok"
	}
	if n.end && (outcome == "skip" || outcome == "cancel") {
		outcome = "err" // an end node can be neither skipped nor cancelled
	}
	if n.test && outcome == "cancel" {
		outcome = "err" // a Go test has no remote call that could be aborted
	}
	switch outcome {
	case "err", "flaky":
		if tries > 1 {
			f.attempts = tries
		}
		if n.fallback == "ok" {
			f.status, f.fallback, f.output = "ok", true, present
			return f
		}
		if n.test { // a step whose output is a label fails as other steps do
			return p.broken(n, f, "condition_error")
		}
		return p.broken(n, f, "step_error")
	case "panic":
		if n.fallback == "ok" {
			f.status, f.fallback, f.output = "ok", true, present
			return f
		}
		if n.test { // a step whose output is a label fails as other steps do
			return p.broken(n, f, "condition_error")
		}
		return p.broken(n, f, "panic")
	case "goexit":
		return p.broken(n, f, "goexit")
	case "skip":
		f.status, f.reason = "S", "self"
		return f
	case "cancel":
		if n.coding == keptCancel {
			break
		}
		f.status, f.cause = "C", "external"
		if n.coding != externalCancel {
			f.cause = "cancel_node"
		}
		f.origins = []string{n.id}
		return f
	}
	if condition {
		taken, matched := p.match(n)
		labelled := slices.ContainsFunc(p.g.out(n.id), func(e *edge) bool { return e.label != "" })
		if !matched && labelled && n.nomatch {
			return p.broken(n, f, "no_branch_match")
		}
		f.taken = taken
	}
	f.status, f.output = "ok", present
	if n.outcome == "null" {
		f.output = null
	}
	return f
}

var aliases = [][]string{{"true", "yes"}, {"false", "no"}}

// match returns the labels of the edges that the condition takes.
func (p *prediction) match(n *node) (taken []string, matched bool) {
	var offered []string
	for _, e := range p.g.out(n.id) {
		if e.label != "" {
			offered = append(offered, e.label)
		}
	}
	for _, label := range n.labels {
		if slices.Contains(offered, label) {
			taken, matched = append(taken, label), true
			continue
		}
		for _, class := range aliases {
			if !slices.Contains(class, strings.ToLower(label)) {
				continue
			}
			for _, o := range offered {
				if slices.Contains(class, strings.ToLower(o)) {
					taken, matched = append(taken, o), true
				}
			}
		}
	}
	if !matched && slices.Contains(offered, "default") {
		return []string{"default"}, true
	}
	return taken, matched
}
