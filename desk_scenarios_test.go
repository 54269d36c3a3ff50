package kahn_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// byCoordinator are the tests that TestScenariosByCoordinator repeats.
const byCoordinator = "TestScenariosByCoordinator"

// blocking are the rows in which a function that the Coordinator evaluates waits for something: its host waits as long.
var blocking = []string{
	"/249_a_test_that_ignores_the_end_of_the_run", "/254_a_bystander_of_a_failure_leads_to_nothing",
}

// byCoordinatorCounts count the runs of these tests by how they were performed.
var byCoordinatorCounts struct{ away, home, refused atomic.Int64 }

// TestScenariosByCoordinator repeats the scenarios with runs that a Coordinator drives: the functions try and tryControlled perform them so.
// Their host calls the steps on goroutines, since many of them take time, and as far as their values can be encoded from JSON.
func TestScenariosByCoordinator(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"Cancel": TestScenarioCancel, "Abort": TestScenarioAbort, "Cleanup": TestScenarioCleanup, "Merge": TestScenarioMerge,
		"Inputs": TestScenarioInputs, "Guard": TestScenarioGuard, "GuardText": TestScenarioGuardText, "Contract": TestScenarioContract, "Events": TestScenarioEvents,
		"Expand": TestScenarioExpand, "Losers": TestScenarioLosers, "Groups": TestScenarioGroups, "GroupsInside": TestScenarioGroupsInside,
		"GroupsAttemptedAgain": TestScenarioGroupsAttemptedAgain, "LateFailure": TestScenarioLateFailure, "Loop": TestScenarioLoop, "Map": TestScenarioMap,
		"MockNested": TestScenarioMockNested, "SubGraph": TestScenarioSubGraph, "SubGraphStop": TestScenarioSubGraphStop,
		"Retry": TestScenarioRetry, "Timeout": TestScenarioTimeout, "Panic": TestScenarioPanic, "Trigger": TestScenarioTrigger,
		"CompositeWaits": TestScenarioCompositeWaits, "Scheduling": TestScenarioScheduling,
	} {
		t.Run(name, test)
	}
	c := &byCoordinatorCounts
	t.Logf("%d runs with steps away, %d with some at home, %d not for a Coordinator", c.away.Load(), c.home.Load(), c.refused.Load())
	if c.away.Load() < 300 {
		t.Error("hardly any run was performed so")
	}
}

// tryByCoordinator performs a run with a Coordinator in the tests that are repeated. done is false in any other test, and for a run with a
// context of its own or an option that a Coordinator refuses.
func tryByCoordinator(t testing.TB, ctx context.Context, g *kahn.Graph, step kahn.StepFunc, host func(*kahn.Run), opts []kahn.Option) (_ *kahn.Result, done bool, _ error) {
	if !strings.HasPrefix(t.Name(), byCoordinator) || slices.ContainsFunc(blocking, func(row string) bool { return strings.HasSuffix(t.Name(), row) }) {
		return nil, false, nil
	}
	plan, err := g.Compile()
	if err != nil {
		t.Fatal(err)
	}
	var c *kahn.Coordinator
	if ctx == t.Context() {
		c, err = kahn.NewCoordinator(plan, time.Now(), opts...)
	}
	switch {
	case c == nil && (err == nil || errors.Is(err, kahn.ErrBadOption)):
		byCoordinatorCounts.refused.Add(1)
		return nil, false, nil
	case err != nil:
		t.Fatal(err)
	}
	h := hallway{c: c, step: step, replies: make(chan hallwayReply)}
	served := h.serveOn()
	if host != nil {
		host(c.Run())
	}
	<-served
	if h.home {
		byCoordinatorCounts.home.Add(1)
	} else {
		byCoordinatorCounts.away.Add(1)
	}
	res, err := c.Run().Wait()
	return res, true, err
}

// hallway is a host of a Coordinator whose steps take their time.
type hallway struct {
	c       *kahn.Coordinator
	step    kahn.StepFunc
	replies chan hallwayReply
	home    bool // some step was called with the Step of the run
}

type hallwayReply struct {
	step  *kahn.Step
	reply kahn.Reply
}

// serveOn serves on goroutines of its own: user code that the Coordinator evaluates may end one, and the next goes on.
func (h *hallway) serveOn() (served <-chan struct{}) {
	done := make(chan struct{})
	var serve func()
	serve = func() {
		ended := false
		defer func() {
			if !ended {
				go serve()
				return
			}
			close(done)
		}()
		h.serve()
		ended = true
	}
	go serve()
	return done
}

func (h *hallway) serve() {
	for {
		for s, ok := h.c.Next(); ok; s, ok = h.c.Next() {
			h.begin(s)
		}
		var due <-chan time.Time
		if at, ok := h.c.Due(); ok {
			due = time.After(time.Until(at))
		}
		select {
		case r := <-h.replies:
			h.c.Advance(time.Now())
			_ = h.c.Return(r.step, r.reply.Value, r.reply.Err) // the step may have been abandoned
		case <-due:
			h.c.Advance(time.Now())
		case <-h.c.Wake():
			h.c.Advance(time.Now())
		case <-h.c.Run().Done():
			return
		}
	}
}

// begin calls a step on a goroutine of its own.
func (h *hallway) begin(s *kahn.Step) {
	step := s.Do()
	if step == nil {
		step = h.step
	}
	call := s.Call()
	var away kahn.Call
	data, err := json.Marshal(call)
	perform := func() (any, error) { return step(s, s) }
	if err == nil && json.Unmarshal(data, &away) == nil {
		perform = func() (any, error) { // the results keep their identity: tests ask for it
			on := kahn.NewStep(s, away, s)
			return step(on, on)
		}
	} else {
		h.home = true
	}
	go func() {
		r := hallwayReply{step: s, reply: kahn.Reply{Err: kahn.ErrGoexit}}
		defer func() {
			if v := recover(); v != nil {
				r.reply.Err = &kahn.PanicError{Value: v, Stack: stack()}
			}
			select {
			case h.replies <- r:
			case <-h.c.Run().Done(): // the step was abandoned
			}
		}()
		r.reply.Value, r.reply.Err = perform()
	}()
}

func stack() []byte {
	b := make([]byte, 1<<12)
	return b[:runtime.Stack(b, false)]
}
