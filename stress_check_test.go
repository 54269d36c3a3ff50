package kahn_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// own reports whether a node failed by itself.
func own(n kahn.NodeResult) bool {
	_, is := n.Err.(*kahn.NodeError)
	return n.Status == kahn.Failed && is
}

// checkRun compares the Result with what the steps and the host observed. No node is running any more.
func (s *stress) checkRun(returned time.Time) {
	res := s.res
	if took := returned.Sub(res.Start); took < res.Duration || s.inert && took != res.Duration {
		s.problem("Wait returned %v after the start, the run took %v", took, res.Duration)
	}
	var runErr *kahn.RunError
	if (s.err == nil) != (res.Status == kahn.RunCompleted) ||
		s.err != nil && (!errors.As(s.err, &runErr) || runErr.Status != res.Status) {
		s.problem("status %v with the error %v", res.Status, s.err)
	}
	if !res.Status.Terminal() {
		s.problem("the run has ended and is %v", res.Status)
	}
	for _, warning := range res.Warnings {
		if !isStatic(warning) && !errors.Is(warning, kahn.ErrNoMatch) && !errors.Is(warning, kahn.ErrGuard) { // an answer that matches no edge, or a guard that cannot decide
			s.problem("warning %v", warning)
		}
	}
	counts := map[kahn.Status]int{}
	all := s.rule != kahn.StatusEscaped || res.Cause.Kind != kahn.CauseNone // otherwise the error omits handled failures
	var abandoned, bad []string
	for n := range res.Nodes() {
		counts[n.Status]++
		guard, patience := s.find(n.ID).guardFor, s.grace // an abandoned guard is named, too, and is no attempt of the node
		if s.find(n.ID).Cleanup {
			patience = min(patience, s.cleanup)
		}
		if n.Abandoned || guard >= patience && slices.Contains(res.Abandoned, n.ID) {
			abandoned = append(abandoned, n.ID)
		}
		kind := s.find(n.ID).Kind
		if n.Status == kahn.Failed && !n.Tolerated || n.Status == kahn.Aborted ||
			n.Status == kahn.Cancelled && n.Cause.Kind != kahn.CauseSuperseded {
			bad = append(bad, n.ID)
		}
		if all && own(n) && !n.Tolerated && res.Status != kahn.RunCompleted && !errors.Is(s.err, n.Err.(*kahn.NodeError).Err) {
			s.problem("the run's error %v does not lead to that of %s, %v", s.err, n.ID, n.Err)
		}
		if kind == kahn.KindEnd && n.Status != kahn.Completed && res.Status == kahn.RunCompleted {
			s.problem("the run completed although its end node is %v", n.Status)
		}
	}
	for status := kahn.Idle; status <= kahn.Skipped; status++ {
		if n := res.Count(status); n != counts[status] || n > 0 && !status.Terminal() {
			s.problem("Count(%v) is %d, there are %d", status, n, counts[status])
		}
	}
	slices.Sort(abandoned)
	if !slices.Equal(abandoned, res.Abandoned) {
		s.problem("abandoned are %v, the result has %v", abandoned, res.Abandoned)
	}
	if s.rule == kahn.StatusStrict && res.Status == kahn.RunCompleted && len(bad) > 0 && !s.mayJudge() {
		s.problem("a run under the strict rule completed with %v", bad)
	}
	expect := map[kahn.CauseKind]error{kahn.CauseCancelRun: kahn.ErrCancelled, kahn.CauseContext: errHost,
		kahn.CauseAbortAll: errHost, kahn.CauseRunTimeout: kahn.ErrRunTimeout}[res.Cause.Kind]
	if expect != nil && !errors.Is(s.err, expect) {
		s.problem("the run was stopped for %v, and its error is %v", res.Cause.Kind, s.err)
	}
	s.checkRequests()
	for _, difference := range snapshotDiffers(res) {
		s.problem("the snapshot: %s", difference)
	}
}

// mayJudge reports whether the end node may decide the status of the run.
func (s *stress) mayJudge() bool {
	return slices.ContainsFunc(s.nodes, func(n *stressNode) bool {
		return n.fallback.end == endVerdict || slices.ContainsFunc(n.acts, func(a attemptAct) bool { return a.end == endVerdict })
	})
}

