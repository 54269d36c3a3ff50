package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// attemptIs requires that Attempt answers a token with exactly one of the three errors.
func attemptIs(t *testing.T, c *kahn.Coordinator, token string, want error) {
	t.Helper()
	s, err := c.Attempt(token)
	require.Nil(t, s)
	for _, of := range []error{kahn.ErrAnswered, kahn.ErrStale, kahn.ErrUnknownAttempt} {
		require.Equal(t, of == want, errors.Is(err, of), "%s: %v", token, err)
	}
}

// continued continues a run in another Coordinator, from the JSON form of a snapshot with the attempts in flight.
func continued(t *testing.T, c *kahn.Coordinator, plan *kahn.Plan, now time.Time, opts ...kahn.Option) *kahn.Coordinator {
	t.Helper()
	next, err := kahn.NewCoordinator(plan, now, append(opts, kahn.Resume(reload(t, c.Snapshot())))...)
	require.NoError(t, err)
	return next
}

func TestTokens(t *testing.T) {
	retry := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Minute, Jitter: kahn.JitterNone}
	g := graph(
		kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "x", Retry: retry}), Retry: retry},
		kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": numbers(2)}},
		kahn.Node{ID: "w", Timeout: time.Hour},
	)
	plan := compiled(t, g)
	now := deskEpoch
	c, err := kahn.NewCoordinator(plan, now, kahn.RunID("r"), kahn.CancelGrace(time.Second))
	require.NoError(t, err)
	tokens := map[string]string{}
	begin := func() {
		for s, ok := c.Next(); ok; s, ok = c.Next() {
			tokens[s.Path()] = c.Token(s)
		}
	}
	reply := func(path string, value any, failed error) {
		t.Helper()
		s, err := c.Attempt(tokens[path])
		require.NoError(t, err, path)
		require.NoError(t, c.Return(s, value, failed))
		require.Empty(t, c.Token(s))
		c = continued(t, c, plan, now, kahn.CancelGrace(time.Second))
		begin()
	}
	begin()
	require.Equal(t, map[string]string{"S/x": "step:1:1.1:S/x@r", "M[0]": "step:1:1.1:M[0]@r", "M[1]": "step:1:1.1:M[1]@r", "w": "step:1:1:w@r"}, tokens)
	for _, token := range []string{
		"", "w", "step:1:1:w", "step:1:1:w@q", "step:1:2:w@r", "step:1:0:w@r", "step:1:-1:w@r", "step:1:1:nobody@r", "step:0:1:w@r", "step:2:1:w@r", "guard:1:1:w@r", "step:1:1.1:w@r",
		"step:1:1:S/x@r", "step:1:2.1:S/x@r", "step:1:1+1:w@r", "step:1:1+0:w@r", "compensate:1:1:w@r", "step:1:1.1:M[2]@r", "step:1:x:w@r", "step:1:99999999999:w@r",
		strings.Repeat("9", 10_000) + "@r",
	} {
		attemptIs(t, c, token, kahn.ErrUnknownAttempt)
	}
	reply("M[1]", 1, nil)
	attemptIs(t, c, tokens["M[1]"], kahn.ErrAnswered)
	first := tokens["S/x"]
	reply("S/x", nil, kahn.Permanent(errStep)) // S is attempted again, with a new x
	now = now.Add(time.Minute)
	c.Advance(now)
	begin()
	require.Equal(t, "step:1:2.1:S/x@r", tokens["S/x"])
	attemptIs(t, c, first, kahn.ErrAnswered)
	attemptIs(t, c, "step:1:1.2:S/x@r", kahn.ErrAnswered) // the nodes of earlier attempts are not known any more
	reply("S/x", nil, kahn.Suspend("t", nil, nil))
	suspended := tokens["S/x"]
	require.NoError(t, c.Run().Signal(t.Context(), "t", 1))
	begin()
	require.Equal(t, "step:1:2.1+1:S/x@r", tokens["S/x"])
	attemptIs(t, c, suspended, kahn.ErrAnswered)

	now = deskEpoch.Add(time.Hour) // w is stopped, and abandoned
	c = continued(t, c, plan, now, kahn.CancelGrace(time.Second))
	s, ok := c.NextStop()
	require.True(t, ok)
	require.Equal(t, tokens["w"], c.Token(s))
	c = continued(t, c, plan, now, kahn.CancelGrace(time.Second))
	_, ok = c.NextStop()
	require.False(t, ok, "it was returned before the cut")
	inFlight := c.InFlight()
	require.Len(t, inFlight, 3)
	require.Equal(t, "S/x", inFlight[2].Path(), "it was returned last")
	w := inFlight[slices.IndexFunc(inFlight, func(s *kahn.Step) bool { return s.Path() == "w" })]
	require.ErrorIs(t, context.Cause(w), kahn.ErrTimeout)
	require.ErrorIs(t, w.Err(), context.DeadlineExceeded)
	now = now.Add(time.Second)
	c = continued(t, c, plan, now, kahn.CancelGrace(time.Second))
	attemptIs(t, c, tokens["w"], kahn.ErrStale)
	c = continued(t, c, plan, now, kahn.CancelGrace(time.Second))
	attemptIs(t, c, tokens["w"], kahn.ErrStale)

	repeated, err := kahn.NewCoordinator(plan, now, kahn.Resume(reload(t, c.Run().Snapshot()))) // a snapshot without the attempts in flight
	require.NoError(t, err)
	attemptIs(t, repeated, tokens["M[0]"], kahn.ErrStale)
	attemptIs(t, repeated, tokens["S/x"], kahn.ErrStale)
	attemptIs(t, repeated, tokens["M[1]"], kahn.ErrAnswered)
	again := nextOf(t, repeated, "M[0]")
	require.Equal(t, "step:1:1.2:M[0]@r", repeated.Token(again))

	c.Run().Cancel()
	for _, s := range c.InFlight() {
		require.NoError(t, c.Return(s, nil, s.Err()))
	}
	res, _ := c.Result()
	attemptIs(t, c, tokens["M[0]"], kahn.ErrAnswered)
	require.Equal(t, []string{"w"}, res.Abandoned)
	redriven, err := kahn.NewCoordinator(plan, now, kahn.Redrive(reload(t, c.Snapshot()), nil))
	require.NoError(t, err)
	attemptIs(t, redriven, tokens["M[0]"], kahn.ErrStale)
	require.Equal(t, "step:2:1:w@r", redriven.Token(nextOf(t, redriven, "w")))
}

