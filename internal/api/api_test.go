package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The exported API of every module agrees with its api.txt.
func TestAPI(t *testing.T) {
	t.Parallel()
	// The go command reuses a cached test result if the files that the test has read are unchanged. So the test reads the
	// directories of the sources.
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".git")) {
			return fs.SkipDir
		}
		return err
	}))
	files, err := listings("../..")
	require.NoError(t, err)
	require.Contains(t, files, filepath.Join("../..", "api.txt"))
	var diff strings.Builder
	differs, err := run("../..", false, &diff)
	require.NoError(t, err)
	if differs {
		t.Errorf("the exported API has changed:\n%s\nIf that is meant: go run ./internal/api -write, and list the change in CHANGELOG.md.", diff.String())
	}
}

// TestExported checks the lines of a small module with every kind of declaration.
func TestExported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.com/seed-c794f7ef/m\n\ngo 1.25.0\n")
	write("go.work", "go 1.25.0\n\nuse .\n")
	write("internal/hidden/hidden.go", "package hidden\n\nfunc Hidden() {}\n")
	write("cmd/main.go", "package main\n\nfunc Main() {}\n\nfunc main() {}\n")
	write("tests/a_test.go", "package tests_test\n\nfunc Helper() {}\n")
	write("m.go", `package m

import "io"

const One = 1

const (
	A Kind = iota
	B
	c
)

var Err error

type Kind uint8

func (Kind) String() string { return "" }

type base struct{ Promoted int }

func (*base) Do(what func(name string) (n int, err error)) {}

type S struct {
	base
	io.Reader
	Field  map[string][]int `+"`json:\"field\"`"+`
	hidden int
}

type List[T any] struct{ items []T }

func (l *List[T]) Add(item ...T) {}

type I interface {
	io.Closer
	sealed()
}

type Number interface{ ~int | ~float64 }

type Alias = S

func Map[K comparable, V Number](m map[K]V, f func(key K) V) *List[K] { return nil }

func unexported() {}
`)
	got, err := exported(dir)
	require.NoError(t, err)
	require.Equal(t, []string{
		"m: const A Kind = 0",
		"m: const B Kind = 1",
		"m: const One untyped int = 1",
		"m: func Map[K comparable, V Number](map[K]V, func(K) V) *List[K]",
		"m: method (*List[T any]) Add(...T)",
		"m: method (*S) Do(func(string) (int, error))",
		"m: method (Kind) String() string",
		"m: method (S) Read([]byte) (int, error)",
		"m: type Alias = S",
		"m: type I interface",
		"m: type I interface, Close() error",
		"m: type I interface, unexported methods",
		"m: type Kind uint8",
		"m: type List[T any] struct",
		"m: type Number interface",
		"m: type Number interface, constraint interface{~int | ~float64}",
		"m: type S struct",
		"m: type S struct, Field map[string][]int `json:\"field\"`",
		"m: type S struct, Promoted int",
		"m: type S struct, embedded io.Reader",
		"m: var Err error",
	}, got)
}

func TestCompare(t *testing.T) {
	t.Parallel()
	require.Empty(t, compare([]string{"a", "b"}, []string{"a", "b"}))
	require.Equal(t, []string{"- b", "+ b2", "+ c"}, compare([]string{"a", "b"}, []string{"a", "b2", "c"}))
}
