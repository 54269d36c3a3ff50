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

// Gate configures a gate: a node of [KindGate] without code of its own. A signal from outside completes the gate, and the value of the signal is
// the gate's output. This value also selects branches, like the value of a condition. The words "approve" and "approved" also mean true; "reject"
// and "rejected" also mean false. [Plan.Hash] covers all fields of a Gate except Check and Schema.
//
// If a gate has choices, it accepts no other answer. The choices are the field Choices or, if it is empty, the labels of the gate's out-edges. If a
// choice is "approved", "approve", "true" or "yes", in upper or lower case, all four words are choices. The same applies to "rejected", "reject",
// "false" and "no". If every choice, apart from the label of [GateLabel], is one of the eight words, all eight are choices. The gate refuses any
// other answer with a [*ChoiceError] and continues to wait. If an answer is a choice but matches the label of no edge, [NoMatch] applies: by default,
// no branch is taken. A gate with an edge labelled "default", or with neither Choices nor labelled edges, accepts any answer.
//
// A gate that waits holds neither a slot nor a goroutine. [Execute] performs the nodes that can still start, see [SuspendMode]. Then it returns a
// Result in status [RunSuspended] with a [Snapshot]. A [Run] of [Start] stays in memory and waits for [Run.Signal].
type Gate struct {
	// Timeout is the longest time that the gate waits. It is measured by the wall clock, so it also passes while the run is not in memory. Zero
	// means forever. Compile refuses a Timeout above 0 and below 1 µs, since the author probably forgot the unit.
	Timeout time.Duration
	// OnTimeout selects what happens when Timeout has passed. Default: [GateFail]. [GateLabel] needs a Timeout.
	OnTimeout GateTimeout
	// Choices declares the answers that the gate accepts. Default: the labels of its out-edges.
	Choices []string `json:",omitempty"`
	// Check judges an answer. If the gate has choices, Check is called only for answers that are choices. If Check returns an error, the gate
	// refuses the answer and continues to wait. The sender of the signal then gets an error that matches [ErrChoice] and unwraps to Check's error.
	// Check is called without a lock, on the goroutine that calls Signal, Resume or Execute. For a signal posted to a store, Check is called on a
	// goroutine of the run. Check must not change the answer. Several goroutines may call Check at once. [Plan.Hash] does not cover Check. Default:
	// none.
	Check func(answer any) error `json:"-"`
	// Schema describes an answer. It is a [Contract], or data from which the graph's field Schemas compiles a Contract. The inspector's page shows
	// the schema as a form. If an answer violates the Contract, the gate refuses the answer with a [*ContractError], as if Check had returned this
	// error. Check is called only for an answer that conforms to the schema. Compile returns an error that matches [ErrNoSchemas] or [ErrBadSchema]
	// if it cannot compile the schema. [Plan.Hash] does not cover Schema. Default: none.
	Schema any `json:"-"`
}

// GateTimeout selects what happens to a gate whose Timeout has passed.
type GateTimeout uint8

// The values of GateTimeout.
const (
	GateFail GateTimeout = iota // the gate fails, with the cause gate_timeout
	// GateLabel completes the gate with the output "timeout", which selects the branches. If the gate has labelled out-edges, one of them must have
	// the label "timeout" or "default".
	GateLabel
)

var gateTimeoutNames = enum.Of[GateTimeout]("gate timeout", "fail", "label")

// timeoutLabel is the output of a gate under GateLabel.
const timeoutLabel = "timeout"

// String returns the name of t: "fail" or "label".
func (t GateTimeout) String() string { return gateTimeoutNames.Name(t) }

// MarshalText encodes t as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (t GateTimeout) MarshalText() ([]byte, error) { return gateTimeoutNames.Text(t) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (t *GateTimeout) UnmarshalText(text []byte) error { return gateTimeoutNames.Parse(t, text) }

// Decision contains the value of a signal, and says who decided and why. Pass a Decision to [Run.Signal] instead of the plain value. The field Value
// selects the branches. The gate's dependents, or the step that waited for the signal, receive only Value. The [NodeResult] and the event
// node.signalled contain the whole Decision, and [View.Decision] returns it.
type Decision struct {
	Value any
	// Actor is the name of the person or program that decided.
	Actor string
	// Comment is the actor's comment.
	Comment string
	// ID identifies the signal, so that a sender may repeat the signal: see [Run.Signal]. A signal repeats an earlier signal if both have the same
	// ID and were sent to the same name. kahn then compares their values as JSON, so it must be possible to encode Value as JSON. If ID is empty,
	// the signal repeats no other signal.
	ID string
}

