package plant

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sound = `package kahn

type list[T any] struct{ items []T }

func (l *list[T]) push(x T) { l.items = append(l.items, x) }

func safely(f func()) (err any) {
	defer func() { err = recover() }()
	f()
	return nil
}

func rescue(err *any) {
	*err = recover()
}

func firstRow(rows [][]int, x int) (row int) {
	row = -1
rows:
	for i, r := range rows {
		for _, y := range r {
			if y == x {
				row = i
				break rows
			}
			if y < 0 {
				continue rows
			}
		}
	}
	return row
}
`

const soundTest = `package kahn

import "testing"

func TestPush(t *testing.T) {
	l := &list[int]{}
	l.push(7)
	if len(l.items) != 1 {
		t.Fatal("nothing was pushed")
	}
}

func TestRescue(t *testing.T) {
	var err any
	func() {
		defer rescue(&err)
		panic("help")
	}()
	if err != "help" {
		t.Fatal(err)
	}
}

func TestFirstRow(t *testing.T) {
	if row := firstRow([][]int{{-1, 3}, {3}, {3}}, 3); row != 1 {
		t.Fatal(row)
	}
}
`

// module writes a module with a root package.
func module(t *testing.T) string {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module " + Module + "\n\ngo 1.25.0\n", "a.go": sound, "a_test.go": soundTest,
		"below/a.go": "package below\n\nfunc Half(x int) int { return x / 2 }\n", "uses.go": "package kahn\n\nimport \"" + Module + "/below\"\n\nvar _ = below.Half\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	return root
}

