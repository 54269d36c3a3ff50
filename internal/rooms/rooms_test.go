// Package rooms checks the dependencies between the files of the root package: which parts of the engine may use which. The
// compiler cannot check that.
package rooms

import (
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms are the rooms of the root package, each with its files.
var rooms = map[string]string{
	"plan":      "dag.go dag_*.go",
	"said":      "retry.go rate.go merge.go ports.go condition.go guard.go contract.go moderation.go map.go items.go loop.go trigger.go gate.go gate_choice.go suspend.go expand.go",
	"seen":      "step.go step_*.go view.go typed.go mux.go middleware.go memo.go",
	"run":       "run.go run_*.go executor.go",
	"events":    "events_*.go profile.go",
	"elsewhere": "snapshot.go snapshot_*.go codec.go store.go store_*.go durable.go durable_*.go",
	"runs":      "runner.go runner_*.go idempotency.go history.go",
	"out":       "doc.go machine.go vocabulary.go enum.go result.go reason.go errors.go option.go request.go mock.go mock_*.go",
}

// wall tells what a room may use: whole rooms, and beyond these single names, "file.go:name", or all names of a file, "file.go:*".
type wall struct{ rooms, names string }

// walls are the rooms that may not use everything. The run, and what is above it, may.
var walls = map[string]wall{
	"plan": {"plan said", `errors.go:* vocabulary.go:* machine.go:* enum.go:*
		step.go:StepFunc step.go:FallbackFunc view.go:View view.go:everyNode mock.go:double`},
}

// roomOf returns the room of a file.
func roomOf(file string) string {
	for room, patterns := range rooms {
		for _, pattern := range strings.Fields(patterns) {
			if ok, _ := filepath.Match(pattern, file); ok {
				return room
			}
		}
	}
	return ""
}

// arrows returns the forbidden uses in files of a room with walls: "file.go name", in order.
func arrows(fset *token.FileSet, files []*ast.File) []string {
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: nothing{}, Error: func(error) {}} // other packages are not looked at
	pkg, _ := config.Check("kahn", fset, files, &info)
	name := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	found := map[string]bool{}
	for id, object := range info.Uses {
		from, to := name(id.Pos()), name(object.Pos())
		wall, ok := walls[roomOf(from)]
		if !ok || object.Pkg() != pkg || slices.Contains(strings.Fields(wall.rooms), roomOf(to)) {
			continue
		}
		if names := strings.Fields(wall.names); !slices.Contains(names, to+":*") && !slices.Contains(names, to+":"+object.Name()) {
			found[fmt.Sprintf("%s uses %s of %s", from, object.Name(), to)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// nothing imports no package.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	return nil, fmt.Errorf("%s is not looked at", path)
}

func TestRooms(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	names, err := filepath.Glob("../../*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if roomOf(filepath.Base(name)) == "" {
			t.Errorf("%s is in no room", name)
		}
		file, err := goparser.ParseFile(fset, name, nil, goparser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	for _, arrow := range arrows(fset, files) {
		t.Error(arrow)
	}
}

// TestWalls plants a use of a higher room in each room that has walls.
func TestWalls(t *testing.T) {
	t.Parallel()
	for planted, want := range map[string]string{
		"dag_add.go":  "dag_add.go uses Run of run.go",
		"dag_hash.go": "dag_hash.go uses Run of run.go",
		"run_add.go":  "",
		"snapshot.go": "",
	} {
		fset := token.NewFileSet()
		var files []*ast.File
		for name, text := range map[string]string{planted: "func f(r *Run) {}", "run.go": "type Run struct{}", "errors.go": "var ErrBadValue error"} {
			file, err := goparser.ParseFile(fset, name, "package kahn\n"+text, goparser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
		found := arrows(fset, files)
		if want == "" {
			require.Empty(t, found)
		} else {
			require.Equal(t, []string{want}, found)
		}
	}
	require.Empty(t, roomOf("engine.go"), "a file without a room")
}
