package kahn

import (
	"context"
	"encoding/json"
	"fmt"
	"github.com/seed-c794f7ef/kahn/event"
	"reflect"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// evaluator is the type of Graph.Evaluator.
type evaluator = interface {
	Parse(text string) (Expression, error)
}

// Expression is a text that the Evaluator of a [Graph] has read. It is kept in the Plan and may be evaluated by any number of runs at
// once.
//
// An Expression that can find errors in itself has a method Check(ancestor, input func(name string) error) error, too, which is called
// before anything runs. In conditions, the tests of loops and, if the graph has StrictGuards, guards, an error that it returns is a
// problem of Compile. In other guards it is a warning, in [Plan.Warnings] and in the Result of every run. ancestor returns nil for the id
// of a node that the expression will see, and an error that matches [ErrNotAncestor] for any other id. An expression that only asks whether
// a node exists, as with [View.Has], may ignore the error, or not pass its id to ancestor: then it does not count as one that names the node. input returns nil for the name of a root input that a run can
// have, and an error that matches [ErrUnknownInput] for one that the graph does not declare among its Inputs.
type Expression interface {
	// Evaluate returns the value of the expression, which a guard passes to [Truthy]. The View is that of the node whose
	// expression is evaluated, and shows only its ancestors. The context has the values of the run's and a deadline of a
	// second; it does not end with the run, since a cleanup node's guard is evaluated in a stopping one.
	Evaluate(ctx context.Context, v View) (any, error)
}

// checker is an [Expression] that can find errors in itself.
type checker interface {
	Check(ancestor, input func(name string) error) error
}

// evaluationTimeout is the time that an expression has. It occupies a worker, and no stop interrupts it.
const evaluationTimeout = time.Second

func evaluate(e Expression, v View) (any, error) {
	ctx, cancel := context.WithTimeout(v.base(), evaluationTimeout)
	defer cancel()
	return e.Evaluate(ctx, v)
}

// Truthy reports whether a guard whose expression has this value lets its node run. It returns false for false, null, zero,
// the empty string, empty collections and the string "false", which templates produce for false.
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

// lowered are the functions and contracts that replace, in the plan, the texts and schemas of a node. The rest of the engine
// does not know of texts.
type lowered struct {
	when          func(View) (bool, error)
	test          func(View) (any, error)
	until         Expression // of a loop
	input, output Contract
	checkers      []fieldChecker
}

// fieldChecker is the checker of a text, with the name of the field, and whether an error that it finds is only a warning.
type fieldChecker struct {
	field string
	checker
	warns bool
}

// look adds the checker of an expression, if it has one.
func (l *lowered) look(field string, e Expression, warns bool) {
	if c, ok := e.(checker); ok {
		l.checkers = append(l.checkers, fieldChecker{field, c, warns})
	}
}

// checkTexts runs the checkers of guards and conditions, once ancestry is known. A pruned plan may lack nodes that are there
// when another trigger fires.
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

// noted notes the ids that a text names: those of its own graph, or, for the text that ends a loop, those of the graph of the loop.
func (c *compiler) noted(loop string, ancestor func(id string) error) func(id string) error {
	return func(id string) error {
		if c.named == nil {
			c.named = map[[2]string]bool{}
		}
		c.named[[2]string{loop, id}] = true
		return ancestor(id)
	}
}

// checkTextsBeside runs the checkers of guards and conditions of a graph that has other problems. Where its nodes cannot be numbered, it is
// not known which of them are ancestors: a text may name any node of the graph then.
func (c *compiler) checkTextsBeside() {
	if !c.broken {
		c.number()
		c.checkTexts()
		return
	}
	inputs := &Plan{inputs: c.inputs, inputIndex: c.inputIndex}
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

// ancestor returns a function that reports whether a node sees the node of an id, for a checker.
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
		c.p.warnings = append(c.p.warnings, problem)
		return
	}
	c.keep(problem)
}

// install puts the functions and contracts into the plan.
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
			p.contracts = map[machine.Ref][phaseCount]Contract{}
		}
		p.contracts[r] = [phaseCount]Contract{event.PhaseInput: l.input, event.PhaseOutput: l.output}
	}
}

// lower reads the texts and schemas of a node. This calls user code, which is why Compile holds no lock.
func (c *compiler) lower(i int) {
	n := c.g.nodes[i]
	if n.WhenExpr == "" && n.TestExpr == "" && n.InputSchema == nil && n.OutputSchema == nil && n.Loop == nil {
		return
	}
	var l lowered
	if n.WhenExpr != "" {
		switch e, err := c.parse(n, "WhenExpr", n.WhenExpr); {
		case e != nil:
			l.look("WhenExpr", e, !c.g.StrictGuards)
			l.when = func(v View) (bool, error) {
				v.blind = true // a problem of a text allows: a path that it did not reach must not let its node run
				value, err := evaluate(e, v)
				return err == nil && Truthy(value), err
			}
		case err != nil && c.g.StrictGuards:
			c.keep(err)
		default: // the guard fails when it is evaluated, and GuardErrors applies
			l.when = func(View) (bool, error) { return false, err }
		}
	}
	if n.TestExpr != "" {
		// A condition that cannot decide fails its node whatever the policy, so there is nothing to wait for.
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
	if c.lowered == nil {
		c.lowered = map[int32]*lowered{}
	}
	c.lowered[int32(i)] = &l
}

// parse reads a text. Without an evaluator it reports that, and returns neither.
func (c *compiler) parse(n *node, field, text string) (e Expression, err error) {
	if isNull(c.evaluator) {
		c.ofNode(n.ID, field, "%w: it has a %s, the graph no Evaluator", ErrNoEvaluator, field)
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

// GuardPolicy tells what happens to a node whose guard fails to decide. Under the zero value a guard in Go fails its node, since code that is
// wrong must not run what it guards, and a guard that is a text lets it run. Under every policy the problem is in the log, in
// NodeResult.GuardErr and in Result.Warnings.
type GuardPolicy uint8

// The policies for guards that fail.
const (
	guardDefault GuardPolicy = iota
	GuardAllow               // the node runs
	GuardSkip                // the node is skipped
	GuardFail                // the node fails with [CauseConditionError]

	guardCount
)

var guardNames = [guardCount]string{"", "allow", "skip", "fail"}

// String returns "allow", "skip" or "fail", or "" for the zero value.
func (p GuardPolicy) String() string { return enum.Name(guardNames[:], int(p), "GuardPolicy") }

// MarshalText encodes p as its name. A value outside the enum is an error that matches [ErrBadValue].
func (p GuardPolicy) MarshalText() ([]byte, error) {
	return enum.Text(guardNames[:], int(p), "guard policy")
}

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (p *GuardPolicy) UnmarshalText(text []byte) error {
	return enum.Parse(p, guardNames[:], text, "guard policy")
}
