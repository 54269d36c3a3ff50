package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/sagas"
)

// exactWorld is a world in which no two things happen at the same instant. The outcome of a call depends only on its node and on the number of
// earlier calls of that node. So Execute and a Coordinator see the same outcomes.
type exactWorld struct {
	*sagas.World
	expands bool // whether some node returns a graph
	cuts    bool // whether the run continues from snapshots; interrupted calls are made again, under later attempt numbers
	flights bool // whether the run continues from snapshots with the calls in flight
	calls   map[string]int
}

func newExactWorld(seed uint64, how string) *exactWorld {
	x := &exactWorld{World: sagas.New(seed), cuts: how == cutAgain, flights: how == cutFlight, calls: map[string]int{}}
	x.Adapt = x.exact
	return x
}

// exact gives a node the functions of the exact world, with durations that differ from all other nodes' durations.
func (x *exactWorld) exact(n *kahn.Node, whole bool) {
	if !whole {
		n.Do = x.plain
		if n.Compensate != nil {
			n.Do, n.Compensate = x.does, x.undoes
			n.CompensateRetry.Jitter, n.CompensateRetry.Multiplier = kahn.JitterNone, 1
			if x.cuts {
				n.CompensateRetry.MaxAttempts = 10_000
			} else if x.Seed%3 == 0 {
				n.CompensateTimeout = 6*ms + x.odd(n.ID, 'c')
			}
		}
		return
	}
	if n.Cleanup {
		n.Do = x.tidies
	}
	if n.Retry.MaxAttempts > 0 {
		n.Retry.Jitter, n.Retry.Multiplier = kahn.JitterNone, 1
	}
	if n.Compensate == nil {
		n.CompensateTimeout = 0
	}
	x.expands = x.expands || n.Sub == nil && !x.mine(n)
	if x.cuts && (n.Sub != nil || n.Do != nil && !x.mine(n)) { // the Compensate of a composite replaces the compensations inside
		n.Compensate, n.CompensateRetry, n.CompensateTimeout = nil, kahn.Retry{}, 0
	}
	if !x.limited() {
		n.Groups, n.Key = nil, ""
	}
	if x.cuts && n.Retry.MaxAttempts > 0 && n.Sub == nil && x.mine(n) {
		n.Retry.MaxAttempts = 10_000 // interrupted attempts count; the world decides when to give up
	}
	if n.Timeout > 0 {
		n.Timeout += x.odd(n.ID, 't')
	}
	if x.cuts || n.Map != nil {
		n.Timeout = 0
	}
}

// limited reports whether the run has only one slot. With two or more, the order in which nodes of several graphs take slots would be
// random.
func (x *exactWorld) limited() bool { return !x.cuts && x.Seed%5 < 2 }

// mine reports whether the world performs a node that is not expanded.
func (x *exactWorld) mine(n *kahn.Node) bool {
	do := reflect.ValueOf(n.Do).Pointer()
	return do == reflect.ValueOf(x.does).Pointer() || do == reflect.ValueOf(x.plain).Pointer() || do == reflect.ValueOf(x.tidies).Pointer()
}

func (x *exactWorld) odd(id string, what byte) time.Duration {
	h := uint64(what)
	for _, b := range []byte(id) {
		h = h*131 + uint64(b)
	}
	return time.Duration(rand.New(rand.NewPCG(x.Seed, h)).IntN(int(ms)))
}

// splitKey is the context key of a *splitCall, for a call that must return at once.
type splitKey struct{}

type splitCall struct {
	lasts time.Duration
	yield time.Duration // how long the call lasts after it is stopped
	end   func(stopped error) (any, error)
}

// drawn returns the source of randomness for the next call of a node.
func (x *exactWorld) drawn(s *kahn.Step, what string) (*rand.Rand, int) {
	x.Mu.Lock()
	defer x.Mu.Unlock()
	name := what + s.Path()
	h, n := uint64(14695981039346656037), x.calls[name]
	x.calls[name]++
	for _, b := range fmt.Append(nil, name, " ", n) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(x.Seed, h)), n
}

// lastingCall performs a call that lasts for d, unless its context ends before. For a Coordinator lastingCall returns at once, and the desk
// reports the end of the call through Return.
func lastingCall(ctx context.Context, d time.Duration, end func(stopped error) (any, error)) (any, error) {
	yield := d / 64 // calls that are stopped at the same instant end one after the other, in an order that does not depend on the host
	if at, is := ctx.Value(splitKey{}).(*splitCall); is {
		at.lasts, at.yield, at.end = d, yield, end
		return nil, nil
	}
	select {
	case <-time.After(d):
		return end(nil)
	case <-ctx.Done():
		time.Sleep(yield)
		return end(ctx.Err())
	}
}

