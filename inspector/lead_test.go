package inspector

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// leading returns a graph with gates whose answers lead to different nodes.
func leading() *kahn.Graph {
	do := func(context.Context, *kahn.Step) (any, error) { return nil, nil }
	g := &kahn.Graph{Name: "leading"}
	g.Add(
		kahn.Node{ID: "labels", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, OnTimeout: kahn.GateLabel, Choices: []string{"approve", "reject", "later"}}},
		kahn.Node{ID: "order", In: []kahn.Edge{{From: "labels", Label: "yes"}}, Do: do},
		kahn.Node{ID: "tell", In: []kahn.Edge{{From: "labels", Label: "reject"}}, Do: do},
		kahn.Node{ID: "nobody", In: []kahn.Edge{{From: "labels", Label: "timeout"}}, Do: do},
		kahn.Node{ID: "plain", Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Hour, Choices: []string{"red", "blue"}}},
		kahn.Switch("colour", func(kahn.View) (string, error) { return "red", nil }, "plain"),
		kahn.Node{ID: "paint", In: []kahn.Edge{{From: "colour", Label: "red"}}, Do: do},
		kahn.Node{ID: "wash", In: []kahn.Edge{{From: "colour", Label: "default"}}, Do: do},
		kahn.Node{ID: "alarm", In: []kahn.Edge{{From: "plain", On: kahn.OnFailure}}, Do: do},
		kahn.Node{ID: "any", Kind: kahn.KindGate},
		kahn.Node{ID: "sleeper", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			return nil, kahn.SuspendFor("sleeper", nil, nil, time.Now().Add(time.Hour))
		}},
	)
	for i := range 8 {
		g.Add(kahn.Node{ID: fmt.Sprint("many", i), After: []string{"any"}, Do: do})
	}
	return g
}

// A gate says where each of its answers leads, and what happens at its deadline. The page shows the same for a run of this process and for a stored
// run, in the list of gates and for the node.
func TestGateLeads(t *testing.T) {
	t.Parallel()
	type shown struct {
		onDeadline string
		leads      []lead
	}
	want := map[string]shown{
		"labels": {"timeout", []lead{
			{Answer: "approve", To: []string{"order"}}, {Answer: "reject", To: []string{"tell"}}, {Answer: "later", Skips: []string{"order", "tell", "nobody"}}, {Answer: "timeout", To: []string{"nobody"}},
		}},
		"plain": {"fail", []lead{
			{To: []string{"colour"}}, {On: "failure", To: []string{"alarm"}},
			{Answer: "red", By: "colour", To: []string{"paint"}}, {Answer: "default", By: "colour", To: []string{"wash"}},
		}},
		"any":     {"", []lead{{To: []string{"many0", "many1", "many2", "many3", "many4"}, More: 3}}},
		"sleeper": {"again", nil},
	}
	var memory store.Memory
	plan, err := leading().Compile()
	require.NoError(t, err)
	d := newDesk(t, func(o *Options) { o.Store, o.Workflows = &memory, []Workflow{{Plan: plan}} })
	for id, start := range map[string]func(context.Context, *kahn.Graph, kahn.StepFunc, ...kahn.Option) (*kahn.Run, error){"live": d.rn.Start, "stored": kahn.Start} {
		opts := []kahn.Option{kahn.RunID(id)}
		if id == "stored" {
			opts = append(opts, kahn.Durable(&memory))
		}
		run, err := start(t.Context(), leading(), nil, opts...)
		require.NoError(t, err)
		for path := range want {
			_, err = run.WaitFor(t.Context(), path, kahn.Suspended)
			require.NoError(t, err)
		}
		if id == "stored" {
			run.Leave()
			_, _ = run.Wait()
		}
		got := map[string]shown{}
		for _, g := range get[gatesReply](d, "api/v1/gates").Gates {
			if g.Run == id {
				got[g.Path] = shown{g.OnDeadline, g.Leads}
			}
		}
		require.Equal(t, want, got, id)
		for path, x := range want {
			g := get[nodeReply](d, "api/v1/node", "run", id, "path", path).Gate
			require.Equal(t, x, shown{g.OnDeadline, g.Leads}, path)
		}
	}
}

