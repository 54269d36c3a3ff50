package kahn

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
)

// SkipReason tells why a node was skipped. Which fields are set depends on the kind. As JSON it is a union tagged by kind,
// whose members have the names that the comments give.
type SkipReason struct {
	Kind SkipKind
	// Node is the condition of a condition_branch, the source of an upstream_skipped, parent_failure or
	// null_propagation (empty when no edge feeds the port), and the successor that made a node superseded. In JSON
	// conditionNodeId, sourceNodeId and by.
	Node string
	// Label is the label of the edge that was not taken, for condition_branch; empty if that is a catch edge. In JSON label.
	Label string
	// Answer is what the condition answered instead, for condition_branch: its label or labels, separated by ", ", or, if it has none, the
	// answer as text, shortened to about a kilobyte. It is empty if the condition failed, or if the edge is a catch edge. In JSON answer.
	Answer string
	// Port is the required port without a value, for null_propagation. In JSON portId.
	Port string
	// Rule is the join rule, for rule_unsatisfied. In JSON rule.
	Rule string
	// Expression is the guard's text, for when_guard; "func" for a Go function. In JSON expression.
	Expression string
	// Message is the message that the step passed to Skip, for self. In JSON message.
	Message string
}

// skipJSON is the form of a SkipReason in JSON. A kind has all its members, empty ones included, and no others.
type skipJSON struct {
	Kind       SkipKind `json:"kind"`
	Condition  *string  `json:"conditionNodeId,omitempty"`
	Source     *string  `json:"sourceNodeId,omitempty"`
	By         *string  `json:"by,omitempty"`
	Label      *string  `json:"label,omitempty"`
	Answer     *string  `json:"answer,omitempty"`
	Port       *string  `json:"portId,omitempty"`
	Rule       *string  `json:"rule,omitempty"`
	Expression *string  `json:"expression,omitempty"`
	Message    *string  `json:"message,omitempty"`
}

// fields pairs the members of the kind with the fields of the reason.
func (j *skipJSON) fields(r *SkipReason) map[**string]*string {
	switch j.Kind {
	case SkipWhenGuard:
		return map[**string]*string{&j.Expression: &r.Expression}
	case SkipConditionBranch:
		return map[**string]*string{&j.Condition: &r.Node, &j.Label: &r.Label, &j.Answer: &r.Answer}
	case SkipNullPropagation:
		return map[**string]*string{&j.Source: &r.Node, &j.Port: &r.Port}
	case SkipUpstreamSkipped, SkipParentFailure:
		return map[**string]*string{&j.Source: &r.Node}
	case SkipRuleUnsatisfied:
		return map[**string]*string{&j.Rule: &r.Rule}
	case SkipSelf:
		return map[**string]*string{&j.Message: &r.Message}
	case SkipSuperseded:
		return map[**string]*string{&j.By: &r.Node}
	}
	return nil
}

// MarshalJSON encodes the reason. A kind outside the enum is an error that matches [ErrBadValue].
func (r SkipReason) MarshalJSON() ([]byte, error) {
	j := skipJSON{Kind: r.Kind}
	for member, field := range j.fields(&r) {
		*member = field
	}
	return json.Marshal(j)
}

// UnmarshalJSON decodes what MarshalJSON encodes. A kind that is not known is an error that matches [ErrBadValue].
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

// SkipReason returns the reason of a node that was skipped in a State of the plan, without the message of a step that skipped itself.
// The Answer of a condition is the labels of the branches that it took, since a State does not know the output.
func (p *Plan) SkipReason(s *machine.State, r Ref) SkipReason {
	x := s.SkipOf(r)
	reason := p.skipReason(r, x)
	if x.Kind == SkipConditionBranch && reason.Label != "" {
		reason.Answer = p.branchNames(x.Node, s.Taken(x.Node))
	}
	return reason
}

// skipReason puts the reason of a skip into words, without message and answer.
func (p *Plan) skipReason(r Ref, x machine.Skip) SkipReason {
	reason := SkipReason{Kind: x.Kind}
	if x.Node != noRef {
		reason.Node = p.names[x.Node]
	}
	switch x.Kind {
	case SkipWhenGuard:
		reason.Expression = cmp.Or(p.node(r).WhenExpr, "func")
	case SkipConditionBranch:
		if x.Edge >= 0 {
			reason.Label = p.termsOf(x.Edge).Label
		}
	case SkipRuleUnsatisfied:
		join, _, _ := p.net.Rules(r)
		reason.Rule = join.String()
	case SkipNullPropagation:
		reason.Port = p.node(r).Ports[x.Port].Name
		for _, i := range p.net.In(r) {
			if p.termsOf(i).Param == reason.Port {
				reason.Node = p.names[p.net.Source(i)]
			}
		}
	}
	return reason
}

// String renders the reason for people, for example `condition_branch(ok? answered "true", not "false")`.
func (r SkipReason) String() string {
	if r.Kind == SkipNone {
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

// Cause tells why a node ended as it did.
type Cause struct {
	Kind CauseKind
	// Origins are the ids of the nodes whose failure, or cancellation, reached this one, in declaration order. A node that
	// failed by itself is its own origin. Nodes with the same origins may share the slice: it must not be modified. It is
	// computed on request, in time that grows with the edges that let the failure through.
	Origins []string
	// Err is the [*NodeError] of a node that failed by itself, or was stopped by itself or with the run; it unwraps to the
	// step's error or to the cause of the stop. Victims of an upstream failure carry an [*UpstreamError] that unwraps to
	// nothing: the origins carry the errors.
	Err error
}
