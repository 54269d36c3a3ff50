package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/trees"
)

// desk performs a run with a Coordinator as a foreign engine does: on one goroutine, without a clock, and with a worker that gets calls and
// returns replies as JSON.
type desk struct {
	t      testing.TB
	g      *kahn.Graph
	opts   []kahn.Option
	step   kahn.StepFunc                             // of the worker; it returns at once
	took   func(call kahn.Call) time.Duration        // how long a call takes; nil for no time
	on     func(c *kahn.Coordinator, call kahn.Call) // called after a call has begun; may be nil
	leaves bool                                      // whether the run is left as soon as it waits only for signals
	rest   func(run *kahn.Run)                       // called whenever the run is suspended; if nil, the run stays suspended
	small  bool                                      // whether calls come without ancestors
	cuts   func() bool                               // called after each act: whether the run continues from a snapshot in another Coordinator
	keeps  bool                                      // whether the snapshots keep the calls in flight
	pick   func(n int) int                           // chooses the first of the calls that end at the same time

	now    time.Time
	c      *kahn.Coordinator
	events []kahn.Event
	lives  int
	calls  []*deskCall // the running calls, in the order in which they began
}

type deskCall struct {
	step    *kahn.Step
	call    kahn.Call
	data    []byte
	ends    time.Time
	stopped error // the cause with which the call's context ended
}

// perform performs the run until it ends, or waits for signals that do not come.
func (d *desk) perform() (*kahn.Result, error) {
	d.t.Helper()
	plan, err := d.g.Compile()
	require.NoError(d.t, err)
	d.now = deskEpoch
	d.open(plan, nil)
	return d.lead(plan)
}

// lead does the same as perform, for a run that has started.
func (d *desk) lead(plan *kahn.Plan) (*kahn.Result, error) {
	d.t.Helper()
	for acts := 0; !d.c.Run().Status().Terminal(); acts++ {
		require.Less(d.t, acts, 100_000, "the run does not end")
		d.begin()
		d.stop()
		if d.leaves && d.c.Run().Status() == kahn.RunSuspended {
			break
		}
		if d.rest != nil && d.c.Run().Status() == kahn.RunSuspended {
			d.rest(d.c.Run())
			continue
		}
		if !d.act() {
			break
		}
		if d.cuts != nil && d.cuts() && !d.c.Run().Status().Terminal() {
			d.cut(plan)
		}
	}
	if !d.c.Run().Status().Terminal() {
		d.c.Run().Leave()
	}
	return d.c.Result()
}

func (d *desk) open(plan *kahn.Plan, from *kahn.Snapshot) {
	opts := append(slices.Clone(d.opts), kahn.RunID("r"), kahn.OnEvent(func(e kahn.Event) { d.events = append(d.events, e) }))
	if from != nil {
		opts = append(opts, kahn.Resume(from))
	}
	var err error
	d.c, err = kahn.NewCoordinator(plan, d.now, opts...)
	require.NoError(d.t, err)
	d.lives++
}

// cut continues the run from a snapshot. It drops running calls, which the new Coordinator makes again.
func (d *desk) cut(plan *kahn.Plan) {
	if d.keeps {
		from := reload(d.t, d.c.Snapshot())
		tokens := make([]string, len(d.calls))
		for i, x := range d.calls {
			tokens[i] = d.c.Token(x.step)
		}
		d.open(plan, from)
		for i, x := range d.calls {
			var err error
			x.step, err = d.c.Attempt(tokens[i])
			require.NoError(d.t, err)
		}
		return
	}
	data, err := json.Marshal(d.c.Run().Snapshot())
	require.NoError(d.t, err)
	from := new(kahn.Snapshot)
	require.NoError(d.t, json.Unmarshal(data, from))
	d.calls = nil
	d.open(plan, from)
}

