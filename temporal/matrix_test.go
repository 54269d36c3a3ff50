package temporal

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// TestMatrix performs each row of the conformance matrix of the core on Temporal, in both modes and under limits.
func TestMatrix(t *testing.T) {
	t.Parallel()
	rows := 0
	f, err := os.Open("../conformance/testdata/matrix.txt") // the file explains the notation
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	in := bufio.NewScanner(f)
	for line := 1; in.Scan(); line++ {
		if text := strings.TrimSpace(in.Text()); text != "" && text[0] != '#' {
			rows++
			fields := strings.Split(text, "|")
			for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
				for limit := range 3 {
					t.Run(fmt.Sprintf("%d/%v/%d", line, mode, limit), func(t *testing.T) {
						t.Parallel()
						testRow(t, fields, Settings{Mode: mode, Limit: limit})
					})
				}
			}
		}
	}
	require.NoError(t, in.Err())
	require.Greater(t, rows, 50)
}

// testRow performs one row: flag | graph | options | outcomes | node statuses | run status | note.
func testRow(t *testing.T, row []string, s Settings) {
	nodes, edges, err := kahntest.Parse(row[1] + " " + row[2])
	require.NoError(t, err)
	outcomes := map[string]string{}
	for _, word := range strings.Fields(row[3]) {
		id, outcome, _ := strings.Cut(word, "=")
		outcomes[id] = outcome
	}
	outcome := func(id string) (any, error) {
		switch o := outcomes[id]; o {
		case "", "ok":
			return map[string]any{"of": id}, nil
		case "err":
			return nil, errStep
		case "skip":
			return nil, kahn.Skip("of its own accord")
		case "null":
			return nil, nil
		default:
			return o, nil
		}
	}
	for i := range nodes { // a boundary node is a condition with a test, or a step if its outcome is cancel
		if n := &nodes[i]; n.Join == kahn.Boundary && outcomes[n.ID] != "cancel" {
			id := n.ID
			n.Routes = false
			n.Test = func(kahn.View) (any, error) { return outcome(id) }
		}
	}
	g := new(kahn.Graph).Add(nodes...).Connect(edges...)
	x := &trial{workflow: Workflow{Plan: plan(t, g), Settings: s}, options: Options{Pure: true}}
	x.options.Step = func(ctx context.Context, st *kahn.Step) (any, error) {
		if outcomes[st.ID()] == "cancel" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return outcome(st.ID())
	}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.SetOnActivityStartedListener(func(_ *activity.Info, _ context.Context, args converter.EncodedValues) {
			if id := callOf(t, args).ID; outcomes[id] == "cancel" {
				env.UpdateWorkflow(StopUpdate, "", &testsuite.TestUpdateCallback{
					OnReject: func(err error) { t.Error(err) }, OnAccept: func() {}, OnComplete: func(_ any, err error) {
						if err != nil {
							t.Error(err)
						}
					},
				}, stopRequest{Node: id})
			}
		})
	}
	res, err := x.run(t)
	require.NotNil(t, res, "%v", err)
	var got []string
	for n := range res.Nodes() {
		got = append(got, n.ID+":"+kahntest.Status(n.Status, n.Skip.Kind))
	}
	want := strings.Fields(row[4])
	slices.Sort(got)
	slices.Sort(want)
	status := res.Status.String()
	if res.Degraded {
		status += "+d"
	}
	require.Equal(t, want, got, "%q", row)
	require.Equal(t, strings.TrimSpace(row[5]), status, "%q", row)
	require.Equal(t, res.Status == kahn.RunCompleted, x.err == nil, "the workflow ends as the run does: %v", x.err)
}

// callOf returns the call that an activity performs.
func callOf(t testing.TB, args converter.EncodedValues) (call kahn.Call) {
	var in task
	if err := args.Get(&in); err != nil {
		t.Error(err)
	} else if call, err = callIn(in); err != nil {
		t.Error(err)
	}
	return call
}

// callIn returns the call of a task. If the call is short, only the fields that tests ask for are filled in.
func callIn(in task) (c kahn.Call, err error) {
	text := in.Call
	form := valuesAndCall{Call: text}
	if bytes.HasPrefix(text, valuesPrefix) {
		err = json.Unmarshal(text, &form)
	}
	if err == nil && bytes.HasPrefix(form.Call, []byte("{")) {
		err = json.Unmarshal(form.Call, &c)
	}
	c.ID, c.Path = cmp.Or(c.ID, in.Path[strings.LastIndex(in.Path, "/")+1:]), in.Path
	return c, err
}
