package kahn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// TestRandomFaults runs random graphs, whose steps fail, hang, panic and are stopped in every way there is, and holds each
// run against what is true of all runs. Every graph follows from one number: KAHN_SEED=<n> runs that of a failure alone.
// What happens at the same instant of the fake clock is in the hands of the scheduler, so that a rare failure may take
// a few tries: -count=1000.
func TestRandomFaults(t *testing.T) {
	if text := os.Getenv("KAHN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		randomFaults(t, seed, &tally{})
		return
	}
	graphs := uint64(10_000)
	if testing.Short() {
		graphs = 2_000
	}
	const batch = 250
	var happened tally
	t.Run("seeds", func(t *testing.T) {
		for first := uint64(1); first <= graphs; first += batch {
			t.Run(fmt.Sprintf("%d-%d", first, first+batch-1), func(t *testing.T) {
				t.Parallel()
				for seed := first; seed < first+batch && !t.Failed(); seed++ {
					randomFaults(t, seed, &happened)
				}
			})
		}
	})
	if !t.Failed() {
		happened.check(t)
	}
}

// randomFaults makes the graph of a seed and runs it in a bubble of its own: one that does not end, or leaves a goroutine
// behind, takes the process down, and only its seed is needed then.
func randomFaults(t *testing.T, seed uint64, happened *tally) {
	var s *stress
	told := false
	defer func() {
		if !told && s != nil {
			fmt.Fprintf(os.Stderr, "KAHN_SEED=%d did not end well\n%v%s", seed, s, eventText(s.sink.all()))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		s = newStress(t, seed)
		for range s.runs {
			s.execute(t)
			happened.add(s)
		}
		told = t.Failed()
	})
	told = true
}

// stress is one random graph, what is to happen to its run, and what was seen of the last run.
type stress struct {
	seed  uint64
	rng   *rand.Rand
	graph kahn.Graph
	nodes []*stressNode
	slots []stressSlots
	runs  int // how often the graph is run, each time but the first with the estimates of the time before

	mode     kahn.Mode
	failures kahn.FailureMode
	rule     kahn.StatusRule
	stopMode kahn.StopMode
	policy   kahn.Retry // the run's
	timeout  time.Duration
	grace    time.Duration
	cleanup  time.Duration // CleanupTimeout
	options  []kahn.Option
	listen   bool   // there is a sink
	caller   string // what kind of context the run is given
	acts     []hostAct
	calm     bool // nothing can stop the run, or a node of it
	inert    bool // no guard takes its time, so that nothing can go on when all nodes have ended

	run     *kahn.Run
	ready   chan struct{} // closed when run is set
	release chan struct{} // closed when the run is over, for the steps that ignore everything else
	inside  sync.WaitGroup
	cancel  context.CancelCauseFunc
	res     *kahn.Result
	err     error
	sink    *recorder
	events  []kahn.Event

	mu       sync.Mutex // guards what follows, and what the nodes have seen
	stops    []stressStop
	problems []string
}

// stressNode is one node: what its attempts are to do, and what was seen of them.
type stressNode struct {
	kahn.Node
	preds    []string
	early    bool // its join may decide before all predecessors have ended
	policy   kahn.Retry
	acts     []attemptAct // of its attempts; the last one goes on for ever
	fallback attemptAct
	guard    ending
	guardFor time.Duration

	active      bool // an attempt, or its fallback, is in the node's function
	attempts    int
	key         string
	returned    time.Time // of the last attempt, or its fallback
	value       any
	err         error // of the last attempt
	fallbackErr error
	fellBack    bool
	cancelledAt time.Time // when CancelNode said that it would stop
}

// attemptAct is what one attempt does.
type attemptAct struct {
	wait   waiting
	length time.Duration
	linger time.Duration // that a cooperative one takes to stop
	answer ending        // to being stopped
	end    ending
	hint   time.Duration // of a rate limit
	poke   hostAct       // made before it waits
}

type waiting string

const (
	cooperative waiting = "waits"
	deaf        waiting = "sleeps" // takes no notice of its context
	stuck       waiting = "hangs"  // until the run is over
)

