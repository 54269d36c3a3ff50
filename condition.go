package kahn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// NoMatch determines what happens if no edge matches the answer of a condition, and no edge is labelled "default".
type NoMatch uint8

// The values of NoMatch.
const (
	NoMatchSkip NoMatch = iota // every labelled edge is dead, and the run continues
	NoMatchFail                // the condition fails with [CauseNoBranchMatch]

	noMatchCount
)

var noMatchNames = enum.Of[NoMatch]("no match", "skip", "fail")

// String returns "skip" or "fail".
func (n NoMatch) String() string { return noMatchNames.Name(n) }

// MarshalText encodes n as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (n NoMatch) MarshalText() ([]byte, error) { return noMatchNames.Text(n) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (n *NoMatch) UnmarshalText(text []byte) error { return noMatchNames.Parse(n, text) }

// labeler is an output with a method BranchLabels, which returns the labels of the branches to take.
type labeler interface {
	BranchLabels() []string
}

// If returns a condition whose branches are labelled "true" and "false", or "yes" and "no". Compile reports any other label except "default". The
// condition also runs after failed predecessors (see [Boundary]): its test may look at the results of its ancestors, including failed ones. When the
// condition completes, it handles every failure that reaches it, even a failure that the test has ignored. With the Join [AllSucceeded], however, a
// failed predecessor blocks the condition. A node on a branch may also take data by plain edges. A plain edge does not make this node run, unless
// the edge comes from another branch of the same condition. If a node must run whichever branch is taken, give it two plain edges: one from the last
// node of the branch, and one from the condition. This works even if there is no "false" branch:
//
//	g.Add(kahn.If("big?", big), kahn.Node{ID: "split", In: []kahn.Edge{{From: "big?", Label: "true"}}},
//		kahn.Node{ID: "send", After: []string{"split", "big?"}})
func If(id string, test func(View) (bool, error), after ...string) Node {
	n := Node{ID: id, After: after, Choices: []string{boolLabel(true), boolLabel(false)}}
	if test != nil {
		n.Test = func(v View) (any, error) { return test(v) }
	}
	return n
}

// Switch returns a condition. The function choose returns the label of the branch to take. If no edge has a matching label, the condition takes the
// branch labelled "default". Like a condition that [If] returns, it also runs after failed predecessors. Nodes on its branches may also take data by
// plain edges. If the condition's Choices are set, Compile checks the labels of its out-edges.
func Switch(id string, choose func(View) (string, error), after ...string) Node {
	n := Node{ID: id, After: after}
	if choose != nil {
		n.Test = func(v View) (any, error) { return choose(v) }
	}
	return n
}

// Route returns the branches that a condition takes for an output, in the form of the field Route of a [machine.Outcome]. matched is true if the
// condition takes a branch, which may be "default", or if it has no branches. The BranchLabels method of an output is user code and may panic.
func (p *Plan) Route(r machine.Ref, output any) (route []int32, matched bool) {
	router := p.net.Router(r)
	if router < 0 {
		return nil, true
	}
	return p.routers[router].route(labelsOf(output))
}

// labelsOf returns the labels of the out-edges of a condition, or nil if there are none.
func (p *Plan) labelsOf(r machine.Ref) []string {
	if router := p.net.Router(r); router >= 0 {
		return p.routers[router].labels
	}
	return nil
}

// branchNames renders the labels of branches of a condition.
func (p *Plan) branchNames(r machine.Ref, route []int32) string {
	if router := p.net.Router(r); router >= 0 {
		return p.routers[router].names(route)
	}
	return ""
}

// routeOf returns the branches whose labels are in the list `taken`. It ignores labels that the condition does not have.
func (p *Plan) routeOf(r machine.Ref, taken []string) (route []int32) {
	if router := p.net.Router(r); router >= 0 {
		for _, label := range taken {
			if id, ok := p.routers[router].byLabel[label]; ok {
				route = append(route, id)
			}
		}
	}
	return route
}

const defaultLabel = "default"

