package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestReadResult: ReadResult returns the same Result of an ended run as the run itself.
func TestReadResult(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t, size(20, 10, 2_000)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCutter(7000+seed, int(seed%3))
			store := new(store.Memory)
			c.more = []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
			_, want := c.run(t, nil, false)
			time.Sleep(time.Hour)
			compare := func(res *kahn.Result, err error) {
				t.Helper()
				got := outcome{Status: res.Status, Flags: [2]bool{res.Degraded, res.CancelRequested}}
				got.add(c, res, "")
				if !reflect.DeepEqual(got, want) || (err == nil) != (res.Status == kahn.RunCompleted) || !reflect.DeepEqual(res.Output(), c.res.Output()) {
					t.Errorf("seed %d:\ngot  %v, %v\nwant %v, %v", seed, got, res.Output(), want, c.res.Output())
				}
				for n := range c.res.Nodes() {
					if m, _ := res.Node(n.ID); m.Attempts != n.Attempts || m.Duration != n.Duration || !m.Start.Equal(n.Start) || fmt.Sprint(m.Err) != fmt.Sprint(n.Err) {
						t.Errorf("seed %d: %+v\n%+v", seed, m, n)
					}
				}
				if res.Len() > 0 && res.Duration > c.res.Duration {
					t.Errorf("it took %v, and %v", res.Duration, c.res.Duration)
				}
			}
			compare(kahn.ReadResult(t.Context(), c.g, store, "r"))
			s, err := kahn.ReadSnapshot(t.Context(), store, "r")
			if err != nil || s.Status() != c.res.Status || s.RunID() != "r" {
				t.Errorf("%v, %v", s, err)
			}
			compare(s.Result(c.res.Plan()))
			compare(reload(t, c.res.Snapshot()).Result(c.res.Plan()))
		})
		if t.Failed() {
			return
		}
	}
}

// TestReadOutcomes: ReadResult returns the status and the causes with which the run ended, under every status rule.
func TestReadOutcomes(t *testing.T) {
	t.Parallel()
	rescue := func(context.Context, *kahn.Step) (any, error) {
		return kahn.EndVerdict{Status: kahn.RunCompleted, Output: "rescued"}, nil
	}
	for name, row := range map[string]struct {
		g    *kahn.Graph
		host func(*kahn.Run)
		opts []kahn.Option
	}{
		"completed":          {graph(after("A")), nil, nil},
		"nothing":            {graph(), nil, nil},
		"failed":             {graph(kahn.Node{ID: "A", Do: always(errStep)}, after("B", "A")), nil, nil},
		"failed, in waves":   {graph(kahn.Node{ID: "A", Do: always(errStep)}, after("B", "A")), nil, []kahn.Option{kahn.Waves}},
		"strict":             {graph(kahn.Node{ID: "A", Do: always(errStep)}, kahn.Node{ID: "H", In: []kahn.Edge{{From: "A", On: kahn.OnFailure}}}), nil, []kahn.Option{kahn.StatusStrict}},
		"a verdict":          {graph(kahn.Node{ID: "A", Do: always(errStep)}, kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: rescue}), nil, nil},
		"the end fails":      {graph(after("A"), kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: always(errStep)}), nil, nil},
		"cancelled":          {graph(kahn.Node{ID: "A", Do: untilStopped}, after("B", "A")), func(r *kahn.Run) { r.Cancel(kahn.Request{Actor: "us"}) }, nil},
		"aborted":            {graph(kahn.Node{ID: "A", Do: untilStopped}, after("B", "A")), func(r *kahn.Run) { r.AbortAll(errHost) }, nil},
		"timed out":          {graph(kahn.Node{ID: "A", Do: untilStopped}, after("B", "A")), nil, []kahn.Option{kahn.Timeout(10 * time.Second)}},
		"stopped by failure": {graph(kahn.Node{ID: "A", Do: untilStopped}, kahn.Node{ID: "B", Critical: true, Do: always(errStep)}), nil, nil},
		"skipped":            {graph(kahn.Node{ID: "A", Disabled: true}, after("B", "A")), nil, nil},
		"fired": {graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger}, kahn.Node{ID: "U", Kind: kahn.KindTrigger}, after("A", "T"), after("B", "U")), nil,
			[]kahn.Option{kahn.Fire("T", "payload")}},
	} {
		inBubble(t, name, func(t *testing.T) {
			store := new(store.Memory)
			run, err := kahn.Start(t.Context(), row.g, takes(time.Second), append(row.opts, kahn.Durable(store), kahn.RunID("r"))...)
			require.NoError(t, err)
			time.Sleep(100 * ms)
			if row.host != nil {
				row.host(run)
			}
			want, wantErr := run.Wait()
			lasted := time.Duration(0) // all first attempts begin together
			for n := range want.Nodes() {
				if n.Attempts > 0 {
					lasted = max(lasted, n.Start.Add(n.Duration).Sub(want.Start))
				}
			}
			time.Sleep(time.Hour)
			plan, err := row.g.Compile()
			require.NoError(t, err)
			for source, read := range map[string]func() (*kahn.Result, error){
				"store":    func() (*kahn.Result, error) { return kahn.ReadResult(t.Context(), row.g, store, "r") },
				"snapshot": func() (*kahn.Result, error) { return want.Snapshot().Result(plan) },
				"file":     func() (*kahn.Result, error) { return reload(t, want.Snapshot()).Result(plan) },
			} {
				got, err := read()
				require.NotNil(t, got, "%s: %v", source, err)
				require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err), source)
				require.Equal(t, "r", got.ID(), source)
				require.Equal(t, want.Status, got.Status, source)
				require.Equal(t, want.Output(), got.Output(), source)
				require.Equal(t, want.Cause.Kind, got.Cause.Kind, source)
				require.Equal(t, want.Cause.Origins, got.Cause.Origins, source)
				require.Equal(t, want.Pruned, got.Pruned, source)
				require.Equal(t, want.CancelRequested, got.CancelRequested, source)
				require.Equal(t, want.StopRequest, got.StopRequest, source)
				require.Equal(t, lasted, got.Duration, source)
				if lasted > 0 {
					require.True(t, got.Start.Equal(want.Start), "%s: the run has begun at %v, not at %v", source, want.Start, got.Start)
				}
				for n := range want.Nodes() {
					m, _ := got.Node(n.ID)
					require.Equal(t, []any{n.Status, n.Skip, n.Cause.Kind, n.Cause.Origins, n.Output}, []any{m.Status, m.Skip, m.Cause.Kind, m.Cause.Origins, m.Output}, "%s: %s", source, n.ID)
				}
			}
		})
	}
}