type ending string

const (
	endOK         ending = ""
	endNull       ending = "null"
	endError      ending = "error"
	endDeadline   ending = "a deadline of its own"
	endRate       ending = "rate limit"
	endPermanent  ending = "permanent"
	endAbortRun   ending = "abort run"
	endSkip       ending = "skip"
	endCall       ending = "call aborted"
	endPanic      ending = "panic"
	endPanicText  ending = "panic with a text"
	endGoexit     ending = "goexit"
	endContext    ending = "the context's error"
	endCause      ending = "the context's cause"
	endFalse      ending = "false" // of a guard
	endNoSuchPath ending = "no such label"
	endVerdict    ending = "verdict" // of the end node
)

func (a attemptAct) String() string {
	text := fmt.Sprintf("%s %v, then %q", a.wait, a.length, a.end)
	if a.wait == cooperative {
		text += fmt.Sprintf(", if stopped %q %v later", a.answer, a.linger)
	}
	if a.poke.do != "" {
		text += fmt.Sprintf(", first %v", a.poke)
	}
	if a.end == endRate || a.answer == endRate {
		text += fmt.Sprintf(", hint %v", a.hint)
	}
	return text + ";"
}

// hostAct is something that is done to the run, after some time.
type hostAct struct {
	do    string // "cancel", "abort", "context", "node" or ""
	node  int
	after time.Duration
}

func (a hostAct) String() string { return fmt.Sprintf("%s %d after %v", a.do, a.node, a.after) }

// stressStop is a request to stop the whole run, and when it had been made.
type stressStop struct {
	hostAct
	at time.Time
}

// stressSlots is a set of nodes of which only so many may run at the same time.
type stressSlots struct {
	name    string
	limit   int
	members []*stressNode
}

var errFault = errors.New("a fault of the step's own")

// The times are few and small, so that things happen at the same instant.
var stressTimes = []time.Duration{0, ms, 5 * ms, 5 * ms, 10 * ms, 10 * ms, 20 * ms, 50 * ms}

func (s *stress) time() time.Duration { return stressTimes[s.rng.IntN(len(stressTimes))] }

// some is a time that is not zero.
func (s *stress) some() time.Duration { return stressTimes[1+s.rng.IntN(len(stressTimes)-1)] }

// one is true once in n times.
func (s *stress) one(n int) bool { return s.rng.IntN(n) == 0 }

func pick[T any](s *stress, from ...T) T { return from[s.rng.IntN(len(from))] }

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

// settings draws what is said of the run as a whole.
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
		// A grace of zero would not wait for the sink either.
		if s.grace = pick(s, time.Nanosecond, 5*ms, 20*ms); !s.listen {
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
		s.options = append(s.options, kahn.DefaultRetry(s.policy))
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

// node draws the node of a number, which follows nodes of smaller ones.
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
	n.HandlesFailure = s.one(10)
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
		time.Sleep(n.guardFor)
		_, err := s.conclude(n.guard, 0, errFault, nil)
		return n.guard != endFalse, err
	}
}

// condition makes the node one with a Go test, which takes no time since it cannot be stopped.
func (s *stress) condition(n *stressNode) {
	a := attemptAct{end: pick(s, endOK, endOK, endOK, endNoSuchPath, endError, endPanic, endGoexit)}
	label := pick(s, "a", "b")
	n.acts, n.policy.MaxAttempts = []attemptAct{a}, 1
	n.Test = func(kahn.View) (any, error) { return s.conclude(a.end, 0, errFault, label) }
}

// perform gives the node a step, or leaves it to the step of the run, and draws all that a step may have.
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
		n.preds = append(n.preds, before.ID) // which it need not say: it comes after everything
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
			if n.Key == "" && s.one(3) {
				n.Key = key
				slots.members = append(slots.members, n)
			}
		}
		s.slots = append(s.slots, slots)
	}
}

// host draws what the host does to the run. Where a step hangs, the caller's context ends in the end, which interrupts
// whatever else is said; cleanup nodes have a timeout.
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

