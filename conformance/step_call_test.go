package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/trees"
)

// awayOf returns the Step that another process makes from a Call.
func awayOf(t testing.TB, s *kahn.Step, of kahn.Call) *kahn.Step {
	data, err := json.Marshal(of)
	require.NoError(t, err)
	var call kahn.Call
	require.NoError(t, json.Unmarshal(data, &call))
	return kahn.NewStep(context.Background(), call, s)
}

// In the result of the function sees, ofNode is the prefix of each line about a node's data in the View. [kahn.Step.CallWithoutView] omits this
// data.
const ofNode = "View of "

// sees renders all values that a step can read: the results of all Step and View methods without parameters, and of the methods that take a node,
// a parameter or an input.
func sees(s *kahn.Step, ids []string, plain func(any) any) (text []string) {
	tell := func(of string, receiver any) {
		v := reflect.ValueOf(receiver)
		for i := range v.NumMethod() {
			m := v.Type().Method(i)
			switch m.Name {
			case "Done", "Err", "View", "Call", "CallWithoutView", "Do", "Data":
				continue
			}
			if m.Type.NumIn() != 1 {
				continue
			}
			line := of + m.Name
			for _, out := range v.Method(i).Call(nil) {
				if at, is := out.Interface().(time.Time); is {
					line += " " + at.UTC().String()
					continue
				}
				line += fmt.Sprintf(" %#v", plain(out.Interface()))
			}
			text = append(text, line)
		}
	}
	tell("", s)
	tell("View.", s.View())
	for _, id := range ids {
		v := s.View()
		up, ok := s.Upstream(id)
		text = append(text, fmt.Sprint(ofNode, id, v.Has(id), v.Status(id), plain(v.Output(id)), plain(v.Err(id))))
		text = append(text, fmt.Sprint("upstream ", id, plain(up), ok))
	}
	for _, p := range s.Predecessors() {
		text = append(text, fmt.Sprint("error of predecessor ", p.ID, plain(s.UpstreamErr(p.ID))))
	}
	for name := range s.Params() {
		v, ok := s.Param(name)
		text = append(text, fmt.Sprint("parameter ", name, plain(v), ok))
	}
	for _, name := range []string{"in", "absent", "item", "index", "iteration", "previous"} {
		v, ok := s.Root(name)
		at, has := s.View().Root(name)
		text = append(text, fmt.Sprint("input ", name, plain(v), ok, plain(at), has))
	}
	slices.Sort(text)
	return text
}

// plain replaces an error in v by its text, its type and the node that it names, since the addresses of errors differ.
func plain(v any) any {
	switch v := v.(type) {
	case *kahn.NodeError:
		return fmt.Sprintf("%T %s %d %v %v", v, v.Node, v.Attempt, v.Kind, plain(v.Err))
	case *kahn.UpstreamError:
		return fmt.Sprintf("%T %v %v", v, v.Origins, v)
	case *kahn.MapError:
		return fmt.Sprintf("%T %v %d %v %v", v, v.Results, v.Failed, v.Indexes, v.Errs)
	}
	return texts(v, plain)
}

// justTexts replaces the errors in v by their texts: a snapshot stores only the text of an error.
func justTexts(v any) any { return texts(v, justTexts) }

// texts replaces an error by its text. It applies plain to the parts of any other v.
func texts(v any, plain func(any) any) any {
	switch v := v.(type) {
	case error:
		return v.Error()
	case map[string]any:
		m := map[string]any{}
		for name, x := range v {
			m[name] = plain(x)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, x := range v {
			list[i] = plain(x)
		}
		return list
	}
	return v
}

// apartFromNodes returns the lines of sees that do not begin with ofNode.
func apartFromNodes(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasPrefix(line, ofNode) })
}

// fire adds a trigger before all roots of a graph. It returns the option that fires the trigger.
func fire(g *kahn.Graph, payload any) kahn.Option {
	roots := slices.Collect(func(yield func(string) bool) {
		plan, err := g.Compile()
		if err != nil {
			panic(err)
		}
		for _, id := range plan.Declared() {
			if n, _ := plan.At(id); n.Kind != kahn.KindEnd && len(plan.Ancestors(id)) == 0 && !yield(id) {
				return
			}
		}
	})
	g.Add(kahn.Node{ID: "fired", Kind: kahn.KindTrigger})
	for _, id := range roots {
		g.Connect(kahn.Edge{From: "fired", To: id})
	}
	return kahn.Fire("fired", payload)
}

