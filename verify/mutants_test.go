package verify

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mutant is a bug that is planted in kahn to see whether TestProperty finds it.
type mutant struct {
	area string
	name string
	file string // in the root package
	old  string // occurs exactly once in the file
	new  string
}

// Each of these areas of the engine must have a planted bug.
var areas = []string{"join counts", "skip reason", "shielded edges", "run status", "class of an aborted node"}

// engineMutants are the bugs planted in what implements the semantics, at least one for each area. They stand apart
// because who writes the model does not look into these files.
var engineMutants = []mutant{
	{
		area: "join counts", name: "AtLeast counts what is not satisfied", file: "settle.go",
		old: "s.wide[f.wide].s++", new: "s.wide[f.wide].other++",
	},
	{
		area: "join counts", name: "AtLeast wants one more", file: "join.go",
		old: "case c.s >= k:", new: "case c.s > k:",
	},
	{
		area: "join counts", name: "an early rule does not wait for its required ports", file: "join.go",
		old: "return satisfied && (done || !c.portOpen)", new: "return satisfied",
	},
	{
		area: "skip reason", name: "the first edge is to blame, dead or not", file: "settle.go",
		old: "if class == seenX {", new: "if class == seenX && firstN == noEdge {",
	},
	{
		area: "skip reason", name: "a branch not taken is a bypass", file: "settle.go",
		old: "return seenN, w&wordBypass != 0", new: "return seenN, true",
	},
	{
		area: "shielded edges", name: "nothing is shielded", file: "settle.go",
		old: "if a.is(arcShielded) && !a.is(arcFailure) {", new: "if a.is(arcShielded) && a.is(arcFailure) {",
	},
	{
		area: "shielded edges", name: "only direct predecessors of the boundary are shielded", file: "layout.go",
		old: "if from := p.edges[i].from; from >= lowest && visited[from] != b+1 {",
		new: "if from := p.edges[i].from; at == b && visited[from] != b+1 {",
	},
	{
		area: "run status", name: "stepping aside does not handle", file: "runstatus.go",
		old: "SkipKind(kindOf(t)) == SkipParentFailure) {", new: "SkipKind(kindOf(t)) == SkipSelf) {",
	},
	{
		area: "run status", name: "observers handle", file: "runstatus.go",
		old: "if a.is(arcData) || f.is(factObserver) {", new: "if a.is(arcData) {",
	},
	{
		area: "class of an aborted node", name: "one cancelled origin makes it a cancellation", file: "runstatus.go",
		old: "return !e.DataOnly && s.isF(e) && !requested[e.from]", new: "return !e.DataOnly && s.isF(e) && requested[e.from]",
	},
	{
		area: "class of an aborted node", name: "an aborted node is a failure whatever stopped it", file: "runstatus.go",
		old: "if s.cancelled == 0 {", new: "if s.cancelled >= 0 {",
	},
}

// surfaceMutants are planted in the parts of kahn that the author of the model may know. They show that the mechanism
// works.
var surfaceMutants = []mutant{
	{
		area: "options", name: "every status rule is StatusEscaped", file: "option.go",
		old: "c.statusRule = r", new: "c.statusRule = StatusEscaped",
	},
	{
		area: "errors", name: "a call aborted outside is a failure", file: "errors.go",
		old: "f.external || e == ErrCallAborted", new: "f.external",
	},
}

// TestPlantedBugsAreFound is the negative control of TestProperty: it must fail for every planted bug, and pass without.
func TestPlantedBugsAreFound(t *testing.T) {
	mutants := slices.Concat(engineMutants, surfaceMutants)
	for _, area := range areas {
		planted := slices.ContainsFunc(mutants, func(m mutant) bool { return m.area == area })
		assert.True(t, planted, "no bug is planted in the area %q", area)
	}
	sound := t.Run("control", func(t *testing.T) {
		output, err := runProperty(t, nil)
		require.NoError(t, err, "TestProperty fails without a planted bug:\n%s", output)
	})
	if !sound {
		return // it would fail with any bug, found or not
	}
	for _, m := range mutants {
		t.Run(m.area+"/"+m.name, func(t *testing.T) {
			output, err := runProperty(t, &m)
			require.Error(t, err, "TestProperty passes with the bug planted:\n%s", output)
			require.Contains(t, output, "--- FAIL: TestProperty", "it is another failure than that of the property")
			require.Contains(t, output, disagreement, "it is another failure than that of the property")
		})
	}
}

// runProperty builds the tests with the bug planted and runs the property on a few hundred graphs, always the same ones.
func runProperty(t *testing.T, m *mutant) (output string, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "property.test")
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", binary}
	if m != nil {
		args = append(args, "-overlay", m.overlay(t, dir))
	}
	build := exec.CommandContext(ctx, "go", append(args, ".")...)
	build.Env = append(os.Environ(), "GOWORK=off") // the module must build by itself
	text, err := build.CombinedOutput()
	require.NoError(t, err, "a planted bug has to compile: %s", text)
	run := exec.CommandContext(ctx, binary, "-test.run=^TestProperty$", "-test.timeout=1m",
		"-rapid.checks=400", "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s")
	text, err = run.CombinedOutput()
	return string(text), err
}

// overlay writes the broken copy of the file, and the description by which the go command takes it for the original.
func (m *mutant) overlay(t *testing.T, dir string) string {
	original, err := filepath.Abs(filepath.Join("..", m.file))
	require.NoError(t, err)
	source, err := os.ReadFile(original)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), m.old), "the text to replace must occur once in %s: %s", m.file, m.old)
	require.NotEqual(t, m.old, m.new)
	broken := filepath.Join(dir, filepath.Base(m.file))
	require.NoError(t, os.WriteFile(broken, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600))
	description, err := json.Marshal(map[string]any{"Replace": map[string]string{original: broken}})
	require.NoError(t, err)
	file := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(file, description, 0o600))
	return file
}
