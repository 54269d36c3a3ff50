package typed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/typed"
)

type item struct {
	Name string
	Cost int
}

type receipt struct {
	Items []item
	Paid  time.Duration
	Note  *string
}

// shop returns a pipeline whose values have types that kahn itself does not know. It calls step for each of its steps.
func shop(step func(ctx context.Context, id string)) *typed.Pipeline[map[string]*receipt] {
	return typed.New("shop", func(b *typed.Block) typed.Val[map[string]*receipt] {
		items := typed.Do1(b, "items", func(ctx context.Context, names []string) (list []item, err error) {
			step(ctx, "items")
			for i, name := range names {
				list = append(list, item{name, i + 1})
			}
			return list, nil
		}, typed.Root[[]string](b, "names"))
		priced, errs := typed.Each(b, "price", items, func(ctx context.Context, i item) (*item, error) {
			step(ctx, "price")
			if i.Name == "bad" {
				return nil, kahn.Permanent(errors.New("no price"))
			}
			i.Cost *= 10
			return &i, nil
		}, typed.Items[item]{ToleratedCount: 1})
		charged := typed.Do1(b, "charge", func(ctx context.Context, list []*item) (struct{ Sum int }, error) {
			step(ctx, "charge")
			return struct{ Sum int }{7}, kahn.Permanent(context.DeadlineExceeded)
		}, priced)
		tried := typed.Try(b, "charged", charged)
		ok := typed.Gate[bool](b, "pay?", tried)
		yes, no := typed.If(ok)
		paid := typed.Do4(yes, "pay", func(ctx context.Context, list []*item, errs []error, t typed.Tried[struct{ Sum int }], items []item) (receipt, error) {
			step(ctx, "pay")
			note := fmt.Sprint(len(list), list[0].Cost, errs[1], t.Value.Sum, errors.Is(t.Err, context.DeadlineExceeded))
			return receipt{Items: items, Paid: time.Second, Note: &note}, nil
		}, priced, errs, tried, items)
		none := typed.Do0(no, "none", ret(receipt{}))
		return typed.Do1(b, "book", func(ctx context.Context, r receipt) (map[string]*receipt, error) {
			step(ctx, "book")
			return map[string]*receipt{"r": &r}, nil
		}, typed.Either(b, "paid", paid, none))
	})
}

var names = kahn.Inputs(map[string]any{"names": []string{"good", "bad"}})

func requirePaid(t *testing.T, out map[string]*receipt) {
	t.Helper()
	require.Len(t, out, 1)
	require.Equal(t, []item{{"good", 1}, {"bad", 2}}, out["r"].Items)
	require.Equal(t, time.Second, out["r"].Paid)
	require.Equal(t, `1 10 node "price[1]": step_error: no price 0 true`, *out["r"].Note)
}

// A durable pipeline continues in another process, which builds the pipeline again. All values are unchanged.
func TestDurable(t *testing.T) {
	t.Parallel()
	ctx, m := context.Background(), &store.Memory{}
	calls := map[string]int{}
	count := func(_ context.Context, id string) { calls[id]++ }
	_, err := typed.Run(ctx, shop(count), names, kahn.Durable(m), kahn.RunID("r"), kahn.Limit(1))
	require.ErrorIs(t, err, kahn.ErrSuspended)
	require.Equal(t, map[string]int{"items": 1, "price": 2, "charge": 1}, calls)
	out, err := typed.Run(ctx, shop(count), names, kahn.Durable(m), kahn.RunID("r"), kahn.EarlySignals(map[string]any{"pay?": "yes"}))
	require.NoError(t, err)
	requirePaid(t, out)
	require.Equal(t, map[string]int{"items": 1, "price": 2, "charge": 1, "pay": 1, "book": 1}, calls)

	p := shop(count)
	g, err := p.Graph()
	require.NoError(t, err)
	res, err := kahn.ReadResult(ctx, g, m, "r", p.Encoding())
	require.NoError(t, err)
	out, err = p.Output(res)
	require.NoError(t, err)
	requirePaid(t, out)
}

