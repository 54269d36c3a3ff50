package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/sagas"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// linesOf describes the statuses, causes and compensations in a Result at every depth. A Result that was read from a file or a store has no nested
// Results of expanded nodes, so linesOf omits nested Results of nodes that have no nested Result in `like`.
//
// The cause of a nested run lists the compensations that had failed when the nested run ended, but a Result that was read lists all that failed inside.
// So linesOf compares this list for the outermost run only.
func linesOf(res, like *kahn.Result, prefix string) (lines []string) {
	errs := sortedText(res.Cause.Err)
	if prefix != "" && res.Cause.Kind == kahn.CauseCompensationFailed {
		errs = nil
	}
	lines = append(lines, fmt.Sprintf("%q: %v, degraded %t, %v of %v: %v, %v", prefix, res.Status, res.Degraded, res.Cause.Kind, res.Cause.Origins, errs, res.Output()))
	for n := range res.Nodes() {
		undoing := "no attempt"
		if u := n.Undoing; u != nil {
			undoing = fmt.Sprint(u.Attempts, u.Certain, u.Ended.Sub(u.Began), u.By)
		}
		lines = append(lines, fmt.Sprintf("%s%s: %s, %v of %v, attempts %d, %v, %v: %v, %s", prefix, n.ID, kahntest.Status(n.Status, n.Skip.Kind), n.Cause.Kind, n.Cause.Origins,
			n.Attempts, n.Output, n.Compensation, n.CompensationErr, undoing))
		if of, ok := like.Node(n.ID); ok && n.Sub != nil && of.Sub != nil {
			lines = append(lines, linesOf(n.Sub, of.Sub, prefix+n.ID+"/")...)
		}
	}
	return lines
}

// sortedText returns the lines of an error in alphabetical order. A run lists failed compensations in the order of failure, which its snapshot
// does not contain.
func sortedText(err error) []string {
	if err == nil {
		return nil
	}
	return slices.Sorted(strings.SplitSeq(err.Error(), "\n"))
}

// checkRead compares the Result of an ended run with the Results that are read from the run's snapshot and from the store.
func checkRead(t *testing.T, g *kahn.Graph, res *kahn.Result, s store.Store, opts ...kahn.Option) {
	t.Helper()
	check := func(read *kahn.Result, err error) {
		t.Helper()
		require.NotNil(t, read, err)
		require.Equal(t, linesOf(res, read, ""), linesOf(read, res, ""))
	}
	p := compiled(t, g)
	for _, snapshot := range []*kahn.Snapshot{res.Snapshot(), reload(t, res.Snapshot())} {
		check(snapshot.Result(p, opts...))
	}
	if s != nil {
		check(kahn.ReadResult(t.Context(), g, s, res.Snapshot().RunID(), opts...))
	}
}

