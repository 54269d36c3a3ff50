package kahn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Token returns the name of an attempt, or "" if the run does not wait for the attempt's result. No two attempts of a run have the same token. If a
// run continues in another process (see [Coordinator.Snapshot]), its attempts keep their tokens. A host sends the token with the call. When the reply
// with the token arrives, [Coordinator.Attempt] returns the attempt.
//
// Do not parse tokens, but you can read them: "step:1:1.2:S/pay@r7" is attempt 2 of the node S/pay of run r7, in attempt 1 of S and in epoch 1. The
// path contains the numbers of items and iterations. The first word is "compensate" for an attempt to undo the node, "expand" for a repeated call
// that only gets the step's graph (see [Expand]), and otherwise "step". After a wait, an attempt continues with a new token: "2+1" replaces "2".
func (c *Coordinator) Token(s *Step) string {
	defer c.enter()()
	if !c.waitsFor(s) {
		return ""
	}
	return c.h.calls[s].token(s)
}

// Attempt returns the attempt with this token, if the run waits for its result. Report the result with [Coordinator.Return] or [Coordinator.Crash].
// The error matches [ErrAnswered] if the result was reported before, in this process or another. It matches [ErrStale] if the run no longer waits
// for the attempt: the attempt was abandoned because it did not stop in time, was repeated after a crash, or belongs to an earlier epoch. It matches
// [ErrUnknownAttempt] if no such attempt has begun, for example because the token belongs to another run. It matches only one of these three.
func (c *Coordinator) Attempt(token string) (*Step, error) {
	defer c.enter()()
	h := c.h
	h.settle(c.run)
	c.run.st.Lock()
	defer c.run.st.Unlock()
	parts, ok := parseToken(token, c.run.ID())
	if !ok {
		return nil, fmt.Errorf("%w: %s is not a token of run %s", ErrUnknownAttempt, quoteID(token), quoteID(c.run.ID()))
	}
	if s := h.find(c.run, token, parts); s != nil {
		return s, nil
	}
	switch {
	case parts.epoch < c.run.epoch:
		return nil, fmt.Errorf("%w: %s is of epoch %d, and the run is in epoch %d", ErrStale, quoteID(token), parts.epoch, c.run.epoch)
	case h.lapsed[token]:
		return nil, fmt.Errorf("%w: the run no longer waits for %s", ErrStale, quoteID(token))
	case parts.epoch > c.run.epoch, !parts.began(c.run):
		return nil, fmt.Errorf("%w: the run has begun no attempt %s", ErrUnknownAttempt, quoteID(token))
	}
	return nil, fmt.Errorf("%w: the run already has the result of attempt %s", ErrAnswered, quoteID(token))
}

// InFlight returns the attempts that Next has returned, if the run still waits for their results. They are in the order in which Next returned them.
// A host uses InFlight to repeat calls that may be lost. If the step of an attempt must stop (see [Coordinator.NextStop]), the attempt's context has
// ended.
func (c *Coordinator) InFlight() []*Step {
	defer c.enter()()
	h := c.h
	h.settle(c.run)
	list := make([]*Step, 0, len(h.calls))
	unknown := make(map[*Step]bool, len(h.begun)) // the attempts that Next has not returned
	for _, s := range h.begun {
		unknown[s] = true
	}
	c.run.st.Lock()
	defer c.run.st.Unlock()
	for s, x := range h.calls {
		if x.current(s) && !unknown[s] {
			list = append(list, s)
		}
	}
	h.sort(list)
	return list
}

// sort sorts attempts by the order in which they were handed to the host.
func (h *manual) sort(list []*Step) {
	slices.SortFunc(list, func(a, b *Step) int { return int(h.calls[a].number) - int(h.calls[b].number) })
}

// The kinds of attempts. A token begins with the kind of its attempt.
const (
	kindStep       = "step"
	kindCompensate = "compensate"
	kindExpand     = "expand"
)

// token returns the token of an attempt.
func (x inFlight) token(s *Step) string {
	kind, again := kindStep, int32(0)
	switch {
	case x.undo == nil:
		if again = x.worker.task.Attempt - s.attempt; s.flags&stepAgain != 0 {
			kind = kindExpand
		}
	case s.flags&stepUndo != 0:
		kind = kindCompensate
	default:
		kind, again = kindExpand, x.undo.attempts
	}
	return s.run.token(kind, s.ref, s.attempt, again)
}

// token returns the token of an attempt of a node. The parameter `again` is the number of re-entries into the attempt.
func (r *Run) token(kind string, ref machine.Ref, attempt, again int32) string {
	var outer [8]int32
	numbers := outer[:0] // the attempt numbers of the composites around the node, from the innermost to the outermost
	for c := r; c.outer != nil; c = c.outer {
		numbers = append(numbers, c.within.attempt)
	}
	return tokenText(kind, r.epoch, numbers, attempt, again, r.path(ref), r.ID())
}

func tokenText(kind string, epoch int, around []int32, attempt, again int32, path, run string) string {
	b := make([]byte, 0, len(kind)+len(path)+len(run)+4*len(around)+16)
	b = append(b, kind...)
	b = append(b, ':')
	b = strconv.AppendInt(b, int64(epoch), 10)
	b = append(b, ':')
	for _, n := range slices.Backward(around) {
		b = strconv.AppendInt(b, int64(n), 10)
		b = append(b, '.')
	}
	b = strconv.AppendInt(b, int64(attempt), 10)
	if again > 0 {
		b = append(b, '+')
		b = strconv.AppendInt(b, int64(again), 10)
	}
	b = append(b, ':')
	b = append(b, path...)
	b = append(b, '@')
	return string(append(b, run...))
}

