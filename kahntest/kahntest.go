// Package kahntest helps to test graphs. Steps follow a script. One line of a test compares the statuses of all nodes, or the calls of all steps.
//
//	func TestRefund(t *testing.T) {
//		kahntest.InFakeTime(t, func(t *testing.T) {
//			steps := &kahntest.Script{Acts: map[string][]kahntest.Act{
//				"charge": {{Err: errBusy}, {Err: errDeclined}},
//			}}
//			r := kahntest.Run(t, order, steps.Step)
//			kahntest.RequireStatuses(t, r.Result, "charge:F ship:S/br refund:ok")
//			kahntest.RequireCalls(t, steps, "charge charge refund")
//		})
//	}
//
// The package needs no test framework besides package testing. To replace some nodes of a real workflow by mocks, use the option [kahn.TestMode].
//
// The exported names, by task, are:
//
//   - A run in a test: [Run] and [Trial]; [InFakeTime], where backoffs take no time; [Graph] and [Parse], for the notation below.
//   - Steps: [Script] with [Act] and [Call], [Recorder]; [RequireCalls].
//   - Statuses: [RequireStatuses], [CompareStatuses], [Statuses], [Status]; [Joined] returns what a join rule decides.
//   - Events: [CheckEvents] checks the rules of every stream. [Golden] compares a stream with a file, or writes the file if
//     [GoldenVariable] is set; [ByNode], [Stream].
//   - Crashes: [Crashes] and [CheckCrashes] test that a workflow recovers when its process dies at any write to the store; [Process].
//     [FakeStore] fails as a script says, see [StoreFault].
//   - Orders and failures: [Explore] and [CheckExplored] test that invariants hold in any order of steps and under any
//     failure; [Workflow], [ErrExplored].
//
// # Notation
//
// A graph is written as words, separated by spaces:
//
//	A            a node                     A>B          an edge
//	C-[x]>T      an edge of branch x; C is a condition whose label is its output
//	A-!>H        a catch edge, On failure   A-*>Z        an edge On always
//	A~>B         a data-only edge
//	X{opt,opt}   options of the node X, which another word names
//
// Nodes are declared in the order in which the text first names them, in an edge or alone. Edges are declared in the order in which the text names
// them. Options are a word of their own, as in "A>B B{any}". The options are:
//
//	any k2 done done1 1fail allfail nofail noskip allskip 1done bnd all    the join rule: AnySucceeded, AtLeast(2), AllDone,
//	             AllDoneMinOne, OneFailed, AllFailed, NoneFailed, NoneSkipped, AllSkipped, OneDone, Boundary, AllSucceeded
//	sat strict cascade                  the skip mode
//	up:skip up:prop up:def up:abort     the policy for failures upstream
//	handles observes                    the field Handling
//	cof          ContinueOnFail             off          Disabled
//	when:0       a guard that is false      when:1       a guard that is true
//	clean        Cleanup
//	end gate trigger                        the node's kind
//	req:A        a required port that the edge from A feeds
//
// The statuses are written as ok (completed), F (failed), X (aborted), C (cancelled) and S/reason (skipped). Any other status is written as its own
// name. The reasons are: ann (annotation), br (condition_branch), up (upstream_skipped), when (when_guard), null (null_propagation), pf
// (parent_failure), rule (rule_unsatisfied), self, superseded.
//
// These letters are for the statuses of nodes. In the argument of [Joined] and in the documentation of [kahn.Join], letters stand for the classes of
// edges: S (satisfied), N (neutral: the source was skipped), X (dead: the source's outcome selects other edges), F (failed).
package kahntest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"unicode"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// InFakeTime runs f in a bubble of package testing/synctest. Time stands still while any goroutine of the bubble runs. When all these goroutines
// wait, time jumps to the next timer, so backoffs and timeouts take no time. The test fails if a goroutine of the bubble is still blocked when f has
// returned.
func InFakeTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// Recorder records the events of a run. Pass its method Add to [kahn.OnEvent]. The zero value is ready for use.
type Recorder struct {
	mu     sync.Mutex
	events []event.Event
}

