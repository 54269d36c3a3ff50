// Package rooms checks the dependencies between the files of the root package: which parts of the engine may use which. The compiler cannot check
// this.
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

// rooms maps the rooms of the root package to their files. A room is a group of files that belong together.
var rooms = map[string]string{
	"vocabulary": "status.go",
	"errors":     "errors.go",
	"rules":      "retry.go condition.go gate.go",
	"plan":       "dag.go dag_*.go",
	"features":   "merge.go contract.go map.go loop.go expand.go trigger.go",
	"step":       "step.go step_*.go view.go middleware.go memo.go",
	"run":        "run.go run_*.go executor.go coordinator.go coordinator_*.go",
	"events":     "events.go events_*.go",
	"snapshots":  "snapshot.go snapshot_*.go codec.go",
	"stores":     "store.go store_*.go durable.go durable_*.go inbox.go",
	"runner":     "runner.go runner_*.go serve.go history.go",
	"host":       "doc.go signal.go result.go option.go mock.go",
}

// wall says what a room may use: the listed rooms and, in other rooms, the listed names, each as "file.go:name", or all names of a file,
// "file.go:*".
type wall struct{ rooms, names string }

// walls lists the rooms that may not use all other rooms. Only the rooms run and runner may use all. The rooms from the steps to the stores
// depend on each other, since a run changes its steps, events, snapshots and store in one critical section. The walls of these rooms list the
// names of the stores and of the runner that the rooms use, since most runs have neither a store nor a runner.
var walls = map[string]wall{
	"vocabulary": {},
	"errors":     {"vocabulary", "result.go:Request store.go:ErrRejected expand.go:expandError map.go:MapError gate.go:suspendError"},
	"rules": {"vocabulary errors plan", `contract.go:Contract contract.go:contract contract.go:phaseCount contract.go:judgeAnswer contract.go:refusalText signal.go:causeCount signal.go:factOnce option.go:config option.go:onSuspend merge.go:isNull run_conclude.go:hint
		view.go:View view.go:base view.go:blind view.go:notAncestor view.go:sees`},
	"plan": {"vocabulary errors rules", `contract.go:Contract contract.go:isContract contract.go:phaseCount
		contract.go:schemaCompiler merge.go:Contribution merge.go:MergeArray merge.go:MergeConcat merge.go:MergeLast merge.go:MergeObject merge.go:builtinMerge
		signal.go:* mock.go:double step.go:Step step.go:StepFunc view.go:View view.go:everyNode
		loop.go:Loop loop.go:While loop.go:Until loop.go:UntilExpr loop.go:Pause loop.go:check loop.go:again
		map.go:Map map.go:Over map.go:Key map.go:Estimate map.go:check map.go:sub map.go:item map.go:itemNode
		map.go:inputIndex map.go:inputItem map.go:inputIteration map.go:inputPrevious
		contract.go:Moderation contract.go:ModerateNone contract.go:covers contract.go:moderationCount contract.go:moderationNames
		merge.go:ports merge.go:newPorts merge.go:has merge.go:isNull
		trigger.go:checkTrigger trigger.go:force trigger.go:prunes trigger.go:source`},
	"features": {"vocabulary errors rules plan step run events snapshots host", `durable.go:outdate durable.go:outdated durable.go:place
		durable.go:ref durable.go:run durable_load.go:setKeys durable_load.go:key durable_load.go:takenBack durable_load.go:takeBackInside durable_load.go:takeBackMore
		inbox.go:afterAsStored
		store.go:causeOfKeep store.go:keep`},
	"step": {"vocabulary errors rules plan features run events snapshots host", "durable.go:lease durable.go:place runner.go:canonicalBut"},
	"events": {"vocabulary errors rules plan features step run snapshots host", `durable_commit.go:noteDelta
		durable_commit.go:add durable_commit.go:show durable_commit.go:told durable.go:inTurn runner.go:Run`},
	"snapshots": {"vocabulary errors rules plan features step run events host", `durable.go:deltas durable.go:forked durable.go:kept durable.go:outdated durable.go:place durable.go:undone durable_commit.go:takeUndos
		durable_load.go:holdStored durable_load.go:holdAnswers durable_load.go:keptEpoch durable_load.go:takeBack durable_load.go:takenBack durable_load.go:keep store_adopt.go:adopt
		durable.go:isUntold inbox.go:afterAsStored history.go:estimates`},
	"stores": {"vocabulary errors rules plan features step run events snapshots host", "runner.go:ErrDuplicateRun"},
	"host": {"vocabulary errors rules plan features step run events snapshots", `store_adopt.go:Adoption durable_lost.go:leftError durable.go:room
		store.go:defaultLeaseTime history.go:History runner.go:IdempotencyStore runner.go:Runner runner_pool.go:pool
		runner_pool.go:setup runner.go:given`},
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

// arrows returns the forbidden uses, as "a.go uses name of b.go", in order. let contains the used names that walls allow, each as "room
// file.go:name".
func arrows(fset *token.FileSet, files []*ast.File) (forbidden []string, let map[string]bool) {
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: nothing{}, Error: func(error) {}} // other packages are ignored
	pkg, _ := config.Check("kahn", fset, files, &info)
	name := func(p token.Pos) string { return filepath.Base(fset.Position(p).Filename) }
	found := map[string]bool{}
	let = map[string]bool{}
	for id, object := range info.Uses {
		from, to := name(id.Pos()), name(object.Pos())
		room := roomOf(from)
		wall, ok := walls[room]
		if !ok || object.Pkg() != pkg || room == roomOf(to) || slices.Contains(strings.Fields(wall.rooms), roomOf(to)) {
			continue
		}
		names := strings.Fields(wall.names)
		for _, allowed := range []string{to + ":*", to + ":" + object.Name()} {
			if ok = slices.Contains(names, allowed); ok {
				let[room+" "+allowed] = true
				break
			}
		}
		if !ok {
			found[fmt.Sprintf("%s uses %s of %s", from, object.Name(), to)] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), let
}

// nothing is an importer that imports no package.
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
	forbidden, let := arrows(fset, files)
	for _, arrow := range forbidden {
		t.Error(arrow)
	}
	for room, wall := range walls {
		for _, name := range strings.Fields(wall.names) {
			if !let[room+" "+name] {
				t.Errorf("the wall of room %s lets %s through, which no file of the room uses", room, name)
			}
		}
	}
}

