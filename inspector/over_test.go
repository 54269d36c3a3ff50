package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// serveRunner returns a desk over a Runner.
func serveRunner(t *testing.T, rn *kahn.Runner, o Options) *desk {
	t.Helper()
	d := &desk{t: t, rn: rn, audit: &syncBuffer{}}
	o.Runner, o.Log = rn, slog.New(slog.NewTextHandler(d.audit, nil))
	d.server = httptest.NewServer(http.StripPrefix("/debug/kahn", Handler(free(o))))
	t.Cleanup(d.server.Close)
	return d
}

// If the Runner has left a run, the page offers no actions that must fail, and the handler rejects such actions.
func TestLeftRun(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.post("api/v1/leave", "{}", "run", d.id())
	_, _ = d.run.Wait()
	row := get[runRow](d, "api/v1/run", "run", d.id())
	require.True(t, row.Left)
	require.Equal(t, []string{"redrive"}, row.Actions)
	for _, path := range []string{"cancel", "abort", "leave"} {
		require.Equal(t, "finished", d.refusal(http.StatusConflict, http.MethodPost, "api/v1/"+path+queried("run", d.id()), "{}").Code, path)
	}
	require.Empty(t, get[gatesReply](d, "api/v1/gates").Gates)
	for _, path := range []string{"approve", "flaky"} {
		require.NotContains(t, get[nodeReply](d, "api/v1/node", "run", d.id(), "path", path).Actions, "signal")
	}
	require.NotNil(t, get[previewReply](d, "api/v1/redrive", "run", d.id()).Nodes)
}

// Pages get a message when their run was left, when another run gets its id, and when a redrive has reset nodes.
func TestStreamOfAnotherLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{}
		h := Handler(free(Options{Runner: rn}))
		fails := func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }
		first, err := rn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate}), nil, kahn.RunID("r"))
		require.NoError(t, err)
		synctest.Wait()
		p := openTab(t.Context(), h, "r")
		time.Sleep(1100 * time.Millisecond) // wait until the next tick is over
		first.Leave()
		time.Sleep(time.Second)
		rows := messages[runsMessage](t, p, "runs")
		require.NotEmpty(t, rows)
		require.True(t, rows[len(rows)-1].Runs[0].Left)

		second, err := rn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "a", Do: fails}, kahn.Node{ID: "b", After: []string{"a"}, Do: fails}, kahn.Node{ID: "c", After: []string{"b"}, Do: fails}), nil, kahn.RunID("r"))
		require.NoError(t, err)
		_, _ = second.Wait()
		time.Sleep(time.Second)
		require.Len(t, messages[struct{}](t, p, "reset"), 1)
		require.Empty(t, messages[nodesMessage](t, p, "nodes"), "of a graph that the page does not show")
		_, err = rn.Redrive(t.Context(), "r", nil, kahn.Request{})
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Len(t, messages[struct{}](t, p, "reset"), 2)
		p.close()
	})
}

// A page gets the changes that happen after the page has joined and before the first tick.
func TestStreamFromTheBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{}
		run, err := rn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate}), nil, kahn.RunID("r"))
		require.NoError(t, err)
		synctest.Wait()
		p := openTab(t.Context(), Handler(free(Options{Runner: rn})), "r")
		synctest.Wait() // the page joins before the first tick
		require.NoError(t, run.Signal(context.Background(), "g", 1))
		time.Sleep(time.Second)
		nodes := messages[nodesMessage](t, p, "nodes")
		require.Len(t, nodes, 1)
		require.Equal(t, change{Path: "g", Status: "c"}, nodes[0].Nodes[0])
		p.close()
	})
}

// If a message cannot be encoded, the pages read everything again, and the handler logs the error.
func TestStreamThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	h := Handler(free(d.opts)).(*handler)
	p, ok := h.hub.join("", 1, nil)
	require.True(t, ok)
	defer h.hub.leave(p)
	h.hub.tell("runs", func() {}, func(*page) bool { return true })
	require.Equal(t, [][]byte{reset}, h.hub.take(p))
	require.Contains(t, d.audit.String(), "stream=runs")
}

