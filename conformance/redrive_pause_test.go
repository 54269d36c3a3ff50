package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// A loop is stopped in a pause in which the run was resumed, once or more often. A redrive keeps the iterations that have ended, and pauses again
// before the next one, as if the run had not been resumed, also if the run was left again between the stop and its end.
func TestRedriveOfALoopThatWasStoppedInAResumedPause(t *testing.T) {
	for _, stored := range []bool{false, true} {
		for _, outer := range []string{"", "s/", "m[0]/"} {
			for lives := range 4 {
				for _, row := range []struct{ name, want string }{
					{"", "L#3/x L#4/x"}, {"L", "L#3/x L#4/x"}, {"L#3", "L#3/x L#4/x"}, {"L#3/x", "L#3/x L#4/x"}, {"L#2", "L#2/x L#3/x L#4/x"},
				} {
					inBubble(t, fmt.Sprintf("stored %v, in %q, %d lives, %q", stored, outer, lives, row.name), func(t *testing.T) {
						if lives == 0 && (row.name == "L#3" || row.name == "L#3/x") {
							return // the third iteration is known only in a later life
						}
						testRedrivenPause(t, stored, outer, lives, row.name, row.want)
					})
				}
			}
		}
	}
}

// testRedrivenPause leaves the run in the second pause of the loop, as often as `lives` says. The outermost loop is stopped before the run is left for the
// third time; all other loops are stopped with the run.
func testRedrivenPause(t *testing.T, stored bool, outer string, lives int, name, want string) {
	var called string
	begun := map[string]time.Time{}
	x := kahn.Node{ID: "x", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		called += " " + s.Path()[len(outer):]
		begun[s.Path()[len(outer):]] = time.Now()
		return s.Iteration(), nil
	}}
	loop := kahn.Node{ID: "L", Sub: graph(x), Loop: &kahn.Loop{MaxIterations: 4, Collect: true, Pause: time.Hour, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}}
	inner := graph(loop, kahn.Node{ID: "ask", Kind: kahn.KindGate})
	g := inner
	switch outer {
	case "s/":
		g = graph(kahn.Node{ID: "s", Sub: inner})
	case "m[0]/":
		g = graph(kahn.Node{ID: "m", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []int{1}}, Sub: inner})
	}
	opts := []kahn.Option{kahn.RunID("r")}
	if stored {
		opts = append(opts, kahn.Durable(new(store.Memory)))
	}
	began := time.Now()
	run, err := kahn.Start(t.Context(), g, nil, opts...)
	require.NoError(t, err)
	time.Sleep(90 * time.Minute) // two iterations have ended
	for life := range lives {
		if life == 2 && outer == "" {
			require.NoError(t, run.CancelNode("L"))
		}
		synctest.Wait()
		run.Leave()
		res, err := run.Wait()
		require.NoError(t, err)
		again := opts[:len(opts):len(opts)]
		if !stored {
			again = append(again, kahn.Resume(reload(t, res.Snapshot())))
		}
		run, err = kahn.Start(t.Context(), g, nil, again...)
		require.NoError(t, err)
		synctest.Wait()
	}
	require.NoError(t, run.Cancel())
	res, err := run.Wait()
	require.ErrorIs(t, err, kahn.ErrCancelled)
	require.Equal(t, " L#1/x L#2/x", called)
	called = ""
	from := reload(t, res.Snapshot())
	if stored {
		from = nil
	}
	var names []string
	if name != "" {
		names = []string{outer + name}
	}
	run, err = kahn.Start(t.Context(), g, nil, append(opts[:len(opts):len(opts)], kahn.Redrive(from, names))...)
	require.NoError(t, err)
	synctest.Wait()
	if name == "" {
		require.NoError(t, run.Signal(t.Context(), outer+"ask", nil))
	}
	res, _ = run.Wait()
	switch outer {
	case "s/":
		res = must(res.Node("s")).Sub
	case "m[0]/":
		res = must(must(res.Node("m")).Sub.Node("m[0]")).Sub
	}
	require.Equal(t, " "+want, called)
	if name == "" || name == "L" {
		require.Equal(t, 150*time.Minute, begun["L#3/x"].Sub(began), "the loop pauses again")
	}
	require.Equal(t, kahn.Completed, must(res.Node("L")).Status)
	require.Equal(t, []any{1, 2, 3, 4}, must(res.Node("L")).Output)
}
