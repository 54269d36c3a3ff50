package temporal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// randomGraph makes a graph of a few nodes with composites down to the given depth, gates, guards, retries, groups and keys. The outcome does
// not depend on which node ends first.
func randomGraph(rng *rand.Rand, depth int) *kahn.Graph {
	g := new(kahn.Graph)
	g.Groups = []kahn.Group{{Name: "g", Limit: 1 + rng.IntN(2)}}
	for i := range 1 + rng.IntN(6) {
		n := kahn.Node{ID: fmt.Sprint("n", i), Priority: rng.IntN(3), ContinueOnFail: rng.IntN(5) == 0, Cleanup: rng.IntN(12) == 0}
		for j := range i {
			if rng.IntN(3) == 0 {
				on := []kahn.On{kahn.OnSuccess, kahn.OnSuccess, kahn.OnFailure, kahn.OnAlways}[rng.IntN(4)]
				n.In = append(n.In, kahn.Edge{From: fmt.Sprint("n", j), On: on, DataOnly: on == kahn.OnSuccess && rng.IntN(6) == 0})
			}
		}
		if rng.IntN(3) == 0 {
			n.Retry = kahn.Retry{MaxAttempts: 2 + rng.IntN(2), InitialDelay: time.Duration(rng.IntN(100)) * time.Second}
		}
		if depth > 0 && rng.IntN(4) == 0 {
			n.Groups = []string{"g"}
		}
		if rng.IntN(5) == 0 {
			n.Key = "k"
		}
		if len(n.In) > 1 && !n.Cleanup && rng.IntN(3) == 0 {
			n.Join = kahn.AnySucceeded
		} else {
			for e := range n.In {
				if rng.IntN(2) == 0 {
					n.In[e].Param = []string{"a", "b"}[rng.IntN(2)]
				}
			}
			n.Merge = []string{kahn.MergeArray, kahn.MergeObject, kahn.MergeConcat}[rng.IntN(3)]
		}
		shape(rng, depth, &n)
		g.Add(n)
	}
	if rng.IntN(3) == 0 {
		g.Add(kahn.Node{ID: "end", Kind: kahn.KindEnd})
	}
	return g
}

// shape makes a node a composite, a gate or a condition, or gives it a guard.
func shape(rng *rand.Rand, depth int, n *kahn.Node) {
	pass, kind := rng.IntN(4) > 0, rng.IntN(14)
	if kind < 5 && depth > 0 {
		n.Params = map[string]any{"items": []any{"x", "y", "z"}[:rng.IntN(4)]}
		switch kind {
		case 0, 1:
			n.Sub = randomGraph(rng, depth-1)
		case 2:
			n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedCount: rng.IntN(3), Compact: rng.IntN(2) == 0}
		case 3:
			n.Map = &kahn.Map{Over: "items", Limit: rng.IntN(3), ToleratedPercent: float64(rng.IntN(101))}
			n.Sub = randomGraph(rng, depth-1)
		case 4:
			times := 1 + rng.IntN(3)
			n.Sub = randomGraph(rng, depth-1)
			n.Loop = &kahn.Loop{
				While: func(v kahn.View) (bool, error) { return v.Iteration() < times, nil }, MaxIterations: 1 + rng.IntN(4),
				OnLimit: kahn.LoopLimit(rng.IntN(2)), Pause: time.Duration(rng.IntN(2)) * time.Minute,
			}
		}
		return
	}
	switch kind {
	case 5, 6:
		n.When = func(kahn.View) (bool, error) { return pass, nil }
	case 7:
		if !n.Cleanup {
			*n = kahn.Node{ID: n.ID, In: n.In, Test: func(kahn.View) (any, error) { return pass, nil }}
		}
	case 8:
		if !n.Cleanup {
			*n = kahn.Node{ID: n.ID, In: n.In, Kind: kahn.KindGate}
		}
	}
}

