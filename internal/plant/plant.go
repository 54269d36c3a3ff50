// Package plant plants bugs in code, and compiles the tests of this code. One binary contains the original code and all bugs of a list, and an
// environment variable switches one bug on. So the tests are compiled only once, however long the list is. The go command reads the files with bugs
// through an overlay, so the files of the repository do not change.
package plant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bug is a piece of text in a function, and the text that replaces it while the bug is switched on.
type Bug struct {
	File string // relative to the root of the repository; the file may be in any package of the root module
	Func string // a function, or a method as Type.Method; may be empty if Old occurs once in the file
	Old  string
	New  string
	Nth  int // which occurrence of Old in the function, from 0
}

func (b Bug) String() string {
	old := b.Old
	if b.Nth > 0 {
		old += fmt.Sprintf(" (occurrence %d)", b.Nth+1)
	}
	return fmt.Sprintf("%s: %s: %q instead of %q", b.File, b.Func, b.New, old)
}

// The constant `variable` is the name of the environment variable that switches a bug on. The value of the environment variable is the number of the
// bug, counted from 1.
const variable = "KAHN_PLANTED_BUG"

// The overlay adds this file to each package that has bugs.
const (
	switchFile   = "planted_bug.go"
	switchSource = `package %s

import (
	"os"
	"strconv"
)

var plantedBug, _ = strconv.Atoi(os.Getenv("` + variable + `"))
`
)

// CompileError is returned if bugs do not compile.
type CompileError struct {
	Bugs []int // indices into the list
	Text string
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("%d of the planted bugs do not compile:\n%s", len(e.Bugs), e.Text)
}

// Build compiles the tests of a package, with all bugs planted, and writes them to the file `binary`. The folder of the repository is `root`, and
// the folder of the package is `pkg`. Build returns a *CompileError if the compiler's errors show which bugs do not compile.
func Build(ctx context.Context, root, pkg string, bugs []Bug, binary string, flags ...string) error {
	dir, err := os.MkdirTemp("", "plant")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover temporary folder does no harm
	root, err = filepath.Abs(root)
	if err != nil {
		return err
	}
	files := map[string][]int{}
	for i, b := range bugs {
		files[b.File] = append(files[b.File], i)
	}
	replace := map[string]string{}
	lines := map[string][]int{} // by file, then by line: the bug of the line, or -1; a compiler error names its line
	write := func(name, text string, owner []int) {
		broken := filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), path.Base(name)))
		err = errors.Join(err, os.WriteFile(broken, []byte(text), 0o600))
		replace[filepath.Join(root, name)] = broken
		lines[filepath.Base(broken)] = owner
	}
	packages := map[string]string{} // by folder: its package
	for name, planted := range files {
		source, e := os.ReadFile(filepath.Join(root, name))
		if e != nil {
			return e
		}
		text, e := plantAll(string(source), bugs, planted)
		if e != nil {
			return e
		}
		write(name, text.String(), text.owner)
		packages[path.Dir(name)] = text.pkg
	}
	for dir, name := range packages {
		write(path.Join(dir, switchFile), fmt.Sprintf(switchSource, name), nil)
	}
	description, e := json.Marshal(map[string]any{"Replace": replace})
	overlay := filepath.Join(dir, "overlay.json")
	if err = errors.Join(err, e, os.WriteFile(overlay, description, 0o600)); err != nil {
		return err
	}
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary}, flags...)
	for _, dir := range slices.Sorted(maps.Keys(packages)) { // other packages are compiled as usual, and come from the build cache
		args = append(args, "-gcflags="+path.Join(Module, dir)+"=-e")
	}
	build := exec.CommandContext(ctx, "go", append(args, ".")...)
	build.Dir = pkg
	build.Env = append(os.Environ(), "GOWORK=off") // every module must build without the workspace
	text, err := build.CombinedOutput()
	if err == nil {
		return nil
	}
	if broken := blame(string(text), lines); len(broken) > 0 {
		return &CompileError{broken, string(text)}
	}
	return fmt.Errorf("%w: %s", err, text)
}

// Module is the import path of the root package.
const Module = "github.com/seed-c794f7ef/kahn"

var place = regexp.MustCompile(`(\d+_\w+\.go):(\d+):\d+: `)

// blame returns the bugs that do not compile: the compiler has found errors in their lines.
func blame(text string, lines map[string][]int) []int {
	var broken []int
	for _, m := range place.FindAllStringSubmatch(text, -1) {
		owner := lines[m[1]]
		if line, _ := strconv.Atoi(m[2]); line <= len(owner) && owner[line-1] >= 0 {
			broken = append(broken, owner[line-1])
		}
	}
	slices.Sort(broken)
	return slices.Compact(broken)
}

