package kahntest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// order returns the workflow of a host: reserve, charge each line, ship. The outside world recognizes repeated charges by their keys.
func order(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "reserve"},
		kahn.Node{ID: "charge", After: []string{"reserve"}, Map: &kahn.Map{Over: "lines"}, Params: map[string]any{"lines": []string{"tea", "cups"}}},
		kahn.Node{ID: "ship", After: []string{"charge"}, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone}},
	)
	return g, func(_ context.Context, s *kahn.Step) (any, error) {
		item, _ := s.Item()
		p.Effect(s.IdempotencyKey(), fmt.Sprint(s.ID(), " ", item))
		if s.ID() == "ship" && s.Attempt() == 1 {
			return nil, errors.New("no van")
		}
		return fmt.Sprint("done with ", s.Path()), nil
	}
}

// The workflow recovers from a crash at any write of its store.
func TestOrderRecovers(t *testing.T) {
	kahntest.InFakeTime(t, func(t *testing.T) { kahntest.Crashes(t, order) })
}

// A host tests a step that charges under a key which changes with the attempt. After a crash the step charges twice. The correct key is
// s.IdempotencyKey().
func ExampleCrashes() {
	charges := func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
		g := new(kahn.Graph).Add(kahn.Node{ID: "charge"})
		return g, func(_ context.Context, s *kahn.Step) (any, error) {
			p.Effect(fmt.Sprint("attempt ", s.Attempt()), "charge 7 EUR")
			return nil, nil
		}
	}
	// In a test: kahntest.Crashes(t, charges)
	crashes, err := kahntest.CheckCrashes(context.Background(), charges)
	fmt.Println(crashes, "crashes")
	fmt.Println(err)
	// Output:
	// 4 crashes
	// a crash before write 2 (end of charge, end of the run): the effect "charge 7 EUR" is performed under the keys "attempt 1" and "attempt 2"
}

// TestCrashesFind: Crashes finds each of these mistakes in a host's workflow.
func TestCrashesFind(t *testing.T) {
	t.Parallel()
	chain := func(step kahn.StepFunc) (*kahn.Graph, kahn.StepFunc) {
		return new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}}, kahn.Node{ID: "c", After: []string{"b"}}), step
	}
	inputs := 0
	for name, row := range map[string]struct {
		start func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc)
		opts  []kahn.Option
		finds string
	}{
		"nothing": {order, nil, ""},
		"nothing, with a gate that is answered": {func(*kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "g", Kind: kahn.KindGate, After: []string{"a"}}, kahn.Node{ID: "b", After: []string{"g"}}),
				func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }
		}, []kahn.Option{kahn.EarlySignals(map[string]any{"g": "yes"})}, ""},
		"nothing, with a run that waits": {func(*kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "g", Kind: kahn.KindGate, After: []string{"a"}}),
				func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }
		}, nil, ""},
		"nothing, with steps that heed no context": {func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return chain(func(_ context.Context, s *kahn.Step) (any, error) {
				time.Sleep(time.Second)
				p.Effect(s.IdempotencyKey(), s.ID())
				return nil, nil
			})
		}, nil, ""},
		"a key of the attempt": {func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return chain(func(_ context.Context, s *kahn.Step) (any, error) {
				p.Effect(fmt.Sprint(s.ID(), s.Attempt()), "pay at "+s.ID())
				return nil, nil
			})
		}, nil, `the effect "pay at a" is performed under the keys "a1" and "a2"`},
		"a value that is passed on in memory": {func(*kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			total := 0
			return chain(func(_ context.Context, s *kahn.Step) (any, error) {
				total += len(s.ID())
				return total, nil
			})
		}, nil, "the run is completed with the output 2, expected completed with 3"},
		"an effect that only the first attempt has": {func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return chain(func(ctx context.Context, s *kahn.Step) (any, error) {
				if s.Attempt() == 1 {
					select {
					case <-time.After(time.Second):
						p.Effect(s.IdempotencyKey(), "mail from "+s.ID())
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return nil, nil
			})
		}, nil, `the effect "mail from a" is missing`},
		"a list in another order": {func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			step := func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "list" {
					list := []any{"x", "y"}
					if p.Restarted() {
						slices.Reverse(list)
					}
					p.Effect(s.IdempotencyKey(), "take stock")
					return list, nil
				}
				item, _ := s.Item()
				p.Effect(s.IdempotencyKey(), fmt.Sprint("pay ", item))
				return nil, nil
			}
			return new(kahn.Graph).Add(kahn.Node{ID: "list"}, kahn.Node{ID: "each", Map: &kahn.Map{Over: "items"}, In: []kahn.Edge{{From: "list", Param: "items"}}}), step
		}, nil, "output of node list is [y x], expected [x y]"},
		"a step that fails when it is repeated": {func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return chain(func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "b" && s.Attempt() > 1 {
					return nil, errors.New("the name is taken")
				}
				return nil, nil
			})
		}, nil, "the run is failed"},
		"another graph in each process": {func(*kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			inputs++
			return new(kahn.Graph).Add(kahn.Node{ID: "a", Config: inputs}), func(context.Context, *kahn.Step) (any, error) { return nil, nil }
		}, nil, "it does not continue"},
		"an effect that is repeated without a crash": {func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return chain(func(_ context.Context, s *kahn.Step) (any, error) { p.Effect(s.ID(), "pay"); return nil, nil })
		}, nil, `without a crash: the effect "pay" is performed under the keys "a" and "b"`},
		"an output that no codec knows": {func(*kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return chain(func(context.Context, *kahn.Step) (any, error) { return func() {}, nil })
		}, nil, ""}, // the nodes fail with and without a crash
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crashes, err := kahntest.CheckCrashes(t.Context(), row.start, row.opts...)
				if (err == nil) != (row.finds == "") || err != nil && !strings.Contains(err.Error(), row.finds) {
					t.Errorf("found %v after %d crashes, expected %q", err, crashes, row.finds)
				}
				if row.finds == "" && crashes < 4 {
					t.Errorf("%d crashes", crashes)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // Crashes reports the mistake to its testing.TB
		rec := &failures{TB: t}
		kahntest.Crashes(rec, func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
			return chain(func(_ context.Context, s *kahn.Step) (any, error) { return p.Restarted(), nil })
		})
		if len(rec.errors) != 1 {
			t.Error(rec.errors)
		}
	})
}