// seeds returns how many seeds a random test tries, and the first of them: 0. In the long mode the first seed is random, or the value of KAHN_FIRST,
// and the test logs it.
func seeds(t *testing.T, usual, full uint64) (n, first uint64) {
	t.Helper()
	if os.Getenv("KAHN_LONG") == "" {
		return usual, 0
	}
	first = rand.Uint64N(1e9)
	if text := os.Getenv("KAHN_FIRST"); text != "" {
		var err error
		first, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("KAHN_FIRST=%d", first)
	return full, first
}

// fate returns a number that decides what an attempt does, or how a gate is answered. It depends only on the salt, the path and the number of
// the attempt.
func fate(salt uint64, path string, attempt int) int {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s %d", salt, path, attempt)
	return rand.New(rand.NewPCG(h.Sum64(), 1)).IntN(10)
}

func fatedStep(salt uint64) kahn.StepFunc {
	return func(_ context.Context, s *kahn.Step) (any, error) {
		switch fate(salt, s.Path(), s.Attempt()) {
		case 0, 1:
			return nil, fmt.Errorf("attempt %d of %s failed", s.Attempt(), s.Path())
		case 2:
			return nil, kahn.Permanent(errors.New("for good"))
		case 3:
			return nil, kahn.Skip("no")
		case 4:
			panic("in " + s.Path())
		}
		return map[string]any{"path": s.Path(), "attempt": s.Attempt(), "a": s.Params()["a"], "b": s.Params()["b"]}, nil
	}
}

// errorsInText matches the text of a value that MergeConcat wrote as JSON, from its first error on. Such texts differ on Temporal: there a
// NodeError keeps only the text of its error, and the error of a panic has the stack of another process.
var errorsInText = regexp.MustCompile(`(?s)"Err":\{.*`)

// describe returns everything in a Result that does not depend on times.
func describe(res *kahn.Result, prefix string) (lines []string) {
	lines = append(lines, fmt.Sprintf("%s: %v degraded=%t output=%v", prefix, res.Status, res.Degraded, res.Output()))
	for n := range res.Nodes() {
		err := ""
		if n.Err != nil {
			err = n.Err.Error()
		}
		lines = append(lines, fmt.Sprintf("%s%s %s attempts=%d cause=%v origins=%v labels=%v tolerated=%t output=%v err=%s compensation=%v %v", prefix, n.ID,
			kahntest.Status(n.Status, n.Skip.Kind), n.Attempts, n.Cause.Kind, n.Cause.Origins, n.Labels, n.Tolerated, n.Output, err, n.Compensation, n.CompensationErr))
		if n.Sub != nil {
			lines = append(lines, describe(n.Sub, prefix+n.ID+"/")...)
		}
	}
	for i := range lines {
		lines[i] = errorsInText.ReplaceAllString(lines[i], "an error")
	}
	slices.Sort(lines)
	return lines
}

// subject is a run that is performed twice: in this process, and on Temporal.
type subject struct {
	plan     *kahn.Plan
	settings Settings
	inputs   map[string]any
	fire     *Fire
	step     kahn.StepFunc
	answer   func(gate string) any // the answer for a gate; it encodes as JSON
	options  Options               // the options of the worker
	former   bool                  // see trial.former
	seed     uint64                // named in failures
	ended    *endings              // the order in which attempts ended on Temporal; nil if it does not matter
}

// fated returns a run whose steps behave as fate decides for the salt.
func fated(t *testing.T, g *kahn.Graph, salt uint64, s Settings) subject {
	return subject{
		plan: plan(t, g), settings: s, step: fatedStep(salt), answer: func(gate string) any { return fate(salt, gate, 0) < 5 },
		options: Options{Pure: salt%2 == 0}, seed: salt,
	}
}

func here(t *testing.T, g *kahn.Graph, salt uint64, s Settings) []string {
	return fated(t, g, salt, s).here(t)
}

func there(t *testing.T, g *kahn.Graph, salt uint64, s Settings, continueAfter int, by *shares) ([]string, *trial) {
	x := fated(t, g, salt, s)
	x.options.ContinueAfter = continueAfter
	return x.there(t, by)
}

// answering is the interval at which the test answers the first waiting node.
const answering = 1000 * time.Hour

// untilLook returns the time until the next answer.
func untilLook(since time.Duration) time.Duration { return answering - since%answering }

// first returns the waiting node whose path sorts first.
func first(waits []kahn.Wait) (gate string, ok bool) {
	if len(waits) == 0 {
		return "", false
	}
	return slices.MinFunc(waits, func(a, b kahn.Wait) int { return strings.Compare(a.Node, b.Node) }).Node, true
}

// here performs the run in this process.
func (x subject) here(t *testing.T) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		opts := append(x.settings.options(), kahn.Inputs(x.inputs))
		if x.fire != nil {
			opts = append(opts, kahn.Fire(x.fire.Trigger, x.fire.Payload))
		}
		began := time.Now()
		run, err := x.plan.Start(t.Context(), x.step, opts...)
		require.NoError(t, err)
		for !run.Status().Terminal() {
			time.Sleep(untilLook(time.Since(began)))
			if gate, ok := first(run.Waiting()); ok {
				require.NoError(t, run.Signal(context.Background(), gate, x.answer(gate)))
			}
		}
		res, _ := run.Wait()
		lines = describe(res, "")
	})
	return lines
}