// execute runs the graph and holds the run against the invariants.
func (s *stress) execute(t *testing.T) {
	s.begin()
	options := slices.Clone(s.options)
	if s.listen {
		options = append(options, kahn.OnEvent(s.sink.add))
	}
	if s.res != nil {
		options = append(options, kahn.Estimates(s.res))
	}
	ctx := context.Background()
	s.cancel = func(error) {}
	if s.caller != "background" {
		ctx, s.cancel = context.WithCancelCause(ctx)
		defer s.cancel(nil)
	}
	if s.caller == "deadline" {
		const deadline = 50 * ms
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, deadline, errHost)
		defer stop()
		s.stops = append(s.stops, stressStop{hostAct{do: "context"}, time.Now().Add(deadline)})
	}
	if s.timeout > 0 {
		s.stops = append(s.stops, stressStop{hostAct{do: "timeout"}, time.Now().Add(s.timeout)})
	}
	run, err := kahn.Start(ctx, &s.graph, s.step, options...)
	if err != nil {
		t.Fatalf("seed %d: %v", s.seed, err)
	}
	s.run = run
	close(s.ready)
	var host sync.WaitGroup
	for _, a := range s.acts {
		host.Go(func() {
			time.Sleep(a.after)
			s.do(a)
		})
	}

	s.res, s.err = run.Wait()
	returned := time.Now()
	if again, err := run.Wait(); again != s.res || err != s.err {
		s.problem("a second Wait returns something else")
	}
	before := slices.Collect(s.res.Nodes())
	s.leftBehind()
	synctest.Wait() // a step may have been abandoned before it was entered
	close(s.release)
	s.inside.Wait() // what was left behind comes to its end, and must change nothing
	host.Wait()
	synctest.Wait()
	for i, n := range slices.Collect(s.res.Nodes()) {
		if b := before[i]; n.Status != b.Status || n.Attempts != b.Attempts || n.Output != b.Output || n.Duration != b.Duration {
			s.problem("node %s was %+v when the run ended and is %+v", n.ID, b, n)
		}
	}
	if left := s.run.Leftovers(); left != "" { // not before the host has had its last word, which is counted like a timer
		s.problem("the run still has %s", left)
	}
	s.events = s.sink.all()
	s.checkRun(returned)
	for n := range s.res.Nodes() {
		s.checkNode(s.find(n.ID), n)
	}
	if s.listen {
		if err := eventErrors(&s.graph, s.res, s.events); err != nil {
			s.problem("event stream: %v", err)
		}
		s.checkStream()
	}
	if len(s.problems) > 0 {
		problems := strings.Join(s.problems[:min(len(s.problems), 5)], "\n\t")
		t.Errorf("KAHN_SEED=%d: %s\n%v%s", s.seed, problems, s, eventText(s.events))
	}
}

func (s *stress) begin() {
	s.ready, s.release = make(chan struct{}), make(chan struct{})
	s.sink, s.stops, s.problems = newRecorder(), nil, nil
	for _, n := range s.nodes {
		n.active, n.attempts, n.key, n.returned, n.value, n.err = false, 0, "", time.Time{}, nil, nil
		n.fallbackErr, n.fellBack, n.cancelledAt = nil, false, time.Time{}
	}
}

func (s *stress) find(id string) *stressNode {
	number, _, _ := strings.Cut(id, "@")
	i, _ := strconv.Atoi(number)
	return s.nodes[i]
}

// problem notes a violation. It takes no lock: callers that are not alone hold s.mu.
func (s *stress) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// do does something to the run, which may be over.
func (s *stress) do(a hostAct) {
	<-s.ready
	switch a.do {
	case "":
		return
	case "cancel":
		s.run.Cancel()
	case "abort":
		s.run.AbortAll(errHost)
	case "context":
		if s.caller == "background" {
			return
		}
		s.cancel(errHost)
	case "node":
		n := s.nodes[a.node%len(s.nodes)]
		err := s.run.CancelNode(n.ID)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err == nil && n.Kind == kahn.KindEnd:
			s.problem("the end node was cancelled")
		case err == nil:
			n.cancelledAt = time.Now()
		case !errors.Is(err, kahn.ErrTransition) && !errors.Is(err, kahn.ErrFinished):
			s.problem("CancelNode(%s): %v", n.ID, err)
		}
		return
	}
	s.mu.Lock()
	s.stops = append(s.stops, stressStop{a, time.Now()})
	s.mu.Unlock()
}