// tokenParts are the parts of a token.
type tokenParts struct {
	kind     string
	epoch    int
	attempts []int32 // the attempt numbers of the composites around the node, from the outermost to the innermost, and then of the node itself
	again    int32   // the number of re-entries into the attempt
	path     string
}

// parseToken reads a token of the run. ok is false if the text is not a token of this run.
func parseToken(token, run string) (x tokenParts, ok bool) {
	rest, ok := strings.CutSuffix(token, "@"+run)
	if !ok {
		return x, false
	}
	parts := strings.SplitN(rest, ":", 4)
	if len(parts) != 4 || parts[0] != kindStep && parts[0] != kindCompensate && parts[0] != kindExpand {
		return x, false
	}
	x.kind, x.path = parts[0], parts[3]
	epoch, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil || epoch < 1 {
		return x, false
	}
	x.epoch = int(epoch)
	numbers, again, reentered := strings.Cut(parts[2], "+")
	for text := range strings.SplitSeq(numbers, ".") {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 || len(x.attempts) > 1000 {
			return x, false
		}
		x.attempts = append(x.attempts, int32(n))
	}
	if reentered {
		n, err := strconv.ParseInt(again, 10, 32)
		if err != nil || n < 1 {
			return x, false
		}
		x.again = int32(n)
	}
	return x, true
}

// find returns the attempt with this token, or nil if the run does not wait for its result. The caller holds the run's lock.
func (h *manual) find(root *Run, token string, x tokenParts) *Step {
	at, lost := root.locate(x.path)
	if lost != nil {
		return h.findPast(token, x)
	}
	for _, s := range []*Step{at.run.current(at.ref), at.undoStep()} {
		if s == nil {
			continue
		}
		if of, known := h.calls[s]; known && of.token(s) == token {
			return s
		}
	}
	return nil
}

// findPast does the same as find, for an attempt to undo a node of an earlier iteration of a loop.
func (h *manual) findPast(token string, x tokenParts) *Step {
	if x.kind == kindStep {
		return nil
	}
	for s, of := range h.calls {
		if of.undo != nil && of.current(s) && of.token(s) == token {
			return s
		}
	}
	return nil
}

// undoStep returns the Step of the running attempt to undo the node, or nil.
func (at place) undoStep() *Step {
	if at.run.undo != nil {
		if u := at.run.undo.nodes[at.ref]; u != nil {
			return u.step
		}
	}
	return nil
}

// The method `began` reports whether the attempt with this token has begun. The run has no records of nodes inside earlier attempts of a composite
// or inside earlier iterations of a loop. For the token of one of these nodes, `began` only checks that the earlier attempt or iteration has begun.
// The caller holds the run's lock.
func (x tokenParts) began(r *Run) bool {
	rest := x.path
	for depth, n := range x.attempts {
		last := depth == len(x.attempts)-1
		at := place{r, noRef}
		if ref, ok := r.plan.Ref(rest); ok && last {
			at.ref = ref
			return at.hasBegun(x)
		}
		var part string
		end := 0
		for end = range r.plan.partEnds(rest) {
			if at, part = r.composite(rest[:end]); at.ref != noRef {
				break
			}
		}
		if at.ref == noRef || last {
			return false
		}
		if attempts := r.records[at.ref].attempts; n != attempts {
			return n < attempts // the nodes inside earlier attempts are not known any more
		}
		c := at.child()
		switch number, _ := strconv.Atoi(strings.TrimPrefix(part, "#")); {
		case c == nil && r.st.Word(at.ref).Status() != Running:
			return true // the attempt has ended, and the run has dropped the nodes inside
		case c == nil: // no nested run of the composite has begun, or its graph is not known
			comp := r.extras[at.ref]
			return comp != nil && (comp.kept != nil || comp.comp != nil && comp.comp.pause != nil && number < comp.comp.pause.next)
		case c.items != nil:
			r = c
			continue
		case c.iteration > 0 && number != c.iteration:
			return number > 0 && number < c.iteration
		}
		r, rest = c, strings.TrimPrefix(rest[end:], "/")
	}
	return false
}

// hasBegun reports whether the node has begun the attempt with this token.
func (at place) hasBegun(x tokenParts) bool {
	r, n := at.run, x.attempts[len(x.attempts)-1]
	if x.kind == kindCompensate {
		if r.undo == nil || r.undo.nodes[at.ref] == nil {
			return false
		}
		return n <= r.undo.nodes[at.ref].attempts
	}
	attempts, w := r.records[at.ref].attempts, r.st.Word(at.ref)
	if n != attempts || w.Status().Terminal() {
		return n <= attempts
	}
	return n+x.again <= r.st.Token(at.ref).Attempt
}

// lapse records that an attempt has ended before the host has reported a result. The caller holds the run's lock.
func (h *manual) lapse(s *Step) {
	if h == nil {
		return
	}
	if x, known := h.calls[s]; known {
		h.lapsedToken(x.token(s))
		delete(h.calls, s)
	}
}

func (h *manual) lapsedToken(token string) {
	if h.lapsed == nil {
		h.lapsed = map[string]bool{}
	}
	h.lapsed[token] = true
}
