package kahn

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// TestMode is an option that runs the graph in test mode: mocks replace nodes, gates do not wait, and assertions are judged when the run is over.
// Everything else is as in any run: joins, guards, conditions, merges, required ports, policies, retries and fallbacks.
//
// After the run, Result.Test contains the outcome of each node, and the assertions that failed. Execute does not return the failures of assertions.
// The method Err of Result.Test returns them. With Limit(1), two runs in test mode have the same events, except for run ids and times.
//
// The path of a node consists of the ids of the composites around it and the node's own id, joined by slashes: "S/x" is the node x inside S. In a
// TestMode, a path names the node in all items and iterations. "M[]" names the items of a map M of steps. If a path names no node of the graph, the
// run is refused with an error that matches [ErrUnknownNode] and [ErrBadOption]. A path that leads into a step is checked only up to this step,
// since the step may expand into any graph, see [Expand].
type TestMode struct {
	// Mocks replace nodes, by path. If a composite is mocked, the nodes inside it do not begin. Contracts and the moderator judge neither the inputs
	// nor the output of a mocked node, and middleware is not called for a mock.
	Mocks map[string]Mock
	// Unmock lists the paths of nodes that are performed as in any run, even if Mocks contains the same path. The nodes inside a listed composite are
	// also performed, unless they have their own mocks. A gate that is performed waits for an answer. Any other gate without a mock completes with the
	// output {"approved": true, "auto": true} and takes the branch labelled "approved". If "approved" is not one of the gate's choices, the run is
	// refused with an error that matches [ErrNoMock] and [ErrBadOption].
	Unmock []string
	// Undos replace the compensations of nodes, by path. The Mock is the result of an attempt to undo the node. The Value of the Mock is not used. A
	// mocked node is undone only if Undos contains its path. The run is refused with [ErrBadOption] if Undos contains the path of a node without a
	// compensation. Middleware is not called for mocked compensations.
	Undos map[string]Mock
	// OnMissing selects what happens to a step that neither Mocks nor Unmock names. Conditions with a test, triggers and composites are performed
	// unless Mocks names them. OnMissing also applies to the steps inside a composite, unless Mocks or Unmock names the composite. Default:
	// [MissingReal].
	OnMissing OnMissing
	// Assertions are judged, in this order, when the run is over or suspended. They do not change the outcome of the run.
	Assertions []Assertion
}

// Mock is the result of a node in test mode: a Value, an Err, or the result of Do. The zero Mock completes the node with a null output. At most one
// of the fields may be set. Other nodes see this result as if a step had returned it. For a condition or a gate, the Value is the label of the
// branch. If this label is not one of the choices of a [Gate], the run is refused with an error that wraps [ErrBadOption] and a [*ChoiceError].
//
// The node does not start: the event node.mocked replaces node.started. A mock without a Sequence has one attempt: its failure is not retried. A
// Sequence contains a mock for each attempt.
type Mock struct {
	Value any
	// Err fails the node. An error with a special meaning, such as [Skip], has the same meaning as if a step had returned it.
	Err error
	// Do is called instead of the step, with the step's parameters, context, timeouts and slots.
	Do StepFunc
	// Sequence contains a mock for each attempt; the last one is also used for all further attempts. The node's retry policy determines whether and
	// when there is another attempt. A mock in a Sequence must not have a Sequence itself.
	Sequence []Mock
}

// OnMissing selects what test mode does with a step that is neither in Mocks nor in Unmock.
type OnMissing uint8

// The values of OnMissing.
const (
	MissingReal OnMissing = iota // the node is performed; the summary lists it as uncovered
	MissingStub                  // the node completes with a null output
	MissingFail                  // the node fails, with an error that matches ErrNoMock; the summary lists it as uncovered

	missingCount
)

var missingNames = enum.Of[OnMissing]("on missing", "real", "stub", "fail")

