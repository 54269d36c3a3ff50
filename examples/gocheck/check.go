package main

import (
	"cmp"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"runtime"

	"github.com/seed-c794f7ef/kahn"
)

// maxErrors bounds the errors that are reported for one package.
const maxErrors = 10

// checker holds the data that the steps of a run share. It is safe for concurrent use.
type checker struct {
	fset  *token.FileSet
	sizes types.Sizes
}

func newChecker() *checker {
	// The go command takes the target architecture from the environment. The type checker must use the same one.
	arch := cmp.Or(os.Getenv("GOARCH"), runtime.GOARCH)
	return &checker{fset: token.NewFileSet(), sizes: types.SizesFor("gc", arch)}
}

// check is the step: it parses and type-checks one package, including function bodies. Its output is a *types.Package.
//
// kahn calls the step of a package when all imports of the package have been checked. If the check of a package fails, kahn aborts all packages that
// depend on this package, and continues with all others.
func (c *checker) check(ctx context.Context, s *kahn.Step) (any, error) {
	pkg := s.Config().(*goPackage)
	// The imports of the package are the outputs of the nodes that this node follows. Steps share types, but never change them.
	checked, err := c.checkWith(ctx, pkg, func(path string) (*types.Package, error) { return kahn.Upstream[*types.Package](s, path) })
	if err != nil {
		return nil, err
	}
	return checked, nil
}

func (c *checker) checkWith(ctx context.Context, pkg *goPackage, load func(path string) (*types.Package, error)) (*types.Package, error) {
	switch {
	case pkg.Error != nil:
		return nil, pkg.Error
	case pkg.ImportPath == "unsafe": // its source is only documentation
		return types.Unsafe, nil
	}
	files, err := c.parse(ctx, pkg)
	if err != nil {
		return nil, err
	}

	var errs []error
	config := types.Config{
		GoVersion: pkg.goVersion(),
		Sizes:     c.sizes,
		Error:     func(err error) { errs = append(errs, err) },
		Importer:  importerFunc(func(path string) (*types.Package, error) { return load(cmp.Or(pkg.ImportMap[path], path)) }),
	}
	checked, err := config.Check(pkg.ImportPath, c.fset, files, nil)
	if len(errs) > maxErrors {
		errs = append(errs[:maxErrors], errors.New("too many errors"))
	}
	if len(errs) > 0 {
		err = errors.Join(errs...)
	}
	return checked, err
}

// parse parses the files of a package. It checks the context before each file, since the type checker never checks it. So when the
// run is stopped, the steps that are parsing end before their next file.
func (c *checker) parse(ctx context.Context, pkg *goPackage) ([]*ast.File, error) {
	var files []*ast.File
	var errs []error
	for _, name := range pkg.GoFiles {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		file, err := parser.ParseFile(c.fset, filepath.Join(pkg.Dir, name), nil, parser.SkipObjectResolution)
		files, errs = append(files, file), append(errs, err)
	}
	return files, errors.Join(errs...)
}

// importerFunc makes a function a types.Importer.
type importerFunc func(path string) (*types.Package, error)

// Import implements types.Importer.
func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }
