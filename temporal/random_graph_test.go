package temporal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// graphs makes random graphs with every feature that carries over: all joins, routes and side edges, gates, composites and stops. If the run
// performs one step at a time, the order in which nodes end is fixed, and outcomes may depend on it. Otherwise the Results of the graphs do not
// depend on that order.
type graphs struct {
	rng     *rand.Rand
	ordered bool       // the run performs one step at a time
	undoes  *rand.Rand // decides which nodes can be undone
}

func (x graphs) one(n int) bool { return x.rng.IntN(n) == 0 }

func pick[T any](x graphs, of ...T) T { return of[x.rng.IntN(len(of))] }

// delay returns a duration long and random enough that two delays hardly ever end in the same second: a workflow's clock advances while
// attempts run.
func (x graphs) delay() time.Duration { return time.Duration(1+x.rng.IntN(1_000_000)) * time.Second }

// plan makes a graph that compiles, with composites down to the given depth.
func (x graphs) plan(depth int) *kahn.Plan {
	for {
		if p, err := x.graph(depth).Compile(); err == nil {
			return p
		}
	}
}

// firedPlan is like plan, but the graph has a trigger before its first nodes.
func (x graphs) firedPlan(depth int) *kahn.Plan {
	for {
		g := x.graph(depth)
		for _, n := range g.Nodes() {
			if len(n.In) == 0 && n.Kind != kahn.KindEnd {
				g.Connect(kahn.Edge{From: "fired", To: n.ID})
			}
		}
		if p, err := g.Add(kahn.Node{ID: "fired", Kind: kahn.KindTrigger}).Compile(); err == nil {
			return p
		}
	}
}

func (x graphs) graph(depth int) *kahn.Graph {
	g := &kahn.Graph{Groups: []kahn.Group{{Name: "g", Limit: 1 + x.rng.IntN(2), CancelOnFailure: x.ordered && x.one(3)}}}
	if x.one(8) {
		g.Defaults = kahn.Defaults{OnUpstreamFailure: x.upstream(), SkipMode: x.skipMode()}
	}
	count := 1 + x.rng.IntN(9)
	nodes := make([]kahn.Node, 0, count)
	for range count {
		nodes = append(nodes, x.node(nodes, depth))
	}
	g.Add(nodes...)
	if x.one(3) {
		end := kahn.Node{ID: "end", Kind: kahn.KindEnd}
		if last := nodes[count-1]; routes(last) {
			end.In = []kahn.Edge{{From: last.ID, Label: "yes"}}
		}
		g.Add(end)
	}
	return g
}

func (x graphs) skipMode() machine.SkipMode {
	return pick(x, 0, 0, kahn.SkipCascade, kahn.SkipSatisfy, kahn.SkipStrict)
}

func (x graphs) upstream() machine.UpstreamPolicy {
	return pick(x, 0, 0, kahn.UpstreamAbort, kahn.UpstreamSkip, kahn.UpstreamPropagate, kahn.UpstreamSubstitute)
}

// routes reports whether the edges of a node may have labels.
func routes(n kahn.Node) bool { return n.Routes || n.Test != nil || n.Kind == kahn.KindGate }

