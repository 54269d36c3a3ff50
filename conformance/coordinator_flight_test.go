package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/trees"
)

// ferry drives a run like a host without memory: between any two calls of the Coordinator, the run may continue in another Coordinator from the JSON
// form of a snapshot with the attempts in flight. Replies come in random order, some twice and some too late. All decisions depend only on the seed
// and on what the Coordinator returns, so two ferries of one seed differ only if the cuts between the calls change the behaviour of the run.
type ferry struct {
	t      *testing.T
	plan   *kahn.Plan
	opts   []kahn.Option
	rng    *rand.Rand
	cuts   func() bool // whether the run is cut before the next call of the Coordinator; nil for never
	result func(x *ferry, s *kahn.Step) (any, error)

	now    time.Time
	c      *kahn.Coordinator
	events []kahn.Event
	sent   []*letter
	tired  bool     // whether all further steps complete
	old    []string // the tokens of letters that were answered or came too late
	log    []string
	lives  int
	most   int // the largest number of attempts in flight at a cut
}

// letter is a call on its way.
type letter struct {
	token   string
	stopped bool
}

func (x *ferry) note(format string, args ...any) { x.log = append(x.log, fmt.Sprintf(format, args...)) }

func (x *ferry) open(from *kahn.Snapshot) {
	opts := append(slices.Clone(x.opts), kahn.OnEvent(func(e kahn.Event) { x.events = append(x.events, e) }))
	if from != nil {
		opts = append(opts, kahn.Resume(from))
	}
	var err error
	x.c, err = kahn.NewCoordinator(x.plan, x.now, opts...)
	require.NoError(x.t, err)
	x.lives++
}

// at returns the Coordinator for the next call.
func (x *ferry) at() *kahn.Coordinator {
	if x.cuts != nil && !x.c.Run().Status().Terminal() && x.cuts() {
		x.most = max(x.most, len(x.c.InFlight()))
		if from := x.c.Snapshot(); !from.Status().Terminal() { // a signal may have ended the run in the call
			x.open(reload(x.t, from))
		}
	}
	return x.c
}

// class names the error of Attempt.
func (x *ferry) class(err error) string {
	class := ""
	for _, of := range []error{kahn.ErrAnswered, kahn.ErrStale, kahn.ErrUnknownAttempt} {
		if errors.Is(err, of) {
			class += of.Error()
		}
	}
	return class
}

func (x *ferry) begin() {
	for s, ok := x.at().Next(); ok; s, ok = x.at().Next() {
		data, err := json.Marshal(s.Call())
		require.NoError(x.t, err)
		var call kahn.Call
		require.NoError(x.t, json.Unmarshal(data, &call))
		token := x.c.Token(s)
		x.sent = append(x.sent, &letter{token: token})
		x.note("call %s %v %s", token, s.Do() != nil, callText(call))
	}
	for s, ok := x.at().NextStop(); ok; s, ok = x.at().NextStop() {
		token := x.c.Token(s)
		for _, of := range x.sent {
			if of.token == token {
				of.stopped = true
			}
		}
		x.note("stop %s: %v, %v", token, s.Err(), context.Cause(s))
	}
	if x.rng.IntN(4) == 0 {
		var tokens []string
		for _, s := range x.at().InFlight() {
			tokens = append(tokens, fmt.Sprint(x.c.Token(s), " ", s.Err()))
		}
		x.note("in flight %v", tokens)
	}
}

// callText renders a call. It renders errors as texts, since a snapshot keeps only these.
func callText(c kahn.Call) string {
	var b strings.Builder
	fmt.Fprint(&b, c.IdempotencyKey, c.Deadline, c.Queued, c.Predecessors, flat(c.Params), flat(c.Upstream), flat(c.Root), flat(c.Item), c.Index, c.Resumed, flat(c.Signal),
		flat(c.SavedState), flat(c.LastErr), c.Compensating, flat(c.Compensated), c.Certain, flat(c.View.Root), c.View.Iteration, c.View.RunStatus)
	for _, id := range slices.Sorted(maps.Keys(c.View.Nodes)) {
		n := c.View.Nodes[id]
		fmt.Fprint(&b, " ", id, n.Status, flat(n.Output), flat(n.Err), n.Tolerated)
	}
	return b.String()
}

