package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

// orders writes a definition whose step for the second item fails until the file "there" exists in its folder. Each step adds its name to
// the file "calls".
func orders(t *testing.T) (definition, db string, calls func() string, mend func()) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	definition, db = filepath.Join(dir, "orders.yaml"), filepath.Join(dir, "runs.db")
	text := `version: 1
name: orders
nodes:
  - {id: first, kind: exec, config: {command: [sh, -c, 'echo first >> ` + log + `']}}
  - id: ship
    after: [first]
    kind: exec
    map: {over: items}
    params: {items: [a, b, c]}
    config: {command: [sh, -c, 'echo "$1" >> ` + log + `; test "$1" != b || test -e ` + dir + `/there', sh, '{{param "item"}}']}
  - {id: last, after: [ship], kind: exec, config: {command: [sh, -c, 'echo last >> ` + log + `']}}
`
	require.NoError(t, os.WriteFile(definition, []byte(text), 0o600))
	calls = func() string {
		data, err := os.ReadFile(log)
		if os.IsNotExist(err) {
			return ""
		}
		require.NoError(t, err)
		require.NoError(t, os.Remove(log))
		return strings.Join(strings.Fields(string(data)), " ")
	}
	mend = func() { require.NoError(t, os.WriteFile(filepath.Join(dir, "there"), nil, 0o600)) }
	return definition, db, calls, mend
}

// -redrive runs failed nodes and their successors again, also in composites. -dry shows these nodes and runs none. -node names paths.
func TestRedrive(t *testing.T) {
	t.Parallel()
	definition, db, calls, mend := orders(t)
	args := []string{"run", "-limit", "1", "-store", db, "-run", "R"}
	expect(t, exitProblems, "to repeat what has failed: kahn run -store "+db+" -run R -redrive "+definition, "", append(args, definition)...)
	require.Equal(t, "first a b c", calls())
	code, stdout, _ := invoke(t, "", append(args, "-redrive", "-dry", definition)...)
	require.Equal(t, exitOK, code)
	require.Equal(t, "would run again: ship\nwould run again: ship[1]\nwould run again: last\nno step was run\n", stdout)
	require.Empty(t, calls())
	expect(t, exitProblems, "run failed", "", append(args, "-redrive", definition)...)
	require.Equal(t, "b", calls())
	mend()
	expect(t, exitOK, "redrive of run R", "", append(args, "-redrive", definition)...)
	require.Equal(t, "b last", calls())
	expect(t, exitOK, "run R had ended before", "", append(args, definition)...)
	expect(t, exitOK, "run completed", "", append(args, "-redrive", "-node", "ship[0]", "-node", "ship[2]", definition)...)
	require.Equal(t, "a c last", calls())
	expect(t, exitOK, "run completed", "", append(args, "-redrive", "-node", "ship[0]", "-keep-descendants", definition)...)
	require.Equal(t, "a", calls())
	expect(t, exitOK, "run completed", "", append(args, "-redrive", "-node", "ship", "-anew", definition)...)
	require.Equal(t, "a b c last", calls())
	expect(t, exitOK, "would run again: ship[2]\n", "", append(args, "-redrive", "-node", "ship[2]", "-dry", definition)...)
	require.Empty(t, calls())
}

// If a redrive is not possible, it is refused with the reason, and no node runs.
func TestRedriveRefused(t *testing.T) {
	t.Parallel()
	definition, db, calls, _ := orders(t)
	args := []string{"run", "-store", db, "-run", "R"}
	again := append(slices.Clone(args), "-redrive")
	expect(t, exitUsage, "there is no "+db, "", append(again, definition)...)
	missing(t, db)
	expect(t, exitProblems, "run failed", "", append(args, definition)...)
	calls()
	for part, more := range map[string][]string{
		`"ship[7]": the map has 3 items`:             {"-node", "ship[7]"},
		`unknown node: "shop"; did you mean "ship"?`: {"-node", "shop"},
		"-input does not go with -redrive":           {"-input", "x=1"},
	} {
		for _, dry := range [][]string{nil, {"-dry"}} {
			expect(t, exitUsage, part, "", append(append(append([]string{}, again...), more...), append(dry, definition)...)...)
		}
	}
	expect(t, exitUsage, "-redrive needs -store and -run", "", "run", "-redrive", "-store", db, definition)
	expect(t, exitUsage, "-redrive needs -store and -run", "", "run", "-redrive", "-run", "R", definition)
	expect(t, exitUsage, "-node, -anew, -despite-handlers and -keep-descendants need -redrive", "", append(args, "-node", "ship", definition)...)
	expect(t, exitUsage, "there is no run other", "", "run", "-redrive", "-store", db, "-run", "other", definition)
	require.Empty(t, calls())

	waiting := file(t, "approval.yaml", "version: 1\nnodes: [{id: g, kind: gate}]\n")
	expect(t, exitWaiting, "run suspended", "", "run", "-store", db, "-run", "W", waiting)
	expect(t, exitUsage, "run W has not ended: it is suspended", "", "run", "-store", db, "-run", "W", "-redrive", waiting)
	expect(t, exitUsage, "the definition has changed", "", "run", "-store", db, "-run", "R", "-redrive", waiting)
}

// A node whose failure was handled runs again only if a flag asks for it.
func TestRedriveHandlers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, log := filepath.Join(dir, "runs.db"), filepath.Join(dir, "calls")
	definition := file(t, "shop.yaml", `version: 1
nodes:
  - {id: ship, kind: exec, config: {command: [sh, -c, 'echo ship >> `+log+`; false']}}
  - {id: refund, kind: exec, after: {from: ship, outcome: failure}, config: {command: [sh, -c, 'echo refund >> `+log+`']}}
`)
	args := []string{"run", "-store", db, "-run", "R"}
	expect(t, exitOK, "run completed", "", append(args, definition)...)
	for _, dry := range [][]string{nil, {"-dry"}} {
		expect(t, exitUsage, `"refund" has run because of "ship"`, "", append(append(append([]string{}, args...), "-redrive"), append(dry, definition)...)...)
		expect(t, exitUsage, `the flag is -despite-handlers`, "", append(append(append([]string{}, args...), "-redrive"), append(dry, definition)...)...)
	}
	expect(t, exitOK, "run completed", "", append(args, "-redrive", "-despite-handlers", definition)...)
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "ship\nrefund\nship\nrefund\n", string(data))
}

// A process has posted a redrive of a run. A command for this run performs the redrive. If the redrive is refused, the command shows how the run
// ended.
func TestRedrivePosted(t *testing.T) {
	t.Parallel()
	definition, file, calls, mend := orders(t)
	args := []string{"run", "-store", file, "-run", "R", definition}
	expect(t, exitProblems, "run failed", "", args...)
	calls()
	mend()
	for _, row := range []struct {
		node string
		code int
		part string
		want string
	}{{"ship[7]", exitProblems, "the map has 3 items", ""}, {"ship[1]", exitOK, "a redrive of run R was posted", "b last"}} {
		db, err := sqlite.Open(file, sqlite.Options{})
		require.NoError(t, err)
		q, err := kahn.PrepareRedrive([]string{row.node}, kahn.Request{})
		require.NoError(t, err)
		_, err = db.Post(t.Context(), "R", q)
		require.NoError(t, err)
		require.NoError(t, db.Close())
		expect(t, row.code, row.part, "", args...)
		require.Equal(t, row.want, calls())
	}
}
