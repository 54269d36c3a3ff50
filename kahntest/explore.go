package kahntest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// ErrExplored is the error that [Explore] injects into an attempt.
var ErrExplored = errors.New("failure injected by kahntest.Explore")

// Workflow is what [Explore] tests: a graph, its step function, and an invariant that must hold for every run.
type Workflow struct {
	Graph *kahn.Graph
	Step  kahn.StepFunc
	// Explore calls Invariant with the Result and the error of each run that has ended or is suspended. If Invariant returns an error, the test fails.
	Invariant func(res *kahn.Result, err error) error
	Options   []kahn.Option
}

// exploredRuns is the number of runs that Explore makes.
const exploredRuns = 300

// Explore runs a workflow with different orders of steps and different failures, and searches for a run that breaks the invariant of the workflow. It
// makes 300 runs. In these runs, attempts end in different orders. Some attempts fail before the step is called, and some fail after the step's
// effect, as if an answer were lost. Some runs are cancelled. Every call of Explore makes the same choices. Backoffs take no time. Explore also
// checks the events of every run. If a run fails a check, Explore simplifies the run: it leaves out each injected failure, each change of order and
// the cancellation, if the run still fails without it. Explore reports what remains:
//
//	charge#1 fails after its effect, refund#1 fails, cancel
//
// This run has no other injected failure, and its attempts end in the order in which they begin. "undo:charge#1" is the first attempt to undo charge.
//
// Explore calls the function `start` for each run, so that each run begins with a new fake of the outside world. Explore calls steps one at a time,
// on the caller's goroutine, so steps must not wait for each other or for their contexts. Explore itself sets RunID and Random.
func Explore(t testing.TB, start func() Workflow) {
	t.Helper()
	if err := CheckExplored(start, exploredRuns); err != nil {
		t.Error(err)
	}
}

// CheckExplored does the same as [Explore] with the given number of runs. It returns, as an error, the text that Explore reports to its [testing.TB].
// If the number is not positive, the error matches [kahn.ErrBadValue].
func CheckExplored(start func() Workflow, runs int) error {
	if runs <= 0 {
		return fmt.Errorf("%w: %d runs test nothing", kahn.ErrBadValue, runs)
	}
	for seed := range runs {
		x := &exploration{rand: rand.New(rand.NewPCG(uint64(seed), 7))}
		if seed == 0 {
			x.rand = nil // the first run has no failures and follows the order of the graph
		}
		err := x.run(start())
		if err == nil {
			continue
		}
		x, err = x.shorten(start, err)
		if len(x.said) == 0 {
			return fmt.Errorf("without a failure, in the order of the graph: %w", err)
		}
		return fmt.Errorf("%s: %w", strings.Join(x.said, ", "), err)
	}
	return nil
}

// exploration is one run under a schedule. A schedule maps the name of each choice to a number. A choice that is not in the schedule has the number
// 0: no failure, no cancellation, and no change of the order.
type exploration struct {
	rand  *rand.Rand     // makes the choices; if nil, they come from the field `given`
	given map[string]int // the schedule: the choices to repeat, or the choices that `rand` has made
	made  []string       // the names of the choices with a number other than 0, in the order in which they were made
	said  []string       // texts that describe the choices in `made`
}

// The method `shorten` removes each choice from the failing exploration x if a run without this choice still fails. It returns the last exploration
// that failed, and its error.
func (x *exploration) shorten(start func() Workflow, err error) (*exploration, error) {
	for i := 0; i < len(x.made); {
		given := maps.Clone(x.given)
		delete(given, x.made[i])
		fewer := &exploration{given: given}
		if e := fewer.run(start()); e != nil {
			x, err, i = fewer, e, 0
		} else {
			i++
		}
	}
	return x, err
}

// The method `choose` makes the choice with the given name: it returns a number from 0 to n-1. A run makes each choice only once.
func (x *exploration) choose(name string, n int) int {
	choice := min(x.given[name], n-1)
	if x.rand != nil {
		choice = x.rand.IntN(n)
		if x.given == nil {
			x.given = map[string]int{}
		}
		x.given[name] = choice
	}
	if choice != 0 {
		x.made = append(x.made, name)
	}
	return choice
}

