// Package compiled imports packages for the type checker. It reads the export data that the go command has compiled. It is for tests that check
// types.
package compiled

import (
	"bytes"
	"context"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Importer compiles packages and everything they import, and returns an importer for them. The packages are named by import path, or by
// folder below the working folder.
func Importer(ctx context.Context, fset *token.FileSet, packages ...string) (types.Importer, error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, packages...)...)
	var problems bytes.Buffer
	list.Stderr = &problems
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, problems.String())
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("%s was not compiled", path)
		}
		return os.Open(files[path])
	}), nil
}