func (x graphs) node(before []kahn.Node, depth int) kahn.Node {
	n := kahn.Node{
		ID: fmt.Sprint("n", len(before)), Priority: x.rng.IntN(3), Cleanup: x.one(12), Disabled: x.one(25), ContinueOnFail: x.one(6), Handling: pick(x, kahn.HandlingDefault, kahn.HandlingDefault, kahn.HandlingDefault, kahn.HandlingDefault, kahn.Handles, kahn.Observes),
		Critical: x.ordered && x.one(15), OnUpstreamFailure: x.upstream(), SkipMode: x.skipMode(), NoMatch: pick(x, kahn.NoMatchSkip, kahn.NoMatchFail),
		Default: pick[any](x, nil, "a default"),
	}
	control := 0
	for _, from := range before {
		if !x.one(3) {
			continue
		}
		e := kahn.Edge{From: from.ID, On: pick(x, kahn.OnSuccess, kahn.OnSuccess, kahn.OnSuccess, kahn.OnFailure, kahn.OnAlways)}
		switch {
		case routes(from) && !x.one(3):
			e.On, e.Label = kahn.OnSuccess, pick(x, "yes", "no", "default")
		case e.On == kahn.OnFailure && x.one(3):
			e.Causes = []kahn.CauseKind{kahn.CauseStepError, kahn.CauseSubrun}
		}
		if e.DataOnly = e.On == kahn.OnSuccess && e.Label == "" && x.one(6); !e.DataOnly {
			control++
		}
		n.In = append(n.In, e)
	}
	early := x.join(&n, control)
	x.bind(&n, early)
	if x.one(3) {
		n.Retry = kahn.Retry{MaxAttempts: 2 + x.rng.IntN(2), InitialDelay: x.delay(), MaxDelay: -1, Jitter: kahn.JitterNone}
		if x.one(2) {
			n.Retry.RetryOn = []kahn.CauseKind{kahn.CauseStepError, kahn.CauseSubrun, kahn.CausePanic}
		}
		if x.one(3) {
			n.OverallTimeout = x.delay()
		}
	}
	if depth > 0 && x.one(4) {
		n.Groups = []string{"g"}
	}
	if x.one(5) {
		n.Key = "k"
	}
	x.shape(&n, depth)
	if n.Test == nil && n.Kind != kahn.KindGate && !n.Cleanup && x.undoes.IntN(3) == 0 && (n.Map == nil || n.Sub == nil) {
		n.CompensateBy = &kahn.CompensateBy{Kind: "undo", Config: n.ID}
		n.CompensateRetry = kahn.Retry{MaxAttempts: 1 + x.undoes.IntN(4), InitialDelay: time.Duration(1+x.undoes.IntN(1_000_000)) * time.Second, MaxDelay: -1, Jitter: kahn.JitterNone}
	}
	return n
}

// join chooses the join rule of a node, and reports whether the rule may decide before all predecessors have ended.
func (x graphs) join(n *kahn.Node, control int) (early bool) {
	if n.Cleanup || x.one(2) {
		return false
	}
	n.Join = pick(x, kahn.AllSucceeded, kahn.AnySucceeded, kahn.AnySucceeded, kahn.AllDone, kahn.AllDoneMinOne, kahn.OneFailed, kahn.AllFailed, kahn.NoneFailed,
		kahn.NoneSkipped, kahn.AllSkipped, kahn.OneDone, kahn.Boundary)
	early = n.Join == kahn.AnySucceeded || n.Join == kahn.OneFailed || n.Join == kahn.OneDone
	if control > 0 && x.one(5) {
		n.Join, early = kahn.AtLeast(1+x.rng.IntN(control)), true
	}
	n.CancelLosers = x.ordered && early && x.one(2)
	n.CancelOnLateFailure = x.ordered && early && x.one(3)
	return early
}

// bind makes edges deliver values to parameters. What an early join delivers depends on the order in which nodes end.
func (x graphs) bind(n *kahn.Node, early bool) {
	if early && !x.ordered {
		return
	}
	bound := map[string]bool{}
	for i := range n.In {
		if !x.one(3) {
			name := pick(x, "a", "b")
			n.In[i].Param, bound[name] = name, true
		}
	}
	n.Merge = pick(x, kahn.MergeArray, kahn.MergeObject, kahn.MergeConcat)
	if x.one(4) {
		n.Ports = []kahn.Port{{Name: "a", Required: bound["a"] && x.one(2)}, {Name: "b", Default: "port"}, {Name: "items"}, {Name: "in"}}
	}
}

