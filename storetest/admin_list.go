package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// epoch is when the run with the number 0 was created, see storedRun. future is a time after the ends of all runs.
var epoch, future = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// storedRun returns a run for Insert. The number i decides the fields of the run. If enough numbers are used, the runs have every status, and every
// combination of workflow, parent and labels.
func storedRun(id string, i int) *store.Run {
	r := &store.Run{
		ID: id, Created: epoch.Add(time.Duration(i) * time.Second), Sequence: 5, Record: record("run"), Status: machine.RunStatus(i % 6),
		Spec: store.Spec{
			Workflow: fmt.Sprint("w", i/6%2), Plan: fmt.Sprint("p", i%4), Parent: []string{"", "mother", "Mother"}[i%3],
			Labels: map[string]string{"even": fmt.Sprint(i%2 == 0), "fifth": fmt.Sprint(i % 5)}, Inputs: json.RawMessage(`{"n":1}`),
		},
		Nodes: map[string]store.Node{},
	}
	switch {
	case r.Status == machine.RunPending:
		r.Sequence, r.Record = 0, nil
	case r.Status.Terminal():
		r.Ended = r.Created.Add(time.Duration(1000-i) * time.Minute)
		fallthrough
	default:
		r.Compensation = machine.Compensation(i % 4)
		if i%2 == 0 {
			r.Usage = map[string]float64{"output_tokens": float64(i + 1), "€\x00": 0.1 * float64(i+1)}
		}
		r.Nodes["a"] = store.Node{Columns: data("done"), State: store.State{Terminal: true, Attempt: 1, Completed: true}}
		r.Nodes["b/x"] = store.Node{Columns: data("ready"), State: store.State{Resolved: 1, Required: 2, Queued: true}}
	}
	return r
}

// The function `filled` inserts n runs, in no particular order, and returns them in the order in which List returns them: the newest first.
func filled(ctx context.Context, s store.Admin, n int) (runs []*store.Run, err error) {
	runs = make([]*store.Run, n)
	for k := range n {
		i := k * 11 % n // i takes each value from 0 to n-1 once, unless 11 divides n
		r := storedRun(fmt.Sprintf("%c-%02d", []rune("aAbé")[i%4], i), i)
		if err := s.Insert(ctx, r); err != nil {
			return nil, err
		}
		runs[n-1-i] = r
	}
	return runs, nil
}

// expectRuns compares a list of runs with the expected list.
func expectRuns(what string, got []store.Run, want []*store.Run) error {
	var ids, wanted []string
	for _, r := range got {
		ids = append(ids, r.ID)
	}
	for _, r := range want {
		wanted = append(wanted, r.ID)
	}
	if err := same(what, ids, wanted); err != nil {
		return err
	}
	for i, r := range got {
		head := *want[i]
		head.Inputs, head.Sequence, head.Record, head.Nodes = nil, 0, nil, nil
		r.Created, r.Ended, r.WakeAt = r.Created.UTC(), r.Ended.UTC(), r.WakeAt.UTC()
		if err := same(what, r, head); err != nil {
			return err
		}
	}
	return nil
}