// A run without options knows the types of its pipeline, whether Execute or Start has begun it. Runs of other pipelines do not know these types.
func TestTypesWithoutOptions(t *testing.T) {
	t.Parallel()
	type parcel struct{ Weight int }
	waiting := func() *typed.Pipeline[bool] {
		return typed.New("waiting", func(b *typed.Block) typed.Val[bool] {
			return typed.Gate[bool](b, "ok?", typed.Do0(b, "parcel", ret(parcel{7})))
		})
	}
	p, ctx := waiting(), t.Context()
	executed, err := p.Execute(ctx)
	require.NoError(t, err)
	run, err := p.Start(ctx)
	require.NoError(t, err)
	_, err = run.WaitFor(ctx, "parcel")
	require.NoError(t, err)
	run.Leave()
	started, err := run.Wait()
	require.NoError(t, err)
	for _, res := range []*kahn.Result{executed, started} {
		file, err := json.Marshal(res.Snapshot())
		require.NoError(t, err)
		require.Contains(t, string(file), `typed_test.parcel"`)
		var snap kahn.Snapshot
		require.NoError(t, json.Unmarshal(file, &snap))
		ok, err := typed.Run(ctx, waiting(), kahn.Resume(&snap), kahn.EarlySignals(map[string]any{"ok?": true}))
		require.NoError(t, err)
		require.True(t, ok)
	}
	other := typed.New("other", func(b *typed.Block) typed.Val[bool] {
		typed.Do0(b, "parcel", ret[any](parcel{7}))
		return typed.Gate[bool](b, "ok?")
	})
	res, err := other.Execute(ctx)
	require.NoError(t, err)
	_, err = json.Marshal(res.Snapshot())
	require.ErrorIs(t, err, kahn.ErrNotEncodable)
}

// A snapshot of a pipeline is written to a file. A pipeline that is built again continues from the file.
func TestSnapshotAsFile(t *testing.T) {
	t.Parallel()
	ctx, nothing := context.Background(), func(context.Context, string) {}
	waits, err := shop(nothing).Execute(ctx, names)
	require.NoError(t, err)
	file, err := json.Marshal(waits.Snapshot())
	require.NoError(t, err)
	var snap kahn.Snapshot
	require.NoError(t, json.Unmarshal(file, &snap))
	out, err := typed.Run(ctx, shop(nothing), kahn.Resume(&snap), kahn.EarlySignals(map[string]any{"pay?": true}))
	require.NoError(t, err)
	requirePaid(t, out)
}

// The process dies at each write of the store, and each time the pipeline recovers.
func TestCrashes(t *testing.T) {
	t.Parallel()
	crashes, err := kahntest.CheckCrashes(context.Background(), func(p *kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
		pipe := shop(func(ctx context.Context, id string) { s := kahn.StepOf(ctx); p.Effect(s.IdempotencyKey(), s.Path()) })
		g, err := pipe.Graph()
		require.NoError(t, err)
		return g, nil
	}, shop(nil).Encoding(), names, kahn.EarlySignals(map[string]any{"pay?": true}))
	require.NoError(t, err)
	require.Greater(t, crashes, 10)
}

// The JSON form of a Tried keeps its value and its error.
func TestTriedJSON(t *testing.T) {
	t.Parallel()
	for _, want := range []typed.Tried[*item]{{Value: &item{"x", 1}}, {}, {Err: context.Canceled}, {Err: &kahn.NodeError{Node: "n", Attempt: 2, Err: kahn.ErrTimeout}}} {
		data, err := json.Marshal(want)
		require.NoError(t, err)
		var got typed.Tried[*item]
		require.NoError(t, json.Unmarshal(data, &got))
		require.Equal(t, want.Value, got.Value)
		if want.Err == nil {
			require.NoError(t, got.Err)
			continue
		}
		require.EqualError(t, got.Err, want.Err.Error())
		require.Equal(t, errors.Is(want.Err, kahn.ErrTimeout), errors.Is(got.Err, kahn.ErrTimeout))
		require.Equal(t, errors.Is(want.Err, context.Canceled), errors.Is(got.Err, context.Canceled))
	}
	var got typed.Tried[int]
	require.ErrorIs(t, json.Unmarshal([]byte(`{"error": 7}`), &got), kahn.ErrBadValue)
	require.Error(t, json.Unmarshal([]byte(`{"value": "x"}`), &got))
	require.Error(t, json.Unmarshal([]byte(`7`), &got))
}

// Pipeline.Types has the types of the pipeline's values, by full names, except types that kahn knows.
func TestTypes(t *testing.T) {
	t.Parallel()
	const pkg = "github.com/seed-c794f7ef/kahn/typed_test."
	got := shop(nil).Types()
	for name, zero := range map[string]any{pkg + "item": item{}, "*" + pkg + "item": (*item)(nil), pkg + "receipt": receipt{}, "*" + pkg + "receipt": (*receipt)(nil)} {
		require.Equal(t, zero, got[name], name)
		delete(got, name)
	}
	require.Len(t, got, 2, "that of charge, and its Tried: %v", got)
}
