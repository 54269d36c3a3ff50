package docs

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxDoc is the maximum number of lines of the doc comment of an exported name.
const maxDoc = 12

// The doc comments of exported names in the released packages are short. Rules and background belong in the guides.
func TestDocCommentsAreShort(t *testing.T) {
	fset := token.NewFileSet()
	files := 0
	unreleased := []string{"internal", "examples", "cmd", "bench", "verify", "testdata"}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); slices.Contains(unreleased, name) || strings.HasPrefix(name, ".") && name != ".." {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		long, err := longComments(fset, strings.TrimPrefix(filepath.ToSlash(path), "../../"), text)
		for _, problem := range long {
			t.Error(problem)
		}
		return err
	})
	require.NoError(t, err)
	require.Greater(t, files, 200)
}

// longComments returns the doc comments of exported names in a Go file that have more than maxDoc lines, each with its file and line.
func longComments(fset *token.FileSet, name string, text []byte) (long []string, err error) {
	file, err := goparser.ParseFile(fset, name, text, goparser.ParseComments|goparser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	check := func(doc *ast.CommentGroup, names ...*ast.Ident) {
		if doc == nil || len(names) > 0 && !slices.ContainsFunc(names, (*ast.Ident).IsExported) {
			return
		}
		first, last := fset.Position(doc.Pos()), fset.Position(doc.End())
		if n := last.Line - first.Line + 1; n > maxDoc {
			long = append(long, fmt.Sprintf("%s:%d: a doc comment of %d lines: at most %d", name, first.Line, n, maxDoc))
		}
	}
	fields := func(list *ast.FieldList) {
		for _, f := range list.List {
			check(f.Doc, f.Names...)
		}
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			check(decl.Doc, decl.Name)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					check(spec.Doc, spec.Names...)
					if !decl.Lparen.IsValid() {
						check(decl.Doc, spec.Names...)
					}
				case *ast.TypeSpec:
					check(spec.Doc, spec.Name)
					if !decl.Lparen.IsValid() {
						check(decl.Doc, spec.Name)
					}
					if !spec.Name.IsExported() {
						continue
					}
					ast.Inspect(spec.Type, func(n ast.Node) bool {
						switch n := n.(type) {
						case *ast.StructType:
							fields(n.Fields)
						case *ast.InterfaceType:
							fields(n.Methods)
						}
						return true
					})
				}
			}
		}
	}
	return long, nil
}

// longComments finds the doc comments of every kind of exported name, and accepts 12 lines.
func TestLongComments(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("// text\n", n) }
	for _, decl := range []string{"%sfunc F() {}", "%sfunc (t) M() {}", "%stype T int", "%svar V int", "type T struct {\n%sF int\n}",
		"type T interface {\n%sM()\n}", "const (\n%sC = 1\n)", "type T struct {\nIn struct {\n%sF int\n}\n}"} {
		head, _, _ := strings.Cut(decl, "%s")
		at := 2 + strings.Count(head, "\n")
		for n, want := range map[int][]string{maxDoc: nil, maxDoc + 1: {fmt.Sprintf("a.go:%d: a doc comment of 13 lines: at most 12", at)}} {
			got, err := longComments(token.NewFileSet(), "a.go", []byte("package a\n"+fmt.Sprintf(decl, lines(n))))
			require.NoError(t, err)
			require.Equal(t, want, got, decl)
		}
	}
	for _, decl := range []string{"%sfunc f() {}", "%stype t int", "type t struct {\n%sF int\n}", "type T struct {\n%sf int\n}"} {
		got, err := longComments(token.NewFileSet(), "a.go", []byte("package a\n"+fmt.Sprintf(decl, lines(maxDoc+1))))
		require.NoError(t, err)
		require.Empty(t, got, decl)
	}
}

// packages lists the folders whose package comments contain Go code. Each folder is mapped to the first words of its indented blocks that are
// not Go.
var packages = map[string][]string{
	".":         {"Graph --Compile", "guard, inputs"},
	"machine":   nil,
	"event":     nil,
	"store":     nil,
	"reactive":  nil,
	"kahntest":  {"A            a node", "any k2"},
	"typed":     nil,
	"inspector": nil,
	"temporal":  nil,
	"river":     nil,
	"schedule":  nil,
}

// packageImports imports the packages that only code in package comments uses, not code in the guides.
const packageImports = `
import (
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/reactive"
)

`

// temporalImports replaces the other imports for package temporal.
const temporalImports = `package guide

import (
	"context"

	sdkclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/temporal"
)

`

// The code in package comments compiles. Each block is compiled alone, with the declarations of a file in testdata.
func TestPackageCodeCompiles(t *testing.T) {
	check := func(t *testing.T, c *checker, prelude, folder string) {
		declared, err := os.ReadFile(filepath.Join("testdata", prelude))
		require.NoError(t, err)
		blocks, err := packageCode(filepath.Join("../..", folder), packages[folder])
		require.NoError(t, err)
		require.NotEmpty(t, blocks, folder)
		for _, code := range blocks {
			if problem := c.checkBlock([]string{string(declared)}, code); problem != "" {
				t.Errorf("the package comment of %s: %s\nin\n%s", folder, problem, code)
			}
		}
	}
	t.Run("temporal", func(t *testing.T) {
		if testing.Short() {
			t.Skip("the SDK of Temporal takes minutes to compile")
		}
		check(t, newChecker(t, temporalImports), "package-temporal.txt", "temporal")
	})
	c := newChecker(t, imports+packageImports)
	for folder := range packages {
		if folder != "temporal" {
			check(t, c, "packages.txt", folder)
		}
	}
	require.Contains(t, c.checkBlock(nil, "kahn.Exekute()"), "Exekute")
}

// packageCode returns the indented blocks of a folder's package comment. It omits the blocks that begin with one of the given words. Each of
// these words must begin at least one block.
func packageCode(folder string, other []string) (blocks []string, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	found := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := goparser.ParseFile(token.NewFileSet(), name, text, goparser.ParseComments|goparser.PackageClauseOnly)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(name, "_test.go") || file.Doc == nil {
			continue
		}
		var p comment.Parser
		for _, part := range p.Parse(file.Doc.Text()).Content {
			code, ok := part.(*comment.Code)
			switch {
			case !ok:
			case slices.ContainsFunc(other, func(words string) bool { return strings.HasPrefix(strings.TrimSpace(code.Text), words) }):
				found++
			default:
				blocks = append(blocks, code.Text)
			}
		}
	}
	if found != len(other) {
		return nil, fmt.Errorf("%s: %d blocks are not Go, not %d", folder, found, len(other))
	}
	return blocks, nil
}
