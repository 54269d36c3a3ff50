package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/plant"
)

const root = "../.."

// lists reads both lists and compares them with the code.
func lists(t *testing.T) (mustKill, equivalent []entry) {
	all, err := generateAll(root)
	require.NoError(t, err)
	read := func(name string) []entry {
		list, err := readList(name)
		require.NoError(t, err)
		require.NoError(t, find(list, all), "%s: change the entry as the code has changed, or take it out", name)
		return list
	}
	return read("mustkill.txt"), read("equivalent.txt")
}

func TestLists(t *testing.T) {
	t.Parallel()
	mustKill, equivalent := lists(t)
	seen := map[plant.Bug]bool{}
	for _, list := range [][]entry{mustKill, equivalent} {
		for _, e := range list {
			assert.False(t, seen[e.Bug], "listed twice:\n%s", format(e.Bug))
			seen[e.Bug] = true
		}
	}
}

// TestPlantedBugs checks that the tests of the core and of the reactive layer find bugs. Each mutant in mustkill.txt must fail the tests that its
// note names. Each bug in the signals must fail the tests of each line that it breaks. All bugs are compiled, and a sample of them is tried, see
// plant.Sample.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	everySignalLineHasABug(t)
	plant.Wanted(t)
	_, err := hash(root) // reads all files on which the result depends, so that the go command does not use an outdated result
	require.NoError(t, err)
	mustKill, _ := lists(t)
	var bugs []plant.Bug
	for _, e := range mustKill {
		bugs = append(bugs, e.Bug)
	}
	for _, b := range signalBugs {
		bugs = append(bugs, plant.Bug{File: b.file, Old: b.old, New: b.new})
	}
	var core []planted // the compiled tests of the packages that test the core
	for _, folder := range []string{root, filepath.Join(root, "conformance")} {
		core = append(core, build(t, folder, bugs))
	}
	reactive := build(t, filepath.Join(root, "reactive"), bugs)
	tests := []string{observedTests}
	for _, e := range mustKill {
		require.NotEmpty(t, having(core, e.tests()), "there is no test %s", e.tests())
		tests = append(tests, e.tests())
	}
	for _, p := range core {
		p.passes(t, strings.Join(tests, "|"))
	}
	reactive.passes(t, reactiveTests)
	chosen, err := plant.Sample(root, bugs)
	require.NoError(t, err)
	for _, i := range chosen {
		if i >= len(mustKill) {
			break
		}
		e := mustKill[i]
		t.Run(e.File+" "+e.Func, func(t *testing.T) {
			t.Parallel()
			found := false
			for _, p := range having(core, e.tests()) {
				text, err := p.command(t, i, "-test.timeout=20s", "-test.failfast", "-test.run="+e.tests()).CombinedOutput()
				if err != nil {
					require.Regexp(t, "--- FAIL|panic: |fatal error: ", string(text))
					found = true
				}
			}
			require.True(t, found, "%s passes with\n%s", e.tests(), format(e.Bug))
		})
	}
	for _, i := range chosen {
		if i < len(mustKill) {
			continue
		}
		b := signalBugs[i-len(mustKill)]
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			if b.within() {
				b.mustBeFound(t, reactive, reactiveTests, i)
				return
			}
			for _, p := range having(core, observedTests) {
				b.mustBeFound(t, p, observedTests, i)
			}
		})
	}
}

// planted holds the compiled tests of a package, with bugs.
type planted struct {
	folder, binary string
	tests          []string // names
}

func build(t *testing.T, folder string, bugs []plant.Bug) planted {
	t.Helper()
	p := planted{folder: folder, binary: filepath.Join(t.TempDir(), "planted.test")}
	require.NoError(t, plant.Build(t.Context(), root, folder, bugs, p.binary))
	list, err := p.command(t, -1, "-test.list=.").Output()
	require.NoError(t, err)
	p.tests = strings.Fields(string(list))
	return p
}

func (p planted) command(t *testing.T, bug int, args ...string) *exec.Cmd {
	return plant.Command(t.Context(), p.binary, p.folder, bug, args...)
}

// passes requires that the tests pass without a bug.
func (p planted) passes(t *testing.T, tests string) {
	t.Helper()
	text, err := p.command(t, -1, "-test.run="+tests).CombinedOutput()
	require.NoError(t, err, "without a bug: %s", text)
}

// having returns the packages that have tests with matching names.
func having(all []planted, tests string) (list []planted) {
	expr := regexp.MustCompile(tests)
	for _, p := range all {
		if slices.ContainsFunc(p.tests, expr.MatchString) {
			list = append(list, p)
		}
	}
	return list
}

// tests returns the regular expression for the tests that must notice the mutant: the first line of the note.
func (e entry) tests() string {
	first, _, _ := strings.Cut(e.note, "\n")
	return first
}

