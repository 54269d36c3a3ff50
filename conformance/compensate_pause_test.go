package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A loop is resumed in its pause, and then stopped before its next iteration begins. It keeps the record of its iterations: the run's snapshots and its
// store say which nodes inside were undone, and an operator can repeat or confirm compensations that failed.
func TestLoopThatIsStoppedInAResumedPauseIsUndone(t *testing.T) {
	stuck := kahn.Permanent(errors.New("no such charge"))
	stops := map[string]func(*testing.T, *kahn.Run){
		"cancelled": func(t *testing.T, run *kahn.Run) { require.NoError(t, run.Cancel()) },
		"aborted":   func(t *testing.T, run *kahn.Run) { require.NoError(t, run.AbortAll(errHost)) },
		"late":      func(*testing.T, *kahn.Run) { time.Sleep(time.Hour) }, // until the OverallTimeout of the loop
	}
	for how, stop := range stops {
		for _, stored := range []bool{false, true} {
			for _, outer := range []string{"", "s/", "m[1]/"} {
				for _, failure := range []error{nil, stuck} {
					for _, iterations := range []int{1, 2} {
						inBubble(t, fmt.Sprintf("%s, stored %v, in %q, %v, after %d iterations", how, stored, outer, failure, iterations), func(t *testing.T) {
							testResumedPause(t, stop, stored, outer, failure, iterations)
						})
					}
				}
			}
		}
	}
}

func testResumedPause(t *testing.T, stop func(*testing.T, *kahn.Run), stored bool, outer string, failure error, iterations int) {
	var undone []string
	pay := kahn.Node{ID: "pay", Do: succeeds(1), Compensate: func(_ context.Context, s *kahn.Step) error {
		undone = append(undone, s.Path()) // one loop is undone node by node
		return failure
	}}
	loop := kahn.Node{ID: "L", OverallTimeout: time.Duration(iterations)*time.Hour - 10*time.Minute, Sub: graph(pay), Loop: &kahn.Loop{MaxIterations: 5, Pause: time.Hour, While: func(kahn.View) (bool, error) { return true, nil }}}
	g := graph(loop)
	switch outer {
	case "s/":
		g = graph(kahn.Node{ID: "s", Sub: graph(loop)})
	case "m[1]/":
		loop.When = func(v kahn.View) (bool, error) {
			i, _ := v.Root("index")
			return fmt.Sprint(i) == "1", nil
		}
		g = graph(kahn.Node{ID: "m", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []int{1, 2}}, Sub: graph(loop)})
	}
	var memory *store.Memory
	opts := []kahn.Option{kahn.RunID("r")}
	if stored {
		memory = new(store.Memory)
		opts = append(opts, kahn.Durable(memory))
	}
	run, err := kahn.Start(t.Context(), g, nil, opts...)
	require.NoError(t, err)
	time.Sleep(time.Duration(iterations)*time.Hour - 30*time.Minute)
	run.Leave()
	res, err := run.Wait()
	require.NoError(t, err)
	again := slices.Clone(opts)
	if !stored {
		again = append(again, kahn.Resume(reload(t, res.Snapshot())))
	}
	run, err = kahn.Start(t.Context(), g, nil, again...)
	require.NoError(t, err)
	synctest.Wait()
	stop(t, run)
	res, err = run.Wait()
	require.Error(t, err)
	paths := []string{outer + "L#2/pay", outer + "L#1/pay"}[2-iterations:]
	require.Equal(t, paths, undone)
	checkPaused := func(res *kahn.Result, want kahn.Compensation) {
		t.Helper()
		read, err := reload(t, res.Snapshot()).Result(compiled(t, g))
		require.NotNil(t, read, err)
		all := []*kahn.Result{res, read}
		if stored {
			read, err = kahn.ReadResult(t.Context(), g, memory, "r")
			require.NotNil(t, read, err)
			all = append(all, read)
		}
		for _, res := range all {
			switch outer {
			case "s/":
				res = must(res.Node("s")).Sub
			case "m[1]/":
				res = must(must(res.Node("m")).Sub.Node("m[1]")).Sub
			}
			l := must(res.Node("L"))
			require.Equal(t, want, l.Compensation)
			require.NotNil(t, l.Sub)
			require.Equal(t, kahn.RunCompleted, l.Sub.Status, "the last iteration had completed")
			require.Equal(t, want, must(l.Sub.Node("pay")).Compensation)
		}
	}
	if failure == nil {
		checkPaused(res, kahn.CompensationDone)
		return
	}
	checkPaused(res, kahn.CompensationFailed)
	from := reload(t, res.Snapshot())
	if stored {
		from = nil
	}
	_, err = kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(from, nil))...)
	require.ErrorIs(t, err, kahn.ErrCompensation, "it is not known whether the payments are undone")
	undone, failure = nil, nil
	res, err = kahn.Execute(t.Context(), g, nil, append(opts, kahn.Redrive(from, nil), kahn.RepeatCompensations)...)
	require.Error(t, err)
	require.NotErrorIs(t, err, kahn.ErrCompensation)
	require.Equal(t, paths, undone)
	checkPaused(res, kahn.CompensationDone)
}
