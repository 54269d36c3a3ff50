package kahn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Gate bounds the wait of a gate: a node of [KindGate] without a Do, which a signal from outside completes. The value of the
// signal is the gate's output, and routes like a condition's; in addition to the spellings of true and false, approve
// and approved mean true, and reject and rejected mean false.
//
// A gate accepts its choices only: Choices if it declares some, else the labels of its out-edges; and for each of these that is
// approved, approve, true or yes, in any case, these words, likewise for rejected, reject, false and no, and all of them if each label has
// such a meaning: beside "rejected", a label "aproved" refuses the answer "approved". Any other answer is refused
// with a [*ChoiceError], and the gate waits on. A choice without an edge takes no branch. A gate with an edge labelled
// "default", and one with neither Choices nor labelled edges, accepts anything.
//
// While a node waits it holds neither a slot nor a goroutine. [Execute] continues with everything that does not depend on it
// and returns, when nothing else is left to do, a Result in status [RunSuspended] with a [Snapshot] to resume from. A [Run]
// that was begun with [Start] lives on until [Run.Signal] answers, or until [Run.Leave].
type Gate struct {
	// Timeout is how long the gate waits. It runs on while the run is not in memory: what counts is the wall clock. Zero
	// means for ever.
	Timeout time.Duration
	// OnTimeout says what happens then. Default: [GateFail].
	OnTimeout GateTimeout
	// Choices declares the answers that the gate accepts. Default: the labels of its out-edges.
	Choices []string `json:",omitempty"`
	// Check judges an answer that is one of the choices, if the gate has choices. An error refuses the answer as if it were no choice: the
	// signal gets an error that matches [ErrChoice] and unwraps to Check's error, and the gate waits on. It is called without a lock: on the
	// goroutine of the caller of Signal, Resume or Execute, or on one of the run for a signal that was posted to a store. It must not change
	// the value, and may be called by several goroutines at once. It is no part of [Plan.Hash]. Default: none.
	Check func(answer any) error `json:"-"`
}

// GateTimeout says what happens to a gate whose Timeout has passed.
type GateTimeout uint8

// The choices.
const (
	GateFail  GateTimeout = iota // it fails, with the cause gate_timeout
	GateLabel                    // it completes with the output "timeout", which is also its label: if it has labelled edges, one is "timeout" or "default"
)

var gateTimeoutNames = enum.Of[GateTimeout]("gate timeout", "fail", "label")

// timeoutLabel is the output of a gate under GateLabel.
const timeoutLabel = "timeout"

// String returns "fail" or "label".
func (t GateTimeout) String() string { return gateTimeoutNames.Name(t) }

// MarshalText encodes t as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (t GateTimeout) MarshalText() ([]byte, error) { return gateTimeoutNames.Text(t) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for anything else.
func (t *GateTimeout) UnmarshalText(text []byte) error { return gateTimeoutNames.Parse(t, text) }

// Decision is a signal that says who has decided, and why. Its Value plays the part of any other signal's value: it routes,
// and the gate's dependents, or the step that continues, receive it. [NodeResult] and the event node.signalled hold the whole
// Decision.
type Decision struct {
	Value any
	// Actor names who has decided.
	Actor string
	// Comment is the actor's comment.
	Comment string
	// ID identifies the signal among the signals for the same name, so that it may be sent again: see [Run.Signal]. Its value must have
	// a JSON form then, by which values are compared. Empty: it is another signal each time.
	ID string
}

// decisionOf is a signal as a Decision.
func decisionOf(signal any) Decision {
	switch d := signal.(type) {
	case Decision:
		return d
	case *Decision:
		if d != nil {
			return *d
		}
		return Decision{}
	}
	return Decision{Value: signal}
}

// isGate reports whether the node is completed by a signal.
func isGate(n *node) bool {
	return n.Kind == KindGate && n.Do == nil && n.Test == nil && n.TestExpr == "" && !n.composite()
}

// ErrChoice rejects a signal whose answer is not one of the gate's choices, or is refused by its Check. In the first case the error is a
// [*ChoiceError].
var ErrChoice = errors.New("no such choice")

// ChoiceError says that an answer is none of the choices of a gate. It matches [ErrChoice].
type ChoiceError struct {
	// Node is the path of the gate.
	Node string
	// Answer is the label of the answer, or, if it has none, the answer as text, shortened to about a kilobyte.
	Answer string
	// Choices are the choices of the gate: as declared, or the labels of its edges in the order of declaration, then the
	// words that are equivalent to one of them or to its opposite. See [Gate].
	Choices []string

	null bool   // the answer was null, and not the text
	form string // the type of an answer that has no label, and is not null
}

