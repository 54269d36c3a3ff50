//go:build server

package temporal

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// If the namespace lacks the search attributes, Start starts nothing. If it has them, a list finds the run by its workflow and by each status.
func TestServerSearchAttributes(t *testing.T) {
	c := dial(t)
	namespace := os.Getenv("KAHN_TEMPORAL_NAMESPACE")
	g := kahntest.Graph(t, "a>ask ask>b ask{gate}")
	g.Name = t.Name()
	w := serve(t, c, plan(t, g), Options{Step: recordedStep, ContinueAfter: 1})
	w.SearchAttributes = true
	_, err := c.OperatorService().RemoveSearchAttributes(t.Context(), &operatorservice.RemoveSearchAttributesRequest{Namespace: namespace, SearchAttributes: []string{StatusAttribute}})
	require.NoError(t, err)
	_, err = Start(t.Context(), c, w, nil)
	require.ErrorContains(t, err, StatusAttribute)
	_, err = Store{Client: c}.Load(t.Context(), w.ID)
	require.ErrorIs(t, err, kahn.ErrUnknownRun)
	for range 2 {
		require.NoError(t, RegisterSearchAttributes(t.Context(), c, namespace))
	}
	var run *Run
	require.Eventually(t, func() bool { // the service may take a moment until it knows the attributes
		run, err = Start(t.Context(), c, w, nil)
		return err == nil
	}, 30*time.Second, 100*time.Millisecond, "%v", err)
	s := Store{Client: c, SearchAttributes: true}
	found := func(status kahn.RunStatus) func() bool {
		return func() bool {
			page, err := s.List(t.Context(), store.Query{Filter: store.Filter{Workflow: t.Name(), Statuses: []kahn.RunStatus{status}}})
			return err == nil && len(page.Runs) == 1 && page.Runs[0].ID == w.ID && page.Runs[0].Status == status
		}
	}
	require.Eventually(t, found(kahn.RunSuspended), 30*time.Second, 100*time.Millisecond)
	require.False(t, found(kahn.RunRunning)())
	require.NoError(t, run.Signal(t.Context(), "ask", nil))
	_, err = run.Wait(t.Context())
	require.NoError(t, err)
	require.Eventually(t, found(kahn.RunCompleted), 30*time.Second, 100*time.Millisecond)
}
