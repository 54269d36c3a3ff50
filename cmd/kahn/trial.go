package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// The method `try` runs one case. It returns the run's result and the failed expectations. A kahn.Coordinator performs the run. The run's clock does
// not tick: it jumps to the next time for which the run waits. The case fails if it takes longer than `limit`; 0 means no limit.
func (s *suite) try(ctx context.Context, c *testCase, limit time.Duration) (*kahn.Result, []error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("the case takes longer than %v, the bound of -timeout", limit))
		defer cancel()
	}
	inputs, err := s.by.inputs(s.Definition, c.Inputs)
	if err != nil {
		return nil, []error{err}
	}
	mode := c.mode(namesOf(s.graph))
	now := time.Now() // the clock starts at the real time, because real steps get their deadlines from it
	run, err := kahn.NewCoordinator(s.plan, now, mode, kahn.Inputs(inputs), kahn.Random(func() float64 { return 0.5 }))
	if err != nil {
		return nil, []error{err}
	}
	err = drive(withRoots(ctx, s.graph, inputs), run, c, now, s.by.step())
	if !run.Run().Status().Terminal() {
		run.Run().Leave()
	}
	if err != nil {
		return nil, []error{err}
	}
	res, err := run.Result()
	if res == nil {
		return nil, []error{err}
	}
	return res, append(c.judge(res), res.Test.Failures...)
}

// maxWaits bounds how often the clock of a case jumps. A jump takes no real time. Without this bound, a step with very many attempts would repeat
// without a pause, and its attempts would soon fill the memory.
const maxWaits = 100_000

// drive performs the run until the run ends or waits for an answer that the case does not give.
func drive(ctx context.Context, run *kahn.Coordinator, c *testCase, now time.Time, step kahn.StepFunc) error {
	asked := map[string]bool{}
	for waits := 0; !run.Run().Status().Terminal(); {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s, ok := run.Next(); ok { // mocks run within the Coordinator, so s is a real step
			reply := s.Call().Perform(ctx, step, nil)
			if err := run.Return(s, reply.Value, reply.Err); err != nil {
				return err
			}
			continue
		}
		answered, patient, err := c.answer(run.Run(), asked)
		if err != nil {
			return err
		}
		if answered {
			continue
		}
		at, due := run.Due()
		if !due || run.Run().Status() == kahn.RunSuspended && !patient {
			return nil
		}
		if waits++; waits > maxWaits {
			return fmt.Errorf("the run has waited %d times for an attempt, an iteration or a timeout", maxWaits)
		}
		if at.After(now) {
			now = at
		}
		run.Advance(now)
	}
	return context.Cause(ctx) // not nil if ctx ended during the last step
}

// The method `answer` gives each waiting node the answer that the case has for it. patient is true if the case lets a waiting node time out.
func (c *testCase) answer(run *kahn.Run, asked map[string]bool) (answered, patient bool, err error) {
	for _, wait := range run.Waiting() {
		m := c.Mocks[declaredPath(wait.Node)]
		patient = patient || m.Timeout
		if m.Answer == nil || asked[wait.Node] {
			continue
		}
		asked[wait.Node] = true
		v, err := decoded(m.Answer)
		if err == nil {
			err = run.Signal(context.Background(), wait.Node, v)
		}
		if err != nil {
			return answered, patient, err
		}
		answered = true
	}
	return answered, patient, nil
}

// The function `decoded` decodes a JSON value of a test into the Go types that a run uses.
func decoded(text json.RawMessage) (any, error) {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return plain(v), nil
}

// The method `mode` returns the test mode of the case. A gate is not mocked if the case answers it, lets it wait, or lets it time out.
func (c *testCase) mode(n names) kahn.TestMode {
	mode := kahn.TestMode{Mocks: map[string]kahn.Mock{}, Undos: map[string]kahn.Mock{}, Unmock: slices.Clone(c.Real), OnMissing: kahn.MissingStub}
	if c.Missing != nil {
		mode.OnMissing = *c.Missing
	}
	for path, m := range c.Mocks {
		if waits := m.Answer != nil || m.Wait || m.Timeout; waits && n.isGate(path) {
			mode.Unmock = append(mode.Unmock, path)
		} else {
			mode.Mocks[path] = m.mock()
		}
	}
	for path, m := range c.Undos {
		mode.Undos[path] = m.mock()
	}
	slices.Sort(mode.Unmock)
	for _, path := range slices.Sorted(maps.Keys(c.Expect.Nodes)) {
		mode.Assertions = append(mode.Assertions, c.Expect.Nodes[path].assertions(path)...)
	}
	return mode
}