// begin starts the calls of the attempts that Next returns.
func (d *desk) begin() {
	for s, ok := d.c.Next(); ok; s, ok = d.c.Next() {
		of := s.Call()
		if d.small {
			of = s.CallWithoutView()
		}
		data, err := json.Marshal(of)
		require.NoError(d.t, err)
		x := &deskCall{step: s, data: data, ends: d.now}
		require.NoError(d.t, json.Unmarshal(data, &x.call))
		if d.took != nil {
			x.ends = d.now.Add(d.took(x.call))
		}
		d.calls = append(d.calls, x)
		if d.on != nil {
			d.on(d.c, x.call)
		}
	}
}

// stop stops the calls that NextStop returns. These calls end at once.
func (d *desk) stop() {
	for s, ok := d.c.NextStop(); ok; s, ok = d.c.NextStop() {
		for _, x := range d.calls {
			if x.step == s {
				x.stopped, x.ends = s.Err(), d.now
			}
		}
	}
}

// act advances the clock to the end of the next call, and returns that call to the Coordinator. If a deadline of the run is due before or at
// that end, act only advances the clock to the deadline.
func (d *desk) act() bool {
	due, waits := d.c.Due()
	if len(d.calls) == 0 {
		if waits {
			d.now = due
			d.c.Advance(due)
		}
		return waits
	}
	first := slices.MinFunc(d.calls, func(a, b *deskCall) int { return a.ends.Compare(b.ends) })
	if waits && !due.After(first.ends) {
		d.now = due
		d.c.Advance(due)
		return true
	}
	if first.ends.After(d.now) {
		d.now = first.ends
		d.c.Advance(d.now)
	}
	var ending []int
	for i, x := range d.calls {
		if x.ends.Equal(first.ends) {
			ending = append(ending, i)
		}
	}
	i := ending[0]
	if d.pick != nil {
		i = ending[d.pick(len(ending))]
	}
	x := d.calls[i]
	d.calls = slices.Delete(d.calls, i, i+1)
	var answer deskReply
	require.NoError(d.t, json.Unmarshal(d.work(x.step.Do(), x.data, x.stopped), &answer))
	for _, told := range answer.Told {
		told.tell(d.t, x.step)
	}
	require.NoError(d.t, d.c.Return(x.step, answer.Reply.Value, answer.err()))
	return true
}

// deskReply is the answer of a worker: the reply, which of the host's errors its error matches, and what the step reported.
type deskReply struct {
	Reply kahn.Reply
	Known []bool
	Told  []deskTold
}

// deskTold is one report of a step, as data.
type deskTold struct {
	Chunk  json.RawMessage
	Level  slog.Level
	Text   *string
	Tokens []int
}

func (x *deskTold) tell(t testing.TB, to *kahn.Step) {
	switch {
	case x.Text != nil:
		to.Log(x.Level, *x.Text)
	case x.Tokens != nil:
		to.Tokens(x.Tokens[0], x.Tokens[1])
	default:
		chunk, err := kahn.Types(nil).Decode(x.Chunk)
		require.NoError(t, err)
		to.Emit(chunk)
	}
}

// deskReporter records what a step reports.
type deskReporter struct {
	t    testing.TB
	told []deskTold
}

func (r *deskReporter) Emit(chunk any) {
	data, err := kahn.Types(nil).Encode(chunk)
	require.NoError(r.t, err)
	r.told = append(r.told, deskTold{Chunk: data})
}

func (r *deskReporter) Log(level slog.Level, text string) {
	r.told = append(r.told, deskTold{Level: level, Text: &text})
}

func (r *deskReporter) Tokens(input, output int) {
	r.told = append(r.told, deskTold{Tokens: []int{input, output}})
}

var deskErrors = []error{errStep, errHost}

func newDeskReply(reply kahn.Reply, told []deskTold) deskReply {
	answer := deskReply{Reply: reply, Told: told}
	for _, known := range deskErrors {
		answer.Known = append(answer.Known, errors.Is(reply.Err, known))
	}
	return answer
}

// err returns the error of the reply. The error matches the same errors of the host as before it was encoded.
func (x *deskReply) err() error {
	err := x.Reply.Err
	for i, is := range x.Known {
		if is {
			err = &deskError{err, deskErrors[i]}
		}
	}
	return err
}

