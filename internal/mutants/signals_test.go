package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// signalBug is a bug in the reactive layer, with the lines of the layer's conformance list that the bug must break. The lines are the numbers
// with which the names of subtests begin. Every line has at least one bug.
type signalBug struct {
	lines []int
	name  string
	file  string
	old   string // occurs exactly once in the file
	new   string
}

const lastLine = 72

var signalBugs = []signalBug{
	{
		lines: []int{1, 60}, name: "a commit stays behind", file: "reactive/scope.go",
		old: `sc.committed.Store(sc.clock)`,
		new: `sc.committed.Store(sc.clock - 1)`,
	},
	{
		lines: []int{2}, name: "an equal write is a change", file: "reactive/signal.go",
		old: "\tif v.equal(v.cell.current(), x) {\n",
		new: "\tif false {\n",
	},
	{
		lines: []int{3}, name: "the equality is not heeded", file: "reactive/signal.go",
		old: `v.scope, v.equal = sc, equal`,
		new: `v.scope, v.equal = sc, func(a, b T) bool { return false }`,
	},
	{
		lines: []int{4}, name: "Peek tracks", file: "reactive/signal.go",
		old: "\tv.scope.prove(r)\n\treturn v.cell.current()",
		new: "\tv.scope.prove(r)\n\tv.scope.track(&v.node)\n\treturn v.cell.current()",
	},
	{
		lines: []int{5}, name: "watched and unwatched are exchanged", file: "reactive/scope.go",
		old: "\t\tif on {\n",
		new: "\t\tif !on {\n",
	},
	{
		lines: []int{6}, name: "a gap in the list of subscribers", file: "reactive/depend.go",
		old: `l.prevSub.nextSub = l.nextSub`,
		new: `l.prevSub.nextSub = nil`,
	},
	{
		lines: []int{7}, name: "Subscribe does not subscribe", file: "reactive/signal.go",
		old: "\t\tx := v.Get(w)\n",
		new: "\t\tx := v.Peek(w)\n",
	},
	{
		lines: []int{8}, name: "the callback of Subscribe is tracked", file: "reactive/signal.go",
		old: `Untracked(w, func(w Writer) { f(w, x) })`,
		new: `f(w, x)`,
	},
	{
		lines: []int{9}, name: "evaluated when made", file: "reactive/computed.go",
		old: "\tc.scope, c.computed = sc, c\n",
		new: "\tc.scope, c.computed = sc, c\n\tc.refresh()\n",
	},
	{
		lines: []int{10, 11, 12, 13, 14}, name: "evaluated twice", file: "reactive/depend.go",
		old: "\t\t\tfailed = n\n",
		new: "\t\t\tfailed = n\n\t\t\tn.computed.evaluate()\n",
	},
	{
		lines: []int{15, 18, 27, 28}, name: "dependencies are not brought up to date", file: "reactive/depend.go",
		old: `if source.flags&(flagComputed|flagRunning) == flagComputed && !source`,
		new: `if false && !source`,
	},
	{
		lines: []int{16, 19}, name: "no cut-off", file: "reactive/computed.go",
		old: `if c.flags&flagMade == 0 || c.err != nil || !c.equal(c.value, x) {`,
		new: `if true || !c.equal(c.value, x) {`,
	},
	{
		lines: []int{17}, name: "only the first dependency is checked", file: "reactive/depend.go",
		old: `!changed; l = l.nextDep`,
		new: `!changed; l = nil`,
	},
	{
		lines: []int{20}, name: "dropped dependencies stay subscribed", file: "reactive/depend.go",
		old: "\t\tn.scope.detach(rest)\n",
		new: "\t\t_ = rest\n",
	},
	{
		lines: []int{21, 22}, name: "all dependencies are checked", file: "reactive/depend.go",
		old: `for ; l != nil && !changed; l`,
		new: `for ; l != nil; l`,
	},
	{
		lines: []int{23, 24, 33}, name: "unobserved counts as up to date", file: "reactive/depend.go",
		old: `	return n.flags&flagValue != 0 && n.valid == n.scope.clock`,
		new: `	return n.flags&flagValue != 0`,
	},
	{
		lines: []int{25, 26}, name: "a list keeps what is done", file: "reactive/depend.go",
		old: "\tbase, l := len(sc.stack), n.deps\n",
		new: "\tbase, l := len(sc.stack), n.deps\n\tsc.hooks = append(sc.hooks[:0], n)[:0]\n",
	},
	{
		lines: []int{29}, name: "zero is not a value", file: "reactive/computed.go",
		old: `if c.flags&flagMade == 0 || c.err`,
		new: `if c.err`,
	},
	{
		lines: []int{30, 31}, name: "a cycle is another error", file: "reactive/computed.go",
		old: `panic(&misuse{ErrCycle,`,
		new: `panic(&misuse{ErrTracker,`,
	},
	{
		lines: []int{32}, name: "a cycle ends the tracking", file: "reactive/computed.go",
		old: "\tif c.flags&flagRunning != 0 {\n",
		new: "\tif c.flags&flagRunning != 0 {\n\t\tc.mute++\n",
	},
	{
		lines: []int{34}, name: "an error is wrapped each time", file: "reactive/scope.go",
		old: "\tcase *PanicError:\n\t\treturn v\n",
		new: "\tcase *PanicError:\n\t\treturn foreign.NewPanicError(v.Error())\n",
	},
	{
		lines: []int{35}, name: "Try hides the error", file: "reactive/computed.go",
		old: "return c.value, c.err",
		new: "return c.value, nil",
	},
	{
		lines: []int{36}, name: "an error forgets its dependencies", file: "reactive/computed.go",
		old: "\tc.err = err\n",
		new: "\tc.lastDep = nil\n\tc.err = err\n",
	},
	{
		lines: []int{37}, name: "a computed may write", file: "reactive/scope.go",
		old: "\tif sc.active.computed != nil {\n",
		new: "\tif false {\n",
	},
	{
		lines: []int{38}, name: "Goexit stops the others", file: "reactive/scope.go",
		old: "\t\t\tif goexit {\n",
		new: "\t\t\tif goexit && false {\n",
	},
	{
		lines: []int{39}, name: "the first run waits", file: "reactive/effect.go",
		old: "\tif err := e.run(); err != nil {\n\t\treturn nil, err\n\t}\n\tok = true",
		new: "\te.flags |= flagNotified\n\tsc.queue = append(sc.queue, e)\n\te.deps = &link{source: &sc.batch, version: 1}\n\tok = true",
	},
	{
		lines: []int{40, 47, 64}, name: "effects run at each write", file: "reactive/signal.go",
		old: "\t\tv.scope.notify(&v.node)\n",
		new: "\t\tv.scope.notify(&v.node)\n\t\tfor _, e := range v.scope.queue[v.scope.head:] {\n\t\t\te.rerun()\n\t\t}\n",
	},
	{
		lines: []int{41}, name: "no cleanup before a run", file: "reactive/effect.go",
		old: `if failed := e.clear(); failed || e.doomed.Load() {`,
		new: `if e.doomed.Load() {`,
	},
	{
		lines: []int{42, 43}, name: "no cleanup at the end", file: "reactive/effect.go",
		old: "\te.clear()\n\te.quit()\n",
		new: "\te.dropChildren()\n\te.quit()\n",
	},
	{
		lines: []int{44}, name: "what is disposed of stays subscribed", file: "reactive/effect.go",
		old: "\t\te.scope.detach(l)\n",
		new: "\t\t_ = l\n",
	},
	{
		lines: []int{45}, name: "a cleanup's Dispose does not keep the body from running", file: "reactive/effect.go",
		old: `failed || e.doomed.Load()`,
		new: `failed`,
	},
	{
		lines: []int{46}, name: "a notified effect runs in any case", file: "reactive/effect.go",
		old: "\t\tif l.version != l.source.version {\n\t\t\treturn true\n\t\t}\n\t}\n\treturn false",
		new: "\t\tif l.version != l.source.version {\n\t\t\treturn true\n\t\t}\n\t}\n\treturn true",
	},
	{
		lines: []int{48}, name: "a failed first run stays", file: "reactive/effect.go",
		old: "\t\tif !ok {\n\t\t\te.tearDown()\n",
		new: "\t\tif !ok && false {\n\t\t\te.tearDown()\n",
	},
	{
		lines: []int{49}, name: "a failed run is not cleaned up", file: "reactive/effect.go",
		old: "\te.end(outer)\n\te.clear()\n",
		new: "\te.end(outer)\n",
	},
	{
		lines: []int{50}, name: "a failed cleanup is passed over", file: "reactive/effect.go",
		old: `if failed := e.clear(); failed || e.doomed.Load() {`,
		new: `if e.clear(); e.doomed.Load() {`,
	},
	{
		lines: []int{51}, name: "a lower cap", file: "reactive/effect.go",
		old: `e.reruns > maxRounds`,
		new: `e.reruns > 5`,
	},
	{
		lines: []int{52}, name: "a higher cap", file: "reactive/effect.go",
		old: `e.reruns > maxRounds`,
		new: `e.reruns > 1000`,
	},
	{
		lines: []int{53}, name: "Dispose does not mark", file: "reactive/effect.go",
		old: "\tsc := e.scope\n\te.doomed.Store(true)\n",
		new: "\tsc := e.scope\n",
	},
	{
		lines: []int{54}, name: "a child reads for its parent", file: "reactive/depend.go",
		old: "\touter, sc.active = sc.active, n\n",
		new: "\tif outer = sc.active; outer == nil || outer.effect == nil {\n\t\tsc.active = n\n\t}\n",
	},
	{
		lines: []int{55}, name: "cleaned up before its children", file: "reactive/effect.go",
		old: "\te.dropChildren()\n\tfor left :=",
		new: "\tdefer e.dropChildren()\n\tfor left :=",
	},
	{
		lines: []int{56}, name: "a nested batch flushes", file: "reactive/scope.go",
		old: "\t\tf(w)\n\t\treturn nil\n",
		new: "\t\tf(w)\n\t\tfor _, e := range sc.queue[sc.head:] {\n\t\t\te.rerun()\n\t\t}\n\t\treturn nil\n",
	},
	{
		lines: []int{57, 59}, name: "Get does not see the batch", file: "reactive/signal.go",
		old: "\tv.scope.track(&v.node)\n\treturn v.cell.current()",
		new: "\tv.scope.track(&v.node)\n\treturn v.Load()",
	},
	{
		lines: []int{58}, name: "nothing is ever reverted", file: "reactive/signal.go",
		old: `	if !v.same() {`,
		new: `	if v.same(); true {`,
	},
	{
		lines: []int{61}, name: "only the first error is told", file: "reactive/scope.go",
		old: `*err = errors.Join(append([]error{*err}, sc.errs...)...)`,
		new: `*err = errors.Join(*err, sc.errs[0])`,
	},
	{
		lines: []int{62}, name: "the queue is not rewound", file: "reactive/scope.go",
		old: `sc.queue, sc.head, sc.round = sc.queue[:0], 0, 0`,
		new: `sc.queue, sc.round = sc.queue[:0], 0`,
	},
	{
		lines: []int{63}, name: "Untracked does not end", file: "reactive/scope.go",
		old: "\tdefer func() { n.mute-- }()\n",
		new: ``,
	},
	{
		lines: []int{65}, name: "a write is seen at once", file: "reactive/signal.go",
		old: "\tv.version = sc.clock\n\treturn true\n",
		new: "\tv.version = sc.clock\n\tsc.committed.Store(sc.clock)\n\treturn true\n",
	},
	{
		lines: []int{66}, name: "a cancelled wait succeeds", file: "reactive/effect.go",
		old: `return x, context.Cause(ctx)`,
		new: `return x, nil`,
	},
	{
		lines: []int{67}, name: "Changes stays subscribed", file: "reactive/effect.go",
		old: "\t\tdefer e.Dispose()\n\t\tseen",
		new: `		seen`,
	},
	{
		lines: []int{68}, name: "trackers are good for ever", file: "reactive/scope.go",
		old: `n.scope != sc || n.flags&flagRunning == 0`,
		new: `n.scope != sc`,
	},
	{
		lines: []int{69}, name: "readiness is not told", file: "machine/state_observe.go",
		old: "\t\treactive.Publish(p, n.ready, v.ready)\n",
		new: ``,
	},
	{
		lines: []int{70}, name: "every start visits its edges", file: "machine/state_observe.go",
		old: `	if (was&wordFeeds != 0 || o.last != nil) &&`,
		new: `	if`,
	},
	{
		lines: []int{71}, name: "a count is not told", file: "machine/state_observe.go",
		old: `reactive.Publish(p, counter, o.counts[status])`,
		new: `reactive.Publish(p, counter, o.counts[status]-1)`,
	},
	{
		lines: []int{72}, name: "links are not reused", file: "reactive/depend.go",
		old: `	if next != nil && next.source == source {`,
		new: `	if false {`,
	},
}