// TestCallTellsAll: a step in another process sees the same as a step in the run's process.
func TestCallTellsAll(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		var ids []string
		for i := range 6 {
			ids = append(ids, fmt.Sprint("n", i))
		}
		// After an early join a predecessor may change its status while the step runs. The test compares only if the step saw the same before and
		// after the calls. It repeats the calls at most once for each predecessor that can change.
		here, away, apart := sees(s, ids, plain), awayOf(t, s, s.Call()), awayOf(t, s, s.CallWithoutView())
		for after := sees(s, ids, plain); !slices.Equal(here, after); after = sees(s, ids, plain) {
			here, away, apart = after, awayOf(t, s, s.Call()), awayOf(t, s, s.CallWithoutView())
		}
		require.Equal(t, here, sees(away, ids, plain), s.Path())
		require.Equal(t, apartFromNodes(here), apartFromNodes(sees(apart, ids, plain)), s.Path())
		_, fired := s.View().Trigger()
		_, inView := s.View().Root("in")
		seen["calls"]++
		for name, is := range map[string]bool{
			"item": s.Index() >= 0, "iteration": s.Iteration() > 0, "attempt": s.Attempt() > 1, "upstream": len(s.UpstreamAll()) > 0,
			"error": s.LastErr() != nil, "deadline": away.Call().Deadline != time.Time{}, "state": s.SavedState() != nil, "input": len(away.Call().Root) > 0,
			"predecessors": len(s.Predecessors()) > 0, "trigger": fired, "input of the View": inView, "end": s.View().RunStatus() != kahn.RunRunning,
			"error of a predecessor": slices.ContainsFunc(s.Predecessors(), func(p kahn.Predecessor) bool { return s.UpstreamErr(p.ID) != nil }),
		} {
			if is {
				seen[name]++
			}
		}
		if _, resumed := s.Resumed(); resumed {
			seen["resumed"]++
		}
		switch rng := rand.New(rand.NewPCG(uint64(len(s.Path())), uint64(s.Attempt()+len(s.Path())*s.Tier()))); rng.IntN(8) {
		case 0, 1:
			return nil, kahn.RateLimited(errStep, ms)
		case 2:
			return nil, fmt.Errorf("%w: %w", errStep, context.DeadlineExceeded)
		case 3:
			if _, resumed := s.Resumed(); !resumed {
				return nil, kahn.Suspend("", "info", []int{s.Attempt()})
			}
		}
		return map[string]any{"path": s.Path(), "n": s.Attempt()}, nil
	}
	for seed := range seeds(t, size(50, 20, 3000)) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(57, seed))
			g := trees.Maker{Rand: rng, Inline: true, Waits: true, Fine: true}.Graph(2)
			opts := []kahn.Option{kahn.RunID("r"), kahn.Limit(1), kahn.Inputs(map[string]any{"in": seed})}
			if seed%2 == 0 {
				opts = append(opts, fire(g, map[string]any{"of": seed}))
			}
			run, err := kahn.Start(t.Context(), g, step, opts...)
			require.NoError(t, err)
			for range 100 {
				synctest.Wait()
				answerAll(run)
				time.Sleep(20 * ms)
			}
			_, _ = run.Wait()
		})
	}
	for _, what := range []string{"item", "iteration", "attempt", "upstream", "error", "deadline", "state", "resumed", "input", "predecessors",
		"trigger", "input of the View", "end", "error of a predecessor"} {
		require.Greater(t, seen[what], seen["calls"]/200, "%s: %v", what, seen)
	}
}