type deskError struct {
	error
	known error
}

func (e *deskError) Unwrap() []error { return []error{e.error, e.known} }

// work is the worker. It sees only the call, not the run.
func (d *desk) work(do kahn.StepFunc, data []byte, stopped error) []byte {
	var call kahn.Call
	require.NoError(d.t, json.Unmarshal(data, &call))
	ctx := context.Background()
	if stopped != nil {
		ctx = endedContext{ctx, stopped}
	}
	step := d.step
	if do != nil {
		step = do
	}
	to := &deskReporter{t: d.t}
	reply := call.Perform(ctx, step, to)
	answer, err := json.Marshal(newDeskReply(reply, to.told))
	require.NoError(d.t, err)
	return answer
}

// endedContext is a context that has ended.
type endedContext struct {
	context.Context
	err error
}

func (c endedContext) Err() error { return c.err }

// TestMatrixByCoordinator performs every row of the matrix with a Coordinator.
func TestMatrixByCoordinator(t *testing.T) {
	rows, err := readMatrix("testdata/matrix.txt")
	require.NoError(t, err)
	for _, r := range rows {
		s, err := r.parse()
		require.NoError(t, err)
		s.timeless = true
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			for limit := range 3 {
				for _, cuts := range []bool{false, true} {
					s.seed++
					rng := rand.New(rand.NewPCG(s.seed, 1))
					d := desk{t: t, g: &s.graph, opts: []kahn.Option{mode, kahn.Limit(limit)}, pick: rng.IntN}
					d.step = func(ctx context.Context, st *kahn.Step) (any, error) {
						if s.outcomes[st.ID()] == "cancel" {
							return nil, ctx.Err()
						}
						return s.outcome(st.ID())
					}
					d.on = func(c *kahn.Coordinator, call kahn.Call) {
						if s.outcomes[call.ID] == "cancel" {
							require.NoError(t, c.Run().CancelNode(call.ID))
						}
					}
					if cuts {
						d.cuts = func() bool { return true }
					}
					res, _ := d.perform()
					var nodes []string
					for n := range res.Nodes() {
						nodes = append(nodes, n.ID+":"+shortStatus(n))
					}
					run := res.Status.String()
					if res.Degraded {
						run += "+d"
					}
					r.compare(t, fmt.Sprintf("%s by a coordinator, %v, limit %d, cuts %t", r.name, mode, limit, cuts), nodes, run, d.events)
					if !cuts {
						checkEvents(t, &s.graph, res, d.events)
					}
				}
			}
		}
	}
}

// deskWorld decides what the steps of a random run return. A result depends only on the node's path and on how often the node has returned
// before, so it is the same for every host and in every order.
type deskWorld struct {
	salt     uint64
	sees     bool // whether outputs contain the parameters of their steps
	ordered  bool // whether the order in which nodes end is fixed, so that steps see the same states of other nodes in every run
	mu       sync.Mutex
	returned map[string]int
	saw      map[string][]string // what the steps saw
}

func newDeskWorld(salt uint64) *deskWorld {
	return &deskWorld{salt: salt, returned: map[string]int{}, saw: map[string][]string{}}
}

// betweenAttempts renders a node between two attempts as running. When a composite's attempt ends, another step may start at the same instant in
// the slot of the composite's last node, and may see the composite in either state.
var betweenAttempts = strings.NewReplacer("retrying", "running", fmt.Sprintf("%#v}", kahn.Retrying), fmt.Sprintf("%#v}", kahn.Running))

// sight renders what a step sees.
func (x *deskWorld) sight(s *kahn.Step) (lines []string) {
	show := plain
	if !x.ordered {
		show = justTexts
	}
	for _, line := range sees(s, []string{"n0", "n1", "n2", "n3", "n4"}, show) {
		word, _, _ := strings.Cut(line, " ")
		timed := slices.Contains([]string{"Deadline", "Queued", "String", "Attempt"}, word) // String has the number of the attempt
		others := strings.HasPrefix(line, ofNode) || slices.Contains([]string{"Predecessors", "UpstreamAll", "upstream", "error"}, word)
		if !x.ordered && (timed || others) {
			continue
		}
		if !x.ordered {
			line = attemptNumber.ReplaceAllString(line, "")
		}
		lines = append(lines, betweenAttempts.Replace(line))
	}
	return lines
}

