package machine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// Join is the rule that decides whether a node runs. It looks at the classes of the node's in-edges. The zero value is the node's default: [Boundary]
// for a node with a Test, [AllDone] for a Cleanup node, otherwise [AllSucceeded]. Apart from [AtLeast] the rules are constants.
//
// Every in-edge resolves exactly once, when its source is terminal. It then has one class: S (satisfied), N (neutral: the source was skipped), X
// (dead: the outcome of the source selects other edges) or F (failed). The rules look at the classes of the control edges. A data-only edge only
// delays a node and has no class. Rules that also exist in Apache Airflow have the same names as there. For [AllSucceeded] and [Boundary], a side
// edge is no reason to run a node, since it only delivers data (see [Net.IsSide]). The other rules count side edges like any other edge.
type Join uint32

// The join rules. A rule marked "early" decides before all edges have resolved. A skip is never decided early.
const (
	joinDefault   Join = iota
	AllSucceeded       // no F and at least one S, side edges not counted; an F blocks the node early
	AnySucceeded       // one S, early
	RuleAtLeast        // k S, early; an F blocks the node as soon as k can no longer be reached
	AllDone            // all edges resolved, in any class; the node observes failures and does not handle them
	AllDoneMinOne      // all edges resolved, at least one S
	OneFailed          // one F, early
	AllFailed          // all edges F
	NoneFailed         // all edges resolved, no F; an F blocks the node early
	NoneSkipped        // all edges resolved, none N or X
	AllSkipped         // all edges N or X; the node observes failures
	OneDone            // one S or F, early
	Boundary           // all edges resolved, at least one S or F, side edges not counted; the default of conditions

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

// Rule returns the rule without the number of AtLeast.
func (j Join) Rule() Join { return j & (1<<joinBits - 1) }

// Least returns the number of AtLeast.
func (j Join) Least() int { return int(j >> joinBits) }

var joinNames = [joinCount]string{
	"", "all_succeeded", "any_succeeded", "at_least", "all_done", "all_done_min_one", "one_failed", "all_failed",
	"none_failed", "none_skipped", "all_skipped", "one_done", "boundary",
}

// Valid reports whether the value is one of the rules.
func (j Join) Valid() bool {
	return j.Rule() < joinCount && (j.Rule() == RuleAtLeast) == (j.Least() > 0)
}

// String returns the snake-case name of the rule, "at_least(2)" for AtLeast(2), "" for the zero value.
func (j Join) String() string {
	switch {
	case j.Rule() == RuleAtLeast:
		return fmt.Sprintf("at_least(%d)", j.Least())
	case !j.Valid():
		return fmt.Sprintf("Join(%d)", uint32(j))
	}
	return joinNames[j]
}

// MarshalText encodes the rule as its String. The error matches [ErrBadValue] if the value is invalid.
func (j Join) MarshalText() ([]byte, error) {
	if !j.Valid() {
		return nil, fmt.Errorf("%w: join rule %d", ErrBadValue, uint32(j))
	}
	return []byte(j.String()), nil
}

// UnmarshalText decodes what String returns. It returns an error that matches [ErrBadValue] for any other text.
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
	// SkipCascade leaves N edges neutral. A node is skipped if all its predecessors were skipped. It runs if some were skipped and the others completed.
	SkipCascade
	// SkipSatisfy counts an N edge as satisfied, without a value. But if the edge leads from a node on a branch that was not taken, it stays neutral,
	// so the rest of the branch does not run.
	SkipSatisfy
	// SkipStrict concerns AllSucceeded nodes. When all edges of such a node have resolved, and some are N or X but none is F, the node is skipped.
	// An F edge blocks the node, as in the other modes.
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
	// UpstreamSkip skips the node with the reason parent_failure. The failure then counts as handled.
	UpstreamSkip
	// UpstreamPropagate fails the node without running it, and without a retry.
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

// A set of edge classes has one bit for each class into which an edge has resolved.
const (
	seenS uint8 = 1 << iota // satisfied
	seenN                   // neutral: the source was skipped, or a boundary judges the failure of the source
	seenX                   // dead: the outcome of the source selects other edges
	seenF                   // failed
)

// The type `counts` is the input of a join rule: the classes of the resolved control edges of a node, and whether edges are still open. Only AtLeast
// needs the numbers of edges.
type counts struct {
	seen     uint8 // the set of classes; under SkipSatisfy, an N edge that counts as satisfied is recorded as S
	open     bool  // at least one edge, data-only ones included, is unresolved
	portOpen bool  // an edge bound to a required port is unresolved, so the node must not start early
	s, other int32 // for AtLeast: S edges and resolved edges of any other class
	total    int32 // control edges
}

// A decision is the result of a join. A decision other than undecided is final.
type decision uint8

const (
	undecided decision = iota
	decideReady
	decideSkip
	decideBlocked
	decideSubstitute // the join is blocked, but the policy runs the node with defaults
)

// joinRule holds the conditions of a rule. Each condition is a set of edge classes.
type joinRule struct {
	early  uint8 // an edge of one of these classes makes the node ready at once
	breaks uint8 // an edge of one of these classes blocks the node at once
	// If no edge decides early, the node is judged when all edges have resolved. It is ready if it has an edge of a class in `needs` and no edge of a
	// class in `bars`:
	needs  uint8 // 0: the node needs no such edge
	bars   uint8
	blames uint8 // a node that is not ready is blocked if it has an edge of one of these classes, and otherwise skipped
}

var joinRules = [joinCount]joinRule{
	AllSucceeded:  {breaks: seenF, needs: seenS},
	AnySucceeded:  {early: seenS, needs: seenS, blames: seenF},
	RuleAtLeast:   {early: seenS, breaks: seenF, needs: seenS}, // applied to the class that atLeast returns
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

// decide applies the node's rule to the counts. It is a pure function; state_settle.go acts on the result.
//
// Even with an early rule, a node does not run before the edges of its required ports have resolved. Otherwise timing would decide whether the ports
// get values. Under UpstreamSubstitute no rule blocks early: the node waits for all edges.
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

// atLeast returns S if k edges are satisfied. It returns F if an edge has failed and k can no longer be reached. Otherwise it returns no class.
func (c *counts) atLeast(k int32) uint8 {
	switch {
	case c.s >= k:
		return seenS
	case c.total-c.other < k:
		return c.seen & seenF
	}
	return 0
}
