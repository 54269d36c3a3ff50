//go:build server

package temporal

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// deployment is a worker deployment with several versions.
type deployment struct {
	client client.Client
	name   string // of the deployment and the task queue
	by     workflow.VersioningBehavior

	mu    sync.Mutex
	calls map[string]string // the version that performed the last attempt of a node, by run and path
}

// version begins a worker that has plans, and makes it the current version of the deployment.
func (d *deployment) version(t *testing.T, build string, plans ...*kahn.Plan) {
	t.Helper()
	o := Options{Plans: plans, ContinueAfter: 4, Step: func(_ context.Context, s *kahn.Step) (any, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		model, _ := s.Config().(string)
		d.calls[s.Path()] = strings.TrimSpace(build + " " + model)
		return s.Path(), nil
	}}
	o.Worker.DeploymentOptions = worker.DeploymentOptions{UseVersioning: true, DefaultVersioningBehavior: d.by, Version: worker.WorkerDeploymentVersion{DeploymentName: d.name, BuildID: build}}
	w, err := NewWorker(d.client, d.name, o)
	require.NoError(t, err)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	require.EventuallyWithT(t, func(r *assert.CollectT) { // the service learns of the version when its worker polls
		_, err := d.client.WorkerDeploymentClient().GetHandle(d.name).SetCurrentVersion(t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		require.NoError(r, err)
	}, 30*time.Second, 100*time.Millisecond)
	require.EventuallyWithT(t, func(r *assert.CollectT) { // all partitions of the task queue know the version
		about, err := d.client.WorkflowService().DescribeWorkerDeployment(t.Context(), &workflowservice.DescribeWorkerDeploymentRequest{Namespace: os.Getenv("KAHN_TEMPORAL_NAMESPACE"), DeploymentName: d.name})
		require.NoError(r, err)
		require.Equal(r, enums.ROUTING_CONFIG_UPDATE_STATE_COMPLETED, about.GetWorkerDeploymentInfo().GetRoutingConfigUpdateState())
		require.Equal(r, build, about.GetWorkerDeploymentInfo().GetRoutingConfig().GetCurrentDeploymentVersion().GetBuildId())
	}, 30*time.Second, 100*time.Millisecond)
}

// performed returns which version has performed each node, and forgets it.
func (d *deployment) performed() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = map[string]string{}
	return calls
}

// Two versions of a worker have different versions of a plan. The test shows what happens to runs that began under the first version.
func TestServerVersions(t *testing.T) {
	c := dial(t)
	file := kahn.Node{ID: "file", After: []string{"send"}} // begins in an execution of its own, unless the run was adopted
	small, large := plan(t, letters("small", file)), plan(t, letters("large", file))
	for name, row := range map[string]struct {
		by     workflow.VersioningBehavior
		second []*kahn.Plan // the plans of the second version
		adopts bool
		stuck  bool              // the second version fails workflow tasks of the run, until a third version has both plans
		want   map[string]string // what is performed after the second version became current
	}{
		"pinned":                        {workflow.VersioningBehaviorPinned, []*kahn.Plan{large}, false, false, map[string]string{"send": "v1", "file": "v1"}},
		"pinned and adopted":            {workflow.VersioningBehaviorPinned, []*kahn.Plan{large}, true, false, map[string]string{"draft": "v2 large", "send": "v2", "file": "v2"}},
		"auto-upgrade":                  {workflow.VersioningBehaviorAutoUpgrade, []*kahn.Plan{large, small}, false, false, map[string]string{"send": "v2", "file": "v2"}},
		"auto-upgrade and adopted":      {workflow.VersioningBehaviorAutoUpgrade, []*kahn.Plan{large, small}, true, false, map[string]string{"draft": "v2 large", "send": "v2", "file": "v2"}},
		"auto-upgrade without the plan": {workflow.VersioningBehaviorAutoUpgrade, []*kahn.Plan{large}, false, true, map[string]string{"send": "v3", "file": "v3"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &deployment{client: c, name: fmt.Sprint("d", time.Now().UnixNano()), by: row.by, calls: map[string]string{}}
			d.version(t, "v1", small)
			w := Workflow{ID: d.name, TaskQueue: d.name, Plan: small}
			run, err := Start(t.Context(), c, w, nil)
			require.NoError(t, err)
			first := run.get.GetRunID()
			require.Eventually(t, func() bool {
				status, _, err := run.Waiting(t.Context())
				return err == nil && status == kahn.RunSuspended
			}, 20*time.Second, 50*time.Millisecond)
			require.Equal(t, map[string]string{"fetch": "v1", "draft": "v1 small", "slow": "v1"}, d.performed())
			d.version(t, "v2", row.second...)
			if row.adopts {
				run = adoptWaiting(t, c, w, large)
			}
			answer := json.RawMessage(`{"gate": "approve", "value": "yes"}`)
			require.NoError(t, c.SignalWorkflow(t.Context(), w.ID, "", SignalName, answer))
			if row.stuck {
				require.Eventually(t, func() bool {
					for _, e := range histories(t, c, w.ID, first)[0].Events {
						if strings.Contains(e.GetWorkflowTaskFailedEventAttributes().GetFailure().GetMessage(), ErrUnknownPlan.Error()) {
							return true
						}
					}
					return false
				}, 20*time.Second, 100*time.Millisecond)
				require.Empty(t, d.performed(), "the run waits")
				d.version(t, "v3", large, small)
			}
			res, err := run.Wait(t.Context())
			require.NoError(t, err)
			kahntest.RequireStatuses(t, res, "fetch:ok draft:ok slow:ok approve:ok send:ok file:ok")
			require.Equal(t, row.want, d.performed())
			require.Len(t, histories(t, c, w.ID, first), 2)

			w.ID, w.Plan = w.ID+"-new", large
			next, err := Start(t.Context(), c, w, nil)
			require.NoError(t, err)
			require.NoError(t, c.SignalWorkflow(t.Context(), w.ID, "", SignalName, answer))
			_, err = next.Wait(t.Context())
			require.NoError(t, err)
			latest := "v2"
			if row.stuck {
				latest = "v3"
			}
			require.Equal(t, map[string]string{"fetch": latest, "draft": latest + " large", "slow": latest, "send": latest, "file": latest}, d.performed(), "new runs have the new plan")
		})
	}
}