// TestReadRefused: ReadResult returns an error if the run does not exist, has not ended, or does not fit the graph.
func TestReadRefused(t *testing.T) {
	inBubble(t, "", func(t *testing.T) {
		store := new(store.Memory)
		g := graph(after("A"), gate("G", "A"))
		read := func(g *kahn.Graph, run string) error {
			_, err := kahn.ReadResult(t.Context(), g, store, run)
			return err
		}
		require.ErrorIs(t, read(g, "r"), kahn.ErrUnknownRun)
		_, err := kahn.ReadSnapshot(t.Context(), store, "r")
		require.ErrorIs(t, err, kahn.ErrUnknownRun)
		_, _, err = store.Acquire(t.Context(), "r", "us", time.Minute)
		require.NoError(t, err)
		require.ErrorIs(t, read(g, "r"), kahn.ErrUnknownRun) // the run has no first write
		opts := []kahn.Option{kahn.Durable(store), kahn.RunID("r"), kahn.Lease("us", 0)}
		pause(t, g, takes(0), opts...)
		require.ErrorIs(t, read(g, "r"), kahn.ErrNotEnded)
		s, err := kahn.ReadSnapshot(t.Context(), store, "r")
		require.NoError(t, err)
		require.Equal(t, []string{"G"}, s.Waiting())
		_, err = json.Marshal(s)
		require.NoError(t, err)
		try2(t, g, takes(0), append(opts, kahn.EarlySignals(map[string]any{"G": 1}))...).expect("A:ok G:ok", "completed")
		require.NoError(t, read(g, "r"))
		require.ErrorIs(t, read(graph(after("A"), gate("G", "A"), after("C", "A")), "r"), kahn.ErrGraphChanged)
		require.ErrorIs(t, read(nil, "r"), kahn.ErrNoGraph)
		_, err = kahn.ReadResult(t.Context(), g, nil, "r")
		require.ErrorIs(t, err, kahn.ErrBadOption)
		var none context.Context
		_, err = kahn.ReadSnapshot(none, store, "r")
		require.ErrorIs(t, err, kahn.ErrNoContext)
		broken := &outage{Memory: store}
		_, err = kahn.ReadResult(t.Context(), g, &deadLoad{broken}, "r")
		require.ErrorIs(t, err, kahn.ErrStore)
		require.ErrorIs(t, err, errDisk)
		_, err = kahn.ReadRun(t.Context(), &deadLoad{broken}, "r")
		require.ErrorIs(t, err, errDisk)
		require.NotErrorIs(t, err, kahn.ErrUnknownRun)

		// A failed run is redriven from the snapshot in its store.
		bad := graph(after("A"), kahn.Node{ID: "B", After: []string{"A"}})
		fails := func(_ context.Context, s *kahn.Step) (any, error) {
			if s.ID() == "B" {
				return nil, errStep
			}
			return nil, nil
		}
		_, err = kahn.Execute(t.Context(), bad, fails, kahn.Durable(store), kahn.RunID("s"))
		require.Error(t, err)
		s, err = kahn.ReadSnapshot(t.Context(), store, "s")
		require.NoError(t, err)
		var c calls
		res, err := kahn.Execute(t.Context(), bad, c.count(takes(0)), kahn.Redrive(s, nil))
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		require.Equal(t, []int{0, 1}, []int{c.of("A"), c.of("B")})
	})
}