// filters returns filters of all kinds.
func filters() map[string]store.Filter {
	at := func(i int) time.Time { return epoch.Add(time.Duration(i) * time.Second) }
	return map[string]store.Filter{
		"all": {}, "a workflow": {Workflow: "w1"}, "no such workflow": {Workflow: "W1"}, "a status": {Statuses: []machine.RunStatus{machine.RunFailed}},
		"two statuses": {Statuses: []machine.RunStatus{machine.RunPending, machine.RunCompleted}}, "a workflow and a status": {Workflow: "w0", Statuses: []machine.RunStatus{machine.RunSuspended}},
		"a label": {Labels: map[string]string{"fifth": "3"}}, "two labels": {Labels: map[string]string{"fifth": "3", "even": "true"}},
		"no such label": {Labels: map[string]string{"sixth": "3"}}, "a label with another value": {Labels: map[string]string{"even": ""}},
		"a parent": {Parent: "mother"}, "a prefix": {Prefix: "a-"}, "a prefix of other letters": {Prefix: "é"}, "no such prefix": {Prefix: "é-9"}, "a whole id": {Prefix: "b-06"},
		"a prefix with a sign": {Prefix: "%"}, "created from": {CreatedFrom: at(7)}, "created before": {CreatedBefore: at(7)},
		"created in a part of a second": {CreatedFrom: at(7).Add(time.Microsecond), CreatedBefore: at(8).Add(time.Microsecond)},
		"ended from":                    {EndedFrom: storedRun("", 10).Ended}, "ended before": {EndedBefore: storedRun("", 10).Ended}, "ended at all": {EndedFrom: epoch},
		"another parent": {Parent: "Mother"}, "a plan": {Plan: storedRun("", 10).Plan}, "no such plan": {Plan: "p"}, "a workflow and a plan": {Workflow: "w1", Plan: storedRun("", 11).Plan},
		"compensating": {Compensation: machine.CompensationRunning}, "compensation failed": {Compensation: machine.CompensationFailed}, "compensated": {Compensation: machine.CompensationDone},
		"compensation failed of a workflow and a status": {Compensation: machine.CompensationFailed, Workflow: "w0", Statuses: []machine.RunStatus{machine.RunCompleted}},
		"no such compensation":                           {Compensation: machine.CompensationFailed, Workflow: "w2"},
		"all of it": {Workflow: "w1", Statuses: []machine.RunStatus{machine.RunCompleted, machine.RunFailed}, Labels: map[string]string{"even": "true"}, Parent: "mother",
			Prefix: "b", CreatedFrom: at(11), CreatedBefore: at(40), EndedFrom: epoch.Add(970 * time.Minute), EndedBefore: epoch.Add(980 * time.Minute)},
	}
}

func listFilters(ctx context.Context, s store.Admin) error {
	runs, err := filled(ctx, s, 36)
	if err != nil {
		return err
	}
	for what, f := range filters() {
		page, err := s.List(ctx, store.Query{Filter: f})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		want := slices.DeleteFunc(slices.Clone(runs), func(r *store.Run) bool { return !f.Matches(r) })
		if none := strings.HasPrefix(what, "no such") || strings.HasSuffix(what, "another value") || strings.HasSuffix(what, "a sign"); none != (len(want) == 0) {
			return fmt.Errorf("%s: the filter selects %d runs", what, len(want))
		}
		if err := errors.Join(expectRuns(what, page.Runs, want), same(what+": Next", page.Next, "")); err != nil {
			return err
		}
		counts, err := s.Count(ctx, f)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		sums := map[store.Count]int{}
		for _, r := range want {
			sums[store.Count{Workflow: r.Workflow, Status: r.Status}]++
		}
		var counted []store.Count
		for c, n := range sums {
			c.Runs = n
			counted = append(counted, c)
		}
		store.SortCounts(counted)
		if err := same(what+": counts", slices.Clone(counts), slices.Clone(counted)); err != nil {
			return err
		}
	}
	return nil
}