// Error names the gate and the answer, lists the choices, and suggests one if the answer looks like a typing error.
func (e *ChoiceError) Error() string {
	answer := quoteID(e.Answer)
	switch {
	case e.null:
		answer = e.Answer
	case e.form != "":
		answer = fmt.Sprintf("%s of type %s, which is no label", e.Answer, e.form)
	}
	return fmt.Sprintf("node %s: %v: %s; choose one of %s%s", quoteID(e.Node), ErrChoice, answer, quoteList(e.Choices),
		didYouMean(e.Answer, e.Choices))
}

// Is reports whether target is [ErrChoice].
func (e *ChoiceError) Is(target error) bool { return target == ErrChoice }

// choices are the answers that a gate accepts or a condition is expected to give: the declared ones, else the labels of its
// out-edges, and the words that mean the same, see withAliases. Nil: any. A choice without an edge takes no branch.
func (p *Plan) choices(ref machine.Ref) []string {
	if p.whole != nil { // a trigger may have pruned edges, but their labels are still choices
		ref, _ = p.whole.find(p.names[ref])
		p = p.whole
	}
	n, list := p.node(ref), []string(nil)
	if i := p.net.Router(ref); i >= 0 {
		router := p.routers[i]
		if router.fallback >= 0 {
			return nil
		}
		list = router.labels
	}
	if declared := n.declaredChoices(); len(declared) > 0 {
		list = declared
	}
	return n.withAliases(list)
}

// declaredChoices are the choices that the node itself lists.
func (n *node) declaredChoices() []string {
	if isGate(n) {
		if n.Gate == nil {
			return nil
		}
		return n.Gate.Choices
	}
	return n.Choices
}

// withAliases adds to labels the words of the alias classes that they are in. If each label is in one, both classes are added: who writes
// "approved" expects to be answered "rejected". Beside any other label only what is written counts, since that one may be the other answer
// with a typing error. What a gate answers when its time is up is not checked.
func (n *node) withAliases(labels []string) []string {
	words, classes := aliasWords, aliases
	if n.Kind == KindGate {
		words, classes = gateAliasWords, gateAliases
	}
	var has [2]bool // by meaning: false, true
	all := true
	for _, label := range labels {
		switch means, ok := classes[strings.ToLower(label)]; {
		case !ok:
			all = all && label == timeoutLabel && answersInTime(n)
		case means:
			has[1] = true
		default:
			has[0] = true
		}
	}
	if !has[0] && !has[1] {
		return labels
	}
	list := slices.Clone(labels)
	for _, word := range words {
		if (all || has[0] && !classes[word] || has[1] && classes[word]) && !slices.Contains(list, word) {
			list = append(list, word)
		}
	}
	return list
}

func isAlias(classes map[string]bool, label string) bool {
	_, ok := classes[strings.ToLower(label)]
	return ok
}

// isChoice reports whether an answer with the given labels is one of the choices, which have their aliases.
func isChoice(labels, choices []string, gate bool) bool {
	classes := aliases
	if gate {
		classes = gateAliases
	}
	for _, label := range labels {
		if !slices.Contains(choices, label) && !(isAlias(classes, label) && slices.Contains(choices, strings.ToLower(label))) {
			return false
		}
	}
	return len(labels) > 0
}

// refusedAnswer is the error of an answer that the Check of a gate has refused. It matches [ErrChoice].
type refusedAnswer struct {
	node string // the path of the gate
	err  error  // of Check
}

// Error names the gate and says why the answer was refused.
func (e *refusedAnswer) Error() string {
	return fmt.Sprintf("node %s: the answer is refused: %s", quoteID(e.node), errorText(e.err))
}

// Is reports whether target is [ErrChoice].
func (e *refusedAnswer) Is(target error) bool { return target == ErrChoice }

// Unwrap returns the error of Check.
func (e *refusedAnswer) Unwrap() error { return e.err }

// refuse returns an error that matches [ErrChoice] and names the gate by path, if the answer is no choice of the gate, or its Check
// refuses it. Both are user code, and are called without the lock. If BranchLabels panics, refuse returns nil, and the panic fails the gate
// later; a Check that panics has refused the answer.
func (p *Plan) refuse(ref machine.Ref, path string, answer any) error {
	if err := p.refuseChoice(ref, path, answer); err != nil {
		return err
	}
	n := p.node(ref)
	if !isGate(n) || n.Gate == nil || n.Gate.Check == nil {
		return nil
	}
	if err := contain(func() error { return n.Gate.Check(answer) }); err != nil {
		return &refusedAnswer{node: path, err: bounded(err)}
	}
	return nil
}

