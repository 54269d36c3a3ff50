package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// goPackage is the output of go list for a package.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string          // the paths of the imported packages; for a vendored package the full path
	ImportMap  map[string]string // maps the path in an import declaration to the path of the package, if the two differ
	Module     *struct{ GoVersion string }
	DepOnly    bool // no pattern names the package; it is listed because another package imports it
	Error      *listError
}

const listFields = "ImportPath,Dir,GoFiles,Imports,ImportMap,Module,DepOnly,Error"

// goVersion returns the version of the language in which the package is written, or "" for the newest version.
func (p *goPackage) goVersion() string {
	if p.Module == nil || p.Module.GoVersion == "" {
		return ""
	}
	return "go" + p.Module.GoVersion
}

// listError is the reason why go list could not load a package.
type listError struct {
	ImportStack []string
	Pos         string
	Err         string
}

func (e *listError) Error() string {
	switch {
	case e.Pos != "":
		return e.Pos + ": " + e.Err
	case len(e.ImportStack) > 1: // the error of an import cycle has no position, but a chain of imports
		return strings.Join(e.ImportStack, " imports ") + ": " + e.Err
	}
	return e.Err
}

// list asks the go command for the packages that match the patterns, and for all packages that they import. It turns cgo off, so that every
// package is plain Go. If the go command cannot load a package, the list contains the package with its Error. list returns an error if such a package
// matches a pattern and has no files. It also returns an error if there are no packages.
func list(ctx context.Context, dir string, patterns []string, stderr io.Writer) ([]*goPackage, error) {
	// The flag -pgo=off turns off profile-guided optimization. Without this flag, go list would list separate copies of the packages that a main
	// package with a profile imports.
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-deps", "-pgo=off", "-json="+listFields, "--")
	cmd.Args = append(cmd.Args, patterns...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}

	var packages []*goPackage
	var problems []error
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		pkg := new(goPackage)
		if err := dec.Decode(pkg); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if pkg.Error != nil && !pkg.DepOnly && len(pkg.GoFiles) == 0 {
			problems = append(problems, pkg.Error)
		}
		packages = append(packages, pkg)
	}
	if len(packages) == 0 {
		problems = append(problems, errors.New("no packages to check"))
	}
	return packages, errors.Join(problems...)
}

// graph makes a node for each package. The node follows the nodes of the packages that the package imports. If a package could not be loaded, its
// node follows no other node, so its step fails at once. This also breaks the import cycles that go list has reported. If `each` is not nil, graph
// calls it for each node. The function `each` may modify the node.
func graph(packages []*goPackage, each func(*kahn.Node)) *kahn.Graph {
	g := &kahn.Graph{Name: "gocheck"}
	for _, pkg := range packages {
		node := kahn.Node{ID: pkg.ImportPath, Config: pkg}
		if pkg.Error == nil {
			node.After = pkg.Imports
		}
		if each != nil {
			each(&node)
		}
		g.Add(node)
	}
	return g
}