// mock returns the mock of a step. The mock is a Sequence even if all attempts are equal, because kahn does not retry other mocks.
func (m mock) mock() kahn.Mock {
	attempts := m.Sequence
	if attempts == nil {
		attempts = []mock{m}
	}
	var sequence []kahn.Mock
	for _, attempt := range attempts {
		sequence = append(sequence, attempt.attempt())
	}
	return kahn.Mock{Sequence: sequence}
}

// The method `attempt` returns the mock of one attempt of a step.
func (m mock) attempt() kahn.Mock {
	switch {
	case m.Permanent:
		return kahn.Mock{Err: kahn.Permanent(errors.New(m.Error))}
	case m.Error != "":
		return kahn.Mock{Err: errors.New(m.Error)}
	case m.Skip != nil:
		return kahn.Mock{Err: kahn.Skip(*m.Skip)}
	case m.Timeout:
		return kahn.Mock{Err: fmt.Errorf("timed out: %w", context.DeadlineExceeded)}
	case m.Answer != nil, m.Wait:
		return kahn.Mock{Do: wait}
	}
	if m.Output == nil { // only the mock of a compensation may have no field at all
		return kahn.Mock{}
	}
	v, err := decoded(m.Output)
	return kahn.Mock{Value: v, Err: err}
}

// The function `wait` is a step that waits for an answer. The answer becomes the step's output.
func wait(_ context.Context, s *kahn.Step) (any, error) {
	if answer, ok := s.Resumed(); ok {
		return answer, nil
	}
	return nil, kahn.Suspend("", nil, nil)
}

// The method `judge` returns the failed expectations about the whole run: its status, its output, and the nodes that wait.
func (c *testCase) judge(res *kahn.Result) (failures []error) {
	if want := c.Expect.Status; want != "" && res.Status.String() != want {
		failures = append(failures, fmt.Errorf("the run: expected status %s: %v", want, res.Status))
	}
	if c.Expect.Output != nil {
		if err := compare(c.Expect.Output, res.Output(), reflect.DeepEqual); err != nil {
			failures = append(failures, fmt.Errorf("the run: expected output %s: %w", c.Expect.Output, err))
		}
	}
	if c.Expect.Waiting != nil {
		waiting := []string{}
		for _, wait := range res.Waiting {
			waiting = append(waiting, wait.Node)
		}
		slices.Sort(waiting)
		if want := slices.Sorted(slices.Values(c.Expect.Waiting)); !slices.Equal(want, waiting) {
			failures = append(failures, fmt.Errorf("the run: expected to wait for %s: %s", listed(want), listed(waiting)))
		}
	}
	return failures
}

func listed(names []string) string {
	return cmp.Or(strings.Join(names, ", "), "nothing")
}

// The method `assertions` returns assertions that check what the case expects of a node.
func (e nodeExpectation) assertions(path string) (list []kahn.Assertion) {
	if e.Status != nil {
		list = append(list, kahn.AssertStatus(path, *e.Status))
	}
	if e.Skip != nil {
		list = append(list, kahn.AssertSkip(path, *e.Skip))
	}
	if e.Compensation != nil {
		list = append(list, kahn.AssertCompensation(path, *e.Compensation))
	}
	if e.Calls != nil {
		list = append(list, kahn.AssertCalls(path, *e.Calls))
	}
	if e.Error != "" {
		list = append(list, kahn.Assert(path, fmt.Sprintf("an error with %q", e.Error), func(n kahn.NodeResult) error {
			switch {
			case n.Err == nil:
				return fmt.Errorf("%v, without an error", n.Status)
			case !strings.Contains(n.Err.Error(), e.Error):
				return n.Err
			}
			return nil
		}))
	}
	for _, row := range []struct {
		what string
		want json.RawMessage
		same func(want, got any) bool
	}{{"output", e.Output, reflect.DeepEqual}, {"output that includes", e.Includes, includes}} {
		if row.want != nil {
			list = append(list, kahn.Assert(path, row.what+" "+string(row.want), func(n kahn.NodeResult) error {
				return compare(row.want, n.Output, row.same)
			}))
		}
	}
	return list
}

// The function `compare` compares the JSON of a value with the expected JSON. If they differ, it returns an error that shows the value.
func compare(want json.RawMessage, got any, same func(want, got any) bool) error {
	text, err := json.Marshal(got)
	if err != nil {
		return err
	}
	expected, err := decoded(want)
	if err != nil {
		return err
	}
	actual, err := decoded(text)
	if err != nil {
		return err
	}
	if !same(expected, actual) {
		return errors.New(string(text))
	}
	return nil
}

// The function `includes` reports whether a value equals the expected value. Objects in the value may have additional fields, except inside lists.
func includes(want, got any) bool {
	object, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(want, got)
	}
	has, ok := got.(map[string]any)
	if !ok {
		return false
	}
	for name, v := range object {
		if other, ok := has[name]; !ok || !includes(v, other) {
			return false
		}
	}
	return true
}
