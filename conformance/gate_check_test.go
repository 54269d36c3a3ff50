package conformance_test

import (
	"context"
	"errors"
	"testing"

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

// The Check of a gate refuses an answer from any source, and the gate keeps waiting.
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

// Check is called after the choices were checked. A run that a program without the Check stored continues in a program with it.
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
