package kahn_test

import (
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/seed-c794f7ef/kahn"

// below maps each package on which the root package builds to the packages in this map that it may import. Of the other packages of the module it may
// import only internal ones.
var below = map[string][]string{
	modulePath + "/reactive": nil,
	modulePath + "/machine":  {modulePath + "/reactive"},
	modulePath + "/event":    {modulePath + "/machine"},
	modulePath + "/store":    {modulePath + "/machine", modulePath + "/event"},
}

func isBelow(pkg string) bool { _, ok := below[pkg]; return ok }

// notInMachine lists packages that package machine must not import: machine has no clock and calls no user code.
var notInMachine = []string{"context", "time"}

// checkImport reports whether the package in dir, a slash-separated path from the root of the repository, may import
// imported. Programs that use the library (examples, bench, verify) are not checked.
func checkImport(dir, imported string) error {
	var (
		top, _, _ = strings.Cut(dir, "/")
		within    = func(folder string) bool { return imported == folder || strings.HasPrefix(imported, folder+"/") }
		own       = within(modulePath)
		internal  = within(modulePath + "/internal")
	)
	switch {
	case imported == modulePath+"/internal/trees", imported == modulePath+"/internal/sagas":
		return fmt.Errorf("package %s imports %s, which is for tests", dir, imported)
	case dir == ".":
		host, _, _ := strings.Cut(imported, "/")
		standard := !strings.Contains(host, ".")
		if !standard && !internal && !isBelow(imported) && imported != "github.com/google/uuid" && !within("golang.org/x/sync") {
			return fmt.Errorf("the root package imports only the standard library, uuid, x/sync, internal packages and the packages below it, not %s", imported)
		}
	case dir == "machine" && slices.Contains(notInMachine, imported):
		return fmt.Errorf("package %s imports %s: it is a machine of numbers", dir, imported)
	case !own || internal:
	case isBelow(modulePath + "/" + dir):
		if slices.Contains(below[modulePath+"/"+dir], imported) {
			return nil
		}
		return fmt.Errorf("package %s is below the root package and imports %s", dir, imported)
	case dir == "internal/trees" && imported == modulePath, dir == "internal/sagas" && (imported == modulePath || isBelow(imported)): // only tests import them
	case top == "internal":
		return fmt.Errorf("internal package %s imports %s", dir, imported)
	case strings.HasPrefix(dir, "store/") && imported == modulePath:
		return fmt.Errorf("package %s imports the root package: a store needs packages store and machine alone", dir)
	case imported == modulePath || isBelow(imported):
	case dir == "river" && imported == modulePath+"/store/postgres": // it writes runs and jobs in one transaction
	case dir == "schedule" && imported == modulePath+"/definition": // documents contain schedules
	case dir == "inspector" && imported == modulePath+"/schedule": // the page shows schedules
	case dir == "store/postgres/postgrestest" && imported == modulePath+"/store/postgres/localserver":
	case dir == "definition" || strings.HasPrefix(dir, "definition/"):
		// The formats import package definition, which does not import the formats.
		if slices.Contains([]string{"definition/yaml", "definition/import"}, dir) && imported == modulePath+"/definition" || within(modulePath+"/definition/internal") {
			return nil
		}
		fallthrough
	default:
		return fmt.Errorf("package %s imports its sibling %s", dir, imported)
	}
	return nil
}

// skipped reports whether a folder is not checked: a program that uses the library, a hidden folder, or data.
func skipped(file, name string) bool {
	hidden := file != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_"))
	return hidden || name == "testdata" || name == "node_modules" || slices.Contains([]string{"examples", "bench", "cmd", "verify"}, file)
}

// TestImports checks the direction of imports: programs import sub-packages, sub-packages import the root package, and the root package imports
// internal packages.
func TestImports(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if skipped(file, name) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, goparser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(file))
		seen[dir] = true
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if err := checkImport(dir, imported); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		return nil
	})
	require.NoError(t, err)
	for _, dir := range []string{".", "definition", "definition/internal/source", "definition/yaml", "expression", "internal/index", "internal/once", "internal/ordset",
		"event", "kahntest", "machine", "otel", "progress", "reactive", "river", "schema", "sse", "store", "store/postgres", "store/sqlite", "storetest", "trace", "typed"} {
		require.True(t, seen[dir], "no file of %s was read", dir)
	}
}

