package conformance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestUnusualGates: Compile refuses a gate whose Timeout lacks its unit, and a gate with OnTimeout but without a Timeout.
func TestUnusualGates(t *testing.T) {
	t.Parallel()
	for want, gate := range map[string]kahn.Gate{
		"Gate.Timeout 72ns: is its unit missing?":     {Timeout: 72},
		"Gate.Timeout 999ns: is its unit missing?":    {Timeout: 999},
		"Gate.OnTimeout label without a Gate.Timeout": {OnTimeout: kahn.GateLabel},
		"": {Timeout: time.Microsecond, OnTimeout: kahn.GateLabel},
	} {
		_, err := new(kahn.Graph).Add(kahn.Node{ID: "g", Kind: kahn.KindGate, Gate: &gate}).Compile()
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, kahn.ErrBadValue, want)
		require.ErrorContains(t, err, want)
	}
}

// TestUnusualNodes: a plan has a warning about times that lack their unit, about kinds that differ from the engine's only in case, and about
// cleanup nodes that follow no node.
func TestUnusualNodes(t *testing.T) {
	t.Parallel()
	for want, nodes := range map[string][]kahn.Node{
		`node "a": bad value: Timeout 30ns: is its unit missing?`:                                               {{ID: "a", Timeout: 30}},
		`node "a": bad value: OverallTimeout 999ns: is its unit missing?`:                                       {{ID: "a", OverallTimeout: 999}},
		`node "a": bad value: retry: InitialDelay 200ns: is its unit missing?`:                                  {{ID: "a", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: 200}}},
		`node "a": bad value: Kind "Gate" differs from "gate" in case, and has no meaning of its own`:           {{ID: "a", Kind: "Gate"}},
		`node "a": bad value: Kind "END" differs from "end" in case, and has no meaning of its own`:             {{ID: "a", Kind: "END"}},
		`node "close": bad value: a cleanup node that follows no node starts before the other nodes have ended`: {{ID: "a"}, {ID: "close", Cleanup: true}},
	} {
		p, err := new(kahn.Graph).Add(nodes...).Compile()
		require.NoError(t, err)
		require.Len(t, p.Warnings(), 1, want)
		require.EqualError(t, p.Warnings()[0], want)
		require.ErrorIs(t, p.Warnings()[0], kahn.ErrBadValue)
	}
	p, err := new(kahn.Graph).Add(
		kahn.Node{ID: "a", Timeout: time.Microsecond, OverallTimeout: time.Microsecond, Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: -1}}, kahn.Node{ID: "b", Timeout: kahn.NoTimeout},
		kahn.Node{ID: "g", Kind: kahn.KindGate}, kahn.Node{ID: "gated", Kind: "gated"}, kahn.Node{ID: "close", Cleanup: true, After: []string{"a"}}, kahn.Node{ID: "e", Kind: kahn.KindEnd},
	).Compile()
	require.NoError(t, err)
	require.Empty(t, p.Warnings())
	p, err = new(kahn.Graph).Add(kahn.Node{ID: "close", Cleanup: true}).Compile()
	require.NoError(t, err)
	require.Empty(t, p.Warnings(), "a single node")
}
