package sqlite_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/former"
)

// formerVersion is the last commit to which the rules of docs/upgrade.md do not apply.
const formerVersion = "8ebee3a9c83394ef8d50fdc4f2bade979182e31e"

// host is a test program, built with one version of this repository, that performs runs of the database db.
type host struct{ program, db string }

// command runs the program and returns its output.
func (h host) command(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(h.program, append([]string{h.db}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// refused runs the program, requires that it fails, and returns its output.
func (h host) refused(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(h.program, append([]string{h.db}, args...)...).CombinedOutput()
	require.Error(t, err, "%s", out)
	return string(out)
}

// calls returns the step calls of the runs whose ids have a prefix, sorted.
func (h host) calls(t *testing.T, prefix string) (list []string) {
	t.Helper()
	data, err := os.ReadFile(h.db + ".calls")
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, prefix) {
			list = append(list, strings.TrimSpace(line))
		}
	}
	slices.Sort(list)
	return list
}

// build builds the test program in the tree of a version. Unless own is set, the former version gets the schema of this version, since a program
// refuses a database with tables that it does not know.
func build(t *testing.T, tree, variant, to string, own bool) {
	t.Helper()
	here := filepath.Join("testdata", "upgrade")
	files := map[string]string{"upgrade/main.go": filepath.Join(here, "main.go.txt"), "upgrade/variant.go": filepath.Join(here, variant)}
	if !own {
		files["schema.go"] = "schema.go"
	}
	former.Build(t, filepath.Join(tree, "store", "sqlite"), files, to)
}

// hosts builds the test program three times: with the former version and the current schema, with the former version and its own schema, and
// with this version. hosts skips the test if the former version is not available.
func hosts(t *testing.T) (before, unmigrated, now string) {
	t.Helper()
	root, tree := former.Trees(t, formerVersion)
	bin := t.TempDir()
	before, unmigrated, now = filepath.Join(bin, "before"), filepath.Join(bin, "unmigrated"), filepath.Join(bin, "now")
	build(t, tree, "former.go.txt", before, false)
	build(t, tree, "former.go.txt", unmigrated, true)
	build(t, root, "now.go.txt", now, false)
	return before, unmigrated, now
}

// TestUpgrade: processes of the former version and of this version share a database and continue each other's runs. A process makes each decision
// by the rules of its own version: see docs/upgrade.md.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	was, unmigrated, now := hosts(t)
	both := func(t *testing.T) (before, after host) {
		db := filepath.Join(t.TempDir(), "runs.db")
		return host{was, db}, host{now, db}
	}
	t.Run("the plans are the same", func(t *testing.T) {
		before, after := both(t)
		names := []string{"hash", "order", "refund", "asks", "guard", "long", "loop", "many", "sleep"}
		require.Equal(t, before.command(t, names...), after.command(t, names...))
	})
	for _, direction := range []string{"forwards", "back"} {
		t.Run("an answer in the other version, "+direction, func(t *testing.T) {
			first, second := both(t)
			if direction == "back" {
				first, second = second, first
			}
			require.Equal(t, "suspended", first.command(t, "run", "order", "r"))
			require.Equal(t, "completed", second.command(t, "run", "order", "r", "approve=approved"))
			require.Equal(t, []string{"r log 1", "r price 1", "r ship 1"}, second.calls(t, "r"))
		})
	}
	t.Run("the end of a context", func(t *testing.T) {
		before, after := both(t)
		require.Equal(t, "cancelled", before.command(t, "interrupt", "long", "old"))
		require.Contains(t, after.refused(t, "run", "long", "old"), "the run has ended")
		require.Equal(t, "suspended", after.command(t, "interrupt", "long", "new"))
		require.Equal(t, "completed", before.command(t, "run", "long", "new"))
		require.Equal(t, "new last 1", after.calls(t, "new last")[0])
		require.Equal(t, []string{"new first 1"}, after.calls(t, "new first"), "what was done is kept")
	})
	t.Run("a guard that cannot decide", func(t *testing.T) {
		for _, of := range []string{"before", "after"} {
			before, after := both(t)
			require.Equal(t, "suspended", before.command(t, "run", "guard", "r"))
			if of == "before" {
				require.Equal(t, "completed", before.command(t, "run", "guard", "r", "wait=yes"))
				require.Len(t, before.calls(t, "r delete"), 1, "the former version runs what it guards")
				continue
			}
			require.Equal(t, "failed", after.command(t, "run", "guard", "r", "wait=yes"))
			require.NoFileExists(t, after.db+".calls")
		}
	})
	t.Run("what has been answered", func(t *testing.T) {
		before, after := both(t)
		require.Equal(t, "completed", before.command(t, "run", "refund", "r"))
		require.Contains(t, after.command(t, "redrive", "refund", "r"), `"refund" has run because of "bad"`)
		require.Equal(t, "completed", after.command(t, "status", "r"))
		require.Equal(t, "completed", before.command(t, "run", "asks", "old"))
		require.Contains(t, after.command(t, "redrive", "asks", "old"), `"then" has run because of "bad"`, "nobody knows what it has asked for")
		require.Equal(t, "completed", after.command(t, "run", "asks", "new"))
		require.Equal(t, "completed <nil>", after.command(t, "redrive", "asks", "new"), "it has asked for nothing that failed")
		require.Equal(t, "completed <nil>", before.command(t, "redrive", "asks", "new"))
		require.Contains(t, after.command(t, "redrive", "asks", "new"), `"then" has run because of "bad"`, "the former version has written what it asked for last")
	})
	t.Run("a redrive that is posted", func(t *testing.T) {
		before, after := both(t)
		require.NoError(t, os.WriteFile(after.db+".broken", nil, 0o600))
		require.Equal(t, "failed", before.command(t, "run", "flaky", "r"))
		require.NoError(t, os.Remove(after.db+".broken"))
		after.command(t, "ask", "r")
		before.command(t, "create", "many")
		work(t, []host{before, before}, "many", "flaky")
		require.Equal(t, "completed", before.command(t, "status", "many29"))
		require.Equal(t, "failed", before.command(t, "status", "r"), "the former version leaves a run that has ended alone")
		require.Equal(t, "waiting", after.command(t, "asked", "r"))
		require.Equal(t, "completed", after.command(t, "run", "flaky", "r"))
		require.Equal(t, "applied", after.command(t, "asked", "r"))
		require.Equal(t, []string{"r first 1", "r flaky 1", "r flaky 1", "r last 1"}, after.calls(t, "r "))
	})
	t.Run("a sleep is a backoff to the former version", func(t *testing.T) {
		before, after := both(t)
		after.command(t, "create", "sleep")
		work(t, []host{before, after}, "sleep")
		for i := range 30 {
			run := fmt.Sprint("sleep", i)
			require.Equal(t, "completed", after.command(t, "status", run))
			for _, call := range after.calls(t, run+" ") {
				require.True(t, strings.HasSuffix(call, " 1"), "%s: a sleep is no other attempt", call)
			}
			require.Len(t, after.calls(t, run+" after"), 1)
		}
	})
	t.Run("a migration under load", func(t *testing.T) {
		db := filepath.Join(t.TempDir(), "runs.db")
		before, after := host{unmigrated, db}, host{now, db}
		before.command(t, "create", "many")
		before.command(t, "create", "loop")
		migrated := make(chan string, 1)
		lines := func(ending string) int {
			data, _ := os.ReadFile(db + ending)
			return strings.Count(string(data), "\n")
		}
		go func() { // opens this version's Store once both former processes have opened the file, in the middle of their runs
			for lines(".calls") < 5 || lines(".serving") < 2 {
				time.Sleep(time.Millisecond)
			}
			out, err := exec.Command(now, db, "status", "many0").CombinedOutput()
			migrated <- fmt.Sprint(string(out), err)
		}()
		work(t, []host{before, before}, "many", "loop")
		require.Contains(t, <-migrated, "<nil>")
		require.Contains(t, before.refused(t, "status", "many0"), "version")
		for i := range 30 {
			many, loop := fmt.Sprint("many", i), fmt.Sprint("loop", i)
			require.Equal(t, []string{many + " a 1", many + " b 1"}, after.calls(t, many+" "), "each step once")
			require.Equal(t, []string{loop + " L#1/x 1", loop + " L#2/x 1"}, after.calls(t, loop+" "))
			require.Equal(t, "completed", after.command(t, "status", many))
			require.Equal(t, "completed", after.command(t, "status", loop))
		}
	})
	t.Run("both at once", func(t *testing.T) {
		before, after := both(t)
		before.command(t, "create", "many")
		after.command(t, "create", "loop")
		work(t, []host{before, after, before, after}, "many", "loop")
		for i := range 30 {
			many, loop := fmt.Sprint("many", i), fmt.Sprint("loop", i)
			require.Equal(t, []string{many + " a 1", many + " b 1"}, after.calls(t, many+" "), "each step once")
			require.Equal(t, []string{loop + " L#1/x 1", loop + " L#2/x 1"}, after.calls(t, loop+" "))
			require.Equal(t, "completed", after.command(t, "status", many))
			require.Equal(t, "completed", before.command(t, "status", loop))
		}
	})
}

// work makes the hosts serve the workflows until all their runs have ended.
func work(t *testing.T, hosts []host, flows ...string) {
	t.Helper()
	ended := make(chan error, len(hosts))
	for _, h := range hosts {
		cmd := exec.Command(h.program, append([]string{h.db, "serve"}, flows...)...)
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			ended <- err
		}()
	}
	for range hosts {
		require.NoError(t, <-ended)
	}
}
