package kahn

import (
	"fmt"
	"strings"
	"time"
)

// String puts the answer in words, as a part of a sentence about the node, such as "it waits for a slot of the group db, which slow
// holds". Errors in it are shortened to about a kilobyte.
func (y Why) String() string {
	nodes := y.nodes()
	switch y.Kind {
	case WhyEnded:
		return y.ended()
	case WhyPending:
		return "the run is pending"
	case WhyWaiting:
		return "it waits for " + nodes
	case WhyTier:
		return "its tier has not begun: it waits for " + nodes
	case WhyChecking:
		return "it is being checked"
	case WhyHeld:
		if nodes == "" {
			return "the run was left: nothing begins in this life"
		}
		return "nothing else is started as long as " + nodes + " waits for a signal"
	case WhyStore:
		return "the store has not confirmed it yet"
	case WhyOrder:
		if nodes == "" {
			return "it is next"
		}
		return "it waits for its turn after " + nodes
	case WhySlot:
		text := "it waits for a slot of " + y.Bound.String()
		if nodes != "" {
			text += ", held by " + nodes
		}
		return text
	case WhyRate:
		return "it waits for a token of " + y.Bound.String() + y.until()
	case WhyRunning:
		return "it is running"
	case WhyPaused:
		return "it pauses between two iterations" + y.until()
	case WhyStopping:
		text := "it was asked to stop"
		if y.Until.IsZero() {
			text = "it is left to finish"
		}
		if y.Err != nil {
			text += ": " + errorText(y.Err)
		}
		return text
	case WhyCleanup:
		return "it cleans up"
	case WhyBackoff:
		text := "it is attempted again" + y.until()
		if y.Err != nil {
			text += " after: " + errorText(y.Err)
		}
		return text
	case WhySignal:
		if y.Wait == nil && nodes != "" {
			return "inside of it " + nodes + " waits for a signal"
		}
		return "it waits for a signal"
	}
	return y.Kind.String()
}

func (y Why) until() string {
	if y.Until.IsZero() {
		return ""
	}
	return " at " + y.Until.Format(time.RFC3339Nano)
}

func (y Why) nodes() string {
	const most = 3
	names := y.Nodes[:min(most, len(y.Nodes))]
	text := strings.Join(names, ", ")
	if more := len(y.Nodes) - len(names) + y.More; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// String names the bound, such as "the group db".
func (b Bound) String() string {
	switch b.Scope {
	case BoundMap:
		return "the map " + b.Name
	case BoundGroup:
		return "the group " + b.Name
	case BoundKey:
		return "the key " + b.Name
	case BoundRunner:
		return "all runs"
	case BoundRunnerKey:
		return "the key " + b.Name + " in all runs"
	}
	return "the run"
}

// ended puts in words how a node has ended.
func (y Why) ended() string {
	switch y.Status {
	case Completed:
		return "it has completed"
	case Skipped:
		return y.skipped()
	}
	switch origins := (Why{Nodes: y.Cause.Origins}).nodes(); y.Cause.Kind {
	case CauseUpstreamFailure:
		return "a failure upstream: " + origins
	case CauseUpstreamCancelled:
		return "a cancellation upstream: " + origins
	case CauseSiblingFailure:
		return "a member of its group failed: " + origins
	case CauseFailFast:
		return "the run stops at the first failure: " + origins
	case CauseAbortAll:
		return "the run was aborted"
	case CauseRunTimeout:
		return "the run took too long"
	case CauseContext:
		return "the caller's context ended"
	case CauseCancelRun:
		return "the run was cancelled"
	case CauseCancelNode:
		return "it was cancelled"
	}
	text := fmt.Sprintf("it was %v before it began: %v", y.Status, y.Cause.Kind)
	if own, ok := y.Err.(*NodeError); ok && own.Attempt > 0 {
		return fmt.Sprintf("it %v: %v: %v", y.Status, y.Cause.Kind, errorText(own.Err))
	}
	if y.Err != nil {
		text += ": " + errorText(y.Err)
	}
	return text
}

func (y Why) skipped() string {
	s := y.Skip
	switch s.Kind {
	case SkipAnnotation:
		return "it is disabled"
	case SkipWhenGuard:
		if s.Expression == "func" {
			return "its guard said no"
		}
		return "its guard said no: " + s.Expression
	case SkipConditionBranch:
		switch {
		case s.Label == "": // a catch edge
			return "the outcome of " + s.Node + " leads elsewhere"
		case s.Answer == "":
			return fmt.Sprintf("%s did not take the branch %q", s.Node, s.Label)
		}
		return fmt.Sprintf("%s answered %q, not %q", s.Node, s.Answer, s.Label)
	case SkipNullPropagation:
		if s.Node == "" {
			return "nothing feeds its required port " + s.Port
		}
		return fmt.Sprintf("its required port %s got no value from %s", s.Port, s.Node)
	case SkipUpstreamSkipped:
		if s.Node == "" {
			return "its predecessors were skipped"
		}
		return s.Node + " was skipped"
	case SkipParentFailure:
		return s.Node + " failed, and it is to be skipped then"
	case SkipRuleUnsatisfied:
		return "its join rule can no longer be satisfied: " + s.Rule
	case SkipSelf:
		return "its step skipped itself: " + s.Message
	case SkipSuperseded:
		return s.Node + " was decided without it"
	}
	return s.String()
}