// TestNewStep creates a Step directly, without a run.
func TestNewStep(t *testing.T) {
	type key struct{}
	call := kahn.Call{
		ID: "send", Path: "S/send", Kind: "mail", Attempt: 2, IdempotencyKey: "k", Config: "c", Params: map[string]any{"to": "you", "none": nil},
		Upstream: map[string]any{"draft": 7}, Root: map[string]any{"lang": "en"},
		View: kahn.ViewData{ID: "send", Iteration: 3, Fired: true, Trigger: "t", Root: map[string]any{"lang": "en"}, Nodes: map[string]kahn.NodeData{
			"draft": {Status: kahn.Completed, Output: 7}, "old": {Status: kahn.Failed, Err: errStep},
		}},
	}
	to := &reports{}
	s := kahn.NewStep(context.WithValue(t.Context(), key{}, "v"), call, to)
	v, err := kahn.Param[string](s, "to")
	require.NoError(t, err)
	require.Equal(t, "you", v)
	_, err = kahn.Param[string](s, "too")
	require.ErrorIs(t, err, kahn.ErrNoValue)
	require.ErrorContains(t, err, `did you mean "to"?`)
	_, err = kahn.Upstream[int](s, "daft")
	require.ErrorContains(t, err, `did you mean "draft"?`)
	_, err = kahn.Root[int](s, "lung")
	require.ErrorContains(t, err, `did you mean "lang"?`)
	none, ok := s.Param("none")
	require.True(t, ok)
	require.Nil(t, none)
	require.Equal(t, "v", s.Value(key{}))
	require.Equal(t, 3, s.Iteration())
	require.Equal(t, -1, s.Index())
	require.Nil(t, s.Do())
	require.ErrorIs(t, s.UpstreamErr("old"), errStep)
	require.False(t, s.View().Has("other"))
	require.Equal(t, `kahn.Step("send", attempt 2)`, s.String())
	require.NoError(t, s.Err())
	s.Params()["to"] = "nobody" // Params returns a copy
	v, _ = kahn.Param[string](s, "to")
	require.Equal(t, "you", v)

	s.Emit("chunk")
	s.Log(slog.LevelWarn, "message")
	s.Tokens(1, 2)
	require.Equal(t, reports{"emit chunk", "log WARN message", "tokens 1 2"}, *to)
	kahn.NewStep(t.Context(), call, nil).Emit("nobody hears it")

	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	call.Deadline = at
	early, cancel := context.WithDeadline(t.Context(), at.Add(-time.Hour))
	defer cancel()
	late, cancel := context.WithDeadline(t.Context(), at.Add(time.Hour))
	defer cancel()
	for ctx, want := range map[context.Context]time.Time{t.Context(): at, early: at.Add(-time.Hour), late: at} {
		got, ok := kahn.NewStep(ctx, call, nil).Deadline()
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s = kahn.NewStep(ctx, call, nil)
	cancel()
	<-s.Done()
	require.ErrorIs(t, s.Err(), context.Canceled)
}

// reports records the chunks and logs of a step.
type reports []string

func (r *reports) Emit(chunk any) { *r = append(*r, fmt.Sprint("emit ", chunk)) }
func (r *reports) Log(level slog.Level, message string) {
	*r = append(*r, fmt.Sprint("log ", level, " ", message))
}
func (r *reports) Tokens(in, out int) { *r = append(*r, fmt.Sprint("tokens ", in, out)) }

// TestReply: a result that is encoded as JSON and decoded leads to the same outcome.
func TestReply(t *testing.T) {
	boom := errors.New("boom")
	for _, x := range []struct {
		err  error
		want kahn.CauseKind
	}{
		{nil, kahn.CauseNone}, {boom, kahn.CauseStepError}, {kahn.Permanent(boom), kahn.CauseStepError}, {kahn.AbortRun(boom), kahn.CauseStepError},
		{kahn.Permanent(kahn.AbortRun(kahn.RateLimited(boom, time.Minute))), kahn.CauseRateLimit},
		{fmt.Errorf("later: %w", kahn.RateLimited(nil, time.Hour)), kahn.CauseRateLimit},
		{context.DeadlineExceeded, kahn.CauseTimeout}, {fmt.Errorf("%w: %w", boom, context.DeadlineExceeded), kahn.CauseTimeout}, {kahn.ErrTimeout, kahn.CauseStepError},
		{kahn.ErrCallAborted, kahn.CauseExternal}, {fmt.Errorf("x: %w", kahn.ErrCallAborted), kahn.CauseExternal},
		{kahn.ErrGoexit, kahn.CauseGoexit}, {fmt.Errorf("no: %w", kahn.ErrGoexit), kahn.CauseStepError},
		{&kahn.PanicError{Value: "v", Stack: []byte("stack")}, kahn.CausePanic}, {&kahn.PanicError{Value: boom}, kahn.CausePanic},
		{kahn.Skip("message"), kahn.CauseNone}, {kahn.Suspend("token", map[string]any{"a": 1}, []int{2}), kahn.CauseNone},
		{&kahn.NodeError{Node: "n", Attempt: 2, Kind: kahn.CausePanic, Err: boom}, kahn.CauseStepError},
	} {
		data, err := json.Marshal(kahn.Reply{Value: 7, Err: x.err})
		require.NoError(t, err)
		var reply kahn.Reply
		require.NoError(t, json.Unmarshal(data, &reply), "%s", data)
		require.Equal(t, x.want, kahn.CauseOf(x.err), "%v", x.err)
		require.Equal(t, x.want, kahn.CauseOf(reply.Err), "%v by %s", x.err, data)
		if x.err == nil {
			require.Equal(t, 7, reply.Value)
			continue
		}
		require.EqualError(t, reply.Err, x.err.Error())
		require.Nil(t, reply.Value)
		for _, sentinel := range []error{context.DeadlineExceeded, kahn.ErrTimeout, kahn.ErrCallAborted, kahn.ErrGoexit} {
			require.Equal(t, errors.Is(x.err, sentinel), errors.Is(reply.Err, sentinel), "%v: %v", x.err, sentinel)
		}
		policy := kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second, RetryOn: []kahn.CauseKind{kahn.CauseStepError, kahn.CauseRateLimit, kahn.CauseTimeout, kahn.CausePanic}}
		delay, refused := policy.Next(1, x.want, x.err, 0.5)
		gotDelay, gotRefused := policy.Next(1, kahn.CauseOf(reply.Err), reply.Err, 0.5)
		require.Equal(t, delay, gotDelay)
		require.Equal(t, refused, gotRefused)
	}
	_, err := json.Marshal(kahn.Reply{Err: kahn.Expand(graph(), nil, nil)})
	require.ErrorIs(t, err, kahn.ErrNotEncodable)
	_, err = json.Marshal(kahn.Reply{Value: make(chan int)})
	require.ErrorIs(t, err, kahn.ErrNotEncodable)
	type order struct{ Total int }
	types := kahn.Types{"order": order{}}
	data, err := json.Marshal(kahn.Reply{Value: order{3}, Codec: types})
	require.NoError(t, err)
	reply := kahn.Reply{Codec: types}
	require.NoError(t, json.Unmarshal(data, &reply))
	require.Equal(t, order{3}, reply.Value)

	call := kahn.Call{ID: "n"}
	require.Equal(t, kahn.Reply{Value: "n"}, call.Perform(t.Context(), func(_ context.Context, s *kahn.Step) (any, error) { return s.ID(), nil }, nil))
	var p *kahn.PanicError
	require.ErrorAs(t, call.Perform(t.Context(), func(context.Context, *kahn.Step) (any, error) { panic("p") }, nil).Err, &p)
	require.Equal(t, "p", p.Value)
}

