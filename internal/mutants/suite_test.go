package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// small is a repository with a root package, a package machine, tests of both, and tests of the root in another package.
var small = map[string]string{
	"go.mod": "module github.com/seed-c794f7ef/kahn\n\ngo 1.25.0\n",
	"a.go": `package kahn

import "github.com/seed-c794f7ef/kahn/machine"

func larger(a, b int) int {
	if a > b {
		return a
	}
	return machine.Same(b)
}

func Ten() int { return 10 }

func unused() int { return 5 }
`,
	"conformance/c_test.go": `package conformance_test

import (
	"testing"

	"github.com/seed-c794f7ef/kahn"
)

func TestTen(t *testing.T) {
	if kahn.Ten() != 10 {
		t.Fatal("not ten")
	}
}
`,
	"machine/b_test.go": `package machine

import "testing"

func TestSame(t *testing.T) {
	if Same(-1) != 0 {
		t.Fatal("less than nothing")
	}
}
`,
	"machine/b.go": `package machine

func Same(n int) int {
	if n < 0 {
		return 0
	}
	return n
}
`,
	"a_test.go": `package kahn

import "testing"

func TestLarger(t *testing.T) {
	if larger(2, 1) != 2 || larger(1, 2) != 2 {
		t.Fatal("not the larger one")
	}
}

func TestBroken(t *testing.T) {
	if larger(1, 2) != 3 {
		t.Fatal("always")
	}
}
`,
	"internal/mutants/equivalent.txt": `a.go larger
- if a > b {
+ if a >= b {
of two equal numbers each is the larger one
`,
}

// A test kills a mutant if it fails with the mutant and passes without it, even if the test is in another package. A test that always fails
// kills no mutant. A second call of the program uses the verdicts of the first.
func TestJob(t *testing.T) {
	dir := t.TempDir()
	for name, text := range small {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	j := job{root: dir, cache: filepath.Join(t.TempDir(), "mutants.json"), n: 100}
	r, err := j.run(t.Context(), io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"TestBroken"}, r.broken)
	var survivors []string
	for _, s := range r.survivors {
		survivors = append(survivors, strings.Join(strings.Split(strings.TrimSpace(s), "\n")[:2], ": "))
	}
	slices.Sort(survivors)
	line4 := "# line 4: survived: machine/b.go Same"
	require.Equal(t, []string{"# line 14: covered by no test: a.go unused", line4, line4}, survivors)
	require.Equal(t, count{mutants: 4, equivalent: 1, killed: 2}, *r.counts["a.go"])
	require.Equal(t, count{mutants: 4, killed: 2}, *r.counts["machine/b.go"])
	var told strings.Builder
	again, err := j.run(t.Context(), &told)
	require.NoError(t, err)
	require.Equal(t, r.String(), again.String())
	require.Empty(t, told.String())
}

func TestBatches(t *testing.T) {
	names := func(tests []test) (names string) {
		for _, t := range tests {
			names += t.Name
		}
		return names
	}
	var got []string
	for _, b := range batches([]test{{".", "a", 0.2}, {"machine", "m", 0.2}, {".", "b", 0.8}, {".", "c", 1}, {".", "d", 3}, {".", "e", 5}, {".", "f", 11}, {".", "g", 40}, {".", "h", 50}}) {
		got = append(got, names(b))
	}
	require.Equal(t, []string{"m", "ab", "cd", "ef", "g", "h"}, got)
}

// The tests of a line are the tests of all blocks that contain the line. For a line outside all blocks, the tests of one of the next two
// lines are used.
func TestCovering(t *testing.T) {
	s := &suite{Tests: []test{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Blocks: map[string][]block{"x.go": {{3, 5, []int{2}}, {5, 7, []int{0, 2}}}}}
	for line, want := range map[int]string{1: "c", 3: "c", 5: "a c", 7: "a c", 8: ""} {
		var names []string
		for _, t := range s.covering("x.go", line) {
			names = append(names, t.Name)
		}
		require.Equal(t, want, strings.Join(names, " "), line)
	}
	require.Empty(t, s.covering("y.go", 3))
}

// The core consists of the root package and package machine, without tests.
func TestCore(t *testing.T) {
	files, err := core(root)
	require.NoError(t, err)
	for _, want := range []string{"durable_load.go", "snapshot_inside.go", "run_gate.go", "run_wait.go", "run_why.go", "machine/state_origins.go", "machine/net.go"} {
		require.Contains(t, files, want)
	}
	require.False(t, slices.ContainsFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") }))
	all, err := generateAll(root)
	require.NoError(t, err)
	having := map[string]bool{}
	for _, m := range all {
		having[m.File] = true
	}
	require.Subset(t, files, slices.Collect(maps.Keys(having)))
	require.Greater(t, len(having), len(files)*8/10)
}