// decisionOf returns the value of a signal as a Decision.
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

// isGate reports whether the node has the kind KindGate and no code of its own, so that a signal completes it.
func isGate(n *node) bool {
	return n.Kind == KindGate && n.Do == nil && n.Test == nil && n.TestExpr == "" && !n.composite()
}

// ErrChoice is matched by the error for a signal that a gate refuses. The error is a [*ChoiceError] if the answer is not one of the gate's choices.
// If the answer violates the gate's Schema, the error unwraps to a [*ContractError]. If Check refuses the answer, the error unwraps to Check's error.
var ErrChoice = errors.New("no such choice")

// ChoiceError reports an answer that is not one of the choices of a gate. It matches [ErrChoice].
type ChoiceError struct {
	// Node is the path of the gate.
	Node string
	// Answer contains the labels of the answer. If the answer has no label, Answer is its text. Answer is shortened to about a kilobyte.
	Answer string
	// Choices are the choices of the gate: the declared choices or, if there are none, the labels of its out-edges in the order of declaration.
	// Further words that the gate accepts follow, for example "no" if "rejected" is a choice: see [Gate].
	Choices []string

	null bool   // whether the answer was null; false for the text "null"
	form string // the type of the answer, if the answer has no label and is not null
}

// Error names the gate and the answer, lists the choices, and suggests a choice if the answer looks mistyped.
func (e *ChoiceError) Error() string {
	answer := quoteID(e.Answer)
	switch {
	case e.null:
		answer = e.Answer
	case e.form != "":
		answer = fmt.Sprintf("%s of type %s, which is not a label", e.Answer, e.form)
	}
	return fmt.Sprintf("node %s: %v: %s; choose one of %s%s", quoteID(e.Node), ErrChoice, answer, quoteList(e.Choices),
		didYouMean(e.Answer, e.Choices))
}

// Is reports whether target is [ErrChoice].
func (e *ChoiceError) Is(target error) bool { return target == ErrChoice }

