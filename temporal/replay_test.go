package temporal

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// The workflows and activities in these folders are named after graphs and kinds, and the calls in shortHistories are short. The other histories come
// from former versions.
const (
	namedHistories = "named"
	shortHistories = "short"
)

// recorded is a run whose histories are in testdata/histories. TestServerHistories recorded them from a real service.
type recorded struct {
	graph    func(guard bool) *kahn.Graph
	settings Settings
	options  Options
	// answers are given to gates when they wait; cancel cancels the run at that time, and stop cancels the workflow in Temporal.
	answers      map[string]any
	cancel, stop bool
	// redrive redrives the run after its end, as an operator does; may be nil.
	redrive func(ctx context.Context, run *Run) (*Run, error)
	// adopts is another version of the graph, to which an operator moves the run when it waits; may be nil.
	adopts func(guard bool) *kahn.Graph
}

func recordedStep(_ context.Context, s *kahn.Step) (any, error) {
	switch {
	case s.Kind() == "refund" && s.Attempt() == 1:
		return nil, kahn.Permanent(errStep)
	case s.Compensating():
		return nil, nil
	case strings.HasPrefix(s.ID(), "flaky") && s.Attempt() < 3:
		return nil, errStep
	case strings.HasPrefix(s.ID(), "bad"):
		return nil, kahn.Permanent(errStep)
	case strings.HasPrefix(s.ID(), "list"):
		return []any{"x", "y", "z"}, nil
	}
	return s.Path(), nil
}

var retried = &kahn.Retry{MaxAttempts: 3, InitialDelay: 20 * time.Millisecond}

// shipsQueue is the task queue of the workflow "ship" in the recorded histories.
const shipsQueue = "ships"

var records = map[string]recorded{
	"plain":  {graph: inNotation("flaky>b b>bad bad-!>catch bad>never b>d d~>e"), settings: Settings{DefaultRetry: retried, Limit: 2}},
	"gates":  {graph: inNotation("a>ask ask-[yes]>b ask-[no]>c b>again c>again again{gate} ask{gate}"), answers: map[string]any{"ask": "yes", "again": 7.0}},
	"cancel": {graph: inNotation("a>ask ask>b b>clean ask{gate} clean{clean}"), cancel: true},
	"stop":   {graph: inNotation("a>ask ask>b b>clean ask{gate} clean{clean}"), stop: true},
	"long":   {graph: inNotation("n0>n1 n1>n2 n2>n3 n3>n4 n4>n5 flaky>x x>y y>z"), settings: Settings{DefaultRetry: retried}, options: Options{ContinueAfter: 4}},
	"nested": {graph: nested, settings: Settings{DefaultRetry: retried, KeyLimit: 1, Mode: kahn.Waves}, options: Options{Pure: true}},
	"map": {graph: func(bool) *kahn.Graph {
		return overItems(13, kahn.Map{}, kahn.Node{Sub: inNotation("flaky>ask ask>b ask{gate}")(true)})
	}, settings: Settings{DefaultRetry: retried, MapChildren: 5}, answers: mapAnswers()},
	"recorded": {graph: func(guard bool) *kahn.Graph {
		inner := inNotation("x")(true)
		return new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}, When: func(kahn.View) (bool, error) { return guard, nil }},
			kahn.Node{ID: "loop", After: []string{"a"}, Sub: inner, Loop: &kahn.Loop{MaxIterations: 9, While: func(v kahn.View) (bool, error) { return guard && v.Iteration() < 3, nil }}},
			kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"b"}},
			kahn.Node{ID: "test", After: []string{"ask"}, Test: func(kahn.View) (any, error) { return map[bool]any{true: "left", false: "right"}[guard], nil }},
			kahn.Node{ID: "l", In: []kahn.Edge{{From: "test", Label: "left"}}}, kahn.Node{ID: "r", In: []kahn.Edge{{From: "test", Label: "right"}}})
	}, answers: map[string]any{"ask": 1.0}},
	// The operator repeats the compensation "refund", which has failed in all its attempts.
	"saga": {graph: func(ordered bool) *kahn.Graph {
		charge := kahn.Node{ID: "charge", CompensateBy: &kahn.CompensateBy{Kind: "refund"}}
		if ordered {
			charge.After = []string{"reserve"}
		}
		return new(kahn.Graph).Add(kahn.Node{ID: "reserve", CompensateBy: &kahn.CompensateBy{Kind: "release"}}, charge,
			kahn.Node{ID: "pack", After: []string{"reserve", "charge"}, CompensateBy: &kahn.CompensateBy{Kind: "unpack"}}, kahn.Node{ID: "badly", After: []string{"pack"}})
	}, settings: Settings{Limit: 1}, redrive: func(ctx context.Context, run *Run) (*Run, error) {
		return run.Redrive(ctx, []string{"charge"}, kahn.Request{Actor: "ann"}, kahn.RepeatCompensations)
	}},
	// A workflow of the host, on a task queue of its own, performs a step in its second attempt.
	"workflow": {graph: func(bool) *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "ship", Kind: "ship", After: []string{"a"}}, kahn.Node{ID: "b", After: []string{"ship"}}, kahn.Node{ID: "c", After: []string{"b"}})
	}, settings: Settings{DefaultRetry: retried}, options: Options{ContinueAfter: 3, Kinds: map[string]Kind{"ship": {
		TaskQueue: shipsQueue, Workflow: func(s *kahn.Step) (StepWorkflow, error) {
			return StepWorkflow{Type: "ship", Args: []any{parcel{Order: "17", Label: fmt.Sprint(s.Attempt())}}}, nil
		},
	}}}},
	"adopt": {graph: func(bool) *kahn.Graph { return letters("small", kahn.Node{ID: "old", After: []string{"fetch"}}) }, adopts: func(bool) *kahn.Graph { return letters("large", kahn.Node{ID: "new"}) },
		answers: map[string]any{"approve": "yes"}},
	"guard": {graph: func(guard bool) *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}, When: func(kahn.View) (bool, error) { return guard, nil }},
			kahn.Node{ID: "c", After: []string{"a"}})
	}, options: Options{Pure: true}},
}