// The function `pages` reads a list page by page, and calls the function "between" after each page.
func pages(ctx context.Context, s store.Admin, q store.Query, between func(page int) error) (runs []store.Run, sizes []int, err error) {
	for {
		page, err := s.List(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		runs, sizes = append(runs, page.Runs...), append(sizes, len(page.Runs))
		if page.Next == "" || len(sizes) > 100 {
			return runs, sizes, nil
		}
		q.After = page.Next
		if err := between(len(sizes)); err != nil {
			return nil, nil, err
		}
	}
}

func listPages(ctx context.Context, s store.Admin) error {
	runs, err := filled(ctx, s, 24)
	if err != nil {
		return err
	}
	var twins []*store.Run // runs created at the same time, in the order of their ids
	for _, id := range []string{"B", "a", "a b", "aa", "b", "z", "é", "日"} {
		r := storedRun("twin "+id, 1)
		r.Created = epoch.Add(-time.Hour)
		if err := s.Insert(ctx, r); err != nil {
			return err
		}
		twins = append(twins, r)
	}
	runs = append(runs, twins...)
	nothing := func(int) error { return nil }
	for limit, want := range map[int][]int{3: append(slices.Repeat([]int{3}, 10), 2), 16: {16, 16}, 31: {31, 1}, 32: {32}, 0: {32}} {
		got, sizes, err := pages(ctx, s, store.Query{Limit: limit}, nothing)
		if err != nil {
			return err
		}
		if err := errors.Join(same(fmt.Sprint("pages of ", limit), sizes, want), expectRuns(fmt.Sprint("pages of ", limit), got, runs)); err != nil {
			return err
		}
	}
	w0 := slices.DeleteFunc(slices.Clone(runs), func(r *store.Run) bool { return r.Workflow != "w0" || r.Labels["even"] != "false" })
	got, _, err := pages(ctx, s, store.Query{Limit: 2, Filter: store.Filter{Workflow: "w0", Labels: map[string]string{"even": "false"}}}, nothing)
	if err != nil {
		return err
	}
	return expectRuns("pages of runs that match", got, w0)
}

func listMoving(ctx context.Context, s store.Admin) error {
	runs, err := filled(ctx, s, 24)
	if err != nil {
		return err
	}
	got, _, err := pages(ctx, s, store.Query{Limit: 4}, func(page int) error {
		if page != 2 {
			return nil
		}
		if err := s.Insert(ctx, storedRun("newer", 100)); err != nil {
			return err
		}
		// This call removes all runs that have completed or failed. Some of them are on later pages. Another is the last run of page 2, after which page 3
		// begins.
		_, err := s.Prune(ctx, store.PruneQuery{EndedBefore: future, Statuses: []machine.RunStatus{machine.RunCompleted, machine.RunFailed}})
		return err
	})
	if err != nil {
		return err
	}
	want := slices.Clone(runs[:8])
	for _, r := range runs[8:] {
		if r.Status != machine.RunCompleted && r.Status != machine.RunFailed {
			want = append(want, r)
		}
	}
	return expectRuns("the pages", got, want)
}

func listBad(ctx context.Context, s store.Admin) error {
	for i := range store.DefaultPage + 1 {
		if err := s.Insert(ctx, storedRun(fmt.Sprintf("%03d", i), i)); err != nil {
			return err
		}
	}
	page, err := s.List(ctx, store.Query{})
	if err != nil || len(page.Runs) != store.DefaultPage || page.Next == "" {
		return fmt.Errorf("a page of the default size: %d runs, %q, %w", len(page.Runs), page.Next, err)
	}
	if page, err = s.List(ctx, store.Query{Limit: store.MaxPage}); err != nil || len(page.Runs) != store.DefaultPage+1 || page.Next != "" {
		return fmt.Errorf("the largest page: %d runs, %q, %w", len(page.Runs), page.Next, err)
	}
	for _, q := range []store.Query{{Limit: -1}, {Limit: store.MaxPage + 1}, {After: "x"}, {After: "?"}} {
		_, list := s.List(ctx, q)
		_, nodes := s.ListNodes(ctx, "000", store.NodeQuery{Limit: q.Limit, After: q.After})
		for _, err := range []error{list, nodes} {
			if !errors.Is(err, machine.ErrBadValue) {
				return fmt.Errorf("limit %d, cursor %q: %v", q.Limit, q.After, err)
			}
		}
	}
	return nil
}

// listChanges follows a run from its creation to its end.
func listChanges(ctx context.Context, s store.Admin) error {
	sees := func(what string, f store.Filter, want int) error {
		page, err := s.List(ctx, store.Query{Filter: f})
		if err != nil || len(page.Runs) != want {
			return fmt.Errorf("%s: %+v instead of %d runs, %w", what, page.Runs, want, err)
		}
		return nil
	}
	status := func(s machine.RunStatus) store.Filter { return store.Filter{Statuses: []machine.RunStatus{s}} }
	tenant := func(text string) store.Filter { return store.Filter{Labels: map[string]string{"tenant": text}} }
	ended := store.Filter{EndedFrom: time.Now().Add(-time.Hour)}
	lease, err := begunAs(ctx, s, aRun("r", "one", store.Refuse))
	if err != nil {
		return err
	}
	if err := errors.Join(sees("running", status(machine.RunRunning), 1), sees("pending", status(machine.RunPending), 0), sees("ended", ended, 0), sees("its label", tenant("one"), 1)); err != nil {
		return err
	}
	spec := aSpec("two")
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: 2, Spec: &spec, Status: machine.RunSuspended})
	if err := expect("a commit with another Spec", got, err, store.AppliedNow); err != nil {
		return err
	}
	if err := errors.Join(sees("suspended", status(machine.RunSuspended), 1), sees("the former label", tenant("one"), 0), sees("the new label", tenant("two"), 1),
		sees("the new workflow", store.Filter{Workflow: spec.Workflow}, 1), sees("the new parent", store.Filter{Parent: spec.Parent}, 1)); err != nil {
		return err
	}
	got, err = s.Commit(ctx, lease, store.Commit{Sequence: 3, Status: machine.RunCancelled})
	if err := expect("the end", got, err, store.AppliedNow); err != nil {
		return err
	}
	return errors.Join(sees("cancelled", status(machine.RunCancelled), 1), sees("ended", ended, 1), sees("ended before", store.Filter{EndedBefore: ended.EndedFrom}, 0))
}

