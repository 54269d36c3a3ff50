package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// forms is a SchemaCompiler. Each of its schemas rejects only the answer "wrong".
type forms struct{}

func (forms) Compile(any) (kahn.Contract, error) { return forms{}, nil }

func (forms) Check(answer any) []kahn.Violation {
	if answer != "wrong" {
		return nil
	}
	return []kahn.Violation{{Path: "/amount", Message: "expected a number"}}
}

// amountForm is the schema of an answer with several parts.
const amountForm = `{"type":"object","required":["amount","currency"],"properties":{"amount":{"title":"Amount","type":"number","description":"what may be spent"},"currency":{"enum":["EUR","USD"]},"urgent":{"type":"boolean"},"note":{"type":"string"}}}`

// asking returns a graph with gates of every kind.
func asking() *kahn.Graph {
	gives := func(v any) kahn.StepFunc { return func(context.Context, *kahn.Step) (any, error) { return v, nil } }
	g := &kahn.Graph{Name: "asking", Schemas: forms{}}
	g.Add(
		kahn.Node{ID: "quote", Do: gives(map[string]any{"eur": 1200})},
		kahn.Node{ID: "risk", Do: gives("low")},
		kahn.Node{ID: "declared", Kind: kahn.KindGate, After: []string{"quote", "risk"}, Gate: &kahn.Gate{Choices: []string{"yes", "no"}}},
		kahn.Node{ID: "one", Kind: kahn.KindGate, In: []kahn.Edge{{From: "quote", Param: "offer"}}},
		kahn.Node{ID: "both", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel}},
		kahn.Node{ID: "form", Kind: kahn.KindGate, Gate: &kahn.Gate{Schema: amountForm}},
		kahn.Node{ID: "data", Kind: kahn.KindGate, Gate: &kahn.Gate{Schema: map[string]any{"type": "number"}}},
		kahn.Node{ID: "code", Kind: kahn.KindGate, Gate: &kahn.Gate{Schema: kahn.Contract(forms{})}},
		kahn.Node{ID: "go", In: []kahn.Edge{{From: "one", Label: "approved"}}, Do: gives(nil)},
		kahn.Node{ID: "late", In: []kahn.Edge{{From: "both", Label: "timeout"}}, Do: gives(nil)},
		kahn.Node{ID: "send", In: []kahn.Edge{{From: "both", Label: "approved"}}, Do: gives(nil)},
		kahn.Node{ID: "drop", In: []kahn.Edge{{From: "both", Label: "rejected"}}, Do: gives(nil)},
	)
	return g
}