// A composite completes, and the nodes inside are undone later because another node fails. Read from a snapshot, the nested run still has completed,
// even if a node inside could not be undone, and the items of a map, an iteration, and composites at greater depths are undone.
func TestUndoneNestedRunIsRead(t *testing.T) {
	for _, failure := range []error{nil, kahn.Permanent(errors.New("no such charge"))} {
		pay := kahn.Node{ID: "pay", Do: succeeds(1), Compensate: func(context.Context, *kahn.Step) error { return failure }}
		inner := graph(pay)
		expands := func(g *kahn.Graph) kahn.StepFunc {
			return func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(g, nil, nil) }
		}
		once := &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 3}
		list := map[string]any{"items": []int{1, 2}}
		composites := map[string]kahn.Node{
			"sub":              {Sub: inner},
			"map":              {Map: &kahn.Map{Over: "items"}, Params: list, Sub: inner},
			"map of subs":      {Map: &kahn.Map{Over: "items"}, Params: list, Sub: graph(kahn.Node{ID: "sub", Sub: inner})},
			"loop":             {Loop: once, Sub: inner},
			"loop of maps":     {Loop: once, Sub: graph(kahn.Node{ID: "map", Map: &kahn.Map{Over: "items"}, Params: list, Sub: inner})},
			"expanded":         {Do: expands(inner)},
			"expanded map":     {Do: expands(graph(kahn.Node{ID: "map", Map: &kahn.Map{Over: "items"}, Params: list, Sub: inner}))},
			"expanded loop":    {Do: expands(graph(kahn.Node{ID: "loop", Loop: once, Sub: inner}))},
			"expanded items":   {Map: &kahn.Map{Over: "items"}, Params: list, Do: expands(inner)},
			"loop of expanded": {Loop: once, Sub: graph(kahn.Node{ID: "plan", Do: expands(inner)})},
			"sub of expanded":  {Sub: graph(kahn.Node{ID: "plan", Do: expands(inner)})},
			"expanded twice":   {Do: expands(graph(kahn.Node{ID: "plan", Do: expands(inner)}))},
			"deep":             {Sub: graph(kahn.Node{ID: "sub", Sub: inner})},
		}
		for _, name := range slices.Sorted(maps.Keys(composites)) {
			inBubble(t, fmt.Sprint(name, ", ", failure), func(t *testing.T) {
				n := composites[name]
				n.ID = "order"
				g, memory := graph(n, kahn.Node{ID: "ship", After: []string{"order"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.NoEffect(errSoldOut) }}), new(store.Memory)
				res, err := kahn.Execute(t.Context(), g, nil, kahn.Durable(memory), kahn.RunID("r"))
				require.ErrorContains(t, err, errSoldOut.Error())
				require.Equal(t, kahn.RunCompleted, must(res.Node("order")).Sub.Status)
				checkRead(t, g, res, memory)
				for _, mode := range []kahn.RedriveMode{kahn.RepeatCompensations, kahn.CompensatedByHand} {
					if failure == nil {
						break
					}
					again, err := kahn.Execute(t.Context(), g, nil, kahn.Durable(memory), kahn.Redrive(nil, nil), mode, kahn.RunID("r"))
					require.ErrorContains(t, err, errSoldOut.Error())
					checkRead(t, g, again, memory)
				}
				again, err := kahn.Execute(t.Context(), g, nil, kahn.Durable(memory), kahn.Redrive(nil, []string{"order"}), kahn.DespiteHandlers, kahn.RunID("r"))
				require.ErrorContains(t, err, errSoldOut.Error())
				checkRead(t, g, again, memory)
			})
		}
	}
}

// notUndone returns a node whose compensation fails with the node's id, after the given time.
func notUndone(id string, lasts time.Duration) kahn.Node {
	return kahn.Node{ID: id, Do: nothing, CompensateRetry: kahn.Retry{MaxAttempts: 1}, Compensate: func(context.Context, *kahn.Step) error {
		time.Sleep(lasts)
		return errors.New(id)
	}}
}

// The errors of failed compensations are in the order of failure, also in a Result that is read and in a run that goes on in a later life.
func TestOrderOfFailedCompensations(t *testing.T) {
	t.Parallel()
	nodes := func() *kahn.Graph {
		return graph(notUndone("third", 3*time.Second), notUndone("first", time.Second), notUndone("second", 2*time.Second))
	}
	for name, g := range map[string]*kahn.Graph{
		"in the graph":      nodes(),
		"in a sub-graph":    graph(subgraph("S", nodes())),
		"in an expanded":    graph(kahn.Node{ID: "S", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(nodes(), nil, nil) }}),
		"in two sub-graphs": graph(subgraph("S", graph(subgraph("S", nodes())))),
	} {
		inBubble(t, name, func(t *testing.T) {
			g.Add(kahn.Node{ID: "last", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
				time.Sleep(time.Second)
				return nil, kahn.NoEffect(errSoldOut)
			}})
			memory, r := new(store.Memory), kahn.RunID("r")
			res, err := kahn.Execute(t.Context(), g, nil, kahn.Durable(memory), r)
			require.ErrorIs(t, err, errSoldOut)
			order := regexp.MustCompile(`(?s)first.*second.*third`)
			require.Regexp(t, order, res.Cause.Err.Error())
			read, err := kahn.ReadResult(t.Context(), g, memory, "r")
			require.ErrorContains(t, err, "sold out")
			require.Regexp(t, order, read.Cause.Err.Error())
			read, _ = reload(t, res.Snapshot()).Result(compiled(t, g))
			require.Regexp(t, order, read.Cause.Err.Error())
			res, err = kahn.Execute(t.Context(), g, nil, kahn.Durable(memory), r, kahn.Redrive(nil, nil), kahn.RepeatCompensations)
			require.Error(t, err)
			require.Regexp(t, order, res.Cause.Err.Error())
		})
	}
}

