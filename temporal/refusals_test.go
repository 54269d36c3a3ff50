package temporal

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/seed-c794f7ef/kahn"
)

// The table of refusals in docs/temporal.md has each type, with the error that errors.Is matches.
func TestRefusalsInTheGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/temporal.md")
	require.NoError(t, err)
	named := map[string]error{
		"kahn.ErrUnknownGate": kahn.ErrUnknownGate, "kahn.ErrAnswered": kahn.ErrAnswered, "kahn.ErrChoice": kahn.ErrChoice, "kahn.ErrFinished": kahn.ErrFinished,
		"kahn.ErrSignalConflict": kahn.ErrSignalConflict, "kahn.ErrUnknownNode": kahn.ErrUnknownNode, "kahn.ErrTransition": kahn.ErrTransition, "kahn.ErrBadValue": kahn.ErrBadValue,
		"ErrTooLarge": ErrTooLarge, "ErrUnknownPlan": ErrUnknownPlan, "kahn.ErrGraphChanged": kahn.ErrGraphChanged, "kahn.ErrMissingInput": kahn.ErrMissingInput,
		"kahn.ErrUnknownInput": kahn.ErrUnknownInput, "kahn.ErrBadOption": kahn.ErrBadOption, "kahn.ErrAtRest": kahn.ErrAtRest,
	}
	rows := map[string]error{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z ]+)` \\| `([a-zA-Z.]+)` \\|").FindAllStringSubmatch(string(guide), -1) {
		require.Contains(t, named, row[2])
		rows[row[1]] = named[row[2]]
	}
	want := map[string]error{}
	for _, r := range refusals {
		want[r.name] = r.err
	}
	require.Equal(t, want, rows)
	for _, name := range []string{otherRefusal, failedRun, refusedRun, failedStep, badActivity, lostWorker, unknownPlan} {
		require.Contains(t, string(guide), "| `"+name+"` |")
	}
}

// Requests that a run refuses, by update: each is refused with the type in the guide, and the sender gets an error that matches. The history has no
// trace of them.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	g := (&kahn.Graph{Name: "orders", Inputs: []kahn.Input{{Name: "of", Optional: true}}}).Add(
		kahn.Node{ID: "done"}, kahn.Node{ID: "ask", Kind: kahn.KindGate, Gate: &kahn.Gate{Choices: []string{"yes", "no"}}, After: []string{"done"}},
		kahn.Node{ID: "other", Kind: kahn.KindGate, After: []string{"done"}}, kahn.Node{ID: "last", After: []string{"ask", "other"}})
	p := plan(t, g)
	value := func(v any) json.RawMessage { data, _ := json.Marshal(v); return data }
	print := fingerprint(p)
	type row struct {
		name, update string
		argument     any
		want         error
	}
	rows := []row{
		{"unknown gate", SignalUpdate, signalRequest{Gate: "nobody", Value: value("yes")}, kahn.ErrUnknownGate},
		{"choice", SignalUpdate, signalRequest{Gate: "ask", Value: value("perhaps")}, kahn.ErrChoice},
		{"answered", SignalUpdate, signalRequest{Gate: "other", Value: value("again")}, kahn.ErrAnswered},
		{"signal conflict", SignalUpdate, signalRequest{Gate: "other", Value: value("again"), ID: "1"}, kahn.ErrSignalConflict},
		{"bad value", SignalUpdate, signalRequest{Gate: "ask", Value: json.RawMessage(`{"$type": "nobody", "value": 1}`)}, kahn.ErrBadValue},
		{"unknown node", StopUpdate, stopRequest{Node: "nobody"}, kahn.ErrUnknownNode},
		{"transition", StopUpdate, stopRequest{Node: "done"}, kahn.ErrTransition},
		{"unknown plan", AdoptUpdate, adoptRequest{Plan: planID{"orders", "abc"}}, ErrUnknownPlan},
		{"graph changed", AdoptUpdate, adoptRequest{Plan: planID{"others", print}, Checked: true}, kahn.ErrGraphChanged},
	}
	got := map[string]error{}
	x := &trial{workflow: Workflow{Plan: p}, options: Options{Step: nothing}}
	x.during = func(env *testsuite.TestWorkflowEnvironment, _ int) {
		env.RegisterDelayedCallback(func() { update(t, env, SignalUpdate, signalRequest{Gate: "other", Value: value("first"), ID: "1"}) }, time.Hour)
		for i, r := range rows {
			env.RegisterDelayedCallback(func() {
				env.UpdateWorkflow(r.update, "", &testsuite.TestUpdateCallback{
					OnReject: func(err error) { got[r.name] = err }, OnAccept: func() { t.Error("accepted: " + r.name) }, OnComplete: func(any, error) {},
				}, r.argument)
			}, 2*time.Hour+time.Duration(i)*time.Minute)
		}
		env.RegisterDelayedCallback(func() { update(t, env, SignalUpdate, signalRequest{Gate: "ask", Value: value("yes")}) }, 10*time.Hour)
	}
	_, err := x.run(t)
	require.NoError(t, err)
	for _, r := range rows {
		var failure *sdk.ApplicationError
		require.ErrorAs(t, got[r.name], &failure, r.name)
		require.Equal(t, r.name, failure.Type())
		err := decodeRefusal(got[r.name])
		require.ErrorIs(t, err, r.want, r.name)
		require.Equal(t, failure.Message(), err.Error(), "the text has no envelope")
		failure = nil
		require.ErrorAs(t, err, &failure, "also in the sender's error")
		require.Equal(t, r.name, failure.Type())
	}
}

// A run that was started by other means and cannot begin ends with kahn.RunRefused. Its cause has the type of the refusal, and Wait returns an error that
// matches.
func TestRefusedRuns(t *testing.T) {
	t.Parallel()
	g := (&kahn.Graph{Name: "orders", Inputs: []kahn.Input{{Name: "of"}}}).Add(kahn.Node{ID: "a"})
	p := plan(t, g)
	for name, row := range map[string]struct {
		text string
		want error
	}{
		"missing input": {`{}`, kahn.ErrMissingInput},
		"unknown input": {`{"inputs": {"of": 1, "off": 2}}`, kahn.ErrUnknownInput},
		"bad option":    {`{"inputs": {"of": 1}, "settings": {"limit": -1}}`, kahn.ErrBadOption},
	} {
		env := environment(t, Options{Plans: []*kahn.Plan{p}, Step: nothing})
		env.ExecuteWorkflow("orders", json.RawMessage(row.text))
		err := env.GetWorkflowError()
		var failure *sdk.ApplicationError
		require.ErrorAs(t, err, &failure, name)
		require.Equal(t, refusedRun, failure.Type(), name)
		var cause *sdk.ApplicationError
		require.True(t, errors.As(failure.Unwrap(), &cause), name)
		require.Equal(t, name, cause.Type())
		require.ErrorIs(t, outputOf(err, new(output)), row.want, name)
		require.True(t, strings.HasPrefix(outputOf(err, new(output)).Error(), failure.Message()), name)
	}
}
