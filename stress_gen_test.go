package kahn_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

func newStress(t *testing.T, seed uint64) *stress {
	s := &stress{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x6b61686e)), runs: 1, calm: true, inert: true}
	s.graph.Name = fmt.Sprintf("KAHN_SEED=%d", seed)
	s.settings()
	count := 1 + s.rng.IntN(12)
	for i := range count {
		s.node(i)
	}
	if s.one(3) {
		s.end(count)
	}
	s.group()
	s.host()
	for _, n := range s.nodes {
		s.graph.Add(n.Node)
	}
	if _, err := s.graph.Compile(); err != nil {
		t.Fatalf("the graph of seed %d: %v", seed, err)
	}
	return s
}

// settings draws the options of the run.
func (s *stress) settings() {
	s.mode = pick(s, kahn.Eager, kahn.Eager, kahn.Waves)
	s.failures = pick(s, kahn.Continue, kahn.Continue, kahn.StopScheduling, kahn.AbortRunning)
	s.rule = pick(s, kahn.StatusEscaped, kahn.StatusEscaped, kahn.StatusLeaves, kahn.StatusStrict)
	s.stopMode = pick(s, kahn.Interrupt, kahn.Interrupt, kahn.Interrupt, kahn.Drain)
	s.calm = s.failures == kahn.Continue
	s.listen = !s.one(4)
	limit := s.rng.IntN(4)
	s.slots = []stressSlots{{name: "the run", limit: limit}}
	s.grace, s.cleanup = 5*time.Second, 30*time.Second
	s.options = []kahn.Option{s.mode, s.failures, s.rule, s.stopMode, kahn.Limit(limit), random(0.25)}
	if !s.one(4) {
		// With a grace of zero, Wait would not even wait for the sink.
		if s.grace = pick(s, time.Microsecond, 5*ms, 20*ms); !s.listen {
			s.grace = pick(s, 0, 5*ms, 20*ms)
		}
		s.options = append(s.options, kahn.CancelGrace(s.grace))
	}
	if s.one(2) {
		s.cleanup = s.some()
		s.options = append(s.options, kahn.CleanupTimeout(s.cleanup))
	}
	if s.one(6) {
		s.timeout = pick(s, 5*ms, 10*ms, 50*ms, 100*ms)
		s.options = append(s.options, kahn.Timeout(s.timeout))
		s.calm = false
	}
	if s.one(4) {
		s.policy = s.retry()
		s.options = append(s.options, s.policy)
	}
	if s.one(5) {
		s.graph.Defaults.Retry = s.retry()
	}
	if s.one(8) {
		s.runs = 2
	}
}

func (s *stress) retry() kahn.Retry {
	r := kahn.Retry{
		MaxAttempts:   s.rng.IntN(5),
		InitialDelay:  pick(s, -1, 0, 5*ms, 5*ms, 10*ms, 20*ms),
		Multiplier:    pick(s, 0, 1, 1.5, 2),
		MaxDelay:      pick(s, -1, 0, 0, 10*ms),
		Jitter:        pick(s, kahn.JitterNone, kahn.JitterNone, kahn.JitterHalf, kahn.JitterFull),
		MaxRetryAfter: pick(s, 0, 0, 10*ms),
	}
	if s.one(2) {
		r.RetryOn = []kahn.CauseKind{}
		for _, k := range []kahn.CauseKind{kahn.CauseTimeout, kahn.CauseStepError, kahn.CauseRateLimit, kahn.CausePanic} {
			if s.one(2) {
				r.RetryOn = append(r.RetryOn, k)
			}
		}
	}
	return r
}

// node draws the node with the given number. The node follows nodes with smaller numbers.
func (s *stress) node(number int) {
	n := &stressNode{Node: kahn.Node{ID: fmt.Sprintf("%d@%d", number, s.seed)}}
	s.nodes = append(s.nodes, n)
	n.Cleanup = s.one(10)
	control := 0
	if number > 0 {
		for _, i := range s.rng.Perm(number)[:s.rng.IntN(min(number, 4)+1)] {
			e := kahn.Edge{From: s.nodes[i].ID}
			router := s.nodes[i].Routes || s.nodes[i].Test != nil
			switch {
			case router && !s.one(3):
				e.Label = pick(s, "a", "b", "default")
			case s.one(8):
				e.On = kahn.OnFailure
				if s.one(3) {
					e.Causes = []kahn.CauseKind{kahn.CauseStepError, kahn.CauseTimeout, kahn.CauseFailFast}
				}
			case s.one(10):
				e.On = kahn.OnAlways
			case s.one(12):
				e.DataOnly = true
				control--
			}
			control++
			n.In = append(n.In, e)
			n.preds = append(n.preds, e.From)
		}
	}
	s.join(n, control)
	n.Priority = s.rng.IntN(5) - 2
	n.Estimate = pick(s, 0, 0, 5*ms, 10*ms)
	n.Disabled = s.one(25)
	n.ContinueOnFail = s.one(8)
	n.Handling = pick(s, kahn.HandlingDefault, kahn.HandlingDefault, kahn.HandlingDefault, kahn.HandlingDefault, kahn.Handles, kahn.Observes)
	n.Critical = s.one(20)
	s.calm = s.calm && !n.Critical
	if s.one(8) {
		s.guardOf(n)
	}
	if s.one(12) && !n.Cleanup {
		s.condition(n)
	} else {
		n.Routes = s.one(8)
		s.perform(n)
	}
	n.NoMatch = pick(s, kahn.NoMatchSkip, kahn.NoMatchFail)
}