// String returns the name of m: "real", "stub" or "fail".
func (m OnMissing) String() string { return missingNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (m OnMissing) MarshalText() ([]byte, error) { return missingNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (m *OnMissing) UnmarshalText(text []byte) error { return missingNames.Parse(m, text) }

// ErrNoMock is matched by the error of a node that has no mock, if OnMissing is [MissingFail]. If a gate has no mock, and "approved" is not one of
// its choices, the run is refused with an error that also matches ErrNoMock.
var ErrNoMock = errors.New("no mock")

// autoLabel is the answer to a gate that has no mock: test mode completes the gate as if it had been approved.
const autoLabel = "approved"

func autoOutput() any { return map[string]any{"approved": true, "auto": true} }

func (t TestMode) apply(c *config) error {
	for _, id := range slices.Sorted(maps.Keys(t.Mocks)) {
		if err := t.Mocks[id].validate(); err != nil {
			return fmt.Errorf("%w: TestMode.Mocks: %s: %w", ErrBadOption, quoteID(id), err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.Undos)) {
		if err := t.Undos[id].validate(); err != nil {
			return fmt.Errorf("%w: TestMode.Undos: %s: %w", ErrBadOption, quoteID(id), err)
		}
	}
	if t.OnMissing >= missingCount {
		return fmt.Errorf("%w: %v", ErrBadOption, t.OnMissing)
	}
	for i, a := range t.Assertions {
		if a.check == nil {
			return fmt.Errorf("%w: TestMode.Assertions: number %d is the zero Assertion, which asserts nothing", ErrBadOption, i+1)
		}
	}
	c.test = &testMode{TestMode: t, doubles: map[string]*double{}}
	return nil
}

func (m Mock) validate() error {
	set := 0
	for _, is := range []bool{m.Value != nil, m.Err != nil, m.Do != nil, len(m.Sequence) > 0} {
		if is {
			set++
		}
	}
	if set > 1 {
		return fmt.Errorf("%w: at most one of Value, Err, Do and Sequence can be set", ErrBadValue)
	}
	for i, next := range m.Sequence {
		if len(next.Sequence) > 0 {
			return fmt.Errorf("%w: mock %d of the Sequence has a Sequence itself", ErrBadValue, i+1)
		}
		if err := next.validate(); err != nil {
			return fmt.Errorf("number %d of the Sequence: %w", i+1, err)
		}
	}
	return nil
}

// testMode is the test mode of a run and of the runs nested in it. Each of these runs has a copy of its plan in which the mocked nodes are
// marked, so that test mode costs other runs nothing.
type testMode struct {
	TestMode
	mu       sync.Mutex         // guards the fields below
	doubles  map[string]*double // by path; made with the plans
	judged   chan struct{}      // closed when Result.Test is ready; nil before complete is called
	unjudged *Result            // a copy of the Result, without Test
}

// The method `complete` sets the field Test of a Result. Only the first call judges the assertions. Assertions are user code, and may wait for the
// end of the run that they judge. So the other callers of complete wait at most for the grace, and then get the Result without Test.
func (t *testMode) complete(res *Result, grace time.Duration) *Result {
	t.mu.Lock()
	judged, first := t.judged, t.judged == nil
	if first {
		judged = make(chan struct{})
		early := *res
		t.judged, t.unjudged = judged, &early
	}
	t.mu.Unlock()
	if first {
		defer close(judged) // also if an assertion calls Goexit
		res.Test = &TestSummary{}
		t.summarize(res.Test, res)
		return res
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-judged:
		return res
	case <-timer.C:
		return t.unjudged
	}
}

// A double describes how test mode treats the node, or the nodes, with one path.
type double struct {
	path     string
	role     string  // the outcome of the node if it is performed
	mock     *Mock   // replaces the node; nil if the node is not replaced
	undo     *Mock   // undoes the node; nil if the node's own compensation undoes it
	unmocked bool    // whether Unmock contains the node, or a composite around it
	itemOf   *double // the double of the map, if the nodes are the items of a map; otherwise nil
	calls    atomic.Int64
}

// The method `called` counts an attempt. An attempt of an item is also counted for its map.
func (d *double) called() {
	d.calls.Add(1)
	if d.itemOf != nil {
		d.itemOf.calls.Add(1)
	}
}

// The method `inside` returns the prefix of the paths of the nodes inside the composite.
func (d *double) inside() string {
	if d == nil {
		return ""
	}
	return strings.TrimSuffix(d.path, "[]") + "/"
}

// The method `validate` reports paths that name no node of p, and entries of Undos for nodes that cannot be undone. p is the plan of the whole
// graph, since paths may name nodes that a trigger has pruned.
func (t *testMode) validate(p *Plan) error {
	var unknown []error
	look := func(where, path string, numbered bool) {
		every := everyItem(path)
		switch {
		case p.has(path, numbered) && (numbered || !strings.Contains(path, "[]/")):
		case !numbered && p.has(every, false):
			unknown = append(unknown, fmt.Errorf("%w: TestMode.%s: %w: %s: a path names a node in all items and iterations: write %s", ErrBadOption, where, ErrUnknownNode,
				quoteID(path), quoteID(every)))
		default:
			unknown = append(unknown, fmt.Errorf("%w: TestMode.%s: %w", ErrBadOption, where, p.unknownNode(path)))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t.Mocks)) {
		look("Mocks", path, false)
	}
	for _, path := range t.Unmock {
		look("Unmock", path, false)
	}
	for _, path := range slices.Sorted(maps.Keys(t.Undos)) {
		look("Undos", path, false)
		if why := p.notUndone(path); why != "" {
			unknown = append(unknown, fmt.Errorf("%w: TestMode.Undos: node %s %s", ErrBadOption, quoteID(path), why))
		}
	}
	for _, a := range t.Assertions {
		look("Assertions", a.Node, true)
	}
	return errors.Join(unknown...)
}

// everyItem removes the numbers of items and iterations from a path: "M[2]/x" becomes "M/x", and "M[2]" becomes "M[]".
func everyItem(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		part, _, _ = strings.Cut(part, "#")
		id, _, item := strings.Cut(part, "[")
		if item && i == len(parts)-1 {
			id += "[]"
		}
		parts[i] = id
	}
	return strings.Join(parts, "/")
}

// notUndone returns why the node at a path cannot be undone. It returns "" if the node can be undone or is not known.
func (p *Plan) notUndone(path string) string {
	r, ok := p.find(path)
	if !ok {
		composite, inside, deeper := strings.Cut(path, "/")
		composite, item := strings.CutSuffix(composite, "[]")
		if r, ok = p.find(composite); !ok {
			return ""
		}
		switch sub := p.subs[r]; {
		case deeper && sub == nil: // a step may be expanded into any graph
			return ""
		case deeper:
			return sub.notUndone(inside)
		case item && p.node(r).Undo != nil:
			return ""
		}
	}
	switch n := p.node(r); {
	case n.Undo == nil:
		return "has no Compensate"
	case n.Map != nil:
		return fmt.Sprintf("is a map, whose items are undone one by one: write %s", quoteID(path+"[]"))
	}
	return ""
}

// The method `has` reports whether the plan contains a node at path. If numbered is true, the path may contain the numbers of items.
func (p *Plan) has(path string, numbered bool) bool {
	if _, ok := p.find(path); ok {
		return true
	}
	for _, r := range p.declared {
		n := p.node(r)
		rest, found := strings.CutPrefix(path, n.ID)
		if !found || !n.composite() && !n.ownStep() {
			continue
		}
		if item, after, ok := strings.Cut(rest, "]"); ok && n.Map != nil && strings.HasPrefix(item, "[") {
			if digits := item[1:]; digits != "" && (!numbered || strings.Trim(digits, "0123456789") != "") {
				continue
			}
			if rest = after; rest == "" {
				return true
			}
		}
		inner, ok := strings.CutPrefix(rest, "/")
		if ok && (n.ownStep() && inner != "" || p.subs[r] != nil && p.subs[r].has(inner, numbered)) {
			return true // a step may be expanded into any graph
		}
	}
	return false
}

// The method `plan` returns the test plan of a run of p. If `within` is nil, this run is the outermost run. Otherwise it is the nested run of a
// composite, and `within` is the composite's double.
func (t *testMode) plan(p *Plan, within *double) *Plan {
	q := p.copied()
	q.tested = p
	q.doubles = make([]*double, len(p.names))
	q.net = p.net.With(func(r machine.Ref, flags machine.Flags) machine.Flags {
		d := t.double(p, r, within)
		q.doubles[r] = d
		flags |= factOwn
		if d.role == TestAuto {
			flags &^= factJudge
		}
		if d.mock != nil {
			flags = flags&^(machine.FlagComposite|machine.FlagGate|machine.FlagAdmit|factJudge) | machine.FlagMocked
			if len(d.mock.Sequence) == 0 {
				flags |= factOnce
			}
		}
		return flags
	})
	q.stepless, q.moderated = t.leftSteps(p, within), t.leftModerated(p, within)
	return q
}

func (p *Plan) needsStep() []machine.Ref      { return p.stepless }
func (p *Plan) needsModerator() []machine.Ref { return p.moderated }

// byStep reports whether the run's step function performs a node or, for a map of steps, the items. The result `undo` reports whether the step
// function performs the compensation of the node or of the items. byStep does not look inside composites. t is nil outside test mode.
func (t *testMode) byStep(p *Plan, r machine.Ref, within *double) (own, undo bool) {
	n := p.node(r)
	own, undo = n.Do == nil && n.ownStep(), n.Undo != nil && n.Undo.by != nil && (n.Map == nil || n.Sub == nil)
	if t == nil || !own && !undo {
		return own, undo
	}
	d := t.double(p, r, within)
	if items := p.items[r]; n.Map != nil && d.mock == nil && items != nil {
		d = t.double(items, items.declared[0], d)
	}
	return own && d.mock == nil, undo && d.mock == nil && d.undo == nil
}

// The method `inner` returns the plan that a composite performs. For other nodes it returns nil.
func (p *Plan) inner(r machine.Ref) *Plan {
	if n := p.node(r); n.Map != nil && n.Sub != nil {
		return p.items[r]
	}
	return p.sub(r)
}

// leftSteps returns the nodes of a plan that need the run's step function in test mode, and the composites that contain such nodes.
func (t *testMode) leftSteps(p *Plan, within *double) (left []machine.Ref) {
	for _, r := range p.stepless {
		d, inner := t.double(p, r, within), p.inner(r)
		own, undo := t.byStep(p, r, within)
		if own || undo || d.mock == nil && inner != nil && len(t.leftSteps(inner, d)) > 0 {
			left = append(left, r)
		}
	}
	return left
}

// leftModerated returns the nodes that need the moderator in test mode, and the composites that contain such nodes.
func (t *testMode) leftModerated(p *Plan, within *double) (left []machine.Ref) {
	for _, r := range p.moderated {
		d := t.double(p, r, within)
		if d.mock != nil {
			continue
		}
		inner := p.inner(r)
		if p.node(r).Moderation != ModerateNone || inner != nil && len(t.leftModerated(inner, d)) > 0 {
			left = append(left, r)
		}
	}
	return left
}

// mockedUndo returns the mock that undoes a node in test mode, or nil if the node's own compensation undoes the node.
func (r *Run) mockedUndo(ref machine.Ref) *Mock {
	if r.cfg.test == nil {
		return nil
	}
	return r.plan.doubles[ref].undo
}

// The method `names` reports whether Mocks, Undos or Unmock contains the path of a node inside a composite.
func (t *testMode) names(d *double) bool {
	is := func(path string) bool { return strings.HasPrefix(path, d.inside()) || path == d.path+"[]" }
	for path := range t.Mocks {
		if is(path) {
			return true
		}
	}
	for path := range t.Undos {
		if is(path) {
			return true
		}
	}
	return slices.ContainsFunc(t.Unmock, is)
}

// The method `double` returns the double of a node. The first call for a node makes the double.
func (t *testMode) double(p *Plan, r machine.Ref, within *double) *double {
	n := p.node(r)
	path, itemOf := within.inside()+n.ID, (*double)(nil)
	if p.itemOf != "" {
		path, itemOf = within.path+"[]", within
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.doubles[path]; d != nil {
		return d
	}
	d := &double{path: path, itemOf: itemOf}
	t.doubles[path] = d
	if undo, has := t.Undos[path]; has {
		d.undo = &undo
	}
	mock, mocked := t.Mocks[path]
	switch {
	case slices.Contains(t.Unmock, path):
		d.role, d.unmocked = TestReal, true
	case mocked:
		d.role, d.mock = TestMocked, &mock
	case within != nil && within.unmocked:
		d.role, d.unmocked = TestReal, true
	case isGate(n):
		d.role = TestAuto
	case n.composite() || n.Test != nil || n.Kind == KindTrigger:
		d.role = TestReal
	case t.OnMissing == MissingStub:
		d.role, d.mock = TestMocked, &Mock{}
	case t.OnMissing == MissingFail:
		d.role, d.mock = TestFallthrough, &Mock{Err: fmt.Errorf("%w: %s", ErrNoMock, quoteID(path))}
	default:
		d.role = TestFallthrough
	}
	return d
}

// checkGates reports each gate whose answer is not one of its choices. The answer is the value of the gate's mock or, if the gate has no mock,
// "approved". The result of a mock's Do is checked later, when it is known.
func (t *testMode) checkGates(p *Plan, within *double) (bad []error) {
	for _, r := range p.declared {
		n, d := p.node(r), t.double(p, r, within)
		switch {
		case n.Disabled:
		case isGate(n) && d.mock != nil:
			mocks := d.mock.Sequence
			if len(mocks) == 0 {
				mocks = []Mock{*d.mock}
			}
			for _, m := range mocks {
				if m.Err != nil || m.Do != nil {
					continue
				}
				if err := p.refuse(r, d.path, m.Value); err != nil {
					bad = append(bad, fmt.Errorf("%w: TestMode.Mocks: %w", ErrBadOption, err))
				}
			}
		case isGate(n) && d.role == TestAuto:
			if err := p.refuse(r, d.path, autoLabel); err != nil {
				bad = append(bad, fmt.Errorf("%w: TestMode.Mocks: %w for gate %s: %w", ErrBadOption, ErrNoMock, quoteID(d.path), err))
			}
		case d.mock == nil && n.Map != nil && p.items[r] != nil:
			bad = append(bad, t.checkGates(p.items[r], d)...)
		case d.mock == nil && n.Map == nil && p.sub(r) != nil:
			bad = append(bad, t.checkGates(p.sub(r), d)...)
		}
	}
	return bad
}

// The method `perform` performs an attempt of a mocked node.
func (m *Mock) perform(n *node, step *Step) (res attemptResult) {
	if len(m.Sequence) > 0 {
		m = &m.Sequence[min(int(step.attempt), len(m.Sequence))-1]
	}
	if res.value, res.err = m.Value, m.Err; m.Do != nil {
		res.value, res.err = m.Do(step, step)
	}
	if res.err != nil && n.Test != nil {
		res.kind = CauseConditionError
	}
	return res
}

// The method `approve` returns the answer for a gate without a mock.
func (r *Run) approve(ref machine.Ref) answer {
	a := r.labelOutcome(ref, autoLabel)
	if a.Status == Completed {
		a.value = autoOutput()
	}
	return a
}

// The outcomes of a [TestNode]. They describe how test mode treated the node.
const (
	TestNotReached  = "not_reached" // the node was stopped or failed before it could be performed
	TestMocked      = "mocked"      // a mock or a stub replaced the node
	TestReal        = "real"        // the node was performed as in any run: Unmock names the node or a composite around it, or the node needs no mock
	TestFallthrough = "fallthrough" // neither Mocks nor Unmock names the node, see OnMissing
	TestAuto        = "auto"        // the node is a gate that test mode approved
	TestSkipped     = "skipped"     // the node was skipped before it was performed
)

// TestSummary is the summary of a run in test mode. If the run is not in test mode, Result.Test is nil. The methods treat a nil TestSummary like
// the zero value.
type TestSummary struct {
	// Nodes lists all nodes in the order of declaration. After a composite that began, it lists the nodes inside the composite. A node has one
	// element, even if it has several instances in items or iterations.
	Nodes []TestNode
	// Passed and Failed are the numbers of assertions that passed and failed.
	Passed, Failed int
	// Failures are the failed assertions, each an [*Assertion] with its Err, in the order of TestMode.Assertions.
	Failures []error
	// Uncovered are the paths of the nodes whose outcome is TestFallthrough.
	Uncovered []string
}

// TestNode is the summary of one node.
type TestNode struct {
	Path    string
	Outcome string // one of the constants above
	// Calls is the number of attempts of the node, or of its mock, in all items and iterations. For a map of steps, this is the number of
	// attempts of its items.
	Calls int
}

// Node returns the summary of the node at path, and whether s contains this node.
func (s *TestSummary) Node(path string) (TestNode, bool) {
	i := slices.IndexFunc(orZero(s).Nodes, func(n TestNode) bool { return n.Path == path })
	if i < 0 {
		return TestNode{}, false
	}
	return s.Nodes[i], true
}

// Err joins the failures, or returns nil if there are none.
func (s *TestSummary) Err() error { return errors.Join(orZero(s).Failures...) }

// summarize judges a run that is over. It calls assertions, which are user code, so the caller must not hold a lock.
func (t *testMode) summarize(s *TestSummary, res *Result) {
	at := map[*double]int{}
	var visit func(res *Result)
	visit = func(res *Result) {
		for _, ref := range res.run.plan.declared {
			n, d := res.node(ref), res.run.plan.doubles[ref]
			i, known := at[d]
			if !known {
				i = len(s.Nodes)
				at[d] = i
				s.Nodes = append(s.Nodes, TestNode{Path: d.path, Calls: int(d.calls.Load())})
			}
			x := &s.Nodes[i]
			x.Outcome = cmp.Or(x.Outcome, d.outcome(&n))
			if n.Sub != nil {
				visit(n.Sub)
			}
		}
	}
	visit(res)
	for _, n := range s.Nodes {
		if n.Outcome == TestFallthrough {
			s.Uncovered = append(s.Uncovered, n.Path)
		}
	}
	for _, a := range t.Assertions {
		t.judge(s, a, res)
	}
}

func (d *double) outcome(n *NodeResult) string {
	switch {
	case d.calls.Load() > 0, n.Attempts > 0, n.Status == Suspended, n.Status == Completed:
		return d.role
	case n.Status == Skipped:
		return TestSkipped
	}
	return TestNotReached
}

// Assertion is an expectation about a node in test mode: see [TestMode]. The node need not have run. The path may name one item, as in "M[2]". If
// the path names the node in several items, the node must meet the expectation in each of them.
//
// [TestSummary].Failures contains the assertions that failed, as errors.
type Assertion struct {
	// Node is the path of the node, and Want describes the expectation.
	Node, Want string
	// Err describes the actual result if the assertion failed.
	Err error

	check func(n NodeResult, calls int) error
}

// Error names the node, the expectation, and the actual result.
func (a *Assertion) Error() string {
	return fmt.Sprintf("node %s: expected %s: %s", quoteID(a.Node), a.Want, errorText(a.Err))
}

// Unwrap returns Err.
func (a *Assertion) Unwrap() error { return a.Err }

// AssertStatus expects that the node has the status `want`.
func AssertStatus(node string, want Status) Assertion {
	return Assertion{Node: node, Want: fmt.Sprintf("status %v", want), check: func(n NodeResult, _ int) error {
		if n.Status == want {
			return nil
		}
		return describe(n)
	}}
}

// AssertSkip expects that the node was skipped for a reason of the given kind.
func AssertSkip(node string, want machine.SkipKind) Assertion {
	return Assertion{Node: node, Want: fmt.Sprintf("skip reason %v", want), check: func(n NodeResult, _ int) error {
		if n.Status == Skipped && n.Skip.Kind == want {
			return nil
		}
		return describe(n)
	}}
}

// AssertError expects that the node ended with an error that matches want, by errors.Is. If want is nil, the node must have no error.
func AssertError(node string, want error) Assertion {
	text := "no error"
	if want != nil {
		text = "error " + errorText(want)
	}
	return Assertion{Node: node, Want: text, check: func(n NodeResult, _ int) error {
		if errors.Is(n.Err, want) {
			return nil
		}
		return describe(n)
	}}
}

// AssertCalls expects that the node, or its mock, has had `want` attempts in all items and iterations together. See [TestNode].Calls.
func AssertCalls(node string, want int) Assertion {
	return Assertion{Node: node, Want: fmt.Sprintf("%d calls", want), check: func(_ NodeResult, calls int) error {
		if calls == want {
			return nil
		}
		return fmt.Errorf("%d calls", calls)
	}}
}

// AssertCompensation expects that the node's compensation is in the state `want`.
func AssertCompensation(node string, want Compensation) Assertion {
	return Assertion{Node: node, Want: fmt.Sprintf("compensation %v", want), check: func(n NodeResult, _ int) error {
		switch {
		case n.Compensation == want:
			return nil
		case n.CompensationErr != nil:
			return fmt.Errorf("%v: %s", n.Compensation, errorText(n.CompensationErr))
		}
		return errors.New(n.Compensation.String())
	}}
}

// AssertOutput expects that the node has completed, and that its output contains the value `want` at the given place. The types must be equal, too.
// The parameter `place` is a path of keys, fields and indices, separated by dots, as in "items.0.name". An empty place means the whole output.
func AssertOutput(node, place string, want any) Assertion {
	text := fmt.Sprintf("output %s", valueText(want))
	if place != "" {
		text = fmt.Sprintf("output %s at %s", valueText(want), quoteID(place))
	}
	return Assertion{Node: node, Want: text, check: func(n NodeResult, _ int) error {
		if n.Status != Completed {
			return describe(n)
		}
		got, err := at(n.Output, place)
		switch {
		case err != nil:
			return err
		case reflect.DeepEqual(got, want):
			return nil
		case reflect.TypeOf(got) != reflect.TypeOf(want):
			return fmt.Errorf("%s, of type %T instead of %T", valueText(got), got, want)
		}
		return errors.New(valueText(got))
	}}
}

// Assert expects that the function `check` returns nil. The text `want` describes the expectation in a few words.
func Assert(node, want string, check func(NodeResult) error) Assertion {
	a := Assertion{Node: node, Want: want}
	if check != nil {
		a.check = func(n NodeResult, _ int) error { return check(n) }
	}
	return a
}

// The function `describe` states in a few words how a node ended.
func describe(n NodeResult) error {
	switch {
	case n.Status == Skipped:
		return fmt.Errorf("%v: %v", n.Status, n.Skip)
	case n.Err != nil:
		return fmt.Errorf("%v: %s", n.Status, errorText(n.Err))
	}
	return errors.New(n.Status.String())
}

// The function `at` returns the value at a place in an output.
func at(value any, place string) (any, error) {
	if place == "" {
		return value, nil
	}
	for key := range strings.SplitSeq(place, ".") {
		v := indirect(reflect.ValueOf(value))
		var found reflect.Value
		switch v.Kind() {
		case reflect.Map:
			if t := v.Type().Key(); t.Kind() == reflect.String {
				found = v.MapIndex(reflect.ValueOf(key).Convert(t))
			}
		case reflect.Struct:
			found, _ = structField(v, key)
		case reflect.Slice, reflect.Array:
			if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < v.Len() {
				found = v.Index(i)
			}
		}
		if !found.IsValid() {
			return nil, fmt.Errorf("%s has no %s", valueText(value), quoteID(key))
		}
		value = found.Interface()
	}
	return value, nil
}

// judge judges an assertion and records in s whether it passed.
func (t *testMode) judge(s *TestSummary, a Assertion, res *Result) {
	err := ErrGoexit // the error if the assertion's check calls Goexit
	defer func() {
		if err == nil {
			s.Passed++
			return
		}
		s.Failed++
		a.Err = bounded(err)
		s.Failures = append(s.Failures, &a)
	}()
	err = t.hold(a, res)
}

// The method `hold` checks one assertion against the result. It calls the assertion's check, which is user code.
func (t *testMode) hold(a Assertion, res *Result) error {
	nodes := res.instances(a.Node)
	if len(nodes) == 0 { // the composite around the node did not begin
		nodes = []NodeResult{{ID: a.Node}}
	}
	for _, n := range nodes {
		calls := n.Attempts
		t.mu.Lock() // an abandoned attempt may still return a graph, which adds doubles
		d := t.doubles[a.Node]
		t.mu.Unlock()
		if d != nil {
			calls = int(d.calls.Load())
		}
		if err := contain(func() error { return a.check(n, calls) }); err != nil {
			return err
		}
	}
	return nil
}

// The method `instances` returns the nodes that a path names. If the path contains the number of an item, instances returns only the node in this
// item. Otherwise it returns the node in each item.
func (r *Result) instances(path string) (nodes []NodeResult) {
	if n, ok := r.Node(path); ok {
		return []NodeResult{n}
	}
	for n := range r.Nodes() {
		rest, found := strings.CutPrefix(path, n.ID)
		if !found || n.Sub == nil {
			continue
		}
		if n.Sub.run.items == nil {
			if inner, ok := strings.CutPrefix(rest, "/"); ok {
				nodes = append(nodes, n.Sub.instances(inner)...)
			}
			continue
		}
		if item, inner, _ := strings.Cut(rest, "/"); item != "" && item != "[]" {
			nodes = append(nodes, n.Sub.instances(path)...)
		} else {
			for item := range n.Sub.Nodes() {
				if inner == "" {
					nodes = append(nodes, item)
				} else if item.Sub != nil {
					nodes = append(nodes, item.Sub.instances(inner)...)
				}
			}
		}
	}
	return nodes
}
