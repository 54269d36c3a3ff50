package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// Adopt lets a run continue with another version of its graph: unchanged nodes keep their results, and the other nodes run.
func TestAdopt(t *testing.T) {
	t.Parallel()
	inBubble(t, "a run that waits", func(t *testing.T) {
		s := new(served)
		v1 := versionOf("small", kahn.Node{ID: "old", After: []string{"fetch"}}, kahn.Node{ID: "aside", After: []string{"fetch"}})
		v2 := versionOf("large", kahn.Node{ID: "aside", After: []string{"fetch"}}, kahn.Node{ID: "new", After: []string{"aside"}})
		opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s)}
		_, err := kahn.Execute(t.Context(), v1, s.step, opts...)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"r fetch", "r draft", "r check", "r old", "r aside"}, s.take())
		_, err = kahn.Execute(t.Context(), v2, s.step, opts...)
		require.ErrorIs(t, err, kahn.ErrGraphChanged)

		want := &kahn.Adoption{
			Keep: []string{"fetch", "aside"},
			Run: []kahn.AdoptNode{{Node: "draft", Reason: kahn.AdoptChanged}, {Node: "check", Reason: kahn.AdoptFollows, After: "draft"}, {Node: "ask", Reason: kahn.AdoptNoResult},
				{Node: "send", Reason: kahn.AdoptNoResult}, {Node: "new", Reason: kahn.AdoptNoResult}},
			Dropped: []string{"old"},
		}
		snapshot, err := kahn.ReadSnapshot(t.Context(), s, "r")
		require.NoError(t, err)
		p, err := v2.Compile()
		require.NoError(t, err)
		preview, err := kahn.AdoptPreview(p, snapshot)
		require.NoError(t, err)
		require.Equal(t, want, preview)
		before, err := s.Load(t.Context(), "r")
		require.NoError(t, err)
		got, err := kahn.Adopt(t.Context(), v2, s, "r")
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Empty(t, s.take(), "nothing is performed")
		after, err := s.Load(t.Context(), "r")
		require.NoError(t, err)
		require.Equal(t, p.Hash(), after.Plan)
		require.Equal(t, before.Nodes["fetch"], after.Nodes["fetch"], "its record is not written again")
		require.Empty(t, after.Nodes["old"].Status)

		_, err = kahn.Execute(t.Context(), v1, s.step, opts...)
		require.ErrorIs(t, err, kahn.ErrGraphChanged, "the version before has it no more")
		end := serve(t, new(kahn.Runner), s.service(v2))
		time.Sleep(time.Second)
		require.ElementsMatch(t, []string{"r draft", "r check", "r new"}, s.take())
		q, err := kahn.PrepareSignal("ask", "yes")
		require.NoError(t, err)
		_, err = s.Post(t.Context(), "r", q)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, []string{"r send"}, s.take())
		end()
		require.Equal(t, kahn.RunCompleted, s.status(t, "r"))
		res, err := kahn.ReadResult(t.Context(), v2, s, "r")
		require.NoError(t, err)
		require.Len(t, slices.Collect(res.Nodes()), 7)
	})
	inBubble(t, "a run that has not begun", func(t *testing.T) {
		s, v2 := new(served), versionOf("large")
		n, err := kahn.Prepare(versionOf("small"), kahn.RunID("r"), kahn.Describe(store.Spec{Labels: map[string]string{"tenant": "x"}}))
		require.NoError(t, err)
		n.NotBefore = time.Now().Add(time.Hour)
		_, _, err = s.Create(t.Context(), n)
		require.NoError(t, err)
		a, err := kahn.Adopt(t.Context(), v2, s, "r")
		require.NoError(t, err)
		require.Len(t, a.Run, 5)
		require.Empty(t, a.Keep)
		end := serve(t, new(kahn.Runner), s.service(v2))
		time.Sleep(time.Hour - time.Second)
		require.Empty(t, s.take())
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"r fetch", "r draft", "r check"}, s.take())
		end()
		page, err := s.List(t.Context(), store.Query{Filter: store.Filter{Labels: map[string]string{"tenant": "x"}}})
		require.NoError(t, err)
		require.Len(t, page.Runs, 1)
	})
	inBubble(t, "a version without changes, and an answer that came early", func(t *testing.T) {
		s, v1, v2 := new(served), versionOf("x", kahn.Node{ID: "second", Kind: kahn.KindGate, After: []string{"send"}}), versionOf("x", kahn.Node{ID: "second", Kind: kahn.KindGate, After: []string{"send"}}, kahn.Node{ID: "new"})
		opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s)}
		_, err := kahn.Execute(t.Context(), v1, s.step, append(opts, kahn.EarlySignals(map[string]any{"second": "early"}))...)
		require.NoError(t, err)
		s.take()
		_, err = kahn.Adopt(t.Context(), v2, s, "r")
		require.NoError(t, err)
		_, err = kahn.Adopt(t.Context(), v2, s, "r")
		require.NoError(t, err, "again")
		res, err := kahn.Execute(t.Context(), v2, s.step, append(opts, kahn.EarlySignals(map[string]any{"ask": "yes"}))...)
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
		require.ElementsMatch(t, []string{"r new", "r send"}, s.take())
		n, _ := res.Node("second")
		require.Equal(t, "early", n.Output)
	})
}

