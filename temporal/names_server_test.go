//go:build server

package temporal

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/temporal"

	"github.com/seed-c794f7ef/kahn"
)

// One kind has its own task queue, and another kind is local. The history has the right types, queues and priorities, a list finds the run by its
// workflow type, and the history replays.
func TestServerKinds(t *testing.T) {
	c := dial(t)
	g := &kahn.Graph{Name: "kinds"}
	g.Add(kahn.Node{ID: "a", Kind: "cpu"}, kahn.Node{ID: "b", Kind: "gpu", After: []string{"a"}, Key: "acme"}, kahn.Node{ID: "c", Kind: "quick", After: []string{"b"}}, kahn.Node{ID: "d", After: []string{"c"}})
	p := plan(t, g)
	var mu sync.Mutex
	queues := map[string]string{}
	o := Options{Step: func(ctx context.Context, s *kahn.Step) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		info := activity.GetInfo(ctx)
		if queues[s.ID()] = info.TaskQueue; info.IsLocalActivity {
			queues[s.ID()] = "local"
		}
		return s.ID(), nil
	}}
	gpu := fmt.Sprint(t.Name(), "-gpu-", time.Now().UnixNano())
	o.Kinds = map[string]Kind{"gpu": {TaskQueue: gpu, FairByKey: true}, "quick": {Local: true}}
	o.Plans = []*kahn.Plan{p}
	other := o
	other.Worker.DisableWorkflowWorker = true
	on, err := NewWorker(c, gpu, other)
	require.NoError(t, err)
	require.NoError(t, on.Start())
	t.Cleanup(on.Stop)
	o.Plans = nil
	w := serve(t, c, p, o)
	w.Priority = sdk.Priority{PriorityKey: 2}
	run, err := Start(t.Context(), c, w, nil)
	require.NoError(t, err)
	res, err := run.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, "d", res.Output())
	require.Equal(t, map[string]string{"a": w.TaskQueue, "b": gpu, "c": "local", "d": w.TaskQueue}, queues)
	h := histories(t, c, w.ID, run.get.GetRunID())[0]
	var types []string
	markers := 0
	for _, e := range h.Events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			types = append(types, a.ActivityType.Name)
			if a.ActivityType.Name == "gpu" {
				require.Equal(t, "acme", a.Priority.FairnessKey)
			}
		}
		if e.GetEventType() == enums.EVENT_TYPE_MARKER_RECORDED {
			markers++
		}
	}
	require.Equal(t, []string{"cpu", "gpu", ActivityName}, types)
	require.Equal(t, 1, markers, "the local activity")
	started := h.Events[0].GetWorkflowExecutionStartedEventAttributes()
	require.Equal(t, []any{"kinds", int32(2)}, []any{started.WorkflowType.Name, started.Priority.GetPriorityKey()})
	o.Plans = []*kahn.Plan{p}
	replayer, err := o.Replayer()
	require.NoError(t, err)
	require.NoError(t, replayer.ReplayWorkflowHistory(discard, h))
}