// anyFile returns a file of a room.
func anyFile(room string) string {
	return strings.ReplaceAll(strings.Fields(rooms[room])[0], "*", "planted")
}

// planted returns the forbidden uses in a file that uses a name of another file.
func planted(t *testing.T, in, from, name string) []string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for file, text := range map[string]string{in: "func f(x *" + name + ") {}", from: "type " + name + " struct{}"} {
		parsed, err := goparser.ParseFile(fset, file, "package kahn\n"+text, goparser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, parsed)
	}
	forbidden, _ := arrows(fset, files)
	return forbidden
}

// TestWalls plants, in each room, a use of each other room. Exactly the uses that a wall forbids must be found.
func TestWalls(t *testing.T) {
	t.Parallel()
	held := 0
	for in := range rooms {
		for from := range rooms {
			if in == from {
				continue
			}
			found := planted(t, anyFile(in), anyFile(from), "Planted")
			wall, walled := walls[in]
			if !walled || slices.Contains(strings.Fields(wall.rooms), from) {
				require.Empty(t, found, "%s in %s", from, in)
				continue
			}
			held++
			require.Equal(t, []string{fmt.Sprintf("%s uses Planted of %s", anyFile(in), anyFile(from))}, found)
		}
	}
	require.Greater(t, held, 40)
	require.Empty(t, planted(t, "dag_plan.go", "view.go", "View"), "a name that the wall lets through")
	require.NotEmpty(t, planted(t, "dag_plan.go", "view.go", "Sight"), "another name of the same file")
	require.Empty(t, roomOf("engine.go"), "a file without a room")
}
