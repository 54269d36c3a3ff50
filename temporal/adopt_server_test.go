//go:build server

package temporal

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// adoptWaiting moves a run to another plan when the run waits, and returns the run when its new execution has begun.
func adoptWaiting(t *testing.T, c client.Client, w Workflow, young *kahn.Plan) *Run {
	t.Helper()
	suspended := func(run *Run) func() bool {
		return func() bool {
			status, _, err := run.Waiting(t.Context())
			return err == nil && status == kahn.RunSuspended
		}
	}
	former := Attach(c, w)
	require.Eventually(t, suspended(former), 10*time.Second, 50*time.Millisecond)
	about, err := c.DescribeWorkflowExecution(t.Context(), w.ID, "")
	require.NoError(t, err)
	w.Plan = young
	run := Attach(c, w)
	require.NoError(t, run.Adopt(t.Context(), kahn.Request{Actor: "ann", Reason: "deploy"}))
	require.Eventually(t, func() bool {
		now, err := c.DescribeWorkflowExecution(t.Context(), w.ID, "")
		return err == nil && now.GetWorkflowExecutionInfo().GetExecution().GetRunId() != about.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	}, 10*time.Second, 50*time.Millisecond)
	require.Eventually(t, suspended(run), 10*time.Second, 50*time.Millisecond)
	return run
}

// A waiting run is moved to another version of its plan. Refused requests leave no event in the history. Afterwards the run belongs to the new plan: it
// is found by it, redriven with it, and its histories replay.
func TestServerAdopt(t *testing.T) {
	c := dial(t)
	young := letters("large", kahn.Node{ID: "bad", After: []string{"send"}})
	needy := letters("needy")
	needy.Inputs = []kahn.Input{{Name: "n"}}
	other := letters("other")
	other.Name = "other"
	o := Options{Step: recordedStep, Plans: []*kahn.Plan{plan(t, young)}}
	w := serve(t, c, plan(t, letters("small", kahn.Node{ID: "old", After: []string{"fetch"}})), o)
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	first := run.get.GetRunID()
	require.Eventually(t, func() bool {
		status, _, err := run.Waiting(t.Context())
		return err == nil && status == kahn.RunSuspended
	}, 10*time.Second, 50*time.Millisecond)
	before := histories(t, c, w.ID, first)
	for _, row := range []struct {
		g    *kahn.Graph
		want error
	}{{needy, kahn.ErrMissingInput}, {other, kahn.ErrGraphChanged}} {
		of := w
		of.Plan = plan(t, row.g)
		require.ErrorIs(t, Attach(c, of).Adopt(t.Context(), kahn.Request{}), row.want, "the client refuses")
		require.ErrorIs(t, run.update(t.Context(), AdoptUpdate, adoptRequest{Plan: idOf(of.Plan)}), ErrUnknownPlan, "the run refuses")
	}
	require.ErrorIs(t, Attach(c, Workflow{ID: w.ID + "-none", Plan: w.Plan}).Adopt(t.Context(), kahn.Request{}), kahn.ErrUnknownRun)
	require.Len(t, histories(t, c, w.ID, first)[0].Events, len(before[0].Events), "refused requests leave no event")

	adopted := adoptWaiting(t, c, w, o.Plans[0])
	require.NoError(t, adopted.Adopt(t.Context(), kahn.Request{}), "again")
	row, err := Store{Client: c}.Load(t.Context(), w.ID)
	require.NoError(t, err)
	require.Equal(t, o.Plans[0].Hash(), row.Plan)
	require.NoError(t, adopted.Signal(t.Context(), "approve", "yes"))
	res, err := adopted.Wait(t.Context())
	require.ErrorContains(t, err, errStep.Error())
	kahntest.RequireStatuses(t, res, "fetch:ok draft:ok slow:ok approve:ok send:ok bad:F")
	require.Equal(t, "ann", res.RedriveRequest.Actor)
	require.ErrorIs(t, adopted.Adopt(t.Context(), kahn.Request{}), kahn.ErrFinished)

	again, err := adopted.Redrive(t.Context(), nil, kahn.Request{})
	require.NoError(t, err)
	_, err = again.Wait(t.Context())
	require.ErrorContains(t, err, errStep.Error())
	for _, row := range []struct {
		p    *kahn.Plan
		want error
	}{{o.Plans[0], nil}, {w.Plan, kahn.ErrKeyConflict}} {
		of := w
		of.Plan = row.p
		_, err = Start(t.Context(), c, of, nil)
		require.ErrorIs(t, err, row.want)
	}
	all := append(histories(t, c, w.ID, first), histories(t, c, w.ID, again.get.GetRunID())...)
	require.Len(t, all, 3)
	for i, h := range all {
		of := o
		of.Plans = []*kahn.Plan{w.Plan}
		if i > 0 {
			of.Plans = o.Plans
		}
		replayer, err := of.Replayer()
		require.NoError(t, err)
		require.NoError(t, replayer.ReplayWorkflowHistory(discard, h), "execution %d", i)
	}
}

// During a rolling deploy an old worker has only the former plan, and a new worker has only the new plan. Runs are adopted while a step is running: the step
// is performed once, and the runs end with the new plan, whichever worker takes their tasks.
func TestServerAdoptRolling(t *testing.T) {
	c := dial(t)
	old, young := plan(t, letters("small")), plan(t, letters("large"))
	const runs = 4
	var mu sync.Mutex
	calls := map[string]int{}
	begun, release := make(chan bool, 2*runs), make(chan bool)
	o := Options{Step: func(_ context.Context, s *kahn.Step) (any, error) {
		mu.Lock()
		model, _ := s.Config().(string)
		calls[s.ID()+model]++
		mu.Unlock()
		if s.ID() == "slow" {
			begun <- true
			<-release
		}
		return s.ID(), nil
	}}
	w := serve(t, c, old, o)
	var list []*Run
	var firsts []string
	for i := range runs {
		of := w
		of.ID = fmt.Sprint(w.ID, "-", i)
		run, err := Start(t.Context(), c, of, nil)
		require.NoError(t, err)
		list, firsts = append(list, run), append(firsts, run.get.GetRunID())
	}
	for range runs {
		<-begun
	}
	o.Plans = []*kahn.Plan{young}
	second, err := NewWorker(c, w.TaskQueue, o)
	require.NoError(t, err)
	require.NoError(t, second.Start())
	t.Cleanup(second.Stop)
	end := sync.OnceFunc(func() { close(release) })
	t.Cleanup(end) // before the workers stop
	for i, run := range list {
		list[i] = Attach(c, Workflow{ID: run.ID(), TaskQueue: w.TaskQueue, Plan: young})
		require.Eventually(t, func() bool { return list[i].Adopt(t.Context(), kahn.Request{}) == nil }, time.Minute, 100*time.Millisecond)
	}
	end()
	for i, run := range list {
		require.Eventually(t, func() bool { // the gate follows a changed node, so an answer in the first execution would not count
			about, err := c.DescribeWorkflowExecution(t.Context(), run.ID(), "")
			return err == nil && about.GetWorkflowExecutionInfo().GetExecution().GetRunId() != firsts[i] && run.Signal(t.Context(), "approve", "yes") == nil
		}, time.Minute, 100*time.Millisecond)
		res, err := run.Wait(t.Context())
		require.NoError(t, err)
		kahntest.RequireStatuses(t, res, "fetch:ok draft:ok slow:ok approve:ok send:ok")
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]int{"fetch": runs, "draftsmall": runs, "slow": runs, "draftlarge": runs, "send": runs}, calls)
}