func TestCheckImport(t *testing.T) {
	for _, c := range []struct {
		dir, imported string
		allowed       bool
	}{
		{".", "runtime/trace", true},
		{".", "github.com/google/uuid", true},
		{".", modulePath + "/internal/trees", false},
		{".", modulePath + "/internal/sagas", false},
		{"store/sqlite", modulePath + "/internal/sagas", false},
		{"internal/trees", modulePath, true},
		{"internal/sagas", modulePath + "/store", true},
		{"internal/sagas", modulePath + "/kahntest", false},
		{"internal/once", modulePath, false},
		{".", "golang.org/x/sync/errgroup", true},
		{".", modulePath + "/internal/ordset", true},
		{".", modulePath + "/reactive", true},
		{".", modulePath + "/trace", false},
		{"reactive", modulePath + "/internal/foreign", true},
		{"reactive", modulePath, false},
		{".", modulePath + "/store", true},
		{".", modulePath + "/store/sqlite", false},
		{"store", modulePath, false},
		{"store", modulePath + "/internal/foreign", true},
		{"store", modulePath + "/machine", true},
		{"store", modulePath + "/reactive", false},
		{"machine", modulePath + "/store", false},
		{"store/sqlite", modulePath, false},
		{"store/postgres", modulePath, false},
		{"river", modulePath + "/store/postgres", true},
		{"river", modulePath + "/store/sqlite", false},
		{"store/postgres", modulePath + "/store", true},
		{"store/sqlite", modulePath + "/store", true},
		{"reactive", modulePath + "/sse", false},
		{"progress", modulePath + "/reactive", true},
		{".", modulePath + "/machine", true},
		{"machine", modulePath + "/reactive", true},
		{"machine", modulePath + "/internal/ordset", true},
		{"machine", "sync", true},
		{"machine", modulePath, false},
		{"machine", "time", false},
		{"machine", "context", false},
		{"reactive", modulePath + "/machine", false},
		{".", modulePath + "/event", true},
		{"event", modulePath + "/machine", true},
		{"event", modulePath + "/reactive", false},
		{"event", modulePath, false},
		{"machine", modulePath + "/event", false},
		{"sse", modulePath + "/event", true},
		{"verify", modulePath + "/machine", true},
		{".", modulePath + "/definition/internal/source", false},
		{".", "golang.org/x/sys/unix", false},
		{".", "golang.org/x/synctrap", false},
		{".", "github.com/stretchr/testify/require", false},
		{"internal/ordset", "math/bits", true},
		{"internal/ordset", modulePath + "/internal/chrometrace", true},
		{"internal/ordset", modulePath, false},
		{"internal/ordset", modulePath + "/sse", false},
		{"internal/ordset", modulePath + "/definition/internal/source", false},
		{"sse", modulePath, true},
		{"sse", "net/http", true},
		{"sse", modulePath + "/internal/ordset", true},
		{"sse", modulePath + "/trace", false},
		{"sse", modulePath + "/examples/live", false},
		{"trace", modulePath + "/definition/internal/source", false},
		{"schema", "github.com/santhosh-tekuri/jsonschema/v6", true},
		{"schema", modulePath + "/definition", false},
		{"typed", modulePath, true},
		{"typed", modulePath + "/kahntest", false},
		{"kahntest", modulePath + "/storetest", false},
		{"definition", modulePath + "/definition/internal/source", true},
		{"definition", modulePath + "/definition/yaml", false},
		{"definition", modulePath + "/schema", false},
		{"definition/internal/source", modulePath + "/definition", false},
		{"definition/yaml", modulePath, true},
		{"definition/yaml", modulePath + "/definition", true},
		{"definition/yaml", modulePath + "/definition/internal/source", true},
		{"definition/yaml", modulePath + "/expression", false},
	} {
		if c.allowed {
			require.NoError(t, checkImport(c.dir, c.imported), "%s -> %s", c.dir, c.imported)
		} else {
			require.Error(t, checkImport(c.dir, c.imported), "%s -> %s", c.dir, c.imported)
		}
	}
}

// recovers lists the functions outside internal/foreign that recover from panics, with the reason why each does not use foreign.Contain.
var recovers = map[string]string{
	"run_worker.go perform":          "one deferred function for all attempts of a worker: a call by Contain costs 5 ns a node",
	"reactive/depend.go call":        "it restores the tracker in the same deferred function",
	"reactive/depend.go climb":       "one deferred function for a whole climb, whatever function of it panics",
	"reactive/effect.go run":         "it restores the tracker whether the function returns, panics or ends the goroutine",
	"reactive/scope.go run":          "one deferred function for all effects of a flush, which goes on when one ends the goroutine",
	"reactive/signal.go same":        "the panic is dropped, and its stack, which Contain's callers want, is not rendered",
	"progress/display.go write":      "a writer's panic is a text here: no run, no error to hand on",
	"sse/stream.go contain":          "the deferred call of a reader of a source, which has nothing of the source to call by Contain",
	"temporal/decide.go caught":      "a function that is called on a goroutine of its own, in the workflow task, and whose panic is its answer",
	"temporal/decide.go record":      "a panic inside a side effect must not end the workflow task, whose goroutine is the SDK's",
	"temporal/heartbeat.go beat":     "the SDK panics with a data converter's error: the heartbeat is sent again, without details",
	"schema/schema.go check":         "its own panic, which stops a judgement; any other goes on",
	"expression/expression.go Parse": "a panic of the parser is a syntax error",
}

// TestRecovers checks that only internal/foreign and the listed functions recover from panics.
func TestRecovers(t *testing.T) {
	found := map[string]bool{}
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(file, entry.Name()) || filepath.ToSlash(file) == "internal/foreign" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, goparser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			name := "a variable"
			if f, ok := decl.(*ast.FuncDecl); ok {
				name = f.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Name == "recover" {
					found[filepath.ToSlash(file)+" "+name] = true
				}
				return true
			})
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, slices.Sorted(maps.Keys(recovers)), slices.Sorted(maps.Keys(found)), "call user code by foreign.Contain, or give a reason")
	for place, reason := range recovers {
		require.NotEmpty(t, reason, place)
	}
}