// refuseChoice returns a [*ChoiceError] if the answer is none of the choices.
func (p *Plan) refuseChoice(ref machine.Ref, path string, answer any) error {
	choices := p.choices(ref)
	if choices == nil {
		return nil
	}
	var labels []string
	if contain(func() error { labels = labelsOf(answer); return nil }) != nil || isChoice(labels, choices, p.node(ref).Kind == KindGate) {
		return nil
	}
	e := &ChoiceError{Node: path, Answer: answerText(answer, labels), Choices: slices.Clone(choices)}
	if e.null = len(labels) == 0 && isNull(answer); len(labels) == 0 && !e.null {
		e.form = fmt.Sprintf("%T", answer)
	}
	return e
}

// checkChoices reports where the choices of a node do not fit the labels of its out-edges. It reads the graph, before its nodes are numbered.
func (c *compiler) checkChoices() {
	if c.isPruned {
		return
	}
	labels := map[int32][]string{} // by gate that answers with a label when its time is up
	seen := map[branchLabel]bool{}
	c.eachLabel(func(_ int, from int32, label string) {
		if at := (branchLabel{from, label}); answersInTime(c.g.nodes[from]) && !seen[at] {
			seen[at] = true
			labels[from] = append(labels[from], label)
		}
	})
	for i, n := range c.g.nodes {
		if list := labels[int32(i)]; len(list) > 0 && !slices.Contains(list, timeoutLabel) && !slices.Contains(list, defaultLabel) {
			c.ofNode(n.ID, "Gate.OnTimeout", "%w: the gate answers %q when its time is up, but no edge has this label, nor %q; its labels are %s",
				ErrBadValue, timeoutLabel, defaultLabel, quoteList(list))
		}
	}
	known := map[int32]*knownChoices{} // by the node that declares them, so that the work is linear in the labels
	c.eachLabel(func(i int, from int32, label string) {
		n := c.g.nodes[from]
		if len(n.declaredChoices()) == 0 || label == defaultLabel || answersInTime(n) && label == timeoutLabel {
			return
		}
		k := known[from]
		if k == nil {
			k = n.knownChoices()
			known[from] = k
		}
		if k.has(label) {
			return
		}
		c.ofEdge(i, "Label", "%w: the label %s can never match: the choices of %s are %s%s", ErrBadEdge,
			quoteID(label), quoteID(n.ID), quoteList(k.list), c.mostLikely(label, k.list))
	})
}

// branchLabel is a label of the branches of a node.
type branchLabel struct {
	from  int32
	label string
}

// knownChoices are the choices that a node declares, with their aliases.
type knownChoices struct {
	list    []string
	set     map[string]bool
	classes map[string]bool
}

func (n *node) knownChoices() *knownChoices {
	k := &knownChoices{list: n.withAliases(n.declaredChoices()), set: map[string]bool{}, classes: aliases}
	if n.Kind == KindGate {
		k.classes = gateAliases
	}
	for _, choice := range k.list {
		k.set[choice] = true
	}
	return k
}

// has is isChoice for one label.
func (k *knownChoices) has(label string) bool {
	return k.set[label] || isAlias(k.classes, label) && k.set[strings.ToLower(label)]
}

// answersInTime reports whether the node is a gate that answers with a label when its time is up.
func answersInTime(n *node) bool { return isGate(n) && n.Gate != nil && n.Gate.OnTimeout == GateLabel }

// eachLabel calls f with the labels of branches: each with its edge and the node that it comes from, by their indices of declaration.
func (c *compiler) eachLabel(f func(i int, from int32, label string)) {
	for i := range c.g.edges {
		e := &c.g.edges[i]
		if e.terms == &noTerms || e.Label == "" {
			continue
		}
		from, ok := c.find(e.from)
		if !ok {
			continue
		}
		if to, _ := c.find(e.to); to == c.end && (e.On != OnSuccess || e.DataOnly || !isRouter(c.g.nodes[from])) { // see checkTerms
			continue
		}
		f(i, from, e.Label)
	}
}

// badChoices describes the defect of a list of choices, or returns "".
func badChoices(choices []string) string {
	seen := make(map[string]bool, len(choices))
	for _, choice := range choices {
		switch {
		case choice == "" || strings.TrimSpace(choice) != choice:
			return fmt.Sprintf("Choices: %s is empty or has space around it", quoteID(choice))
		case choice == defaultLabel:
			return fmt.Sprintf("Choices: %q is the branch of all other answers, and no answer", defaultLabel)
		case seen[choice]:
			return fmt.Sprintf("Choices: %s is declared twice", quoteID(choice))
		}
		seen[choice] = true
	}
	return ""
}

