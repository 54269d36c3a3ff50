package inspector

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// The inbox and its count include gates of stored runs. The list of stored runs shows what each run waits for.
func TestInboxOfTheStore(t *testing.T) {
	t.Parallel()
	second := new(kahn.Graph).Add(kahn.Node{ID: "sign", Label: "Sign it", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour}})
	plan, err := second.Compile()
	require.NoError(t, err)
	x := newElsewhere(t, order(), func(_ *elsewhere, o *Options) { o.Workflows = append(o.Workflows, Workflow{Plan: plan}) })
	run, err := kahn.Start(t.Context(), second, nil, kahn.RunID("second"), kahn.Durable(x.memory))
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "sign", kahn.Suspended)
	require.NoError(t, err)
	run.Leave()
	_, _ = run.Wait()

	inbox := get[gatesReply](x.desk, "api/v1/gates")
	require.Equal(t, []any{2, 2, ""}, []any{inbox.Total, len(inbox.Gates), inbox.Note})
	first := inbox.Gates[0] // this gate has waited longer
	require.Equal(t, []any{"order 17", "order", "review/approve", []string{"ship", "hold"}, true}, []any{first.Run, first.Workflow, first.Path, first.Choices, first.Stored})
	require.NotEmpty(t, first.Since)
	require.Empty(t, first.Deadline)
	require.Equal(t, []any{"sign", "Sign it"}, []any{inbox.Gates[1].Path, inbox.Gates[1].Label})
	require.NotEmpty(t, inbox.Gates[1].Deadline)
	require.Equal(t, gatesReply{Gates: inbox.Gates[:1], Total: 1, Compensations: []undoTask{}}, get[gatesReply](x.desk, "api/v1/gates", "run", "order 17"), "the list of one run")
	require.Equal(t, first, *get[nodeReply](x.desk, "api/v1/node", "run", "order 17", "path", "review/approve").Gate)
	badge := get[gatesReply](x.desk, "api/v1/gates", "limit", "1")
	require.Equal(t, []any{2, 1}, []any{badge.Total, len(badge.Gates)})

	rows := map[string]storedRow{}
	for _, row := range get[storedReply](x.desk, "api/v1/stored").Runs {
		rows[row.ID] = row
	}
	require.Equal(t, []storedWait{{Path: "review/approve", Since: first.Since}}, rows["order 17"].Waiting)
	require.Equal(t, []any{1, "Sign it", inbox.Gates[1].Deadline}, []any{rows["second"].Waits, rows["second"].Waiting[0].Label, rows["second"].Waiting[0].Deadline})
}

// A gate of a run that another process performs can be answered once. Even before the run takes the answer, a second client learns who was
// first.
func TestSecondAnswerToAStoredGate(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), nil)
	x.held()
	require.Equal(t, 1, get[gatesReply](x.desk, "api/v1/gates").Total)
	require.Equal(t, "requested", x.act(approvePath, `{"value":"ship","comment":"it is paid"}`, "k1"))
	require.Equal(t, "requested", x.act(approvePath, `{"value":"ship","comment":"it is paid"}`, "k1"), "the same answer")
	inbox := get[gatesReply](x.desk, "api/v1/gates")
	require.Equal(t, []any{0, 0}, []any{inbox.Total, len(inbox.Gates)}, "nobody has to act")
	require.Equal(t, gatesReply{Gates: []gate{}, Compensations: []undoTask{}}, get[gatesReply](x.desk, "api/v1/gates", "run", "order 17"), "nor in the run's list")
	require.True(t, get[storedReply](x.desk, "api/v1/stored").Runs[0].Waiting[0].Answered)

	for name, d := range map[string]*desk{"same handler": x.desk, "another one": newElsewhere(t, order(), func(_ *elsewhere, o *Options) { o.Store = x.memory }).desk} {
		f := d.refusal(http.StatusConflict, http.MethodPost, approvePath, `{"value":"hold"}`, as("bob"))
		require.Equal(t, []any{"answer_waits", "an answer by ann already waits for the run, which has not judged it yet", "ann", "it is paid", `"ship"`}, []any{f.Code, f.Message, f.Answered.By, f.Answered.Comment, string(f.Answered.Value.JSON)}, name)
	}
	list, err := x.memory.LoadRequests(t.Context(), "order 17", 0, 10)
	require.NoError(t, err)
	require.Len(t, list, 1, "the second answer was not posted")
}