func (s *stress) join(n *stressNode, control int) {
	n.SkipMode = pick(s, 0, 0, kahn.SkipCascade, kahn.SkipSatisfy, kahn.SkipStrict)
	n.OnUpstreamFailure = pick(s, 0, 0, kahn.UpstreamAbort, kahn.UpstreamSkip, kahn.UpstreamPropagate, kahn.UpstreamSubstitute)
	if n.Cleanup || s.one(2) {
		return
	}
	n.Join = pick(s, kahn.AllSucceeded, kahn.AnySucceeded, kahn.AnySucceeded, kahn.AllDone, kahn.AllDoneMinOne, kahn.OneFailed,
		kahn.AllFailed, kahn.NoneFailed, kahn.NoneSkipped, kahn.AllSkipped, kahn.OneDone, kahn.Boundary)
	if control > 0 && s.one(5) {
		n.Join = kahn.AtLeast(1 + s.rng.IntN(control))
	}
	switch n.Join {
	case kahn.AnySucceeded, kahn.OneFailed, kahn.OneDone:
		n.early = true
	}
	n.early = n.early || n.Join > 255 // AtLeast
	n.CancelLosers = n.early && s.one(2)
	n.CancelOnLateFailure = n.early && s.one(3)
	s.calm = s.calm && !n.CancelLosers && !n.CancelOnLateFailure
}

func (s *stress) guardOf(n *stressNode) {
	n.guard = pick(s, endOK, endFalse, endError, endPanic, endGoexit)
	n.GuardErrors = pick(s, 0, kahn.GuardAllow, kahn.GuardSkip, kahn.GuardFail)
	if s.one(10) {
		n.guardFor = s.some()
		s.inert = false
	}
	n.When = func(kahn.View) (bool, error) {
		s.inside.Add(1)
		defer s.inside.Done()
		n.guarding.Store(true)
		defer n.guarding.Store(false)
		time.Sleep(n.guardFor)
		_, err := s.conclude(n.guard, 0, errFault, nil)
		return n.guard != endFalse, err
	}
}

// condition makes the node a condition with a Go test. The test takes no time, since it cannot be stopped.
func (s *stress) condition(n *stressNode) {
	a := attemptAct{end: pick(s, endOK, endOK, endOK, endNoSuchPath, endError, endPanic, endGoexit)}
	label := pick(s, "a", "b")
	n.acts, n.policy.MaxAttempts = []attemptAct{a}, 1
	n.Test = func(kahn.View) (any, error) { return s.conclude(a.end, 0, errFault, label) }
}

// perform lets the node use its own step or the run's step, and draws the properties of the step.
func (s *stress) perform(n *stressNode) {
	if s.one(2) {
		n.Do = s.step
	}
	if s.one(2) {
		n.Retry = s.retry()
	}
	n.policy = n.Retry
	for _, next := range []kahn.Retry{s.graph.Defaults.Retry, s.policy} {
		if reflect.DeepEqual(n.policy, kahn.Retry{}) {
			n.policy = next
		}
	}
	n.policy.MaxAttempts = max(n.policy.MaxAttempts, 1)
	if n.policy.MaxRetryAfter == 0 {
		n.policy.MaxRetryAfter = 5 * time.Minute
	}
	if n.policy.RetryOn == nil {
		n.policy.RetryOn = []kahn.CauseKind{kahn.CauseTimeout, kahn.CauseStepError, kahn.CauseRateLimit}
	}
	if s.one(3) {
		n.Timeout = s.some()
	}
	if s.one(4) {
		n.OverallTimeout = pick(s, 10*ms, 20*ms, 50*ms, 100*ms)
	}
	for range n.policy.MaxAttempts {
		n.acts = append(n.acts, s.attempt(n))
	}
	if s.one(5) {
		n.fallback = s.attempt(n)
		n.Fallback = func(ctx context.Context, err error) (any, error) { return s.fallBack(ctx, n, err) }
	}
}