// labelsOf returns the labels in the output of a condition, without the spaces around each label. If the output has a method BranchLabels, this
// method returns the labels. A bool becomes the label "true" or "false", and a string is a label. If all elements of a list are strings or bools,
// each element becomes a label; otherwise the list has no labels. The label of a map or struct is the first of its fields "branch", "label" and
// "result" that is a string or a bool. Any other output has no labels.
func labelsOf(output any) []string {
	switch v := output.(type) {
	case nil:
		return nil
	case labeler:
		return trimmed(v.BranchLabels())
	case bool:
		return []string{boolLabel(v)}
	case string:
		return []string{strings.TrimSpace(v)}
	case []string:
		return trimmed(v)
	}
	v := indirect(reflect.ValueOf(output))
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		var labels []string
		for i := range v.Len() {
			label, ok := scalarLabel(v.Index(i))
			if !ok {
				return nil
			}
			labels = append(labels, label)
		}
		return labels
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return nil
		}
		for _, name := range labelFields {
			if field := v.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key())); field.IsValid() {
				if label, ok := scalarLabel(field); ok {
					return []string{label}
				}
			}
		}
		return nil
	case reflect.Struct:
		for _, name := range labelFields {
			if field, ok := structField(v, name); ok {
				if label, ok := scalarLabel(field); ok {
					return []string{label}
				}
			}
		}
		return nil
	}
	if label, ok := scalarLabel(v); ok {
		return []string{label}
	}
	return nil
}

// The function `trimmed` returns labels without the spaces around them. It does not change the given list, which belongs to the host.
func trimmed(labels []string) []string {
	for i, label := range labels {
		if strings.TrimSpace(label) != label {
			labels = slices.Clone(labels)
			for k := i; k < len(labels); k++ {
				labels[k] = strings.TrimSpace(labels[k])
			}
			break
		}
	}
	return labels
}

var labelFields = [...]string{"branch", "label", "result"}

func boolLabel(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// indirect follows at most ten pointers and interfaces, because a pointer may point to itself. If it reaches a nil, it returns the
// zero Value.
func indirect(v reflect.Value) reflect.Value {
	for range 10 {
		if v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface {
			break
		}
		v = v.Elem()
	}
	return v
}

func scalarLabel(v reflect.Value) (string, bool) {
	switch v = indirect(v); v.Kind() {
	case reflect.Bool:
		return boolLabel(v.Bool()), true
	case reflect.String:
		return strings.TrimSpace(v.String()), true
	}
	return "", false
}

// structField returns the first exported field with the given name. The name of a field is its JSON name or, if it has none, its Go name in upper or
// lower case.
func structField(v reflect.Value, name string) (reflect.Value, bool) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && (tag == name || tag == "" && strings.EqualFold(f.Name, name)) {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// An alias class contains the words that mean true, or the words that mean false. If no edge has exactly the label of an answer, the answer takes
// each edge whose label is in the same class. The classes of gates contain more words than the classes of conditions.
var (
	aliases     = map[string]bool{"true": true, "yes": true, "false": false, "no": false}
	gateAliases = map[string]bool{
		"approved": true, "approve": true, "true": true, "yes": true,
		"rejected": false, "reject": false, "false": false, "no": false,
	}

	// The words of the alias classes, in the order in which error messages list them.
	aliasWords     = []string{"true", "yes", "false", "no"}
	gateAliasWords = []string{"approved", "approve", "true", "yes", "rejected", "reject", "false", "no"}
)

// router matches labels against the labelled out-edges of one condition. It is part of the plan and immutable.
type router struct {
	labels   []string         // the distinct labels of the out-edges, in order of declaration; a label's id is its index
	byLabel  map[string]int32 // the label ids, for exact matches
	aliases  map[string]bool  // the alias classes of this kind of node
	fallback int32            // the id of "default", or -1
	ids      []int32          // 0, 1, 2, ...: a route with one label is a sub-slice of ids, which needs no allocation
}

func newRouter(gate bool) *router {
	r := &router{byLabel: map[string]int32{}, aliases: aliases, fallback: -1}
	if gate {
		r.aliases = gateAliases
	}
	return r
}

func (r *router) add(label string) int32 {
	if id, ok := r.byLabel[label]; ok {
		return id
	}
	id := int32(len(r.labels))
	r.labels, r.ids, r.byLabel[label] = append(r.labels, label), append(r.ids, id), id
	if label == defaultLabel {
		r.fallback = id
	}
	return id
}

// The method `answer` renders the answer of a condition: `value` is the answer, `labels` are the labels in it, and `taken` are the branches that the
// condition takes. The result is "" if the condition has no branches, or if the result would be the same as the labels of the taken branches.
func (r *router) answer(value any, labels []string, taken []int32) string {
	if len(r.labels) == 0 || len(labels) == 1 && len(taken) == 1 && r.labels[taken[0]] == labels[0] {
		return ""
	}
	switch text := answerText(value, labels); text {
	case r.names(taken):
		return ""
	case "":
		return `""`
	default:
		return text
	}
}

// answerText renders the labels of an answer. If the answer has no labels, answerText renders its value.
func answerText(value any, labels []string) string {
	if len(labels) == 0 {
		if isNull(value) {
			return "null"
		}
		return foreign.Shorten(valueText(value))
	}
	return foreign.Shorten(strings.Join(labels, ", "))
}

// The method `names` renders the labels of branches.
func (r *router) names(ids []int32) string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = r.labels[id]
	}
	return strings.Join(list, ", ")
}

