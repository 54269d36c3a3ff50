package kahntest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// bank is a fake bank. It adds up the payments under each key.
type bank struct{ paid map[string]int }

func (b *bank) pay(key string, sum int) { b.paid[key] += sum }

func (b *bank) total() (sum int) {
	for _, n := range b.paid {
		sum += n
	}
	return sum
}

// shop returns a workflow that charges an order and ships it. Its invariant: at most 10 are charged, and nothing is shipped without a charge.
func shop(charge func(b *bank, s *kahn.Step)) func() kahntest.Workflow {
	return func() kahntest.Workflow {
		b := &bank{paid: map[string]int{}}
		g := new(kahn.Graph).Add(
			kahn.Node{ID: "log"},
			kahn.Node{ID: "charge", Retry: kahn.Retry{MaxAttempts: 3}},
			kahn.Node{ID: "ship", After: []string{"charge"}},
		)
		return kahntest.Workflow{
			Graph: g,
			Step: func(_ context.Context, s *kahn.Step) (any, error) {
				if s.ID() == "charge" {
					charge(b, s)
				}
				return nil, nil
			},
			Invariant: func(res *kahn.Result, _ error) error {
				if b.total() > 10 {
					return fmt.Errorf("%d were charged", b.total())
				}
				if n, _ := res.Node("ship"); n.Status == kahn.Completed && b.total() == 0 {
					return errors.New("shipped for nothing")
				}
				return nil
			},
		}
	}
}

// purchase returns a shop whose outside world recognizes payments and shipments by the key of the order. Everything paid must be shipped, and
// everything shipped must be paid. If `rule` is true, the payment has a compensation. Otherwise a node refunds the payment when the shipment
// fails.
func purchase(rule bool) func() kahntest.Workflow {
	return func() kahntest.Workflow {
		paid, shipped := map[string]bool{}, map[string]bool{}
		change := func(of map[string]bool, to bool) kahn.StepFunc {
			return func(context.Context, *kahn.Step) (any, error) { of["order"] = to; return nil, nil }
		}
		undo := func(of map[string]bool) func(context.Context, *kahn.Step) error {
			return func(context.Context, *kahn.Step) error { delete(of, "order"); return nil }
		}
		pay, ship := kahn.Node{ID: "pay", Do: change(paid, true)}, kahn.Node{ID: "ship", After: []string{"pay"}, Do: change(shipped, true)}
		g := new(kahn.Graph)
		if rule {
			pay.Compensate, ship.Compensate = undo(paid), undo(shipped)
			g.Add(pay, ship)
		} else {
			g.Add(pay, ship, kahn.Node{ID: "refund", Do: change(paid, false), In: []kahn.Edge{{From: "ship", On: kahn.OnFailure}}})
		}
		return kahntest.Workflow{Graph: g, Invariant: func(*kahn.Result, error) error {
			if paid["order"] != shipped["order"] {
				return fmt.Errorf("paid: %v, shipped: %v", paid["order"], shipped["order"])
			}
			return nil
		}}
	}
}

// A saga that is built from edges breaks its invariant in three cases: the answer of a payment is lost, the run is cancelled between payment and
// shipment, or the answer of a shipment is lost. Explore finds one of these gaps. In the workflow with compensations, Explore finds no gap,
// although some attempts to compensate fail.
func TestExploreFindsTheGapOfASaga(t *testing.T) {
	err := kahntest.CheckExplored(purchase(false), 300)
	if err == nil || !strings.Contains(err.Error(), "paid: ") || strings.Contains(err.Error(), ",") && strings.Count(err.Error(), ",") > 1 {
		t.Errorf("got %v", err)
	}
	kahntest.Explore(t, purchase(true))

	tries := 0
	err = kahntest.CheckExplored(func() kahntest.Workflow {
		w := purchase(true)()
		check := w.Invariant
		w.Invariant = func(res *kahn.Result, err error) error {
			if n, _ := res.Node("pay"); n.Compensation == kahn.CompensationDone {
				tries++
			}
			return check(res, err)
		}
		return w
	}, 300)
	if err != nil || tries < 20 {
		t.Errorf("%v; it was undone in %d runs", err, tries)
	}
}

// If a step charges again after the answer of its first attempt was lost, Explore reports this failure and no other.
func TestExploreFindsRepeatedEffect(t *testing.T) {
	t.Parallel()
	err := kahntest.CheckExplored(shop(func(b *bank, s *kahn.Step) { b.pay(fmt.Sprint(s.Attempt()), 10) }), 300)
	if err == nil || err.Error() != "charge#1 fails after its effect: 20 were charged" {
		t.Errorf("%v", err)
	}
	keyed := shop(func(b *bank, s *kahn.Step) { b.paid[s.IdempotencyKey()] = 10 })
	kahntest.Explore(t, keyed)
}

