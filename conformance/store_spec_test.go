package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// orderGraph returns a graph that charges an order, waits, and then ships the order.
func orderGraph() *kahn.Graph {
	g := &kahn.Graph{Name: "order", Inputs: []kahn.Input{{Name: "order"}, {Name: "gift", Optional: true}}}
	return g.Add(kahn.Node{ID: "charge"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"charge"}}, kahn.Node{ID: "ship", After: []string{"gate"}})
}

func orderStep(_ context.Context, s *kahn.Step) (any, error) {
	order, _ := s.Root("order")
	gift, _ := s.Root("gift")
	return fmt.Sprintf("%s %v %v", s.ID(), order, gift), nil
}

// performOrder performs the run "r" of an order over a store, and returns the output of a node.
func performOrder(t *testing.T, db store.Store, g *kahn.Graph, node string, opts ...kahn.Option) (any, error) {
	t.Helper()
	var events []kahn.Event
	opts = append([]kahn.Option{kahn.RunID("r"), kahn.Durable(db), kahn.OnEvent(func(e kahn.Event) { events = append(events, e) })}, opts...)
	res, err := kahn.Execute(t.Context(), g, orderStep, opts...)
	if res == nil {
		return nil, err
	}
	checkEvents(t, g, res, events)
	n, _ := res.Node(node)
	return n.Output, err
}

// TestCreatedRun: a run that was created in a store is performed with its stored inputs and workflow. Other inputs or another workflow are
// refused.
func TestCreatedRun(t *testing.T) {
	t.Parallel()
	inputs := map[string]any{"order": 17, "gift": []byte("wrapped")}
	other := orderGraph().Add(kahn.Node{ID: "more"})
	renamed := orderGraph()
	renamed.Name = "orders"
	for name, row := range map[string]struct {
		g    *kahn.Graph
		opts []kahn.Option
		err  error
	}{
		"as it is":            {orderGraph(), nil, nil},
		"with its inputs":     {orderGraph(), []kahn.Option{kahn.Inputs(inputs)}, nil},
		"with another order":  {orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{"order": 18, "gift": []byte("wrapped")})}, store.ErrMismatch},
		"with a part of them": {orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{"order": 17})}, store.ErrMismatch},
		"with none of them":   {orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{})}, kahn.ErrMissingInput},
		"with an unknown one": {orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{"order": 17, "gift": []byte("wrapped"), "x": 1})}, kahn.ErrUnknownInput},
		"of another type":     {orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{"order": 17.0, "gift": []byte("wrapped")})}, store.ErrMismatch},
		"without a form":      {orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{"order": func() {}})}, kahn.ErrNotEncodable},
		"another graph":       {other, nil, kahn.ErrGraphChanged},
		"another workflow":    {renamed, nil, kahn.ErrGraphChanged},
		"a changed graph":     {other, []kahn.Option{kahn.AllowGraphChange()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := new(store.Memory)
			n, err := kahn.Prepare(orderGraph(), kahn.RunID("r"), kahn.Inputs(inputs), kahn.Describe(store.Spec{Labels: map[string]string{"tenant": "x"}}), kahn.Describe(store.Spec{Parent: "mother"}))
			require.NoError(t, err)
			_, _, err = db.Create(t.Context(), n)
			require.NoError(t, err)
			_, err = kahn.ReadResult(t.Context(), orderGraph(), db, "r")
			require.ErrorIs(t, err, kahn.ErrNotEnded)
			_, err = kahn.ReadSnapshot(t.Context(), db, "r")
			require.ErrorIs(t, err, kahn.ErrNotEnded)

			output, err := performOrder(t, db, row.g, "charge", row.opts...)
			require.ErrorIs(t, err, row.err)
			_, _, free := db.Acquire(t.Context(), "r", "somebody else", time.Minute)
			require.NoError(t, free) // the lease was released
			stored, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			if row.err != nil {
				require.Zero(t, stored.Sequence)
				return
			}
			require.Equal(t, "charge 17 [119 114 97 112 112 101 100]", output)
			plan, err := row.g.Compile()
			require.NoError(t, err)
			require.Equal(t, store.Spec{Workflow: "order", Plan: plan.Hash(), Inputs: n.Inputs, Labels: map[string]string{"tenant": "x"}, Parent: "mother"}, stored.Spec)
		})
	}
}

