package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

var errTooSmall = errors.New("it must be more than 10")

// gateAbove10 returns a graph whose gate accepts numbers above 10.
func gateAbove10() *kahn.Graph {
	return graph(after("A"), kahn.Node{ID: "G", Kind: kahn.KindGate, After: []string{"A"}, Gate: &kahn.Gate{Check: func(answer any) error {
		if answer.(int) <= 10 {
			return errTooSmall
		}
		return nil
	}}}, after("B", "G"))
}

// A gate's Check refuses an answer from any source, and the gate continues to wait.
func TestGateCheck(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	refused := func(t *testing.T, err error) {
		t.Helper()
		require.ErrorIs(t, err, kahn.ErrChoice)
		require.ErrorIs(t, err, errTooSmall)
		var choice *kahn.ChoiceError
		require.False(t, errors.As(err, &choice), "there are no choices")
	}
	g := gateAbove10()
	var events []event.Event
	run, err := kahn.Start(ctx, g, nothing, kahn.OnEvent(func(e kahn.Event) { events = append(events, e) }))
	require.NoError(t, err)
	err = run.Signal(context.Background(), "G", 3)
	refused(t, err)
	require.EqualError(t, err, `node "G": the answer is refused: it must be more than 10`)
	err = run.Signal(context.Background(), "G", "eleven") // the assertion in Check panics
	require.ErrorIs(t, err, kahn.ErrChoice)
	var panicked *kahn.PanicError
	require.ErrorAs(t, err, &panicked)
	require.NoError(t, run.Signal(context.Background(), "G", 11))
	require.ErrorIs(t, run.Signal(context.Background(), "G", 12), kahn.ErrAnswered)
	res, err := run.Wait()
	require.NoError(t, err)
	require.NoError(t, kahntest.CheckEvents(g, res, events))
	kahntest.RequireStatuses(t, res, "A:ok G:ok B:ok")

	_, err = kahn.Execute(ctx, g, nothing, kahn.EarlySignals(map[string]any{"G": 3}))
	refused(t, err)
	res, err = kahn.Execute(ctx, g, nothing)
	require.NoError(t, err)
	_, err = kahn.Execute(ctx, g, nothing, kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"G": 3}))
	refused(t, err)
	res, err = kahn.Execute(ctx, g, nothing, kahn.Resume(res.Snapshot()), kahn.EarlySignals(map[string]any{"G": 11}))
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)

	_, err = kahn.Execute(ctx, g, nothing, kahn.TestMode{Mocks: map[string]kahn.Mock{"G": {Value: 3}}})
	refused(t, err)
	require.ErrorIs(t, err, kahn.ErrBadOption)
	_, err = kahn.Execute(ctx, g, nothing, kahn.TestMode{Mocks: map[string]kahn.Mock{"G": {Value: 11}}})
	require.NoError(t, err)
}

// Check is called only for an answer that is among the choices. A program whose graph has a Check can continue a run that was stored without it.
func TestGateCheckAndChoices(t *testing.T) {
	t.Parallel()
	build := func(gate *kahn.Gate) *kahn.Graph { return graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: gate}) }
	calls := 0
	both := build(&kahn.Gate{Choices: []string{"yes", "no"}, Check: func(any) error { calls++; return errTooSmall }})
	run, err := kahn.Start(context.Background(), both, nil)
	require.NoError(t, err)
	var choice *kahn.ChoiceError
	require.ErrorAs(t, run.Signal(context.Background(), "G", "maybe"), &choice)
	require.Zero(t, calls)
	require.ErrorIs(t, run.Signal(context.Background(), "G", "yes"), errTooSmall)
	require.Equal(t, 1, calls)
	run.Cancel()
	_, _ = run.Wait()

	hash := func(gate *kahn.Gate) string {
		p, err := build(gate).Compile()
		require.NoError(t, err)
		return p.Hash()
	}
	check := func(any) error { return nil }
	require.Equal(t, hash(nil), hash(&kahn.Gate{Check: check}))
	require.Equal(t, hash(&kahn.Gate{Choices: []string{"a"}}), hash(&kahn.Gate{Choices: []string{"a"}, Check: check}))
	require.NotEqual(t, hash(nil), hash(&kahn.Gate{Choices: []string{"a"}, Check: check}))
}