// Each bug is switched on alone and fails only its own test. Without a bug all tests pass.
func TestBuild(t *testing.T) {
	root := module(t)
	bugs := []Bug{
		{File: "a.go", Func: "list.push", Old: "l.items = append(l.items, x)", New: ""},
		{File: "a.go", Func: "rescue", Old: "recover()", New: `"lost"`},
		{File: "a.go", Func: "firstRow", Old: "continue rows", New: "break rows"},
		{File: "a.go", Old: "row = i", New: "row = i + 1"},
	}
	breaks := []string{"TestPush", "TestRescue", "TestFirstRow", "TestFirstRow"}
	binary := filepath.Join(t.TempDir(), "a.test")
	require.NoError(t, Build(t.Context(), root, root, bugs, binary))
	for i := -1; i < len(bugs); i++ {
		for _, name := range []string{"TestPush", "TestRescue", "TestFirstRow"} {
			text, err := Command(t.Context(), binary, root, i, "-test.run=^"+name+"$").CombinedOutput()
			if i >= 0 && breaks[i] == name {
				assert.Error(t, err, "%s passes with %v", name, bugs[i])
				assert.Contains(t, string(text), "--- FAIL: "+name)
			} else {
				assert.NoError(t, err, "%s with bug %d: %s", name, i, text)
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "a.go"))
	require.NoError(t, err)
	assert.Equal(t, sound, string(text), "the repository is touched")
}

func TestBugsThatDoNotCompile(t *testing.T) {
	root := module(t)
	err := Build(t.Context(), root, root, []Bug{
		{File: "a.go", Func: "firstRow", Old: "row = -1", New: "line := -1"},
		{File: "a.go", Func: "firstRow", Old: "row = -1", New: "row = -2"},
		{File: "a.go", Func: "list.push", Old: "append(l.items, x)", New: "x"},
	}, filepath.Join(t.TempDir(), "a.test"))
	var broken *CompileError
	require.True(t, errors.As(err, &broken), "%v", err)
	assert.Equal(t, []int{0, 2}, broken.Bugs)
}

// Build distinguishes the bugs of a package below the root from bugs in a file of the same name in the root. The compiler does not compile the
// root while the other package does not compile.
func TestBugsBelowTheRootThatDoNotCompile(t *testing.T) {
	root := module(t)
	bugs := []Bug{
		{File: "a.go", Func: "firstRow", Old: "row = -1", New: "line := -1"},
		{File: "below/a.go", Func: "Half", Old: "x / 2", New: "x / 3"},
		{File: "below/a.go", Func: "Half", Old: "x / 2", New: "y / 2"},
	}
	for range 12 { // the compiler does not stop after ten errors
		bugs = append(bugs, bugs[2])
	}
	var broken *CompileError
	err := Build(t.Context(), root, root, bugs, filepath.Join(t.TempDir(), "a.test"))
	require.ErrorAs(t, err, &broken)
	assert.Equal(t, []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, broken.Bugs)
	err = Build(t.Context(), root, root, bugs[:2], filepath.Join(t.TempDir(), "a.test"))
	require.ErrorAs(t, err, &broken)
	assert.Equal(t, []int{0}, broken.Bugs)
	require.NoError(t, Build(t.Context(), root, root, bugs[1:2], filepath.Join(t.TempDir(), "a.test")))
}

func TestBugsThatAreNowhere(t *testing.T) {
	root := module(t)
	for _, b := range []Bug{
		{File: "a.go", Func: "pop", Old: "row = -1", New: ""},
		{File: "a.go", Func: "firstRow", Old: "row = 7", New: ""},
		{File: "a.go", Func: "firstRow", Old: "row = -1", New: "", Nth: 1},
		{File: "a.go", Old: "recover()", New: ""}, // Old occurs twice
		{File: "a.go", Old: "type list[T any]", New: ""},
		{File: "a.go", Func: "firstRow", Old: "row = -1", New: "}"},
		{File: "b.go", Func: "firstRow", Old: "row = -1", New: ""},
	} {
		assert.Error(t, Build(t.Context(), root, root, []Bug{b}, filepath.Join(t.TempDir(), "a.test")), "%v", b)
	}
}

// Try tries each bug with its test, and returns an error that names the bugs whose tests pass.
func TestTry(t *testing.T) {
	t.Setenv("KAHN_LONG", "1")
	root := module(t)
	t.Chdir(root)
	push := Case{Bug: Bug{File: "a.go", Func: "list.push", Old: "l.items = append(l.items, x)", New: ""}, Test: "TestPush"}
	lost := Case{Name: "a panic is lost", Bug: Bug{File: "a.go", Func: "rescue", Old: "recover()", New: `"lost"`}, Test: "TestFirstRow"}
	require.NoError(t, Try(t.Context(), root, []Case{push, push, lost}, 2))
	err := Try(t.Context(), root, []Case{push, lost}, 2)
	require.ErrorContains(t, err, "TestFirstRow has not found a panic is lost")
	require.NotContains(t, err.Error(), "TestPush")
	failing := strings.Replace(soundTest, "row != 1", "row != 2", 1)
	require.NoError(t, os.WriteFile(filepath.Join(root, "a_test.go"), []byte(failing), 0o600))
	require.ErrorContains(t, Try(t.Context(), root, []Case{lost}, 1), "without a bug")
}

type skipper struct{ skipped bool }

func (s *skipper) Skip(...any) { s.skipped = true }

// Wanted skips tests that plant bugs, except under .ci/run and in the long mode.
func TestWanted(t *testing.T) {
	for _, row := range []struct {
		sample, long string
		skipped      bool
	}{{"", "", true}, {"1", "", false}, {"", "1", false}} {
		t.Setenv("KAHN_SAMPLE", row.sample)
		t.Setenv("KAHN_LONG", row.long)
		s := new(skipper)
		Wanted(s)
		require.Equal(t, row.skipped, s.skipped, "%+v", row)
	}
}

// A sample is a third of the list, and always the same for the same files. For each bug there are contents of the files for which the sample
// contains the bug.
func TestSample(t *testing.T) {
	root := t.TempDir()
	bugs := []Bug{{File: "a.go"}, {File: "b.go"}, {File: "a.go"}, {File: "b.go"}, {File: "a.go"}, {File: "a.go"}, {File: "a.go"}}
	tried := map[int]int{}
	t.Setenv("KAHN_LONG", "")
	_, err := Sample(root, bugs)
	require.Error(t, err, "there are no files")
	for change := range 30 {
		for _, name := range []string{"a.go", "b.go"} {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), fmt.Append(nil, name, change), 0o600))
		}
		chosen, err := Sample(root, bugs)
		require.NoError(t, err)
		require.Contains(t, []int{2, 3}, len(chosen))
		again, err := Sample(root, bugs)
		require.NoError(t, err)
		require.Equal(t, chosen, again)
		for _, i := range chosen {
			tried[i]++
		}
	}
	require.Len(t, tried, len(bugs), "bugs that are never tried")
	t.Setenv("KAHN_LONG", "1")
	all, err := Sample(root, bugs)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, all)
}