// route returns the ids of the out-edges' labels that match the given labels. If no out-edge has a given label, this label matches the labels of its
// alias class. If nothing matches, route returns the id of the label "default", if there is one. matched is true if route returns an id, and also if
// the condition has no labelled edges.
func (r *router) route(labels []string) (taken []int32, matched bool) {
	if len(r.labels) == 0 {
		return nil, true
	}
	if len(labels) == 1 {
		if id, ok := r.byLabel[labels[0]]; ok {
			return r.ids[id : id+1 : id+1], true
		}
	}
	seen := make([]bool, len(r.labels))
	for _, label := range labels {
		if id, ok := r.byLabel[label]; ok {
			seen[id] = true
			continue
		}
		class, ok := r.aliases[strings.ToLower(label)]
		if !ok {
			continue
		}
		for id, other := range r.labels {
			if c, ok := r.aliases[strings.ToLower(other)]; ok && c == class {
				seen[id] = true
			}
		}
	}
	for id, yes := range seen {
		if yes {
			taken = append(taken, int32(id))
		}
	}
	if taken == nil && r.fallback >= 0 {
		taken = r.ids[r.fallback : r.fallback+1 : r.fallback+1]
	}
	return taken, taken != nil
}

// unusedAnswer is the warning about a condition whose answer has no effect.
type unusedAnswer struct{}

// Error says that nothing uses the answer, and names the ways to use it.
func (unusedAnswer) Error() string {
	return "nothing uses its answer: none of its edges has a label or a Param, and no guard or test names it"
}

// Is reports whether target is [ErrNoMatch].
func (unusedAnswer) Is(target error) bool { return target == ErrNoMatch }

// checkAnswers warns about a condition that has successors, but whose answer has no effect. A gate with declared choices counts as a condition. An
// out-edge uses the answer if it has a label or delivers data. The text of a guard or a test uses the answer if the text names the node. If a later
// node has a Go function as its guard or test, this function may look at the answer, so there is no warning. The end node does not count as a
// successor, since it sees all results.
func (c *compiler) checkAnswers() {
	p := c.p
	if c.isPruned || !c.has.condition && !c.has.composite {
		return
	}
	if len(p.warnings) > 0 {
		p.warnings = slices.DeleteFunc(p.warnings, c.isAnswerOfLoop)
	}
	answers := map[machine.Ref]bool{} // for each condition with successors, whether an edge uses its answer
	for i := range p.net.Edges() {
		e := p.net.Edge(i)
		if n := p.node(e.From); !isRouter(n) || !n.answers() {
			continue
		}
		if uses := e.Flags&(machine.EdgeLabelled|machine.EdgeData) != 0 || p.termsOf(i).Param != ""; uses || e.To != p.end {
			answers[e.From] = answers[e.From] || uses
		}
	}
	var seen []bool // by Ref: whether a function of a later node may look at the node
	for _, r := range p.declared {
		if used, is := answers[r]; !is || used || c.named[[2]string{"", p.names[r]}] {
			continue
		}
		if seen == nil {
			seen = c.seenByFunctions()
		}
		if !seen[r] {
			c.warn(problemOf(p.names[r], "", "%w", unusedAnswer{}))
		}
	}
}