// there performs the run on Temporal.
func (x subject) there(t *testing.T, by *shares) ([]string, *trial) {
	on := &trial{former: x.former, workflow: Workflow{Plan: x.plan, Settings: x.settings, Fire: x.fire}, options: x.options, inputs: x.inputs}
	on.options.Step = x.step
	if x.ended != nil {
		on.interceptors = before(x.ended.names)
	}
	on.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		by.listen(t, env)
		if x.ended != nil {
			x.ended.listen(env)
		}
		var look func()
		look = func() {
			value, err := env.QueryWorkflow(StateQuery)
			if err != nil {
				t.Error(err)
				return
			}
			var s state
			if err := value.Get(&s); err != nil {
				t.Error(err)
				return
			}
			waits, err := s.waits(kahn.Types(nil))
			if err != nil {
				t.Error(err)
			}
			if gate, ok := first(waits); ok {
				answer, err := json.Marshal(x.answer(gate))
				if err != nil {
					t.Error(err)
				}
				update(t, env, SignalUpdate, signalRequest{Gate: gate, Value: answer})
			}
			if !s.Status.Terminal() {
				env.RegisterDelayedCallback(look, untilLook(env.Now().Sub(epoch)))
			}
		}
		env.RegisterDelayedCallback(look, untilLook(env.Now().Sub(epoch)))
	}
	res, err := on.run(t)
	require.NotNil(t, res, "seed %d: %v", x.seed, err)
	return describe(res, ""), on
}

// world decides what the steps of a random run do, and records what they see.
type world struct {
	salt    uint64
	ordered bool // the run performs one step at a time
	nodes   bool // calls have the results of all ancestors

	mu  sync.Mutex
	saw map[string][]string
}

func (w *world) step(_ context.Context, s *kahn.Step) (any, error) {
	w.note(s)
	if s.Compensating() {
		switch fate(w.salt, s.Path()+" is undone", s.Attempt()) {
		case 0, 1, 2:
			return nil, fmt.Errorf("attempt %d to undo %s failed", s.Attempt(), s.Path())
		case 3:
			panic("in the undoing of " + s.Path())
		case 4:
			return nil, kahn.Permanent(errors.New("not to be undone"))
		}
		return "nothing", nil
	}
	_, resumed := s.Resumed()
	switch f := fate(w.salt, s.Path(), s.Attempt()); fate(w.salt, s.Path()+" does", s.Attempt()) + f%2*10 {
	case 0, 1, 2:
		return nil, fmt.Errorf("attempt %d of %s failed", s.Attempt(), s.Path())
	case 3:
		return nil, kahn.Permanent(errors.New("for good"))
	case 4:
		return nil, kahn.Skip("no")
	case 5:
		panic("in " + s.Path())
	case 6:
		return nil, kahn.RateLimited(errors.New("slower"), 77*time.Second)
	case 7:
		if !resumed {
			return nil, kahn.Suspend("", s.Path(), []any{s.Path()})
		}
	case 8:
		if w.ordered && f == 0 {
			return nil, kahn.AbortRun(errors.New("all of it"))
		}
	}
	if s.Kind() == "routes" {
		return []string{"yes", "no", "neither"}[fate(w.salt, s.Path()+" takes", 0)%3], nil
	}
	return map[string]any{"path": s.Path(), "attempt": s.Attempt(), "a": s.Params()["a"], "b": s.Params()["b"]}, nil
}

