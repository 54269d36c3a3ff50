package riverkahn_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/store"
)

// gated returns a graph with a gate between two steps.
func gated(timeout time.Duration) *kahn.Graph {
	return (&kahn.Graph{Name: "approval"}).Add(kahn.Node{ID: "ask"},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: timeout}, After: []string{"ask"}},
		kahn.Node{ID: "ship", After: []string{"approve"}})
}

// TestRest: when a run begins a long wait, its job is completed. If the wait ends without a signal, the run gets another job, scheduled for the end
// of the wait.
func TestRest(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	never, later := gated(0), gated(time.Hour)
	later.Name = "approval within an hour"
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: never, Step: echo}, {Graph: later, Step: echo}}})
	create(t, c, never, "never")
	create(t, c, later, "later")
	x.states(t, "never", rivertype.JobStateCompleted)
	x.states(t, "later", rivertype.JobStateCompleted, rivertype.JobStateScheduled)
	stored, err := x.store.Head(t.Context(), "later")
	require.NoError(t, err)
	require.WithinDuration(t, stored.WakeAt, x.jobs(t, "later")[1].ScheduledAt, time.Millisecond)
	require.WithinDuration(t, time.Now().Add(time.Hour), stored.WakeAt, time.Minute)

	require.NoError(t, c.Wake(t.Context(), "never")) // the run finds nothing to do, and waits again
	x.states(t, "never", rivertype.JobStateCompleted, rivertype.JobStateCompleted)
	require.NoError(t, c.Wake(t.Context(), "later"))
	x.states(t, "later", rivertype.JobStateCompleted, rivertype.JobStateCompleted, rivertype.JobStateScheduled)
	require.ErrorIs(t, c.Wake(t.Context(), "no such run"), store.ErrUnknownRun)
}

// TestShortRest: a run keeps its job during a short wait, since River would begin a scheduled job only after the end of the wait.
func TestShortRest(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := gated(300 * time.Millisecond)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	began := time.Now()
	create(t, c, g, "short")
	x.reaches(t, "short", kahn.RunFailed)
	require.Less(t, time.Since(began), 3*time.Second)
	x.states(t, "short", rivertype.JobStateCompleted)
}

// TestBackoff: a run completes its job before a long backoff.
func TestBackoff(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := (&kahn.Graph{Name: "backoff"}).Add(kahn.Node{ID: "call", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour, MaxDelay: time.Hour}})
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("busy") }}}})
	create(t, c, g, "backoff")
	x.states(t, "backoff", rivertype.JobStateCompleted, rivertype.JobStateScheduled)
	x.reaches(t, "backoff", kahn.RunSuspended)
}

// TestFailure: River's retries do not perform a failed run again.
func TestFailure(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	var calls atomic.Int32
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: func(context.Context, *kahn.Step) (any, error) {
		calls.Add(1)
		return nil, errors.New("refused")
	}}}})
	create(t, c, order(), "failing")
	x.reaches(t, "failing", kahn.RunFailed)
	x.states(t, "failing", rivertype.JobStateCompleted)
	require.EqualValues(t, 1, calls.Load())
	require.Empty(t, x.jobs(t, "failing")[0].Errors)
}

// TestUnreadRequest: if a request cannot be read, the job of its run fails, so that River reports the error and retries the job after a pause.
// If another request arrives, the run does not wait for this pause.
func TestUnreadRequest(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	g := gated(0)
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: g, Step: echo}}})
	create(t, c, g, "asks")
	x.states(t, "asks", rivertype.JobStateCompleted)
	_, err := c.Post(t.Context(), "asks", store.Request{ID: "1", Kind: store.KindSignal, Node: "approve", Value: []byte(`{"$type":"money","value":1}`)})
	require.NoError(t, err)
	require.Eventually(t, func() bool { jobs := x.jobs(t, "asks"); return len(jobs) == 2 && len(jobs[1].Errors) > 0 }, 20*time.Second, 20*time.Millisecond)
	q, err := kahn.PrepareSignal("approve", "yes")
	require.NoError(t, err)
	_, err = c.Post(t.Context(), "asks", q)
	require.NoError(t, err)
	x.reaches(t, "asks", kahn.RunCompleted)
}

