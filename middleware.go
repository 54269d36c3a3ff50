package kahn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/once"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Use wraps every attempt of every step in the given middleware. The first middleware is the outermost. The middleware of a later Use is inside the
// middleware of an earlier Use. Use wraps calls of the host's step function, of a node's own Do, and of compensations. It wraps neither fallbacks
// nor the tests of conditions. kahn calls each middleware once for the run, before anything starts. The argument of the middleware, here named
// next, performs the attempt. kahn calls the function that the middleware returns for every attempt.
//
// The returned function may pass a derived context to next: the step then gets this context, and a Step with this context. The returned function
// may also return without calling next, or change the results of next: what it returns is the result of the attempt. The run is refused with
// [ErrBadOption] if a middleware is nil, panics or returns nil.
//
// Middleware is not called for a node that was skipped or stopped before its first attempt: see [OnNode].
func Use(mw ...func(StepFunc) StepFunc) Option {
	return optionFunc(func(c *config) error {
		for _, m := range mw {
			if m == nil {
				return fmt.Errorf("%w: nil middleware", ErrBadOption)
			}
		}
		c.middleware = append(c.middleware, mw...)
		return nil
	})
}

// OnNode adds an observer of nodes. The observer is called once for every node that has ended, including nodes that were skipped or stopped before
// they started. Even for a node that was retried, the observer gets only one result.
//
// Unlike Use, OnNode does not wrap attempts, since a node may end without an attempt, and one failure may end a million nodes at once. The observer
// is called like a sink of [OnEvent]: after the node has ended, in the order of events, and on a separate goroutine. If the observer panics, it is
// disabled, like a sink. In a NodeResult that the observer gets, Cause.Origins contains the origins known when the node ended. The Result contains
// all origins. The observer also gets nodes inside composites. The ID of these nodes is their path, as in [Event].
func OnNode(observer func(NodeResult)) Option {
	return optionFunc(func(c *config) error {
		if observer == nil {
			return fmt.Errorf("%w: OnNode(nil)", ErrBadOption)
		}
		c.observers = append(c.observers, observer)
		return nil
	})
}

// The method `wrap` applies the middleware to the step function.
func (r *Run) wrap() error {
	if len(r.cfg.middleware) == 0 {
		return nil
	}
	step := r.step
	var wrapped StepFunc = func(ctx context.Context, s *Step) (any, error) {
		if s.flags&stepUndo != 0 {
			return nil, s.run.compensate(ctx, s, step)
		}
		if own := s.node().Do; own != nil {
			return own(ctx, s)
		}
		return step(ctx, s)
	}
	for i := len(r.cfg.middleware) - 1; i >= 0; i-- {
		inner := wrapped
		next := func(ctx context.Context, s *Step) (any, error) { return inner(ctx, s.under(ctx)) }
		err := contain(func() error {
			if wrapped = r.cfg.middleware[i](next); wrapped == nil {
				return errors.New("it returned nil")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%w: middleware number %d: %w", ErrBadOption, i+1, bounded(err))
		}
	}
	r.step, r.wrapped = wrapped, true
	return nil
}

// Around calls f when the run begins. If f returns a function, kahn calls this function with the Result when the run has ended. Use Around for
// anything that lasts as long as the run: the span of a trace, a log, a metric. The parameter ctx is the caller's context, or the context that an
// outer Around has returned. f may return a context derived from ctx. The steps' contexts then contain the values of this context, but its end does
// not stop the run. If there are several Arounds, the first one is the outermost. The run is refused with [ErrBadOption] if f is nil.
//
// f is called before anything is performed, on the goroutine that calls [Start]. If the run had to wait in a [Runner], f is called on another
// goroutine. While f runs, the run is pending and has no start time. f may inspect, signal, cancel and leave the run, but must not wait for its
// end. If the run ends before f is called, f is not called. If the run ends while f runs, the functions of later Arounds are not called. The
// function that f returns is called on a separate goroutine. [Run.Wait], [Execute] and [Runner.Shutdown] wait until it has returned, at most for
// CancelGrace or one second, whichever is longer. The Result contains a warning if f or the returned function panics, or if one of them still runs
// after that time.
func Around(f func(ctx context.Context, r *Run) (context.Context, func(*Result))) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return fmt.Errorf("%w: Around(nil)", ErrBadOption)
		}
		c.around = append(slices.Clip(c.around), f)
		return nil
	})
}

