package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestLook observes a run while it runs, and after its end.
func TestLook(t *testing.T) {
	t.Parallel()
	inBubble(t, "a run", func(t *testing.T) {
		begun := time.Now()
		tries := 0
		g := graph(
			kahn.Node{ID: "a", Kind: "work", Label: "the first", Do: func(context.Context, *kahn.Step) (any, error) { return 7, nil }},
			kahn.Node{ID: "b", After: []string{"a"}, Do: takes(100 * ms)},
			kahn.Node{ID: "c", After: []string{"a"}, Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: 20 * ms, Multiplier: 1, Jitter: kahn.JitterNone}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				if tries++; tries < 3 {
					_, _ = takes(5*ms)(ctx, s)
					return nil, fmt.Errorf("try %d", tries)
				}
				return takes(50*ms)(ctx, s)
			}},
			kahn.Node{ID: "d", After: []string{"b", "c"}},
			kahn.Node{ID: "e", After: []string{"d"}},
		)
		g.Name = "looked at"
		rec := newRecorder()
		run, err := kahn.Start(t.Context(), g, nothing, kahn.RunID("r1"), kahn.OnEvent(rec.add))
		require.NoError(t, err)
		time.Sleep(60 * ms) // c fails at 5 ms, runs again from 25 to 30 ms, and continues at 50 ms
		synctest.Wait()

		require.Equal(t, "looked at", run.Name())
		require.Equal(t, begun, run.Started())
		p, err := g.Compile()
		require.NoError(t, err)
		require.Equal(t, p.Hash(), run.Plan().Hash())
		require.Equal(t, map[kahn.Status]int{kahn.Completed: 1, kahn.Running: 2, kahn.Waiting: 1, kahn.Idle: 1}, run.Counts())

		a, err := run.Node("a")
		require.NoError(t, err)
		require.Equal(t, []any{"a", "work", "the first", kahn.Completed, 7, 1, "r1"}, []any{a.ID, a.Kind, a.Label, a.Status, a.Output, a.Attempts, a.RunID})
		b, err := run.Node("b")
		require.NoError(t, err)
		require.Equal(t, []any{kahn.Running, begun, 60 * ms, nil}, []any{b.Status, b.Start, b.Duration, b.Output})
		c, err := run.Node("c")
		require.NoError(t, err)
		require.Equal(t, kahn.Running, c.Status)
		var history []string
		for _, x := range c.History() {
			end := "-"
			if !x.End.IsZero() {
				end = x.End.Sub(begun).String()
			}
			history = append(history, fmt.Sprintf("%d: %v to %s, %v, %v", x.Number, x.Start.Sub(begun), end, x.Err, x.Delay))
		}
		require.Equal(t, []string{"1: 0s to 5ms, try 1, 20ms", "2: 25ms to 30ms, try 2, 20ms", "3: 50ms to -, <nil>, 0s"}, history)
		require.Equal(t, "a:ok b:running c:running d:waiting e:idle", statusesOf(run.Nodes()))

		res, err := run.Wait()
		require.NoError(t, err)
		checkEvents(t, g, res, rec.all())
		require.Equal(t, map[kahn.Status]int{kahn.Completed: 5}, run.Counts())
		last, _ := res.Node("c")
		require.Equal(t, 3, len(last.History()))
		require.Equal(t, 100*ms, last.History()[2].End.Sub(begun))
		for n := range res.Nodes() {
			looked, err := run.Node(n.ID)
			require.NoError(t, err)
			looked.RunID = ""
			require.Equal(t, n, looked)
		}
	})
	inBubble(t, "failures", func(t *testing.T) {
		g := graph(
			kahn.Node{ID: "bad", Do: always(errStep)}, after("victim", "bad"), kahn.Node{ID: "off", Disabled: true},
			kahn.If("ok?", func(kahn.View) (bool, error) { return true, nil }), kahn.Node{ID: "no", In: []kahn.Edge{{From: "ok?", Label: "false"}}}, branch("yes", "ok?", "true"),
			kahn.Node{ID: "slow", Do: takes(time.Second)},
		)
		run, err := kahn.Start(t.Context(), g, nothing)
		require.NoError(t, err)
		synctest.Wait()
		looks := slices.Collect(run.Nodes())
		require.Equal(t, "bad:F victim:X off:S/ann ok?:ok no:S/br yes:ok slow:running", statusesOf(run.Nodes()))
		require.ErrorIs(t, looks[0].Err, errStep)
		require.Equal(t, kahn.CauseStepError, looks[0].Cause.Kind)
		require.Equal(t, errStep, looks[0].History()[0].Err)
		require.Equal(t, []string{"bad"}, looks[1].Cause.Origins)
		require.Equal(t, []string{"true"}, looks[3].Labels)
		require.Equal(t, "ok?", looks[4].Skip.Node)
		res, _ := run.Wait()
		for i, n := range slices.Collect(res.Nodes()) {
			if n.Status != kahn.Completed || n.ID == "ok?" {
				looks[i].RunID = ""
				require.Equal(t, n, looks[i])
			}
		}
	})
	inBubble(t, "a pending run", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		first, err := rn.Start(t.Context(), graph(kahn.Node{ID: "a", Do: takes(10 * ms)}), nil)
		require.NoError(t, err)
		second, err := rn.Start(t.Context(), graph(after("b")), nothing)
		require.NoError(t, err)
		require.Zero(t, second.Started())
		require.Equal(t, map[kahn.Status]int{kahn.Idle: 1}, second.Counts())
		y, err := second.Why("b")
		require.NoError(t, err)
		require.Equal(t, kahn.Why{Kind: kahn.WhyPending}, y)
		began := first.Started()
		_, _ = second.Wait()
		require.Equal(t, 10*ms, second.Started().Sub(began))
		require.Equal(t, map[kahn.Status]int{kahn.Completed: 1}, second.Counts())
	})
}

