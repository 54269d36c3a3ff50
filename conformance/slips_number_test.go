package conformance_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// TestSlipsOfNumbers: an invalid number or enum value is refused with an error that names the field.
func TestSlipsOfNumbers(t *testing.T) {
	t.Parallel()
	one := func(n kahn.Node) *kahn.Graph { n.ID = "N"; return graph(n) }
	loop := func(l kahn.Loop) *kahn.Graph {
		l.While = func(kahn.View) (bool, error) { return false, nil }
		return one(kahn.Node{Sub: graph(after("x")), Loop: &l})
	}
	items := func(m kahn.Map) *kahn.Graph {
		m.Over = "items"
		return one(kahn.Node{Map: &m, Params: map[string]any{"items": []int{1}}})
	}
	waits := func(w kahn.Gate) *kahn.Graph { return one(kahn.Node{Kind: kahn.KindGate, Gate: &w}) }
	groups := func(list ...kahn.Group) *kahn.Graph { g := graph(after("A")); g.Groups = list; return g }
	inputs := func(list ...kahn.Input) *kahn.Graph { g := graph(after("A")); g.Inputs = list; return g }
	defaults := func(d kahn.Defaults) *kahn.Graph { g := graph(after("A")); g.Defaults = d; return g }
	edge := func(e kahn.Edge) *kahn.Graph {
		e.From = "A"
		return graph(after("A"), kahn.Node{ID: "B", In: []kahn.Edge{e}})
	}
	const skipModes, policies, guards = "cascade, satisfy, strict", "abort, skip, propagate, substitute_default", "allow, skip, fail"
	for want, g := range map[string]*kahn.Graph{
		`node "N": bad value: Timeout -1s is negative`:                                         one(kahn.Node{Timeout: -time.Second}),
		`node "N": bad value: OverallTimeout -1s is negative`:                                  one(kahn.Node{OverallTimeout: -time.Second}),
		`node "N": bad value: Estimate -1s is negative`:                                        one(kahn.Node{Estimate: -time.Second}),
		`node "N": bad value: SkipMode 9 is none of ` + skipModes:                              one(kahn.Node{SkipMode: 9}),
		`node "N": bad value: OnUpstreamFailure 9 is none of ` + policies:                      one(kahn.Node{OnUpstreamFailure: 9}),
		`node "N": bad value: GuardErrors 9 is none of ` + guards:                              one(kahn.Node{GuardErrors: 9}),
		`node "N": bad value: Handling 9 is none of default, handles, observes`:                one(kahn.Node{Handling: 9}),
		`node "N": bad value: NoMatch 9 is none of skip, fail`:                                 one(kahn.Node{NoMatch: 9}),
		`node "N": bad value: Moderation 9 is none of none, input, output, both`:               one(kahn.Node{Moderation: 9}),
		`node "N": bad value: retry: MaxAttempts -1 is negative`:                               one(kahn.Node{Retry: kahn.Retry{MaxAttempts: -1}}),
		`node "N": bad value: retry: Multiplier -1 is not a valid factor`:                      one(kahn.Node{Retry: kahn.Retry{Multiplier: -1}}),
		`node "N": bad value: retry: Multiplier NaN is not a valid factor`:                     one(kahn.Node{Retry: kahn.Retry{Multiplier: math.NaN()}}),
		`node "N": bad value: retry: Jitter 9 is none of half, none, full`:                     one(kahn.Node{Retry: kahn.Retry{Jitter: 9}}),
		`node "N": bad value: retry: MaxRetryAfter -1s is negative`:                            one(kahn.Node{Retry: kahn.Retry{MaxRetryAfter: -time.Second}}),
		`node "N": bad value: Gate.Timeout -1s is negative`:                                    waits(kahn.Gate{Timeout: -time.Second}),
		`node "N": bad value: Gate.OnTimeout 9 is none of fail, label`:                         waits(kahn.Gate{OnTimeout: 9}),
		`node "N": bad value: Loop.MaxIterations 0 is not positive: a loop must have a bound`:  loop(kahn.Loop{}),
		`node "N": bad value: Loop.MaxIterations -1 is not positive: a loop must have a bound`: loop(kahn.Loop{MaxIterations: -1}),
		`node "N": bad value: Loop.Pause -1s is negative`:                                      loop(kahn.Loop{MaxIterations: 1, Pause: -time.Second}),
		`node "N": bad value: Loop.OnLimit 9 is none of fail, stop`:                            loop(kahn.Loop{MaxIterations: 1, OnLimit: 9}),
		`node "N": bad value: Map.Limit -1 is negative`:                                        items(kahn.Map{Limit: -1}),
		`node "N": bad value: Map.ToleratedCount -1 is negative`:                               items(kahn.Map{ToleratedCount: -1}),
		`node "N": bad value: Map.ToleratedPercent -1 is not from 0 to 100`:                    items(kahn.Map{ToleratedPercent: -1}),
		`node "N": bad value: Map.ToleratedPercent 101 is not from 0 to 100`:                   items(kahn.Map{ToleratedPercent: 101}),
		`node "N": bad value: Map.ToleratedPercent NaN is not from 0 to 100`:                   items(kahn.Map{ToleratedPercent: math.NaN()}),
		`node "N": bad value: port number 2 has no name`:                                       one(kahn.Node{Ports: []kahn.Port{{Name: "p"}, {}}}),
		`node "N": bad value: port "p" is declared twice`:                                      one(kahn.Node{Ports: []kahn.Port{{Name: "p"}, {Name: "p"}}}),
		`node "N": bad value: output number 1 has no name`:                                     one(kahn.Node{Outputs: []string{""}}),
		`node "N": bad value: output "o" is declared twice`:                                    one(kahn.Node{Outputs: []string{"o", "o"}}),
		`Groups: bad value: group number 2 has no name`:                                        groups(kahn.Group{Name: "G"}, kahn.Group{}),
		`Groups: bad value: group "G" is declared twice`:                                       groups(kahn.Group{Name: "G"}, kahn.Group{Name: "G"}),
		`group "G": bad value: Limit -1 is negative`:                                           groups(kahn.Group{Name: "G", Limit: -1}),
		`group "G": bad value: Rate.Starts 0 is not positive`:                                  groups(kahn.Group{Name: "G", Rate: kahn.Rate{Per: time.Second}}),
		`group "G": bad value: Rate.Per -1s is not positive`:                                   groups(kahn.Group{Name: "G", Rate: kahn.Rate{Starts: 1, Per: -time.Second}}),
		`group "G": bad value: Rate.Burst -1 is negative`:                                      groups(kahn.Group{Name: "G", Rate: kahn.Rate{Starts: 1, Per: time.Second, Burst: -1}}),
		`Inputs: bad value: input number 1 has no name`:                                        inputs(kahn.Input{}),
		`Inputs: bad value: input "i" is declared twice`:                                       inputs(kahn.Input{Name: "i"}, kahn.Input{Name: "i"}),
		`bad value: Defaults.SkipMode 9 is none of ` + skipModes:                               defaults(kahn.Defaults{SkipMode: 9}),
		`bad value: Defaults.OnUpstreamFailure 9 is none of ` + policies:                       defaults(kahn.Defaults{OnUpstreamFailure: 9}),
		`bad value: Defaults.GuardErrors 9 is none of ` + guards:                               defaults(kahn.Defaults{GuardErrors: 9}),
		`bad value: Defaults.Timeout -2s is negative`:                                          defaults(kahn.Defaults{Timeout: -2 * time.Second}),
		`Defaults: bad value: retry: MaxAttempts -1 is negative`:                               defaults(kahn.Defaults{Retry: kahn.Retry{MaxAttempts: -1}}),
		`edge "A" -> "B": bad value: On 9 is none of success, failure, always`:                 edge(kahn.Edge{On: 9}),
	} {
		_, err := g.Compile()
		require.ErrorIs(t, err, kahn.ErrBadValue, want)
		var all *kahn.GraphError
		require.ErrorAs(t, err, &all)
		require.Len(t, all.Problems, 1, want)
		require.Equal(t, want, all.Problems[0].Error())
	}
	for want, rn := range map[string]*kahn.Runner{
		"bad option: Runner.MaxRuns -1 is negative":                          {MaxRuns: -1},
		"bad option: Runner.Limit -1 is negative":                            {Limit: -1},
		"bad option: Runner.KeyLimit -1 is negative":                         {KeyLimit: -1},
		"bad option: Runner.Rate: bad value: Rate.Starts -1 is not positive": {Rate: kahn.Rate{Starts: -1, Per: 1}},
		"bad option: Runner.KeyRate: bad value: Rate.Per 0s is not positive": {KeyRate: kahn.Rate{Starts: 1}},
		"bad option: Limit(-1) is negative":                                  {Options: []kahn.Option{kahn.Limit(-1)}},
	} {
		for range 2 {
			run, err := rn.Start(t.Context(), graph(after("A")), neverStep(t))
			require.Nil(t, run)
			require.ErrorIs(t, err, kahn.ErrBadOption)
			require.Equal(t, want, err.Error())
		}
		for range rn.Runs() {
			t.Error("there is a run")
		}
	}
}

// TestFirstNumberOutside: a number just above the last value of an enum is refused.
func TestFirstNumberOutside(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]kahn.Node{
		"SkipMode":          {SkipMode: kahn.SkipStrict + 1},
		"OnUpstreamFailure": {OnUpstreamFailure: kahn.UpstreamSubstitute + 1},
		"Handling":          {Handling: kahn.Observes + 1},
		"GuardErrors":       {GuardErrors: kahn.GuardFail + 1},
		"NoMatch":           {NoMatch: kahn.NoMatchFail + 1},
		"Moderation":        {Moderation: kahn.ModerateBoth + 1},
	} {
		n.ID = "N"
		_, err := graph(n).Compile()
		require.ErrorIs(t, err, kahn.ErrBadValue, name)
		require.ErrorContains(t, err, name)
	}
}