// shape makes a node a composite, a gate or a condition, or gives it a guard or a fallback.
func (x graphs) shape(n *kahn.Node, depth int) {
	kind := x.rng.IntN(16)
	if kind < 5 && depth > 0 {
		n.Params = map[string]any{"items": []any{"x", "y", "z"}[:x.rng.IntN(4)]}
		switch kind {
		case 0, 1:
			n.Sub = x.graph(depth - 1)
		case 2:
			n.Map = &kahn.Map{Over: "items", Limit: x.rng.IntN(3), ToleratedCount: x.rng.IntN(3), Compact: x.one(2), FailFast: x.ordered && x.one(2)}
		case 3:
			n.Map = &kahn.Map{Over: "items", Limit: x.rng.IntN(3), ToleratedPercent: float64(x.rng.IntN(101))}
			n.Sub = x.graph(depth - 1)
		case 4:
			n.Sub = x.graph(depth - 1)
			n.Loop = &kahn.Loop{While: x.again(), MaxIterations: 1 + x.rng.IntN(4), OnLimit: kahn.LoopLimit(x.rng.IntN(2)), Collect: x.one(2)}
			if x.one(2) {
				n.Loop.Pause = x.delay()
			}
		}
		if x.one(4) {
			x.guard(n)
		}
		return
	}
	switch kind {
	case 5, 6:
		x.guard(n)
	case 7, 8:
		if !n.Cleanup {
			ask, answer := x.ask(n), pick[any](x, "yes", "no", "neither", true)
			*n = kahn.Node{ID: n.ID, In: n.In, Join: n.Join, SkipMode: n.SkipMode, OnUpstreamFailure: n.OnUpstreamFailure, NoMatch: n.NoMatch}
			n.Test = func(v kahn.View) (any, error) {
				if !ask(v) {
					return "no", nil
				}
				return answer, nil
			}
		}
	case 9, 10:
		*n = kahn.Node{ID: n.ID, In: n.In, Join: n.Join, SkipMode: n.SkipMode, OnUpstreamFailure: n.OnUpstreamFailure, Kind: kahn.KindGate}
		n.Gate = &kahn.Gate{Choices: []string{"yes", "no"}}
		if x.one(3) {
			n.Gate.Timeout, n.Gate.OnTimeout = x.delay(), kahn.GateTimeout(x.rng.IntN(2))
		}
	case 11, 12:
		n.Routes, n.Kind = true, "routes"
	case 13:
		saved := x.one(2)
		n.Fallback = func(_ context.Context, err error) (any, error) {
			if !saved {
				return nil, errors.New("the fallback, too")
			}
			return "instead of " + err.Error(), nil
		}
	}
}

// ask returns a predicate on a View. If the run performs one step at a time, the predicate may ask about nodes.
func (x graphs) ask(n *kahn.Node) func(kahn.View) bool {
	yes := x.one(2)
	if !x.ordered || len(n.In) == 0 || x.one(3) {
		return func(kahn.View) bool { return yes }
	}
	from, status := n.In[x.rng.IntN(len(n.In))].From, pick(x, kahn.Completed, kahn.Failed, kahn.Skipped)
	return func(v kahn.View) bool { return (v.Status(from) == status && v.Err(from) == nil) == yes }
}

func (x graphs) guard(n *kahn.Node) {
	ask, fate := x.ask(n), x.rng.IntN(8)
	n.GuardErrors = pick(x, 0, kahn.GuardAllow, kahn.GuardSkip, kahn.GuardFail)
	n.When = func(v kahn.View) (bool, error) {
		switch fate {
		case 0:
			return true, errors.New("the guard cannot tell")
		case 1:
			panic("in the guard")
		case 2:
			_ = v.Output("nobody") // the id does not exist
		}
		return fate < 6 || ask(v), nil
	}
}

// again is the condition of a loop.
func (x graphs) again() func(kahn.View) (bool, error) {
	times, slips, asks := 1+x.rng.IntN(3), x.one(12), x.ordered && x.one(3)
	return func(v kahn.View) (bool, error) {
		if slips {
			_ = v.Status("nobody")
		}
		if asks && v.Status("n0") == kahn.Skipped {
			return false, nil
		}
		return v.Iteration() < times, nil
	}
}

// settings draws the settings of a run.
func (x graphs) settings() Settings {
	s := Settings{
		Limit: x.rng.IntN(4), KeyLimit: x.rng.IntN(2), Mode: kahn.Mode(x.rng.IntN(2)), StatusRule: kahn.StatusRule(x.rng.IntN(3)),
		CleanupTimeout: 1_000_000 * time.Hour,
	}
	if x.one(2) {
		s.DefaultRetry = &kahn.Retry{MaxAttempts: 2, InitialDelay: x.delay(), Jitter: kahn.JitterNone}
	}
	s.OnSuspend = kahn.SuspendDrain // without this, the order decides which nodes begin before a node waits
	if x.ordered {
		s.Limit, s.OnFailure, s.StopMode = 1, kahn.FailureMode(x.rng.IntN(3)), kahn.StopMode(x.rng.IntN(2))
		if s.OnSuspend = 0; x.one(4) {
			s.OnSuspend = kahn.SuspendStop
		}
		if x.one(6) {
			s.Timeout = 10 * x.delay()
		}
		if x.one(6) {
			s.StartRate = kahn.Rate{Starts: 1 + x.rng.IntN(3), Per: x.delay()}
		}
	}
	return s
}