// flat returns a value with errors as texts.
func flat(v any) any {
	switch v := v.(type) {
	case error:
		return v.Error()
	case map[string]any:
		to := map[string]any{}
		for k, e := range v {
			to[k] = flat(e)
		}
		return to
	case []any:
		to := []any{}
		for _, e := range v {
			to = append(to, flat(e))
		}
		return to
	}
	return v
}

// answer reports the result of a letter.
func (x *ferry) answer(i int) {
	of := x.sent[i]
	x.sent = slices.Delete(x.sent, i, i+1)
	x.old = append(x.old, of.token)
	s, err := x.at().Attempt(of.token)
	if err != nil {
		x.note("late %s: %s", of.token, x.class(err))
		return
	}
	if x.rng.IntN(8) == 0 {
		s.Log(0, "a line")
		s.Tokens(1, 2)
	}
	value, err := x.result(x, s)
	x.note("reply %s: %v, %v", of.token, value, err)
	require.NoError(x.t, x.c.Return(s, value, err))
}

func (x *ferry) act() {
	rng := x.rng
	switch what := rng.IntN(24); {
	case what < 10:
		if len(x.sent) > 0 {
			x.answer(rng.IntN(len(x.sent)))
		}
	case what < 14:
		if at, ok := x.at().Due(); ok {
			x.note("due %v", at.Sub(deskEpoch))
			x.advance(at)
		}
	case what < 16:
		x.advance(x.now.Add(time.Duration(rng.IntN(int(4 * ms)))))
	case what == 16 && len(x.old) > 0: // a reply comes twice
		token := x.old[rng.IntN(len(x.old))]
		_, err := x.at().Attempt(token)
		require.Error(x.t, err)
		x.note("again %s: %s", token, x.class(err))
	case what == 17:
		answerFirst(x.at().Run())
	case what == 18:
		_ = x.at().Run().Signal(context.Background(), []string{"n0", "n1", "n1/n0", "n0[1]/n1"}[rng.IntN(4)], rng.IntN(2) == 0)
	case what == 19:
		_ = x.at().Run().RetryNow([]string{"n0", "n1/n0", "n0[1]", "n1#1/n0"}[rng.IntN(4)])
	case what == 20 && rng.IntN(8) == 0:
		_ = x.at().Run().CancelNode([]string{"n0", "n1", "n2"}[rng.IntN(3)])
	case what == 21 && rng.IntN(30) == 0:
		_ = x.at().Run().Cancel(kahn.Request{Actor: "host"})
	case what == 22 && rng.IntN(40) == 0:
		_ = x.at().Run().AbortAll(errHost)
	}
}

func (x *ferry) advance(to time.Time) {
	if to.After(x.now) {
		x.now = to
	}
	x.at().Advance(x.now)
}

func (x *ferry) perform() *kahn.Result {
	x.now = deskEpoch
	x.open(nil)
	for acts := 0; !x.c.Run().Status().Terminal(); acts++ {
		require.Less(x.t, acts, 2_000, "the run does not end, %d lives: %v\n%s\n%s", x.lives, x.c.Run().Waiting(), strings.Join(x.log[max(0, len(x.log)-30):], "\n"), timedText(x.events))
		x.begin()
		x.act()
		if x.tired = acts > 200; x.tired { // the run ends
			answerAll(x.at().Run())
			if len(x.sent) > 0 {
				x.answer(0)
			}
			if at, ok := x.at().Due(); ok {
				x.advance(at)
			}
		}
	}
	res, _ := x.at().Result()
	for _, of := range x.sent {
		_, err := x.at().Attempt(of.token)
		x.note("after the end %s: %s", of.token, x.class(err))
	}
	require.Empty(x.t, leftovers(x.c.Run()))
	return res
}