// An answer must match the choices, then the gate's Schema, then Check. After an answer that violates the Schema the gate continues to wait.
func TestGateSchema(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	calls := 0
	build := func(gate *kahn.Gate) *kahn.Graph {
		return graph(kahn.Node{ID: "S", Sub: graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: gate})})
	}
	g := build(&kahn.Gate{Choices: []string{"yes", "no"}, Schema: wants("yes"), Check: func(any) error { calls++; return nil }})
	run, err := kahn.Start(ctx, g, nothing)
	require.NoError(t, err)
	_, err = run.WaitFor(ctx, "S", kahn.Suspended)
	require.NoError(t, err)
	var choice *kahn.ChoiceError
	require.ErrorAs(t, run.Signal(ctx, "S/G", "maybe"), &choice)
	err = run.Signal(ctx, "S/G", "no")
	require.EqualError(t, err, `node "S/G": the answer is refused: /size: must be at least 3`)
	require.ErrorIs(t, err, kahn.ErrChoice)
	var violated *kahn.ContractError
	require.ErrorAs(t, err, &violated)
	require.Equal(t, []kahn.Violation{tooSmall}, violated.Violations)
	require.Zero(t, calls)
	require.NoError(t, run.Signal(ctx, "S/G", "yes"))
	require.Equal(t, 1, calls)
	res, err := run.Wait()
	require.NoError(t, err)
	require.Equal(t, kahn.RunCompleted, res.Status)

	// The answers come from the option EarlySignals, from a mock, and from the gate itself after its timeout.
	flat := func(gate *kahn.Gate) *kahn.Graph { return graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: gate}) }
	_, err = kahn.Execute(ctx, flat(&kahn.Gate{Schema: wants("yes")}), nothing, kahn.EarlySignals(map[string]any{"G": "no"}))
	require.ErrorAs(t, err, &violated)
	_, err = kahn.Execute(ctx, g, nothing, kahn.TestMode{Mocks: map[string]kahn.Mock{"S/G": {Value: "no"}}})
	require.ErrorAs(t, err, &violated)
	panics := shape{func(any) []kahn.Violation { panic("broken") }}
	_, err = kahn.Execute(ctx, flat(&kahn.Gate{Schema: panics}), nothing, kahn.EarlySignals(map[string]any{"G": "no"}))
	require.ErrorIs(t, err, kahn.ErrChoice)
	var panicked *kahn.PanicError
	require.ErrorAs(t, err, &panicked)
	bothModes(t, "a gate's own timeout is no answer", func(t *testing.T, mode kahn.Mode) {
		gate := &kahn.Gate{Timeout: time.Second, OnTimeout: kahn.GateLabel, Schema: wants("yes")}
		tryControlled(t, t.Context(), graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: gate}, after("B", "G")), takes(0), func(*kahn.Run) {}, mode).expect("G:ok B:ok", "completed")
	})
}

// Compile compiles a gate's Schema. The hash of the plan does not depend on the Schema.
func TestGateSchemaCompiles(t *testing.T) {
	t.Parallel()
	gate := func(schema any) *kahn.Graph {
		return graph(kahn.Node{ID: "M", Sub: graph(kahn.Node{ID: "G", Kind: kahn.KindGate, Gate: &kahn.Gate{Schema: schema}})})
	}
	_, err := gate(map[string]any{}).Compile()
	require.ErrorIs(t, err, kahn.ErrNoSchemas)
	g := gate(7)
	g.Schemas = shapes{}
	_, err = g.Compile()
	require.ErrorIs(t, err, kahn.ErrBadSchema)
	require.ErrorContains(t, err, `"G": Gate.Schema`)
	g = gate(map[string]any{})
	g.Schemas = shapes{}
	with, err := g.Compile()
	require.NoError(t, err)
	require.NoError(t, with.Portable())
	code, err := gate(wants(1)).Compile()
	require.NoError(t, err)
	require.ErrorContains(t, code.Portable(), "Gate.Schema is Go code")
	require.Equal(t, with.Hash(), code.Hash())
	bare, err := graph(kahn.Node{ID: "M", Sub: graph(kahn.Node{ID: "G", Kind: kahn.KindGate})}).Compile()
	require.NoError(t, err)
	require.Equal(t, bare.Hash(), with.Hash())
}