// earlier are runs whose histories TestServerHistories does not write.
var earlier = map[string]recorded{
	// Temporal was asked to cancel the run just before it would have continued as new; recorded by TestServerCancelAtTheEnd.
	"cancelatend": {graph: inNotation("a>b"), options: Options{ContinueAfter: 1}},
	// Recorded by a version in which a cancellation by Temporal abandoned the running step at once, because the event before was older than CancelGrace.
	"late": {graph: inNotation("a>b b>clean clean{clean}")},
	// Recorded by a version without child workflows for large maps.
	"unbatched": {graph: func(bool) *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "M", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []any{1., 2., 3., 4., 5., 6.}}, Sub: inNotation("flaky>b")(true)})
	}, settings: Settings{DefaultRetry: retried, MapChildren: 4}},
}

// mapAnswers returns the answers to the gates of the items.
func mapAnswers() map[string]any {
	answers := map[string]any{}
	for i := range 13 {
		answers[fmt.Sprintf("M[%d]/ask", i)] = "yes"
	}
	return answers
}

func inNotation(text string) func(bool) *kahn.Graph {
	return func(bool) *kahn.Graph {
		nodes, edges, err := kahntest.Parse(text)
		if err != nil {
			panic(err)
		}
		return new(kahn.Graph).Add(nodes...).Connect(edges...)
	}
}

func nested(bool) *kahn.Graph {
	inner := inNotation("a>flaky")(true)
	twice := func(v kahn.View) (bool, error) { return v.Iteration() == 2, nil }
	return new(kahn.Graph).Add(
		kahn.Node{ID: "list"},
		kahn.Node{ID: "each", In: []kahn.Edge{{From: "list", Param: "items"}}, Map: &kahn.Map{Over: "items", Limit: 2}, Sub: inner},
		kahn.Node{ID: "loop", After: []string{"list"}, Sub: inner, Loop: &kahn.Loop{Until: twice, MaxIterations: 3, Pause: 30 * time.Millisecond}, Key: "k"},
		kahn.Node{ID: "items", In: []kahn.Edge{{From: "each", Param: "items"}}, Map: &kahn.Map{Over: "items"}},
	)
}

// replay replays the recorded histories of a run with the current plan. Tests that replay the same histories must not be parallel, because the
// replayers of the SDK share a cache of executions.
func replay(t *testing.T, name string, guard bool) (files int, err error) {
	r, ok := records[name]
	if !ok {
		r = earlier[name]
	}
	o := r.options
	o.Step, o.Plans = recordedStep, []*kahn.Plan{plan(t, r.graph(guard))}
	if r.adopts != nil {
		o.Plans = append(o.Plans, plan(t, r.adopts(guard)))
	}
	var found []string
	for _, folder := range []string{"", namedHistories, shortHistories} {
		list, err := filepath.Glob(filepath.Join("testdata", "histories", folder, name+"-*.json"))
		require.NoError(t, err)
		found = append(found, list...)
	}
	require.NotEmpty(t, found, name)
	for _, file := range found {
		replayer, err := o.Replayer()
		require.NoError(t, err)
		if err := replayer.ReplayWorkflowHistoryFromJSONFile(discard, file); err != nil {
			return len(found), err
		}
	}
	return len(found), nil
}

// TestReplay: this version makes the same decisions as the versions that recorded the histories of a real service.
func TestReplay(t *testing.T) {
	files := 0
	for _, all := range []map[string]recorded{records, earlier} {
		for name := range all {
			n, err := replay(t, name, true)
			require.NoError(t, err, name)
			files += n
		}
	}
	recorded := 0
	require.NoError(t, fs.WalkDir(os.DirFS("testdata"), "histories", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			recorded++
		}
		return err
	}))
	require.Equal(t, recorded, files, "a history that no test replays")
}

// TestReplayFinds makes guards random and declares them as pure: at least one replay must fail for each guard. If the guards are not declared as
// pure, their results are in the history, and the replay succeeds.
func TestReplayFinds(t *testing.T) {
	order := map[int]bool{}
	for i := range 8 {
		order[i] = i%2 == 0
	}
	for name, guard := range map[string]func() bool{
		"another answer": func() bool { return false },
		"the time":       func() bool { return time.Now().UnixMicro()%3 > 0 },
		"the order of a map": func() bool {
			for _, first := range order {
				return first
			}
			return false
		},
	} {
		var err error
		for tries := 0; err == nil && tries < 100; tries++ { // a random guard may return the recorded result by chance
			_, err = replay(t, "guard", guard())
		}
		require.ErrorContains(t, err, "TMPRL1100", "%s: the code of histories that do not fit", name)
		_, err = replay(t, "recorded", guard())
		require.NoError(t, err, name)
	}
}