func undoing(c machine.Compensation) *machine.Compensation { return &c }

// listUndone checks that lists show the compensation of a run. Lists must show each change at once, and a commit without Compensation must not
// change the compensation.
func listUndone(ctx context.Context, s store.Admin) error {
	lease, err := begunAs(ctx, s, aRun("r", "one", store.Refuse))
	if err != nil {
		return err
	}
	sees := func(what string, want machine.Compensation) error {
		for c := machine.CompensationRunning; c <= machine.CompensationFailed; c++ {
			f := store.Filter{Compensation: c}
			page, err := s.List(ctx, store.Query{Filter: f})
			counts, failed := s.Count(ctx, f)
			if err = errors.Join(err, failed); err != nil || len(page.Runs) != len(counts) || (len(page.Runs) == 1) != (c == want) {
				return fmt.Errorf("%s: compensation %v: %d runs, counts %v, %w", what, c, len(page.Runs), counts, err)
			}
			if c == want && page.Runs[0].Compensation != want {
				return fmt.Errorf("%s: it is listed with %v", what, page.Runs[0].Compensation)
			}
		}
		loaded, err := s.Load(ctx, "r")
		if err != nil {
			return err
		}
		return same(what+": what Load returns", loaded.Compensation, want)
	}
	sequence := uint64(1)
	commit := func(what string, c store.Commit, want machine.Compensation) error {
		sequence++
		c.Sequence = sequence
		got, err := s.Commit(ctx, lease, c)
		return errors.Join(expect(what, got, err, store.AppliedNow), sees(what, want))
	}
	for _, step := range []struct {
		what string
		c    store.Commit
		want machine.Compensation
	}{
		{"before", store.Commit{}, machine.CompensationNone},
		{"it begins", store.Commit{Compensation: undoing(machine.CompensationRunning), Nodes: []store.NodeRecord{{Node: "a#undo", Columns: data("undo")}}}, machine.CompensationRunning},
		{"another commit", store.Commit{Run: record("more")}, machine.CompensationRunning},
		{"a node", store.Commit{Nodes: []store.NodeRecord{{Node: "b", Columns: data("b")}}}, machine.CompensationRunning},
		{"it is done", store.Commit{Compensation: undoing(machine.CompensationDone)}, machine.CompensationDone},
		{"it begins again", store.Commit{Compensation: undoing(machine.CompensationRunning)}, machine.CompensationRunning},
		{"it fails with the run", store.Commit{Compensation: undoing(machine.CompensationFailed), Status: machine.RunFailed}, machine.CompensationFailed},
		{"it is repeated", store.Commit{Reopen: true, Compensation: undoing(machine.CompensationRunning), Status: machine.RunRunning}, machine.CompensationRunning},
		{"there is none any more", store.Commit{Compensation: undoing(machine.CompensationNone)}, machine.CompensationNone},
		{"it begins last", store.Commit{Compensation: undoing(machine.CompensationRunning)}, machine.CompensationRunning},
	} {
		if err := commit(step.what, step.c, step.want); err != nil {
			return err
		}
	}
	if err := s.Release(ctx, lease); err != nil {
		return err
	}
	lease, acquired, err := s.Acquire(ctx, "r", "another", ttl)
	if err != nil {
		return err
	}
	if err := same("what Acquire returns", acquired.Compensation, machine.CompensationRunning); err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: sequence, Compensation: undoing(machine.CompensationDone)})
	return errors.Join(expect("a commit that is repeated", got, err, store.Duplicate), sees("a duplicate", machine.CompensationRunning))
}

