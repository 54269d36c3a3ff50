package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// byCoordinator is the name of the test that repeats the scenarios.
const byCoordinator = "TestScenariosByCoordinator"

// blocking lists test rows in which the Coordinator evaluates a function that blocks, so that the Coordinator's host blocks, too.
var blocking = []string{
	"/a_mock_is_stopped_like_a_step",
	"/249_a_test_that_ignores_the_end_of_the_run", "/254_a_bystander_of_a_failure_leads_to_nothing",
	"/269_the_run's_default_policy,_a_timeout_and_a_panic_are_as_final",
}

// notAtDesk lists further runs that a desk cannot perform: a function of the graph calls Goexit, or the test compares the identity of an error.
var notAtDesk = []string{"Panic/158_context.Canceled,_wrapped 1", "Loop/249_a_test_that_ends_its_goroutine 1"}

// notRepeated lists scenarios about features that a Coordinator refuses, or about a Runner.
var notRepeated = []string{"Memo", "Idempotency", "Store", "Shutdown"}

// byCoordinatorCounts counts the runs of the repeated tests: all runs by a Coordinator, the runs in which a step was called with the run's Step,
// and, by reason, the runs that a Coordinator cannot perform.
var byCoordinatorCounts struct {
	sync.Mutex
	runs, home, desk int
	refused          map[string]int

	seen map[string]int  // the number of runs of each test
	slow map[string]bool // the runs that a desk cannot perform: the host acts during the run, or a step takes time, is stopped, or has values without JSON
}

// notByCoordinator lists the reasons why a Coordinator cannot perform a run of the scenarios, with the number of such runs.
var notByCoordinator = map[string]int{
	"the end of a context stops it":                                 109, // 100 of these runs belong to one row about a race
	"a function that the Coordinator evaluates waits for something": 4,
}

// TestScenariosByCoordinator repeats the scenarios with runs that startRun lets a Coordinator drive. The host calls steps on goroutines, since
// many steps take time, and passes their values as JSON where possible. Then a desk repeats the runs whose steps take no time. A desk has one
// goroutine and no clock, and only JSON passes between the Coordinator and the steps.
func TestScenariosByCoordinator(t *testing.T) {
	scenarios := map[string]func(*testing.T){
		"Cancel": TestScenarioCancel, "Abort": TestScenarioAbort, "Cleanup": TestScenarioCleanup, "Merge": TestScenarioMerge,
		"Inputs": TestScenarioInputs, "Guard": TestScenarioGuard, "GuardText": TestScenarioGuardText, "Contract": TestScenarioContract, "Events": TestScenarioEvents,
		"Expand": TestScenarioExpand, "Losers": TestScenarioLosers, "Groups": TestScenarioGroups, "GroupsInside": TestScenarioGroupsInside,
		"GroupsAttemptedAgain": TestScenarioGroupsAttemptedAgain, "LateFailure": TestScenarioLateFailure, "Loop": TestScenarioLoop, "Map": TestScenarioMap,
		"Mock": TestScenarioMock, "MockNested": TestScenarioMockNested, "SubGraph": TestScenarioSubGraph, "SubGraphStop": TestScenarioSubGraphStop,
		"Retry": TestScenarioRetry, "Timeout": TestScenarioTimeout, "Panic": TestScenarioPanic, "Trigger": TestScenarioTrigger,
		"CompositeWaits": TestScenarioCompositeWaits, "Scheduling": TestScenarioScheduling, "Gates": TestScenarioGates, "Inside": TestScenarioInside,
		"ResumeInside": TestScenarioResumeInside, "Resume": TestScenarioResume, "Leave": TestScenarioLeave, "StopWinsOverLeave": TestScenarioStopWinsOverLeave,
		"DrainingStepSuspends": TestScenarioDrainingStepSuspends, "ErrorsAsValues": TestScenarioErrorsAsValues,
	}
	require.Equal(t, scenarioNames(t), slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(scenarios)), notRepeated...))), "every scenario is repeated")
	c := &byCoordinatorCounts
	c.refused, c.seen, c.slow = map[string]int{}, map[string]int{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		t.Run(name, scenarios[name])
	}
	t.Logf("%d runs by a Coordinator, %d of them with steps at home; not for a Coordinator: %v", c.runs, c.home, c.refused)
	require.Equal(t, notByCoordinator, c.refused)
	require.GreaterOrEqual(t, c.runs, 699, "a run that a Coordinator performed is not any more")
	require.LessOrEqual(t, c.home, 1)
	t.Run(atDesk, func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(scenarios)) {
			t.Run(name, scenarios[name])
		}
	})
	t.Logf("%d runs at a desk", c.desk)
	require.GreaterOrEqual(t, c.desk, 252, "a run that was at a desk is not any more")
}