// The run gets the numbers in an answer unchanged, or the answer is rejected.
func TestNumbersOfAnswers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]any{
		"1": 1.0, "-0": 0.0, "9007199254740992": 9007199254740992.0, "0.1": 0.1, "1e300": 1e300, `{"a":[1,"x",null,true]}`: map[string]any{"a": []any{1.0, "x", nil, true}},
		"9007199254740993": nil, "1e400": nil, "12345678901234567890": nil, `[{"deep":9007199254740993}]`: nil, "nope": nil,
	} {
		value, err := parseValue(json.RawMessage(text))
		require.Equal(t, want == nil, err != nil, text)
		if err == nil {
			require.Equal(t, want, value, text)
		}
	}
	d := newDesk(t, nil)
	f := d.refusal(http.StatusBadRequest, http.MethodPost, "api/v1/signal"+queried("run", d.id(), "path", "approve"), `{"value":9007199254740993}`)
	require.Equal(t, "the number 9007199254740993 would be changed: send it as a string", f.Message)
}

// If an action is repeated after the Runner has forgotten its run, the response is the same.
func TestReplayOfAForgottenRun(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{History: -1}
	d := serveRunner(t, rn, Options{})
	run, err := rn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate}), nil, kahn.RunID("r"))
	require.NoError(t, err)
	key := func(q *http.Request) { q.Header.Set("Idempotency-Key", "k") }
	for i := range 2 {
		code, body, header := d.ask(http.MethodPost, "api/v1/cancel?run=r", "{}", key)
		require.Equal(t, http.StatusAccepted, code, "%s", body)
		require.Equal(t, i > 0, header.Get("Idempotent-Replay") == "true")
		_, _ = run.Wait()
	}
	require.Equal(t, "unknown_run", d.refusal(http.StatusNotFound, http.MethodPost, "api/v1/cancel?run=r", "{}").Code)
}

// The handler keeps a bounded number of responses for repeated actions. It drops the oldest completed responses, but no response of an action
// that is still running.
func TestRepliesAreBounded(t *testing.T) {
	t.Parallel()
	var x replies
	slow, first, err := x.of("slow", [32]byte{})
	require.NoError(t, err)
	require.True(t, first)
	for i := range 3 * maxReplies {
		k, _, err := x.of(fmt.Sprint(i), [32]byte{})
		require.NoError(t, err)
		close(k.done)
	}
	require.True(t, x.has("slow"))
	require.Equal(t, []int{maxReplies, maxReplies}, []int{len(x.byKey), len(x.order)}, "later answers than the slow one are not kept for it")
	close(slow.done)
	_, _, err = x.of("last", [32]byte{})
	require.NoError(t, err)
	require.False(t, x.has("slow"))
	require.Len(t, x.byKey, maxReplies)
	require.Len(t, x.order, maxReplies)
}

// A page of the timeline includes the ends of the attempts that begin on it. After a redrive, the timeline also has the attempts before the
// redrive.
func TestTimelineIsWhole(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{}
	d := serveRunner(t, rn, Options{})
	ok := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	inner := &kahn.Graph{}
	for i := range 5 {
		inner.Add(kahn.Node{ID: fmt.Sprint("x", i), Do: ok})
	}
	run, err := rn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "S", Sub: inner}, kahn.Node{ID: "bad", After: []string{"S"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }}), nil, kahn.RunID("r"))
	require.NoError(t, err)
	_, _ = run.Wait()
	reply := get[timelineReply](d, "api/v1/timeline", "run", "r", "limit", "2")
	require.True(t, reply.Truncated)
	require.Len(t, reply.Spans, 2)
	for _, s := range reply.Spans {
		require.Equal(t, "completed", s.Status)
		require.Positive(t, s.End)
	}
	require.False(t, get[timelineReply](d, "api/v1/timeline", "run", "r").Truncated)
	again, err := rn.Redrive(t.Context(), "r", nil, kahn.Request{})
	require.NoError(t, err)
	_, _ = again.Wait()
	reply = get[timelineReply](d, "api/v1/timeline", "run", "r")
	require.Len(t, reply.Spans, 8)
	for _, s := range reply.Spans {
		require.True(t, 0 <= s.Queued && s.Queued <= s.Start && s.Start <= s.End && s.End <= reply.Now, "%+v of %v", s, reply.Now)
	}
	require.Equal(t, reply.Now, get[timelineReply](d, "api/v1/timeline", "run", "r").Now, "it has ended")
}

