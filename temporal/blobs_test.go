package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

const longBytes = 100 << 10

func long(of string) string { return strings.Repeat(of, longBytes) }

// longValues returns a graph with long values everywhere: a root input, outputs, an answer, a parameter that 60 nodes share, and a list of
// 60 values for one node.
func longValues() *kahn.Graph {
	const width = 60
	g := &kahn.Graph{Inputs: []kahn.Input{{Name: "text"}}}
	last := kahn.Node{ID: "last", In: []kahn.Edge{{From: "ask", Param: "answer"}}}
	g.Add(kahn.Node{ID: "root"}, kahn.Node{ID: "ask", Kind: kahn.KindGate, After: []string{"root"}})
	for i := range width {
		id := fmt.Sprintf("n%02d", i)
		g.Add(kahn.Node{ID: id, In: []kahn.Edge{{From: "root", Param: "text"}}})
		last.In = append(last.In, kahn.Edge{From: id, Param: "all", Merge: kahn.MergeArray})
	}
	return g.Add(last)
}

func longStep(_ context.Context, s *kahn.Step) (any, error) {
	if text, _ := s.Root("text"); text != long("i") {
		return nil, fmt.Errorf("the root input is %.9v", text)
	}
	switch s.ID() {
	case "root":
		return long("r"), nil
	case "last":
		all, err := kahn.Param[[]any](s, "all")
		if err != nil {
			return nil, err
		}
		answer, err := kahn.Param[string](s, "answer")
		return []any{len(all), len(strings.Join(strs(all), "")), answer}, err
	}
	text, err := kahn.Param[string](s, "text")
	return text[:len(text)/4] + s.ID(), err // 25 KiB, too short for a blob
}

func strs(values []any) (texts []string) {
	for _, v := range values {
		texts = append(texts, fmt.Sprint(v))
	}
	return texts
}

// Long values become blobs: what the workflow gives to Temporal stays short, and the Result has all values.
func TestBlobs(t *testing.T) {
	t.Parallel()
	for _, continueAfter := range []int{0, 10} {
		var sums taskBytes
		blobs := new(store.MemoryBlobs)
		x := &trial{
			workflow: Workflow{Plan: plan(t, longValues())}, inputs: map[string]any{"text": long("i")},
			options: Options{Step: longStep, Blobs: blobs, ContinueAfter: continueAfter},
		}
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: before(sums.follow)})
			env.RegisterDelayedCallback(func() {
				answer, err := x.workflow.texts().Encode(long("a"))
				require.NoError(t, err)
				require.Less(t, len(answer), 200)
				update(t, env, SignalUpdate, signalRequest{Gate: "ask", Value: answer, ID: "1"})
			}, time.Hour)
		}
		res, err := x.run(t)
		require.NoError(t, err)
		require.Equal(t, []any{60, 60 * (longBytes/4 + len("n00")), long("a")}, res.Output())
		root, _ := res.Node("root")
		require.Equal(t, long("r"), root.Output)
		require.Less(t, sums.longest, inlineBytes+1<<10, "a longer call is a reference")
		require.Less(t, sums.most, 100<<10, "the calls of all successors of root have references to its output")
		require.Less(t, blobs.Len(), 20, "each text is kept once")
	}
}

// The message of a failure is short, however long the error's text is. A long reply with short values becomes a blob.
func TestLongReplies(t *testing.T) {
	t.Parallel()
	h := newHost(Options{MaxBytes: defaultMaxBytes, Blobs: new(store.MemoryBlobs)})
	_, err := h.answer(task{Path: "a"}, kahn.Reply{Err: errors.New(strings.Repeat("é", 1<<20))}, remarked{})
	var failure *sdk.ApplicationError
	require.ErrorAs(t, err, &failure)
	require.Less(t, len(failure.Message()), maxMessage+10)
	require.Regexp(t, "^é+…$", failure.Message())

	half := strings.Repeat("h", inlineBytes*3/4)
	data, err := h.answer(task{Path: "a"}, kahn.Reply{Err: kahn.Suspend("token", half, half)}, remarked{})
	require.NoError(t, err)
	require.Less(t, len(data), 200)
	reply, told := h.texts.replyOf(outcome{Reply: data})
	require.Empty(t, told.Remarks)
	reply.Codec = nil
	whole, err := json.Marshal(reply)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(whole), half), "info and state")
}

// failing is a BlobStore that fails while down is set.
type failing struct {
	store.MemoryBlobs
	down atomic.Bool
}

var errDown = errors.New("no route to the store")