func (s *stress) attempt(n *stressNode) attemptAct {
	a := attemptAct{wait: pick(s, "", "", "", cooperative, cooperative, cooperative, cooperative, deaf, deaf), length: s.some()}
	if a.wait == deaf && s.one(3) {
		a.length = 300 * ms
	}
	if s.one(30) {
		a.wait = stuck
	}
	if s.one(3) {
		a.linger = s.some()
	}
	a.answer = pick(s, endContext, endContext, endCause, endError, endOK, endPanic, endGoexit, endCall, endSkip, endRate)
	if a.end = endOK; s.one(2) {
		a.end = pick(s, endNull, endError, endError, endError, endError, endDeadline, endRate, endPermanent, endAbortRun, endSkip,
			endCall, endPanic, endPanicText, endGoexit, endNoSuchPath)
	}
	if a.end == endAbortRun && !s.one(3) {
		a.end = endError
	}
	a.hint = s.time()
	if s.one(40) {
		a.poke = s.act()
		s.calm = false
	}
	if n.Kind == kahn.KindEnd && a.end == endOK && s.one(3) {
		a.end = endVerdict
	}
	s.calm = s.calm && a.end != endAbortRun
	return a
}

func (s *stress) end(number int) {
	n := &stressNode{Node: kahn.Node{ID: fmt.Sprintf("%d@%d", number, s.seed), Kind: kahn.KindEnd}}
	for _, before := range s.nodes {
		n.preds = append(n.preds, before.ID) // implied for the end node, which comes after all other nodes
	}
	s.perform(n)
	s.nodes = append(s.nodes, n)
}

// group puts nodes into groups and under keys.
func (s *stress) group() {
	for _, n := range s.nodes {
		if n.Test == nil {
			s.slots[0].members = append(s.slots[0].members, n)
		}
	}
	for i := range s.rng.IntN(3) {
		group := kahn.Group{Name: fmt.Sprintf("group %d", i), Limit: s.rng.IntN(3), CancelOnFailure: s.one(4)}
		s.graph.Groups = append(s.graph.Groups, group)
		s.calm = s.calm && !group.CancelOnFailure
		slots := stressSlots{name: group.Name, limit: group.Limit}
		for _, n := range s.nodes {
			if s.one(2) {
				n.Groups = append(n.Groups, group.Name)
				slots.members = append(slots.members, n)
			}
		}
		s.slots = append(s.slots, slots)
	}
	if !s.one(3) {
		return
	}
	limit := s.rng.IntN(3)
	s.options = append(s.options, kahn.KeyLimit(limit))
	for _, key := range []string{"key a", "key b"} {
		slots := stressSlots{name: key, limit: limit}
		for _, n := range s.nodes {
			if n.Key == "" && n.KeyFrom == "" && s.one(3) {
				if n.Key = key; n.Test == nil && s.one(2) { // a condition holds no slot
					n.Key, n.KeyFrom = "", "its.key"
					n.Params = maps.Clone(n.Params)
					if n.Params == nil {
						n.Params = map[string]any{}
					}
					n.Params["its"] = map[string]any{"key": key}
				}
				slots.members = append(slots.members, n)
			}
		}
		s.slots = append(s.slots, slots)
	}
}

// host draws the actions of the host on the run. If a step hangs, the caller's context ends eventually, which interrupts the step with any
// options. Cleanup nodes have a timeout.
func (s *stress) host() {
	s.caller = pick(s, "background", "cancel", "cancel", "deadline")
	for range pick(s, 0, 0, 1, 1, 2) {
		s.acts = append(s.acts, s.act())
		s.calm = false
	}
	hangs := slices.ContainsFunc(s.nodes, func(n *stressNode) bool {
		return n.fallback.wait == stuck || slices.ContainsFunc(n.acts, func(a attemptAct) bool { return a.wait == stuck })
	})
	if hangs {
		s.acts = append(s.acts, hostAct{do: "context", after: 400 * ms})
		s.calm = false
	}
	if hangs {
		s.caller = "cancel"
	}
	s.calm = s.calm && s.caller != "deadline"
}

func (s *stress) act() hostAct {
	do := pick(s, "cancel", "abort", "context", "node", "node")
	return hostAct{do: do, node: s.rng.IntN(20), after: pick(s, s.time(), s.time(), 100*ms)}
}