// After Dispose has ended the observation of a State, the State still returns counts.
func TestLookAfterDispose(t *testing.T) {
	t.Parallel()
	inBubble(t, "disposed", func(t *testing.T) {
		run, err := kahn.Start(t.Context(), graph(kahn.Node{ID: "a", Do: takes(10 * ms)}, kahn.Node{ID: "b", After: []string{"a"}, Do: takes(10 * ms)}), nil)
		require.NoError(t, err)
		require.Equal(t, 2, run.Counts()[kahn.Running]+run.Counts()[kahn.Ready]+run.Counts()[kahn.Waiting]+run.Counts()[kahn.Idle])
		run.State().Dispose()
		time.Sleep(15 * ms)
		require.Equal(t, map[kahn.Status]int{kahn.Completed: 1, kahn.Running: 1}, run.Counts())
		status, err := run.WaitFor(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, kahn.Completed, status)
		_, err = run.Wait()
		require.NoError(t, err)
	})
}

// Lookers, waiters and observers of a pending run that will resume from a snapshot see the state of the snapshot once the run begins.
func TestLookAtPendingResumption(t *testing.T) {
	t.Parallel()
	inBubble(t, "resumed", func(t *testing.T) {
		g := graph(after("a"), gate("g", "a"), after("b", "g"), kahn.Node{ID: "off", Disabled: true})
		res, err := kahn.Execute(t.Context(), g, nothing)
		require.NoError(t, err)
		rn := &kahn.Runner{MaxRuns: 1}
		_, err = rn.Start(t.Context(), graph(kahn.Node{ID: "x", Do: takes(10 * ms)}), nil)
		require.NoError(t, err)
		run, err := rn.Start(t.Context(), g, nothing, kahn.Resume(res.Snapshot()))
		require.NoError(t, err)
		require.Equal(t, kahn.RunPending, run.Status())
		ref, _ := run.Plan().Ref("a")
		signal := run.State().StatusSignal(ref)
		ready := run.State().ReadySignal(ref)
		count := run.State().CountSignal(kahn.Completed)
		gateRef, _ := run.Plan().Ref("g")
		waits := run.State().StatusSignal(gateRef)
		waited := make(chan error, 1)
		go func() {
			status, err := run.WaitFor(t.Context(), "a")
			if err == nil && status != kahn.Completed {
				err = fmt.Errorf("it is %v", status)
			}
			waited <- err
		}()
		var seen []string
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for id, status := range run.Watch(t.Context()) {
				seen = append(seen, fmt.Sprint(id, ":", status))
			}
		}()
		synctest.Wait()
		time.Sleep(15 * ms)
		synctest.Wait()
		require.NoError(t, <-waited)
		require.Equal(t, kahn.Completed, signal.Load())
		require.True(t, ready.Load())
		require.Equal(t, kahn.Suspended, waits.Load())
		require.Equal(t, 1, count.Load())
		require.Equal(t, map[kahn.Status]int{kahn.Completed: 1, kahn.Suspended: 1, kahn.Waiting: 1, kahn.Skipped: 1}, run.Counts())
		require.NoError(t, run.Signal(context.Background(), "g", 1))
		_, err = run.Wait()
		require.NoError(t, err)
		<-watched
		for _, last := range []string{"a:completed", "g:suspended", "g:completed", "b:completed", "off:skipped"} {
			require.Contains(t, seen, last)
		}
		require.Equal(t, 3, count.Load())
		require.Equal(t, kahn.Completed, waits.Load(), "a node that was restored is observed on")
	})
}

