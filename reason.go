package kahn

import (
	"cmp"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// SkipReason tells why a node was skipped. Which fields are set depends on the kind.
type SkipReason = event.SkipReason

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