// checkRequests compares the requests to stop the run with the Result.
func (s *stress) checkRequests() {
	end := s.res.Start.Add(s.res.Duration)
	before, until := false, false
	for _, x := range s.stops {
		if x.do == "cancel" || x.do == "context" {
			before = before || x.at.Before(end)
			until = until || !x.at.After(end)
		}
	}
	if s.res.CancelRequested && !until || !s.res.CancelRequested && before {
		s.problem("a request to cancel the run: %t", s.res.CancelRequested)
	}
	for _, x := range s.stops {
		for r := range s.res.Nodes() {
			n := s.find(r.ID)
			if n.Cleanup || n.Kind == kahn.KindEnd || r.Attempts == 0 {
				continue
			}
			if r.Start.After(x.at) {
				s.problem("%s started after %s at %v", r.ID, x.do, x.at.Sub(s.res.Start))
			}
			interrupts := s.stopMode == kahn.Interrupt || x.do == "context" || x.do == "timeout"
			if interrupts && n.Test == nil && r.Start.Add(r.Duration).After(x.at.Add(s.grace)) {
				s.problem("%s started at %v and went on for %v, long after %s at %v", r.ID, r.Start.Sub(s.res.Start), r.Duration, x.do,
					x.at.Sub(s.res.Start))
			}
		}
	}
}

// checkNode compares the result of a node with what its attempts observed.
func (s *stress) checkNode(n *stressNode, r kahn.NodeResult) {
	if !r.Status.Terminal() {
		s.problem("%s is %v", n.ID, r.Status)
	}
	if n.Test != nil || r.Attempts == 0 {
		if n.attempts > 0 {
			s.problem("%s has no attempt in the result, but %d were made", n.ID, n.attempts)
		}
		return
	}
	if r.Attempts != n.attempts || n.attempts > n.policy.MaxAttempts {
		s.problem("%s has %d attempts in the result, %d were made, %d allowed", n.ID, r.Attempts, n.attempts, n.policy.MaxAttempts)
	}
	if r.Status == kahn.Completed && (r.Output != n.value || r.Fallback != n.fellBack) {
		s.problem("%s completed with %v (fallback: %t), its last function returned %v", n.ID, r.Output, r.Fallback, n.value)
	}
	if r.Fallback && r.Status != kahn.Completed || n.fellBack && n.Fallback == nil {
		s.problem("%s is %v by its fallback", n.ID, r.Status)
	}
	if own(r) && !r.Abandoned {
		err := r.Err
		if n.fellBack {
			err = errors.Join(err, r.LastErr) // a fallback's error replaces the step's
		}
		if n.err != nil && !errors.Is(err, n.err) {
			s.problem("%s failed with %v, its last attempt with %v", n.ID, r.Err, n.err)
		}
		if n.fallbackErr != nil && r.Cause.Kind != kahn.CauseTimeout && !errors.Is(r.Err, n.fallbackErr) {
			s.problem("%s failed with %v, its fallback with %v", n.ID, r.Err, n.fallbackErr)
		}
	}
	end := r.Start.Add(r.Duration)
	if r.Abandoned && n.returned.Before(end) || !r.Abandoned && n.returned.After(end) {
		s.problem("%s took %v, its function returned after %v, but abandoned: %t", n.ID, r.Duration, n.returned.Sub(r.Start), r.Abandoned)
	}
	if n.OverallTimeout > 0 && r.Duration > n.OverallTimeout+s.grace {
		s.problem("%s took %v, its overall timeout is %v", n.ID, r.Duration, n.OverallTimeout)
	}
	if !n.cancelledAt.IsZero() && end.After(n.cancelledAt.Add(s.grace)) {
		s.problem("%s was cancelled at %v and ended at %v", n.ID, n.cancelledAt.Sub(r.Start), r.Duration)
	}
	if s.calm && own(r) && !r.Abandoned && n.OverallTimeout == 0 && r.Attempts < n.policy.MaxAttempts &&
		slices.Contains(n.policy.RetryOn, r.Cause.Kind) {
		switch a := n.acts[r.Attempts-1]; {
		case a.end == endPermanent || a.end == endAbortRun:
		case r.Cause.Kind == kahn.CauseRateLimit && a.hint > n.policy.MaxRetryAfter:
		default:
			s.problem("%s failed for good with %v at attempt %d of %d", n.ID, r.Cause.Kind, r.Attempts, n.policy.MaxAttempts)
		}
	}
}

// stopsRun lists the causes of nodes that ended because the run was stopped.
var stopsRun = []kahn.CauseKind{
	kahn.CauseFailFast, kahn.CauseAbortAll, kahn.CauseRunTimeout, kahn.CauseContext, kahn.CauseCancelRun,
}