// note records what a step sees, except ids of the run and times. If the run is not ordered, note leaves out what the step sees of other nodes,
// since this depends on the order in which they end.
func (w *world) note(s *kahn.Step) {
	var lines []string
	tell := func(of string, receiver any) {
		v := reflect.ValueOf(receiver)
		for i := range v.NumMethod() {
			switch m := v.Type().Method(i); m.Name {
			case "Done", "Err", "View", "Call", "CallWithoutView", "Do", "Data", "Deadline", "Queued", "RunID", "IdempotencyKey":
			case "Predecessors", "UpstreamAll":
				if !w.ordered {
					continue
				}
				fallthrough
			default:
				if m.Type.NumIn() == 1 {
					for _, out := range v.Method(i).Call(nil) {
						lines = append(lines, fmt.Sprint(of, m.Name, " ", plainly(out.Interface())))
					}
				}
			}
		}
	}
	tell("", s)
	tell("View.", s.View())
	for _, name := range []string{"in", "item", "index", "iteration", "previous", "items"} {
		v, ok := s.Root(name)
		of, has := s.View().Root(name)
		lines = append(lines, fmt.Sprint("input ", name, plainly(v), ok, plainly(of), has))
	}
	if w.ordered {
		for _, p := range s.Predecessors() {
			lines = append(lines, fmt.Sprint("error of ", p.ID, plainly(s.UpstreamErr(p.ID))))
		}
	}
	for i := range 9 {
		if v, id := s.View(), fmt.Sprint("n", i); w.ordered && w.nodes {
			lines = append(lines, fmt.Sprint("View of ", id, v.Has(id), v.Status(id), plainly(v.Output(id)), plainly(v.Err(id))))
		}
	}
	if sum := sha256.Sum256([]byte(s.RunID() + "\x00" + s.Path())); s.IdempotencyKey() != hex.EncodeToString(sum[:]) {
		lines = append(lines, "it has another key")
	}
	for i := range lines {
		lines[i] = errorsInText.ReplaceAllString(lines[i], "an error")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saw[sawKey(s)] = lines
}

func sawKey(s *kahn.Step) string {
	_, resumed := s.Resumed()
	return fmt.Sprintf("%s, attempt %d, resumed %t, undone %t", s.Path(), s.Attempt(), resumed, s.Compensating())
}

// The method has reports whether the step was called for the attempt.
func (w *world) has(s *kahn.Step) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.saw[sawKey(s)]
	return ok
}

// plainly returns a value with errors replaced by their texts.
func plainly(v any) any {
	switch v := v.(type) {
	case error:
		return v.Error()
	case map[string]any:
		m := map[string]any{}
		for name, x := range v {
			m[name] = plainly(x)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = plainly(x)
		}
		return list
	}
	return v
}

// random chooses a run, and a world for its steps. The same seed gives the same choices for the run in this process and for the run on Temporal.
func random(seed uint64) (subject, *world) {
	x := subject{seed: seed}
	rng := rand.New(rand.NewPCG(22, seed))
	g := graphs{rng: rng, ordered: rng.IntN(2) == 0, undoes: rand.New(rand.NewPCG(23, seed))}
	x.settings, x.inputs = g.settings(), map[string]any{"in": float64(seed)}
	if fires := g.one(3); !fires {
		x.plan = g.plan(2)
	} else {
		x.plan = g.firedPlan(2)
		x.fire = &Fire{Trigger: "fired", Payload: "payload"}
	}
	x.answer = func(gate string) any { return []string{"yes", "no"}[fate(seed, gate, 0)%2] }
	x.former = seed%4 == 0
	x.options = Options{Pure: g.one(2), View: g.one(2), ContinueAfter: pick(g, 0, 1, 2, 3, 5)}
	if !g.ordered && g.one(3) {
		x.settings.MapChildren = 4
	}
	return x, &world{salt: seed, ordered: g.ordered, nodes: x.options.View, saw: map[string][]string{}}
}

// knownOrigins matches the origins in the text of an error that a step got from a node. The text has only the origins that were known when the
// step began.
var knownOrigins = regexp.MustCompile(`upstream_(failure|cancelled) of ("n?[0-9end]+"(, )?)+`)

// notUndone matches the part of an error's text that names compensations that failed, see world.step.
var notUndone = func() *regexp.Regexp {
	path := `[a-z]+[0-9]*(\[[0-9]+\]|#[0-9]+)?`
	path += "(/" + path + ")*"
	one := `node "` + path + `": compensation failed: (not to be undone|panic: in the undoing of ` + path + `|attempt [0-9]+ to undo ` + path + ` failed)`
	return regexp.MustCompile(one + "(\n\t" + one + ")+")
}()

// withoutOrder removes from lines what depends on the order in which nodes end: the known origins, unless the run is ordered, and the order in which
// an error names compensations that failed. Nodes that do not depend on each other are undone at once, also in an ordered run.
func withoutOrder(lines []string, ordered bool) {
	for i, text := range lines {
		if !ordered {
			text = knownOrigins.ReplaceAllString(text, "upstream_$1")
		}
		lines[i] = notUndone.ReplaceAllStringFunc(text, func(list string) string {
			parts := strings.Split(list, "\n\t")
			slices.Sort(parts)
			return strings.Join(parts, "\n\t")
		})
	}
}