// scenarioNames returns the names of the tests that are scenarios.
func scenarioNames(t *testing.T) (names []string) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range scenarioFunc.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	slices.Sort(names)
	return names
}

var scenarioFunc = regexp.MustCompile(`(?m)^func TestScenario([A-Z]\w+)\(t \*testing.T\) \{$`)

// atDesk is the name of the subtest of TestScenariosByCoordinator that uses a desk.
const atDesk = "Desk"

// runName returns a name for a run: the test that performs it, and its number among the runs of this test.
func runName(t testing.TB) string {
	c := &byCoordinatorCounts
	c.Lock()
	defer c.Unlock()
	c.seen[t.Name()]++
	name := strings.TrimPrefix(strings.TrimPrefix(t.Name(), byCoordinator+"/"), atDesk+"/")
	return fmt.Sprint(name, " ", c.seen[t.Name()])
}

// byCoordinatorTo begins a run that a Coordinator drives. It returns nil if the test is not repeated or a Coordinator cannot perform the run.
func byCoordinatorTo(t testing.TB, ctx context.Context, g *kahn.Graph, step kahn.StepFunc, ends lifetime, opts []kahn.Option) (*kahn.Run, error) {
	if !strings.HasPrefix(t.Name(), byCoordinator) {
		return nil, nil
	}
	here := strings.HasPrefix(t.Name(), byCoordinator+"/"+atDesk)
	name, why := runName(t), ""
	c := &byCoordinatorCounts
	c.Lock()
	defer c.Unlock()
	switch {
	case ctx.Done() != t.Context().Done():
		why = "the end of a context stops it"
	case slices.ContainsFunc(blocking, func(row string) bool { return strings.HasSuffix(t.Name(), row) }):
		why = "a function that the Coordinator evaluates waits for something"
	}
	if why != "" || here && (c.slow[name] || slices.Contains(notAtDesk, name)) {
		if !here {
			c.refused[why]++
		}
		return nil, nil
	}
	plan, err := g.Compile()
	if err != nil {
		return nil, err
	}
	k, err := kahn.NewCoordinator(plan, time.Now(), opts...)
	switch {
	case err != nil:
		return nil, err
	case here:
		c.desk++
		d := desk{t: t, c: k, step: step, leaves: ends == leaves, now: time.Now()}
		_, _ = d.lead(plan)
		time.Sleep(time.Until(d.now)) // the test continues when the desk's time is reached
	default:
		c.runs++
		c.slow[name] = ends == hosted
		h := hallway{c: k, step: step, leaves: ends == leaves, name: name, replies: make(chan hallwayReply)}
		h.serveOn()
	}
	return k.Run(), nil
}

// hallway is a host of a Coordinator whose steps take time.
type hallway struct {
	c       *kahn.Coordinator
	step    kahn.StepFunc
	replies chan hallwayReply
	home    bool // whether a step was called with the Step of the run
	leaves  bool // whether the run is left once it waits only for signals
	name    string
}

type hallwayReply struct {
	step  *kahn.Step
	reply kahn.Reply
}

// serveOn drives the run on a goroutine. If user code that the Coordinator evaluates calls Goexit, serveOn starts the next goroutine.
func (h *hallway) serveOn() {
	var serve func()
	serve = func() {
		ended := false
		defer func() {
			if !ended {
				go serve()
			}
		}()
		h.serve()
		ended = true
	}
	go serve()
}

func (h *hallway) serve() {
	for {
		for s, ok := h.c.Next(); ok; s, ok = h.c.Next() {
			h.begin(s)
		}
		if h.leaves && h.c.Run().Status() == kahn.RunSuspended {
			h.c.Run().Leave()
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
			_, _ = h.c.Result() // delivers to the sinks if another goroutine has ended the run
			return
		}
	}
}

// begin calls a step on a new goroutine.
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
		perform = func() (any, error) { // results are passed unencoded: tests compare their identity
			on := kahn.NewStep(s, away, s)
			return step(on, on)
		}
	} else {
		h.atHome()
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
		begun := time.Now()
		r.reply.Value, r.reply.Err = perform()
		if _, err := json.Marshal(r.reply); err != nil || time.Since(begun) > 0 || s.Err() != nil {
			h.slow()
		}
	}()
}

// atHome counts the run as a run in which a step was called with the run's Step.
func (h *hallway) atHome() {
	if h.home {
		return
	}
	h.home = true
	c := &byCoordinatorCounts
	c.Lock()
	defer c.Unlock()
	c.home++
	c.slow[h.name] = true
}

// slow records that a step of the run took time.
func (h *hallway) slow() {
	c := &byCoordinatorCounts
	c.Lock()
	defer c.Unlock()
	c.slow[h.name] = true
}

func stack() []byte {
	b := make([]byte, 1<<12)
	return b[:runtime.Stack(b, false)]
}