// statusesOf renders statuses in the notation of the tests, but writes non-terminal statuses in full.
func statusesOf(nodes func(func(kahn.NodeResult) bool)) string {
	var texts []string
	for n := range nodes {
		text := n.Status.String()
		if n.Status.Terminal() {
			text = shortStatus(n)
		}
		texts = append(texts, n.ID+":"+text)
	}
	return strings.Join(texts, " ")
}

// Paths name nodes in items, iterations, sub-graphs and returned graphs, at any depth. The error for an invalid path says why no node has it.
func TestLookInside(t *testing.T) {
	t.Parallel()
	inBubble(t, "paths", func(t *testing.T) {
		waits := graph(kahn.Node{ID: "x", Do: takes(20 * ms)}, kahn.Node{ID: "y", After: []string{"x"}, Kind: kahn.KindGate})
		g := graph(
			kahn.Node{ID: "S", Sub: waits},
			kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []string{"p", "q"}}, Sub: waits},
			kahn.Node{ID: "L", Sub: graph(kahn.Node{ID: "z", Do: takes(15 * ms)}), Loop: &kahn.Loop{While: func(kahn.View) (bool, error) { return true, nil }, MaxIterations: 9}},
			kahn.Node{ID: "E", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
				return nil, kahn.Expand(graph(kahn.Node{ID: "in", Sub: graph(kahn.Node{ID: "deep", Do: takes(time.Second)})}), nil, nil)
			}},
			kahn.Node{ID: "later", After: []string{"S"}, Sub: waits},
			kahn.Node{ID: "list", After: []string{"S"}, Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1}}},
			kahn.Node{ID: "off", Disabled: true, Sub: waits},
		)
		run, err := kahn.Start(t.Context(), g, nothing, kahn.RunID("r"))
		require.NoError(t, err)
		time.Sleep(40 * ms)
		synctest.Wait()
		for path, want := range map[string]kahn.Status{
			"S": kahn.Suspended, "S/x": kahn.Completed, "S/y": kahn.Suspended, "M": kahn.Suspended, "M[1]": kahn.Suspended, "M[0]/y": kahn.Suspended,
			"L": kahn.Running, "L#3/z": kahn.Running, "E": kahn.Running, "E/in": kahn.Running, "E/in/deep": kahn.Running, "later": kahn.Waiting,
		} {
			n, err := run.Node(path)
			require.NoError(t, err, path)
			require.Equal(t, want, n.Status, path)
			require.Equal(t, path, n.ID)
			_, err = run.Why(path)
			require.NoError(t, err)
			_, _, err = run.Inputs(path)
			require.NoError(t, err)
		}
		for path, want := range map[string]string{
			"S":    "S/x:ok S/y:suspended",
			"M":    "M[0]:suspended M[1]:suspended",
			"M[1]": "M[1]/x:ok M[1]/y:suspended",
			"L":    "L#3/z:running",
			"E":    "E/in:running",
			"E/in": "E/in/deep:running",
		} {
			in, err := run.Inside(path)
			require.NoError(t, err, path)
			require.Equal(t, want, statusesOf(slices.Values(in.Nodes)), path)
			require.Equal(t, len(in.Nodes), in.Plan.Len())
			for i, n := range in.Nodes {
				ref, ok := in.Plan.Ref(strings.TrimPrefix(n.ID, in.Prefix))
				require.True(t, ok, n.ID)
				require.Equal(t, i, int(ref))
			}
		}
		in, err := run.Inside("later")
		require.NoError(t, err)
		require.Equal(t, 2, in.Plan.Len())
		require.Nil(t, in.Nodes)
		in, err = run.Inside("list")
		require.NoError(t, err)
		require.Equal(t, kahn.Inside{}, in)
		in, err = run.Inside("L")
		require.NoError(t, err)
		require.Equal(t, 3, in.Iteration)
		_, err = run.Inside("S/x")
		require.ErrorIs(t, err, kahn.ErrBadValue)

		for path, want := range map[string]string{
			"":          `unknown node: ""`,
			"T":         `unknown node: "T"`,
			"S/z":       `unknown node: "S/z"; did you mean "S/x"? (there is "S/x", "S/y")`,
			"S/x/y":     `unknown node: "S/x/y"`,
			"M[2]":      `unknown node: "M[2]"; did you mean "M[0]"? (there is "M[0]", "M[1]")`,
			"M/x":       `unknown node: "M/x"`,
			"M[0]/q":    `unknown node: "M[0]/q"`,
			"L#2/z":     `unknown node: "L#2/z": "L" is at iteration 3`,
			"L/z":       `unknown node: "L/z": "L" is at iteration 3`,
			"later/x":   `unknown node: "later/x": "later" has not begun`,
			"list[0]":   `unknown node: "list[0]": "list" has not begun`,
			"off/x":     `unknown node: "off/x": "off" is skipped, and nothing in it was performed`,
			"E/in/dee":  `unknown node: "E/in/dee"; did you mean "E/in/deep"? (there is "E/in/deep")`,
			"E/nothing": `unknown node: "E/nothing" (there is "E/in")`,
		} {
			for name, err := range map[string]error{
				"Node": second(run.Node(path)), "Why": second(run.Why(path)), "Inputs": third(run.Inputs(path)), "Inside": second(run.Inside(path)), "RetryNow": nil,
			} {
				if name == "RetryNow" {
					continue
				}
				var e *kahn.PathError
				require.ErrorIs(t, err, kahn.ErrUnknownNode, name+" "+path)
				require.ErrorAs(t, err, &e)
				require.Contains(t, err.Error(), want, name)
				require.Equal(t, path, e.Path)
			}
		}
		run.Cancel()
		res, _ := run.Wait()
		n, err := run.Node("E/in/deep")
		require.NoError(t, err, "what has ended can be looked at, too")
		require.Equal(t, kahn.Cancelled, n.Status)
		sub, _ := res.Node("E")
		in2, _ := sub.Sub.Node("in")
		require.Equal(t, kahn.Cancelled, in2.Status)
	})
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

