package kahn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
)

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

	null bool // the answer was null, and not the text
}

// Error names the gate and the answer, lists the choices, and suggests one if the answer looks like a typing error.
func (e *ChoiceError) Error() string {
	answer := quoteID(e.Answer)
	if e.null {
		answer = e.Answer
	}
	return fmt.Sprintf("node %s: %v: %s; choose one of %s%s", quoteID(e.Node), ErrChoice, answer, quoteList(e.Choices),
		didYouMean(e.Answer, e.Choices))
}

// Is reports whether target is [ErrChoice].
func (e *ChoiceError) Is(target error) bool { return target == ErrChoice }

// choices are the answers that a gate accepts or a condition is expected to give: the declared ones, else the labels of its
// out-edges, and where one of these is in an alias class all words of both classes. Nil: any. A choice without an edge takes
// no branch.
func (p *Plan) choices(ref Ref) []string {
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
	return withAliases(list, n.Kind == KindGate)
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

// withAliases adds to labels, where one of them is in an alias class, all words of both classes.
func withAliases(labels []string, gate bool) []string {
	words, classes := aliasWords, aliases
	if gate {
		words, classes = gateAliasWords, gateAliases
	}
	if !slices.ContainsFunc(labels, func(label string) bool { return isAlias(classes, label) }) {
		return labels
	}
	list := slices.Clone(labels)
	for _, word := range words {
		if !slices.Contains(list, word) {
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
// refuses it. Both are user code, and are called without the lock. If a Labeler panics, refuse returns nil, and the panic fails the gate
// later; a Check that panics has refused the answer.
func (p *Plan) refuse(ref Ref, path string, answer any) error {
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
func (p *Plan) refuseChoice(ref Ref, path string, answer any) error {
	choices := p.choices(ref)
	if choices == nil {
		return nil
	}
	var labels []string
	if contain(func() error { labels = labelsOf(answer); return nil }) != nil || isChoice(labels, choices, p.node(ref).Kind == KindGate) {
		return nil
	}
	return &ChoiceError{Node: path, Answer: answerText(answer, labels), Choices: slices.Clone(choices), null: len(labels) == 0 && isNull(answer)}
}

// checkChoices reports where the choices of a node do not fit the labels of its out-edges.
func (c *compiler) checkChoices() {
	p := c.p
	for _, ref := range p.declared {
		n, at := p.node(ref), p.net.Router(ref)
		if g := n.Gate; isGate(n) && g != nil && g.OnTimeout == GateLabel && at >= 0 {
			router := p.routers[at]
			if _, ok := router.byLabel[timeoutLabel]; !ok && router.fallback < 0 {
				c.ofNode(n.ID, "Gate.OnTimeout", "%w: the gate answers %q when its time is up, but no edge has this label, nor %q; its labels are %s",
					ErrBadValue, timeoutLabel, defaultLabel, quoteList(router.labels))
			}
		}
	}
	for i := range p.net.Edges() {
		e := p.edgeAt(i)
		if e.Flags&machine.EdgeLabelled == 0 || e.Label == defaultLabel {
			continue
		}
		n := p.node(e.From)
		declared := n.declaredChoices()
		if len(declared) == 0 || isGate(n) && n.Gate.OnTimeout == GateLabel && e.Label == timeoutLabel {
			continue
		}
		gate := n.Kind == KindGate
		if choices := withAliases(declared, gate); !isChoice([]string{e.Label}, choices, gate) {
			c.ofEdge(int(i), "Label", "%w: the label %s can never match: the choices of %s are %s%s", ErrBadEdge,
				quoteID(e.Label), quoteID(p.names[e.From]), quoteList(choices), c.didYouMean(e.Label, choices))
		}
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