// TestBegunRunKeepsWorkflow: a run that has started continues under another workflow name only with AllowGraphChange. Then new inputs replace the
// stored inputs, for steps that have not been called yet.
func TestBegunRunKeepsWorkflow(t *testing.T) {
	t.Parallel()
	db := new(store.Memory)
	renamed := orderGraph()
	renamed.Name = "orders"
	_, err := performOrder(t, db, orderGraph(), "charge", kahn.Inputs(map[string]any{"order": 17}))
	require.NoError(t, err)
	before, err := db.Load(t.Context(), "r")
	require.NoError(t, err)
	answer := kahn.EarlySignals(map[string]any{"gate": true})

	_, err = performOrder(t, db, renamed, "ship", answer)
	require.ErrorIs(t, err, kahn.ErrGraphChanged)
	require.ErrorContains(t, err, `run "r" belongs to workflow "order", not "orders"`)
	after, err := db.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, before.Spec, after.Spec)
	require.Equal(t, before.Sequence, after.Sequence)

	output, err := performOrder(t, db, renamed, "ship", answer, kahn.AllowGraphChange(), kahn.Inputs(map[string]any{"order": 18}))
	require.NoError(t, err)
	require.Equal(t, "ship 18 <nil>", output)
	after, err = db.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, "orders", after.Workflow)
}

// TestNotDue: a run does not start, and writes nothing, before the time for which it was created.
func TestNotDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := new(store.Memory)
		n, err := kahn.Prepare(orderGraph(), kahn.RunID("r"), kahn.Inputs(map[string]any{"order": 1}))
		require.NoError(t, err)
		n.NotBefore = time.Now().Add(time.Hour)
		_, _, err = db.Create(t.Context(), n)
		require.NoError(t, err)
		for _, pause := range []time.Duration{time.Hour - 1, 1} {
			_, err = performOrder(t, db, orderGraph(), "charge")
			require.ErrorIs(t, err, kahn.ErrNotDue)
			require.ErrorContains(t, err, n.NotBefore.Format(time.RFC3339Nano))
			stored, err := db.Load(t.Context(), "r")
			require.NoError(t, err)
			require.Zero(t, stored.Sequence)
			require.Equal(t, n.NotBefore, stored.WakeAt)
			time.Sleep(pause)
		}
		output, err := performOrder(t, db, orderGraph(), "charge")
		require.NoError(t, err)
		require.Equal(t, "charge 1 <nil>", output)
	})
}

// TestSpecOfARun: the first commit of a durable run stores its Spec. If the run is resumed with another Spec, the stored Spec changes.
func TestSpecOfARun(t *testing.T) {
	t.Parallel()
	db := new(store.Memory)
	hash := func(g *kahn.Graph) string {
		p, err := g.Compile()
		require.NoError(t, err)
		return p.Hash()
	}
	longer := orderGraph().Add(kahn.Node{ID: "thank", After: []string{"ship"}})
	labels := map[string]string{"tenant": "x"}
	for i, row := range []struct {
		g    *kahn.Graph
		opts []kahn.Option
		want store.Spec
	}{
		{orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{"order": "a"}), kahn.Describe(store.Spec{Labels: labels})}, store.Spec{Inputs: json.RawMessage(`{"order":"a"}`), Labels: labels}},
		{orderGraph(), nil, store.Spec{Inputs: json.RawMessage(`{"order":"a"}`), Labels: labels}},
		{orderGraph(), []kahn.Option{kahn.Describe(store.Spec{Parent: "mother"})}, store.Spec{Inputs: json.RawMessage(`{"order":"a"}`), Labels: labels, Parent: "mother"}},
		{longer, []kahn.Option{kahn.AllowGraphChange()}, store.Spec{Inputs: json.RawMessage(`{"order":"a"}`), Labels: labels, Parent: "mother"}},
		{longer, []kahn.Option{kahn.Inputs(map[string]any{"order": "b"})}, store.Spec{Inputs: json.RawMessage(`{"order":"b"}`), Labels: labels, Parent: "mother"}},
		{longer, []kahn.Option{kahn.Describe(store.Spec{Labels: map[string]string{}})}, store.Spec{Inputs: json.RawMessage(`{"order":"b"}`), Labels: map[string]string{}, Parent: "mother"}},
		{longer, []kahn.Option{kahn.EarlySignals(map[string]any{"gate": 1})}, store.Spec{Inputs: json.RawMessage(`{"order":"b"}`), Labels: map[string]string{}, Parent: "mother"}},
	} {
		_, err := performOrder(t, db, row.g, "charge", row.opts...)
		require.NoError(t, err)
		stored, err := db.Load(t.Context(), "r")
		require.NoError(t, err)
		row.want.Workflow, row.want.Plan = "order", hash(row.g)
		require.Equal(t, row.want, stored.Spec, "life %d", i+1)
		require.NotContains(t, string(stored.Record), `"inputs"`)
		require.Equal(t, i == 6, !stored.Ended.IsZero())
	}
	res, err := kahn.ReadResult(t.Context(), longer, db, "r")
	require.NoError(t, err)
	ship, _ := res.Node("ship")
	require.Equal(t, "ship b <nil>", ship.Output)
	snapshot, err := kahn.ReadSnapshot(t.Context(), db, "r")
	require.NoError(t, err)
	again, err := kahn.Execute(t.Context(), longer, orderStep, kahn.Redrive(snapshot, []string{"ship"}))
	require.NoError(t, err)
	ship, _ = again.Node("ship")
	require.Equal(t, "ship b <nil>", ship.Output)
}