func (x *exactWorld) plain(ctx context.Context, s *kahn.Step) (any, error) {
	r, _ := x.drawn(s, "plain ")
	return lastingCall(ctx, time.Duration(1+r.IntN(20*int(ms))), func(stopped error) (any, error) { return nil, stopped })
}

func (x *exactWorld) tidies(ctx context.Context, s *kahn.Step) (any, error) {
	r, _ := x.drawn(s, "tidies ")
	return lastingCall(ctx, time.Duration(1+r.IntN(5*int(ms))), func(stopped error) (any, error) {
		// A failure here would make the order of calls depend on the time of the crash. A later life would undo nodes before it starts the
		// remaining cleanup nodes, whereas a life without a crash would undo the nodes after the cleanup nodes.
		if stopped == nil && r.IntN(8) == 0 && !x.cuts {
			return nil, kahn.Permanent(errSoldOut)
		}
		return nil, stopped
	})
}

func (x *exactWorld) does(ctx context.Context, s *kahn.Step) (any, error) {
	r, n := x.drawn(s, "does ")
	path := s.Path()
	effect := func() {
		x.Mu.Lock()
		defer x.Mu.Unlock()
		x.Has[path] = true
	}
	x.Mu.Lock()
	x.Called(s)
	x.Mu.Unlock()
	d, early, fate, yields := time.Duration(1+r.IntN(20*int(ms))), r.IntN(2) == 0, r.IntN(14), r.IntN(2) == 0
	if x.cuts && fate == 0 { // NoEffect speaks only for the attempt that returns it, but an interrupted attempt may have had an effect
		fate = 1
	}
	if early && fate != 0 {
		effect()
	}
	fails := func() error {
		if n > 0 {
			return kahn.Permanent(errSoldOut)
		}
		return errSoldOut
	}
	return lastingCall(ctx, d, func(stopped error) (any, error) {
		switch {
		case fate == 0:
			return nil, kahn.NoEffect(fails())
		case stopped != nil && yields:
			return nil, stopped
		case fate == 1:
			return nil, fails()
		case fate == 2 && n == 0:
			panic("oh")
		case fate == 3:
			effect()
			return nil, fails()
		}
		effect()
		return fmt.Sprint("output of ", path), nil
	})
}

func (x *exactWorld) undoes(ctx context.Context, s *kahn.Step) error {
	r, _ := x.drawn(s, "undoes ")
	path := s.Path()
	x.Mu.Lock()
	x.Called(s)
	x.Clock++
	x.Undone[path]++
	if x.Begun[path] == 0 || x.Ended[path] != 0 {
		x.Begun[path], x.Ended[path] = x.Clock, 0
	}
	if output, certain := s.Compensated(); certain != (output != nil) || certain && output != fmt.Sprint("output of ", path) {
		x.Wrong = append(x.Wrong, fmt.Sprintf("%s: output %v, certain %v", path, output, certain))
	}
	x.Mu.Unlock()
	_, err := lastingCall(ctx, time.Duration(1+r.IntN(10*int(ms))), func(stopped error) (any, error) {
		x.Mu.Lock()
		defer x.Mu.Unlock()
		switch fate := r.IntN(8); {
		case stopped != nil:
			return nil, stopped
		case fate == 0 && x.Seed%4 == 0:
			return nil, kahn.Permanent(errors.New("for good"))
		case fate == 1:
			return nil, errors.New("busy")
		}
		x.Clock++
		x.Ended[path] = x.Clock
		x.HasUndone(path)
		return nil, nil
	})
	return err
}

// sagaAct is an action of the host of a saga on the run, and the time of the action.
type sagaAct struct {
	at  time.Duration
	act func(*kahn.Run)
}