// If an edge is missing, Explore reports an order of steps that breaks the invariant.
func TestExploreFindsOrder(t *testing.T) {
	t.Parallel()
	workflow := func(after ...string) func() kahntest.Workflow {
		return func() kahntest.Workflow {
			var done []string
			return kahntest.Workflow{
				Graph: new(kahn.Graph).Add(kahn.Node{ID: "create"}, kahn.Node{ID: "fill", After: after}),
				Step: func(_ context.Context, s *kahn.Step) (any, error) {
					done = append(done, s.ID())
					return nil, nil
				},
				Invariant: func(*kahn.Result, error) error {
					if len(done) > 0 && done[0] == "fill" {
						return errors.New("filled before it was created")
					}
					return nil
				},
			}
		}
	}
	err := kahntest.CheckExplored(workflow(), 300)
	if err == nil || err.Error() != "fill#1 first: filled before it was created" {
		t.Errorf("%v", err)
	}
	kahntest.Explore(t, workflow("create"))
}

// Explore reaches every kind of run: completed, failed and cancelled runs, with backoffs, panics, gates and nested runs.
func TestExploreReaches(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	kahntest.Explore(t, func() kahntest.Workflow {
		inner := new(kahn.Graph).Add(kahn.Node{ID: "x"}, kahn.Node{ID: "y"})
		return kahntest.Workflow{
			Graph: new(kahn.Graph).Add(
				kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Hour}},
				kahn.Node{ID: "own", Do: func(context.Context, *kahn.Step) (any, error) { panic("own") }, ContinueOnFail: true},
				kahn.Node{ID: "sub", Sub: inner, After: []string{"a"}},
				kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"sub"}},
			),
			Step: func(context.Context, *kahn.Step) (any, error) { return nil, nil },
			Invariant: func(res *kahn.Result, err error) error {
				seen[res.Status.String()]++
				if n, _ := res.Node("own"); n.Cause.Kind == kahn.CausePanic {
					seen["panic"]++
				}
				if n, _ := res.Node("a"); n.Attempts == 2 && n.Status == kahn.Completed {
					seen["retried"]++
				}
				return nil
			},
		}
	})
	for _, what := range []string{"completed", "failed", "cancelled", "suspended", "panic", "retried"} {
		if want := 5; what != "completed" && seen[what] < want || what == "completed" && seen[what] != 0 {
			t.Errorf("%s: %d of %v", what, seen[what], seen)
		}
	}
}