// A later process learns the graph of an expanded node. The errors of failed compensations inside keep the order of failure.
func TestOrderOfFailedCompensationsInside(t *testing.T) {
	t.Parallel()
	inBubble(t, "two lives", func(t *testing.T) {
		undone := graph(notUndone("second", 2*time.Second), notUndone("first", time.Second), kahn.Node{ID: "bad", After: []string{"second", "first"}, Do: always(errStep)})
		inner := graph(subgraph("S", undone), gate("G"))
		inner.Connect(kahn.Edge{From: "S", To: "G", On: kahn.OnFailure})
		g, memory := graph(kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner, nil, nil) }}), new(store.Memory)
		for range 2 {
			res, err := kahn.Execute(t.Context(), g, nil, kahn.Durable(memory), kahn.RunID("r"))
			require.NoError(t, err)
			e, _ := res.Node("E")
			s, _ := e.Sub.Node("S")
			require.Regexp(t, `(?s)first.*second`, s.Sub.Cause.Err.Error())
		}
	})
}

// The text of a run's error names each failed compensation once, at any depth. RunError.Errs has all of them.
func TestFailedCompensationsAreShownOnce(t *testing.T) {
	t.Parallel()
	inner := graph(notUndone("book", 0), kahn.Node{ID: "bad", After: []string{"book"}, Do: always(errStep)})
	_, err := kahn.Execute(t.Context(), graph(subgraph("S", inner), subgraph("T", graph(subgraph("U", inner)))), nil, kahn.Limit(1))
	require.Equal(t, `run failed (compensation_failed)
	node "S": subrun: run failed (compensation_failed)
		node "bad": step_error: the step broke
		node "S/book": compensation failed: book
	node "T": subrun: run failed (compensation_failed)
		node "U": subrun: run failed (compensation_failed)
			node "bad": step_error: the step broke
			node "T/U/book": compensation failed: book`, err.Error())
	failed := (*kahn.RunError)(nil)
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Errs, 4)
	undone := errors.Join(failed.Errs[2:]...)
	require.ErrorContains(t, undone, `node "S/book"`)
	require.ErrorContains(t, undone, `node "T/U/book"`)
}

// The Results of random sagas are the same when they are read, also after the runs were redriven.
func TestSagasAreRead(t *testing.T) {
	t.Parallel()
	undone, inside := 0, 0
	try := func(seed uint64, depth int) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d, depth %d", seed, depth)
				}
			}()
			w := sagas.New(seed)
			r := rand.New(rand.NewPCG(seed, 7))
			g, memory := w.Graph(r, depth), new(store.Memory)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			opts, host := sagas.Conditions(r, cancel)
			run, err := kahn.Start(ctx, g, nil, append(opts, kahn.Durable(memory), kahn.RunID("r"))...)
			require.NoError(t, err)
			host(run)
			res, _ := run.Wait()
			if !res.Status.Terminal() { // a gate waits
				return
			}
			checkRead(t, g, res, memory, opts...)
			for n := range res.Nodes() {
				if n.Compensation != kahn.CompensationNone {
					undone++
					if n.Sub != nil {
						inside++
					}
				}
			}
			modes := []kahn.RedriveMode{kahn.RepeatCompensations, kahn.CompensatedByHand, 0, kahn.DespiteHandlers}
			for range 2 {
				again, _ := kahn.Execute(t.Context(), g, nil, append(opts, kahn.Durable(memory), kahn.RunID("r"), kahn.Redrive(nil, nil), modes[r.IntN(len(modes))])...)
				if again != nil && again.Status.Terminal() {
					checkRead(t, g, again, memory, opts...)
				}
			}
		})
	}
	for depth := range 3 {
		for seed := range seeds(t, size(120, 30, 2000)) {
			try(seed, depth)
		}
	}
	// Once, nodes inside a composite with its own compensation did not count, and a redrive kept failures of nodes in a graph that it did not know yet.
	for _, seed := range []uint64{996000909, 996001696, 996002948} {
		try(seed, 2)
	}
	t.Log(undone, inside)
	require.Greater(t, inside, undone/10)
}
