package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// If a field has no effect because the run lacks an option, the Result has a warning, with every driver.
func TestFieldsWithoutTheirOption(t *testing.T) {
	t.Parallel()
	const (
		key  = `node "a": bad option: its Key bounds nothing: the run has neither KeyLimit nor KeyRate`
		memo = `node "a": bad option: its Memo has no effect: the run does not have the option *Memo`
	)
	keyed, memoized := kahn.Node{ID: "a", Key: "host"}, kahn.Node{ID: "a", Memo: "1"}
	rate := kahn.Rate{Starts: 1, Per: time.Microsecond}
	items := kahn.Node{ID: "a", Params: map[string]any{"of": []int{1}}, Map: &kahn.Map{Over: "of", Key: func(any) string { return "k" }}}
	off := keyed
	off.Disabled = true
	for _, c := range []struct {
		name string
		g    *kahn.Graph
		opts []kahn.Option
		text string
	}{
		{"9 Key", graph(keyed, kahn.Node{ID: "b", Key: "host"}), nil, key},
		{"9 Key inside", graph(kahn.Node{ID: "s", Sub: graph(keyed)}), nil, `in "s": ` + key},
		{"9 keys of items", graph(items), nil, key},
		{"9 Memo", graph(memoized), nil, memo},
		{"9 Memo of several", graph(memoized, kahn.Node{ID: "b", Memo: "1"}), nil, memo},
		{"9 Memo inside", graph(kahn.Node{ID: "s", Sub: graph(memoized)}), nil, `in "s": ` + memo},
		{"9 Key of an expansion", graph(kahn.Node{ID: "x", Do: func(context.Context, *kahn.Step) (any, error) {
			return nil, kahn.Expand(graph(kahn.Node{ID: "a", Key: "host", Do: nop}), nil, nil)
		}}), nil, `in "x": ` + key},
		{"a limit", graph(keyed), []kahn.Option{kahn.KeyLimit(1)}, ""},
		{"a rate", graph(keyed), []kahn.Option{kahn.KeyRate(rate)}, ""},
		{"disabled", graph(off, kahn.Node{ID: "b"}), nil, ""},
		{"inside a disabled node", graph(kahn.Node{ID: "s", Disabled: true, Sub: graph(kahn.Node{ID: "a", Key: "host", Memo: "1"})}, kahn.Node{ID: "b"}), nil, ""},
		{"test mode", graph(keyed), []kahn.Option{kahn.TestMode{}}, ""},
	} {
		for driver, drive := range drivers {
			res, err := drive(t, c.g, nop, c.opts...)
			require.NoError(t, err, "%s, %s", c.name, driver)
			requireWarning(t, c.name+", "+driver, res.Warnings, c.text, kahn.ErrBadOption)
		}
	}
	res, err := kahn.Execute(t.Context(), graph(memoized), nop, new(kahn.Memo))
	require.NoError(t, err)
	require.Empty(t, res.Warnings)
	res, err = (&kahn.Runner{KeyLimit: 1}).Execute(t.Context(), graph(keyed), nop)
	require.NoError(t, err)
	require.Empty(t, res.Warnings, "the Runner bounds keys")
}

// An option that has no effect under a driver is refused.
func TestOptionsThatADriverIgnores(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		option kahn.Option
		text   string
	}{
		{kahn.AllowGraphChange(), "AllowGraphChange, which changes nothing here: list both versions of the graph among the Workflows, or see Adopt"},
		{kahn.CancelWithContext(), "CancelWithContext, which changes nothing here: a run that is served has no caller; see CancelOnShutdown"},
		{kahn.Durable(new(store.Memory)), "Durable, which changes nothing here: Serve performs the runs in Service.Store"},
		{kahn.Idempotent(new(kahn.IdempotencyStore), "k"), "Idempotent, which changes nothing here: runs in a store are created once for each RunID"},
		{kahn.Describe(store.Spec{Labels: map[string]string{"a": "b"}}), "Describe, which changes nothing here: runs are described when they are created, see Prepare"},
	} {
		g := graph(kahn.Node{ID: "a"})
		g.Name = "order"
		err := new(kahn.Runner).Serve(t.Context(), kahn.Service{Store: new(store.Memory), Workflows: []kahn.Workflow{{Graph: g, Step: nop, Options: []kahn.Option{c.option}}}})
		require.ErrorIs(t, err, kahn.ErrBadOption)
		require.EqualError(t, err, `bad option: Serve: workflow "order" has the option `+c.text)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for name, options := range map[string][]kahn.Option{
		"an option":             {kahn.Durable(new(store.Memory))},
		"an option of each run": {kahn.PerRun(func() []kahn.Option { return []kahn.Option{kahn.Durable(new(store.Memory))} })},
	} {
		err := (&kahn.Runner{Options: options}).Serve(ended, kahn.Service{Store: new(store.Memory), Workflows: []kahn.Workflow{{Graph: graph(kahn.Node{ID: "a"}), Step: nop}}})
		require.ErrorIs(t, err, kahn.ErrBadOption, name)
		require.EqualError(t, err, "bad option: Serve: the Runner has the option Durable of another store: Serve performs the runs in Service.Store", name)
	}
	db := new(store.Memory)
	err := (&kahn.Runner{Options: []kahn.Option{kahn.Durable(db)}}).Serve(ended, kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: graph(kahn.Node{ID: "a"}), Step: nop}}})
	require.ErrorIs(t, err, context.Canceled, "the Runner has the same store")
	plan, err := graph(kahn.Node{ID: "a"}).Compile()
	require.NoError(t, err)
	_, err = kahn.NewCoordinator(plan, time.Now(), kahn.CancelWithContext())
	require.EqualError(t, err, "bad option: a Coordinator does not support CancelWithContext")
}