// listUsed checks that lists show the usage of a run. Lists must show each change at once, and a commit without Usage must not change the usage.
func listUsed(ctx context.Context, s store.Admin) error {
	lease, err := begunAs(ctx, s, aRun("r", "one", store.Refuse))
	if err != nil {
		return err
	}
	type usage = map[string]float64
	sequence := uint64(1)
	for _, step := range []struct {
		what string
		c    store.Commit
		want usage
	}{
		{"before", store.Commit{}, nil},
		{"it uses something", store.Commit{Usage: usage{"tokens": 1200.5}}, usage{"tokens": 1200.5}},
		{"another commit", store.Commit{Run: record("more")}, usage{"tokens": 1200.5}},
		{"a node", store.Commit{Nodes: []store.NodeRecord{{Node: "b", Columns: data("b")}}}, usage{"tokens": 1200.5}},
		{"it undoes something", store.Commit{Compensation: undoing(machine.CompensationRunning)}, usage{"tokens": 1200.5}},
		{"it has other labels", store.Commit{Spec: &store.Spec{Workflow: "one", Labels: map[string]string{"a": "b"}}}, usage{"tokens": 1200.5}},
		{"it uses more", store.Commit{Usage: usage{"tokens": 9007199254740991, "cents €": 1e-9}}, usage{"tokens": 9007199254740991, "cents €": 1e-9}},
		{"it ends", store.Commit{Usage: usage{"tokens": 1e300, "cents €": 1}, Status: machine.RunFailed}, usage{"tokens": 1e300, "cents €": 1}},
		{"it is redriven", store.Commit{Reopen: true, Status: machine.RunRunning}, usage{"tokens": 1e300, "cents €": 1}},
	} {
		sequence++
		step.c.Sequence = sequence
		got, err := s.Commit(ctx, lease, step.c)
		if err := expect(step.what, got, err, store.AppliedNow); err != nil {
			return err
		}
		loaded, err := s.Load(ctx, "r")
		page, failed := s.List(ctx, store.Query{})
		if err = errors.Join(err, failed); err != nil || len(page.Runs) != 1 {
			return fmt.Errorf("%s: %d runs are listed, %w", step.what, len(page.Runs), err)
		}
		if err := errors.Join(same(step.what+": what Load returns", loaded.Usage, step.want), same(step.what+": what List returns", page.Runs[0].Usage, step.want)); err != nil {
			return err
		}
	}
	if err := s.Release(ctx, lease); err != nil {
		return err
	}
	lease, acquired, err := s.Acquire(ctx, "r", "another", ttl)
	if err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, store.Commit{Sequence: sequence, Usage: usage{"tokens": 1}})
	page, failed := s.List(ctx, store.Query{})
	if err := errors.Join(failed, expect("a commit that is repeated", got, err, store.Duplicate), same("what Acquire returns", acquired.Usage, usage{"tokens": 1e300, "cents €": 1})); err != nil {
		return err
	}
	return same("a duplicate", page.Runs[0].Usage, acquired.Usage)
}