// same reports whether a run has the same Result in this process and on Temporal, and whether its steps see the same data. It ignores what depends
// on the order, see withoutOrder.
func same(want, got []string, home, away *world) bool {
	withoutOrder(want, home.ordered)
	withoutOrder(got, home.ordered)
	for _, saw := range []map[string][]string{home.saw, away.saw} {
		for _, lines := range saw {
			withoutOrder(lines, home.ordered)
		}
	}
	return slices.Equal(want, got) && reflect.DeepEqual(home.saw, away.saw)
}

// endings lists the attempts of a run in the order in which their activities ended.
type endings struct {
	list     []ended
	running  int  // the number of activities that have not ended
	overlaps bool // two activities have run at once
	away     *world
}

type ended struct {
	name      string // see nameOf
	cancelled bool   // the activity was cancelled, and has no result
}

// listen records the attempts of one execution.
func (x *endings) listen(env *testsuite.TestWorkflowEnvironment) {
	x.running = 0
	note := func(id string, cancelled bool) {
		_, name, _ := strings.Cut(id, " ")
		x.list = append(x.list, ended{name, cancelled})
		x.running--
	}
	env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) { note(info.ActivityID, false) })
	env.SetOnActivityCanceledListener(func(info *activity.Info) { note(info.ActivityID, true) })
}

// names makes an interceptor that puts the names of attempts into the ids of their activities.
func (x *endings) names(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor {
	return &endingsOf{interceptor.WorkflowOutboundInterceptorBase{Next: next}, x}
}

type endingsOf struct {
	interceptor.WorkflowOutboundInterceptorBase
	to *endings
}

func (o *endingsOf) ExecuteActivity(ctx workflow.Context, kind string, args ...any) workflow.Future {
	opts := workflow.GetActivityOptions(ctx)
	opts.ActivityID = fmt.Sprint(len(o.to.list)+o.to.running, " ", opts.Summary)
	o.to.running++
	o.to.overlaps = o.to.overlaps || o.to.running > 1
	return o.Next.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), kind, args...)
}

// The method next returns the index of the call that ended first on Temporal, and whether it was cancelled there. Without a list, this is the first
// call.
func (x *endings) next(t *testing.T, calls []*kahn.Step) (i int, cancelled bool) {
	if x == nil || len(x.list) == 0 {
		return 0, false
	}
	first := x.list[0]
	i = slices.IndexFunc(calls, func(s *kahn.Step) bool { return nameOf(s) == first.name })
	if i < 0 {
		t.Logf("%q has ended first on Temporal, but does not run in this process", first.name)
		return 0, false
	}
	x.list = x.list[1:]
	return i, first.cancelled
}

// left performs the run with a Coordinator in this process. It leaves the run whenever a workflow would continue as new, and reports the results of
// attempts in the order in which Temporal reported them.
func (x subject) left(t *testing.T) []string {
	now := epoch
	opts := append(x.settings.options(), kahn.Inputs(x.inputs))
	if x.fire != nil {
		opts = append(opts, kahn.Fire(x.fire.Trigger, x.fire.Payload))
	}
	for {
		c, err := kahn.NewCoordinator(x.plan, now, append(opts, kahn.RunID("r"))...)
		require.NoError(t, err)
		var calls []*kahn.Step
		for count := 0; ; {
			for s, ok := c.Next(); ok; s, ok = c.Next() {
				calls = append(calls, s)
				count++
			}
			if x.options.ContinueAfter > 0 && count >= x.options.ContinueAfter && !c.Run().Status().Terminal() {
				c.Run().Leave()
			}
			if len(calls) > 0 {
				i, cancelled := x.ended.next(t, calls)
				s := calls[i]
				calls = slices.Delete(calls, i, i+1)
				do := x.step
				if s.Do() != nil {
					do = s.Do()
				}
				var reply kahn.Reply
				if !cancelled || x.ended.away.has(s) { // a cancelled activity may have called the step, whose result does not count
					reply = s.Call().Perform(t.Context(), do, nil)
				}
				if cancelled {
					reply = kahn.Reply{Err: context.Canceled}
				}
				require.NoError(t, c.Return(s, reply.Value, reply.Err))
				continue
			}
			res, err := c.Result()
			if !errors.Is(err, kahn.ErrNotEnded) {
				if res.Status.Terminal() {
					return describe(res, "")
				}
				opts = append(x.settings.options(), kahn.Resume(res.Snapshot()))
				break
			}
			look := now.Add(untilLook(now.Sub(epoch)))
			if due, waits := c.Due(); waits && due.Before(look) {
				now = due
				c.Advance(now)
				continue
			}
			now = look
			c.Advance(now)
			if gate, ok := first(c.Run().Waiting()); ok {
				require.NoError(t, c.Run().Signal(context.Background(), gate, x.answer(gate)))
			}
		}
	}
}