// The page shows the declared choices of a gate, without their synonyms, the schema of its answers, and the values on which a person decides.
// This holds for a run of this process and for a stored run.
func TestGateIsShown(t *testing.T) {
	t.Parallel()
	type shown struct {
		choices []string
		schema  string
		bases   map[string]string
	}
	check := func(t *testing.T, d *desk, run string, offer map[string]string) {
		got := map[string]shown{}
		for _, g := range get[gatesReply](d, "api/v1/gates").Gates {
			if g.Run != run {
				continue
			}
			x := shown{choices: g.Choices, schema: string(g.Schema), bases: map[string]string{}}
			for _, b := range g.Bases {
				x.bases[b.Name+" "+b.Path] = string(b.Value.JSON)
			}
			got[g.Path] = x
		}
		none := map[string]string{}
		require.Equal(t, map[string]shown{
			"declared": {[]string{"yes", "no"}, "", map[string]string{"quote quote": `{"eur":1200}`, "risk risk": `"low"`}},
			"one":      {[]string{"approved", "rejected"}, "", offer}, // the gate also accepts rejected, although no edge has this label
			"both":     {[]string{"approved", "rejected"}, "", none},
			"form":     {nil, amountForm, none},
			"data":     {nil, `{"type":"number"}`, none},
			"code":     {nil, "", none},
		}, got)
	}
	var memory store.Memory
	plan, err := asking().Compile()
	require.NoError(t, err)
	may := true
	d := newDesk(t, func(o *Options) {
		o.Store, o.Workflows = &memory, []Workflow{{Plan: plan}}
		o.Authorize = func(_ *http.Request, a Action) error {
			if a == ViewData && !may {
				return errors.New("no")
			}
			return nil
		}
	})
	start := func(start func(context.Context, *kahn.Graph, kahn.StepFunc, ...kahn.Option) (*kahn.Run, error), opts ...kahn.Option) *kahn.Run {
		run, err := start(t.Context(), asking(), func(context.Context, *kahn.Step) (any, error) { return nil, nil }, opts...)
		require.NoError(t, err)
		for _, path := range []string{"declared", "one", "both", "form", "data", "code"} {
			_, err = run.WaitFor(t.Context(), path, kahn.Suspended)
			require.NoError(t, err)
		}
		return run
	}
	live := start(d.rn.Start, kahn.RunID("live"))
	check(t, d, "live", map[string]string{"offer ": `{"eur":1200}`})
	run := start(kahn.Start, kahn.RunID("stored"), kahn.Durable(&memory))
	run.Leave()
	_, _ = run.Wait()
	check(t, d, "stored", map[string]string{"quote quote": `{"eur":1200}`})

	f := d.refusal(http.StatusUnprocessableEntity, http.MethodPost, "api/v1/signal"+queried("run", live.ID(), "path", "form"), `{"value":"wrong"}`)
	require.Contains(t, f.Message, "/amount: expected a number")
	may = false
	for _, g := range get[gatesReply](d, "api/v1/gates").Gates {
		require.Empty(t, g.Bases)
	}
}

// TestGatesOfOnePlan requires that a list of gates does not read all edges of their plan for each gate.
func TestGatesOfOnePlan(t *testing.T) {
	t.Parallel()
	const gates, before = 100, 600
	g := (&kahn.Graph{Name: "many"}).Add(kahn.Node{ID: "after", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }})
	for i := range before {
		g.Add(kahn.Node{ID: fmt.Sprint("offer", i), Do: func(context.Context, *kahn.Step) (any, error) { return i, nil }})
	}
	for i := range gates {
		n := kahn.Node{ID: fmt.Sprint("gate", i), Kind: kahn.KindGate}
		for k := range before {
			n.After = append(n.After, fmt.Sprint("offer", k))
		}
		g.Add(n)
		g.Connect(kahn.Edge{From: n.ID, To: "after", Label: "ship"})
	}
	d := newDesk(t, nil)
	run, err := d.rn.Start(t.Context(), g, nil, kahn.RunID("many"))
	require.NoError(t, err)
	for i := range gates {
		_, err := run.WaitFor(t.Context(), fmt.Sprint("gate", i), kahn.Suspended)
		require.NoError(t, err)
	}
	fastest := func(f func()) time.Duration {
		best := time.Hour
		for range 5 {
			began := time.Now()
			f()
			best = min(best, time.Since(began))
		}
		return best
	}
	labels := 0
	passes := fastest(func() {
		for range gates {
			for e := range run.Plan().Edges() {
				if e.From == "gate" || e.To == "gate" {
					labels++
				}
			}
		}
	})
	c := call{h: &handler{}, target: run, data: new(bool), edges: adjacency{}}
	listed := fastest(func() {
		for i := range gates {
			path := fmt.Sprint("gate", i)
			at, err := find(run, path, nil)
			require.NoError(t, err)
			labels += len(c.labelsOf(at)) + len(c.basesOf(path))
		}
	})
	require.Equal(t, 5*gates*(1+mostBases), labels)
	list := get[gatesReply](d, "api/v1/gates", "run", "many", "limit", "500").Gates
	require.Len(t, list, gates)
	require.Equal(t, "ship", list[0].Choices[0])
	require.Len(t, list[0].Bases, mostBases)
	t.Logf("%v for the list, %v for a pass over the edges for each gate", listed, passes)
	require.Less(t, 10*listed, passes)
}
