package kahn_test

import (
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recovers are the functions outside of internal/foreign that recover from panics, each with the reason why foreign.Contain
// does not do.
var recovers = map[string]string{
	"run_worker.go perform":          "one deferred function for all attempts of a worker: a call by Contain costs 5 ns a node",
	"reactive/depend.go call":        "it restores the tracker in the same deferred function",
	"reactive/depend.go climb":       "one deferred function for a whole climb, whatever function of it panics",
	"reactive/effect.go run":         "it restores the tracker whether the function returns, panics or ends the goroutine",
	"reactive/scope.go run":          "one deferred function for all effects of a flush, which goes on when one ends the goroutine",
	"reactive/signal.go same":        "the panic is dropped, and its stack, which Contain's callers want, is not rendered",
	"progress/display.go write":      "a writer's panic is a text here: no run, no error to hand on",
	"sse/stream.go contain":          "the deferred call of a reader of a source, which has nothing of the source to call by Contain",
	"temporal/decide.go record":      "a panic inside of a side effect must not end the workflow task, whose goroutine is the SDK's",
	"temporal/heartbeat.go beat":     "the SDK panics with a data converter's error: the heartbeat is sent again, without details",
	"schema/schema.go check":         "its own panic, which stops a judgement; any other goes on",
	"expression/expression.go Parse": "a panic of the parser is a syntax error",
}

// One place recovers from panics of user code.
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