func (f *failing) Get(ctx context.Context, key string) ([]byte, error) {
	if f.down.Load() {
		return nil, errDown
	}
	return f.MemoryBlobs.Get(ctx, key)
}

// If the BlobStore fails in a workflow task, the task fails and Temporal repeats it; no node fails. If a blob is lost, the attempt that needs it
// fails.
func TestBlobsAway(t *testing.T) {
	t.Parallel()
	g := &kahn.Graph{Inputs: []kahn.Input{{Name: "text"}}}
	p := plan(t, g.Add(kahn.Node{ID: "a"}))
	step := func(context.Context, *kahn.Step) (any, error) { return 7, nil }
	blobs := new(failing)
	w := Workflow{Plan: p, Blobs: blobs}
	in, err := w.input(map[string]any{"text": long("i")})
	require.NoError(t, err)
	require.Less(t, len(in.Inputs["text"]), 200)
	perform := func(o Options) error {
		var suite testsuite.WorkflowTestSuite
		suite.SetLogger(discard)
		env := suite.NewTestWorkflowEnvironment()
		env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: 2 * time.Second})
		o.Plans, o.Step = []*kahn.Plan{p}, step
		require.NoError(t, o.Register(env))
		env.ExecuteWorkflow(UnnamedGraph, in)
		return env.GetWorkflowError()
	}
	require.NoError(t, perform(Options{Blobs: blobs}))
	blobs.down.Store(true)
	err = perform(Options{Blobs: blobs})
	var panicked *sdk.PanicError
	require.ErrorAs(t, err, &panicked, "it fails the workflow task, as a panic does: the detector of deadlocks waits")
	require.ErrorContains(t, err, errDown.Error())
	err = perform(Options{})
	require.ErrorContains(t, err, "Blobs", "the worker was given none")

	// Wait returns the BlobStore's error to the client.
	ref, err := w.texts().write([]byte(`"` + long("s") + `"`))
	require.NoError(t, err)
	_, err = Workflow{Plan: p}.result(output{Snapshot: packed{Blob: ref}})
	require.ErrorIs(t, err, store.ErrNoBlob)
	require.ErrorContains(t, err, "Blobs")
}

// If a blob with an attempt's inputs is lost, the node is not retried. If the BlobStore does not answer, the node's retry policy decides.
func TestAttemptWithoutBlobs(t *testing.T) {
	t.Parallel()
	away := new(failing)
	away.down.Store(true)
	for name, row := range map[string]struct {
		of       store.BlobStore
		attempts int
	}{"lost": {new(store.MemoryBlobs), 1}, "away": {away, 3}, "none": {nil, 1}} {
		g := &kahn.Graph{Inputs: []kahn.Input{{Name: "text"}}}
		g.Add(kahn.Node{ID: "a", Retry: kahn.Retry{MaxAttempts: 3}})
		x := &trial{
			workflow: Workflow{Plan: plan(t, g)}, inputs: map[string]any{"text": long("i")},
			options: Options{Step: longStep, Blobs: new(store.MemoryBlobs)},
		}
		h := newHost(Options{MaxBytes: defaultMaxBytes, Heartbeat: time.Second})
		if row.of != nil {
			h.texts = textsIn(&cache{BlobStore: row.of}, nil, time.Millisecond)
			h.given = &readOnce{Codec: h.texts.Codec}
		}
		h.add(x.workflow.Plan)
		x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
			env.OnActivity(ActivityName, mock.Anything, mock.Anything).Return(h.step)
		}
		res, err := x.run(t)
		require.Error(t, err, name)
		a, _ := res.Node("a")
		require.Equal(t, row.attempts, a.Attempts, "%s: %v", name, a.Err)
		require.ErrorContains(t, a.Err, "the call: ", name)
	}
}

// When the cache is full, it drops the oldest blobs.
func TestCache(t *testing.T) {
	t.Parallel()
	var inner failing
	c := &cache{BlobStore: &inner}
	const n = 9
	for i := range n {
		require.NoError(t, c.Put(t.Context(), fmt.Sprint(i), make([]byte, cacheBytes/4)))
	}
	require.LessOrEqual(t, c.size, cacheBytes)
	require.Equal(t, n, inner.Len())
	inner.down.Store(true)
	_, err := c.Get(t.Context(), fmt.Sprint(n-1))
	require.NoError(t, err)
	_, err = c.Get(t.Context(), "0")
	require.ErrorIs(t, err, errDown)
	inner.down.Store(false)
	_, err = c.Get(t.Context(), "0")
	require.NoError(t, err)
}
