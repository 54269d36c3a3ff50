package rooms

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var draw = flag.Bool("draw", false, "write the drawing of the packages into ARCHITECTURE.md")

const module = "github.com/seed-c794f7ef/kahn"

// storeys lists the packages from the highest storey to the lowest. A package may import only packages of lower storeys. An entry includes the
// folders below the package, except folders that have their own entries.
var storeys = []struct{ name, packages string }{
	{"programs", "bench cmd/kahn examples verify"},
	{"pages", "inspector"},
	{"queues", "river schedule"},
	{"formats", "definition/yaml"},
	{"around the root", "bulk definition expression internal/sagas internal/trees kahntest metrics otel profile progress schema sse store/postgres store/sqlite storetest temporal trace typed"},
	{"the root", "kahn"},
	{"contracts", "store"},
	{"events", "event"},
	{"the machine", "machine"},
	{"signals", "reactive"},
	{"helpers", "internal"},
}

// storeyOf returns the listed package to which a folder belongs, and its storey, or -1 if there is none. The folder of the root is "kahn".
func storeyOf(dir string) (pkg string, storey int) {
	for ; dir != "."; dir = path.Dir(dir) {
		for i, s := range storeys {
			if slices.Contains(strings.Fields(s.packages), dir) {
				return dir, i
			}
		}
	}
	return "", -1
}

// imports maps each package to the packages that it imports.
type imports map[string]map[string]bool

// add records an import of a folder. It returns an error if the imported package is not on a lower storey.
func (im imports) add(dir, imported string) error {
	rest, own := strings.CutPrefix(imported, module)
	if !own || rest != "" && rest[0] != '/' {
		return nil
	}
	from, above := storeyOf(cmp.Or(dir, "kahn"))
	to, below := storeyOf(cmp.Or(strings.TrimPrefix(rest, "/"), "kahn"))
	switch {
	case above < 0:
		return fmt.Errorf("%s is in no storey", dir)
	case from == to:
		return nil
	case below <= above:
		return fmt.Errorf("%s imports %s, which is not below it", dir, imported)
	}
	if im[from] == nil {
		im[from] = map[string]bool{}
	}
	im[from][to] = true
	return nil
}

// leads reports whether a package imports another package, directly or through others.
func (im imports) leads(from, to string) bool {
	for via := range im[from] {
		if via == to || im.leads(via, to) {
			return true
		}
	}
	return false
}

// arrows returns the imports of a package, without imports that follow from others.
func (im imports) arrows(pkg string) string {
	direct := slices.Sorted(maps.Keys(im[pkg]))
	return strings.Join(slices.DeleteFunc(slices.Clone(direct), func(to string) bool {
		return slices.ContainsFunc(direct, func(via string) bool { return via != to && im.leads(via, to) })
	}), " ")
}

// drawing returns the packages as text: one line for the packages of a storey that have the same imports.
func (im imports) drawing() string {
	var b strings.Builder
	for _, s := range storeys {
		label, same, targets := s.name, map[string][]string{}, []string(nil)
		for _, pkg := range strings.Fields(s.packages) {
			to := im.arrows(pkg)
			if same[to] == nil {
				targets = append(targets, to)
			}
			same[to] = append(same[to], pkg)
		}
		for _, to := range targets {
			line := fmt.Sprintf("%-17s %s", label, strings.Join(same[to], " "))
			if to != "" {
				line += " -> " + to
			}
			b.WriteString(line + "\n")
			label = ""
		}
	}
	return b.String()
}

// readImports reads the imports of all packages, without the imports of tests.
func readImports(t *testing.T, root string) imports {
	im := imports{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); file != root && strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, goparser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if err := im.add(strings.TrimPrefix(filepath.ToSlash(dir), "."), imported); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		return nil
	})
	require.NoError(t, err)
	return im
}

