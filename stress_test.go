package kahn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// TestRandomFaults runs random graphs whose steps fail, hang, panic and are stopped in every possible way, and checks the invariants of all runs.
// Every graph follows from one number: KAHN_SEED=<n> runs only the graph of a failure. The scheduler decides the order of events at the same
// instant of the fake clock, so repeating a rare failure may need several tries: -count=1000.
func TestRandomFaults(t *testing.T) {
	if text := os.Getenv("KAHN_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		randomFaults(t, seed, &tally{})
		return
	}
	graphs := uint64(size(1_000, 300, 100_000))
	const batch = 250
	var happened tally
	begin := 1 + firstSeed(t)
	t.Run("seeds", func(t *testing.T) {
		for first := begin; first < begin+graphs; first += batch {
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

// randomFaults makes the graph of a seed and runs it in a separate bubble. If a run does not end, or leaves a goroutine behind, the process ends,
// so the seed is printed.
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

// stress is a random graph with the planned faults of its run and the observations of the last run.
type stress struct {
	seed  uint64
	rng   *rand.Rand
	graph kahn.Graph
	nodes []*stressNode
	slots []stressSlots
	runs  int // the number of runs of the graph, each after the first with the estimates of the previous run

	mode     kahn.Mode
	failures kahn.FailureMode
	rule     kahn.StatusRule
	stopMode kahn.StopMode
	policy   kahn.Retry // the run's policy
	timeout  time.Duration
	grace    time.Duration
	cleanup  time.Duration // CleanupTimeout
	options  []kahn.Option
	listen   bool   // whether there is a sink
	caller   string // the kind of the caller's context
	acts     []hostAct
	calm     bool // whether nothing stops the run or its nodes
	inert    bool // whether no guard is slow, so that nothing continues after all nodes have ended

	run     *kahn.Run
	ready   chan struct{} // closed when run has been set
	release chan struct{} // closed when the run has ended, for steps that ignore everything else
	inside  sync.WaitGroup
	cancel  context.CancelCauseFunc
	res     *kahn.Result
	err     error
	sink    *recorder
	events  []kahn.Event

	mu       sync.Mutex // guards the fields below, and the observations of the nodes
	stops    []stressStop
	problems []string
}

// stressNode is one node: the planned behavior of its attempts, and their observations.
type stressNode struct {
	kahn.Node
	preds    []string
	early    bool // whether its join may decide before all predecessors have ended
	policy   kahn.Retry
	acts     []attemptAct // the behavior of its attempts; the last one applies to all further attempts
	fallback attemptAct
	guard    ending
	guarding atomic.Bool // whether its guard is running
	guardFor time.Duration

	active      bool // whether an attempt or its fallback is in the node's function
	attempts    int
	key         string
	returned    time.Time // when the last attempt or its fallback returned
	value       any
	err         error // of the last attempt
	fallbackErr error
	fellBack    bool
	cancelledAt time.Time // when CancelNode succeeded
}

// attemptAct is the behavior of one attempt.
type attemptAct struct {
	wait   waiting
	length time.Duration
	linger time.Duration // how long a cooperative attempt takes to stop
	answer ending        // how the attempt ends when it is stopped
	end    ending
	hint   time.Duration // of a rate limit
	poke   hostAct       // performed before the attempt waits
}

type waiting string

const (
	cooperative waiting = "waits"
	deaf        waiting = "sleeps" // ignores the end of its context
	stuck       waiting = "hangs"  // until the run has ended
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

// hostAct is an action of the host on the run, after a delay.
type hostAct struct {
	do    string // "cancel", "abort", "context", "node" or ""
	node  int
	after time.Duration
}

func (a hostAct) String() string { return fmt.Sprintf("%s %d after %v", a.do, a.node, a.after) }

// stressStop is a request to stop the whole run, with the time of the request.
type stressStop struct {
	hostAct
	at time.Time
}

// stressSlots is a set of nodes with a limit on the number that may run at the same time.
type stressSlots struct {
	name    string
	limit   int
	members []*stressNode
}

var errFault = errors.New("a fault of the step's own")

// There are only a few short times, so that several events happen at the same instant.
var stressTimes = []time.Duration{0, ms, 5 * ms, 5 * ms, 10 * ms, 10 * ms, 20 * ms, 50 * ms}

func (s *stress) time() time.Duration { return stressTimes[s.rng.IntN(len(stressTimes))] }

// some returns a time above zero.
func (s *stress) some() time.Duration { return stressTimes[1+s.rng.IntN(len(stressTimes)-1)] }

// one returns true in one of n calls, on average.
func (s *stress) one(n int) bool { return s.rng.IntN(n) == 0 }

func pick[T any](s *stress, from ...T) T { return from[s.rng.IntN(len(from))] }

// execute runs the graph and checks the invariants.
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
	synctest.Wait() // a step may have been abandoned before it was called
	close(s.release)
	s.inside.Wait() // abandoned attempts end, and must not change the run
	host.Wait()
	synctest.Wait()
	for i, n := range slices.Collect(s.res.Nodes()) {
		if b := before[i]; n.Status != b.Status || n.Attempts != b.Attempts || n.Output != b.Output || n.Duration != b.Duration {
			s.problem("node %s was %+v when the run ended and is %+v", n.ID, b, n)
		}
	}
	if left := s.run.Leftovers(); left != "" { // after the last action of the host, which counts as a timer
		s.problem("the run still has %s", left)
	}
	s.events = s.sink.all()
	s.checkRun(returned)
	for n := range s.res.Nodes() {
		s.checkNode(s.find(n.ID), n)
	}
	if s.listen {
		if err := kahntest.CheckEvents(&s.graph, s.res, s.events); err != nil {
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

// problem records a violation. It takes no lock; concurrent callers hold s.mu.
func (s *stress) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// do performs an action of the host on the run, which may have ended.
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

// fault returns the error that identifies an ending, or nil if there is none.
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

// wait waits as planned for the attempt, and returns how the attempt ends.
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

// conclude ends a piece of user code in the given way.
func (s *stress) conclude(end ending, hint time.Duration, fault error, value any) (any, error) {
	switch end {
	case endOK, endFalse:
		return value, nil
	case endNull:
		return nil, nil
	case endNoSuchPath:
		return "elsewhere", nil
	case endVerdict:
		statuses := []kahn.RunStatus{kahn.RunPending, kahn.RunCompleted, kahn.RunFailed, kahn.RunRunning} // the last one is refused
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

// fallBack is the Fallback of all nodes with a fallback.
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

// enter is called at the beginning of an attempt.
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

// leave is called at the end of an attempt.
func (s *stress) leave(n *stressNode, value any, fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.active, n.returned, n.value, n.err = false, time.Now(), value, fault
}

// checkSlots checks that no more nodes run than the limits allow. An abandoned attempt does not count. The caller holds s.mu, so no attempt ends
// meanwhile: all counted attempts hold their slots at the same time.
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

// checkCause checks the cause with which a context ended.
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

// leftBehind checks the attempts that are still running when Wait has returned.
func (s *stress) leftBehind() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if (n.active || n.guarding.Load()) && !slices.Contains(s.res.Abandoned, n.ID) {
			s.problem("%s is still at work, and was not abandoned", n.ID)
		}
	}
}