// Add records an event. It is a sink for [kahn.OnEvent].
func (r *Recorder) Add(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Events returns the events recorded so far.
func (r *Recorder) Events() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Trial is a run that has ended or is suspended, with its events.
type Trial struct {
	*kahn.Result
	Err    error
	Events []event.Event
}

// Run executes a graph under the context of the test, and checks the events of the run. Run fails the test if an event breaks a rule of
// [CheckEvents], if an assertion of [kahn.TestMode] fails, or if [Script.Check] returns an error for a [Script] of the run. If the run cannot begin,
// Run ends the test. If the run itself fails, the test continues, and the Trial's Err is the error of the run.
func Run(t testing.TB, g *kahn.Graph, step kahn.StepFunc, opts ...kahn.Option) *Trial {
	t.Helper()
	var rec Recorder
	var met scripts
	res, err := kahn.Execute(context.WithValue(t.Context(), scriptsKey{}, &met), g, step, append(slices.Clone(opts), kahn.OnEvent(rec.Add))...)
	if res == nil {
		t.Fatalf("the run was refused: %v", err)
	}
	events := rec.Events()
	if err := CheckEvents(g, res, events); err != nil {
		t.Errorf("events: %v\n%s", err, text(events))
	}
	if res.Test != nil {
		for _, failure := range res.Test.Failures {
			t.Error(failure)
		}
	}
	for _, script := range met.list {
		if err := script.Check(g); err != nil {
			t.Error(err)
		}
	}
	return &Trial{Result: res, Err: err, Events: events}
}

// The function `text` renders events, one per line.
func text(events []event.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintln(&b, "\t", e)
	}
	return b.String()
}

// Statuses renders the statuses of all nodes in declaration order, as in "A:ok B:F C:S/br". It omits nodes in composites.
func Statuses(res *kahn.Result) string {
	var words []string
	for n := range res.Nodes() {
		words = append(words, n.ID+":"+Status(n.Status, n.Skip.Kind))
	}
	return strings.Join(words, " ")
}

var statuses = map[kahn.Status]string{kahn.Completed: "ok", kahn.Failed: "F", kahn.Aborted: "X", kahn.Cancelled: "C"}

var reasons = map[machine.SkipKind]string{
	kahn.SkipAnnotation: "ann", kahn.SkipConditionBranch: "br", kahn.SkipUpstreamSkipped: "up", kahn.SkipWhenGuard: "when",
	kahn.SkipNullPropagation: "null", kahn.SkipParentFailure: "pf", kahn.SkipRuleUnsatisfied: "rule", kahn.SkipSelf: "self",
	kahn.SkipSuperseded: "superseded",
}

// Status renders one status. For a skipped node, it adds the reason.
func Status(status kahn.Status, skip machine.SkipKind) string {
	if status == kahn.Skipped {
		return "S/" + reasons[skip]
	}
	if short := statuses[status]; short != "" {
		return short
	}
	return status.String()
}

// statusWords lists the statuses in the notation of this package. The map `full` maps the full name of a status to the status in this notation.
var statusWords, full = func() (words []string, full map[string]string) {
	full = map[string]string{}
	for status := kahn.Idle; ; status++ {
		if status == kahn.Skipped {
			for kind := kahn.SkipAnnotation; reasons[kind] != ""; kind++ {
				words = append(words, Status(status, kind))
				full[kind.String()], full["S/"+kind.String()] = Status(status, kind), Status(status, kind)
			}
			continue
		}
		word := Status(status, kahn.SkipNone)
		if _, err := status.MarshalText(); err != nil {
			return words, full
		}
		if words = append(words, word); word != status.String() {
			full[status.String()] = word
		}
	}
}()