// A value on which package json would run out of stack or memory is represented by its type.
func TestDeepValues(t *testing.T) {
	t.Parallel()
	type link struct{ Next *link }
	chain := &link{}
	for range 2_000_000 {
		chain = &link{chain}
	}
	var nested, shared any = "x", "x"
	for range 2_000_000 {
		nested = []any{nested}
	}
	for range 60 {
		shared = []any{shared, shared}
	}
	flat := make([]bool, mostParts/10)
	rows := make([][]string, 100_000)
	for i := range rows {
		rows[i] = []string{"a", "b", "c", "d"}
	}
	var level any = "x"
	for range 1_000 {
		level = map[string]any{"a": level}
	}
	values := map[string]any{"chain": chain, "nested": nested}
	_, err := encode(shared)
	require.ErrorIs(t, err, errTooDeep)
	g := &kahn.Graph{}
	for name, v := range values {
		g.Add(kahn.Node{ID: name, Config: name, Do: func(_ context.Context, s *kahn.Step) (any, error) { s.Emit(v); return v, nil }})
	}
	rn := &kahn.Runner{}
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("r"))
	require.NoError(t, err)
	_, _ = run.Wait()
	d := serveRunner(t, rn, Options{})
	for name := range values {
		n := get[nodeReply](d, "api/v1/node", "run", "r", "path", name)
		require.NotEmpty(t, n.Output.Type)
		require.Nil(t, n.Output.JSON)
		f := d.refusal(http.StatusUnprocessableEntity, http.MethodGet, "api/v1/value"+queried("run", "r", "path", name, "of", "output"), "")
		require.Equal(t, "too_deep", f.Code)
	}
	require.NotEmpty(t, get[logReply](d, "api/v1/log", "run", "r", "level", "debug").Lines)
	for _, sound := range []any{flat, rows, level, time.Now(), nil, struct{ hidden *link }{chain}} {
		_, err := encode(sound)
		require.NoError(t, err, "%T", sound)
	}
}

// A redrive that would repeat handled failures needs the operator's explicit consent. Without it the redrive is refused. The preview names the
// handlers.
func TestRedriveDespiteHandlers(t *testing.T) {
	t.Parallel()
	g := new(kahn.Graph).Add(kahn.Node{ID: "ship"}, kahn.Node{ID: "refund", In: []kahn.Edge{{From: "ship", On: kahn.OnFailure}}})
	var mended atomic.Bool
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "ship" && !mended.Load() {
			return nil, errors.New("no carrier")
		}
		return nil, nil
	}
	rn := &kahn.Runner{}
	_, err := rn.Execute(t.Context(), g, step, kahn.RunID("r"))
	require.NoError(t, err)
	mended.Store(true)
	d := serveRunner(t, rn, Options{})
	for _, verb := range []string{"redrive", "fork"} {
		if verb == "fork" && !slices.Contains(get[runRow](d, "api/v1/run", "run", "r").Actions, "fork") {
			continue
		}
		p := get[previewReply](d, "api/v1/"+verb, "run", "r")
		require.Equal(t, []string{"ship", "refund"}, p.Nodes)
		require.Contains(t, p.Refused, `"refund" has run because of "ship"`)
	}
	require.Equal(t, "handlers", d.refusal(http.StatusConflict, http.MethodPost, "api/v1/redrive"+queried("run", "r"), `{}`).Code)
	d.post("api/v1/redrive", `{"despite_handlers":true}`, "run", "r")
	run, ok := rn.Run("r")
	require.True(t, ok)
	res, err := run.Wait()
	require.NoError(t, err)
	n, _ := res.Node("refund")
	require.Equal(t, kahn.Skipped, n.Status)
}