// The method `answers` reports whether the output of the node is nothing but the label of a branch. A node that declares Outputs computes a value,
// and so does a node of the host's own kind with a TestExpr.
func (n *node) answers() bool {
	switch {
	case len(n.Outputs) > 0 || n.composite():
		return false
	case isGate(n):
		return len(n.declaredChoices()) > 0
	}
	return n.TestExpr == "" || n.Kind == "" || n.Kind == KindCondition
}

// seenByFunctions reports, for each node, whether a guard or test of a later node may look at the node. A Go function may look at any ancestor of
// its node. A text without a [checker] may do so, too, because nothing lists the nodes that the text names.
func (c *compiler) seenByFunctions() []bool {
	p := c.p
	seen := make([]bool, len(p.names))
	for r := machine.Ref(len(seen)) - 1; r >= 0; r-- {
		seen[r] = slices.ContainsFunc(p.net.Out(r), func(a machine.Arc) bool { return seen[a.To()] || c.looks(a.To()) })
	}
	return seen
}

// The method `looks` reports whether the node has a guard or a test that may look at any ancestor of the node.
func (c *compiler) looks(r machine.Ref) bool {
	i := c.p.decl[r]
	n, l := c.g.nodes[i], c.lowered[i]
	told := func(field string) bool {
		return l != nil && slices.ContainsFunc(l.checkers, func(f fieldChecker) bool { return f.field == field })
	}
	return n.When != nil || n.Test != nil || n.WhenExpr != "" && !told("WhenExpr") || n.TestExpr != "" && !told("TestExpr")
}

// isAnswerOfLoop reports whether a warning about an unused answer is wrong. It is wrong if the test of the loop around the node uses, or may use,
// the answer.
func (c *compiler) isAnswerOfLoop(warning error) bool {
	p, ok := warning.(*Problem)
	if !ok || !errors.Is(p.Err, unusedAnswer{}) {
		return false
	}
	r, ok := c.p.find(p.Graph)
	if !ok || c.p.node(r).Loop == nil {
		return false
	}
	l := c.lowered[c.p.decl[r]]
	if l == nil || l.until == nil {
		return true
	}
	_, told := l.until.(checker)
	return !told || c.named[[2]string{p.Graph, p.Node}]
}

// evaluator is the type of Graph.Evaluator.
type evaluator = interface {
	Parse(text string) (Expression, error)
}

// Expression is a text that the Evaluator of a [Graph] has parsed. The Plan keeps it, and several runs may evaluate it at once.
//
// An Expression may have a method Check(ancestor, input func(name string) error) error that finds errors in it. Compile calls Check, and reports the
// error for the test of a condition or a loop, and for a guard if the graph has StrictGuards. Without StrictGuards, the error for a guard is a
// warning, in [Plan.Warnings] and in the Result of every run. The function ancestor returns nil for the id of a node that the expression can see,
// and an error that matches [ErrNotAncestor] for any other id. If an expression only asks whether a node exists, as with [View.Has], Check need not
// call ancestor for this node. Without this call, Compile may warn that nothing uses the answer of the node. The function input returns nil for the
// name of a root input that a run can have, and an error that matches [ErrUnknownInput] for any other name.
type Expression interface {
	// Evaluate returns the value of the expression. If the expression is a guard, [Truthy] determines whether the value lets the node run. The View
	// shows the ancestors of the expression's node; for the test of a loop, it shows the nodes of the loop's graph. The context has the values of
	// the run's context and a deadline of one second. It does not end with the run, because the guard of a cleanup node may be evaluated while the
	// run is being stopped.
	Evaluate(ctx context.Context, v View) (any, error)
}

// checker is an [Expression] that can find errors in itself.
type checker interface {
	Check(ancestor, input func(name string) error) error
}

// evaluationTimeout bounds the evaluation of an expression. An evaluation occupies a worker, and a stop of the run does not interrupt it.
const evaluationTimeout = time.Second

func evaluate(e Expression, v View) (any, error) {
	ctx, cancel := context.WithTimeout(v.base(), evaluationTimeout)
	defer cancel()
	return e.Evaluate(ctx, v)
}