// step is the step function of all nodes.
func (s *stress) step(ctx context.Context, st *kahn.Step) (value any, err error) {
	s.inside.Add(1)
	defer s.inside.Done()
	n := s.find(st.ID())
	s.enter(n, st)
	var fault error
	defer func() { s.leave(n, value, fault) }()
	a := n.acts[min(st.Attempt(), len(n.acts))-1]
	st.Emit("begun")
	end := s.wait(ctx, n, a)
	st.Log(slog.LevelInfo, "it may be too late to say so")
	value = fmt.Sprintf("%s#%d", st.ID(), st.Attempt())
	if n.Routes {
		value = []string{"a", "b"}[st.Attempt()%2]
	}
	fault = s.fault(ctx, end, fmt.Errorf("%w: attempt %d of %s", errFault, st.Attempt(), st.ID()))
	return s.conclude(end, a.hint, fault, value)
}

// fault is the error that an ending is going to be known by, nil for none.
func (s *stress) fault(ctx context.Context, end ending, own error) error {
	switch end {
	case endOK, endNull, endNoSuchPath, endSkip, endVerdict, endPanicText:
		return nil
	case endContext:
		return ctx.Err()
	case endCause:
		return context.Cause(ctx)
	case endDeadline:
		return fmt.Errorf("%w: %w", own, context.DeadlineExceeded)
	case endGoexit:
		return kahn.ErrGoexit
	}
	return own
}

// wait acts out what an attempt does before it ends, and returns how it ends.
func (s *stress) wait(ctx context.Context, n *stressNode, a attemptAct) ending {
	s.do(a.poke)
	switch a.wait {
	case deaf:
		time.Sleep(a.length)
	case stuck:
		<-s.release
	case cooperative:
		select {
		case <-time.After(a.length):
		case <-ctx.Done():
			s.checkCause(n, ctx)
			time.Sleep(a.linger)
			return a.answer
		}
	}
	return a.end
}

// conclude ends a piece of user code.
func (s *stress) conclude(end ending, hint time.Duration, fault error, value any) (any, error) {
	switch end {
	case endOK, endFalse:
		return value, nil
	case endNull:
		return nil, nil
	case endNoSuchPath:
		return "elsewhere", nil
	case endVerdict:
		statuses := []kahn.RunStatus{kahn.RunPending, kahn.RunCompleted, kahn.RunFailed, kahn.RunRunning} // the last is refused
		return kahn.EndVerdict{Status: statuses[s.seed%4]}, nil
	case endRate:
		return nil, kahn.RateLimited(fault, hint)
	case endPermanent:
		return nil, kahn.Permanent(fault)
	case endAbortRun:
		return nil, kahn.AbortRun(fault)
	case endSkip:
		return nil, kahn.Skip("of its own accord")
	case endCall:
		return nil, fmt.Errorf("%w: %w", kahn.ErrCallAborted, fault)
	case endPanic:
		panic(fault)
	case endPanicText:
		panic("a panic with a text")
	case endGoexit:
		runtime.Goexit()
	}
	return nil, fault
}

// fallBack is the fallback of all nodes that have one.
func (s *stress) fallBack(ctx context.Context, n *stressNode, err error) (value any, failed error) {
	s.inside.Add(1)
	defer s.inside.Done()
	s.mu.Lock()
	if n.fellBack || n.active {
		s.problem("the fallback of %s is called a second time, or beside an attempt", n.ID)
	}
	if n.err != nil && !errors.Is(err, n.err) {
		s.problem("the fallback of %s is called with %v, the step returned %v", n.ID, err, n.err)
	}
	n.active, n.fellBack = true, true
	s.checkSlots()
	s.mu.Unlock()
	var fault error
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		n.active, n.returned, n.value, n.fallbackErr = false, time.Now(), value, fault
	}()
	end := s.wait(ctx, n, n.fallback)
	value = "fallback of " + n.ID
	fault = s.fault(ctx, end, fmt.Errorf("%w: fallback of %s", errFault, n.ID))
	return s.conclude(end, 0, fault, value)
}