// A completed composite keeps the results of its nodes. In other composites the nodes continue. The events of the new life are in order.
func TestAdoptComposites(t *testing.T) {
	t.Parallel()
	inBubble(t, "composites", func(t *testing.T) {
		s := new(served)
		one := func(_ context.Context, step *kahn.Step) (any, error) {
			s.note("%s", step.Path())
			return []any{1, 2}, nil
		}
		build := func(config string) *kahn.Graph {
			inner := func(gated bool) *kahn.Graph {
				g := new(kahn.Graph).Add(kahn.Node{ID: "x"})
				if gated {
					g.Add(kahn.Node{ID: "y", Kind: kahn.KindGate, After: []string{"x"}})
				}
				return g
			}
			return (&kahn.Graph{Name: "w"}).Add(
				kahn.Node{ID: "list", Do: one},
				kahn.Node{ID: "done", Sub: inner(false), After: []string{"list"}},
				kahn.Node{ID: "items", After: []string{"list"}, Map: &kahn.Map{Over: "n"}, Params: map[string]any{"n": []int{1, 2}}},
				kahn.Node{ID: "rounds", Loop: &kahn.Loop{MaxIterations: 2, Until: func(v kahn.View) (bool, error) { return v.Iteration() == 2, nil }}, Sub: inner(false), After: []string{"list"}},
				kahn.Node{ID: "half", Sub: inner(true), After: []string{"list"}},
				kahn.Node{ID: "changed", Config: config, After: []string{"rounds"}},
			)
		}
		opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s)}
		_, err := kahn.Execute(t.Context(), build("a"), one, opts...)
		require.NoError(t, err)
		s.take()
		a, err := kahn.Adopt(t.Context(), build("b"), s, "r")
		require.NoError(t, err)
		require.Equal(t, []string{"list", "done", "items", "rounds"}, a.Keep)
		require.Equal(t, []kahn.AdoptNode{{Node: "half", Reason: kahn.AdoptNoResult}, {Node: "half/y", Reason: kahn.AdoptNoResult}, {Node: "changed", Reason: kahn.AdoptChanged}}, a.Run)
		rec := newRecorder()
		res, err := kahn.Execute(t.Context(), build("b"), one, append(opts, kahn.OnEvent(rec.add))...)
		require.NoError(t, err)
		require.Equal(t, []string{"changed"}, s.take())
		require.Equal(t, kahn.RunSuspended, res.Status, "the gate inside asks again")
		require.NoError(t, kahntest.CheckEvents(build("b"), res, rec.all()))
		res, err = kahn.Execute(t.Context(), build("b"), one, append(opts, kahn.EarlySignals(map[string]any{"half/y": "yes"}))...)
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
	})
}