// TestSpecOfAnOlderRecord: former versions wrote a run's inputs into its record. The next commit of such a run moves them into its Spec.
func TestSpecOfAnOlderRecord(t *testing.T) {
	t.Parallel()
	db := new(store.Memory)
	_, err := performOrder(t, db, orderGraph(), "charge", kahn.Inputs(map[string]any{"order": "a"}))
	require.NoError(t, err)
	older, err := db.Load(t.Context(), "r")
	require.NoError(t, err)
	older.Record = json.RawMessage(strings.Replace(string(older.Record), `{`, `{"inputs":{"order":"a"},`, 1))
	older.Spec = store.Spec{}
	db = new(store.Memory)
	require.NoError(t, db.Insert(t.Context(), older))
	output, err := performOrder(t, db, orderGraph(), "ship", kahn.EarlySignals(map[string]any{"gate": 1}))
	require.NoError(t, err)
	require.Equal(t, "ship a <nil>", output)
	stored, err := db.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, "order", stored.Workflow)
	require.Equal(t, `{"order":"a"}`, string(stored.Inputs))
}

// TestPrepareErrors: Prepare refuses the same graphs and options as Execute.
func TestPrepareErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		g    *kahn.Graph
		opts []kahn.Option
		want error
	}{
		{nil, nil, kahn.ErrNoGraph},
		{orderGraph().Add(kahn.Node{ID: "gate"}), nil, kahn.ErrDuplicateNode},
		{orderGraph(), nil, kahn.ErrMissingInput},
		{orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{"order": 1, "x": 1})}, kahn.ErrUnknownInput},
		{orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{"order": func() {}})}, kahn.ErrNotEncodable},
		{orderGraph(), []kahn.Option{kahn.Limit(-1)}, kahn.ErrBadOption},
		{orderGraph(), []kahn.Option{kahn.Fire("x", 1)}, kahn.ErrUnknownTrigger},
		{orderGraph(), []kahn.Option{kahn.Describe(store.Spec{Labels: map[string]string{"name": "M\xfcller"}})}, kahn.ErrBadOption},
		{orderGraph(), []kahn.Option{kahn.Describe(store.Spec{Labels: map[string]string{"\xff": "x"}})}, kahn.ErrBadOption},
		{orderGraph(), []kahn.Option{kahn.Describe(store.Spec{Parent: "\xff"})}, kahn.ErrBadOption},
		{orderGraph(), []kahn.Option{kahn.Describe(store.Spec{Workflow: "order"})}, kahn.ErrBadOption},
		{orderGraph(), []kahn.Option{kahn.Describe(store.Spec{Plan: "1"})}, kahn.ErrBadOption},
		{orderGraph(), []kahn.Option{kahn.Describe(store.Spec{Inputs: json.RawMessage("{}")})}, kahn.ErrBadOption},
	} {
		if _, err := kahn.Prepare(row.g, row.opts...); !errors.Is(err, row.want) {
			t.Errorf("%v, expected %v", err, row.want)
		}
	}
	one, err := kahn.Prepare(new(kahn.Graph).Add(kahn.Node{ID: "a"}))
	require.NoError(t, err)
	two, err := kahn.Prepare(new(kahn.Graph).Add(kahn.Node{ID: "a"}))
	require.NoError(t, err)
	require.NotEmpty(t, one.ID)
	require.NotEqual(t, one.ID, two.ID)
	require.True(t, one.Same(&two.Spec))
}

