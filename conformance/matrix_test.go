// Package conformance_test tests package kahn from outside, as a host sees it: a matrix of semantics, scenarios, random graphs, lives
// over stores, and what former versions have stored. The helpers that several files share are in help_*_test.go.
package conformance_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/machine"
)

// row is one scenario of the conformance matrix; testdata/matrix.txt explains the notation.
type row struct {
	name    string // where the row is, as file:line
	graph   string
	options string
	outcome string
	nodes   string // expected statuses of the nodes
	run     string // expected status of the run
	note    string
}

// TestMatrix performs every row of testdata/matrix.txt, and of the files in the environment variable KAHN_MATRIX, a list separated by
// colons. It does so in both modes and under several limits, with random step durations in fake time.
func TestMatrix(t *testing.T) {
	files := []string{filepath.Join("testdata", "matrix.txt")}
	if more := os.Getenv("KAHN_MATRIX"); more != "" {
		files = append(files, strings.Split(more, ":")...)
	}
	for _, file := range files {
		rows, err := readMatrix(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				r.test(t)
			})
		}
	}
}

func readMatrix(file string) ([]row, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // an error does not matter after reading
	var rows []row
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for line := 1; in.Scan(); line++ {
		text := strings.TrimSpace(in.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		name := fmt.Sprintf("%s:%d", filepath.Base(file), line)
		fields := strings.Split(text, "|")
		if len(fields) < 7 {
			return nil, fmt.Errorf("%s: %d fields instead of seven", name, len(fields))
		}
		rows = append(rows, row{name, fields[1], fields[2], fields[3], strings.TrimSpace(fields[4]),
			strings.TrimSpace(fields[5]), strings.Join(fields[6:], "|")})
	}
	return rows, in.Err()
}

// scenario is a row turned into a graph and the outcomes of its steps.
type scenario struct {
	graph    kahn.Graph
	ids      []string
	outcomes map[string]string
	seed     uint64
	timeless bool // whether all steps take no time
}

func (r row) parse() (*scenario, error) {
	s := &scenario{outcomes: map[string]string{}}
	nodes, edges, err := kahntest.Parse(r.graph + " " + r.options)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		s.ids = append(s.ids, n.ID)
	}
	for _, word := range strings.Fields(r.outcome) {
		id, outcome, ok := strings.Cut(word, "=")
		if !ok || !slices.Contains(s.ids, id) {
			return nil, fmt.Errorf("outcome %q", word)
		}
		s.outcomes[id] = outcome
	}
	for i := range nodes {
		// A boundary is a condition with a Go test, or a step if its outcome is cancel, since a test cannot be cancelled.
		if n := &nodes[i]; n.Join == kahn.Boundary && s.outcomes[n.ID] != "cancel" {
			id := n.ID
			n.Routes = false
			n.Test = func(kahn.View) (any, error) { return s.perform(context.Background(), id, nil) }
		}
	}
	s.graph.Add(nodes...).Connect(edges...)
	return s, nil
}

