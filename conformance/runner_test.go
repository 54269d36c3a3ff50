package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

func TestRunner(t *testing.T) {
	inBubble(t, "runs above the bound are pending and begin in the order of arrival", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 2}
		var begun []string
		started := make(chan string, 10)
		g := graph(kahn.Node{ID: "A", Do: func(ctx context.Context, s *kahn.Step) (any, error) {
			started <- s.RunID()
			return takes(time.Duration(1+len(started))*time.Second)(ctx, s) // all runs end at different times
		}})
		var runs []*kahn.Run
		for i := range 5 {
			run, err := rn.Start(t.Context(), g, nil, kahn.RunID(fmt.Sprint("r", i)))
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, run)
			synctest.Wait()
		}
		if got := []kahn.RunStatus{runs[0].Status(), runs[1].Status(), runs[2].Status(), runs[4].Status()}; !slices.Equal(got, []kahn.RunStatus{kahn.RunRunning, kahn.RunRunning, kahn.RunPending, kahn.RunPending}) {
			t.Errorf("statuses %v", got)
		}
		for i, run := range runs {
			res, err := run.Wait()
			if err != nil || res.Status != kahn.RunCompleted {
				t.Errorf("run %d took %v, %v", i, res.Duration, err)
			}
		}
		for range runs {
			begun = append(begun, <-started)
		}
		if strings.Join(begun, " ") != "r0 r1 r2 r3 r4" {
			t.Errorf("begun in the order %v", begun)
		}
		if run, ok := rn.Run("r3"); !ok || run != runs[3] {
			t.Error("r3 is not remembered")
		}
	})

	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		inBubble(t, fmt.Sprintf("a pending run is cancelled without a call, %v", mode), func(t *testing.T) {
			rn := &kahn.Runner{MaxRuns: 1}
			first, err := rn.Start(t.Context(), graph(kahn.Node{ID: "A", Do: takes(time.Second)}), nil)
			if err != nil {
				t.Fatal(err)
			}
			g := graph(after("A"), kahn.Node{ID: "K", Cleanup: true, After: []string{"A"}}, kahn.Node{ID: "Z", Kind: kahn.KindEnd})
			for name, stop := range map[string]func(run *kahn.Run, cancel func()){
				"Cancel":  func(run *kahn.Run, _ func()) { run.Cancel() },
				"context": func(_ *kahn.Run, cancel func()) { cancel() },
			} {
				ctx, cancel := context.WithCancel(t.Context())
				rec := newRecorder()
				run, err := rn.Start(ctx, g, neverStep(t), mode, kahn.OnEvent(rec.add))
				if err != nil {
					t.Fatal(err)
				}
				if err := run.CancelNode("A"); !errors.Is(err, kahn.ErrTransition) {
					t.Errorf("CancelNode: %v", err)
				}
				stop(run, cancel)
				res, err := run.Wait()
				cancel()
				r := trial{res, t, err, rec.all()}
				checkEvents(t, g, res, r.events)
				r.expect("A:C K:C Z:C", "cancelled")
				if r.events[0].Type != event.RunStarted || r.last() != event.RunCancelled {
					t.Errorf("%s:\n%s", name, eventText(r.events))
				}
			}
			run, err := rn.Start(t.Context(), g, neverStep(t))
			if err != nil {
				t.Fatal(err)
			}
			run.AbortAll(errStep)
			res, err := run.Wait()
			trial{res, t, err, nil}.expect("A:X K:X Z:X", "failed")
			if _, err := first.Wait(); err != nil {
				t.Error(err)
			}
		})
	}

	inBubble(t, "a suspended run does not count", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		waits, err := rn.Start(t.Context(), graph(gate("G"), kahn.Node{ID: "B", After: []string{"G"}, Do: takes(time.Second)}), nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if res, err := rn.Execute(t.Context(), graph(after("A")), takes(time.Second)); err != nil || res.Duration != time.Second {
			t.Errorf("%v", err)
		}
		if err := waits.Signal(context.Background(), "G", true); err != nil {
			t.Error(err)
		}
		if res, err := waits.Wait(); err != nil || res.Status != kahn.RunCompleted {
			t.Errorf("%v, %v", res.Status, err)
		}
	})

	inBubble(t, "shutdown leaves what can go on", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		var c calls
		g := graph(after("A"), after("B", "A"))
		step := c.count(takes(time.Second))
		running, err := rn.Start(t.Context(), g, step)
		if err != nil {
			t.Fatal(err)
		}
		pending, err := rn.Start(t.Context(), g, step)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := rn.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := rn.Start(t.Context(), g, step); !errors.Is(err, kahn.ErrShutdown) {
			t.Error(err)
		}
		for i, run := range []*kahn.Run{running, pending} {
			res, err := run.Wait()
			r := trial{res, t, err, nil}
			r.expect([]string{"A:ok B:ready", "A:idle B:idle"}[i], "suspended")
			res, err = kahn.Execute(t.Context(), g, step, kahn.Resume(reload(t, res.Snapshot())))
			trial{res, t, err, nil}.expect("A:ok B:ok", "completed")
			if res.ID() != run.ID() {
				t.Error("the run has another id")
			}
		}
		if c.of("A") != 2 || c.of("B") != 2 {
			t.Errorf("calls %v", c.n)
		}
	})

	inBubble(t, "after a shutdown runs go on from their store", func(t *testing.T) {
		store := new(store.Memory)
		rn := &kahn.Runner{MaxRuns: 1, Options: []kahn.Option{kahn.Durable(store)}}
		var c calls
		g := graph(after("A"), after("B", "A"))
		step := c.count(takes(time.Second))
		for _, id := range []string{"running", "pending"} {
			if _, err := rn.Start(t.Context(), g, step, kahn.RunID(id)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := rn.Shutdown(t.Context()); err != nil || c.of("A") != 1 || c.of("B") != 0 {
			t.Errorf("%v, calls %v", err, c.n)
		}
		next := &kahn.Runner{Options: []kahn.Option{kahn.Durable(store)}}
		for _, id := range []string{"running", "pending"} {
			res, err := next.Execute(t.Context(), g, step, kahn.RunID(id))
			trial{res, t, err, nil}.expect("A:ok B:ok", "completed")
		}
		if c.of("A") != 2 || c.of("B") != 2 {
			t.Errorf("calls %v", c.n)
		}
	})

	inBubble(t, "ids of runs are UUIDs of version 7, later ones greater", func(t *testing.T) {
		rn, last := new(kahn.Runner), ""
		for range 20 {
			res, err := rn.Execute(t.Context(), graph(after("A")), takes(2*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			if id, err := uuid.Parse(res.ID()); err != nil || id.Version() != 7 || res.ID() <= last {
				t.Errorf("id %s after %s: %v", res.ID(), last, err)
			}
			last = res.ID()
		}
	})

	inBubble(t, "shutdown that takes too long cancels, where the host wants it", func(t *testing.T) {
		rn := &kahn.Runner{CancelOnShutdown: true}
		run, err := rn.Start(t.Context(), graph(kahn.Node{ID: "A", Do: untilStopped}), nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := rn.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		res, err := run.Wait()
		trial{res, t, err, nil}.expect("A:C", "cancelled")
	})

	inBubble(t, "the registry is bounded, ids are unique", func(t *testing.T) {
		rn := &kahn.Runner{History: 3, Options: []kahn.Option{kahn.Inputs(map[string]any{"x": 1})}}
		step := func(_ context.Context, s *kahn.Step) (any, error) {
			x, _ := s.Root("x")
			return x, nil
		}
		live, err := rn.Start(t.Context(), graph(kahn.Node{ID: "A", Do: untilStopped}), nil, kahn.RunID("live"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if res, err := rn.Execute(t.Context(), graph(after("A")), step, kahn.RunID(fmt.Sprint(i))); err != nil || res.Output() != 1 {
				t.Errorf("%v, %v", res.Output(), err)
			}
		}
		var ids []string
		for run := range rn.Runs() {
			ids = append(ids, run.ID())
		}
		if strings.Join(ids, " ") != "live 7 8 9" {
			t.Errorf("known are %v", ids)
		}
		if _, err := rn.Start(t.Context(), graph(after("A")), step, kahn.RunID("live")); !errors.Is(err, kahn.ErrDuplicateRun) {
			t.Error(err)
		}
		if _, err := rn.Execute(t.Context(), graph(after("A")), step, kahn.RunID("8")); err != nil {
			t.Error(err)
		}
		live.Cancel()
		if _, err := live.Wait(); !errors.Is(err, kahn.ErrCancelled) {
			t.Error(err)
		}
	})

	inBubble(t, "many runs", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 3, History: -1}
		begin := time.Now()
		for i := range 100 {
			g := graph(after("A"), after("B", "A"))
			if i%10 == 0 {
				g = graph() // an empty graph, which ends at once
			}
			if _, err := rn.Start(t.Context(), g, takes(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		for run := range rn.Runs() {
			if _, err := run.Wait(); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took != 60*time.Second {
			t.Errorf("90 runs of 2 s, three at a time, took %v", took)
		}
		synctest.Wait()
		for run := range rn.Runs() {
			t.Errorf("run %s is remembered", run.ID())
		}
	})
}

func TestScenarioIdempotency(t *testing.T) {
	inBubble(t, "230 one key, one run", func(t *testing.T) {
		store := new(kahn.IdempotencyStore)
		var c calls
		g := graph(after("A"))
		results := make(chan *kahn.Result, 3)
		for range 2 {
			go func() {
				res, err := kahn.Execute(t.Context(), g, c.count(takes(time.Second)), kahn.Idempotent(store, "k"), kahn.Inputs(map[string]any{"n": 1}))
				if err != nil {
					t.Error(err)
				}
				results <- res
			}()
		}
		one, two := <-results, <-results
		later, err := kahn.Execute(t.Context(), g, neverStep(t), kahn.Idempotent(store, "k"), kahn.Inputs(map[string]any{"n": 1.0}),
			kahn.OnEvent(func(e kahn.Event) { t.Errorf("%v", e) }))
		if err != nil || one != two || later != one || c.of("A") != 1 {
			t.Errorf("%d calls, %v", c.of("A"), err)
		}
		for _, opts := range [][]kahn.Option{{kahn.Inputs(map[string]any{"n": 2})}, {}} {
			if _, err := kahn.Execute(t.Context(), g, neverStep(t), append(opts, kahn.Idempotent(store, "k"))...); !errors.Is(err, kahn.ErrKeyConflict) {
				t.Error(err)
			}
		}
		if _, err := kahn.Execute(t.Context(), graph(after("B")), neverStep(t), kahn.Idempotent(store, "k"), kahn.Inputs(map[string]any{"n": 1})); !errors.Is(err, kahn.ErrKeyConflict) {
			t.Error(err)
		}
	})

	inBubble(t, "a failed run is kept unless asked otherwise", func(t *testing.T) {
		for _, retry := range []bool{false, true} {
			store := &kahn.IdempotencyStore{RetryFailed: retry}
			var c calls
			step := c.count(func(context.Context, *kahn.Step) (any, error) {
				if c.of("A") == 1 {
					return nil, errStep
				}
				return nil, nil
			})
			_, first := kahn.Execute(t.Context(), graph(after("A")), step, kahn.Idempotent(store, "k"))
			_, second := kahn.Execute(t.Context(), graph(after("A")), step, kahn.Idempotent(store, "k"))
			if first == nil || (second == nil) != retry || (c.of("A") == 2) != retry {
				t.Errorf("RetryFailed %v: %v, %v, %d calls", retry, first, second, c.of("A"))
			}
		}
	})

	inBubble(t, "the key of a failed run is not free for something else", func(t *testing.T) {
		for _, retry := range []bool{false, true} {
			store := &kahn.IdempotencyStore{RetryFailed: retry}
			g, under := graph(after("A"), after("B", "A")), kahn.Idempotent(store, "k")
			res, err := kahn.Execute(t.Context(), g, fails(0), under, kahn.Inputs(map[string]any{"n": 1}))
			if err == nil {
				t.Fatal("the run did not fail")
			}
			for _, other := range []func() error{
				func() error {
					_, err := kahn.Execute(t.Context(), g, neverStep(t), under, kahn.Inputs(map[string]any{"n": 2}))
					return err
				},
				func() error {
					_, err := kahn.Execute(t.Context(), graph(after("A")), neverStep(t), under, kahn.Inputs(map[string]any{"n": 1}))
					return err
				},
				func() error { // the caller may change the graph, but not the inputs
					_, err := kahn.Execute(t.Context(), graph(after("A"), after("B", "A"), after("C", "A")), neverStep(t), under, kahn.AllowGraphChange(), kahn.Inputs(map[string]any{"n": 2}), kahn.Redrive(res.Snapshot(), nil))
					return err
				},
			} {
				if err := other(); !errors.Is(err, kahn.ErrKeyConflict) {
					t.Errorf("RetryFailed %v: %v", retry, err)
				}
			}
			if again, err := kahn.Execute(t.Context(), g, takes(0), under, kahn.Redrive(res.Snapshot(), nil)); (err == nil) != retry || retry && again == res {
				t.Errorf("RetryFailed %v: the redrive came to %v", retry, err)
			}
		}
	})

	inBubble(t, "a failed run goes on under its key with another version of the graph", func(t *testing.T) {
		under := kahn.Idempotent(&kahn.IdempotencyStore{RetryFailed: true}, "k")
		res, _ := kahn.Execute(t.Context(), graph(after("A")), fails(0), under)
		again, err := kahn.Execute(t.Context(), graph(after("A"), after("B", "A")), takes(0), under, kahn.AllowGraphChange(), kahn.Redrive(res.Snapshot(), []string{"A"}))
		if err != nil || again == res {
			t.Errorf("%v", err)
		}
	})

	inBubble(t, "a run that was left goes on under its key", func(t *testing.T) {
		store := new(kahn.IdempotencyStore)
		g := graph(gate("G"), after("B", "G"))
		res, err := kahn.Execute(t.Context(), g, takes(0), kahn.Idempotent(store, "k"))
		if err != nil || res.Status != kahn.RunSuspended {
			t.Fatal(err)
		}
		if again, _ := kahn.Execute(t.Context(), g, neverStep(t), kahn.Idempotent(store, "k")); again != res {
			t.Error("another run under the key")
		}
		res, err = kahn.Execute(t.Context(), g, takes(0), kahn.Idempotent(store, "k"), kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"G": 1}))
		if err != nil || res.Status != kahn.RunCompleted {
			t.Errorf("%v, %v", res.Status, err)
		}
	})

	inBubble(t, "whoever joins waits as long as his context lasts", func(t *testing.T) {
		store := new(kahn.IdempotencyStore)
		var c calls
		g, step := graph(after("A")), c.count(takes(time.Hour))
		run, err := kahn.Start(t.Context(), g, step, kahn.Idempotent(store, "k"))
		if err != nil {
			t.Fatal(err)
		}
		rn := new(kahn.Runner)
		for name, execute := range map[string]func(ctx context.Context) (*kahn.Result, error){
			"Execute": func(ctx context.Context) (*kahn.Result, error) {
				return kahn.Execute(ctx, g, neverStep(t), kahn.Idempotent(store, "k"))
			},
			"Runner.Execute": func(ctx context.Context) (*kahn.Result, error) {
				return rn.Execute(ctx, g, neverStep(t), kahn.Idempotent(store, "k"))
			},
		} {
			begin := time.Now()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errHost)
			res, err := execute(ctx)
			cancel()
			if res != nil || err != errHost || time.Since(begin) != time.Second {
				t.Errorf("%s: %v, %v after %v", name, res, err, time.Since(begin))
			}
		}
		for run := range rn.Runs() {
			t.Errorf("run %s is registered, which did not begin", run.ID())
		}
		if res, err := run.Wait(); err != nil || res.Duration != time.Hour || c.of("A") != 1 {
			t.Errorf("%v, %d calls", err, c.of("A"))
		}
	})

	t.Run("a run that is refused does not take the key", func(t *testing.T) {
		store, rn := new(kahn.IdempotencyStore), new(kahn.Runner)
		if err := rn.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		g := graph(after("A"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 1000 { // a caller that joins must not get a run that was refused
			done := make(chan error)
			go func() {
				_, err := rn.Start(ctx, g, takes(0), kahn.Idempotent(store, "k"))
				done <- err
			}()
			runtime.Gosched()
			if _, err := kahn.Execute(ctx, g, takes(0), kahn.Idempotent(store, "k")); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil && !errors.Is(err, kahn.ErrShutdown) {
				t.Fatal(err)
			}
			store.Forget("k")
		}
	})

	inBubble(t, "a run of a store goes on under its key", func(t *testing.T) {
		keys, store := new(kahn.IdempotencyStore), new(store.Memory)
		g := graph(gate("G"), after("B", "G"))
		opts := []kahn.Option{kahn.Idempotent(keys, "k"), kahn.Durable(store), kahn.RunID("r")}
		if res, err := kahn.Execute(t.Context(), g, takes(0), opts...); err != nil || res.Status != kahn.RunSuspended {
			t.Fatal(err)
		}
		res, err := kahn.Execute(t.Context(), g, takes(0), append(opts, kahn.EarlySignals(map[string]any{"G": 1}))...)
		if err != nil || res.Status != kahn.RunCompleted {
			t.Errorf("%v, %v", res.Status, err)
		}
	})

	t.Run("the key of numbers", func(t *testing.T) {
		for _, row := range [][]any{
			{1, 1.0, json.Number("1.0"), json.RawMessage("1e0"), json.RawMessage("10e-1")},
			{0, json.Number("-0"), json.Number("0.00"), json.RawMessage("-0.0")},
			{uint64(9007199254740993), json.Number("9007199254740993"), json.RawMessage("9007199254740993.0")},
			{0.5, json.Number("0.50"), json.RawMessage("5e-1")},
		} {
			first := ""
			for i, x := range row {
				key, err := kahn.IdempotencyKey("flow", map[string]any{"x": []any{map[string]any{"n": x}}})
				if err != nil {
					t.Error(err)
				}
				if i == 0 {
					first = key
				} else if key != first {
					t.Errorf("%v has another key than %v", x, row[0])
				}
			}
		}
		exact, _ := kahn.IdempotencyKey("flow", map[string]any{"x": uint64(9007199254740993)})
		if other, _ := kahn.IdempotencyKey("flow", map[string]any{"x": uint64(9007199254740992)}); other == exact {
			t.Error("digits are lost")
		}
	})

	t.Run("no inputs have one key", func(t *testing.T) {
		none, err := kahn.IdempotencyKey("flow", nil)
		if err != nil {
			t.Fatal(err)
		}
		if empty, _ := kahn.IdempotencyKey("flow", map[string]any{}); none != empty {
			t.Error("nil inputs have another key than empty ones")
		}
		store := new(kahn.IdempotencyStore)
		first, err := kahn.Execute(t.Context(), graph(after("A")), takes(0), kahn.Idempotent(store, "k"))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := kahn.Execute(t.Context(), graph(after("A")), neverStep(t), kahn.Idempotent(store, "k"), kahn.Inputs(map[string]any{})); again != first {
			t.Error(err)
		}
	})

	t.Run("the key of inputs", func(t *testing.T) {
		one, err := kahn.IdempotencyKey("flow", map[string]any{"b": 1, "a": "<x>"})
		if err != nil {
			t.Fatal(err)
		}
		type in struct {
			Z int    `json:"b"`
			A string `json:"a"`
		}
		if same, _ := kahn.IdempotencyKey("flow", map[string]any{"a": "<x>", "b": 1.0}); same != one {
			t.Error("the same inputs have another key")
		}
		// The output of sha256sum for the text flow{"a":"<x>","b":1}
		if want := "0810bfb8c52c556ed2a8a5f8e6e67b16dc37e7db772cf36956e06db400af562d"; one != want {
			t.Errorf("the key is %s", one)
		}
		other, _ := kahn.IdempotencyKey("flow", map[string]any{"a": in{1, "x"}})
		if again, _ := kahn.IdempotencyKey("flow", map[string]any{"a": map[string]any{"a": "x", "b": 1}}); other != again || other == one {
			t.Error("a struct and its map have different keys")
		}
		if _, err := kahn.IdempotencyKey("flow", map[string]any{"a": func() {}}); !errors.Is(err, kahn.ErrNotEncodable) {
			t.Error(err)
		}
	})
}