// TestInputsUnderAnotherKey: the stored inputs of a run equal the given inputs even if the encoding has changed since.
func TestInputsUnderAnotherKey(t *testing.T) {
	t.Parallel()
	keys := map[string][]byte{"old": []byte(strings.Repeat("o", 32)), "new": []byte(strings.Repeat("n", 32))}
	blobs := new(store.MemoryBlobs)
	for name, codecs := range map[string][2]kahn.Codec{
		"a new key":      {&store.Sealed{Codec: kahn.Types{}, Keys: keys, Current: "old"}, &store.Sealed{Codec: kahn.Types{}, Keys: keys, Current: "new"}},
		"new encryption": {kahn.Types{}, &store.Sealed{Codec: kahn.Types{}, Keys: keys, Current: "new", Plain: true}},
		"larger blobs":   {&store.Blobs{Codec: kahn.Types{}, Store: blobs, Over: -1}, &store.Blobs{Codec: kahn.Types{}, Store: blobs}},
	} {
		db := new(store.Memory)
		n, err := kahn.Prepare(graph(after("a")), kahn.RunID("r"), kahn.Inputs(map[string]any{"order": "17"}), kahn.Encoding(codecs[0]))
		require.NoError(t, err, name)
		_, _, err = db.Create(t.Context(), n)
		require.NoError(t, err, name)
		_, err = kahn.Execute(t.Context(), graph(after("a")), nothing, kahn.RunID("r"), kahn.Inputs(map[string]any{"order": "18"}), kahn.Durable(db), kahn.Encoding(codecs[1]))
		require.ErrorIs(t, err, store.ErrMismatch, name)
		_, err = kahn.Execute(t.Context(), graph(after("a")), nothing, kahn.RunID("r"), kahn.Inputs(map[string]any{"order": "17"}), kahn.Durable(db), kahn.Encoding(codecs[1]))
		require.NoError(t, err, name)
	}
}

// TestRefusedInputs: if the store refuses one of a new run's values, Execute returns an error that names the value. The run is not stored, and
// its id stays free.
func TestRefusedInputs(t *testing.T) {
	t.Parallel()
	gates := graph(kahn.Node{ID: "T", Kind: kahn.KindTrigger}, kahn.Node{ID: "G", Kind: kahn.KindGate, After: []string{"T"}})
	broken := map[string]any{"gift": 1, "order": func() {}}
	var forked kahn.Snapshot
	{
		res, err := kahn.Execute(t.Context(), orderGraph(), orderStep, kahn.Inputs(broken)) // without a store inputs are not encoded
		require.NoError(t, err)
		forked = *res.Snapshot()
	}
	for name, row := range map[string]struct {
		g    *kahn.Graph
		opts []kahn.Option
		want error
		text string
	}{
		"an input":                  {orderGraph(), []kahn.Option{kahn.Inputs(broken)}, kahn.ErrNotEncodable, `input "order": `},
		"the name of an input":      {graph(after("A")), []kahn.Option{kahn.Inputs(map[string]any{"\xff": 1})}, kahn.ErrNotEncodable, `input "\xff": `},
		"what the store refuses":    {graph(after("A")), []kahn.Option{kahn.Inputs(map[string]any{"n": "huge"})}, kahn.ErrRejected, `input "n": `},
		"the payload of a trigger":  {gates, []kahn.Option{kahn.Fire("T", func() {})}, kahn.ErrNotEncodable, `the payload of "T": `},
		"an early signal":           {gates, []kahn.Option{kahn.EarlySignals(map[string]any{"G": func() {}})}, kahn.ErrNotEncodable, `signal for "G": `},
		"inputs of the forked run":  {orderGraph(), []kahn.Option{kahn.Fork(&forked, "charge")}, kahn.ErrNotEncodable, `input "order": `},
		"a codec that knows no int": {orderGraph(), []kahn.Option{kahn.Inputs(map[string]any{"order": 1}), kahn.Encoding(brokenCodec{})}, kahn.ErrNotEncodable, `input "order": `},
	} {
		rn := new(kahn.Runner)
		for how, begin := range map[string]func(opts ...kahn.Option) error{
			"Execute": func(opts ...kahn.Option) error {
				_, err := kahn.Execute(t.Context(), row.g, neverStep(t), opts...)
				return err
			},
			"Start": func(opts ...kahn.Option) error {
				_, err := kahn.Start(t.Context(), row.g, neverStep(t), opts...)
				return err
			},
			"Runner.Execute": func(opts ...kahn.Option) error {
				_, err := rn.Execute(t.Context(), row.g, neverStep(t), opts...)
				return err
			},
			"Runner.Start": func(opts ...kahn.Option) error {
				_, err := rn.Start(t.Context(), row.g, neverStep(t), opts...)
				return err
			},
		} {
			db := new(pickyStore)
			for range 2 { // the first attempt stored nothing
				err := begin(append(row.opts, kahn.Durable(db), kahn.RunID("r"))...)
				if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.text) {
					t.Errorf("%s, %s: %v", name, how, err)
				}
			}
			if stored, err := db.Load(t.Context(), "r"); err == nil && (stored.Sequence > 0 || stored.Inputs != nil) {
				t.Errorf("%s, %s: the store has %+v", name, how, stored)
			}
		}
		for range rn.Runs() {
			t.Errorf("%s: the Runner has the run", name)
		}
	}
	_, err := kahn.Prepare(orderGraph(), kahn.Inputs(broken))
	require.ErrorIs(t, err, kahn.ErrNotEncodable)
	require.ErrorContains(t, err, `input "order": `)
}

