package conformance_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// The run's error names only failures that caused the run to fail. It omits failures that were handled by a catch edge, by an error boundary, or
// inside a composite. With another status rule, or in a run that is stopped as a whole, the error names all failures.
func TestRunErrorWithoutHandledFailures(t *testing.T) {
	t.Parallel()
	errHandled, errEscaped := errors.New("no stamps"), errors.New("no paper")
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		switch s.ID() {
		case "caught", "bounded":
			return nil, errHandled
		case "open", "late":
			return nil, errEscaped
		}
		return nil, nil
	}
	handled := []kahn.Node{
		{ID: "caught"}, {ID: "handler", In: []kahn.Edge{{From: "caught", On: kahn.OnFailure}}},
		{ID: "bounded"}, {ID: "victim", After: []string{"bounded"}}, {ID: "boundary", After: []string{"victim"}, Join: kahn.Boundary},
	}
	for name, row := range map[string]struct {
		nodes  []kahn.Node
		opts   []kahn.Option
		failed []string // the nodes in RunError.Errs
	}{
		"a failure of its own":      {[]kahn.Node{{ID: "open"}, {ID: "after", After: []string{"open"}}}, nil, []string{"open"}},
		"the handler's own failure": {[]kahn.Node{{ID: "late", After: []string{"handler"}}}, nil, []string{"late"}},
		"a composite":               {[]kahn.Node{{ID: "S", Sub: graph(append(handled, kahn.Node{ID: "open"})...)}}, nil, []string{"S"}},
		"every failure counts":      {[]kahn.Node{{ID: "open"}}, []kahn.Option{kahn.StatusStrict}, []string{"caught", "bounded", "open"}},
	} {
		g := graph(append(handled, row.nodes...)...)
		var rec kahntest.Recorder
		res, err := kahn.Execute(t.Context(), g, step, append(row.opts, kahn.OnEvent(rec.Add))...)
		require.NoError(t, kahntest.CheckEvents(g, res, rec.Events()), name)
		require.Equal(t, kahn.RunFailed, res.Status, name)
		var all *kahn.RunError
		require.ErrorAs(t, err, &all, name)
		var failed []string
		for _, one := range all.Errs {
			var n *kahn.NodeError
			require.ErrorAs(t, one, &n, name)
			failed = append(failed, n.Node)
		}
		require.Equal(t, row.failed, failed, name)
		require.ErrorIs(t, err, errEscaped, name)
		require.Equal(t, len(row.opts) > 0, errors.Is(err, errHandled), name)
	}
}