// TestReadPerformsNothing: ReadResult calls no step, even if the graph has new nodes, and however the run ended.
func TestReadPerformsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		db := new(store.Memory)
		try(t, graph(after("A"), after("B", "A")), takes(0), kahn.Durable(db), kahn.RunID("completed")).expect("A:ok B:ok", "completed")
		cancel := soon(func(run *kahn.Run) { _ = run.Cancel() })
		tryControlled(t, t.Context(), graph(after("A"), after("B", "A")), takes(time.Second), cancel, kahn.Durable(db), kahn.RunID("cancelled")).expect("A:C B:C", "cancelled")
		for _, run := range []string{"completed", "cancelled"} {
			for name, added := range map[string]kahn.Node{
				"a root":     {ID: "C", Do: neverStep(t)},
				"a follower": {ID: "C", Do: neverStep(t), After: []string{"B"}},
				"a gate":     gate("C", "B"),
				"the inside": {ID: "C", Sub: graph(kahn.Node{ID: "x", Do: neverStep(t)})},
				"an end":     {ID: "Z", Kind: kahn.KindEnd, Do: neverStep(t), After: []string{"B"}},
			} {
				res, err := kahn.ReadResult(t.Context(), graph(after("A"), after("B", "A"), added), db, run, kahn.AllowGraphChange())
				require.ErrorIs(t, err, kahn.ErrBadValue, name)
				require.Nil(t, res)
			}
		}
	})
}

// TestReadUnbegun: ReadResult returns the cause of a run that has an end node and was stopped before it began.
func TestReadUnbegun(t *testing.T) {
	t.Parallel()
	for want, stop := range map[kahn.CauseKind]func(*kahn.Run){
		kahn.CauseCancelRun: func(run *kahn.Run) { _ = run.Cancel() },
		kahn.CauseAbortAll:  func(run *kahn.Run) { _ = run.AbortAll(errHost) },
	} {
		inBubble(t, want.String(), func(t *testing.T) {
			db, rn, g := new(store.Memory), &kahn.Runner{MaxRuns: 1}, graph(after("A"), kahn.Node{ID: "Z", Kind: kahn.KindEnd})
			first, err := rn.Start(t.Context(), g, takes(time.Second))
			require.NoError(t, err)
			run, err := rn.Start(t.Context(), g, neverStep(t), kahn.Durable(db), kahn.RunID("r"))
			require.NoError(t, err)
			synctest.Wait()
			stop(run)
			res, ended := run.Wait()
			require.Equal(t, want, res.Cause.Kind)
			_, read := kahn.ReadResult(t.Context(), g, db, "r")
			require.EqualError(t, read, ended.Error())
			_, read = reload(t, res.Snapshot()).Result(res.Plan())
			require.EqualError(t, read, ended.Error())
			_, _ = first.Wait()
		})
	}
}

// deadLoad is a store whose Load fails.
type deadLoad struct{ store.Store }

func (deadLoad) Load(context.Context, string) (*store.Run, error) {
	return nil, errors.Join(errDisk)
}