// Inputs returns the inputs with which the step was called. For a node that has not started, it returns the inputs that are known so far.
func TestLookAtInputs(t *testing.T) {
	t.Parallel()
	inBubble(t, "inputs", func(t *testing.T) {
		given := map[string]map[string]any{}
		var mu sync.Mutex
		notes := func(d time.Duration) kahn.StepFunc {
			return func(ctx context.Context, s *kahn.Step) (any, error) {
				mu.Lock()
				given[s.Path()] = s.Params()
				mu.Unlock()
				_, err := takes(d)(ctx, s)
				return map[string]any{"from": s.ID(), "user": map[string]any{"name": "ann"}}, err
			}
		}
		g := graph(
			kahn.Node{ID: "a", Do: notes(10 * ms), Params: map[string]any{"static": 1}},
			kahn.Node{ID: "b", Do: notes(50 * ms), In: []kahn.Edge{{From: "a", Param: "rows"}, {From: "a", Key: "user.name", Param: "name"}}},
			kahn.Node{ID: "slow", Do: notes(100 * ms)},
			kahn.Node{ID: "c", Do: notes(0), In: []kahn.Edge{{From: "a", Param: "one"}, {From: "slow", Param: "two"}, {From: "a", Param: "all", Merge: kahn.MergeArray}, {From: "slow", Param: "all", Merge: kahn.MergeArray}},
				Params: map[string]any{"other": "x"}},
			kahn.Node{ID: "any", Join: kahn.AnySucceeded, Do: notes(time.Second), In: []kahn.Edge{{From: "a", Param: "p"}, {From: "slow", Param: "q"}}},
			kahn.Node{ID: "bad", Do: always(errStep)},
			kahn.Node{ID: "default", Do: notes(10 * ms), OnUpstreamFailure: kahn.UpstreamSubstitute, Default: "instead", In: []kahn.Edge{{From: "worse", Param: "p"}}},
			kahn.Node{ID: "worse", Do: always(errStep)},
			kahn.Node{ID: "catch", Do: notes(10 * ms), In: []kahn.Edge{{From: "bad", On: kahn.OnFailure, Param: "err"}}},
			kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []string{"p", "q"}}, Do: notes(time.Second)},
			kahn.Node{ID: "S", Params: map[string]any{"in": 5}, Sub: graph(kahn.Node{ID: "x", Do: notes(time.Second), Ports: []kahn.Port{{Name: "in"}, {Name: "lack", Default: 3}}})},
			kahn.Node{ID: "merged", Do: notes(time.Second), In: []kahn.Edge{{From: "a", Param: "all", Merge: kahn.MergeArray}, {From: "b", Param: "all", Merge: kahn.MergeArray}}},
		)
		run, err := kahn.Start(t.Context(), g, nil)
		require.NoError(t, err)
		time.Sleep(30 * ms)
		synctest.Wait()
		look := func(path string) map[string]any {
			params, _, err := run.Inputs(path)
			require.NoError(t, err)
			return params
		}
		expect := func(path string, params map[string]any, open ...string) {
			gotParams, gotOpen, err := run.Inputs(path)
			require.NoError(t, err)
			require.Equal(t, params, gotParams, path)
			require.Equal(t, open, gotOpen, path)
		}
		out := map[string]any{"from": "a", "user": map[string]any{"name": "ann"}}
		expect("b", map[string]any{"rows": out, "name": "ann"})
		expect("c", map[string]any{"one": out, "other": "x"}, "all", "two")
		expect("any", map[string]any{"p": out}) // a predecessor that had not ended when the join decided never delivers
		expect("M[1]", map[string]any{"item": "q", "index": 1, "list": []string{"p", "q"}})
		expect("S/x", map[string]any{"in": 5, "lack": 3})
		_, open, err := run.Inputs("merged")
		require.NoError(t, err)
		require.Equal(t, []string{"all"}, open)
		for range 3 {
			mu.Lock()
			for path, want := range given {
				got := look(path)
				require.True(t, reflect.DeepEqual(want, got), "%s: %v, was given %v", path, got, want)
			}
			mu.Unlock()
			time.Sleep(200 * ms)
		}
		require.ErrorIs(t, look("catch")["err"].(error), errStep)
		require.Equal(t, "instead", look("default")["p"])
		require.Len(t, given, 11)
		_, _ = run.Wait()
		for path := range given {
			require.Equal(t, given[path], look(path), path)
		}
	})
	t.Run("clones", func(t *testing.T) {
		fail := false
		clone := func(v any) any {
			if fail {
				panic("clone")
			}
			if m, ok := v.(map[string]any); ok {
				return maps.Clone(m)
			}
			return v
		}
		run, err := kahn.Start(t.Context(), graph(kahn.Node{ID: "a", Params: map[string]any{"m": map[string]any{"k": 1}}}), nothing, kahn.CloneInputs(clone))
		require.NoError(t, err)
		_, _ = run.Wait()
		params, _, err := run.Inputs("a")
		require.NoError(t, err)
		params["m"].(map[string]any)["k"] = 2
		params, _, err = run.Inputs("a")
		require.NoError(t, err)
		require.Equal(t, map[string]any{"k": 1}, params["m"])
		fail = true
		_, _, err = run.Inputs("a")
		var p *kahn.PanicError
		require.True(t, errors.As(err, &p))
	})
}

