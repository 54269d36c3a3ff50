package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// way is one way to run a graph.
type way struct {
	mode  kahn.Mode
	limit int
	rule  kahn.StatusRule
}

func (w way) String() string {
	return fmt.Sprintf("%v, limit %d, %v", w.mode, w.limit, w.rule)
}

// record is the result of a run.
type record struct {
	res      *kahn.Result
	err      error
	events   []kahn.Event
	start    time.Time
	problems []string // descriptions of wrong values that steps saw
}

var (
	joins = map[string]kahn.Join{
		"all": kahn.AllSucceeded, "any": kahn.AnySucceeded, "done": kahn.AllDone, "done1": kahn.AllDoneMinOne,
		"1fail": kahn.OneFailed, "allfail": kahn.AllFailed, "nofail": kahn.NoneFailed, "noskip": kahn.NoneSkipped,
		"allskip": kahn.AllSkipped, "1done": kahn.OneDone, "bnd": kahn.Boundary,
	}
	skipModes = map[string]machine.SkipMode{
		"cascade": kahn.SkipCascade, "sat": kahn.SkipSatisfy, "strict": kahn.SkipStrict,
	}
	policies = map[string]machine.UpstreamPolicy{
		"abort": kahn.UpstreamAbort, "skip": kahn.UpstreamSkip, "prop": kahn.UpstreamPropagate,
		"def": kahn.UpstreamSubstitute,
	}
	handlings     = map[string]kahn.Handling{"": kahn.HandlingDefault, "handles": kahn.Handles, "observes": kahn.Observes}
	guardPolicies = map[string]kahn.GuardPolicy{
		"allow": kahn.GuardAllow, "skip": kahn.GuardSkip, "fail": kahn.GuardFail,
	}
	triggers = map[byte]kahn.On{0: kahn.OnSuccess, '!': kahn.OnFailure, '*': kahn.OnAlways}
)

func (n *node) kahnJoin() kahn.Join {
	if n.join == "k" {
		return kahn.AtLeast(n.k)
	}
	return joins[n.join]
}

// host performs the nodes of a graph according to their planned outcomes.
type host struct {
	g     *graph // as declared, without defaults
	p     *prediction
	nodes map[string]*node

	way
	run     *kahn.Run
	started chan struct{} // closed when run has been set

	mu       sync.Mutex
	problems []string
}

func (h *host) problem(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// stepError is the error of one node's step. It identifies the node.
type stepError struct{ node string }

func (e *stepError) Error() string { return "step " + e.node + " broke" }

var errGuard = errors.New("guard broke")

const skipMessage = "not today"

// declared declares inputs, sorted by name.
func declared(inputs map[string]any) (list []kahn.Input) {
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		list = append(list, kahn.Input{Name: name})
	}
	return list
}

// build returns the graph that kahn executes.
func (h *host) build() *kahn.Graph {
	g := &kahn.Graph{Name: "verify", Inputs: declared(rootInputs), Defaults: kahn.Defaults{
		SkipMode: skipModes[h.g.defaults.skip], OnUpstreamFailure: policies[h.g.defaults.up],
		GuardErrors: guardPolicies[h.g.defaults.guardErr],
	}}
	g.RegisterMerge("bad", func([]kahn.Contribution) (any, error) { return nil, errors.New("merge broke") })
	for _, n := range h.g.nodes {
		k := kahn.Node{
			ID: n.id, Join: n.kahnJoin(), SkipMode: skipModes[n.skip], OnUpstreamFailure: policies[n.up],
			GuardErrors: guardPolicies[n.guardErr], ContinueOnFail: n.cof, Disabled: n.off, Cleanup: n.cleanup,
			Handling: handlings[n.handling], Routes: !n.test && h.p.g.condition(n), Merge: n.merge,
		}
		if n.merge == "array" {
			k.Merge = kahn.MergeArray
		}
		if n.end {
			k.Kind = kahn.KindEnd
		}
		if n.nomatch {
			k.NoMatch = kahn.NoMatchFail
		}
		if n.test {
			k.Test = func(v kahn.View) (any, error) {
				h.look(n, v)
				return h.outcome(n, 1)
			}
		}
		if n.guard != "" {
			k.When = func(v kahn.View) (bool, error) {
				h.look(n, v)
				switch n.guard {
				case "err":
					return false, errGuard
				case "panic":
					panic(errGuard)
				}
				return n.guard == "1", nil
			}
		}
		switch n.fallback {
		case "ok":
			k.Fallback = func(context.Context, error) (any, error) { return fallbackValue(n.id), nil }
		case "err":
			k.Fallback = func(context.Context, error) (any, error) { return nil, &stepError{n.id} }
		}
		if n.tries > 0 {
			k.Retry = kahn.Retry{
				MaxAttempts: n.tries, InitialDelay: retryMS * time.Millisecond, Multiplier: 1, Jitter: kahn.JitterNone,
			}
		}
		for _, p := range n.ports {
			port := kahn.Port{Name: p.name, Required: p.required}
			if p.fallback {
				port.Default = defaultValue
			}
			k.Ports = append(k.Ports, port)
		}
		for _, s := range n.sets {
			if k.Params == nil {
				k.Params = map[string]any{}
			}
			k.Params[s.name] = staticValue
			if s.null {
				k.Params[s.name] = nil
			}
		}
		g.Add(k)
	}
	for _, e := range h.g.edges {
		k := kahn.Edge{
			From: e.from, To: e.to, On: triggers[e.on], Label: e.label, Key: e.key, Param: e.param, DataOnly: e.data,
		}
		for _, cause := range e.causes {
			var kind kahn.CauseKind
			if err := kind.UnmarshalText([]byte(cause)); err != nil {
				panic(err)
			}
			k.Causes = append(k.Causes, kind)
		}
		g.Connect(k)
	}
	return g
}