var failedLine = regexp.MustCompile(`--- FAIL: Test\w+/(\d+)_`)

// The tests of the conformance list: in the reactive package, and for the State's signals in the root package.
const (
	reactiveTests = "^Test(Signals|Effects|SignalsFromManyGoroutines)$"
	observedTests = "^TestObservedState$"
)

func everySignalLineHasABug(t *testing.T) {
	for line := 1; line <= lastLine; line++ {
		planted := slices.ContainsFunc(signalBugs, func(b signalBug) bool { return slices.Contains(b.lines, line) })
		assert.True(t, planted, "no bug is planted for line %d", line)
	}
}

// within reports whether the bug is in the reactive package.
func (b signalBug) within() bool { return strings.HasPrefix(b.file, "reactive/") }

// mustBeFound runs the tests of the lines that the bug must break.
func (b signalBug) mustBeFound(t *testing.T, p planted, tests string, bug int) {
	for _, line := range b.lines {
		text, err := p.command(t, bug, "-test.timeout=20s", fmt.Sprintf("-test.run=%s/^%d_", tests, line)).CombinedOutput()
		assert.Error(t, err, "line %d passes", line)
		f := failedLine.FindSubmatch(text)
		assert.True(t, f != nil && string(f[1]) == fmt.Sprint(line), "line %d: it is another failure: %.500s", line, text)
	}
}

const program = `package main

import "github.com/seed-c794f7ef/kahn/reactive"

func main() {
	sc := new(reactive.Scope)
	s := reactive.NewSignal(sc, 1)
	reactive.NewComputed(sc, func(r reactive.Reader) int { return s.Get(r) })
	_, _ = reactive.NewEffect(sc, func(r reactive.Writer) { s.Set(r, 2) })
}
`

// TestComputedsDoNotWrite, line 37 of the list, checks that a program compiles, and that it does not compile if its computed writes instead of
// reads.
func TestComputedsDoNotWrite(t *testing.T) {
	build := func(source string) (string, error) {
		file := filepath.Join(t.TempDir(), "main.go")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		cmd := exec.Command("go", "build", "-o", os.DevNull, file)
		cmd.Dir = root
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	text, err := build(program)
	require.NoError(t, err, text)
	text, err = build(strings.Replace(program, "return s.Get(r)", "s.Set(r, 2); return 0", 1))
	require.Error(t, err)
	require.Contains(t, text, "does not implement reactive.Writer")
}