// failures is a testing.TB that records errors and logs.
type failures struct {
	testing.TB
	errors []string
	logs   []string
}

func (f *failures) Error(args ...any) { f.errors = append(f.errors, fmt.Sprint(args...)) }
func (f *failures) Logf(format string, args ...any) {
	f.logs = append(f.logs, fmt.Sprintf(format, args...))
}
func (f *failures) Helper() {}

// A run that waits at its gates does not fail the test. The test logs that the nodes after the gates were not tested.
func TestCrashesOfSuspendedRun(t *testing.T) {
	t.Parallel()
	gates := func(*kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
		return new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate}, kahn.Node{ID: "last word", Kind: kahn.KindGate}, kahn.Node{ID: "b", After: []string{"g"}}),
			func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }
	}
	logs := func(t *testing.T, opts ...kahn.Option) string {
		rec := &failures{TB: t}
		kahntest.Crashes(rec, gates, opts...)
		if len(rec.errors) != 0 {
			t.Error(rec.errors)
		}
		return strings.Join(rec.logs[1:], "\n")
	}
	synctest.Test(t, func(t *testing.T) {
		if text := logs(t); text != `nothing after "g", "last word" is tested: the run waits there; the option EarlySignals answers` {
			t.Error(text)
		}
		if text := logs(t, kahn.EarlySignals(map[string]any{"g": 1, "last word": 2})); text != "" {
			t.Error(text)
		}
	})
}

// A run that fails without a crash does not fail the test, since a workflow may have to fail. The test logs the error: it may be a mistake of the test.
func TestCrashesOfFailedRun(t *testing.T) {
	t.Parallel()
	type receipt struct{ Sum int }
	start := func(*kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
		return new(kahn.Graph).Add(kahn.Node{ID: "pay"}, kahn.Node{ID: "ship", After: []string{"pay"}}),
			func(context.Context, *kahn.Step) (any, error) { return receipt{7}, nil }
	}
	synctest.Test(t, func(t *testing.T) {
		rec := &failures{TB: t}
		kahntest.Crashes(rec, start) // the option Encoding is missing
		logged := strings.Join(rec.logs, "\n")
		if len(rec.errors) != 0 || !strings.Contains(logged, `also without a crash: run failed: node "pay": `) || !strings.Contains(logged, "receipt") {
			t.Error(rec.errors, rec.logs)
		}
		rec = &failures{TB: t}
		kahntest.Crashes(rec, start, kahn.Encoding(kahn.Types{"receipt": receipt{}}))
		if len(rec.errors) != 0 || len(rec.logs) != 1 {
			t.Error(rec.errors, rec.logs)
		}
	})
}

// form is a type with its own JSON form, which omits the error.
type form struct {
	N   int
	err error
}

func (f form) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%d", f.N), nil }

func TestSameValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b any
		same bool
	}{
		{1, 1, true}, {1, 1.0, false}, {1, 2, false}, {nil, nil, true}, {nil, form{}, false}, {form{}, nil, false},
		{form{1, errors.New("x")}, form{1, io.EOF}, true}, {form{1, nil}, form{2, nil}, false}, {form{N: 1}, &form{N: 1}, false},
	} {
		if got := kahntest.SameValue(c.a, c.b); got != c.same {
			t.Errorf("%v and %v: %v", c.a, c.b, got)
		}
	}
}