// checkStream checks the events for the planned faults of this run, which checkEvents does not know: stops, retries, timeouts.
func (s *stress) checkStream() {
	stopped := "" // the last node whose event shows that the run was stopped
	began, retried := map[string]time.Time{}, map[string]kahn.Event{}
	for _, e := range s.events {
		if ended, ok := e.Payload.(event.RunEnd); ok {
			s.checkEnded(ended)
		}
		if e.Node == "" {
			continue
		}
		n := s.find(e.Node)
		ordinary := !n.Cleanup && n.Kind != kahn.KindEnd
		switch p := e.Payload.(type) {
		case event.NodeEnd:
			if slices.Contains(stopsRun, p.Cause) {
				stopped = e.Node
			}
		case event.Retry:
			hint, end := n.acts[e.Attempt-1].hint, n.acts[e.Attempt-1].end
			if p.Cause == kahn.CauseStepError && (end == endPermanent || end == endAbortRun) {
				s.problem("%v: %v", e, end)
			}
			if !slices.Contains(n.policy.RetryOn, p.Cause) || e.Attempt >= n.policy.MaxAttempts ||
				p.Cause == kahn.CauseRateLimit && (p.Delay < hint || hint > n.policy.MaxRetryAfter) {
				s.problem("%v: cause %v, delay %v, hint %v, policy %+v", e, p.Cause, p.Delay, hint, n.policy)
			}
			if stopped != "" && ordinary {
				s.problem("%v after the run was stopped, as the end of %s shows", e, stopped)
			}
			retried[e.Node] = e
		}
		_, ended := nodeTerminal[e.Type]
		switch {
		case e.Type == event.NodeStarted:
			if stopped != "" && ordinary {
				s.problem("%v after the run was stopped, as the end of %s shows", e, stopped)
			}
			for _, x := range s.stops {
				if ordinary && e.Time.After(x.at) {
					s.problem("%v at %v, after %s at %v", e, e.Time.Sub(s.res.Start), x.do, x.at.Sub(s.res.Start))
				}
			}
			if r, ok := retried[e.Node]; ok && e.Time.Before(r.Time.Add(r.Payload.(event.Retry).Delay)) {
				s.problem("%v too early after %v", e, r)
			}
			began[e.Node] = e.Time
		case ended || e.Type == event.NodeRetried:
			timeout := n.Timeout
			if !ordinary && (timeout == 0 || timeout > s.cleanup) {
				timeout = s.cleanup
			}
			if at, ok := began[e.Node]; ok && n.Test == nil && n.Fallback == nil && timeout > 0 && e.Time.Sub(at) > timeout+s.grace {
				s.problem("%v %v after its start, its timeout is %v", e, e.Time.Sub(at), timeout)
			}
			delete(began, e.Node) // a node that ends while it backs off has no running attempt
		}
	}
}

// checkEnded compares the payload of the last event with the Result.
func (s *stress) checkEnded(p event.RunEnd) {
	total, failed := 0, []string(nil)
	for r := range s.res.Nodes() {
		if s.find(r.ID).Kind == kahn.KindEnd {
			continue
		}
		total++
		if r.Status == kahn.Failed {
			failed = append(failed, r.ID)
		}
	}
	if p.Status != s.res.Status || p.Degraded != s.res.Degraded || p.Cause != s.res.Cause.Kind || p.Duration != s.res.Duration ||
		p.TotalSteps != total || p.FailedSteps != len(failed) || !slices.Equal(p.Failed, failed) {
		s.problem("the last event has %+v, of %d nodes %v failed, the result is %v after %v", p, total, failed, s.res.Status, s.res.Duration)
	}
}

// String describes the graph and its planned faults, for debugging.
func (s *stress) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\t%v, %v, %v, %v, timeout %v, grace %v, cleanup %v, caller's context %s, host %v\n",
		s.mode, s.failures, s.rule, s.stopMode, s.timeout, s.grace, s.cleanup, s.caller, s.acts)
	for _, x := range s.slots {
		fmt.Fprintf(&b, "\tlimit of %s: %d\n", x.name, x.limit)
	}
	fmt.Fprintf(&b, "\t%+v\n", s.graph.Groups)
	for _, n := range s.nodes {
		fmt.Fprintf(&b, "\t%s:", n.ID)
		for _, e := range n.In {
			fmt.Fprintf(&b, " after %s on %v", e.From, e.On)
			if e.Label != "" || e.DataOnly || e.Causes != nil {
				fmt.Fprintf(&b, " %s %v, data only: %t", e.Label, e.Causes, e.DataOnly)
			}
		}
		v, zero := reflect.ValueOf(n.Node), reflect.ValueOf(kahn.Node{})
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Type.Kind() != reflect.Func && f.Name != "ID" && f.Name != "In" && f.Name != "Retry" &&
				!reflect.DeepEqual(v.Field(i).Interface(), zero.Field(i).Interface()) {
				fmt.Fprintf(&b, " %s:%+v", f.Name, v.Field(i))
			}
		}
		fmt.Fprintf(&b, "\n\t\tpolicy %+v\n\t\tattempts %v\n", n.policy, n.acts)
		if n.Fallback != nil {
			fmt.Fprintf(&b, "\t\tfallback %v\n", n.fallback)
		}
		if n.When != nil {
			fmt.Fprintf(&b, "\t\tguard %q after %v\n", n.guard, n.guardFor)
		}
	}
	return b.String()
}

