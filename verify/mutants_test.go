package verify

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/plant"
)

// mutant is a bug that is planted in kahn to check whether the tests find it.
type mutant struct {
	area string
	name string
	file string // in the root package
	old  string // occurs exactly once in the file
	new  string
	// larger means that the bug has an effect only with more than three nodes, a port or a context, so TestSmallScope cannot find it.
	larger bool
}

// Each of these areas of the engine must have a planted bug.
var areas = []string{
	"join counts", "skip reason", "shielded edges", "side edges", "labels into the end", "run status", "class of an aborted node",
}

// engineMutants are bugs planted in the files that implement the semantics, at least one for each area. They are separate from surfaceMutants
// because the author of the model did not read these files.
var engineMutants = []mutant{
	{
		area: "join counts", name: "AtLeast counts what is not satisfied", file: "machine/state_settle.go",
		old: "x.s++", new: "x.other++",
	},
	{
		area: "join counts", name: "AtLeast wants one more", file: "machine/join.go",
		old: "case c.s >= k:", new: "case c.s > k:",
	},
	{
		area: "join counts", name: "an early rule does not wait for its required ports", file: "machine/join.go",
		old: "case seen&rule.early != 0 && !c.portOpen:", new: "case seen&rule.early != 0:", larger: true,
	},
	{
		area: "skip reason", name: "the first edge is to blame, dead or not", file: "machine/state_settle.go",
		old: "if class == seenX {", new: "if class == seenX && firstN == noEdge {",
	},
	{
		area: "skip reason", name: "a branch not taken is a bypass", file: "machine/state_settle.go",
		old: "return seenN, w&WordBypass != 0", new: "return seenN, true",
	},
	{
		area: "shielded edges", name: "nothing is shielded", file: "machine/state_settle.go",
		old: "if a.is(edgeShielded) && !a.is(EdgeFailure) {", new: "if a.is(edgeShielded) && a.is(EdgeFailure) {",
	},
	{
		area: "shielded edges", name: "only direct predecessors of the boundary are shielded", file: "machine/net_shield.go",
		old: "if is {\n", larger: true,
		new: "if is && len(x.p.EdgesFrom(b, f)) > 0 {\n",
	},
	{
		area: "side edges", name: "data keep a node alive whose branch was not taken", file: "machine/state_settle.go",
		old: "(class == seenS || class == seenF && f.join == Boundary)", new: "class == seenF && f.join == Boundary",
	},
	{
		area: "side edges", name: "a boundary judges what failed beside its branch", file: "machine/state_settle.go",
		old: "(class == seenS || class == seenF && f.join == Boundary)", new: "class == seenS",
	},
	{
		area: "side edges", name: "success is a way out of a label", file: "machine/net_side.go",
		old: "counts &^= m.hangs", new: "counts &^= 0",
	},
	{
		area: "side edges", name: "an exit counts that leads to a router", file: "machine/net_side.go",
		old: "counts := m.above &^ b.leads[x]", new: "counts := m.above",
	},
	{
		area: "side edges", name: "an earlier way in counts whoever was asked", file: "machine/state_settle.go",
		old: "\tif asked {", new: "\tif asked && r < 0 {",
	},
	{
		area: "side edges", name: "defaults for a branch that was not taken", file: "machine/state_settle.go",
		old: "case d == decideSubstitute && side&seenF != 0", new: "case d == decideSubstitute && side&seenF > seenF",
	},
	{
		area: "side edges", name: "no defaults whatever the rule", file: "machine/state_settle.go",
		old: "side&seenF != 0 && f.join == AllSucceeded && rest", new: "side&seenF != 0 && rest",
	},
	{
		area: "side edges", name: "an always edge does not keep a node alive for its defaults", file: "machine/state_settle.go",
		old: "		default: // a routing edge, an edge that is another way in", new: "		case e.Flags&EdgeAlways != 0:\n		default: // a routing edge, an edge that is another way in", larger: true,
	},
	{
		area: "labels into the end", name: "they are no branches", file: "dag_compile.go", larger: true,
		old: "(to != c.end || e.On == OnSuccess && !e.DataOnly && isRouter(source))", new: "to != c.end",
	},
	{
		area: "run status", name: "stepping aside does not handle", file: "machine/state_status.go",
		old: "SkipKind(kindOf(t)) == SkipParentFailure) {", new: "SkipKind(kindOf(t)) == SkipSelf) {",
	},
	{
		area: "run status", name: "observers handle", file: "machine/state_status.go",
		old: "if a.is(EdgeData) || f.is(FlagObserver) {", new: "if a.is(EdgeData) {",
	},
	{
		area: "class of an aborted node", name: "one cancelled origin makes it a cancellation", file: "machine/state_status.go",
		old: "return !e.isData() && s.isF(e) && !requested[e.From]", new: "return !e.isData() && s.isF(e) && requested[e.From]",
	},
	{
		area: "class of an aborted node", name: "an aborted node is a failure whatever stopped it", file: "machine/state_status.go",
		old: "if s.cancelled == 0 {", new: "if s.cancelled >= 0 {",
	},
}

