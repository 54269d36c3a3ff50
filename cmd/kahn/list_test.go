package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// The flags of list select the runs of a store by compensation, status and workflow.
func TestList(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	db, err := sqlite.Open(path, sqlite.Options{})
	require.NoError(t, err)
	broken := errors.New("no truck")
	for id, undo := range map[string]error{"undone": nil, "stuck": kahn.Permanent(broken)} {
		g := (&kahn.Graph{Name: "orders"}).Add(
			kahn.Node{ID: "pay", Do: func(context.Context, *kahn.Step) (any, error) { return nil, nil }, Compensate: func(context.Context, *kahn.Step) error { return undo }},
			kahn.Node{ID: "ship", After: []string{"pay"}, Do: func(context.Context, *kahn.Step) (any, error) { return nil, broken }},
		)
		_, err := kahn.Execute(t.Context(), g, nil, kahn.RunID(id), kahn.Durable(db))
		require.ErrorIs(t, err, broken)
	}
	for id, key := range map[string]string{"a\tb\nc": "", "later": "ac\tme"} {
		_, _, err := db.Create(t.Context(), store.NewRun{ID: id, Spec: store.Spec{Workflow: "letters", Key: key}})
		require.NoError(t, err)
	}
	_, err = kahn.Execute(t.Context(), (&kahn.Graph{Name: "chat"}).Add(kahn.Node{ID: "ask", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		s.Tokens(1250000, 300)
		s.Use("US\tcents", 0.25)
		return nil, nil
	}}), nil, kahn.RunID("chat"), kahn.Durable(db))
	require.NoError(t, err)
	require.NoError(t, db.Close())
	list := func(args ...string) (lines [][]string) {
		code, out, errs := invoke(t, "", append([]string{"list", "-store", path}, args...)...)
		require.Equal(t, exitOK, code, errs)
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Fields(line))
		}
		return lines
	}
	for _, row := range []struct {
		args []string
		want []string // the expected ids
	}{
		{nil, []string{`a\tb\nc`, "chat", "later", "stuck", "undone"}},
		{[]string{"-compensation", "any"}, []string{`a\tb\nc`, "chat", "later", "stuck", "undone"}},
		{[]string{"-compensation", "compensating"}, nil},
		{[]string{"-key", "ac\tme"}, []string{"later"}},
		{[]string{"-key", "acme"}, nil},
		{[]string{"-compensation", "compensated"}, []string{"undone"}},
		{[]string{"-compensation", "failed"}, []string{"stuck"}},
		{[]string{"-compensation", "failed", "-workflow", "letters"}, nil},
		{[]string{"-status", "pending", "-prefix", "la"}, []string{"later"}},
		{[]string{"-workflow", "orders", "-n", "0"}, []string{"stuck", "undone"}},
	} {
		var ids []string
		for _, line := range list(row.args...) {
			ids = append(ids, line[0])
		}
		require.ElementsMatch(t, row.want, ids, "%v", row.args)
	}
	require.Equal(t, []string{"stuck", "orders", "failed", "compensation", "failed"}, list("-compensation", "failed")[0][:5])
	require.Equal(t, []string{`US\tcents=0.25`, "input_tokens=1250000", "output_tokens=300"}, list("-workflow", "chat")[0][6:])
	require.Equal(t, []string{"-"}, list("-prefix", "stuck")[0][7:])
	require.Equal(t, []string{"key", `ac\tme`}, list("-prefix", "later")[0][7:])
	code, out, errs := invoke(t, "", "list", "-store", path, "-n", "1")
	require.Equal(t, exitOK, code)
	require.Equal(t, 1, strings.Count(out, "\n"))
	require.Contains(t, errs, "there are more runs")
	for _, args := range [][]string{{"-store", path + "x"}, {"-store", path, "-n", "-1"}, {"-store", path, "-compensation", "done"}} {
		code, out, _ := invoke(t, "", append([]string{"list"}, args...)...)
		require.Equal(t, exitUsage, code, "%v", args)
		require.Empty(t, out)
	}
	require.NoFileExists(t, path+"x")
}