func (h *host) step(ctx context.Context, s *kahn.Step) (any, error) {
	n := h.nodes[s.ID()]
	h.look(n, s.View())
	if !slices.Contains(earlyRules, n.rule()) {
		h.checkInputs(n, s) // the inputs of a node with an early rule depend on timing, so they are not compared here
	}
	if n.ms > 0 {
		time.Sleep(time.Duration(n.ms) * time.Millisecond)
	}
	if err := ctx.Err(); err != nil {
		h.problem("the context of %s ended though nobody stopped anything: %v", n.id, err)
	}
	if n.outcome == "cancel" && n.coding != externalCancel {
		return h.cancelled(ctx, n)
	}
	return h.outcome(n, s.Attempt())
}

// cancelled is a step during which the host cancels its node.
func (h *host) cancelled(ctx context.Context, n *node) (any, error) {
	<-h.started
	if err := h.run.CancelNode(n.id); err != nil {
		h.problem("%s cannot be cancelled: %v", n.id, err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, kahn.ErrNodeStopped) {
		h.problem("the context of %s ended because of %v", n.id, cause)
	}
	switch n.coding {
	case heededCancel:
		return nil, ctx.Err()
	case erringCancel:
		return nil, &stepError{n.id}
	}
	return h.value(n), nil
}

// look checks what a node sees of other nodes. The node must see only its ancestors (the end node sees all nodes), and the results of ended
// nodes must never change.
func (h *host) look(n *node, v kahn.View) {
	ancestors := h.p.ancestors[n.id]
	for id, other := range h.nodes {
		if id == n.id {
			continue
		}
		f := h.p.fates[id]
		if sees := ancestors[id] || n.end; v.Has(id) != sees {
			h.problem("%s sees %s: %t, want %t", n.id, id, !sees, sees)
		} else if !sees {
			continue // a guard or a condition that asks for any other node gets an error
		}
		status, output, err := v.Status(id), v.Output(id), v.Err(id)
		switch {
		case !status.Terminal():
			if n.end || !h.mayRunOn(n) {
				h.problem("%s sees %s as %v", n.id, id, status)
			}
		default:
			want := any(nil)
			if f.status == "ok" {
				want = h.value(other)
				if f.fallback {
					want = fallbackValue(id)
				}
			}
			broken := f.status == "F" || f.status == "X" || f.status == "C"
			if status != statusWords[f.status] || (err != nil) != broken || !reflect.DeepEqual(output, want) {
				h.problem("%s sees %s as %v, %v, %v, want %v, %v, an error: %t", n.id, id, status, output, err,
					statusWords[f.status], want, broken)
			}
		}
	}
	want := kahn.RunRunning
	if n.end {
		want = runWords[h.p.computed[h.rule.String()]]
	}
	if got := v.RunStatus(); got != want {
		h.problem("%s sees the run as %v, want %v", n.id, got, want)
	}
}

// mayRunOn reports whether an ancestor of the node may still be running when the node starts: after an early decision, or if the node follows a
// node that is skipped at the start.
func (h *host) mayRunOn(n *node) bool {
	ancestors := h.p.ancestors[n.id]
	early := append([]string{"all", "nofail"}, earlyRules...)
	return h.mode == kahn.Eager && slices.ContainsFunc(h.p.g.nodes, func(m *node) bool {
		return (m.id == n.id || ancestors[m.id]) && (m.off || slices.Contains(early, m.rule()))
	})
}

// checkInputs compares the inputs that a step sees with the model.
func (h *host) checkInputs(n *node, s *kahn.Step) {
	f := h.p.fates[n.id]
	for _, port := range n.ports {
		got, ok := s.Param(port.name)
		seen := missing
		switch {
		case ok && got == nil:
			seen = null
		case ok:
			seen = present
		}
		if want := h.p.input(n, port, f); seen != want {
			h.problem("%s sees its parameter %s as %d, want %d (0 missing, 1 null, 2 a value)", n.id, port.name, seen, want)
		} else if want == present {
			h.checkValue(n, port, got)
		}
	}
	for id := range h.nodes {
		want := slices.ContainsFunc(h.p.g.in(n.id), func(e *edge) bool {
			return e.from == id && h.p.delivered(n, e, f) != missing
		})
		if _, got := s.Upstream(id); got != want {
			h.problem("%s sees something of %s: %t, want %t", n.id, id, got, want)
		}
	}
}

// checkValue compares the value of a parameter with the model.
func (h *host) checkValue(n *node, port port, got any) {
	f := h.p.fates[n.id]
	var want []any
	group := h.p.group(n, port.name)
	for _, e := range group {
		src := h.p.fates[e.from]
		switch v := h.p.delivered(n, e, f); {
		case v == missing:
		case v == null:
			want = append(want, nil)
		case src.status == "ok" && src.fallback:
			want = append(want, fallbackValue(e.from))
		case src.status == "ok":
			want = append(want, h.value(h.nodes[e.from]))
		case f.subst && h.p.seen(n, e) != satisfied:
			want = append(want, "")
		default:
			want = append(want, errValue)
		}
	}
	isStatic := slices.ContainsFunc(n.sets, func(s static) bool { return s.name == port.name })
	root, isRoot := rootInputs[port.name]
	var single any
	switch {
	case len(want) > 0 && len(group) > 1 && n.merge == "array":
		list, _ := got.([]any)
		list = slices.Clone(list)
		for i, v := range list {
			list[i] = sameForAllErrors(v)
		}
		if !reflect.DeepEqual(list, want) {
			h.problem("%s has %v as its parameter %s, want %v", n.id, got, port.name, want)
		}
		return
	case len(want) > 0:
		single = want[len(want)-1]
	case isStatic:
		single = staticValue
	case isRoot:
		single = root
	default:
		single = defaultValue
	}
	if !reflect.DeepEqual(sameForAllErrors(got), single) {
		h.problem("%s has %v as its parameter %s, want %v", n.id, got, port.name, single)
	}
}

const (
	staticValue  = "static"
	defaultValue = "default"
	errValue     = "an error object"
)

func fallbackValue(id string) string { return "fallback of " + id }

// sameForAllErrors replaces every error by the same value.
func sameForAllErrors(v any) any {
	if _, ok := v.(error); ok {
		return errValue
	}
	return v
}

// labeller is an output with BranchLabels.
type labeller []string

func (l labeller) BranchLabels() []string { return l }

func (h *host) outcome(n *node, attempt int) (any, error) {
	switch n.outcome {
	case "err":
		return nil, &stepError{n.id}
	case "skip":
		return nil, kahn.Skip(skipMessage)
	case "cancel":
		return nil, kahn.ErrCallAborted
	case "panic":
		panic(&stepError{n.id})
	case "goexit":
		runtime.Goexit()
	case "flaky":
		if attempt == 1 {
			return nil, &stepError{n.id}
		}
	}
	return h.value(n), nil
}

// value returns the output of a node that completes.
func (h *host) value(n *node) any {
	switch {
	case n.outcome == "null":
		return nil
	case n.outcome == "label":
		return n.labelled()
	case n.outcome == "completed":
		return kahn.EndVerdict{Status: kahn.RunCompleted}
	case n.outcome == "failed":
		return kahn.EndVerdict{Status: kahn.RunFailed}
	case h.p.g.condition(n):
		return 1 // an output without a label
	}
	return "output of " + n.id
}

func (n *node) labelled() any {
	if len(n.labels) > 1 {
		if n.coding%2 == 0 {
			return n.labels
		}
		return labeller(n.labels)
	}
	label := n.labels[0]
	switch n.coding {
	case 1:
		return "  " + label + "\n"
	case 2:
		return []string{label}
	case 3:
		return map[string]any{"branch": label, "label": "zzz", "other": 1}
	case 4:
		return map[string]any{"label": label, "result": true}
	case 5:
		return struct {
			Result string `json:"result"`
		}{label}
	case 6:
		return labeller{label}
	case 7:
		if label == "true" || label == "false" {
			return label == "true"
		}
	}
	return label
}

// errCompile marks the error for a graph that kahn refuses to compile.
var errCompile = errors.New("kahn refuses the graph")

// execute runs the graph in fake time.
func execute(t *testing.T, declared *graph, p *prediction, w way) (r *record, err error) {
	h := &host{way: w, g: declared, p: p, nodes: map[string]*node{}}
	for _, n := range p.g.nodes {
		h.nodes[n.id] = n
	}
	g := h.build()
	if _, err := g.Compile(); err != nil {
		return nil, fmt.Errorf("%w: %w", errCompile, err)
	}
	// If a run hangs or leaves a goroutine behind, synctest panics here.
	defer func() {
		if v := recover(); v != nil {
			r, err = nil, fmt.Errorf("the run panicked: %v", v)
		}
	}()
	r = &record{}
	synctest.Test(t, func(*testing.T) {
		r.start = time.Now()
		h.started = make(chan struct{})
		h.run, err = kahn.Start(context.Background(), g, h.step, w.mode, w.rule, kahn.Limit(w.limit),
			kahn.Inputs(rootInputs), kahn.OnEvent(func(e kahn.Event) { r.events = append(r.events, e) }))
		if err != nil {
			return
		}
		close(h.started)
		r.res, r.err = h.run.Wait()
	})
	r.problems = h.problems
	return r, err
}

var (
	statusWords = map[string]kahn.Status{
		"ok": kahn.Completed, "F": kahn.Failed, "X": kahn.Aborted, "C": kahn.Cancelled, "S": kahn.Skipped,
	}
	runWords = map[string]kahn.RunStatus{
		"completed": kahn.RunCompleted, "failed": kahn.RunFailed, "cancelled": kahn.RunCancelled,
	}
	reasonWords = map[string]machine.SkipKind{
		"": kahn.SkipNone, "ann": kahn.SkipAnnotation, "br": kahn.SkipConditionBranch, "up": kahn.SkipUpstreamSkipped,
		"when": kahn.SkipWhenGuard, "null": kahn.SkipNullPropagation, "pf": kahn.SkipParentFailure,
		"rule": kahn.SkipRuleUnsatisfied, "self": kahn.SkipSelf,
	}
)

// differences compares the result of a run with the model.
func (r *record) differences(p *prediction, w way) (diffs []string) {
	diff := func(what string, got, want any) {
		if !reflect.DeepEqual(got, want) {
			diffs = append(diffs, fmt.Sprintf("%s: kahn says %v, the model says %v", what, got, want))
		}
	}
	rule := w.rule.String()
	if r.res == nil {
		return []string{fmt.Sprintf("no result: %v", r.err)}
	}
	var ids []string
	for got := range r.res.Nodes() {
		ids = append(ids, got.ID)
		n, f := p.g.node(got.ID), p.fates[got.ID]
		if got.Status != statusWords[f.status] {
			diff("status of "+n.id, got.Status, statusWords[f.status])
			continue // the other differences would only be consequences of this one
		}
		reason := event.SkipReason{Kind: reasonWords[f.reason], Node: f.source, Label: f.label, Answer: f.answer, Port: f.port}
		switch f.reason {
		case "rule":
			reason.Rule = joins[n.rule()].String()
			if n.join == "k" {
				reason.Rule = n.kahnJoin().String()
			}
		case "when":
			reason.Expression = "func"
		case "self":
			reason.Message = skipMessage
		}
		diff("skip reason of "+n.id, got.Skip, reason)
		diff("cause of "+n.id, got.Cause.Kind.String(), f.cause)
		diff("origins of "+n.id, nilIfEmpty(got.Cause.Origins), nilIfEmpty(f.origins))
		diff("tolerated "+n.id, got.Tolerated, f.tolerated)
		diff("fallback of "+n.id, got.Fallback, f.fallback)
		if !n.test {
			diff("attempts of "+n.id, got.Attempts, f.attempts)
		}
		diffs = append(diffs, errorProblems(n, f, got)...)
	}
	var declared []string
	for _, n := range p.g.nodes {
		declared = append(declared, n.id)
	}
	diff("nodes", ids, declared)
	diff("run status", r.res.Status, runWords[p.status[rule]])
	diff("degraded", r.res.Degraded, p.degraded[rule])
	var runErr *kahn.RunError
	isRunError := errors.As(r.err, &runErr)
	switch {
	case r.res.Status == kahn.RunCompleted && r.err != nil:
		diffs = append(diffs, fmt.Sprintf("a completed run returned the error %v", r.err))
	case r.res.Status != kahn.RunCompleted && !isRunError:
		diffs = append(diffs, fmt.Sprintf("a run that is %v returned the error %v", r.res.Status, r.err))
	case isRunError:
		diff("status in the error", runErr.Status, r.res.Status)
		if want := p.escapedFailures(); w.rule == kahn.StatusEscaped && r.res.Cause.Kind == kahn.CauseNone && len(want) > 0 { // compared only if the end node has not decided the status
			diff("nodes in the error", nodesIn(runErr), want)
		}
	}
	if r.res.Status == kahn.RunFailed && p.endBroken() {
		diff("cause of the run", r.res.Cause.Kind, kahn.CauseEndFailed)
	} else if r.res.Status == kahn.RunFailed {
		diff("cause of the run", r.res.Cause.Kind, kahn.CauseNone)
	}
	diff("cancel requested", r.res.CancelRequested, false)
	if !p.endBroken() { // the output of a run whose end node failed is unspecified
		diff("output of the run", r.res.Output(), r.output(p))
	}
	return append(diffs, r.problems...)
}

// nodesIn returns the ids of the nodes whose failures an error lists, sorted.
func nodesIn(err *kahn.RunError) (ids []string) {
	for _, one := range err.Errs {
		var n *kahn.NodeError
		if errors.As(one, &n) {
			ids = append(ids, n.Node)
		}
	}
	slices.Sort(ids)
	return ids
}

// output returns the expected output of the run: the output of the end node. Without an end node it is the output of the only leaf or, if there
// are several leaves, the outputs of the completed leaves by id.
func (r *record) output(p *prediction) any {
	leaves := map[string]any{}
	var only kahn.NodeResult
	count := 0
	for got := range r.res.Nodes() {
		n := p.g.node(got.ID)
		if n.end {
			if verdict, ok := got.Output.(kahn.EndVerdict); ok {
				return verdict.Output
			}
			return got.Output
		}
		if !p.leaf(n) {
			continue
		}
		count++
		only = got
		if got.Status == kahn.Completed {
			leaves[n.id] = got.Output
		}
	}
	if count == 1 {
		return only.Output
	}
	return leaves
}

// errorProblems checks that a failed node has its own error, and that a victim does not have another node's error.
func errorProblems(n *node, f *fate, got kahn.NodeResult) (problems []string) {
	complain := func(what string) {
		problems = append(problems, fmt.Sprintf("the error of %s %s: %v", n.id, what, got.Err))
	}
	var nodeErr *kahn.NodeError
	var upstream *kahn.UpstreamError
	var own *stepError
	switch {
	case f.own:
		if !errors.As(got.Err, &nodeErr) || nodeErr.Node != n.id || nodeErr.Kind.String() != f.cause {
			complain("is not its NodeError")
		}
		if (n.outcome == "err" || n.outcome == "panic") && f.ready && (!errors.As(got.Err, &own) || own.node != n.id) {
			complain("does not lead to what the step returned")
		}
	case f.status == "X" || f.status == "F":
		if !errors.As(got.Err, &upstream) || errors.As(got.Err, &own) {
			complain("is not an UpstreamError alone")
		}
	case f.status == "ok" || f.status == "S":
		if got.Err != nil {
			complain("is there though it did not fail")
		}
	}
	return problems
}

func nilIfEmpty(ids []string) []string {
	if len(ids) == 0 {
		return nil
	}
	return ids
}