// lateInbox is a store in which another client's answer arrives just before an answer is posted.
type lateInbox struct {
	*store.Memory
	before func()
}

func (l *lateInbox) Post(ctx context.Context, run string, q store.Request) (bool, error) {
	l.before()
	return l.Memory.Post(ctx, run, q)
}

// If two answers are posted at the same time, the second one is rejected.
func TestAnswersPostedAtTheSameTime(t *testing.T) {
	t.Parallel()
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) {
		o.Store = &lateInbox{x.memory, func() {
			q, err := kahn.PrepareSignal("review/approve", kahn.Decision{Value: "hold", Actor: "bob", ID: "bob's"})
			if err == nil {
				_, err = x.memory.Post(context.Background(), "order 17", q)
			}
			require.NoError(t, err)
		}}
	})
	x.held()
	f := x.refusal(http.StatusConflict, http.MethodPost, approvePath, `{"value":"ship"}`, as("ann"))
	require.Equal(t, []any{"answer_waits", "bob"}, []any{f.Code, f.Answered.By})
	require.Contains(t, f.Message, "this answer waits behind it")
}

// countingStore counts how often runs are loaded, and returns an error for some runs.
type countingStore struct {
	*store.Memory
	loads  int
	broken map[string]bool
}

func (s *countingStore) Load(ctx context.Context, id string) (*store.Run, error) {
	s.loads++
	if s.broken[id] {
		return nil, errors.New("a bad page")
	}
	return s.Memory.Load(ctx, id)
}

// However often pages poll, each run is loaded only once in a while. A run that cannot be loaded does not hide other runs.
func TestInboxLoadsOnce(t *testing.T) {
	t.Parallel()
	counting := &countingStore{broken: map[string]bool{}}
	x := newElsewhere(t, order(), func(x *elsewhere, o *Options) {
		counting.Memory = x.memory
		o.Store = counting
	})
	for range 5 {
		require.Equal(t, 1, get[gatesReply](x.desk, "api/v1/gates").Total)
	}
	require.Equal(t, 1, counting.loads)
	counting.broken["second"] = true
	second := new(kahn.Graph).Add(kahn.Node{ID: "sign", Kind: kahn.KindGate})
	run, err := kahn.Start(t.Context(), second, nil, kahn.RunID("second"), kahn.Durable(x.memory))
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "sign", kahn.Suspended)
	require.NoError(t, err)
	run.Leave()
	_, _ = run.Wait()
	inbox := get[gatesReply](x.desk, "api/v1/gates")
	require.Equal(t, 1, inbox.Total)
	require.Contains(t, inbox.Note, "gates of stored runs may be missing")
	require.Contains(t, x.audit.String(), "a bad page")
}

// A run that this process has left stays in the inbox, in its stored state, and can be answered.
func TestInboxOfARunThatWasLeftHere(t *testing.T) {
	t.Parallel()
	g := new(kahn.Graph).Add(kahn.Node{ID: "sign", Kind: kahn.KindGate})
	memory, rn := &store.Memory{}, &kahn.Runner{}
	plan, err := g.Compile()
	require.NoError(t, err)
	run, err := rn.Start(t.Context(), g, nil, kahn.RunID("left"), kahn.Durable(memory))
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "sign", kahn.Suspended)
	require.NoError(t, err)
	run.Leave()
	_, _ = run.Wait()
	d := serveRunner(t, rn, Options{Store: memory, Workflows: []Workflow{{Plan: plan, Perform: func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
		return rn.Start(ctx, g, nil, opts...)
	}}}})
	require.Equal(t, 1, get[gatesReply](d, "api/v1/gates").Total)
	d.post("api/v1/signal", `{"value":true}`, "run", "left", "path", "sign")
	again, ok := rn.Run("left")
	require.True(t, ok)
	_, err = again.Wait()
	require.NoError(t, err)
	require.Equal(t, 0, get[gatesReply](d, "api/v1/gates").Total)
}
