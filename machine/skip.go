package machine

import (
	"github.com/seed-c794f7ef/kahn/internal/enum"
)

// SkipKind is the reason why a node was skipped. The zero value belongs to nodes that were not skipped.
type SkipKind uint8

// The kinds of skip.
const (
	SkipNone            SkipKind = iota
	SkipAnnotation               // Node.Disabled
	SkipWhenGuard                // the guard did not let the node run
	SkipConditionBranch          // conditions took other branches
	SkipNullPropagation          // a required port has no value
	SkipUpstreamSkipped          // predecessors of the node were skipped
	SkipParentFailure            // a predecessor failed, and the node's OnUpstreamFailure is UpstreamSkip
	SkipRuleUnsatisfied          // the join rule can no longer be satisfied
	SkipSelf                     // the step returned Skip
	SkipSuperseded               // no other node needs the result any more

	skipCount
)

var skipNames = enum.Of[SkipKind]("skip reason",
	"", "annotation", "when_guard", "condition_branch", "null_propagation", "upstream_skipped", "parent_failure",
	"rule_unsatisfied", "self", "superseded",
)

// String returns the snake-case name of the kind, or "" for [SkipNone].
func (k SkipKind) String() string { return skipNames.Name(k) }

// MarshalText encodes the kind as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (k SkipKind) MarshalText() ([]byte, error) { return skipNames.Text(k) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (k *SkipKind) UnmarshalText(text []byte) error { return skipNames.Parse(k, text) }