func (x *deskWorld) draw(path string, n int) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s %d", x.salt, path, n)
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

func (x *deskWorld) count(path string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.returned[path]
}

// attemptNumber matches an attempt number in a merged error. Interrupted attempts are numbered, too.
var attemptNumber = regexp.MustCompile(`"Attempt":\d+,`)

// takes returns how long the next call of a node takes.
func (x *deskWorld) takes(path string) time.Duration {
	return time.Duration(x.draw(path, x.count(path)).IntN(40 * int(ms)))
}

// returns returns the result of a step.
func (x *deskWorld) returns(s *kahn.Step) (any, error) {
	path := s.Path()
	x.mu.Lock()
	n := x.returned[path]
	x.returned[path]++
	x.saw[fmt.Sprint(path, " ", n)] = x.sight(s)
	x.mu.Unlock()
	rng := x.draw(path, n)
	rng.Uint64() // skips the draw of the duration
	switch rng.IntN(14) {
	case 0, 1:
		return nil, errStep
	case 2:
		return nil, kahn.Skip("no")
	case 3:
		return nil, kahn.RateLimited(nil, 3*ms)
	case 4:
		return nil, kahn.Permanent(errStep)
	case 5:
		if x.sees { // the stack of a panic would differ between the runs, and may be in the parameters of later steps
			return nil, kahn.Permanent(errStep)
		}
		panic("out of paper")
	case 6:
		if _, resumed := s.Resumed(); !resumed {
			return nil, kahn.Suspend("", map[string]any{"for": path}, len(path))
		}
		return s.SavedState(), nil
	}
	out := map[string]any{"of": path}
	if x.sees {
		out["saw"] = attemptNumber.ReplaceAllString(fmt.Sprint(s.Params()), "")
	}
	return out, nil
}

// beginning marks what a step saw when it was called. Other nodes may end before the step returns, but a [kahn.Call] contains the state at
// the beginning of the call.
const beginning = ", when it began"