// exactConditions returns random options of a run, and random acts of the run's host.
func (x *exactWorld) exactConditions(r *rand.Rand) (opts []kahn.Option, acts []sagaAct) {
	opts = []kahn.Option{
		[]kahn.Mode{kahn.Eager, kahn.Waves}[r.IntN(2)], []kahn.FailureMode{kahn.Continue, kahn.StopScheduling, kahn.AbortRunning}[r.IntN(3)], kahn.RunID("r"),
		kahn.Random(func() float64 { return 0.5 }),
	}
	if x.cuts && opts[1] == kahn.StopScheduling { // running steps, which StopScheduling lets finish, would not be called again
		opts[1] = kahn.AbortRunning
	}
	if x.limited() {
		opts = append(opts, kahn.Limit(1), kahn.KeyLimit(1))
	}
	if r.IntN(5) == 0 {
		opts = append(opts, kahn.StatusStrict)
	}
	odd := func() time.Duration { return time.Duration(1 + r.IntN(60*int(ms))) }
	if r.IntN(6) == 0 {
		opts = append(opts, kahn.Timeout(odd()))
	}
	abort := func(run *kahn.Run) { _ = run.AbortAll(nil) }
	switch at := odd(); r.IntN(9) {
	case 0, 1:
		acts = []sagaAct{{at, func(run *kahn.Run) { _ = run.Cancel() }}}
	case 2:
		acts = []sagaAct{{at, abort}}
	case 3:
		acts = []sagaAct{{at, func(run *kahn.Run) { _ = run.CancelNode("n1") }}}
	case 4:
		acts = []sagaAct{{at, abort}, {at + 1 + odd()/4, abort}}
	}
	return opts, acts
}

// story renders what must be equal in two runs of a saga.
func (x *exactWorld) story(res *kahn.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v %v\n", res.Status, res.Degraded, res.Cause.Kind)
	var tell func(prefix string, res *kahn.Result)
	tell = func(prefix string, res *kahn.Result) {
		for n := range res.Nodes() {
			fmt.Fprintf(&b, "%s%s %v %v %v %v %v %v\n", prefix, n.ID, n.Status, n.Skip, n.Cause.Kind, n.Output, n.Compensation, n.CompensationErr)
			// A node that was expanded in an earlier life has no Sub if its step is not called again, or if no node inside had to be undone.
			if n.Sub != nil && !x.cuts && (!x.flights || undoneInside(n.Sub)) {
				tell(prefix+"  ", n.Sub)
			}
		}
	}
	tell("", res)
	fmt.Fprintf(&b, "effects %v\n", slices.Sorted(maps.Keys(x.Has)))
	for _, path := range slices.Sorted(maps.Keys(x.Undone)) {
		fmt.Fprintf(&b, "undone %s %d times, %v\n", path, x.Undone[path], x.Ended[path] > 0)
	}
	return b.String()
}

// undoneInside reports whether a node of the run, or a node inside its nodes, has or needed a compensation.
func undoneInside(res *kahn.Result) bool {
	for n := range res.Nodes() {
		if n.Compensation != kahn.CompensationNone || n.Sub != nil && undoneInside(n.Sub) {
			return true
		}
	}
	return false
}

// sagaDesk performs a saga with a Coordinator, on one goroutine and without a clock. Calls and replies are JSON.
type sagaDesk struct {
	t      *testing.T
	x      *exactWorld
	plan   *kahn.Plan
	opts   []kahn.Option
	acts   []sagaAct
	cut    bool // whether the run continues from a snapshot after every act
	keeps  bool // whether the run continues after every act from a snapshot with the calls in flight
	now    time.Time
	c      *kahn.Coordinator
	events []kahn.Event
	calls  []*sagaCall
	under  map[string]*sagaCall // the calls that were running when the previous life ended
	lives  int
}

type sagaCall struct {
	step    *kahn.Step
	name    string
	ends    time.Time
	yield   time.Duration
	end     func(stopped error) (any, error)
	stopped error
	instant bool // whether the call takes no time, like a call that returns a graph; each life repeats such a call
}

func (d *sagaDesk) open(from *kahn.Snapshot) {
	opts := append(slices.Clone(d.opts), kahn.OnEvent(func(e kahn.Event) { d.events = append(d.events, e) }))
	if from != nil {
		opts = append(opts, kahn.Resume(from))
	}
	if d.keeps {
		opts = append(opts, kahn.ExpandedGraphs(func(_ string, state any) (*kahn.Graph, error) { return d.x.Graphs[state.(int)], nil }))
	}
	var err error
	d.c, err = kahn.NewCoordinator(d.plan, d.now, opts...)
	require.NoError(d.t, err)
	d.lives++
}