// Truthy reports whether a guard lets its node run if the guard's expression has the value v. It returns false for false, null, zero, the empty
// string and empty collections. It also returns false for the string "false", because templates render false as this string.
func Truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case json.Number:
		f, err := v.Float64()
		return err != nil || f != 0
	}
	if isNull(v) {
		return false
	}
	switch r := indirect(reflect.ValueOf(v)); r.Kind() {
	case reflect.Invalid:
		return false
	case reflect.String:
		return r.String() != "" && r.String() != "false"
	case reflect.Slice, reflect.Map, reflect.Array:
		return r.Len() > 0
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64, reflect.Complex64,
		reflect.Complex128:
		return !r.IsZero()
	}
	return true
}

// lowered holds what Compile has made from the texts and schemas of a node: functions, an expression and contracts. Runs use these instead of the
// texts and schemas.
type lowered struct {
	when          func(View) (bool, error)
	test          func(View) (any, error)
	until         Expression // for a loop
	input, output Contract
	answer        Contract // for a gate
	checkers      []fieldChecker
}

// fieldChecker is the checker of the text in a field. If `warns` is true, an error of the checker is only a warning.
type fieldChecker struct {
	field string
	checker
	warns bool
}

// look adds the expression to l.checkers, if the expression is a checker.
func (l *lowered) look(field string, e Expression, warns bool) {
	if c, ok := e.(checker); ok {
		l.checkers = append(l.checkers, fieldChecker{field, c, warns})
	}
}

// checkTexts calls the checkers of guards, conditions and tests of loops. The ancestors of the nodes must be known. checkTexts skips a pruned plan,
// because this plan may lack nodes that the plan of another trigger has.
func (c *compiler) checkTexts() {
	if c.isPruned {
		return
	}
	for _, r := range c.p.declared {
		l := c.lowered[c.p.decl[r]]
		if l == nil {
			continue
		}
		for _, checker := range l.checkers {
			c.checkText(c.p.node(r), checker, c.noted("", c.p.ancestor(r)), c.p.notInput)
		}
		c.checkUntil(r, l)
	}
}

// The method `noted` returns a function for a checker. For each id that a text names, the function records the id and calls `ancestor`. If the text
// is the test of a loop, the id belongs to a node of the loop's graph, and `loop` is the id of the loop. Otherwise `loop` is "".
func (c *compiler) noted(loop string, ancestor func(id string) error) func(id string) error {
	return func(id string) error {
		if c.named == nil {
			c.named = map[[2]string]bool{}
		}
		c.named[[2]string{loop, id}] = true
		return ancestor(id)
	}
}

// checkTextsBeside calls the checkers of a graph that has other problems. If the nodes of the graph cannot be numbered, their ancestors are unknown.
// A text may then name any node of the graph, and checkTextsBeside calls no checker whose errors are only warnings.
func (c *compiler) checkTextsBeside() {
	if !c.broken {
		c.number()
		c.checkTexts()
		return
	}
	inputs := &Plan{inputs: c.inputs, inputIndex: c.inputIndex, planRare: &plainPlan}
	anyNode := func(id string) error {
		if _, ok := c.find(id); ok {
			return nil
		}
		return fmt.Errorf("%w: %w: %s%s", ErrNotAncestor, ErrUnknownNode, quoteID(id), c.nodeInstead(id))
	}
	for i, n := range c.g.nodes {
		if l := c.lowered[int32(i)]; l != nil {
			for _, checker := range l.checkers {
				if !checker.warns {
					c.checkText(n, checker, anyNode, inputs.notInput)
				}
			}
		}
	}
}

// ancestor returns a function for the checker of node r. The function returns an error if r cannot see the node with the given id.
func (p *Plan) ancestor(r machine.Ref) func(id string) error {
	return func(id string) error {
		if _, ok := p.sees(r, id); ok {
			return nil
		}
		return p.notAncestor(r, id)
	}
}

func (c *compiler) checkText(n *node, checker fieldChecker, ancestor, input func(name string) error) {
	err := contain(func() error { return checker.Check(ancestor, input) })
	if err == nil {
		return
	}
	problem := problemOf(n.ID, checker.field, "%s: %w: %w", checker.field, ErrBadExpression, bounded(err))
	if checker.warns {
		c.p.rare().warnings = append(c.p.rare().warnings, problem)
		return
	}
	c.keep(problem)
}