// A snapshot in flight is an ordinary snapshot for a run that cannot keep the attempts.
func TestFlightsNotKept(t *testing.T) {
	g := graph(after("a"), after("b"))
	plan := compiled(t, g)
	c, err := kahn.NewCoordinator(plan, deskEpoch, kahn.RunID("r"))
	require.NoError(t, err)
	token := c.Token(nextOf(t, c, "a"))
	from := c.Snapshot()

	res, err := kahn.Execute(t.Context(), g, nothing, kahn.Resume(reload(t, from)))
	require.NoError(t, err)
	a, _ := res.Node("a")
	require.Equal(t, 2, a.Attempts)

	more := compiled(t, graph(after("a"), after("b"), after("c")))
	_, err = kahn.NewCoordinator(more, deskEpoch, kahn.Resume(reload(t, from)))
	require.ErrorIs(t, err, kahn.ErrGraphChanged)
	changed, err := kahn.NewCoordinator(more, deskEpoch, kahn.Resume(reload(t, from)), kahn.AllowGraphChange())
	require.NoError(t, err)
	attemptIs(t, changed, token, kahn.ErrStale)

	data, err := json.Marshal(from)
	require.NoError(t, err)
	text := strings.Replace(string(data), `"number":1`, `"number":1,"timed_out":9`, 1)
	require.NotEqual(t, string(data), text)
	var damaged kahn.Snapshot
	require.NoError(t, json.Unmarshal([]byte(text), &damaged))
	_, err = kahn.NewCoordinator(plan, deskEpoch, kahn.Resume(&damaged))
	require.NoError(t, err, "a damaged file must not panic")
}