// TestJobTimeout: neither River's job timeout nor River's rescuer interrupts a run that takes longer than this timeout.
func TestJobTimeout(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	var calls atomic.Int32
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: func(ctx context.Context, s *kahn.Step) (any, error) {
		calls.Add(1)
		select {
		case <-time.After(time.Second):
			return s.ID(), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}}}}, func(c *river.Config) {
		c.JobTimeout, c.RescueStuckJobsAfter, c.JobStuckThreshold = 100*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	})
	create(t, c, order(), "long")
	x.reaches(t, "long", kahn.RunCompleted)
	x.states(t, "long", rivertype.JobStateCompleted)
	require.EqualValues(t, 2, calls.Load())
	require.Empty(t, x.jobs(t, "long")[0].Errors)
}

// TestLeased: a job waits as long as another owner performs its run.
func TestLeased(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	c := x.client(t)
	create(t, c, order(), "held")
	lease, _, err := x.store.Acquire(t.Context(), "held", "somebody", time.Minute)
	require.NoError(t, err)
	x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo}}})
	require.Eventually(t, func() bool {
		job := x.jobs(t, "held")[0]
		return job.State == rivertype.JobStateAvailable && job.ScheduledAt.After(time.Now())
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, x.store.Release(t.Context(), lease))
	x.reaches(t, "held", kahn.RunCompleted)
	x.states(t, "held", rivertype.JobStateCompleted)
}

// slow is a step that reports its beginning, and returns when the test releases it, or when its context ends.
type slow struct {
	began chan string
	end   chan struct{}
}

func newSlow() *slow { return &slow{began: make(chan string, 100), end: make(chan struct{})} }

func (s *slow) step(ctx context.Context, step *kahn.Step) (any, error) {
	s.began <- step.ID()
	select {
	case <-s.end:
		return step.ID(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestStop: a process that stops leaves its runs, and another process continues them.
func TestStop(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(p *riverkahn.Performer, c riverkahn.Client, s *slow) error{
		"steps end": func(p *riverkahn.Performer, c riverkahn.Client, s *slow) error {
			time.AfterFunc(50*time.Millisecond, func() { close(s.end) })
			return p.Stop(context.Background(), c.River)
		},
		"steps are interrupted": func(p *riverkahn.Performer, c riverkahn.Client, _ *slow) error {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			if err := p.Stop(ctx, c.River); !errors.Is(err, context.DeadlineExceeded) {
				return errors.Join(errors.New("no deadline"), err)
			}
			return nil
		},
		"StopAndCancel": func(_ *riverkahn.Performer, c riverkahn.Client, _ *slow) error {
			return c.River.StopAndCancel(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTables(t)
			first, s := &riverkahn.Performer{}, newSlow()
			first.Workflows = []riverkahn.Workflow{{Graph: order(), Step: s.step}}
			c := x.perform(t, first)
			create(t, c, order(), "left")
			require.Equal(t, "pay", <-s.began)
			require.NoError(t, stop(first, c, s))
			require.Empty(t, s.began, "a step began after the stop")
			x.reaches(t, "left", kahn.RunSuspended)
			x.states(t, "left", rivertype.JobStateCompleted, rivertype.JobStateAvailable)
			x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: echo}}})
			x.reaches(t, "left", kahn.RunCompleted)
		})
	}
}

// TestJobCancel: cancelling a job cancels its run.
func TestJobCancel(t *testing.T) {
	t.Parallel()
	x := newTables(t)
	s := newSlow()
	c := x.perform(t, &riverkahn.Performer{Workflows: []riverkahn.Workflow{{Graph: order(), Step: s.step}}})
	create(t, c, order(), "cancelled")
	<-s.began
	list, err := c.River.JobList(t.Context(), river.NewJobListParams().Kinds(riverkahn.RunArgs{}.Kind()))
	require.NoError(t, err)
	require.Len(t, list.Jobs, 1)
	_, err = c.River.JobCancel(t.Context(), list.Jobs[0].ID)
	require.NoError(t, err)
	x.reaches(t, "cancelled", kahn.RunCancelled)
}
