package event

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
)

// SkipReason is the reason why a node was skipped. The kind determines which of the other fields are used. In JSON, a SkipReason is an object with
// the member "kind" and one more member for each used field. The comment of a field names its JSON member.
type SkipReason struct {
	Kind machine.SkipKind
	// For condition_branch, Node is the condition; its JSON name is conditionNodeId. For upstream_skipped, parent_failure and null_propagation,
	// Node is the predecessor; its JSON name is sourceNodeId. For null_propagation, Node is empty if no edge feeds the port. For superseded, Node is
	// the successor whose join was decided without the skipped node; its JSON name is "by".
	Node string
	// Label is, for condition_branch, the label of the edge that was not taken; it is empty for a catch edge, which is taken only after a failure. Its
	// JSON name is label.
	Label string
	// Answer is, for condition_branch, the answer of the condition: its labels, separated by ", ", or its text if it has no labels. The field Answer is
	// shortened to about a kilobyte. It is empty if the condition failed, or if the edge is a catch edge. Its JSON name is answer.
	Answer string
	// Port is, for null_propagation, the required port without a value. Its JSON name is portId.
	Port string
	// Rule is, for rule_unsatisfied, the join rule of the skipped node. Its JSON name is rule.
	Rule string
	// Expression is, for when_guard, the text of the guard, or "func" if the guard is a Go function. Its JSON name is expression.
	Expression string
	// Message is, for the kind "self", the message that the step passed to kahn.Skip. Its JSON name is message.
	Message string
}

// skipJSON is the JSON form of a SkipReason. It has exactly the members that belong to the reason's kind, even if they are empty.
type skipJSON struct {
	Kind       machine.SkipKind `json:"kind"`
	Condition  *string          `json:"conditionNodeId,omitempty"`
	Source     *string          `json:"sourceNodeId,omitempty"`
	By         *string          `json:"by,omitempty"`
	Label      *string          `json:"label,omitempty"`
	Answer     *string          `json:"answer,omitempty"`
	Port       *string          `json:"portId,omitempty"`
	Rule       *string          `json:"rule,omitempty"`
	Expression *string          `json:"expression,omitempty"`
	Message    *string          `json:"message,omitempty"`
}

// The method `fields` returns the members that belong to the kind, and maps each member to its field of the reason.
func (j *skipJSON) fields(r *SkipReason) map[**string]*string {
	switch j.Kind {
	case machine.SkipWhenGuard:
		return map[**string]*string{&j.Expression: &r.Expression}
	case machine.SkipConditionBranch:
		return map[**string]*string{&j.Condition: &r.Node, &j.Label: &r.Label, &j.Answer: &r.Answer}
	case machine.SkipNullPropagation:
		return map[**string]*string{&j.Source: &r.Node, &j.Port: &r.Port}
	case machine.SkipUpstreamSkipped, machine.SkipParentFailure:
		return map[**string]*string{&j.Source: &r.Node}
	case machine.SkipRuleUnsatisfied:
		return map[**string]*string{&j.Rule: &r.Rule}
	case machine.SkipSelf:
		return map[**string]*string{&j.Message: &r.Message}
	case machine.SkipSuperseded:
		return map[**string]*string{&j.By: &r.Node}
	}
	return nil
}

// MarshalJSON encodes the reason. The error matches [machine.ErrBadValue] if the kind is outside the enum.
func (r SkipReason) MarshalJSON() ([]byte, error) {
	j := skipJSON{Kind: r.Kind}
	for member, field := range j.fields(&r) {
		*member = field
	}
	return json.Marshal(j)
}

// UnmarshalJSON decodes a reason. The error matches [machine.ErrBadValue] if the kind is unknown.
func (r *SkipReason) UnmarshalJSON(data []byte) error {
	var j skipJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*r = SkipReason{Kind: j.Kind}
	for member, field := range j.fields(r) {
		if *member != nil {
			*field = **member
		}
	}
	return nil
}

// String renders the reason for display, for example `condition_branch(ok? answered "true", not "false")`.
func (r SkipReason) String() string {
	if r.Kind == machine.SkipNone {
		return ""
	}
	var parts []string
	for _, part := range []string{r.Node, r.Port, r.Rule, r.Expression, r.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	switch {
	case r.Label != "" && r.Answer != "":
		parts = append(parts, fmt.Sprintf("answered %q, not %q", r.Answer, r.Label))
	case r.Label != "":
		parts = append(parts, fmt.Sprintf("not %q", r.Label))
	}
	if len(parts) == 0 {
		return r.Kind.String()
	}
	return r.Kind.String() + "(" + strings.Join(parts, " ") + ")"
}