// brokenCodec is a codec that panics.
type brokenCodec struct{}

func (brokenCodec) Encode(any) (json.RawMessage, error) { panic("no int") }
func (brokenCodec) Decode(json.RawMessage) (any, error) { return nil, nil }

// hostCodec is a codec that wraps another codec.
type hostCodec struct{ kahn.Codec }

func (c hostCodec) Unwrap() store.Codec { return c.Codec }

// TestSealedAtConstruction: an unusable codec is refused before the first step. A run that encrypts its values but would store its events
// unencrypted is refused, too.
func TestSealedAtConstruction(t *testing.T) {
	t.Parallel()
	keys := map[string][]byte{"k": []byte(strings.Repeat("k", 32))}
	sealed := &store.Sealed{Codec: kahn.Types{}, Keys: keys, Current: "k"}
	known := &store.Sealed{Codec: kahn.Types{}, Keys: keys, Current: "k", EventsInClear: true}
	for name, c := range map[string]kahn.Codec{
		"no codec":         &store.Sealed{Keys: keys, Current: "k"},
		"a short key":      &store.Sealed{Codec: kahn.Types{}, Keys: map[string][]byte{"k": {1}}, Current: "k"},
		"one key twice":    &store.Sealed{Codec: kahn.Types{}, Keys: map[string][]byte{"k": keys["k"], "l": bytes.Clone(keys["k"])}, Current: "k"},
		"no current key":   &store.Sealed{Codec: kahn.Types{}, Keys: keys, Current: "x"},
		"blobs of nothing": &store.Blobs{Codec: kahn.Types{}},
		"inside":           &store.Blobs{Codec: &store.Sealed{Keys: keys, Current: "k"}, Store: new(store.MemoryBlobs)},
	} {
		_, err := kahn.Execute(t.Context(), graph(after("a")), nothing, kahn.Encoding(c))
		require.ErrorIs(t, err, kahn.ErrBadOption, name)
		_, err = kahn.Prepare(graph(after("a")), kahn.Encoding(c))
		require.ErrorIs(t, err, kahn.ErrBadOption, name)
	}
	for name, c := range map[string]kahn.Codec{
		"sealed": sealed, "in blobs": &store.Blobs{Codec: sealed, Store: new(store.MemoryBlobs)}, "in a host's": hostCodec{sealed},
	} {
		db := new(store.Memory)
		_, err := kahn.Execute(t.Context(), graph(after("a")), nothing, kahn.Encoding(c), kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents())
		require.ErrorIs(t, err, kahn.ErrBadOption, name)
		require.ErrorContains(t, err, "Sealed.EventsInClear", name)
		page, err := db.List(t.Context(), store.Query{})
		require.NoError(t, err)
		require.Empty(t, page.Runs, name)
		_, err = kahn.Execute(t.Context(), graph(after("a")), nothing, kahn.Encoding(c), kahn.Durable(db), kahn.RunID("r"))
		require.NoError(t, err, name)
	}
	db := new(store.Memory)
	run, err := kahn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate}), nothing, kahn.Encoding(known), kahn.Durable(db), kahn.RunID("r"), kahn.StoreEvents())
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "g", kahn.Suspended)
	require.NoError(t, err)
	run.Leave()
	_, err = run.Wait()
	require.NoError(t, err)
	_, err = kahn.Start(t.Context(), new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate}), nothing, kahn.Encoding(sealed), kahn.Durable(db), kahn.RunID("r")) // the resumed run would still store its events
	require.ErrorIs(t, err, kahn.ErrBadOption)
}