func (d *sagaDesk) perform() (*kahn.Result, error) {
	d.now = deskEpoch
	d.open(nil)
	for acts := 0; ; acts++ {
		require.Less(d.t, acts, 10_000, "the run does not end")
		d.begin()
		d.stop()
		if d.c.Run().Status().Terminal() {
			return d.c.Result()
		}
		instant := d.act()
		d.stop()
		if d.keeps && !d.c.Run().Status().Terminal() {
			d.keep()
		}
		if d.cut && !instant && !d.c.Run().Status().Terminal() && !slices.ContainsFunc(d.calls, func(c *sagaCall) bool { return c.stopped != nil }) {
			data, err := json.Marshal(d.c.Run().Snapshot())
			require.NoError(d.t, err)
			from := new(kahn.Snapshot)
			require.NoError(d.t, json.Unmarshal(data, from))
			for _, c := range d.calls {
				d.under[c.name] = c
			}
			d.calls = nil
			d.open(from)
			for d.begin(); ; d.begin() {
				i := slices.IndexFunc(d.calls, func(c *sagaCall) bool { return c.instant })
				if i < 0 {
					break
				}
				d.answer(d.calls[i])
			}
			for name := range d.under { // if the run was stopped, an expanded node ends now and is undone later, since its graph is not known
				inside := strings.ContainsAny(name, "/#")
				require.True(d.t, strings.HasSuffix(name, " true") || inside && (d.x.expands || strings.Contains(name, "tidy")), "seed %d: a call under way is not begun again: %s", d.x.Seed, name)
				if !strings.HasSuffix(name, " true") {
					delete(d.under, name)
				}
			}
		}
	}
}

// keep continues the run in another Coordinator, with the calls in flight.
func (d *sagaDesk) keep() {
	tokens := make([]string, len(d.calls))
	for i, c := range d.calls {
		tokens[i] = d.c.Token(c.step)
	}
	d.open(reload(d.t, d.c.Snapshot()))
	for i, c := range d.calls {
		var err error
		if c.step, err = d.c.Attempt(tokens[i]); c.stopped != nil && err != nil {
			require.ErrorIs(d.t, err, kahn.ErrStale)
			continue
		}
		require.NoError(d.t, err)
	}
}

// begin starts the calls that Next returns, or continues calls of the previous life.
func (d *sagaDesk) begin() {
	for s, ok := d.c.Next(); ok; s, ok = d.c.Next() {
		data, err := json.Marshal(s.Call())
		require.NoError(d.t, err)
		var call kahn.Call
		require.NoError(d.t, json.Unmarshal(data, &call))
		name := fmt.Sprint(call.Path, " ", call.Compensating)
		c := d.under[name]
		if c != nil {
			delete(d.under, name)
			c.step = s
			if c.ends.Before(d.now) {
				c.ends = d.now
			}
			d.calls = append(d.calls, c)
			continue
		}
		c = &sagaCall{step: s, name: name, ends: d.now}
		var at splitCall
		on := kahn.NewStep(context.WithValue(context.Background(), splitKey{}, &at), call, nil)
		require.Equal(d.t, s.Compensating(), on.Compensating())
		do := s.Do()
		value, err := contained(func() (any, error) { return do(on, on) })
		if c.end = at.end; at.end == nil {
			c.instant, c.end = true, func(error) (any, error) { return value, err }
		}
		c.ends, c.yield = d.now.Add(at.lasts), at.yield
		d.calls = append(d.calls, c)
	}
}

func contained(f func() (any, error)) (value any, err error) {
	err = foreign.Contain(func() (err error) {
		value, err = f()
		return err
	}, func(v any) error { return &kahn.PanicError{Value: v, Stack: debug.Stack()} })
	return value, err
}

func (d *sagaDesk) stop() {
	for s, ok := d.c.NextStop(); ok; s, ok = d.c.NextStop() {
		for _, c := range d.calls {
			if c.step == s && c.stopped == nil {
				c.stopped, c.ends = s.Err(), d.now.Add(c.yield)
			}
		}
	}
}

// act performs the next act: something falls due, the host acts, or a call returns. instant reports whether the act was a call that took no time.
func (d *sagaDesk) act() (instant bool) {
	at, waits := d.c.Due()
	var first *sagaCall
	for _, c := range d.calls {
		if first == nil || c.ends.Before(first.ends) {
			first = c
		}
	}
	if first != nil && (!waits || first.ends.Before(at)) {
		at, waits = first.ends, true
	} else {
		first = nil
	}
	if len(d.acts) > 0 && (!waits || deskEpoch.Add(d.acts[0].at).Before(at)) {
		d.advance(deskEpoch.Add(d.acts[0].at))
		d.acts[0].act(d.c.Run())
		d.acts = d.acts[1:]
		d.c.Due() // so that the Coordinator takes the request
		return false
	}
	require.True(d.t, waits, "the run waits for nothing")
	d.advance(at)
	if first == nil {
		return false
	}
	d.answer(first)
	return first.instant
}