// The type `surrounding` contains the functions that Around's functions have returned.
type surrounding struct {
	ends   []func(*Result)
	late   []error       // the errors of functions of Around that panicked after the run had ended
	done   chan struct{} // closed when all functions have returned
	waited once.Once     // ensures that the grace is granted only once
	told   bool          // whether Wait has returned the Result; guarded by the run's resMu
}

// The method `surround` calls the functions of Around one after the other, until the run has ended. A function of Around may call Goexit. The
// caller calls surround before the method `open`, and does not hold the run's lock.
func (r *Run) surround() {
	a := &surrounding{done: make(chan struct{})}
	defer func() {
		if r.span.Load() != nil && r.manual == nil { // a Coordinator calls endAround itself
			go r.endAround(a)
		}
	}()
	for _, f := range r.cfg.around {
		if !r.isAhead(a) {
			return
		}
		err := contain(func() error {
			ctx, end := f(r.base, r)
			if ctx != nil {
				r.st.Lock()
				if r.stage < stageRunning { // otherwise the run was stopped or left while f ran, and other goroutines may read base
					r.base = ctx
				}
				r.st.Unlock()
			}
			if end != nil {
				a.ends = append(a.ends, end)
			}
			return nil
		})
		if err != nil {
			r.warnOfAround(a, fmt.Errorf("Around: %w", bounded(err)))
		}
	}
}

// isAhead reports whether the run has neither begun nor ended. Once isAhead has returned true, callers of [Run.Wait] also wait for the functions
// of Around.
func (r *Run) isAhead(a *surrounding) bool {
	r.st.Lock()
	defer r.st.Unlock()
	if r.stage >= stageRunning {
		return false
	}
	r.span.Store(a)
	return true
}

// warnOfAround adds a warning to the Result. If the run has ended meanwhile, warnOfAround leaves the warning to endAround.
func (r *Run) warnOfAround(a *surrounding, err error) {
	r.st.Lock()
	defer r.st.Unlock()
	if r.stage >= stageRunning {
		a.late = append(a.late, err)
		return
	}
	r.warn(err)
}

// endAround waits for the end of the run and then calls the functions that Around's functions have returned, the innermost first. If one of them
// calls Goexit, the other functions are still called.
func (r *Run) endAround(a *surrounding) {
	defer close(a.done)
	var res *Result
	for _, end := range a.ends {
		defer r.callEnd(end, &res)
	}
	res, _ = r.finished()
	for _, err := range a.late {
		r.warnOfEnd(res, err)
	}
}

func (r *Run) callEnd(end func(*Result), res **Result) {
	err := ErrGoexit
	defer func() {
		if err != nil {
			r.warnOfEnd(*res, fmt.Errorf("Around: %w", err))
		}
	}()
	err = bounded(contain(func() error { end(*res); return nil }))
}

// warnOfEnd adds a warning to the Result, unless Wait has already returned the Result.
func (r *Run) warnOfEnd(res *Result, err error) {
	r.resMu.Lock()
	defer r.resMu.Unlock()
	if !r.span.Load().told {
		res.Warnings = append(res.Warnings, err)
	}
}

var errStuckAround = errors.New("Around: a function was still running when the grace after the end of the run was over")

// awaitAround waits until all functions that endAround calls have returned, but at most for the grace. A later call does not grant the grace again.
func (r *Run) awaitAround(res *Result) {
	a := r.span.Load()
	if a == nil {
		return
	}
	a.waited.Do(func() {
		timer := time.NewTimer(max(r.cfg.cancelGrace, minSinkGrace))
		defer timer.Stop()
		select {
		case <-a.done:
		case <-timer.C:
			r.warnOfEnd(res, errStuckAround)
		}
		r.resMu.Lock()
		a.told = true
		r.resMu.Unlock()
	})
}

// Mux selects a step function by the Kind of a node. Its method Step is the StepFunc for a host whose graphs are data:
//
//	steps := kahn.Mux{"http": doHTTP, "sql": doSQL}
//	kahn.Execute(ctx, g, steps.Step, kahn.Kinds(steps))
//
// With the option [Kinds], a run is refused if the Mux lacks the kind of a node. Without the option, the node fails when it is performed.
type Mux map[string]StepFunc

// Step performs s with the function for its Kind. If the function is missing or nil, the node fails with an error that matches [ErrUnknownKind],
// and is not retried.
func (m Mux) Step(ctx context.Context, s *Step) (any, error) {
	fn, given := m[s.Kind()]
	switch {
	case fn != nil:
		return fn(ctx, s)
	case given:
		return nil, Permanent(fmt.Errorf("%w: %s%s", ErrUnknownKind, quoteID(s.Kind()), nilFunction))
	}
	return nil, Permanent(fmt.Errorf("%w: %s%s", ErrUnknownKind, quoteID(s.Kind()), instead(s.Kind(), m.Kinds())))
}

