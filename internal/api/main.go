// Api lists what each module exports. It compares the list with the module's file api.txt, or writes this file. The file is a sorted list with one
// line for each constant, variable, function, type, field and method. The test of this package compares the files with the code, so that every
// change of the exported API is noticed.
//
//	go run ./internal/api         # prints what differs
//	go run ./internal/api -write  # writes the files
//
// The lists omit the names of parameters, because renaming a parameter does not affect callers. A module without an api.txt is skipped.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	write := flag.Bool("write", false, "write the files")
	flag.Parse()
	differs, err := run(*root, *write, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
	}
	if err != nil || differs {
		os.Exit(1)
	}
}

// The function `run` compares the api.txt of every module with the list of the module's exports, and prints the lines that differ. If `write` is
// set, it writes the files instead.
func run(root string, write bool, w io.Writer) (differs bool, err error) {
	files, err := listings(root)
	if err != nil {
		return false, err
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		now, err := exported(dir)
		if err != nil {
			return false, fmt.Errorf("%s: %w", dir, err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		if write {
			if err := os.WriteFile(file, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
				return false, err
			}
			continue
		}
		if diff := compare(strings.Split(strings.TrimSpace(string(text)), "\n"), now); len(diff) > 0 {
			differs = true
			if _, err := fmt.Fprintf(w, "%s\n%s\n", file, strings.Join(diff, "\n")); err != nil {
				return true, err
			}
		}
	}
	return differs, nil
}

// The function `listings` returns the files api.txt of the modules in the workspace.
func listings(root string) ([]string, error) {
	out, err := command(root, "go", "work", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(out, &work); err != nil {
		return nil, err
	}
	var files []string
	for _, use := range work.Use {
		file := filepath.Join(root, filepath.FromSlash(use.DiskPath), "api.txt")
		switch _, err := os.Stat(file); {
		case err == nil:
			files = append(files, file)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return files, nil
}

// The function `compare` returns the lines that are in only one of the lists, sorted by their text.
func compare(old, now []string) []string {
	var diff []string
	for _, line := range old {
		if !slices.Contains(now, line) {
			diff = append(diff, "- "+line)
		}
	}
	for _, line := range now {
		if !slices.Contains(old, line) {
			diff = append(diff, "+ "+line)
		}
	}
	slices.SortStableFunc(diff, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return diff
}

// The function `exported` lists what a module exports, in the packages that other modules can import. The argument `dir` is the folder of the
// module.
func exported(dir string) ([]string, error) {
	out, err := command(dir, "go", "list", "-export", "-f", "{{.Name}} {{.ImportPath}} {{.Export}}", "./...")
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	var paths []string
	for line := range strings.Lines(string(out)) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		path, export, _ := strings.Cut(rest, " ")
		exports[path] = export // export is "" if the folder has only tests
		if export != "" && name != "main" && !slices.Contains(strings.Split(path, "/"), "internal") {
			paths = append(paths, path)
		}
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	var lines []string
	for _, path := range paths {
		pkg, err := imports.Import(path)
		if err != nil {
			return nil, err
		}
		l := lister{pkg: pkg}
		for _, name := range pkg.Scope().Names() {
			if object := pkg.Scope().Lookup(name); object.Exported() {
				l.object(object)
			}
		}
		_, short, _ := strings.Cut(path, "/seed-c794f7ef/")
		for _, line := range l.lines {
			lines = append(lines, short+": "+line)
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

func command(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, &failure)
	}
	return out, nil
}

// lister collects the lines of a package.
type lister struct {
	pkg   *types.Package
	lines []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// The method `text` returns a type as the package itself would write it, without names of parameters.
func (l *lister) text(t types.Type) string {
	return types.TypeString(unnamed(t), func(p *types.Package) string {
		if p == l.pkg {
			return ""
		}
		return p.Name()
	})
}

// The method `signature` returns a signature without the word func.
func (l *lister) signature(t types.Type) string { return strings.TrimPrefix(l.text(t), "func") }

func (l *lister) object(object types.Object) {
	switch o := object.(type) {
	case *types.Const:
		l.add("const %s %s = %s", o.Name(), l.text(o.Type()), o.Val().ExactString())
	case *types.Var:
		l.add("var %s %s", o.Name(), l.text(o.Type()))
	case *types.Func:
		l.add("func %s%s", o.Name(), l.signature(o.Type()))
	case *types.TypeName:
		l.typeName(o)
	}
}

func (l *lister) typeName(o *types.TypeName) {
	if alias, ok := o.Type().(*types.Alias); ok {
		l.add("type %s = %s", o.Name(), l.text(alias.Rhs()))
		return
	}
	name := l.text(o.Type()) // the name with its type parameters
	switch under := o.Type().Underlying().(type) {
	case *types.Struct:
		l.add("type %s struct", name)
		l.fields(name, under, map[*types.Struct]bool{})
	case *types.Interface:
		l.methodsOf(name, under)
		return // methodsOf has listed the methods of the interface
	default:
		l.add("type %s %s", name, l.text(under))
	}
	byValue := types.NewMethodSet(o.Type())
	methods := types.NewMethodSet(types.NewPointer(o.Type()))
	for i := range methods.Len() {
		method := methods.At(i).Obj()
		if !method.Exported() {
			continue
		}
		receiver := "*" + name
		if byValue.Lookup(l.pkg, method.Name()) != nil {
			receiver = name
		}
		l.add("method (%s) %s%s", receiver, method.Name(), l.signature(method.Type()))
	}
}

// The method `fields` lists the exported fields of a struct, including the exported fields of embedded structs with unexported names.
func (l *lister) fields(name string, s *types.Struct, seen map[*types.Struct]bool) {
	if seen[s] {
		return
	}
	seen[s] = true
	for i := range s.NumFields() {
		field, tag := s.Field(i), s.Tag(i)
		if tag != "" {
			tag = " `" + tag + "`"
		}
		switch embedded, ok := dereferenced(field.Type()).Underlying().(*types.Struct); {
		case field.Exported() && field.Embedded():
			l.add("type %s struct, embedded %s%s", name, l.text(field.Type()), tag)
		case field.Exported():
			l.add("type %s struct, %s %s%s", name, field.Name(), l.text(field.Type()), tag)
		case field.Embedded() && ok:
			l.fields(name, embedded, seen)
		}
	}
}

func dereferenced(t types.Type) types.Type {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

// methodsOf lists the exported methods of an interface, including the methods of embedded interfaces. If the interface has unexported methods,
// methodsOf adds a line about them, since other packages cannot implement the interface. If the interface can only constrain type parameters,
// methodsOf adds a line with the constraint.
func (l *lister) methodsOf(name string, i *types.Interface) {
	l.add("type %s interface", name)
	if !i.IsMethodSet() {
		l.add("type %s interface, constraint %s", name, l.text(i))
	}
	for m := range i.Methods() {
		if m.Exported() {
			l.add("type %s interface, %s%s", name, m.Name(), l.signature(m.Type()))
		} else {
			l.add("type %s interface, unexported methods", name)
		}
	}
}

// The function `unnamed` returns a type without the names of parameters in its signatures.
func unnamed(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Signature:
		var params []*types.TypeParam
		for p := range t.TypeParams().TypeParams() {
			params = append(params, types.NewTypeParam(types.NewTypeName(token.NoPos, nil, p.Obj().Name(), nil), p.Constraint()))
		}
		return types.NewSignatureType(nil, nil, params, unnamedTuple(t.Params()), unnamedTuple(t.Results()), t.Variadic())
	case *types.Pointer:
		return types.NewPointer(unnamed(t.Elem()))
	case *types.Slice:
		return types.NewSlice(unnamed(t.Elem()))
	case *types.Array:
		return types.NewArray(unnamed(t.Elem()), t.Len())
	case *types.Chan:
		return types.NewChan(t.Dir(), unnamed(t.Elem()))
	case *types.Map:
		return types.NewMap(unnamed(t.Key()), unnamed(t.Elem()))
	}
	return t
}

func unnamedTuple(tuple *types.Tuple) *types.Tuple {
	var vars []*types.Var
	for v := range tuple.Variables() {
		vars = append(vars, types.NewParam(token.NoPos, nil, "", unnamed(v.Type())))
	}
	return types.NewTuple(vars...)
}