// install puts the functions and contracts of a node into the plan.
func (l *lowered) install(c *compiler, r machine.Ref) {
	p := c.p
	if l.when != nil {
		c.own(r).When = l.when
	}
	if l.test != nil {
		c.own(r).Test = l.test
	}
	if l.input != nil || l.output != nil {
		if p.contracts == nil {
			p.rare().contracts = map[machine.Ref][phaseCount]Contract{}
		}
		p.contracts[r] = [phaseCount]Contract{event.PhaseInput: l.input, event.PhaseOutput: l.output}
	}
	if l.answer != nil {
		if p.answerContracts == nil {
			p.rare().answerContracts = map[machine.Ref]Contract{}
		}
		p.answerContracts[r] = l.answer
	}
}

// The method `lower` compiles the texts and schemas of a node. It calls user code, so Compile holds no lock meanwhile.
func (c *compiler) lower(i int) {
	n := c.g.nodes[i]
	if n.WhenExpr == "" && n.TestExpr == "" && n.InputSchema == nil && n.OutputSchema == nil && n.Loop == nil && (n.Gate == nil || n.Gate.Schema == nil) {
		return
	}
	var l lowered
	if n.WhenExpr != "" {
		switch e, err := c.parse(n, "WhenExpr", n.WhenExpr); {
		case e != nil:
			l.look("WhenExpr", e, !c.g.StrictGuards)
			l.when = func(v View) (bool, error) {
				// `blind` allows a text to read the output of a failed ancestor. If this were an error, GuardAllow would let the node run.
				v.blind = true
				value, err := evaluate(e, v)
				return err == nil && Truthy(value), err
			}
		case err != nil && c.g.StrictGuards:
			c.keep(err)
		default: // the text has an error, so the guard fails at each evaluation; GuardErrors determines what follows
			l.when = func(View) (bool, error) { return false, err }
		}
	}
	if n.TestExpr != "" {
		// A condition whose text has an error would fail under every policy, so Compile reports the error at once.
		e, err := c.parse(n, "TestExpr", n.TestExpr)
		if err != nil {
			c.keep(err)
		}
		l.look("TestExpr", e, false)
		l.test = func(v View) (any, error) { return evaluate(e, v) }
	}
	l.until = c.parseUntil(n)
	l.input = c.contract(n, "InputSchema", n.InputSchema)
	l.output = c.contract(n, "OutputSchema", n.OutputSchema)
	if n.Gate != nil {
		l.answer = c.contract(n, "Gate.Schema", n.Gate.Schema)
	}
	if c.lowered == nil {
		c.lowered = map[int32]*lowered{}
	}
	c.lowered[int32(i)] = &l
}

// parse parses a text. If the graph has no evaluator, parse records a problem and returns two nils.
func (c *compiler) parse(n *node, field, text string) (e Expression, err error) {
	if isNull(c.evaluator) {
		c.ofNode(n.ID, field, "%w: %s is set, but the graph has no Evaluator", ErrNoEvaluator, field)
		return nil, nil
	}
	err = contain(func() (err error) {
		if e, err = c.evaluator.Parse(text); err == nil && isNull(e) {
			err = fmt.Errorf("the evaluator returned no expression")
		}
		return err
	})
	if err != nil {
		return nil, problemOf(n.ID, field, "%s: %w: %w", field, ErrBadExpression, bounded(err))
	}
	return e, nil
}

// GuardPolicy determines what happens to a node if its guard returns an error or panics. By default, an error of a text lets the node run. An error
// of a Go function fails the node by default, because a defect of the function must not let the node run. Under every policy the error is in the
// log, in NodeResult.GuardErr and in Result.Warnings.
type GuardPolicy uint8

// The policies for guards that fail.
const (
	guardDefault GuardPolicy = iota
	GuardAllow               // the node runs
	GuardSkip                // the node is skipped
	GuardFail                // the node fails with [CauseConditionError]

	guardCount
)

var guardNames = enum.Of[GuardPolicy]("guard policy", "", "allow", "skip", "fail")

// String returns "allow", "skip" or "fail", or "" for the zero value.
func (p GuardPolicy) String() string { return guardNames.Name(p) }

// MarshalText encodes p as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (p GuardPolicy) MarshalText() ([]byte, error) { return guardNames.Text(p) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (p *GuardPolicy) UnmarshalText(text []byte) error { return guardNames.Parse(p, text) }