// Two snapshots at the same point of a run are equal, byte by byte.
func TestSnapshotsInFlightAreEqual(t *testing.T) {
	g := graph()
	for i := range 20 {
		g.Add(kahn.Node{ID: fmt.Sprint("n", i), Timeout: time.Hour})
	}
	c, err := kahn.NewCoordinator(compiled(t, g), deskEpoch, kahn.RunID("r"))
	require.NoError(t, err)
	for i := range 20 {
		nextOf(t, c, fmt.Sprint("n", i))
	}
	text := func() string {
		data, err := json.Marshal(c.Snapshot())
		require.NoError(t, err)
		return string(data)
	}
	first := text()
	require.Contains(t, first, `"in_flight"`)
	for range 5 {
		require.Equal(t, first, text())
	}
}

// A compensation in flight reads the same parameters as before the cut: the defaults if a failure was substituted.
func TestParametersOfACompensationInFlight(t *testing.T) {
	undo := func(context.Context, *kahn.Step) error { return nil }
	plan := compiled(t, graph(after("f"), after("z", "u"),
		kahn.Node{ID: "u", In: []kahn.Edge{{From: "f", Param: "rows", Default: 7}}, OnUpstreamFailure: kahn.UpstreamSubstitute, Compensate: undo}))
	c, err := kahn.NewCoordinator(plan, deskEpoch, kahn.RunID("r"))
	require.NoError(t, err)
	require.NoError(t, c.Return(nextOf(t, c, "f"), nil, errStep))
	rows, ok := nextOf(t, c, "u").Param("rows")
	require.True(t, ok)
	require.Equal(t, 7, rows)
	require.NoError(t, c.Return(c.InFlight()[0], 1, nil))
	require.NoError(t, c.Return(nextOf(t, c, "z"), nil, errStep))
	rows, ok = nextOf(t, c, "u").Param("rows")
	require.True(t, ok)
	require.Equal(t, 7, rows)
	rows, ok = continued(t, c, plan, deskEpoch).InFlight()[0].Param("rows")
	require.True(t, ok)
	require.EqualValues(t, 7, rows)
}

// A compensation that a second stop has asked to stop keeps its grace, however late in the run the snapshot is taken.
func TestGraceOfACompensationInFlight(t *testing.T) {
	undo := func(context.Context, *kahn.Step) error { return nil }
	plan := compiled(t, graph(kahn.Node{ID: "a", Compensate: undo}, after("b", "a")))
	opts := []kahn.Option{kahn.RunID("r"), kahn.CancelGrace(time.Minute)}
	now := deskEpoch
	c, err := kahn.NewCoordinator(plan, now, opts...)
	require.NoError(t, err)
	require.NoError(t, c.Return(nextOf(t, c, "a"), 1, nil))
	now = now.Add(time.Hour)
	c.Advance(now)
	require.NoError(t, c.Return(nextOf(t, c, "b"), nil, errStep))
	token := c.Token(nextOf(t, c, "a"))
	require.NoError(t, c.Run().Cancel())
	require.NoError(t, c.Run().AbortAll(errHost))
	c.Advance(now)
	stopped, ok := c.NextStop()
	require.True(t, ok)
	require.Equal(t, token, c.Token(stopped))
	for range 3 {
		due, ok := c.Due()
		require.True(t, ok)
		require.Equal(t, time.Hour+time.Minute, due.Sub(deskEpoch))
		now = now.Add(10 * time.Second)
		c.Advance(now)
		c = continued(t, c, plan, now, opts...)
	}
	c.Advance(deskEpoch.Add(time.Hour + time.Minute))
	res, err := c.Result()
	require.ErrorIs(t, err, kahn.ErrCompensation)
	require.Equal(t, kahn.CompensationFailed, must(res.Node("a")).Compensation)
}