// Command returns a command that runs the binary in the folder of its package. The bug with the given index is switched on, or no bug if the index is
// negative. The process gets at most 12 GB of address space, since a bug may cause an endless loop that allocates. KAHN_LONG is empty in the
// environment of the process, because the tests must find the bugs even without this variable.
func Command(ctx context.Context, binary, pkg string, bug int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 12000000; exec "$0" "$@"`, binary}, args...)...)
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), "KAHN_LONG=", fmt.Sprintf("%s=%d", variable, bug+1))
	return cmd
}

// Sample chooses the bugs that are tried: a third of the bugs, or all of them if the environment variable KAHN_LONG is set. The contents of the files
// in which bugs are planted determine which third it is. So the sample of a commit is always the same, and a change of these files may lead to
// another sample.
func Sample(root string, bugs []Bug) (chosen []int, err error) {
	var files []string
	for _, b := range bugs {
		files = append(files, b.File)
	}
	slices.Sort(files)
	sum := fnv.New32a()
	for _, name := range slices.Compact(files) {
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		_, _ = sum.Write(source) // a hash cannot fail
	}
	first, step := int(sum.Sum32()%3), 3
	if os.Getenv("KAHN_LONG") != "" {
		first, step = 0, 1
	}
	for i := first; i < len(bugs); i += step {
		chosen = append(chosen, i)
	}
	return chosen, nil
}

// The type `text` is a file under construction. For each line, the field `owner` is the bug to which the line belongs, or -1.
type text struct {
	strings.Builder
	owner []int
	pkg   string
}

func (t *text) write(s string, owner int) {
	if len(t.owner) == 0 {
		t.owner = []int{-1}
	}
	t.WriteString(s)
	for range strings.Count(s, "\n") {
		t.owner[len(t.owner)-1] = max(t.owner[len(t.owner)-1], owner)
		t.owner = append(t.owner, owner)
	}
}

// For each bug of a function, plantAll copies the body of the function, puts the bug into the copy, and inserts the copy before the original body. If
// the bug is switched on, the copy runs instead of the original body. Since the copy is in the same function, its defer and return statements and its
// calls of recover have the usual effect.
func plantAll(source string, bugs []Bug, planted []int) (*text, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	out, done := &text{pkg: file.Name.Name}, 0
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	found := map[int]bool{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		open, end := offset(f.Body.Lbrace)+1, offset(f.Body.Rbrace)
		body := source[open:end]
		for _, i := range planted {
			b := bugs[i]
			if b.Func != "" && b.Func != FuncName(f) || b.Func == "" && !strings.Contains(body, b.Old) {
				continue
			}
			if b.Func == "" && strings.Count(source, b.Old) != 1 {
				return nil, fmt.Errorf("the text to replace must occur once in the file: %v", b)
			}
			at := Find(body, b.Old, b.Nth)
			if at < 0 {
				return nil, fmt.Errorf("the text to replace is not there: %v", b)
			}
			broken, err := ownLabels(body[:at]+b.New+body[at+len(b.Old):], strconv.Itoa(i))
			if err != nil {
				return nil, fmt.Errorf("%w: %v", err, b)
			}
			found[i] = true
			out.write(source[done:open], -1)
			done = open
			leave := ""
			if f.Type.Results == nil {
				leave = "return\n"
			}
			out.write(fmt.Sprintf("\nif plantedBug == %d {%s\n%s}\n", i+1, broken, leave), i)
		}
	}
	out.write(source[done:], -1)
	for _, i := range planted {
		if !found[i] {
			return nil, fmt.Errorf("no such function, or the text to replace is not within one: %v", bugs[i])
		}
	}
	return out, nil
}

// Find returns the index in the source at which the nth occurrence of the text begins. The first occurrence has the number 0. If there is no nth
// occurrence, Find returns -1.
func Find(source, text string, nth int) int {
	at := -1
	for ; nth >= 0; nth-- {
		next := strings.Index(source[at+1:], text)
		if next < 0 {
			return -1
		}
		at += 1 + next
	}
	return at
}

// FuncName returns the name of a function, or Type.Method for a method.
func FuncName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

// ownLabels adds a suffix to the labels of a body, since a function must not have the same label twice.
func ownLabels(body, suffix string) (string, error) {
	const before = "package p\nfunc f() {"
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", before+body+"}", parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var ends []int
	ast.Inspect(file, func(n ast.Node) bool {
		var label *ast.Ident
		switch n := n.(type) {
		case *ast.LabeledStmt:
			label = n.Label
		case *ast.BranchStmt:
			label = n.Label
		}
		if label != nil {
			ends = append(ends, fset.Position(label.End()).Offset-len(before))
		}
		return true
	})
	slices.Sort(ends)
	for _, at := range slices.Backward(ends) {
		body = body[:at] + "_" + suffix + body[at:]
	}
	return body, nil
}