// TestRandom compares runs of random graphs on Temporal with runs in one process. Statuses, skip reasons, causes, attempts, outputs and errors must
// be equal at every depth, and steps must see the same data. In three cases a run that continues as a new execution may differ. An execution that is
// about to end begins no further node, and this may change which of two nodes begins first. A new execution begins with full rate limits. If a new
// execution begins while a loop pauses, and the loop then ends, the run has no record of the loop's last iteration, unless nodes of the loop may have to
// be undone. A run may also differ if it performs one step at a time: the limit does not count compensations, so that inside a composite that has
// failed nodes are undone while other steps run. In all these cases the run must equal a run that a Coordinator performs in this process, leaves after the
// same attempts, and continues. For a run that performs one step at a time, this Coordinator gets the results in the order of the run on Temporal.
func TestRandom(t *testing.T) {
	t.Parallel()
	n, from := seeds(t, 150, 1500)
	seen, ties := map[string]uint64{}, uint64(0)
	tried := []uint64{958996470, 981152819, 82160150} // these runs did not end, since the alarm of an attempt that had ended stayed armed after a resume
	// The nested runs of these runs had completed. After a continue-as-new at that moment, a compensation that failed inside made them failed.
	tried = append(tried, 784451581, 1001096, 2002195)
	// Loops of these runs were stopped in a pause in which the run had continued as new. Their snapshots no longer had the iterations that were undone.
	tried = append(tried, 433073538, 912251044, 81351669)
	tried = append(tried, 541000804) // this run did not end, since a cleanup composite ended while other nodes were undone
	for seed := from; seed != from+n; seed++ {
		tried = append(tried, seed)
	}
	for _, seed := range tried {
		x, home := random(seed)
		x.step = home.step
		want := x.here(t)
		_, away := random(seed)
		x.step = away.step
		if away.ordered {
			x.ended = &endings{away: away}
		}
		got, on := x.there(t, new(shares))
		if (x.options.ContinueAfter > 0 || x.ended != nil && x.ended.overlaps) && !same(want, got, home, away) {
			ties++
			_, home = random(seed)
			x.step = home.step
			want = x.left(t)
		}
		if !same(want, got, home, away) {
			require.Equal(t, want, got, "seed %d", seed)
			require.Equal(t, home.saw, away.saw, "seed %d", seed)
		}
		for what, is := range map[string]bool{
			"composite": len(want) > x.plan.Len()+1, "continued": on.executions > 1, "waves": x.settings.Mode == kahn.Waves, "ordered": home.ordered,
			"seen": len(home.saw) > 0, "nodes seen": x.options.View, "fired": x.fire != nil,
			"undone": strings.Contains(strings.Join(want, "\n"), "compensation=done"), "not undone": strings.Contains(strings.Join(want, "\n"), "compensation=failed"),
		} {
			if is {
				seen[what]++
			}
		}
		for _, side := range x.plan.Edges() {
			if side {
				seen["side edge"]++
			}
		}
		for _, id := range x.plan.Declared() {
			node, _ := x.plan.At(id)
			seen[fmt.Sprint("join ", node.Join.Rule())]++
			seen["kind "+node.Kind]++
		}
	}
	rules := []kahn.Join{
		kahn.AllSucceeded, kahn.AnySucceeded, kahn.AllDone, kahn.AllDoneMinOne, kahn.OneFailed, kahn.AllFailed, kahn.NoneFailed, kahn.NoneSkipped,
		kahn.AllSkipped, kahn.OneDone, kahn.Boundary, kahn.AtLeast(1),
	}
	for _, rule := range rules {
		require.Positive(t, seen[fmt.Sprint("join ", rule.Rule())], "%v: %v", rule, seen)
	}
	for _, what := range []string{"composite", "continued", "waves", "ordered", "seen", "nodes seen", "fired", "undone", "side edge", "kind gate", "kind routes", "kind end"} {
		require.Greater(t, seen[what], n/10, "%s: %v", what, seen)
	}
	require.Greater(t, seen["not undone"], n/25, "%v", seen)
	require.LessOrEqual(t, ties, n/50, "runs in which the order decides")
}