// atHome is the step of a run by Execute: it takes time.
func (x *deskWorld) atHome(ctx context.Context, s *kahn.Step) (any, error) {
	x.mu.Lock()
	x.saw[fmt.Sprint(s.Path(), " ", x.returned[s.Path()], beginning)] = x.sight(s)
	x.mu.Unlock()
	select {
	case <-time.After(x.takes(s.Path())):
		return x.returns(s)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// away is the step of a worker: it returns at once, and the desk adds its time.
func (x *deskWorld) away(ctx context.Context, s *kahn.Step) (any, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return x.returns(s)
}

// answerAll answers all waiting nodes.
func answerAll(run *kahn.Run) {
	for _, w := range run.Waiting() {
		_ = run.Signal(context.Background(), w.Token, len(w.Token)%3 > 0)
	}
}

// answerFirst answers only the first waiting node. With several answers the outcome could depend on whether the run continues between two
// answers.
func answerFirst(run *kahn.Run) {
	if waits := run.Waiting(); len(waits) > 0 {
		_ = run.Signal(context.Background(), waits[0].Token, len(waits[0].Token)%3 > 0)
	}
}

// deskText renders what must be equal in two runs.
func deskText(res *kahn.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v degraded %t cause %v %v output %v\n", res.Status, res.Degraded, res.Cause.Kind, res.Cause.Origins, res.Output())
	for n := range res.Nodes() {
		fmt.Fprintf(&b, "%s %v %v %v %v %v %v\n", n.ID, n.Status, n.Skip, n.Cause.Kind, n.Cause.Origins, n.Output, n.Err)
	}
	return b.String()
}

// TestCoordinatorAgrees compares random runs by a Coordinator with runs by Execute. Some of the runs continue from a snapshot after each act.
// With one slot all events must be equal; with several slots only the results.
func TestCoordinatorAgrees(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t, size(80, 10, 4_000)) {
		coordinatorAgrees(t, seed)
		if t.Failed() {
			t.Logf("seed %d", seed)
			return
		}
	}
}

func coordinatorAgrees(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(31, seed))
	single, data := seed%2 == 0, seed%4 > 1 // with one slot the order of all events is fixed
	g := trees.Maker{Rand: rng, Inline: true, Waits: rng.IntN(3) == 0, Fine: true, Calm: !single, Patient: !single, Data: data}.Graph(2)
	limit := 1
	if !single {
		limit = []int{0, 2, 3}[rng.IntN(3)]
	}
	opts := []kahn.Option{kahn.Limit(limit), kahn.KeyLimit(rng.IntN(2)), kahn.Mode(rng.IntN(2)), kahn.Random(func() float64 { return 0.5 }), kahn.CancelGrace(time.Second)}
	salt, answer := rng.Uint64(), answerAll
	if single {
		answer = answerFirst
	}
	opts = append(opts, kahn.Inputs(map[string]any{"in": seed}))
	if rng.IntN(2) == 0 {
		opts = append(opts, fire(g, "payload"))
	}
	home := newDeskWorld(salt)
	home.sees, home.ordered = data, single
	var want string
	var events []kahn.Event
	synctest.Test(t, func(t *testing.T) {
		rec := newRecorder()
		started := make(chan *kahn.Run, 1)
		var run *kahn.Run
		sink := kahn.OnEvent(func(e kahn.Event) {
			if run == nil {
				run = <-started
			}
			if e.Type == event.RunStatusChanged && run.Status() == kahn.RunSuspended {
				answer(run)
			}
		})
		begun, err := kahn.Start(t.Context(), g, home.atHome, append(slices.Clone(opts), kahn.RunID("r"), kahn.OnEvent(rec.add), sink)...)
		require.NoError(t, err)
		started <- begun
		res, _ := begun.Wait()
		want, events = deskText(res), rec.all()
	})
	for _, cuts := range []string{"none", "repeats", "keeps"} {
		if cuts == "repeats" && single {
			continue // an interrupted call starts from the beginning
		}
		away := newDeskWorld(salt)
		away.sees, away.ordered = data, single
		d := desk{t: t, g: g, opts: opts, step: away.away, rest: answer, pick: rng.IntN, small: !single}
		if single {
			d.took = func(call kahn.Call) time.Duration { return away.takes(call.Path) }
		}
		d.keeps = cuts == "keeps"
		if cuts != "none" {
			d.cuts = func() bool { return true }
		}
		res, _ := d.perform()
		if got := deskText(res); got != want {
			t.Errorf("cuts %s: by Execute\n%sby a coordinator\n%s%s%s", cuts, want, got, eventText(events), eventText(d.events))
		}
		saw := map[string][]string{}
		for call, lines := range home.saw {
			if strings.HasSuffix(call, beginning) {
				continue
			}
			if saw[call] = lines; slices.Equal(away.saw[call], home.saw[call+beginning]) {
				saw[call] = away.saw[call]
			}
		}
		if cuts == "keeps" && single {
			saw = away.saw // after a cut, steps see errors of other nodes as texts; the events show what else they saw
		}
		require.Equal(t, saw, away.saw, "seed %d: what the steps saw, cuts %s\n%s\n%s", seed, cuts, eventText(events), eventText(d.events))
		if cuts != "repeats" {
			checkEvents(t, g, res, d.events)
		}
		for i := range min(len(events), len(d.events)) {
			if single && !events[i].Time.Equal(d.events[i].Time) {
				t.Errorf("event %d: at %v by Execute, at %v by a coordinator", i+1, events[i].Time, d.events[i].Time)
				break
			}
		}
		if single && eventText(d.events) != eventText(events) {
			t.Errorf("events by Execute\n%sby a coordinator\n%s", eventText(events), eventText(d.events))
		}
	}
}