// wholeEvents renders everything in events.
func wholeEvents(t *testing.T, events []kahn.Event) string {
	var b strings.Builder
	for _, e := range events {
		data, err := json.Marshal(e)
		require.NoError(t, err)
		b.Write(append(data, '\n'))
	}
	return b.String()
}

// expanding returns a copy of the graph in which steps return some of the sub-graphs, at any depth. It adds these graphs to the table.
func expanding(g *kahn.Graph, rng *rand.Rand, table map[int]*kahn.Graph) *kahn.Graph {
	to := &kahn.Graph{Groups: g.Groups}
	for _, n := range g.Nodes() {
		if n.Sub != nil {
			n.Sub = expanding(n.Sub, rng, table)
			if n.Loop == nil && rng.IntN(2) == 0 {
				key, sub := len(table), n.Sub
				table[key] = sub
				n.Sub, n.Do = nil, func(context.Context, *kahn.Step) (any, error) {
					return nil, kahn.Expand(sub, map[string]any{"in": key}, key)
				}
			}
		}
		to.Add(n)
	}
	return to
}

func compiles(g *kahn.Graph) bool {
	_, err := g.Compile()
	return err == nil
}

// flight performs the run of a seed, with or without cuts.
func flight(t *testing.T, seed uint64, cut bool) (x *ferry, g *kahn.Graph, res *kahn.Result) {
	rng := rand.New(rand.NewPCG(41, seed))
	g = trees.Maker{
		Rand: rng, Inline: true, Waits: rng.IntN(2) == 0, Cleanups: rng.IntN(3) == 0, Data: rng.IntN(2) == 0, Tick: []time.Duration{0, 5 * ms}[rng.IntN(2)],
	}.Graph(2)
	table := map[int]*kahn.Graph{}
	if rng.IntN(2) == 0 {
		if of := expanding(g, rng, table); compiles(of) { // a port may be bound to a root input that only a sub-graph has
			g = of
		} else {
			clear(table)
		}
	}
	plan, err := g.Compile()
	require.NoError(t, err)
	limit, keys, mode := rng.IntN(4), rng.IntN(2), kahn.Mode(rng.IntN(2))
	opts := []kahn.Option{
		kahn.RunID("r"), kahn.Limit(limit), kahn.KeyLimit(keys), mode, kahn.FailureMode(rng.IntN(3)), kahn.StopMode(rng.IntN(2)),
		kahn.CancelGrace(20 * ms), kahn.Random(func() float64 { return 0.5 }),
		kahn.ExpandedGraphs(func(_ string, state any) (*kahn.Graph, error) { return table[state.(int)], nil }),
	}
	switch rate := rng.IntN(6); {
	case rate == 0:
		opts = append(opts, kahn.Rate{Starts: 1, Per: 4 * ms, Burst: 2})
	case rate == 1:
		opts = append(opts, kahn.KeyRate(kahn.Rate{Starts: 1, Per: 7 * ms}))
	case rate == 2:
		opts = append(opts, kahn.Timeout(60*ms))
	}
	x = &ferry{t: t, plan: plan, opts: opts, rng: rand.New(rand.NewPCG(43, seed)), result: (*ferry).anyResult}
	if cut {
		often, cuts := 1+int(seed%7), rand.New(rand.NewPCG(47, seed))
		x.cuts = func() bool { return cuts.IntN(often) == 0 }
	}
	return x, g, x.perform()
}