// A node keeps the history of its attempts after the end of the run and in later lives.
func TestHistoryOverLives(t *testing.T) {
	t.Parallel()
	inBubble(t, "history", func(t *testing.T) {
		tries := 0
		g := graph(kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: 10 * ms, Multiplier: 1, Jitter: kahn.JitterNone}, Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			time.Sleep(5 * ms)
			if tries++; tries < 3 {
				return nil, fmt.Errorf("try %d", tries)
			}
			return nil, nil
		}})
		begun := time.Now()
		run, err := kahn.Start(t.Context(), g, nil)
		require.NoError(t, err)
		time.Sleep(7 * ms)
		run.Leave()
		res, _ := run.Wait()
		require.Equal(t, kahn.RunSuspended, res.Status)
		time.Sleep(time.Second)
		data, err := res.Snapshot().MarshalJSON()
		require.NoError(t, err)
		s := new(kahn.Snapshot)
		require.NoError(t, s.UnmarshalJSON(data))
		res, err = kahn.Execute(t.Context(), g, nil, kahn.Resume(s))
		require.NoError(t, err)
		n, _ := res.Node("a")
		var history []string
		for _, x := range n.History() {
			history = append(history, fmt.Sprintf("%d: %v to %v, %v, %v", x.Number, x.Start.Sub(begun).Round(ms), x.End.Sub(begun).Round(ms), x.Err, x.Delay))
		}
		require.Equal(t, []string{"1: 0s to 5ms, try 1, 10ms", "2: 1.007s to 1.012s, try 2, 10ms", "3: 1.022s to 1.027s, <nil>, 0s"}, history)
	})
}