// Nodes of a composite in a returned graph continue. A composite that backs off starts again at once.
func TestAdoptOpenComposites(t *testing.T) {
	t.Parallel()
	inBubble(t, "open composites", func(t *testing.T) {
		s, broken := new(served), true
		step := func(_ context.Context, step *kahn.Step) (any, error) {
			switch s.note("%s", step.Path()); {
			case step.ID() == "X":
				return nil, kahn.Expand(graph(subgraph("S", graph(after("x"), gate("y", "x")))), nil, nil)
			case step.ID() == "bad" && broken:
				return nil, errStep
			}
			return nil, nil
		}
		version := func(config string) *kahn.Graph {
			return graph(after("X"), kahn.Node{ID: "R", Sub: graph(after("good"), after("bad", "good")), Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour, MaxDelay: time.Hour}},
				kahn.Node{ID: "other", Config: config})
		}
		opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s)}
		run, err := kahn.Start(t.Context(), version("a"), step, opts...)
		require.NoError(t, err)
		time.Sleep(time.Second)
		run.Leave()
		_, err = run.Wait()
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"X", "X/S/x", "R/good", "R/bad", "other"}, s.take())
		broken = false
		_, err = kahn.Adopt(t.Context(), version("b"), s, "r")
		require.NoError(t, err)
		began := time.Now()
		res, err := kahn.Execute(t.Context(), version("b"), step, opts...)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"X", "R/good", "R/bad", "other"}, s.take())
		require.Less(t, time.Since(began), time.Hour/4)
		r, _ := res.Node("R")
		require.Equal(t, kahn.Completed, r.Status)
		require.Equal(t, 1, r.Attempts)
		res, err = kahn.Execute(t.Context(), version("b"), step, append(opts, kahn.EarlySignals(map[string]any{"X/S/y": "yes"}))...)
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, res.Status)
	})
}