// TestSample runs a part of the program's sample.
func TestSample(t *testing.T) {
	if os.Getenv("KAHN_LONG") == "" {
		t.Skip("it takes minutes: KAHN_LONG=1 tries a part of the sample")
	}
	j := job{root: root, cache: filepath.Join(t.TempDir(), "mutants.json"), n: 40, seed: 1}
	r, err := j.run(t.Context(), io.Discard)
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.rate(), 0.9, "%v", r)
}

const code = `package kahn

func f(a, b bool, n int) (sum int) {
	if a && b { // both
		return 1
	}
	for i := 0; i < n; i++ {
		sum++
		sum++
	}
	return sum
}

func wait(in, out chan int) {
	select {
	case out <- len(out):
		close(out)
	case <-in:
	}
}

func size(n int) int {
	switch {
	case n < 9:
		return n
	case n == 10, n == 12:
		n--
	}
	return n
}
`

// TestGenerate compares the mutants of a function. Each mutant is a whole line, and equal lines are numbered. A mutant of a select keeps the
// send or receive of each clause, because a clause without it would not compile.
func TestGenerate(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(code), 0o600))
	mutants, err := generate(dir, "a.go")
	require.NoError(t, err)
	var texts []string
	for _, m := range mutants {
		texts = append(texts, strings.TrimPrefix(format(m.Bug), "a.go "))
	}
	require.Equal(t, []string{
		"f\n- if a && b {\n+ if a || b {\n",
		"f\n- if a && b {\n+ if a {\n",
		"f\n- if a && b {\n+ if b {\n",
		"f\n- return 1\n+ return 2\n",
		"f\n- return 1\n+ return 0\n",
		"f\n- for i := 0; i < n; i++ {\n+ for i := 1; i < n; i++ {\n",
		"f\n- for i := 0; i < n; i++ {\n+ for i := 0; i <= n; i++ {\n",
		"f\n- for i := 0; i < n; i++ {\n+ for i := 0; i >= n; i++ {\n",
		"f\n- for i := 0; i < n; i++ {\n+ for i := 0; i < n; i-- {\n",
		"f\n- for i := 0; i < n; i++ {\n+ for i := 0; i < n;  {\n",
		"f\n- sum++\n+ sum--\n",
		"f\n- sum++\n",
		"f #2\n- sum++\n+ sum--\n",
		"f #2\n- sum++\n",
		"wait\n- close(out)\n",
		"size\n- case n == 10, n == 12:\n+ case n == 12:\n",
		"size\n- case n == 10, n == 12:\n+ case n == 10:\n",
		"size\n- case n < 9:\n+ case n <= 9:\n",
		"size\n- case n < 9:\n+ case n >= 9:\n",
		"size\n- case n < 9:\n+ case n < 10:\n",
		"size\n- case n == 10, n == 12:\n+ case n != 10, n == 12:\n",
		"size\n- case n == 10, n == 12:\n+ case n == 11, n == 12:\n",
		"size\n- case n == 10, n == 12:\n+ case n == 10, n != 12:\n",
		"size\n- case n == 10, n == 12:\n+ case n == 10, n == 13:\n",
		"size\n- n--\n+ n++\n",
		"size\n- n--\n",
	}, texts)
	var lines, at []int
	for _, m := range mutants {
		lines, at = append(lines, m.line), append(at, m.at)
	}
	require.Equal(t, []int{4, 4, 4, 5, 5, 7, 7, 7, 7, 7, 8, 8, 9, 9, 17, 26, 26, 24, 24, 24, 26, 26, 26, 26, 27, 27}, lines)
	require.Equal(t, []int{4, 4, 4, 5, 5, 7, 7, 7, 7, 7, 8, 8, 9, 9, 17, 23, 23, 23, 23, 23, 23, 23, 23, 23, 27, 27}, at)
}

// An entry of a list that does not match the code is refused.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(code), 0o600))
	mutants, err := generate(dir, "a.go")
	require.NoError(t, err)
	for text, ok := range map[string]bool{
		"# a comment\na.go f #2\n- sum++\n+ sum--\nthe reason":      true,
		"a.go f\n- if a && b {\n+ if b {\nthe\nreason\n\n# comment": true,
		"a.go f #2\n- sum++\n+ sum--\n":                             false, // the reason is missing
		"a.go f #3\n- sum++\n+ sum--\nthe reason":                   false,
		"a.go g\n- sum++\n+ sum--\nthe reason":                      false,
		"b.go f\n- sum++\n+ sum--\nthe reason":                      false,
		"a.go f\n- sum++\n+ sum += 2\nthe reason":                   false,
		"a.go f\n- sum--\n+ sum++\nthe reason":                      false,
	} {
		name := filepath.Join(dir, "list.txt")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		list, err := readList(name)
		require.NoError(t, err)
		require.Len(t, list, 1)
		if err = find(list, mutants); ok {
			assert.NoError(t, err, text)
		} else {
			assert.Error(t, err, text)
		}
	}
	for _, text := range []string{"a.go\n- sum++\n", "a.go f 2\n- sum++\n", "a.go f #2 #3\n- sum++\n"} {
		name := filepath.Join(dir, "list.txt")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		_, err := readList(name)
		assert.Error(t, err, text)
	}
}