// The method `choices` returns the answers that a gate accepts, or that a condition may give. These are the declared choices or, if there are none,
// the labels of the node's out-edges, followed by the words that withAliases adds. It returns nil if any answer is a choice: if an edge has the label
// "default", or if the node has neither declared choices nor labelled edges.
func (p *Plan) choices(ref machine.Ref) []string {
	if p.whole != nil { // a trigger may have pruned edges from p, but the labels of those edges are still choices
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

// declaredChoices returns the choices that the node itself declares.
func (n *node) declaredChoices() []string {
	if isGate(n) {
		if n.Gate == nil {
			return nil
		}
		return n.Gate.Choices
	}
	return n.Choices
}

// withAliases returns labels, followed by all words that mean the same as one of the labels. One class of words means true, and the other class
// means false. If every label is in one of the two classes, the words of both classes follow, since an author who writes "approved" expects that
// "rejected" may be answered. If a label is in neither class, the opposite words do not follow, since this label may be a misspelling of one of
// them. For a gate with GateLabel, withAliases ignores the label "timeout".
func (n *node) withAliases(labels []string) []string {
	words, classes := aliasWords, aliases
	if n.Kind == KindGate {
		words, classes = gateAliasWords, gateAliases
	}
	var has [2]bool // whether a label means false, and whether a label means true
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

// isChoice reports whether an answer has labels and all of them are in the list `choices`. The list includes the aliases.
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

// refusedAnswer is the error for an answer that the gate's Schema or Check refused. It matches [ErrChoice].
type refusedAnswer struct {
	node string // the path of the gate
	err  error  // a *ContractError, or the error that Check returned
}

// Error returns the gate's path and the reason why the answer was refused.
func (e *refusedAnswer) Error() string {
	return fmt.Sprintf("node %s: the answer is refused: %s", quoteID(e.node), refusalText(e.err))
}

// Is reports whether target is [ErrChoice].
func (e *refusedAnswer) Is(target error) bool { return target == ErrChoice }

// Unwrap returns the [*ContractError], or the error of Check.
func (e *refusedAnswer) Unwrap() error { return e.err }

// The method `refuse` returns an error if the answer is not a choice of the node, or if the Schema or Check of a gate refuses the answer. The error
// matches [ErrChoice] and contains the node's path. The answer, the contract and Check are user code, so the caller must not hold the run's lock.
// If the answer's BranchLabels panics, refuse does not check the choices, since the panic fails the node later. If the contract or Check panics,
// refuse returns an error.
func (p *Plan) refuse(ref machine.Ref, path string, answer any) error {
	if err := p.refuseChoice(ref, path, answer); err != nil {
		return err
	}
	n := p.node(ref)
	if !isGate(n) || n.Gate == nil || n.Gate.Schema == nil && n.Gate.Check == nil {
		return nil
	}
	err := contain(func() error {
		if err := p.judgeAnswer(ref, answer); err != nil || n.Gate.Check == nil {
			return err
		}
		return n.Gate.Check(answer)
	})
	if err != nil {
		return &refusedAnswer{node: path, err: bounded(err)}
	}
	return nil
}

// refuseChoice returns a [*ChoiceError] if the answer is not one of the node's choices.
func (p *Plan) refuseChoice(ref machine.Ref, path string, answer any) error {
	return refuseOther(path, answer, p.choices(ref), p.node(ref).Kind == KindGate)
}

// refuseOther returns a [*ChoiceError] if the answer is not one of the choices. If `choices` is nil, any answer is one. It calls user code.
func refuseOther(path string, answer any, choices []string, gate bool) error {
	if choices == nil {
		return nil
	}
	var labels []string
	if contain(func() error { labels = labelsOf(answer); return nil }) != nil || isChoice(labels, choices, gate) {
		return nil
	}
	e := &ChoiceError{Node: path, Answer: answerText(answer, labels), Choices: slices.Clone(choices)}
	if e.null = len(labels) == 0 && isNull(answer); len(labels) == 0 && !e.null {
		e.form = fmt.Sprintf("%T", answer)
	}
	return e
}

// checkChoices reports labels of edges that match none of the declared choices. It also reports a gate with GateLabel and labelled edges if none of
// these edges is labelled "timeout" or "default". checkChoices reads the graph before the nodes are numbered.
func (c *compiler) checkChoices() {
	if c.isPruned {
		return
	}
	labels := map[int32][]string{} // for each gate with GateLabel: the labels of its out-edges
	seen := map[branchLabel]bool{}
	c.eachLabel(func(_ int, from int32, label string) {
		if at := (branchLabel{from, label}); answersInTime(c.g.nodes[from]) && !seen[at] {
			seen[at] = true
			labels[from] = append(labels[from], label)
		}
	})
	for i, n := range c.g.nodes {
		if list := labels[int32(i)]; len(list) > 0 && !slices.Contains(list, timeoutLabel) && !slices.Contains(list, defaultLabel) {
			c.ofNode(n.ID, "Gate.OnTimeout", "%w: the gate answers %q when its timeout passes, but no edge has this label, nor %q; its labels are %s",
				ErrBadValue, timeoutLabel, defaultLabel, quoteList(list))
		}
	}
	known := map[int32]*knownChoices{} // cached for each node that declares choices, so that the work is linear in the number of labels
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

// branchLabel is the label of a branch, with the index of the node at which the branch begins.
type branchLabel struct {
	from  int32
	label string
}

// knownChoices are the declared choices of a node, with their aliases.
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

// The method `has` reports whether label is a choice. isChoice does the same for an answer with several labels.
func (k *knownChoices) has(label string) bool {
	return k.set[label] || isAlias(k.classes, label) && k.set[strings.ToLower(label)]
}

// answersInTime reports whether the node is a gate that completes with a label when its Timeout has passed.
func answersInTime(n *node) bool { return isGate(n) && n.Gate != nil && n.Gate.OnTimeout == GateLabel }

// eachLabel calls f for each edge whose label names a branch. It passes the index of the edge, the index of the edge's source node in c.g.nodes, and
// the label.
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
		// On an edge into the end node, the label names a branch only if the edge leaves a router, waits for success and is not data-only. See checkTerms.
		if to, _ := c.find(e.to); to == c.end && (e.On != OnSuccess || e.DataOnly || !isRouter(c.g.nodes[from])) {
			continue
		}
		f(i, from, e.Label)
	}
}

// badChoices returns what is wrong with a list of choices, or "" if the list is correct.
func badChoices(choices []string) string {
	seen := make(map[string]bool, len(choices))
	for _, choice := range choices {
		switch {
		case choice == "" || strings.TrimSpace(choice) != choice:
			return fmt.Sprintf("Choices: %s is empty or has space around it", quoteID(choice))
		case choice == defaultLabel:
			return fmt.Sprintf("Choices: %q is the branch of all other answers, so it cannot be a choice", defaultLabel)
		case seen[choice]:
			return fmt.Sprintf("Choices: %s is declared twice", quoteID(choice))
		}
		seen[choice] = true
	}
	return ""
}

// SuspendMode is an option that selects which other nodes of the run may start while a node is suspended. The default is SuspendDrain, or SuspendStop
// in [Waves].
type SuspendMode uint8

// The values of SuspendMode.
const (
	suspendDefault SuspendMode = iota
	SuspendDrain               // all nodes that do not depend on the suspended node may start
	SuspendStop                // each node that has started may finish, with its retries and with the nodes inside it; no other node starts

	suspendModeCount
)

var suspendModeNames = enum.Of[SuspendMode]("suspend mode", "", "drain", "stop")

// String returns the name of m: "drain" or "stop", or "" for the zero value.
func (m SuspendMode) String() string { return suspendModeNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (m SuspendMode) MarshalText() ([]byte, error) { return suspendModeNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (m *SuspendMode) UnmarshalText(text []byte) error { return suspendModeNames.Parse(m, text) }

func (m SuspendMode) apply(c *config) error {
	if m == suspendDefault || m >= suspendModeCount {
		return fmt.Errorf("%w: %s", ErrBadOption, enumField{"SuspendMode", int(m), suspendModeNames.Names()}.wrong())
	}
	c.onSuspend = m
	return nil
}

// Suspend returns an error. If a step returns this error, the step's node waits for a signal. When the signal arrives, the step is called again from
// its beginning. In that call, [Step.Resumed] returns the signal's value and [Step.SavedState] returns the argument state. The attempt keeps its
// number, but its Timeout begins again.
//
// The argument token is the name of the signal; if it is empty, the name is the node's id. The name must not be the id of another node, or the name
// of another node's wait; otherwise the node fails with an error that matches [ErrDuplicateGate]. The argument info is for the person or program
// that answers. Snapshots contain info and state.
//
// If the step of the end node returns this error, the end node fails. If a stop of the node was already requested, the node stops instead of waiting.
func Suspend(token string, info, state any) error {
	return &suspendError{token: token, info: info, state: state}
}

// SuspendUntil returns an error. If a step returns this error, the step's node sleeps until t. Then the step is called again from its beginning, in
// the same attempt. In that call, [Step.SavedState] returns the argument state, and [Step.Resumed] reports that there was no signal. While it
// sleeps, the node is [Retrying], as in a backoff: it holds no slot, OverallTimeout continues, [Execute] waits for the node, and [Run.RetryNow]
// wakes it. After the sleep, Timeout begins again. The process may end during the sleep. If the run is then continued from its snapshot or store,
// the node wakes at the same time t. Under [Runner.Serve], a run whose nodes only sleep does not count towards MaxRuns for long: see RestAfter of
// [Service]. If t has already passed, the step is called again at once.
//
// If the step of the end node returns this error, the end node fails. If a stop of the node was already requested, the node stops instead of
// sleeping.
func SuspendUntil(t time.Time, state any) error {
	return &suspendError{state: state, until: expressible(t), sleeps: true}
}

// SuspendFor is [Suspend] with a deadline. If no signal has arrived by the deadline, the step is called again; [Step.Resumed] reports whether
// there was a signal. A signal that arrives after the deadline is refused. A zero deadline means that there is no deadline.
func SuspendFor(token string, info, state any, deadline time.Time) error {
	return &suspendError{token: token, info: info, state: state, until: expressible(deadline)}
}

// The function `expressible` limits t to the years 1 to 9999, which snapshots and stores can express. It replaces a later time by the last second
// of the year 9999, and an earlier time by one second after the zero time. The zero time stays zero.
func expressible(t time.Time) time.Time {
	switch u := t.UTC(); {
	case t.IsZero():
		return t
	case u.Year() > 9999:
		return time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	case u.Year() < 1:
		return time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)
	case t.Year() > 9999 || t.Year() < 1: // the local year is out of range, but the UTC year is in range
		return u
	}
	return t
}

type suspendError struct {
	token       string
	info, state any
	until       time.Time // the time when the step is called again without a signal; zero means never
	sleeps      bool      // the node sleeps and expects no signal
	run         string    // the id of the awaited run; "" if the wait is for a signal
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

// Wait describes the wait of a node for a signal, or for the end of another run.
type Wait struct {
	Node string
	// Token is a name of the node: Run.Signal accepts the Token, and also the path of the node.
	Token string
	// Info is the info that the step passed to Suspend. If Run is set, Info is a text that names the run.
	Info any
	// Since is the time when the wait began.
	Since time.Time
	// Deadline is the time when the wait ends without a signal; zero means never.
	Deadline time.Time
	// Run is the id of the run whose end the node awaits, see AwaitRun; "" if the node waits for a signal.
	Run string
	// Choices are the answers that a gate accepts, as in [Why]. Choices is nil if the gate accepts any answer, or if the node is not a gate.
	Choices []string
}
