package machine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Join is the rule that decides whether a node runs. The rule looks at the classes of the node's in-edges. All rules except [AtLeast] are constants.
// In package kahn, the zero value means [AllDone] for a Cleanup node and the end node, [Boundary] for any other node with a Test, and [AllSucceeded]
// for the remaining nodes. For [Build] it always means AllSucceeded.
//
// Every in-edge resolves exactly once, when its source is terminal. A control edge then has one class: S (satisfied), N (neutral: the source was
// skipped, or a boundary judges its failure), X (dead: the outcome of the source selects other edges) or F (failed). A data-only edge delays the
// node, but has no class. A rule with the name of a trigger rule of Apache Airflow decides like that trigger rule. Under [AllSucceeded] and
// [Boundary], a side edge is no reason to run a node, since it only delivers data (see [Net.IsSide]). The other rules count a side edge like any
// other edge.
type Join uint32

// The join rules. A rule marked "early" can decide before all edges have resolved. But no rule skips a node early. If all edges of a node are X,
// every rule skips the node.
const (
	joinDefault   Join = iota
	AllSucceeded       // all edges resolved, no F, and an S from an edge that is no side edge; an F blocks the node early
	AnySucceeded       // one S, early
	RuleAtLeast        // k S, early; if an edge is F, the node is blocked as soon as k S can no longer be reached
	AllDone            // all edges resolved, in any class; the node observes failures and does not handle them
	AllDoneMinOne      // all edges resolved, at least one S
	OneFailed          // one F, early
	AllFailed          // all edges F
	NoneFailed         // all edges resolved, no F; an F blocks the node early
	NoneSkipped        // all edges resolved, none N or X
	AllSkipped         // all edges N or X; the node observes failures
	OneDone            // one S or F, early
	Boundary           // all edges resolved, and an S or F from an edge that is no side edge; the default of conditions

	joinCount
)

const joinBits = 8 // a Join stores its rule in the low bits, and the k of AtLeast above them

// AtLeast returns the rule that is satisfied as soon as k edges are satisfied. The node must have at least k control edges.
func AtLeast(k int) Join {
	if k < 0 || k > 1<<(32-joinBits)-1 {
		k = 0 // not valid
	}
	return RuleAtLeast | Join(k)<<joinBits
}

// Rule returns the rule without the k of AtLeast.
func (j Join) Rule() Join { return j & (1<<joinBits - 1) }

// Least returns the k of AtLeast. For any other rule it returns 0.
func (j Join) Least() int { return int(j >> joinBits) }

var joinNames = [joinCount]string{
	"", "all_succeeded", "any_succeeded", "at_least", "all_done", "all_done_min_one", "one_failed", "all_failed",
	"none_failed", "none_skipped", "all_skipped", "one_done", "boundary",
}

// Valid reports whether the value is one of the rules or the zero value. AtLeast is valid only with a k above 0.
func (j Join) Valid() bool {
	return j.Rule() < joinCount && (j.Rule() == RuleAtLeast) == (j.Least() > 0)
}

// String returns the snake-case name of the rule, for example "none_failed" or "at_least(2)". For the zero value it returns "".
func (j Join) String() string {
	switch {
	case j.Rule() == RuleAtLeast:
		return fmt.Sprintf("at_least(%d)", j.Least())
	case !j.Valid():
		return fmt.Sprintf("Join(%d)", uint32(j))
	}
	return joinNames[j]
}

// MarshalText encodes the rule as the text that String returns. It returns an error that matches [ErrBadValue] if the rule is not valid.
func (j Join) MarshalText() ([]byte, error) {
	if !j.Valid() {
		return nil, fmt.Errorf("%w: join rule %d", ErrBadValue, uint32(j))
	}
	return []byte(j.String()), nil
}

// UnmarshalText decodes the text that String returns for a valid rule. It returns an error that matches [ErrBadValue] for any other text.
func (j *Join) UnmarshalText(text []byte) error {
	if arg, ok := strings.CutPrefix(string(text), "at_least("); ok {
		if digits, ok := strings.CutSuffix(arg, ")"); ok {
			if k, err := strconv.ParseUint(digits, 10, 32-joinBits); err == nil && k > 0 {
				*j = AtLeast(int(k))
				return nil
			}
		}
		return fmt.Errorf("%w: join rule %.40q", ErrBadValue, text)
	}
	for i, name := range joinNames {
		if name == string(text) && Join(i) != RuleAtLeast {
			*j = Join(i)
			return nil
		}
	}
	return fmt.Errorf("%w: join rule %.40q", ErrBadValue, text)
}

// SkipMode determines how edges from skipped predecessors count for a node. These edges have the class N. No mode counts an X edge as satisfied.
type SkipMode uint8

// The skip modes.
const (
	skipModeDefault SkipMode = iota
	// SkipCascade leaves N edges neutral. Under AllSucceeded, a node is skipped if all its predecessors were skipped. It runs if some predecessors were
	// skipped and the others completed.
	SkipCascade
	// SkipSatisfy counts an N edge as satisfied, without a value. But the edge stays neutral if its source was skipped because a branch was not taken.
	// So the rest of that branch does not run either.
	SkipSatisfy
	// SkipStrict matters only under AllSucceeded. When all edges have resolved, and some edge is N or X but none is F, the node is skipped. An F edge
	// blocks the node, as in the other modes.
	SkipStrict

	skipModeCount
)

var skipModeNames = enum.Of[SkipMode]("skip mode", "", "cascade", "satisfy", "strict")