// SuspendMode says what happens to the rest of the run while a node is suspended. It is an option. Default: SuspendDrain,
// in [Waves] SuspendStop.
type SuspendMode uint8

// The suspend modes.
const (
	suspendDefault SuspendMode = iota
	SuspendDrain               // everything that does not depend on the suspended node continues
	SuspendStop                // nodes that have started finish, retries included; no other node starts

	suspendModeCount
)

var suspendModeNames = enum.Of[SuspendMode]("suspend mode", "", "drain", "stop")

// String returns "drain" or "stop", or "" for the zero value.
func (m SuspendMode) String() string { return suspendModeNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (m SuspendMode) MarshalText() ([]byte, error) { return suspendModeNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for anything else.
func (m *SuspendMode) UnmarshalText(text []byte) error { return suspendModeNames.Parse(m, text) }

func (m SuspendMode) apply(c *config) error {
	if m == suspendDefault || m >= suspendModeCount {
		return fmt.Errorf("%w: %s", ErrBadOption, enumField{"SuspendMode", int(m), suspendModeNames.Names()}.wrong())
	}
	c.onSuspend = m
	return nil
}

// Suspend, returned by a step, makes its node wait for a signal: the node is suspended, and when the signal comes the step
// is entered again from its start. It then finds the signal's value with [Step.Resumed] and its own state with
// [Step.SavedState]; the number of the attempt is the same, its Timeout begins anew.
//
// token is the name under which the signal will come, empty for the node's id; it must be neither the id of another node nor
// a name that another node waits under, else the step fails with an error that matches [ErrDuplicateGate]. info is for the
// person or program that answers. Both info and state go into a snapshot.
//
// The end node, and a node that was asked to stop, cannot wait: the former fails, the latter stops.
func Suspend(token string, info, state any) error {
	return &suspendError{token: token, info: info, state: state}
}

// SuspendUntil, returned by a step, makes its node sleep until t: then the step is entered again from its start, in the same attempt, with its own
// state in [Step.SavedState]; [Step.Resumed] says that there was no signal. The node is [Retrying] meanwhile, as in a backoff: it holds no slot,
// its Timeout begins anew, OverallTimeout runs on, [Execute] waits for it, and [Run.RetryNow] wakes it. The date survives lives: with a store a process
// may end, and under [Runner.Serve] a run that sleeps for long costs nothing. A t that has passed enters the step again at once.
//
// The end node, and a node that was asked to stop, cannot sleep: the former fails, the latter stops.
func SuspendUntil(t time.Time, state any) error {
	return &suspendError{state: state, until: expressible(t), sleeps: true}
}

// SuspendFor is [Suspend] for a wait that ends at the deadline, if no signal has come by then: the step is entered again, and [Step.Resumed] says
// which of the two it was. A signal that comes later is refused. The zero deadline is never.
func SuspendFor(token string, info, state any, deadline time.Time) error {
	return &suspendError{token: token, info: info, state: state, until: expressible(deadline)}
}

// expressible brings the time into the years 1 to 9999, which snapshots and stores can express: a later time becomes the last moment of
// these years, an earlier one the first. The zero time stays zero.
func expressible(t time.Time) time.Time {
	switch u := t.UTC(); {
	case t.IsZero():
		return t
	case u.Year() > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	case u.Year() < 1:
		return time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)
	case t.Year() > 9999 || t.Year() < 1: // in its own zone
		return u
	}
	return t
}

type suspendError struct {
	token       string
	info, state any
	until       time.Time // when the step is entered again without a signal; zero if never
	sleeps      bool      // there will be no signal
	run         string    // the id of the run that is awaited; "" if the wait is for a signal
}

func (e *suspendError) Error() string {
	switch {
	case e.run != "":
		return "suspended, waiting for run " + quoteID(e.run)
	case e.sleeps:
		return "suspended until " + e.until.Format(time.RFC3339)
	case !e.until.IsZero():
		return "suspended, waiting for " + quoteID(e.token) + " until " + e.until.Format(time.RFC3339)
	}
	return "suspended, waiting for " + quoteID(e.token)
}

// Wait is the wait of a node for a signal, or for the end of a run.
type Wait struct {
	Node string
	// Token is the name under which Run.Signal reaches the node, beside the node's id.
	Token string
	// Info is the info that the step passed to Suspend; a text that names the run if Run is set.
	Info any
	// Since is when the wait began.
	Since time.Time
	// Deadline is when the wait ends, zero if never.
	Deadline time.Time
	// Run is the id of the run whose end the node waits for, see AwaitRun; "" if it waits for a signal.
	Run string
}