// A path may come from outside the program, be very long and name no node. The lookup takes no longer than other lookups.
func TestLookAlongLongPaths(t *testing.T) {
	t.Parallel()
	inside := graph(after("x"), kahn.Node{ID: "ask", Kind: kahn.KindGate})
	g := graph(kahn.Node{ID: "S", Sub: inside}, kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": numbers(20)}, Sub: inside},
		kahn.Node{ID: "L", Sub: inside, Loop: &kahn.Loop{MaxIterations: 1, While: func(kahn.View) (bool, error) { return false, nil }}})
	run, err := kahn.Start(t.Context(), g, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.WaitFor(t.Context(), "S", kahn.Suspended); err != nil {
		t.Fatal(err)
	}
	looks := map[string]func(path string) error{
		"Node":     func(path string) error { return second(run.Node(path)) },
		"Why":      func(path string) error { return second(run.Why(path)) },
		"Inside":   func(path string) error { return second(run.Inside(path)) },
		"Inputs":   func(path string) error { return third(run.Inputs(path)) },
		"RetryNow": run.RetryNow,
	}
	done := make(chan error, 1)
	go func() {
		const size = 1 << 20
		for _, start := range []string{"", "S", "S/", "M[0]/", "L#1/", "nobody"} {
			for _, rest := range []string{"/", "S/", "[", "#1/"} {
				path := start + strings.Repeat(rest, size/len(rest))
				for name, look := range looks {
					if err := look(path); !errors.Is(err, kahn.ErrUnknownNode) || len(err.Error()) > 10_000 {
						done <- fmt.Errorf("%s of %.20q...: %.200v", name, path, err)
						return
					}
				}
				if err := run.Signal(context.Background(), path, true); !errors.Is(err, kahn.ErrUnknownGate) {
					done <- fmt.Errorf("Signal of %.20q...: %.200v", path, err)
					return
				}
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the time that a path takes grows faster than the path")
	}
	run.Cancel()
	if _, err := run.Wait(); !errors.Is(err, kahn.ErrCancelled) {
		t.Error(err)
	}
}

// If a composite was suspended when its run ended, its duration no longer changes.
func TestDurationOfASuspendedComposite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside := graph(after("x"), kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"x"}})
		g := graph(kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "T", Sub: inside})})
		run, err := kahn.Start(t.Context(), g, takes(70*ms))
		require.NoError(t, err)
		time.Sleep(100 * ms)
		run.Leave()
		res, err := run.Wait()
		require.NoError(t, err)
		time.Sleep(time.Second)
		outer, _ := res.Node("S")
		inner, _ := outer.Sub.Node("T")
		if lasts := [...]time.Duration{res.Duration, outer.Sub.Duration, inner.Sub.Duration}; lasts != [...]time.Duration{100 * ms, 100 * ms, 100 * ms} {
			t.Errorf("the runs lasted %v", lasts)
		}
		for path, told := range map[string]kahn.NodeResult{"S": outer, "S/T": inner} {
			n, err := run.Node(path)
			if err != nil || n.Duration != 100*ms || told.Duration != n.Duration || n.Status != kahn.Suspended {
				t.Errorf("%s has been %v for %v, error %v; the Result says %v", path, n.Status, n.Duration, err, told.Duration)
			}
		}
	})
}
