package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// tape draws decisions from fuzz data. When the data are used up, every decision is zero.
type tape struct{ data []byte }

func (t *tape) next(n int) int {
	if len(t.data) == 0 || n <= 1 {
		return 0
	}
	b := int(t.data[0])
	t.data = t.data[1:]
	return b % n
}

// FuzzGraph builds a graph, valid or not, from bytes. A graph that compiles must run to its end in every mode, with valid events and the same
// statuses. For any other graph the error must say why the graph does not compile.
func FuzzGraph(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 1, 2})
	f.Add([]byte{8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &tape{data}
		g, outcomes := fuzzGraph(in)
		plan, err := g.Compile()
		if err != nil {
			var ge *kahn.GraphError
			require.ErrorAs(t, err, &ge)
			require.NotEmpty(t, ge.Problems)
			require.Nil(t, plan)
			return
		}
		synctest.Test(t, func(t *testing.T) {
			var first []string
			for i, opts := range [][]kahn.Option{{}, {kahn.Waves}, {kahn.Limit(1)}, {kahn.Limit(2), kahn.Waves}} {
				rec := newRecorder()
				step := func(ctx context.Context, s *kahn.Step) (any, error) {
					time.Sleep(time.Duration(len(s.ID())*i) * time.Millisecond)
					return fuzzOutcome(outcomes[s.ID()])
				}
				res, err := kahn.Execute(t.Context(), g, step, append(opts, kahn.OnEvent(rec.add))...)
				require.NotNil(t, res, err)
				checkEvents(t, g, res, rec.all())
				var statuses []string
				for n := range res.Nodes() {
					statuses = append(statuses, fmt.Sprint(n.ID, n.Status, n.Skip, n.Cause.Kind, n.Cause.Origins))
				}
				statuses = append(statuses, fmt.Sprint(res.Status, res.Degraded))
				if i == 0 {
					first = statuses
				}
				require.Equal(t, first, statuses)
			}
		})
	})
}

func fuzzOutcome(k int) (any, error) {
	switch k {
	case 1:
		return nil, errors.New("broken")
	case 2:
		return nil, kahn.Skip("not now")
	case 3:
		panic("broken")
	case 4:
		return "yes", nil
	case 5:
		return nil, kahn.ErrCallAborted
	case 6:
		return nil, nil
	}
	return map[string]any{"output": k, "label": "a"}, nil
}

func fuzzGraph(in *tape) (*kahn.Graph, map[string]int) {
	var g kahn.Graph
	outcomes := map[string]int{}
	n := in.next(12)
	id := func(i int) string { return string(rune('a' + i)) }
	labels := []string{"", "", "", "a", "yes", "true", "default"}
	for i := range n {
		node := kahn.Node{
			ID: id(i), Join: kahn.Join(in.next(14)), SkipMode: machine.SkipMode(in.next(4)),
			OnUpstreamFailure: machine.UpstreamPolicy(in.next(5)), Routes: in.next(2) == 1, Disabled: in.next(8) == 1,
			ContinueOnFail: in.next(6) == 1, Cleanup: in.next(8) == 1, Handling: kahn.Handling(max(0, in.next(8)-5)),
			NoMatch: kahn.NoMatch(in.next(2)),
		}
		switch in.next(10) {
		case 1:
			node.When = func(v kahn.View) (bool, error) { return false, nil }
		case 2:
			node.When = func(v kahn.View) (bool, error) { panic("guard") }
		case 3:
			node.Kind = kahn.KindEnd
		case 4:
			k := in.next(7)
			node.Test = func(v kahn.View) (any, error) { return fuzzOutcome(k) }
		case 5:
			node.Join = kahn.AtLeast(in.next(4))
		case 6:
			node.Ports = []kahn.Port{{Name: "p", Required: true}}
		}
		outcomes[node.ID] = in.next(7)
		g.Add(node)
	}
	for range in.next(24) {
		e := kahn.Edge{From: id(in.next(n)), To: id(in.next(n + 1)), Label: labels[in.next(len(labels))]}
		if e.From > e.To && in.next(8) != 0 {
			e.From, e.To = e.To, e.From
		}
		e.On = kahn.On([]int{0, 0, 0, 1, 2}[in.next(5)])
		e.DataOnly = in.next(8) == 1
		if in.next(3) == 1 {
			e.Param = "p"
		}
		e.Merge = []string{"", "", "concat", "array"}[in.next(4)]
		g.Connect(e)
	}
	return &g, outcomes
}