// tally counts the kinds of events over all runs. If the generator no longer produces one of them, the test fails.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (y *tally) add(s *stress) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.n == nil {
		y.n = map[string]int{}
	}
	y.n["run "+s.res.Status.String()]++
	y.n["run stopped for "+s.res.Cause.Kind.String()]++
	if s.calm {
		y.n["calm run"]++
	}
	for r := range s.res.Nodes() {
		y.n["node "+r.Status.String()]++
		y.n["node ended by "+r.Cause.Kind.String()]++
		y.n["node skipped by "+r.Skip.Kind.String()]++
		y.n[fmt.Sprintf("attempts %d", r.Attempts)]++
		for what, is := range map[string]bool{"fallback": r.Fallback, "abandoned": r.Abandoned, "tolerated": r.Tolerated} {
			if is {
				y.n[what]++
			}
		}
	}
}

func (y *tally) check(t *testing.T) {
	for _, k := range []kahn.CauseKind{kahn.CauseStepError, kahn.CauseTimeout, kahn.CauseRateLimit, kahn.CausePanic, kahn.CauseGoexit,
		kahn.CauseConditionError, kahn.CauseNoBranchMatch, kahn.CauseUpstreamFailure, kahn.CauseUpstreamCancelled,
		kahn.CauseSiblingFailure, kahn.CauseFailFast, kahn.CauseAbortAll, kahn.CauseRunTimeout, kahn.CauseContext,
		kahn.CauseCancelRun, kahn.CauseCancelNode, kahn.CauseExternal, kahn.CauseSuperseded} {
		y.expect(t, "node ended by "+k.String())
		if slices.Contains(stopsRun, k) || k == kahn.CauseEndFailed {
			y.expect(t, "run stopped for "+k.String())
		}
	}
	for _, what := range []string{"fallback", "abandoned", "tolerated", "attempts 4", "calm run", "run completed", "run failed",
		"run cancelled", "node skipped by " + kahn.SkipSelf.String(), "node skipped by " + kahn.SkipSuperseded.String()} {
		y.expect(t, what)
	}
	for _, what := range slices.Sorted(maps.Keys(y.n)) {
		t.Logf("%7d %s", y.n[what], what)
	}
}

func (y *tally) expect(t *testing.T, what string) {
	if y.n[what] == 0 {
		t.Errorf("%s: it never happened", what)
	}
}

var nodeTerminal = map[event.Type]kahn.Status{
	event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted,
	event.NodeCancelled: kahn.Cancelled, event.NodeSkipped: kahn.Skipped,
}

// lookOf renders the facts about a node on which a snapshot and its run must agree. It uses wall-clock times.
func lookOf(n kahn.NodeResult) string {
	decision := ""
	if n.Decision != nil {
		decision = fmt.Sprint(*n.Decision)
	}
	text := fmt.Sprintf("%s %s %q tier %d %v attempts %d cause %v of %v skip %v error %v guard %v last %v labels %v output %v decision %s flags %v", n.ID, n.Kind, n.Label, n.Tier,
		n.Status, n.Attempts, n.Cause.Kind, n.Cause.Origins, n.Skip, n.Err, n.GuardErr, n.LastErr, n.Labels, n.Output, decision, []bool{n.Memoized, n.Fallback, n.Tolerated, n.Abandoned})
	for _, a := range n.History() {
		text += fmt.Sprintf(" [%d: %v to %v, %v, %v]", a.Number, a.Start.UnixNano(), a.End.UnixNano(), a.Err, a.Delay)
	}
	return text
}

// snapshotDiffers compares the nodes of a snapshot with the nodes of the Result.
func snapshotDiffers(res *kahn.Result) (problems []string) {
	nodes, err := res.Snapshot().Nodes(res.Plan())
	if err != nil {
		return []string{err.Error()}
	}
	i := 0
	for want := range res.Nodes() {
		if i == len(nodes) {
			return []string{fmt.Sprintf("it has %d nodes", i)}
		}
		if have := lookOf(nodes[i].NodeResult); have != lookOf(want) {
			problems = append(problems, have+", in the result "+lookOf(want))
		}
		i++
	}
	return problems
}