// The preview of a redrive includes the end node, because the end node always runs.
func TestPreviewOfARedrive(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{}
	d := serveRunner(t, rn, Options{})
	ok := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	run, err := rn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "a", Do: ok}, kahn.Node{ID: "end", Kind: kahn.KindEnd, Do: ok}), nil, kahn.RunID("fine"))
	require.NoError(t, err)
	_, _ = run.Wait()
	require.Equal(t, []string{"end"}, get[previewReply](d, "api/v1/redrive", "run", "fine").Nodes)
}

// The cost of a preview is linear in the size of the graph, whatever the order of declaration.
func TestPreviewIsLinear(t *testing.T) { // not parallel: it counts allocations
	rn := &kahn.Runner{}
	d := serveRunner(t, rn, Options{})
	ok := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	const n = 20_000
	g := &kahn.Graph{}
	for i := range n { // declare the chain from its end to its beginning
		x := kahn.Node{ID: fmt.Sprint("n", i), Do: ok}
		if i < n-1 {
			x.After = []string{fmt.Sprint("n", i+1)}
		} else {
			x.Do = func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }
		}
		g.Add(x)
	}
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("long"))
	require.NoError(t, err)
	_, _ = run.Wait()
	begun := testing.AllocsPerRun(1, func() { require.Equal(t, n, get[previewReply](d, "api/v1/redrive", "run", "long").Total) })
	require.Less(t, begun, 40.0*n, "allocations")
}

// A path is found by visiting only the nodes on the way, however many separators the path has.
func TestLongPathsAreFound(t *testing.T) {
	t.Parallel()
	rn := &kahn.Runner{}
	d := serveRunner(t, rn, Options{})
	ok := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	long := strings.Repeat("/", 5_000)
	inner := new(kahn.Graph).Add(kahn.Node{ID: long, Do: ok}, kahn.Node{ID: "a[0]/b#1", After: []string{long}, Do: ok})
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "s", Sub: inner}, kahn.Node{ID: "t/x", Sub: inner}, kahn.Node{ID: "M", Map: &kahn.Map{Over: "list"}, Params: map[string]any{"list": []int{1}}, Sub: inner},
		kahn.Node{ID: "L", Sub: inner, Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 2, nil }, MaxIterations: 2}},
	)
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("r"))
	require.NoError(t, err)
	_, _ = run.Wait()
	for path, parent := range map[string]string{
		"s/" + long: "s", "t/x/" + long: "t/x", "M[0]/" + long: "M[0]", "M[0]": "M", "L#2/" + long: "L", "t/x/a[0]/b#1": "t/x", "s/a[0]/b#1": "s",
	} {
		n := get[nodeReply](d, "api/v1/node", "run", "r", "path", path)
		require.Equal(t, []any{parent, path}, []any{n.Parent, n.Path})
		require.Equal(t, kahn.Completed, n.Status)
	}
	require.True(t, slices.Contains(get[nodeReply](d, "api/v1/node", "run", "r", "path", "s").Actions, "redrive"))
}

// Pages also show the changes and the end of a run without events.
func TestRunWithoutEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rn := &kahn.Runner{}
		h := Handler(free(Options{Runner: rn}))
		g := new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate}, kahn.Node{ID: "bad", After: []string{"g"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, errBroken }})
		run, err := rn.Start(t.Context(), g, nil, kahn.RunID("r"), kahn.Retain(0))
		require.NoError(t, err)
		synctest.Wait()
		p := openTab(t.Context(), h, "r")
		time.Sleep(1100 * time.Millisecond) // wait until the next tick is over
		require.NoError(t, run.Signal(context.Background(), "g", 1))
		_, _ = run.Wait()
		time.Sleep(time.Second)
		nodes := messages[nodesMessage](t, p, "nodes")
		require.Equal(t, []nodesMessage{{Run: "r", Nodes: []change{{Path: "g", Status: "c"}, {Path: "bad", Status: "f"}}}}, nodes)
		rows := messages[runsMessage](t, p, "runs")
		last := rows[len(rows)-1].Runs[0]
		require.Equal(t, []any{kahn.RunFailed, []string{"bad"}, stamp(time.Now().Add(-time.Second))}, []any{last.Status, last.Failed, last.Ended})
		p.close()
	})
}