// listReported lets two processes, one after the other, perform a run. The steps report usage and set labels. Lists must show the usage and the
// labels as soon as the attempts have ended.
func listReported(ctx context.Context, s store.Admin) error {
	g := &kahn.Graph{Name: "reports"}
	g.Add(kahn.Node{ID: "ask", Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Millisecond}}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"ask"}}, kahn.Node{ID: "sum", After: []string{"gate"}})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		s.Tokens(1000, 200)
		err := s.SetLabel("model €", fmt.Sprint(s.ID(), " ", s.Attempt()))
		if err == nil && s.ID() == "ask" && s.Attempt() == 1 {
			err = errors.New("the model does not answer")
		}
		return nil, err
	}
	for _, life := range []struct {
		label  string
		want   map[string]float64
		answer map[string]any
	}{
		{"ask 2", map[string]float64{"input_tokens": 2000, "output_tokens": 400}, nil},
		{"sum 1", map[string]float64{"input_tokens": 3000, "output_tokens": 600}, map[string]any{"gate": "yes"}},
	} {
		res, err := kahn.Execute(ctx, g, step, kahn.Durable(s), kahn.RunID("r"), kahn.Describe(store.Spec{Labels: map[string]string{"team": "red"}}), kahn.EarlySignals(life.answer))
		if err != nil {
			return err
		}
		page, err := s.List(ctx, store.Query{Filter: store.Filter{Labels: map[string]string{"model €": life.label, "team": "red"}}})
		if err != nil || len(page.Runs) != 1 {
			return fmt.Errorf("with the label %s: %d runs are listed, %w", life.label, len(page.Runs), err)
		}
		stored, err := kahn.ReadRun(ctx, s, "r")
		if err != nil {
			return err
		}
		if err := errors.Join(same("what List returns", page.Runs[0].Usage, life.want), same("what ReadRun returns", stored.Usage, life.want), same("what the run says", res.Usage(), life.want)); err != nil {
			return err
		}
	}
	page, err := s.List(ctx, store.Query{Filter: store.Filter{Labels: map[string]string{"model €": "ask 2"}}})
	return errors.Join(err, same("runs with a label that was replaced", len(page.Runs), 0))
}

func countRuns(ctx context.Context, s store.Admin) error {
	counts, err := s.Count(ctx, store.Filter{})
	if err != nil || len(counts) > 0 {
		return fmt.Errorf("an empty store: %v, %w", counts, err)
	}
	if _, err := filled(ctx, s, 15); err != nil {
		return err
	}
	counts, err = s.Count(ctx, store.Filter{Statuses: []machine.RunStatus{machine.RunRunning, machine.RunSuspended, machine.RunPending}})
	want := []store.Count{
		{Workflow: "w0", Status: machine.RunPending, Runs: 2}, {Workflow: "w0", Status: machine.RunRunning, Runs: 2}, {Workflow: "w0", Status: machine.RunSuspended, Runs: 2},
		{Workflow: "w1", Status: machine.RunPending, Runs: 1}, {Workflow: "w1", Status: machine.RunRunning, Runs: 1}, {Workflow: "w1", Status: machine.RunSuspended, Runs: 1},
	}
	return errors.Join(err, same("counts", counts, want))
}

func listNodes(ctx context.Context, s store.Admin) error {
	if _, err := s.ListNodes(ctx, "nobody", store.NodeQuery{}); !errors.Is(err, store.ErrUnknownRun) {
		return fmt.Errorf("an unknown run: %w", err)
	}
	lease, err := completed(ctx, s)
	if err != nil {
		return err
	}
	c := store.Commit{Sequence: 4}
	for _, key := range strings.Fields("z y/2 y/10 x[3] a/b") {
		c.Nodes = append(c.Nodes, store.NodeRecord{Node: key, Columns: data("running")})
	}
	got, err := s.Commit(ctx, lease, c)
	if err := expect("more nodes", got, err, store.AppliedNow); err != nil {
		return err
	}
	all := []string{"a", "b", "c", "z", "y/2", "y/10", "x[3]", "a/b"}
	stored, err := s.Load(ctx, "r")
	if err != nil {
		return err
	}
	for _, row := range []struct {
		limit  int
		values bool
		pages  int
	}{{0, false, 1}, {3, true, 3}, {4, false, 2}, {8, true, 1}, {7, false, 2}} {
		q := store.NodeQuery{Limit: row.limit, Values: row.values}
		var keys []string
		n := 0
		for more := true; more && n < 10; n++ {
			page, err := s.ListNodes(ctx, "r", q)
			if err != nil {
				return err
			}
			for _, node := range page.Nodes {
				keys = append(keys, node.Key)
				want := stored.Nodes[node.Key]
				if !row.values {
					want.Value, want.Record = nil, nil
				}
				want.Columns, node.Columns = normalData(want.Columns), normalData(node.Columns)
				if err := same("node "+node.Key, node.Node, want); err != nil {
					return err
				}
			}
			q.After, more = page.Next, page.Next != ""
		}
		if err := errors.Join(same("the nodes", keys, all), same(fmt.Sprint("pages of ", row.limit), n, row.pages)); err != nil {
			return err
		}
	}
	return nil
}