// CompareStatuses compares the statuses of a result with a text like "A:ok B:F C:S/br". The order of the entries does not matter. The text must name
// all nodes of the graph, unless its last word is "...". The text may also name nodes in composites by their paths, as in "S/x:ok". An id may have
// spaces, as in "ask the bank:ok". The error lists every difference.
func CompareStatuses(res *kahn.Result, want string) error {
	var problems []string
	named := map[string]bool{}
	words := strings.Fields(want)
	open := len(words) > 0 && words[len(words)-1] == "..."
	rest := strings.TrimSpace(want)
	if open {
		rest = strings.TrimSuffix(rest, "...")
	}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		var word string
		word, rest = nextStatus(res, rest)
		colon := strings.LastIndexByte(word, ':')
		if colon < 0 {
			problems = append(problems, fmt.Sprintf("%q is not of the form node:status", word))
			continue
		}
		id, status := word[:colon], word[colon+1:]
		n, ok := find(res, id)
		switch got := Status(n.Status, n.Skip.Kind); {
		case !ok:
			problems = append(problems, fmt.Sprintf("%s: there is no such node", id))
		case named[id]:
			problems = append(problems, fmt.Sprintf("%s is named twice", id))
		case got != status && !slices.Contains(statusWords, status):
			if word := full[status]; word != "" {
				problems = append(problems, fmt.Sprintf("%s: the status %q is written %s", id, status, word))
			} else {
				problems = append(problems, fmt.Sprintf("%s: unknown status %q%s", id, status, instead(status, statusWords)))
			}
		case got != status:
			problem := fmt.Sprintf("%s is %s, expected %s", id, got, status)
			switch {
			case n.Err != nil:
				problem += fmt.Sprintf(" (%v)", n.Err)
			case n.Status == kahn.Skipped:
				problem += fmt.Sprintf(" (%v)", n.Skip)
			}
			problems = append(problems, problem)
		}
		named[id] = true
	}
	for n := range res.Nodes() {
		if !open && !named[n.ID] {
			problems = append(problems, fmt.Sprintf("%s is %s, expected nothing", n.ID, Status(n.Status, n.Skip.Kind)))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "\n"))
}

// nextStatus splits a text after its first entry, such as "B:F". An id may contain spaces, so an entry may have several words. The entry is the
// shortest sequence of whole words whose part before the last colon names a node. If there is none, the id is unknown, and nextStatus guesses that
// the entry ends after the first word with a colon. In two cases it guesses that the entry is only the first word of the text: if no word has a
// colon, or if the first word with a colon comes later and names a node by itself.
func nextStatus(res *kahn.Result, text string) (first, rest string) {
	one, guess := 0, 0
	for start, end := 0, 0; end < len(text); {
		start = end + len(text[end:]) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		if end = strings.IndexFunc(text[start:], unicode.IsSpace); end < 0 {
			end = len(text)
		} else {
			end += start
		}
		if one == 0 {
			one = end
		}
		colon := strings.LastIndexByte(text[start:end], ':')
		if colon < 0 {
			continue
		}
		if _, ok := find(res, text[:start+colon]); ok {
			return text[:end], text[end:]
		}
		if guess == 0 {
			if guess = end; start > 0 {
				if _, ok := find(res, text[start:start+colon]); ok {
					guess = one
				}
			}
		}
	}
	if guess == 0 {
		guess = one
	}
	return text[:guess], text[guess:]
}

// The function `find` returns the result of the node at a path. The path of a node in a loop has no iteration number: `find` returns the result of
// the last iteration.
func find(res *kahn.Result, path string) (kahn.NodeResult, bool) {
	if n, ok := res.Node(path); ok {
		return n, true
	}
	for n := range res.Nodes() {
		rest, ok := strings.CutPrefix(path, n.ID)
		if !ok || n.Sub == nil {
			continue
		}
		switch inner, inside := strings.CutPrefix(rest, "/"); {
		case inside:
			return find(n.Sub, inner)
		case strings.HasPrefix(rest, "["): // the id of an item begins with the id of its map
			return find(n.Sub, path)
		}
	}
	return kahn.NodeResult{}, false
}

// RequireStatuses ends the test if [CompareStatuses] finds a difference.
func RequireStatuses(t testing.TB, res *kahn.Result, want string) {
	t.Helper()
	if err := CompareStatuses(res, want); err != nil {
		t.Fatalf("%v\nactual   %s\nexpected %s", err, Statuses(res), want)
	}
}