// Explore reports workflows that do not compile, cannot begin, never end, or break the invariant without a failure.
func TestExploreRefuses(t *testing.T) {
	t.Parallel()
	one := new(kahn.Graph).Add(kahn.Node{ID: "x", Retry: kahn.Retry{MaxAttempts: 1 << 40, InitialDelay: -1}})
	fine := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	for want, w := range map[string]kahntest.Workflow{
		"unknown node": {Graph: new(kahn.Graph).Add(kahn.Node{ID: "x", After: []string{"y"}}), Step: fine},
		"bad option":   {Graph: one, Step: fine, Options: []kahn.Option{kahn.Limit(-1)}},
		"never ends":   {Graph: one, Step: func(context.Context, *kahn.Step) (any, error) { return nil, errors.New("again") }},
		"without a failure, in the order of the graph: no": {Graph: one, Step: fine, Invariant: func(*kahn.Result, error) error { return errors.New("no") }},
	} {
		err := kahntest.CheckExplored(func() kahntest.Workflow { return w }, 1)
		if want == "never ends" {
			want = "has not ended"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Explore reports a workflow without a graph, without a needed step function, or without runs. It reports a missing step function also if only a failure
// leads to the node.
func TestExploreWithoutParts(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	own := new(kahn.Graph).Add(kahn.Node{ID: "own", Do: nothing})
	for _, c := range []struct {
		w    kahntest.Workflow
		runs int
		want error
		text string
	}{
		{kahntest.Workflow{Step: nothing}, 1, kahn.ErrNoGraph, "without a failure, in the order of the graph: no graph"},
		{kahntest.Workflow{Graph: kahntest.Graph(t, "A>B")}, 1, kahn.ErrNoStep, `without a failure, in the order of the graph: no step function: node "A" needs one`},
		{kahntest.Workflow{Graph: new(kahn.Graph).Add(kahn.Node{ID: "own", Do: nothing}, kahn.Node{ID: "after", In: []kahn.Edge{{From: "own", On: kahn.OnFailure}}})}, 300, kahn.ErrNoStep,
			`: no step function: node "after" needs one`},
		{kahntest.Workflow{Graph: own}, 0, kahn.ErrBadValue, "bad value: 0 runs test nothing"},
		{kahntest.Workflow{Graph: own}, 300, nil, ""},
	} {
		err := kahntest.CheckExplored(func() kahntest.Workflow { return c.w }, c.runs)
		if !errors.Is(err, c.want) || c.want != nil && !strings.HasSuffix(err.Error(), c.text) {
			t.Errorf("%v, expected %s", err, c.text)
		}
	}
	if err := (&kahntest.Script{Acts: map[string][]kahntest.Act{"A": nil}}).Check(nil); !errors.Is(err, kahn.ErrNoGraph) {
		t.Errorf("Script.Check without a graph: %v", err)
	}
	var none context.Context
	_, err := kahntest.CheckCrashes(none, func(*kahntest.Process) (*kahn.Graph, kahn.StepFunc) { return own, nil })
	if !errors.Is(err, kahn.ErrNoContext) {
		t.Errorf("CheckCrashes without a context: %v", err)
	}
}

// Each row gives the classes of the edges by the letters of [kahn.Join], and the decision that follows from the comment of the rule.
func TestJoined(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		join    kahn.Join
		letters string
		want    string
	}{
		{kahn.AllSucceeded, "SS", "ok"}, {kahn.AllSucceeded, "SN", "ok"}, {kahn.AllSucceeded, "SX", "ok"}, {kahn.AllSucceeded, "NN", "S/up"},
		{kahn.AllSucceeded, "XX", "S/br"}, {kahn.AllSucceeded, "SF", "X"}, {kahn.AllSucceeded, "", "ok"},
		{kahn.AnySucceeded, "SF", "ok"}, {kahn.AnySucceeded, "FF", "X"}, {kahn.AnySucceeded, "NX", "S/br"},
		{kahn.AtLeast(2), "SSF", "ok"}, {kahn.AtLeast(2), "SFF", "X"}, {kahn.AtLeast(2), "SNN", "S/rule"},
		{kahn.AllDone, "SNXF", "ok"}, {kahn.AllDoneMinOne, "NFS", "ok"}, {kahn.AllDoneMinOne, "NF", "X"},
		{kahn.OneFailed, "SF", "ok"}, {kahn.OneFailed, "SS", "S/rule"}, {kahn.AllFailed, "FF", "ok"}, {kahn.AllFailed, "SF", "S/rule"},
		{kahn.NoneFailed, "NN", "ok"}, {kahn.NoneFailed, "SF", "X"}, {kahn.NoneSkipped, "SF", "ok"}, {kahn.NoneSkipped, "SN", "S/up"},
		{kahn.AllSkipped, "NX", "ok"}, {kahn.AllSkipped, "SN", "S/rule"}, {kahn.OneDone, "NF", "ok"}, {kahn.OneDone, "NN", "S/up"},
	} {
		got, err := kahntest.Joined(kahn.Node{Join: c.join}, c.letters)
		if err != nil || got != c.want {
			t.Errorf("%v of %s: %s, %v, expected %s", c.join, c.letters, got, err, c.want)
		}
	}
	for _, c := range []struct {
		node          kahn.Node
		letters, want string
	}{
		{kahn.Node{SkipMode: kahn.SkipStrict}, "SN", "S/up"}, {kahn.Node{SkipMode: kahn.SkipSatisfy}, "NN", "ok"},
		{kahn.Node{OnUpstreamFailure: kahn.UpstreamSkip}, "SF", "S/pf"}, {kahn.Node{OnUpstreamFailure: kahn.UpstreamPropagate}, "SF", "F"},
		{kahn.Node{Cleanup: true}, "FN", "ok"},
	} {
		if got, err := kahntest.Joined(c.node, c.letters); err != nil || got != c.want {
			t.Errorf("%v of %s: %s, %v", c.node, c.letters, got, err)
		}
	}
	if _, err := kahntest.Joined(kahn.Node{}, "SQ"); err == nil || !strings.Contains(err.Error(), `'Q' is no class of an edge: S, N, X or F`) {
		t.Errorf("%v", err)
	}
	if _, err := kahntest.Joined(kahn.Node{Join: kahn.AtLeast(3)}, "SS"); !errors.Is(err, kahn.ErrBadJoin) {
		t.Errorf("%v", err)
	}
}

// The calls of a fake store fail as its script says. A call whose answer is lost takes effect.
func TestFakeStore(t *testing.T) {
	t.Parallel()
	kahntest.InFakeTime(t, func(t *testing.T) {
		down, ctx := errors.New("down"), context.Background()
		s := &kahntest.FakeStore{Script: map[string][]kahntest.StoreFault{
			"Acquire": {{Err: down}, {Err: down, Applied: true}},
			"Commit":  {{}, {Err: down}, {Err: down, Applied: true}, {Delay: time.Second}},
			"Load":    {{Err: down}},
			"Renew":   {{Err: down}}, "Release": {{Err: down}},
		}}
		if _, _, err := s.Acquire(ctx, "r", "me", time.Minute); !errors.Is(err, down) || len(s.Runs()) != 0 {
			t.Errorf("%v", err)
		}
		if l, _, err := s.Acquire(ctx, "r", "me", time.Minute); !errors.Is(err, down) || l != (store.Lease{}) {
			t.Errorf("%v", err)
		}
		if _, _, err := s.Acquire(ctx, "r", "another", time.Minute); !errors.Is(err, store.ErrLeased) {
			t.Errorf("the lost acquisition has taken effect: %v", err)
		}
		if _, err := s.Load(ctx, "r"); !errors.Is(err, down) {
			t.Errorf("%v", err)
		}
		if err := errors.Join(s.Renew(ctx, store.Lease{}, 1), s.Release(ctx, store.Lease{})); strings.Count(err.Error(), "down") != 2 {
			t.Errorf("%v", err)
		}
		begin := time.Now()
		g := kahntest.Graph(t, "A>B B>C")
		res, err := kahn.Execute(ctx, g, (&kahntest.Script{}).Step, kahn.Durable(s), kahn.RunID("q"), kahn.Lease("", time.Hour))
		if err != nil || res.Status != kahn.RunCompleted || time.Since(begin) < time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if s.Calls("Commit") < 5 || s.Calls("Acquire") != 4 || s.Calls("List") != 0 {
			t.Errorf("%d commits, %d acquisitions", s.Calls("Commit"), s.Calls("Acquire"))
		}
		if _, err := (&kahntest.FakeStore{Script: map[string][]kahntest.StoreFault{"Comit": nil}}).Load(ctx, "q"); err == nil || !strings.Contains(err.Error(), `"Comit"`) || !strings.Contains(err.Error(), "Commit") {
			t.Errorf("%v", err)
		}
		ended, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		s.Script["Load"] = append(s.Script["Load"], kahntest.StoreFault{Delay: time.Hour})
		if _, err := s.Load(ended, "q"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// goldenFailures collects the errors that Golden reports.
type goldenFailures struct {
	testing.TB
	text string
}

func (f *goldenFailures) Helper()                           {}
func (f *goldenFailures) Errorf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) }
func (f *goldenFailures) Fatalf(format string, args ...any) { f.Errorf(format, args...); panic(f) }

// Golden accepts equal runs, and otherwise reports the first line that differs.
func TestGolden(t *testing.T) {
	t.Parallel()
	events := func(text string, acts map[string][]kahntest.Act, opts ...kahn.Option) *kahntest.Trial {
		steps := &kahntest.Script{Acts: acts}
		return kahntest.Run(t, kahntest.Graph(t, text), steps.Step, opts...)
	}
	file := t.TempDir() + "/golden.txt"
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	broken := map[string][]kahntest.Act{"B": {{Err: errors.New("broken")}}}
	want := events("A>B B>C A>D", broken, kahn.Limit(1)).Events
	write(kahntest.Stream(want))
	for range 5 {
		kahntest.Golden(t, file, events("A>B B>C A>D", broken, kahn.Limit(1)).Events)
	}
	f := &goldenFailures{TB: t}
	kahntest.Golden(f, file, events("A>B B>C A>D", nil, kahn.Limit(1)).Events)
	if !strings.Contains(f.text, "node.failed") || !strings.Contains(f.text, "node.completed node=B") || !strings.Contains(f.text, kahntest.GoldenVariable) {
		t.Errorf("%s", f.text)
	}
	f = &goldenFailures{TB: t}
	kahntest.Golden(f, file, want[:3])
	if !strings.Contains(f.text, "event 4\nactual   (no more events)\nexpected msg=") {
		t.Errorf("%s", f.text)
	}
	wide := "A A1 A2 A3 A4>B A5>B A6"
	write(kahntest.Stream(kahntest.ByNode(events(wide, nil).Events)))
	for range 20 {
		kahntest.Golden(t, file, kahntest.ByNode(events(wide, nil).Events))
	}
	f = &goldenFailures{TB: t}
	func() {
		defer func() { _ = recover() }() // recovers from Fatalf
		kahntest.Golden(f, file+".missing", want)
	}()
	if !strings.Contains(f.text, "missing") || !strings.Contains(f.text, kahntest.GoldenVariable) {
		t.Errorf("%s", f.text)
	}
}

// If the environment variable is set, Golden writes the file and its folder.
func TestGoldenWrites(t *testing.T) {
	t.Setenv(kahntest.GoldenVariable, "1")
	file := t.TempDir() + "/a/b.txt"
	run := kahntest.Run(t, kahntest.Graph(t, "A>B"), (&kahntest.Script{}).Step, kahn.Limit(1))
	kahntest.Golden(t, file, run.Events)
	data, err := os.ReadFile(file)
	if err != nil || string(data) != kahntest.Stream(run.Events) {
		t.Errorf("%s, %v", data, err)
	}
}