// If several pages join within one tick, each gets the changes since it joined, whether the run has events or not. If the id has come to name another
// run between two joins, the page that joined first reads everything again.
func TestPagesThatJoinWithinOneTick(t *testing.T) {
	t.Parallel()
	gates := new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate}, kahn.Node{ID: "h", Kind: kahn.KindGate})
	for name, retain := range map[string]int{"events": 100, "no events": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rn := &kahn.Runner{}
				h := Handler(free(Options{Runner: rn}))
				run, err := rn.Start(t.Context(), gates, nil, kahn.RunID("r"), kahn.Retain(retain))
				require.NoError(t, err)
				synctest.Wait()
				tabs := []*tab{openTab(t.Context(), h, "r")}
				synctest.Wait()
				join := func() { // many pages, so that a hub that looks at one of them hardly chooses the first by chance
					synctest.Wait()
					for range 20 {
						tabs = append(tabs, openTab(t.Context(), h, "r"))
					}
					synctest.Wait()
				}
				require.NoError(t, run.Signal(t.Context(), "g", 1))
				join()
				time.Sleep(time.Second)
				var got []change
				for _, m := range messages[nodesMessage](t, tabs[0], "nodes") {
					got = append(got, m.Nodes...)
				}
				require.Equal(t, []change{{Path: "g", Status: "c"}}, got)
				for _, p := range tabs {
					p.close()
				}
				time.Sleep(time.Second)

				tabs = []*tab{openTab(t.Context(), h, "r")}
				synctest.Wait()
				require.NoError(t, run.Signal(t.Context(), "h", 1))
				_, err = run.Wait()
				require.NoError(t, err)
				_, err = rn.Start(t.Context(), gates, nil, kahn.RunID("r"), kahn.Retain(retain)) // this run has fewer events
				require.NoError(t, err)
				join()
				time.Sleep(time.Second)
				require.Len(t, messages[struct{}](t, tabs[0], "reset"), 1)
				for _, p := range tabs {
					p.close()
				}
				require.NoError(t, rn.Shutdown(context.Background()))
				time.Sleep(time.Second)
			})
		})
	}
}

// paying returns a graph that fails if its input is wrong.
func paying() *kahn.Graph {
	return (&kahn.Graph{Name: "paying"}).Add(kahn.Node{ID: "charge", Ports: []kahn.Port{{Name: "eur"}}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if eur, _ := s.Params()["eur"].(string); eur == "wrong" {
			return nil, errors.New("not an amount")
		}
		return nil, nil
	}})
}

// The preview of a redrive and of a fork shows the inputs that the nodes get again. A fork can be given others.
func TestPreviewHasInputs(t *testing.T) {
	t.Parallel()
	g := paying()
	plan, err := g.Compile()
	require.NoError(t, err)
	may := true
	rn := &kahn.Runner{}
	d := serveRunner(t, rn, Options{
		Workflows: []Workflow{{Plan: plan, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			return rn.Start(ctx, g, nil, opts...)
		}}},
		Authorize: func(_ *http.Request, a Action) error {
			if a == ViewData && !may {
				return errors.New("no")
			}
			return nil
		},
	})
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("paid"), kahn.Inputs(map[string]any{"eur": "wrong"}))
	require.NoError(t, err)
	_, _ = run.Wait()
	require.Equal(t, kahn.RunFailed, run.Status())
	for _, verb := range []string{"redrive", "fork"} {
		inputs := get[previewReply](d, "api/v1/"+verb, "run", "paid").Inputs
		require.Len(t, inputs, 1)
		require.Equal(t, []string{"eur", `"wrong"`}, []string{inputs[0].Name, string(inputs[0].Value.JSON)})
	}
	require.Equal(t, "bad_body", d.refusal(http.StatusBadRequest, http.MethodPost, "api/v1/fork"+queried("run", "paid"), `{"inputs":[1]}`).Code)
	d.post("api/v1/fork", `{"id":"again","inputs":{"eur":"12"}}`, "run", "paid")
	again, ok := rn.Run("again")
	require.True(t, ok)
	_, _ = again.Wait()
	require.Equal(t, kahn.RunCompleted, again.Status())
	may = false
	require.Empty(t, get[previewReply](d, "api/v1/redrive", "run", "paid").Inputs)
}