// Adopt refuses a run that a process is performing or that cannot continue, and does not change the run.
func TestAdoptRefuses(t *testing.T) {
	t.Parallel()
	inBubble(t, "refusals", func(t *testing.T) {
		s, v1, v2 := new(served), versionOf("small"), versionOf("large")
		execute := func(id string, opts ...kahn.Option) {
			_, err := kahn.Execute(t.Context(), v1, s.step, append(opts, kahn.RunID(id), kahn.Durable(s))...)
			require.NoError(t, err)
		}
		execute("leased")
		_, _, err := s.Acquire(t.Context(), "leased", "somebody", time.Minute)
		require.NoError(t, err)
		execute("ended", kahn.EarlySignals(map[string]any{"ask": 1}))
		execute("waits")
		other := (&kahn.Graph{Name: "other"}).Add(kahn.Node{ID: "fetch"})
		needy := versionOf("small")
		needy.Inputs = []kahn.Input{{Name: "n"}}
		s.create(t, v1, time.Time{}, "created")
		before := map[string]*store.Run{}
		for _, id := range s.Runs() {
			before[id], err = s.Load(t.Context(), id)
			require.NoError(t, err)
		}
		for i, row := range []struct {
			g    *kahn.Graph
			run  string
			want error
		}{
			{v2, "leased", kahn.ErrLeased}, {v2, "ended", kahn.ErrFinished}, {v2, "nobody", kahn.ErrUnknownRun}, {other, "waits", kahn.ErrGraphChanged},
			{other, "created", kahn.ErrGraphChanged}, {needy, "waits", kahn.ErrMissingInput}, {needy, "created", kahn.ErrMissingInput}, {nil, "waits", kahn.ErrNoGraph},
		} {
			a, err := kahn.Adopt(t.Context(), row.g, s, row.run)
			require.ErrorIs(t, err, row.want, fmt.Sprint("row ", i))
			require.Nil(t, a)
		}
		for id, want := range before {
			got, err := s.Load(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		require.Len(t, s.Runs(), len(before))
	})
}

// Adopt calls no step: requests of the run wait for the process that resumes it. Adopt refuses a run that has not started but has requests.
func TestAdoptWithRequests(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{false, true} {
		inBubble(t, fmt.Sprint("begun: ", begun), func(t *testing.T) {
			s := new(served)
			if begun {
				_, err := kahn.Execute(t.Context(), versionOf("small"), s.step, kahn.RunID("r"), kahn.Durable(s))
				require.NoError(t, err)
			} else {
				s.create(t, versionOf("small"), time.Time{}, "r")
			}
			s.take()
			answer := post(t, s, "ask", "yes")
			postRequest(t, s, cancelRun)
			_, err := kahn.Adopt(t.Context(), versionOf("large"), s, "r")
			if begun {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, kahn.ErrLeased)
			}
			for _, id := range []string{answer, "cancel"} {
				status, why := became(t, s, id)
				require.Equal(t, store.RequestWaiting, status, why)
			}
			require.Empty(t, s.take())
			stored, err := s.Load(t.Context(), "r")
			require.NoError(t, err)
			require.False(t, stored.WakeAt.IsZero(), "the requests make it due")
		})
	}
}

// A condition keeps its answer. It takes a branch that only the new version has, unless it took another branch before.
func TestNewBranchesOfOldAnswers(t *testing.T) {
	t.Parallel()
	conditions := map[string]kahn.Node{
		"a test":  {ID: "c", Test: func(kahn.View) (any, error) { return "x", nil }},
		"a label": {ID: "c", Routes: true, Do: func(context.Context, *kahn.Step) (any, error) { return "x", nil }},
		"a gate":  {ID: "c", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"x", "y"}}},
	}
	waits := kahn.Node{ID: "g", Kind: kahn.KindGate, After: []string{"c"}}
	branch := func(id, label string) kahn.Node {
		return kahn.Node{ID: id, In: []kahn.Edge{{From: "c", Label: label}}}
	}
	for name, c := range conditions {
		for _, row := range []struct {
			how    string
			before []kahn.Node
			want   kahn.Status
		}{
			{"adopt", nil, kahn.Completed},
			{"adopt", []kahn.Node{branch("a", "y")}, kahn.Completed},
			{"adopt", []kahn.Node{branch("a", "default")}, kahn.Skipped},
			{"fork", []kahn.Node{branch("a", "y")}, kahn.Completed},
			{"allow", nil, kahn.Completed},
		} {
			inBubble(t, fmt.Sprint(name, " ", row.how, " ", len(row.before)), func(t *testing.T) {
				s := new(served)
				version := func(more ...kahn.Node) *kahn.Graph { return (&kahn.Graph{Name: "w"}).Add(c, waits).Add(more...) }
				v1, v2 := version(row.before...), version(append(slices.Clone(row.before), branch("b", "x"))...)
				opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s)}
				early := func(gate string) []kahn.Option {
					return append(slices.Clone(opts), kahn.EarlySignals(map[string]any{gate: "x"}))
				}
				first := opts
				if c.Kind == kahn.KindGate {
					first = early("c")
				}
				_, err := kahn.Execute(t.Context(), v1, s.step, first...)
				require.NoError(t, err)
				var res *kahn.Result
				switch row.how {
				case "adopt":
					_, err = kahn.Adopt(t.Context(), v2, s, "r")
					require.NoError(t, err)
					res, err = kahn.Execute(t.Context(), v2, s.step, early("g")...)
				case "allow":
					res, err = kahn.Execute(t.Context(), v2, s.step, append(early("g"), kahn.AllowGraphChange())...)
				case "fork":
					snapshot, failed := kahn.ReadSnapshot(t.Context(), s, "r")
					require.NoError(t, failed)
					res, err = kahn.Execute(t.Context(), v2, s.step, kahn.RunID("f"), kahn.EarlySignals(map[string]any{"g": "x"}), kahn.Fork(snapshot))
				}
				require.NoError(t, err)
				b, _ := res.Node("b")
				require.Equal(t, row.want, b.Status)
			})
		}
	}
}