// The panel of a gate shows the values on which a person decides, as the list of gates does.
func TestGateOfNodeHasBases(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	run, err := d.rn.Start(t.Context(), asking(), nil, kahn.RunID("asked"))
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "one", kahn.Suspended)
	require.NoError(t, err)
	bases := get[nodeReply](d, "api/v1/node", "run", "asked", "path", "one").Gate.Bases
	require.Len(t, bases, 1)
	require.JSONEq(t, `{"eur":1200}`, string(bases[0].Value.JSON))
}

// insideCounter counts how often the graph inside a composite is read.
type insideCounter struct {
	subject
	reads int
}

func (s *insideCounter) Inside(path string) (kahn.Inside, error) {
	s.reads++
	return s.subject.Inside(path)
}

// A list of gates reads the graph of their composite once, not once for each gate.
func TestGatesOfOneComposite(t *testing.T) {
	t.Parallel()
	const gates = 200
	inner := &kahn.Graph{}
	for i := range gates {
		inner.Add(kahn.Node{ID: fmt.Sprint("gate", i), Kind: kahn.KindGate})
	}
	d := newDesk(t, nil)
	run, err := d.rn.Start(t.Context(), (&kahn.Graph{Name: "asks"}).Add(kahn.Node{ID: "sub", Sub: inner}), nil)
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "sub", kahn.Suspended)
	require.NoError(t, err)
	target := &insideCounter{subject: run}
	c := call{h: &handler{}, data: new(bool), edges: adjacency{}}
	list := c.gatesOf(target, run.Waiting())
	require.Len(t, list, gates)
	require.Equal(t, "sub/gate7", list[7].Path)
	require.Equal(t, 1, target.reads)
}

// The log says who has answered what.
func TestAnswerInLog(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		said event.Answer
		want string
	}{
		{event.Answer{Value: "approve", Actor: "Ada", Comment: "looks good"}, `Ada answered approve, with the comment "looks good"`},
		{event.Answer{Value: map[string]any{"eur": 12}}, `answered {"eur":12}`},
	} {
		require.Equal(t, x.want, lineOf(kahn.Event{Type: event.NodeSignalled, Payload: x.said}))
	}
}

// migrating returns a graph with a step that holds the only slot of a group.
func migrating(do kahn.StepFunc) *kahn.Graph {
	g := &kahn.Graph{Name: "migrating", Groups: []kahn.Group{{Name: "db", Limit: 1}, {Name: "all", CancelOnFailure: true}}}
	return g.Add(
		kahn.Node{ID: "migrate", Label: "Migrate the database", Groups: []string{"db", "all"}, Timeout: 2 * time.Hour, Do: do},
		kahn.Node{ID: "vacuum", Groups: []string{"db"}, Do: do},
	)
}

// A node says what its groups and its timeouts allow.
func TestNodeBounds(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	run, err := d.rn.Start(t.Context(), migrating(func(ctx context.Context, _ *kahn.Step) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}), nil)
	require.NoError(t, err)
	_, err = run.WaitFor(t.Context(), "migrate", kahn.Running)
	require.NoError(t, err)
	n, one := get[nodeReply](d, "api/v1/node", "run", run.ID(), "path", "migrate"), 1
	require.Equal(t, []groupSlots{{Name: "db", Limit: 1, Used: &one}, {Name: "all", Used: &one, Cancels: true}}, n.Slots)
	require.InDelta(t, 7_200_000, *n.Timeout, 0)
	require.Zero(t, *n.Overall)
	rows := get[nodesReply](d, "api/v1/nodes", "run", run.ID()).Nodes
	require.Equal(t, []string{"", "db"}, []string{rows[0].SlotOf, rows[1].SlotOf})
	require.Equal(t, &runningNode{Path: "migrate", Label: "Migrate the database"}, get[runRow](d, "api/v1/run", "run", run.ID()).Running)
	run.Cancel()
	_, _ = run.Wait()
}