// Without ExpandedGraphs the step of an expanded node is called again, and the attempts inside are repeated; all others stay in flight. With a wrong
// graph the run does not continue.
func TestFlightsInExpandedNodes(t *testing.T) {
	inner := graph(after("x"))
	plan := compiled(t, graph(after("e"), after("a")))
	c, err := kahn.NewCoordinator(plan, deskEpoch, kahn.RunID("r"))
	require.NoError(t, err)
	e, a := nextOf(t, c, "e"), nextOf(t, c, "a")
	require.NoError(t, c.Return(e, nil, kahn.Expand(inner, nil, "state")))
	x, other := c.Token(nextOf(t, c, "e/x")), c.Token(a)
	from := reload(t, c.Snapshot())

	c, err = kahn.NewCoordinator(plan, deskEpoch, kahn.Resume(from))
	require.NoError(t, err)
	attemptIs(t, c, x, kahn.ErrStale)
	_, err = c.Attempt(other)
	require.NoError(t, err)
	e = nextOf(t, c, "e")
	require.Equal(t, "expand:1:1+1:e@r", c.Token(e))
	require.NoError(t, c.Return(e, nil, kahn.Expand(inner, nil, "state")))
	require.Equal(t, "step:1:1.2:e/x@r", c.Token(nextOf(t, c, "e/x")))

	for want, graphs := range map[error]func(string, any) (*kahn.Graph, error){
		kahn.ErrGraphChanged: func(string, any) (*kahn.Graph, error) { return graph(after("y")), nil },
		kahn.ErrNoGraph:      func(string, any) (*kahn.Graph, error) { return nil, nil },
		errHost:              func(string, any) (*kahn.Graph, error) { return nil, errHost },
	} {
		_, err = kahn.NewCoordinator(plan, deskEpoch, kahn.Resume(from), kahn.ExpandedGraphs(graphs))
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, `"e"`)
	}
	_, err = kahn.NewCoordinator(plan, deskEpoch, kahn.ExpandedGraphs(nil))
	require.ErrorIs(t, err, kahn.ErrBadOption)
	c, err = kahn.NewCoordinator(plan, deskEpoch, kahn.Resume(from), kahn.ExpandedGraphs(func(path string, state any) (*kahn.Graph, error) {
		require.Equal(t, "e state", fmt.Sprint(path, " ", state))
		return inner, nil
	}))
	require.NoError(t, err)
	s, err := c.Attempt(x)
	require.NoError(t, err)
	require.NoError(t, c.Return(s, 1, nil))
}

// A run that a process has continued keeps the time of its first start when a snapshot keeps its attempts in flight.
func TestFirstStartWithFlights(t *testing.T) {
	plan := compiled(t, graph(after("a"), kahn.Node{ID: "ok", Kind: kahn.KindGate, After: []string{"a"}}, after("b", "ok")))
	c, err := kahn.NewCoordinator(plan, deskEpoch, kahn.RunID("r"))
	require.NoError(t, err)
	require.NoError(t, c.Return(nextOf(t, c, "a"), 1, nil))
	_, more := c.Next()
	require.False(t, more)
	require.Equal(t, kahn.RunSuspended, c.Run().Status())
	c.Run().Leave()
	res, err := c.Result()
	require.NoError(t, err)
	later := deskEpoch.Add(time.Hour)
	c, err = kahn.NewCoordinator(plan, later, kahn.Resume(reload(t, res.Snapshot())), kahn.EarlySignals(map[string]any{"ok": true}))
	require.NoError(t, err)
	nextOf(t, c, "b")
	times := []time.Time{c.Run().Started(), c.Run().FirstStarted()}
	require.Equal(t, []time.Time{later, deskEpoch}, times)
	c = continued(t, c, plan, later.Add(time.Hour))
	require.Equal(t, times, []time.Time{c.Run().Started(), c.Run().FirstStarted()})
	require.Len(t, c.InFlight(), 1)
}
