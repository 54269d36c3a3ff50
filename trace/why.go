package trace

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn"
)

// explain tells, by Ref, why each node that did not run did not. The text is empty for the others.
func explain(p *kahn.Plan, results []kahn.NodeResult) []string {
	whys := make([]string, len(results))
	// A skip that came down from above is explained by the one that it began with. Predecessors have smaller Refs.
	roots := make([]string, len(results))
	for ref := range results {
		r := &results[ref]
		if r.Status == kahn.Skipped {
			roots[ref] = skipText(r)
			if from, ok := p.Ref(r.Skip.Node); ok && r.Skip.Kind == kahn.SkipUpstreamSkipped && int(from) < ref && roots[from] != "" {
				roots[ref] = roots[from]
				if results[from].Skip.Kind != kahn.SkipUpstreamSkipped {
					roots[ref] = fmt.Sprintf("%s was skipped: %s", clean(r.Skip.Node), roots[from])
				}
			}
		}
		if r.Attempts > 0 || r.Status == kahn.Completed {
			continue
		}
		switch r.Status {
		case kahn.Skipped:
			whys[ref] = roots[ref]
		case kahn.Suspended:
			whys[ref] = "it waits for a signal"
		case kahn.Failed, kahn.Aborted, kahn.Cancelled:
			whys[ref] = stopText(r)
		default:
			whys[ref] = "the run is not over: it is " + r.Status.String()
		}
	}
	return whys
}

// skipText puts the reason of a skip in words.
func skipText(r *kahn.NodeResult) string {
	s := r.Skip
	node := clean(s.Node)
	switch s.Kind {
	case kahn.SkipAnnotation:
		return "it is disabled"
	case kahn.SkipWhenGuard:
		if s.Expression == "func" {
			return "its guard said no"
		}
		return "its guard said no: " + clean(s.Expression)
	case kahn.SkipConditionBranch:
		if s.Label == "" { // a catch edge
			return "what " + node + " came to leads elsewhere"
		}
		if s.Answer == "" {
			return clean(fmt.Sprintf("%s did not take the branch %q", s.Node, s.Label))
		}
		return clean(fmt.Sprintf("%s answered %q, not %q", s.Node, s.Answer, s.Label))
	case kahn.SkipNullPropagation:
		if node == "" {
			return "nothing feeds its required port " + clean(s.Port)
		}
		return fmt.Sprintf("its required port %s got no value from %s", clean(s.Port), node)
	case kahn.SkipUpstreamSkipped:
		if node == "" {
			return "what it follows was skipped"
		}
		return node + " was skipped"
	case kahn.SkipParentFailure:
		return node + " failed, and it is to be skipped then"
	case kahn.SkipRuleUnsatisfied:
		return "its join rule can no longer be satisfied: " + clean(s.Rule)
	case kahn.SkipSelf:
		return "its step skipped itself: " + clean(s.Message)
	case kahn.SkipSuperseded:
		return node + " was decided without it"
	}
	return clean(s.String())
}

// stopText puts the cause of a node that was stopped before it began in words.
func stopText(r *kahn.NodeResult) string {
	kind, origins := r.Cause.Kind, list(r.Cause.Origins)
	switch kind {
	case kahn.CauseUpstreamFailure:
		return "a failure upstream: " + origins
	case kahn.CauseUpstreamCancelled:
		return "a cancellation upstream: " + origins
	case kahn.CauseSiblingFailure:
		return "a member of its group failed: " + origins
	case kahn.CauseFailFast:
		return "the run stops at the first failure: " + origins
	case kahn.CauseAbortAll:
		return "the run was aborted"
	case kahn.CauseRunTimeout:
		return "the run took too long"
	case kahn.CauseContext:
		return "the caller's context ended"
	case kahn.CauseCancelRun:
		return "the run was cancelled"
	case kahn.CauseCancelNode:
		return "it was cancelled"
	}
	text := fmt.Sprintf("it was %v before it began: %v", r.Status, kind)
	if r.Err != nil {
		text += ": " + clean(r.Err.Error())
	}
	return text
}