// String returns "cascade", "satisfy" or "strict", or "" for the zero value.
func (m SkipMode) String() string { return skipModeNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (m SkipMode) MarshalText() ([]byte, error) { return skipModeNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (m *SkipMode) UnmarshalText(text []byte) error { return skipModeNames.Parse(m, text) }

// UpstreamPolicy determines what happens to a node whose join can no longer be satisfied because predecessors failed, were
// aborted or were cancelled.
type UpstreamPolicy uint8

// The upstream policies.
const (
	upstreamDefault UpstreamPolicy = iota
	// UpstreamAbort aborts the node.
	UpstreamAbort
	// UpstreamSkip skips the node with the reason parent_failure. The failure then counts as handled, unless the node only
	// observes failures.
	UpstreamSkip
	// UpstreamPropagate makes the node fail. The node does not run, and is not retried.
	UpstreamPropagate
	// UpstreamSubstitute waits for all predecessors, then runs the node with defaults instead of the missing values.
	UpstreamSubstitute

	upstreamCount
)

var upstreamNames = enum.Of[UpstreamPolicy]("upstream policy", "", "abort", "skip", "propagate", "substitute_default")

// String returns "abort", "skip", "propagate" or "substitute_default", or "" for the zero value.
func (p UpstreamPolicy) String() string { return upstreamNames.Name(p) }

// MarshalText encodes p as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (p UpstreamPolicy) MarshalText() ([]byte, error) { return upstreamNames.Text(p) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (p *UpstreamPolicy) UnmarshalText(text []byte) error { return upstreamNames.Parse(p, text) }

// These bits form a set of edge classes. The bit of a class is set if an edge has resolved into the class.
const (
	seenS uint8 = 1 << iota // satisfied
	seenN                   // neutral: the source was skipped, or a boundary judges the failure of the source
	seenX                   // dead: the outcome of the source selects other edges
	seenF                   // failed
)

// The type `counts` is the input of a join rule: the classes into which a node's control edges have resolved, and whether edges are still unresolved.
// Only AtLeast needs the numbers of S edges and of other edges.
type counts struct {
	seen     uint8 // the set of classes; under SkipSatisfy, an N edge that counts as satisfied is recorded as S
	open     bool  // an edge is unresolved; a data-only edge counts, too
	portOpen bool  // an edge that feeds a required port is unresolved, so the node must not start early
	s, other int32 // for AtLeast: the numbers of S edges and of resolved edges of other classes
	total    int32 // the number of control edges
}

// A decision is the result of a join. Every decision except undecided is final.
type decision uint8

const (
	undecided decision = iota
	decideReady
	decideSkip
	decideBlocked
	decideSubstitute // a failure blocks the node, but the policy runs the node with defaults
)

// joinRule holds the conditions of a rule. Each condition is a set of edge classes.
type joinRule struct {
	early  uint8 // an edge of one of these classes makes the node ready at once
	breaks uint8 // an edge of one of these classes blocks the node at once
	// If no edge decides early, the node is judged when all edges have resolved. It is ready if it has an edge of a class in `needs` and no edge of a
	// class in `bars`:
	needs  uint8 // 0: the node needs no such edge
	bars   uint8
	blames uint8 // if the node is not ready, an edge of one of these classes blocks it; without such an edge the node is skipped
}

var joinRules = [joinCount]joinRule{
	AllSucceeded:  {breaks: seenF, needs: seenS},
	AnySucceeded:  {early: seenS, needs: seenS, blames: seenF},
	RuleAtLeast:   {early: seenS, breaks: seenF, needs: seenS}, // judges the class that atLeast returns
	AllDone:       {},
	AllDoneMinOne: {needs: seenS, blames: seenF},
	OneFailed:     {early: seenF, needs: seenF},
	AllFailed:     {needs: seenF, bars: seenS | seenN | seenX},
	NoneFailed:    {breaks: seenF},
	NoneSkipped:   {bars: seenN | seenX},
	AllSkipped:    {bars: seenS | seenF},
	OneDone:       {early: seenS | seenF, needs: seenS | seenF},
	Boundary:      {needs: seenS | seenF},
}

// decide applies a node's rule to the counts. It is a pure function; state_settle.go acts on the result.
//
// Even under an early rule, a node does not become ready before the edges of its required ports have resolved. Otherwise timing would decide whether
// the ports get values. Under UpstreamSubstitute no rule blocks a node early: the node waits for all edges.
func decide(j Join, mode SkipMode, policy UpstreamPolicy, c counts) decision {
	if c.total == 0 {
		if c.open {
			return undecided
		}
		return decideReady
	}
	if !c.open && c.seen == seenX {
		return decideSkip // all edges are dead
	}
	rule, seen := joinRules[j.Rule()], c.seen
	switch {
	case j.Rule() == RuleAtLeast:
		seen = c.atLeast(int32(j.Least()))
	case j.Rule() == AllSucceeded && mode == SkipStrict:
		rule.bars = seenN | seenX
	}
	switch {
	case seen&rule.breaks != 0:
		if policy != UpstreamSubstitute {
			return decideBlocked
		}
		if !c.open {
			return decideSubstitute
		}
		return undecided
	case seen&rule.early != 0 && !c.portOpen:
		return decideReady
	case c.open:
		return undecided
	case (rule.needs == 0 || seen&rule.needs != 0) && seen&rule.bars == 0:
		return decideReady
	case seen&rule.blames == 0:
		return decideSkip
	case policy == UpstreamSubstitute:
		return decideSubstitute
	}
	return decideBlocked
}

// atLeast returns S if k edges are satisfied. It returns F if k edges can no longer be satisfied and some edge is F. Otherwise it returns no class.
func (c *counts) atLeast(k int32) uint8 {
	switch {
	case c.s >= k:
		return seenS
	case c.total-c.other < k:
		return c.seen & seenF
	}
	return 0
}