// enter is the beginning of an attempt.
func (s *stress) enter(n *stressNode, st *kahn.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.active {
		s.problem("attempt %d of %s begins before the end of the one before", st.Attempt(), n.ID)
	}
	if n.fellBack {
		s.problem("attempt %d of %s begins after its fallback", st.Attempt(), n.ID)
	}
	n.attempts++
	if st.Attempt() != n.attempts {
		s.problem("attempt %d of %s calls itself %d", n.attempts, n.ID, st.Attempt())
	}
	if last := st.LastErr(); (last != nil) != (n.attempts > 1) || n.err != nil && !errors.Is(last, n.err) {
		s.problem("attempt %d of %s finds the error %v, the one before returned %v", n.attempts, n.ID, last, n.err)
	}
	key := st.IdempotencyKey()
	if n.key != "" && key != n.key {
		s.problem("attempt %d of %s has another idempotency key", n.attempts, n.ID)
	}
	n.key = key
	for _, other := range s.nodes {
		if other != n && other.key == key {
			s.problem("%s and %s have one idempotency key", n.ID, other.ID)
		}
	}
	for _, id := range n.preds {
		if status := st.View().Status(id); !n.early && !status.Terminal() {
			s.problem("%s begins while %s is %v", n.ID, id, status)
		}
	}
	n.active = true
	s.checkSlots()
}

// leave is the end of an attempt.
func (s *stress) leave(n *stressNode, value any, fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.active, n.returned, n.value, n.err = false, time.Now(), value, fault
}

// checkSlots looks whether more nodes are at work than may be. An attempt that was abandoned does not count any more. With
// s.mu locked nobody leaves, so those that count hold their slots all at the same time.
func (s *stress) checkSlots() {
	for _, x := range s.slots {
		active := 0
		for _, n := range x.members {
			if n.active {
				active++
			}
		}
		if x.limit == 0 || active <= x.limit {
			continue
		}
		<-s.ready
		var holding []string
		for _, n := range x.members {
			if status, _ := s.run.NodeStatus(n.ID); n.active && !status.Terminal() {
				holding = append(holding, n.ID)
			}
		}
		if len(holding) > x.limit {
			s.problem("%v run at the same time, but the limit of %s is %d", holding, x.name, x.limit)
		}
	}
}

// checkCause looks at why a context ended.
func (s *stress) checkCause(n *stressNode, ctx context.Context) {
	cause := context.Cause(ctx)
	is := func(errs ...error) bool {
		return slices.ContainsFunc(errs, func(err error) bool { return errors.Is(cause, err) })
	}
	expected := is(kahn.ErrTimeout)
	if n.Kind != kahn.KindEnd {
		expected = expected || is(kahn.ErrNodeStopped, kahn.ErrAborted) // by CancelNode, or with its group
	}
	if n.Kind != kahn.KindEnd && !n.Cleanup {
		expected = expected || is(kahn.ErrRunTimeout, kahn.ErrCancelled, kahn.ErrSuperseded, kahn.ErrLateFailure, errHost)
	}
	if late := is(kahn.ErrTimeout, kahn.ErrRunTimeout); !expected || late && ctx.Err() != context.DeadlineExceeded {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.problem("the context of %s ended with %v because of %v", n.ID, ctx.Err(), cause)
	}
}

// leftBehind looks at what is still at work when Wait has returned.
func (s *stress) leftBehind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if n.active && !slices.Contains(s.res.Abandoned, n.ID) {
			s.problem("%s is still at work, and was not abandoned", n.ID)
		}
	}
}