// surfaceMutants are bugs planted in the parts of kahn that the author of the model may know. They show that planting works.
var surfaceMutants = []mutant{
	{
		area: "options", name: "every status rule is StatusEscaped", file: "option.go",
		old: "c.statusRule = r", new: "c.statusRule = StatusEscaped", larger: true,
	},
	{
		area: "errors", name: "a call aborted outside is a failure", file: "errors.go",
		old: "f.external || e == ErrCallAborted", new: "f.external", larger: true,
	},
}

// TestPlantedBugsAreFound checks TestProperty and TestSmallScope: both must fail for every planted bug, and pass without a bug.
func TestPlantedBugsAreFound(t *testing.T) {
	plant.Wanted(t)
	mutants := slices.Concat(engineMutants, surfaceMutants)
	for _, area := range areas {
		planted := slices.ContainsFunc(mutants, func(m mutant) bool { return m.area == area })
		assert.True(t, planted, "no bug is planted in the area %q", area)
	}
	bugs := make([]plant.Bug, len(mutants))
	for i, m := range mutants {
		bugs[i] = plant.Bug{File: m.file, Old: m.old, New: m.new}
	}
	binary := filepath.Join(t.TempDir(), "verify.test")
	require.NoError(t, plant.Build(t.Context(), "..", ".", bugs, binary))
	sound := t.Run("control", func(t *testing.T) {
		for _, test := range []string{"TestProperty", "TestSmallScope"} {
			output, err := runPlanted(t, binary, -1, test)
			require.NoError(t, err, "%s fails without a planted bug:\n%s", test, output)
		}
	})
	if !sound {
		return // a test that fails without a bug proves nothing about the bugs
	}
	chosen, err := plant.Sample("..", bugs)
	require.NoError(t, err)
	for _, i := range chosen {
		m := mutants[i]
		t.Run(m.area+"/"+m.name, func(t *testing.T) {
			requireFound(t, binary, i, "TestProperty")
			if !m.larger {
				requireFound(t, binary, i, "TestSmallScope")
			}
		})
	}
}

// requireFound expects that the test reports a disagreement when the bug is switched on.
func requireFound(t *testing.T, binary string, bug int, test string) {
	output, err := runPlanted(t, binary, bug, test)
	require.Error(t, err, "%s passes with the bug planted:\n%s", test, output)
	require.Contains(t, output, "--- FAIL: "+test, "it is another failure than that of the test")
	require.Contains(t, output, disagreement, "it is another failure than that of the test")
}

// runPlanted runs one test with one bug switched on. A property is tried on a few hundred graphs, which are always the same.
func runPlanted(t *testing.T, binary string, bug int, test string) (output string, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	run := plant.Command(ctx, binary, ".", bug, "-test.run=^"+test+"$", "-test.timeout=1m",
		"-rapid.checks=400", "-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s")
	text, err := run.CombinedOutput()
	return string(text), err
}