// anyResult returns the result of a step: a random one, or the one of the node's own function.
func (x *ferry) anyResult(s *kahn.Step) (any, error) {
	if do := s.Do(); do != nil && (x.tired || x.rng.IntN(5) > 0) {
		return do(s, s)
	}
	if x.tired {
		return nil, nil
	}
	switch x.rng.IntN(16) {
	case 0, 1:
		return nil, errStep
	case 2:
		return nil, kahn.Skip("no")
	case 3:
		return nil, kahn.Suspend("", nil, 1)
	case 4:
		return nil, kahn.RateLimited(errStep, 3*ms)
	case 5:
		return nil, &kahn.PanicError{Value: "step", Stack: []byte("stack")}
	case 6:
		return nil, kahn.SuspendUntil(x.now.Add(5*ms), "slept")
	case 7:
		return nil, kahn.SuspendFor("", "who?", 2, x.now.Add(9*ms))
	case 8:
		return nil, kahn.Permanent(errStep)
	case 9:
		return nil, kahn.ErrCallAborted
	}
	return map[string]any{"of": s.Path()}, nil
}

// isTie reports whether the first difference between two runs is the order of two events of one instant. After a cut, nodes of different sub-graphs
// may begin in another order within an instant.
func isTie(a, b []kahn.Event) bool {
	said := func(e kahn.Event) string { return fmt.Sprint(e.Time.UnixNano(), e.Type, e.Path, e.Attempt) }
	has := func(list []kahn.Event, e kahn.Event) bool {
		return slices.ContainsFunc(list, func(other kahn.Event) bool { return said(other) == said(e) })
	}
	for i := range min(len(a), len(b)) {
		if said(a[i]) != said(b[i]) {
			return a[i].Time.Equal(b[i].Time) && has(b[i:], a[i]) && has(a[i:], b[i])
		}
	}
	return false
}

// flightSeeds are seeds of runs with rare events. TestCutInBackoffAfterPause has the event of the first seed, and the tests after it have the others.
var flightSeeds = []uint64{52584, 800002719, 55262, 700000267, 700001624, 700003347, 700001898, 700003415, 700004517, 971803471}

// TestCutsInFlight: a run that continues from the JSON form of a snapshot between any two calls of the Coordinator makes the same calls, under the same
// tokens, has the same events, and has the same Result as the run without cuts.
func TestCutsInFlight(t *testing.T) {
	t.Parallel()
	lives, most, ties, n := 0, 0, 0, size(150, 40, 5_000)
	compare := func(seed uint64) {
		got, tie := compareFlights(t, seed)
		if lives, most = lives+got.lives, max(most, got.most); tie {
			ties++
		}
	}
	for _, seed := range flightSeeds {
		compare(seed)
	}
	for seed := range seeds(t, n) {
		compare(seed)
	}
	t.Log(lives, "lives, at most", most, "attempts in flight at a cut,", ties, "ties")
	require.LessOrEqual(t, ties, n/1000)
	require.Greater(t, lives, 1000)
	require.Greater(t, most, 3)
}

// compareFlights performs the run of a seed with and without cuts, and reports whether the difference is a tie.
func compareFlights(t *testing.T, seed uint64) (got *ferry, tie bool) {
	want, g, res := flight(t, seed, false)
	got, _, cut := flight(t, seed, true)
	if isTie(want.events, got.events) {
		checkEvents(t, g, cut, got.events)
		return got, true
	}
	for i := range min(len(want.log), len(got.log)) {
		if want.log[i] != got.log[i] {
			t.Fatalf("seed %d, act %d:\nwithout cuts %s\nwith cuts    %s\n%s\n--\n%s", seed, i, want.log[i], got.log[i], timedText(want.events), timedText(got.events))
		}
	}
	require.Equal(t, len(want.log), len(got.log), "seed %d", seed)
	require.Equal(t, deskText(res), deskText(cut), "seed %d", seed)
	require.Equal(t, wholeEvents(t, want.events), wholeEvents(t, got.events), "seed %d", seed)
	require.Equal(t, res.Abandoned, cut.Abandoned, "seed %d", seed)
	require.Equal(t, res.Duration, cut.Duration, "seed %d", seed)
	checkEvents(t, g, res, want.events)
	checkEvents(t, g, cut, got.events)
	if t.Failed() {
		t.Fatalf("seed %d", seed)
	}
	return got, false
}