// TestRoomsOfPackages compares the drawing of the packages in ARCHITECTURE.md with their imports, and checks that every import leads to a lower
// storey.
func TestRoomsOfPackages(t *testing.T) {
	t.Parallel()
	const file, before, after = "../../ARCHITECTURE.md", "```house\n", "```\n"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(text), before)
	require.True(t, ok, "there is no drawing")
	drawn, tail, ok := strings.Cut(rest, after)
	require.True(t, ok)
	drawing := readImports(t, "../..").drawing()
	if *draw {
		require.NoError(t, os.WriteFile(file, []byte(head+before+drawing+after+tail), 0o644))
		return
	}
	require.Equal(t, drawing, drawn, "go test ./internal/rooms -draw writes it anew")
}

// folderOf returns the folder of a listed package.
func folderOf(pkg string) string {
	if pkg == "kahn" {
		return ""
	}
	return pkg
}

// An import of a package that is not on a lower storey is refused.
func TestStoreys(t *testing.T) {
	t.Parallel()
	allowed, refused := 0, 0
	for i, above := range storeys {
		for _, from := range strings.Fields(above.packages) {
			for j, below := range storeys {
				for _, to := range strings.Fields(below.packages) {
					err := imports{}.add(folderOf(from), strings.TrimSuffix(module+"/"+folderOf(to), "/"))
					if from == to || j > i {
						require.NoError(t, err, "%s imports %s", from, to)
						allowed++
					} else {
						require.Error(t, err, "%s imports %s", from, to)
						refused++
					}
				}
			}
		}
	}
	require.Greater(t, min(allowed, refused), 50)
	require.Error(t, imports{}.add("attic", module+"/machine"), "a package of no storey")
	require.NoError(t, imports{}.add("machine", "fmt"))
	require.NoError(t, imports{}.add("machine", module+"ish/machine"), "another module")
}

// TestFamilies compares the table of families in ARCHITECTURE.md with the rooms: its patterns match every file exactly once.
func TestFamilies(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "## Families of the root")
	require.True(t, ok, "there is no table")
	table, _, _ = strings.Cut(table, "\n`internal/rooms`")
	var patterns []string
	for _, found := range regexp.MustCompile("`([a-z_]+\\*?\\.go)`").FindAllStringSubmatch(table, -1) {
		patterns = append(patterns, found[1])
	}
	files, err := filepath.Glob("../../*.go")
	require.NoError(t, err)
	used := map[string]bool{}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "doc.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		var in []string
		for _, pattern := range patterns {
			if ok, _ := filepath.Match(pattern, name); ok {
				in = append(in, pattern)
				used[pattern] = true
			}
		}
		if len(in) != 1 {
			t.Errorf("%s is in the families %v, not in one", name, in)
		}
	}
	for _, pattern := range patterns {
		if !used[pattern] {
			t.Errorf("no file is %s", pattern)
		}
	}
}

// TestArchitectureIsShort bounds the length of the page and of its tables.
func TestArchitectureIsShort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	require.Less(t, len(lines), 160)
	for _, line := range lines {
		if strings.HasPrefix(line, "|") {
			for cell := range strings.SplitSeq(line, "|") {
				require.LessOrEqual(t, len(cell), 200, cell)
			}
		}
	}
}

// goroutines lists the files of the root that contain go statements, with their tasks. Each goroutine ends with its task. Timers also call their
// functions on goroutines.
var goroutines = map[string]string{
	"run_worker.go":     "workers",
	"run_compensate.go": "attempts to undo a node",
	"run_order.go":      "workers whose results were put off",
	"events.go":         "the feeding of sinks",
	"signal.go":         "the effects of an observed Run",
	"middleware.go":     "the functions that Around has returned",
	"durable.go":        "the committer",
	"durable_commit.go": "the committer, again",
	"inbox.go":          "the taking of posted requests",
	"runner.go":         "the launcher of pending runs, and the beginning of those with Around",
	"runner_pool.go":    "the calls of runs whose turn for a shared slot has come",
	"runner_shared.go":  "the requests for grants, as long as there are any",
	"serve.go":          "the start of a run of a store, and the wait for its end",
}

func TestGoroutines(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../*.go")
	require.NoError(t, err)
	var start []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := goparser.ParseFile(token.NewFileSet(), file, nil, goparser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				start = append(start, filepath.Base(file))
			}
			return true
		})
	}
	require.ElementsMatch(t, slices.Compact(start), slices.Collect(maps.Keys(goroutines)))
}
