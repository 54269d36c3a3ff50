package typed_test

import (
	"go/ast"
	goparser "go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/compiled"
)

// check type-checks a file together with its steps, and returns the errors in the file by line.
func check(fset *token.FileSet, imp types.Importer, steps, file *ast.File) map[int][]string {
	errs := map[int][]string{}
	conf := types.Config{Importer: imp, Error: func(err error) {
		if e, is := err.(types.Error); is {
			line := fset.Position(e.Pos).Line
			errs[line] = append(errs[line], e.Msg)
		}
	}}
	_, _ = conf.Check(file.Name.Name, fset, []*ast.File{steps, file}, nil) // the errors are in errs
	return errs
}

// wants returns the errors that a file announces, by line.
func wants(t *testing.T, fset *token.FileSet, file *ast.File) map[int]*regexp.Regexp {
	t.Helper()
	want := map[int]*regexp.Regexp{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if text, ok := strings.CutPrefix(c.Text, "// want "); ok {
				want[fset.Position(c.Pos()).Line] = regexp.MustCompile(strings.Trim(text, "`"))
			}
		}
	}
	return want
}

// Go's type checker rejects each pipeline in testdata/wrong, exactly at the lines with a want comment and for the reason given there. It
// accepts the pipeline in testdata/right.
func TestWrongPipelinesDoNotCompile(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	imp, err := compiled.Importer(t.Context(), fset, ".", "context")
	require.NoError(t, err)
	steps, err := goparser.ParseFile(fset, "testdata/steps.go", nil, goparser.SkipObjectResolution)
	require.NoError(t, err)
	names, err := filepath.Glob("testdata/*/*.go")
	require.NoError(t, err)
	wrong := 0
	for _, name := range names {
		file, err := goparser.ParseFile(fset, name, nil, goparser.ParseComments|goparser.SkipObjectResolution)
		require.NoError(t, err)
		want, errs := wants(t, fset, file), check(fset, imp, steps, file)
		if filepath.Base(filepath.Dir(name)) == "wrong" {
			wrong++
			require.NotEmpty(t, want, name)
		} else {
			require.Empty(t, want, name)
		}
		for line, text := range want {
			if len(errs[line]) != 1 || !text.MatchString(errs[line][0]) {
				t.Errorf("%s:%d: the compiler says %q, expected %v", name, line, errs[line], text)
			}
			delete(errs, line)
		}
		if len(errs) > 0 {
			t.Errorf("%s: other errors: %v", name, errs)
		}
	}
	require.Greater(t, wrong, 10)
}