func TestRetryNext(t *testing.T) {
	policy := kahn.Retry{MaxAttempts: 4, InitialDelay: time.Second, Jitter: kahn.JitterFull, MaxRetryAfter: time.Minute}
	for _, x := range []struct {
		policy  kahn.Retry
		attempt int
		cause   kahn.CauseKind
		err     error
		want    time.Duration
		refused event.NoRetry
	}{
		{policy, 1, kahn.CauseStepError, errStep, 500 * ms, 0},
		{policy, 3, kahn.CauseStepError, errStep, 2 * time.Second, 0},
		{policy, 4, kahn.CauseStepError, errStep, 0, event.NoRetryAttempts},
		{policy, 1, kahn.CausePanic, errStep, 0, event.NoRetryCause},
		{policy, 1, kahn.CauseStepError, kahn.Permanent(errStep), 0, event.NoRetryPermanent},
		{policy, 1, kahn.CauseStepError, kahn.AbortRun(errStep), 0, event.NoRetryPermanent},
		{policy, 1, kahn.CauseRateLimit, kahn.RateLimited(errStep, 5*time.Second), 5 * time.Second, 0},
		{policy, 1, kahn.CauseRateLimit, kahn.RateLimited(errStep, ms), 500 * ms, 0},
		{policy, 1, kahn.CauseRateLimit, kahn.RateLimited(errStep, time.Hour), 0, event.NoRetryHint},
		{policy, 1, kahn.CauseTimeout, kahn.RateLimited(errStep, time.Hour), 500 * ms, 0},
		{kahn.Retry{}, 1, kahn.CauseStepError, errStep, 0, event.NoRetryNoPolicy},
		{kahn.Retry{MaxAttempts: 2}, 1, kahn.CauseSubrun, nil, 375 * ms, 0}, // all fields have their defaults
	} {
		delay, refused := x.policy.Next(x.attempt, x.cause, x.err, 0.5)
		require.Equal(t, x.want, delay, "%+v", x)
		require.Equal(t, x.refused, refused, "%+v", x)
	}
}