// perform returns a node's outcome after a random time. cancel cancels the node from outside.
func (s *scenario) perform(ctx context.Context, id string, cancel func(string)) (any, error) {
	rng := rand.New(rand.NewPCG(s.seed, uint64(slices.Index(s.ids, id))))
	if s.timeless {
		return s.outcome(id)
	}
	time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
	if s.outcomes[id] == "cancel" {
		cancel(id)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.outcome(id)
}

// outcome returns the outcome of a node that is not cancelled.
func (s *scenario) outcome(id string) (any, error) {
	switch outcome := s.outcomes[id]; outcome {
	case "", "ok":
		return map[string]any{"of": id}, nil
	case "err":
		return nil, errStep
	case "skip":
		return nil, kahn.Skip("of its own accord")
	case "null":
		return nil, nil
	default:
		return outcome, nil
	}
}

func (r row) test(t *testing.T) {
	s, err := r.parse()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		for limit := range 3 {
			s.seed++
			plan, st := s.drive(t, s.seed, limit, mode)
			r.compare(t, fmt.Sprintf("driven by hand, %v, limit %d", mode, limit), stateNodes(plan, st), stateRun(s, plan, st), nil)
			s.seed++
			plan, st = s.react(t, s.seed, limit, mode)
			r.compare(t, fmt.Sprintf("driven by effects, %v, limit %d", mode, limit), stateNodes(plan, st), stateRun(s, plan, st), nil)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
			for limit := range 3 {
				s.seed++
				r.check(t, s, mode, kahn.Limit(limit), limit)
			}
		}
		for _, m := range noteStatus.FindAllStringSubmatch(r.note, -1) {
			rule := map[string]kahn.StatusRule{"strict": kahn.StatusStrict, "leaves": kahn.StatusLeaves}[m[1]]
			res, _ := s.run(t, kahn.Eager, rule)
			if got := res.Status.String(); got != m[2] {
				t.Errorf("run status by %s is %s, expected %s", m[1], got, m[2])
			}
		}
	})
}

var noteStatus = regexp.MustCompile(`\b(strict|leaves)=([a-z]+)`)

func (r row) check(t *testing.T, s *scenario, mode kahn.Mode, option kahn.Option, limit int) {
	res, events := s.run(t, mode, option)
	var nodes []string
	for n := range res.Nodes() {
		nodes = append(nodes, n.ID+":"+shortStatus(n))
	}
	run := res.Status.String()
	if res.Degraded {
		run += "+d"
	}
	r.compare(t, fmt.Sprintf("%v, limit %d", mode, limit), nodes, run, events)
}

// stateNodes and stateRun render a State in the form of a Result.
func stateNodes(plan *kahn.Plan, st *machine.State) (nodes []string) {
	for ref, id := range plan.Declared() {
		nodes = append(nodes, id+":"+kahntest.Status(st.Status(ref), plan.SkipReason(st, ref).Kind))
	}
	return nodes
}

func stateRun(s *scenario, plan *kahn.Plan, st *machine.State) string {
	status, degraded := st.RunStatus(machine.StatusEscaped)
	for ref, id := range plan.Declared() { // a failed end node fails the run, unless the run was cancelled
		if plan.Node(ref).Kind == kahn.KindEnd && s.outcomes[id] == "err" && status != kahn.RunCancelled {
			return kahn.RunFailed.String()
		}
	}
	if degraded {
		return status.String() + "+d"
	}
	return status.String()
}

func (r row) compare(t *testing.T, how string, nodes []string, run string, events []kahn.Event) {
	want := slices.Sorted(slices.Values(strings.Fields(r.nodes)))
	got := slices.Sorted(slices.Values(nodes))
	if !slices.Equal(got, want) || run != r.run {
		t.Errorf("%s: %s | %s | %s\nexpected %s | %s\nactual   %s | %s\nevents:\n%s", how, r.graph, r.options, r.outcome,
			strings.Join(want, " "), r.run, strings.Join(got, " "), run, eventText(events))
	}
}

func (s *scenario) run(t *testing.T, mode kahn.Mode, opts ...kahn.Option) (*kahn.Result, []kahn.Event) {
	rec := newRecorder()
	var run *kahn.Run
	started := make(chan struct{})
	step := func(ctx context.Context, st *kahn.Step) (any, error) {
		return s.perform(ctx, st.ID(), func(id string) {
			<-started
			if err := run.CancelNode(id); err != nil {
				t.Errorf("CancelNode(%s): %v", id, err)
			}
		})
	}
	run, err := kahn.Start(t.Context(), &s.graph, step, append(opts, mode, kahn.OnEvent(rec.add))...)
	if err != nil {
		t.Fatal(err)
	}
	close(started)
	res, err := run.Wait()
	if (err == nil) != (res.Status == kahn.RunCompleted) {
		t.Errorf("status %v with error %v", res.Status, err)
	}
	events := rec.all()
	checkEvents(t, &s.graph, res, events)
	return res, events
}