// answer ends a call.
func (d *sagaDesk) answer(c *sagaCall) {
	d.calls = slices.DeleteFunc(d.calls, func(of *sagaCall) bool { return of == c })
	value, err := contained(func() (any, error) { return c.end(c.stopped) })
	reply := kahn.Reply{Value: value, Err: err}
	if data, e := json.Marshal(reply); e == nil { // otherwise the reply is a graph
		reply = kahn.Reply{}
		require.NoError(d.t, json.Unmarshal(data, &reply))
	}
	require.NoError(d.t, d.c.Return(c.step, reply.Value, reply.Err))
}

func (d *sagaDesk) advance(at time.Time) {
	d.now = at
	d.c.Advance(at)
}

// timedText renders events with their time since the start.
func timedText(events []kahn.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%v %s\n", e.Time.Sub(deskEpoch), e)
	}
	return b.String()
}

// sagaByExecute performs a random saga with Execute, and returns its story and its events.
func sagaByExecute(t *testing.T, seed uint64, depth int, how string) (story string, events []kahn.Event) {
	synctest.Test(t, func(t *testing.T) {
		x := newExactWorld(seed, how)
		r := rand.New(rand.NewPCG(seed, 7))
		g := x.Graph(r, depth)
		opts, acts := x.exactConditions(r)
		trial := tryControlled(t, t.Context(), g, nil, func(run *kahn.Run) {
			for _, a := range acts {
				time.Sleep(time.Until(deskEpoch.Add(a.at)))
				a.act(run)
			}
		}, opts...)
		require.Empty(t, x.Check(g, trial.Result, trial.err, trial.events), "by Execute")
		story, events = x.story(trial.Result), trial.events
	})
	return story, events
}

// mostTies is how often Execute performs a saga again if the Coordinator has another story. The compensation of a composite takes no time, so a
// slot may become free and two nodes may claim it in one instant. Then the story of Execute depends on the order of its goroutines.
const mostTies = 1000

// The ways in which sagaByCoordinator continues a run after every act.
const (
	cutNever  = "without cuts"
	cutAgain  = "calls are made again"
	cutFlight = "calls stay in flight"
)

// sagaByCoordinator performs a random saga with a Coordinator and with Execute, and compares the two runs.
func sagaByCoordinator(t *testing.T, seed uint64, depth int, how string) (res *kahn.Result, lives int, said []kahn.Event) {
	cut := how == cutAgain
	want, events := sagaByExecute(t, seed, depth, how)
	x := newExactWorld(seed, how)
	r := rand.New(rand.NewPCG(seed, 7))
	g := x.Graph(r, depth)
	opts, acts := x.exactConditions(r)
	plan, err := g.Compile()
	require.NoError(t, err)
	d := &sagaDesk{t: t, x: x, plan: plan, opts: opts, acts: acts, cut: cut, keeps: how == cutFlight, under: map[string]*sagaCall{}}
	res, err = d.perform()
	// A node that was expanded in an earlier life ends at once if the run was stopped. It is undone later than under Execute, since its graph is
	// not known.
	story, wrong := x.story(res), x.Check(g, res, err, d.events)
	if cut && x.expands {
		story = want
	}
	for k := 0; k < mostTies && story != want; k++ {
		want, events = sagaByExecute(t, seed, depth, how)
	}
	if story != want || len(wrong) > 0 {
		t.Logf("seed %d, depth %d, %s\nby Execute:\n%s\nby a Coordinator:\n%s", seed, depth, how, timedText(events), timedText(d.events))
	}
	require.Empty(t, wrong)
	require.Equal(t, want, story)
	if !cut {
		checkEvents(t, g, res, d.events)
	}
	return res, d.lives, d.events
}

// A Coordinator undoes the same nodes as Execute, with the same calls and the same Result. This holds also if the run continues from a snapshot
// after each act.
func TestSagasByCoordinator(t *testing.T) {
	t.Parallel()
	for _, how := range []string{cutNever, cutAgain, cutFlight} {
		undone, failed, lives := 0, 0, 0
		for depth := range 3 {
			for seed := range seeds(t, size(120, 40, 1500)) {
				res, n, events := sagaByCoordinator(t, seed, depth, how)
				if how == cutFlight {
					_, _, whole := sagaByCoordinator(t, seed, depth, cutNever)
					require.Equal(t, timedText(whole), timedText(events), "seed %d, depth %d", seed, depth)
				}
				if t.Failed() {
					return
				}
				lives += n
				for n := range res.Nodes() {
					switch n.Compensation {
					case kahn.CompensationDone:
						undone++
					case kahn.CompensationFailed:
						failed++
					}
				}
			}
		}
		t.Log(undone, failed, lives)
		require.Positive(t, undone)
		require.Positive(t, failed)
	}
}
