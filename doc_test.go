package kahn_test

import (
	"go/ast"
	"go/doc"
	goparser "go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// declared contains the exported names of a package, and the methods and fields of its types as "Type.Name". The value is true for a function or
// a type.
type declared map[string]bool

// declarations returns the exported names of the package in a folder.
func declarations(t *testing.T, dir string) declared {
	t.Helper()
	names := declared{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := goparser.ParseFile(token.NewFileSet(), name, nil, goparser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			names.add(d)
		}
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool {
		typ, member, _ := strings.Cut(name, ".")
		return !ast.IsExported(typ) || member != "" && !ast.IsExported(member)
	})
	return names
}

func (names declared) add(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names[d.Name.Name] = true
			return
		}
		typ := d.Recv.List[0].Type
		if pointer, ok := typ.(*ast.StarExpr); ok {
			typ = pointer.X
		}
		if id, ok := typ.(*ast.Ident); ok {
			names[id.Name+"."+d.Name.Name] = false
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					names[id.Name] = false
				}
			case *ast.TypeSpec:
				names[spec.Name.Name] = true
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, id := range field.Names {
							names[spec.Name.Name+"."+id.Name] = false
						}
					}
				}
			}
		}
	}
}

var docLink = regexp.MustCompile(`\[\*?((?:[a-z]+\.)?[A-Z]\w*(?:\.[A-Z]\w*)*)\]`)

// TestPackageDocumentation: the package documentation lists fifteen names to learn first, and every other type and function under a task. All
// names exist.
func TestPackageDocumentation(t *testing.T) {
	t.Parallel()
	file, err := goparser.ParseFile(token.NewFileSet(), "doc.go", nil, goparser.ParseComments)
	require.NoError(t, err)
	doc := file.Doc.Text()
	known := declarations(t, ".")
	for _, below := range []string{"event", "machine", "reactive", "store"} {
		for name := range declarations(t, below) {
			known[below+"."+name] = false
		}
	}
	links := func(text string) (names []string) {
		for _, match := range docLink.FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
		return names
	}
	for _, name := range links(doc) {
		if _, ok := known[name]; !ok {
			t.Errorf("doc.go links to %s, which does not exist", name)
		}
	}
	_, names, _ := strings.Cut(doc, "# The names to learn first")
	names, _, _ = strings.Cut(names, "\n# ")
	first, byTask, found := strings.Cut(names, "The other names are listed by task.")
	require.True(t, found)
	require.Len(t, links(first), 15)
	mentioned := links(first + byTask)
	for name, needed := range known {
		if needed && !slices.Contains(mentioned, name) {
			t.Errorf("doc.go mentions %s in none of its groups", name)
		}
	}
	slices.Sort(mentioned)
	for i := 1; i < len(mentioned); i++ {
		if mentioned[i] == mentioned[i-1] {
			t.Errorf("doc.go mentions %s twice", mentioned[i])
		}
	}
}

// withoutExample are the exported functions that need no example, each with the reason.
var withoutExample = map[string]string{
	"ForkPreview":    "in the example of Fork",
	"LastSign":       "shows when a process dies",
	"MaxCrashes":     "shows when a process dies",
	"NewCoordinator": "in the examples of Coordinator",
	"NewState":       "in the example of State",
}

// mainTypes are the types that need an example, in addition to all functions.
var mainTypes = []string{"Contract", "Coordinator", "Edge", "Gate", "Group", "Loop", "Map", "Memo", "Retry", "RunError", "Runner", "State", "TestMode"}

// TestExamples: every exported function of this package, and every main type, has an example whose output is checked, or is in withoutExample.
func TestExamples(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, name := range files {
		file, err := goparser.ParseFile(token.NewFileSet(), name, nil, goparser.ParseComments|goparser.SkipObjectResolution)
		require.NoError(t, err)
		for _, example := range doc.Examples(file) {
			subject, _, _ := strings.Cut(example.Name, "_")
			shown[subject] = shown[subject] || example.Output != ""
		}
	}
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	needed := slices.Clone(mainTypes)
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := goparser.ParseFile(token.NewFileSet(), name, nil, goparser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.IsExported() {
				needed = append(needed, f.Name.Name)
			}
		}
	}
	for _, name := range needed {
		if _, excused := withoutExample[name]; shown[name] == excused {
			t.Errorf("%s: it has an example: %v, it is listed as having none: %v", name, shown[name], excused)
		}
	}
	for name := range withoutExample {
		if !slices.Contains(needed, name) {
			t.Errorf("%s is listed as having no example, and there is no such function", name)
		}
	}
}
