package postgres_test

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

// formerVersion is the last commit to which the rules of docs/upgrade.md do not apply; its schema lacks all later migrations.
const formerVersion = "8ebee3a9c83394ef8d50fdc4f2bade979182e31e"

// host is a test program, built with one version of this repository, that performs the runs of a schema.
type host struct{ program, schema, calls string }

func (h host) command(args ...string) *exec.Cmd {
	cmd := exec.Command(h.program, args...)
	cmd.Env = append(os.Environ(), "DATABASE="+database, "SCHEMA="+h.schema, "CALLS="+h.calls)
	return cmd
}

// prints runs the program and returns its output.
func (h host) prints(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.command(args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// made returns the calls of steps, sorted.
func (h host) made(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(h.calls)
	require.NoError(t, err)
	list := strings.Split(strings.TrimSpace(string(data)), "\n")
	slices.Sort(list)
	return list
}

// TestUpgrade: a process of this version migrates the schema while processes of the former version perform runs. Each step is called once. The
// former processes finish the runs, but a former process that is started after the migration is refused.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	now, then := former.Trees(t, formerVersion)
	bin, files := t.TempDir(), map[string]string{"upgrade/main.go": filepath.Join("testdata", "upgrade", "main.go.txt")}
	before := host{filepath.Join(bin, "before"), schemaOf(t.Name()), filepath.Join(bin, "calls")}
	after := before
	after.program = filepath.Join(bin, "now")
	former.Build(t, filepath.Join(then, "store", "postgres"), files, before.program)
	former.Build(t, filepath.Join(now, "store", "postgres"), files, after.program)

	flows := []string{"many", "loop"}
	for _, flow := range flows {
		before.prints(t, "create", flow)
	}
	ended := make(chan error, 4)
	serve := func(h host) {
		cmd := h.command(append([]string{"serve"}, flows...)...)
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			ended <- err
		}()
	}
	serve(before)
	serve(before)
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(before.calls)
		return err == nil && strings.Count(string(data), "\n") >= 5
	}, time.Minute, time.Millisecond, "the former version performs no runs")
	serve(after) // this process migrates the schema
	serve(after)
	for range cap(ended) {
		require.NoError(t, <-ended)
	}
	var want []string
	for i := range 30 {
		many, loop := fmt.Sprint("many", i), fmt.Sprint("loop", i)
		want = append(want, many+" a 1", many+" b 1", loop+" L#1/x 1", loop+" L#2/x 1")
		require.Equal(t, "completed", after.prints(t, "status", many))
		require.Equal(t, "completed", after.prints(t, "status", loop))
	}
	slices.Sort(want)
	require.Equal(t, want, before.made(t), "each step once")
	out, err := before.command("status", "many0").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "version")
}
