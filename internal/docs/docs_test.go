// Package docs checks the guides and the doc comments: the Go code compiles, links have targets, tables are correct, and comments are short.
package docs

import (
	"errors"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/compiled"
)

// imports imports the packages that code in the guides uses, each under the last element of its path.
const imports = `package guide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"golang.org/x/sync/errgroup"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/bulk"
	"github.com/seed-c794f7ef/kahn/definition"
	importer "github.com/seed-c794f7ef/kahn/definition/import"
	"github.com/seed-c794f7ef/kahn/definition/yaml"
	"github.com/seed-c794f7ef/kahn/inspector"
	"github.com/seed-c794f7ef/kahn/kahntest"
	otelkahn "github.com/seed-c794f7ef/kahn/otel"
	"github.com/seed-c794f7ef/kahn/progress"
	riverkahn "github.com/seed-c794f7ef/kahn/river"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/sse"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
	"github.com/seed-c794f7ef/kahn/typed"
)

`

// notCompiled lists the documents whose code is not compiled, with the reason.
var notCompiled = map[string]string{"temporal.md": "the SDK of Temporal takes minutes to compile"}

// documents returns the documents to check.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	require.Greater(t, len(files), 15)
	return append(files, "../../README.md", "../../examples/tour/README.md")
}

var (
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	elision = regexp.MustCompile(`(?m)^\s*(\.\.\.|…)$`) // a line that stands for omitted code
)

// The code of a document compiles. The declarations of all its blocks form one package, to which testdata adds the declarations that the
// document assumes. A block of statements is compiled as the body of a function. Unused variables and imports are allowed.
func TestCodeCompiles(t *testing.T) {
	c := newChecker(t, imports)
	common, err := os.ReadFile("testdata/common.txt")
	require.NoError(t, err)
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		name := filepath.Base(file)
		if _, ok := notCompiled[name]; ok {
			continue
		}
		prelude, err := os.ReadFile(filepath.Join("testdata", strings.TrimSuffix(name, ".md")+".txt"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		declared := []string{string(common), string(prelude)}
		var statements []string
		for _, block := range goBlock.FindAllSubmatch(text, -1) {
			code := elision.ReplaceAllString(string(block[1]), "")
			if c.declares(code) {
				declared = append(declared, code)
			} else {
				statements = append(statements, code)
			}
		}
		if problem := c.check(declared...); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
		for _, code := range statements {
			if problem := c.checkStatements(declared, code); problem != "" {
				t.Errorf("%s: %s\nin\n%s", name, problem, code)
			}
		}
	}
}

// checker checks types against packages that go list has compiled.
type checker struct {
	fset     *token.FileSet
	imports  string // the package clause and the imports of each file
	importer types.Importer
}

func newChecker(t *testing.T, imports string) *checker {
	t.Helper()
	// The go command reuses a cached test result if the files that the test has read are unchanged. So the test reads the API lists of all
	// modules.
	for _, pattern := range []string{"../../*/api.txt", "../../*/*/api.txt"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			_, err := os.ReadFile(file)
			require.NoError(t, err)
		}
	}
	fset := token.NewFileSet()
	file, err := goparser.ParseFile(fset, "", imports, goparser.ImportsOnly)
	require.NoError(t, err)
	var packages []string
	for _, spec := range file.Imports {
		packages = append(packages, strings.Trim(spec.Path.Value, `"`))
	}
	imp, err := compiled.Importer(t.Context(), fset, packages...)
	require.NoError(t, err)
	return &checker{fset, imports, imp}
}

// declares reports whether code is a list of declarations rather than of statements.
func (c *checker) declares(code string) bool {
	_, err := goparser.ParseFile(c.fset, "", "package guide\n"+code, 0)
	return err == nil
}

// checkBlock checks a block of declarations or statements in a package with the given declarations.
func (c *checker) checkBlock(declared []string, code string) string {
	code = elision.ReplaceAllString(code, "")
	if c.declares(code) {
		return c.check(append(slices.Clip(declared), code)...)
	}
	return c.checkStatements(declared, code)
}

// checkStatements checks statements as the body of a function that returns an error, or a value and an error.
func (c *checker) checkStatements(declared []string, code string) (problem string) {
	for _, result := range []string{"", "error", "(any, error)"} {
		problem = c.check(append(slices.Clip(declared), "func _() "+result+" {\n"+code+"\npanic(0)\n}\n")...)
		if problem == "" {
			break
		}
	}
	return problem
}

// check returns the problems of a package that consists of texts, or "" if there are none. Each text is a list of declarations.
func (c *checker) check(texts ...string) string {
	var files []*ast.File
	for _, text := range texts {
		file, err := goparser.ParseFile(c.fset, "", c.imports+text, 0)
		if err != nil {
			return err.Error()
		}
		files = append(files, file)
	}
	var problems []string
	config := types.Config{Importer: c.importer, Error: func(err error) {
		var e types.Error
		if errors.As(err, &e) && !e.Soft {
			problems = append(problems, e.Msg)
		}
	}}
	_, _ = config.Check("guide", c.fset, files, nil) // config.Error gets all errors
	return strings.Join(problems, "; ")
}

// The checker finds errors, and accepts unused variables and imports.
func TestChecker(t *testing.T) {
	c := newChecker(t, imports)
	require.Empty(t, c.check("func f() { n := 1 }"))
	require.Contains(t, c.check("func f() { kahn.Exekute() }"), "Exekute")
	require.Contains(t, c.check("func f() { var s string = 1 }"), "cannot use 1")
	require.NotEmpty(t, c.check("func f() {"))
}

var link = regexp.MustCompile(`\]\(([\w./-]+)(?:#[\w-]*)?\)`)

// Links to documents and files have targets, and the index of the guides lists all guides.
func TestLinks(t *testing.T) {
	index, err := os.ReadFile("../../docs/README.md")
	require.NoError(t, err)
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, found := range link.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), string(found[1]))); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		if name := filepath.Base(file); filepath.Dir(file) == "../../docs" && name != "README.md" {
			require.Contains(t, string(index), fmt.Sprintf("](%s)", name), "docs/README.md")
		}
	}
}