// nilFunction is the end of an error message about a kind whose function in the Mux is nil.
const nilFunction = ": its function is nil"

// Kinds returns the kinds that have a function, sorted.
func (m Mux) Kinds() []string {
	kinds := make([]string, 0, len(m))
	for _, kind := range slices.Sorted(maps.Keys(m)) {
		if m[kind] != nil {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Check compiles the graph and looks up each Kind and each CompensateBy.Kind for which the Mux needs a function, also in nested graphs. If
// functions are missing, Check returns a [*GraphError]. It contains one problem for each field whose function is missing, and each problem matches
// [ErrUnknownKind]. If the graph does not compile, Check returns the error of [Graph.Compile].
func (m Mux) Check(g *Graph) error {
	p, err := g.Compile()
	if err != nil {
		return err
	}
	return p.checkKinds(m, m.Kinds(), nil, nil)
}

// Kinds is an option that states which kinds of nodes the run's step function can perform. The argument may be a [Mux]. If a node at any depth
// needs the step function and its kind is not stated, the run is refused before anything runs, with the error of [Mux.Check]. A node needs no step
// function if it has its own Do, if kahn performs the node itself, or if the node is disabled or mocked. The run is refused with [ErrBadOption] if
// the argument is nil.
func Kinds(of interface{ Kinds() []string }) Option {
	return optionFunc(func(c *config) error {
		if of == nil {
			return fmt.Errorf("%w: Kinds(nil)", ErrBadOption)
		}
		c.kinds = of
		return nil
	})
}

// checkKinds reports each node that needs the host's step function but whose kind is not in the list `kinds`. If the list comes from a Mux, m is this
// Mux. A mocked node does not need the function. In test mode, p may be the plan of a graph inside a node. Then `within` is the double of this node.
func (p *Plan) checkKinds(m Mux, kinds []string, t *testMode, within *double) error {
	known := make(map[string]bool, len(kinds))
	for _, kind := range kinds {
		known[kind] = true
	}
	ps := problems{graph: p.name}
	seen := map[*Plan]bool{} // ensures that a graph used in several places is visited once
	var look func(p *Plan, t *testMode, within *double, prefix string)
	look = func(p *Plan, t *testMode, within *double, prefix string) {
		needy := p.stepless
		if t != nil {
			needy = t.leftSteps(p, within)
		} else if seen[p] {
			return
		} else {
			seen[p] = true
		}
		for _, r := range needy {
			n := p.node(r)
			path := prefix + n.ID
			if p.itemOf != "" {
				path = strings.TrimSuffix(prefix, "/") + "[]"
			}
			own, undo := t.byStep(p, r, within)
			check := func(is bool, field, kind string) {
				if is && !known[kind] {
					end := hint{text: nilFunction}
					if _, given := m[kind]; !given {
						end = ps.instead(kind, func() []string { return kinds })
					}
					ps.ofNode(path, field, "%w: %s%s", ErrUnknownKind, quoteID(kind), end).Node = strings.ReplaceAll(path, "[]", "")
				}
			}
			check(own, "Kind", n.Kind)
			if undo {
				check(true, "CompensateBy.Kind", n.Undo.by.Kind)
			}
			inner := p.inner(r)
			if inner == nil {
				continue
			}
			if t == nil {
				look(inner, nil, nil, path+"/")
				continue
			}
			switch d := t.double(p, r, within); {
			case undo && len(t.leftSteps(inner, d)) == 0: // only the composite's own compensation needs the step function
			case t.names(d):
				look(inner, t, d, path+"/")
			default: // no node inside is mocked, so the graph inside can be visited once for all composites that have it
				look(inner, nil, nil, path+"/")
			}
		}
	}
	look(p, t, within, "")
	return ps.err()
}

// The method `choose` returns names that a caller may have meant instead of an unknown name, at most maxListed of them. These are the names of the
// nodes for which the function `could` returns true, in the order of declaration. A nil `could` accepts all nodes. Each name begins with the
// prefix.
func (p *Plan) choose(prefix string, could func(machine.Ref) bool) (names []string) {
	for _, r := range p.declared {
		if len(names) == maxListed {
			break
		}
		if could == nil || could(r) {
			names = append(names, prefix+p.names[r])
		}
	}
	return names
}

// unknownNode returns the error for an id or a path that names no node.
func (p *Plan) unknownNode(path string) error {
	prefix, rest := "", path
	for {
		composite, inside, ok := strings.Cut(rest, "/")
		r, known := p.compositeOf(composite)
		if !ok || !known {
			return fmt.Errorf("%w: %s%s", ErrUnknownNode, quoteID(path), instead(path, p.choose(prefix, nil)))
		}
		p, prefix, rest = p.sub(r), prefix+composite+"/", inside
	}
}

// pathInside returns the path of a node with this id in a composite at any depth, or "" if there is none. In a map or a loop it is the path in the first
// item or iteration.
func (p *Plan) pathInside(id string) string {
	type inner struct {
		plan   *Plan
		prefix string
	}
	for list := []inner{{p, ""}}; len(list) > 0; list = list[1:] {
		at := list[0]
		if _, is := at.plan.Ref(id); is {
			return at.prefix + id
		}
		for _, ref := range at.plan.declared {
			if sub := at.plan.subs[ref]; sub != nil {
				number := ""
				switch n := at.plan.node(ref); {
				case n.Map != nil:
					number = "[0]"
				case n.Loop != nil:
					number = "#1"
				}
				list = append(list, inner{sub, at.prefix + at.plan.names[ref] + number + "/"})
			}
		}
	}
	return ""
}

// unknownOwn returns the error for an unknown id. It is for functions that accept ids of the graph's own nodes, but no paths.
func (p *Plan) unknownOwn(id string) error {
	part, _, _ := strings.Cut(id, "/")
	if r, ok := p.compositeOf(part); ok {
		return fmt.Errorf("%w: %s: only nodes of the graph itself can be named, such as %s", ErrUnknownNode, quoteID(id), quoteID(p.names[r]))
	}
	return p.unknownNode(id)
}

// compositeOf returns the node that one part of a path names. The part is the node's id, possibly followed by the index of an item or the number of
// an iteration. compositeOf returns false if there is no such node, or if the node has no Sub.
func (p *Plan) compositeOf(part string) (machine.Ref, bool) {
	r, ok := p.Ref(part)
	if i := strings.LastIndexAny(part, "[#"); !ok && i >= 0 {
		r, ok = p.Ref(part[:i])
	}
	return r, ok && p.sub(r) != nil
}

// unknownGate returns the error for a name under which no node waits or will wait. The function `status` returns the status of node r in a graph,
// or false if no run performs the graph. The parameter `prefix` of this function identifies the graph: the paths of all nodes of the graph begin
// with this prefix. If r is noRef, `status` only reports whether a run performs the graph.
func (p *Plan) unknownGate(name string, status func(prefix string, r machine.Ref) (Status, bool)) error {
	prefix, rest := "", name
	var within, why string // the outermost composite that prevents an answer to the gate, and the reason
	for {
		part, inside, ok := strings.Cut(rest, "/")
		r, known := p.compositeOf(part)
		if !ok || !known {
			break
		}
		n := p.node(r)
		switch {
		case part != n.ID:
		case n.Loop != nil:
			part += "#1"
		case n.Map != nil:
			part += "[0]"
		}
		sub, path := p.sub(r), prefix+part+"/"
		if within == "" {
			if _, runs := status(path, noRef); !runs {
				s, _ := status(prefix, r)
				switch within, why = prefix+n.ID, "is "+s.String(); s {
				case Running: // another iteration or another item is running
					within, why = prefix+part, "is not running"
				case Idle, Waiting, Ready:
					why = "has not begun"
				}
			}
		}
		p, prefix, rest = sub, path, inside
	}
	if r, ok := p.find(rest); ok && p.net.Is(r, machine.FlagGate) && prefix != "" {
		switch path := prefix + rest; {
		case path != name:
			return fmt.Errorf("%w: %s; did you mean %s?", ErrUnknownGate, quoteID(name), quoteID(path))
		case within != "":
			return fmt.Errorf("%w: %s is inside %s, which %s", ErrUnknownGate, quoteID(name), quoteID(within), why)
		}
	}
	gates := p.choose(prefix, func(r machine.Ref) bool {
		s, _ := status(prefix, r)
		return p.net.Is(r, machine.FlagGate) || s == Suspended
	})
	return fmt.Errorf("%w: %s%s", ErrUnknownGate, quoteID(name), instead(name, gates))
}