func (x *exploration) say(format string, args ...any) {
	x.said = append(x.said, fmt.Sprintf(format, args...))
}

// The method `run` runs the workflow once. It returns an error if the run cannot begin or fails a check.
func (x *exploration) run(w Workflow) error {
	plan, err := w.Graph.Compile()
	if err != nil {
		return err
	}
	var events Recorder
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	opts := slices.Concat(w.Options, []kahn.Option{kahn.RunID("explored"), kahn.Random(func() float64 { return 0.5 }), kahn.OnEvent(events.Add)})
	c, err := kahn.NewCoordinator(plan, now, opts...)
	if err != nil {
		return err
	}
	res, err := x.drive(c, w.Step)
	if res == nil {
		return err
	}
	if broken := CheckEvents(w.Graph, res, events.Events()); broken != nil {
		return broken
	}
	if w.Invariant == nil {
		return nil
	}
	return w.Invariant(res, err)
}

// maxExplored is the largest number of turns of a run. A turn ends an attempt, advances the clock or cancels the run. If a run has not ended after
// these turns, Explore reports this as a defect.
const maxExplored = 10_000

func (x *exploration) drive(c *kahn.Coordinator, step kahn.StepFunc) (*kahn.Result, error) {
	var open []*kahn.Step // the attempts that have begun and have not ended, in the order in which they began
	cancelled := x.choose("whether to cancel", 5) != 1
	for n := 0; ; n++ {
		for s, ok := c.Next(); ok; s, ok = c.Next() {
			open = append(open, s)
		}
		if c.Run().Status() != kahn.RunRunning {
			break
		}
		if n == maxExplored {
			return nil, fmt.Errorf("the run has not ended after %d turns", n)
		}
		if !cancelled && x.choose(fmt.Sprint("cancel before ", n), 4) == 1 {
			cancelled = true
			x.say("cancel")
			if err := c.Run().Cancel(); err != nil {
				return nil, err
			}
			continue
		}
		if len(open) == 0 {
			at, ok := c.Due()
			if !ok {
				return nil, fmt.Errorf("the run is running, and waits for nothing")
			}
			c.Advance(at)
			continue
		}
		i := x.choose(fmt.Sprint("which, at ", n), len(open))
		s := open[i]
		open = slices.Delete(open, i, i+1)
		if i > 0 {
			x.say("%s first", nameOf(s))
		}
		do := s.Do()
		if do == nil {
			do = step
		}
		if do == nil {
			return nil, fmt.Errorf("%w: node %q needs one", kahn.ErrNoStep, s.Path())
		}
		value, err := x.attempt(do, s)
		if err := c.Return(s, value, err); err != nil && !errors.Is(err, kahn.ErrStale) {
			return nil, err
		}
	}
	if c.Run().Status() == kahn.RunSuspended {
		c.Run().Leave()
		c.Next()
	}
	return c.Result()
}

// nameOf returns the name of an attempt to run or to undo a node.
func nameOf(s *kahn.Step) string {
	name := fmt.Sprintf("%s#%d", s.Path(), s.Attempt())
	if s.Compensating() {
		return "undo:" + name
	}
	return name
}

// The method `attempt` calls the function of an attempt. It may let the attempt fail after this call, or instead of the call.
func (x *exploration) attempt(do kahn.StepFunc, s *kahn.Step) (value any, err error) {
	how := x.choose("what becomes of "+nameOf(s), 8)
	switch how {
	case 1:
		x.say("%s fails", nameOf(s))
		return nil, ErrExplored
	case 2:
		x.say("%s fails after its effect", nameOf(s))
	}
	err = foreign.Contain(func() (err error) {
		value, err = do(s, s)
		return err
	}, func(v any) error { return &kahn.PanicError{Value: v, Stack: debug.Stack()} })
	if how == 2 && err == nil {
		return nil, ErrExplored
	}
	return value, err
}