// own reports whether a node broke by itself.
func own(n kahn.NodeResult) bool {
	_, is := n.Err.(*kahn.NodeError)
	return n.Status == kahn.Failed && is
}

// checkRun holds the result against the rest of what is known. Nothing is at work any more.
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
	if len(res.Warnings) > 0 {
		s.problem("warnings %v", res.Warnings)
	}
	counts := map[kahn.Status]int{}
	var abandoned, bad []string
	for n := range res.Nodes() {
		counts[n.Status]++
		if n.Abandoned {
			abandoned = append(abandoned, n.ID)
		}
		kind := s.find(n.ID).Kind
		if n.Status == kahn.Failed && !n.Tolerated || n.Status == kahn.Aborted ||
			n.Status == kahn.Cancelled && n.Cause.Kind != kahn.CauseSuperseded {
			bad = append(bad, n.ID)
		}
		if own(n) && !n.Tolerated && res.Status != kahn.RunCompleted && !errors.Is(s.err, n.Err.(*kahn.NodeError).Err) {
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
}

// mayJudge reports whether the end node has a word in the status of the run.
func (s *stress) mayJudge() bool {
	return slices.ContainsFunc(s.nodes, func(n *stressNode) bool {
		return n.fallback.end == endVerdict || slices.ContainsFunc(n.acts, func(a attemptAct) bool { return a.end == endVerdict })
	})
}

// checkRequests holds the requests to stop the run against what came of them.
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

// checkNode holds the result of a node against what its attempts saw.
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
			err = errors.Join(err, r.LastErr) // a fallback that breaks in its own way is what the node failed for
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

// stopsRun are the causes of nodes that ended because the run was stopped.
var stopsRun = []kahn.CauseKind{
	kahn.CauseFailFast, kahn.CauseAbortAll, kahn.CauseRunTimeout, kahn.CauseContext, kahn.CauseCancelRun,
}

// checkStream looks in the events for what checkEvents does not know of: stops, retries, timeouts.
func (s *stress) checkStream() {
	stopped := "" // by the event of this node
	began, retried := map[string]time.Time{}, map[string]kahn.Event{}
	for _, e := range s.events {
		if ended, ok := e.Payload.(kahn.RunEnded); ok {
			s.checkEnded(ended)
		}
		if e.Node == "" {
			continue
		}
		n := s.find(e.Node)
		ordinary := !n.Cleanup && n.Kind != kahn.KindEnd
		switch p := e.Payload.(type) {
		case kahn.NodeEnded:
			if slices.Contains(stopsRun, p.Cause) {
				stopped = e.Node
			}
		case kahn.Retried:
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
		case e.Type == kahn.EventNodeStarted:
			if stopped != "" && ordinary {
				s.problem("%v after the run was stopped, as the end of %s shows", e, stopped)
			}
			for _, x := range s.stops {
				if ordinary && e.Time.After(x.at) {
					s.problem("%v at %v, after %s at %v", e, e.Time.Sub(s.res.Start), x.do, x.at.Sub(s.res.Start))
				}
			}
			if r, ok := retried[e.Node]; ok && e.Time.Before(r.Time.Add(r.Payload.(kahn.Retried).Delay)) {
				s.problem("%v too early after %v", e, r)
			}
			began[e.Node] = e.Time
		case ended || e.Type == kahn.EventNodeRetried:
			timeout := n.Timeout
			if !ordinary && (timeout == 0 || timeout > s.cleanup) {
				timeout = s.cleanup
			}
			if at, ok := began[e.Node]; ok && n.Test == nil && n.Fallback == nil && timeout > 0 && e.Time.Sub(at) > timeout+s.grace {
				s.problem("%v %v after its start, its timeout is %v", e, e.Time.Sub(at), timeout)
			}
			delete(began, e.Node) // what ends while it backs off has no attempt to end
		}
	}
}

// checkEnded holds the payload of the last event against the result.
func (s *stress) checkEnded(p kahn.RunEnded) {
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

// String describes the graph and what is to happen to it, for people who look for a mistake.
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

// tally counts what happened in all runs together: a generator that does not bring something about shows nothing of it.
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
