package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunAdmin tests what [store.Admin] promises beyond [store.Store]. Like [Run] it runs each check as a subtest.
func RunAdmin(t *testing.T, open func(t *testing.T) store.Admin) {
	runAll(t, adminChecks, func(t *testing.T) func() store.Admin { return func() store.Admin { return open(t) } })
}

// CheckAdmin checks what [store.Admin] promises beyond [store.Store], and returns the failures as [Check] does.
func CheckAdmin(ctx context.Context, open func() store.Admin) []error {
	return findAll(ctx, adminChecks, func() func() store.Admin { return open })
}

// adminChecks get a function that opens new and empty stores.
var adminChecks = []check[func() store.Admin]{
	{"a run is created", onStore(created)},
	{"a run that exists is refused", onStore(createRefused)},
	{"a run that exists is reused", onStore(createReused)},
	{"a run that has not begun is replaced", onStore(createReplaced)},
	{"a run of which nothing was written is created", onStore(createBlank)},
	{"what cannot be created", onStore(createBad)},
	{"of many who create a run one does", onStore(createCompeting)},
	{"filters", onStore(listFilters)},
	{"pages of runs", onStore(listPages)},
	{"runs come and go between pages", onStore(listMoving)},
	{"limits and cursors", onStore(listBad)},
	{"runs are listed as they change", onStore(listChanges)},
	{"runs are listed by what they undo", onStore(listUndone)},
	{"runs are listed with what they have used", onStore(listUsed)},
	{"a run reports what its steps have used and labelled", onStore(listReported)},
	{"runs are counted", onStore(countRuns)},
	{"nodes are listed", onStore(listNodes)},
	{"a run is inserted", onStore(inserted)},
	{"what cannot be inserted", onStore(insertBad)},
	{"runs are exported and imported", exported},
	{"old runs are pruned", onStore(prunedRuns)},
	{"what must not be pruned", onStore(pruneSpared)},
	{"a pruned run leaves nothing", onStore(pruneWhole)},
	{"blobs of pruned runs", onStore(pruneBlobs)},
	{"blobs of what was replaced", onStore(replacedBlobs)},
	{"a blob store fails while runs are pruned", onStore(pruneFaults)},
	{"a cancelled context ends calls", onStore(adminContext)},
	{"a created run of kahn", onStore(adminEngine)},
}

func onStore(f func(ctx context.Context, s store.Admin) error) func(context.Context, func() store.Admin) error {
	return func(ctx context.Context, open func() store.Admin) error { return f(ctx, open()) }
}

// aRun returns a run to create.
func aRun(id, text string, p store.Policy) store.NewRun {
	return store.NewRun{ID: id, Spec: aSpec(text), NotBefore: time.Date(2100, 1, 2, 3, 4, 5, 6e6, time.UTC), IfExists: p}
}

// expectCreated compares a run that has not begun with the NewRun from which it was created.
func expectCreated(what string, got *store.Run, n store.NewRun) error {
	if got == nil {
		return fmt.Errorf("%s: no run", what)
	}
	want := store.Run{ID: n.ID, Spec: normalSpec(n.Spec), WakeAt: n.NotBefore.UTC(), Nodes: map[string]store.Node{}}
	return same(what, normal(got), want)
}

func created(ctx context.Context, s store.Admin) error {
	begin, n := time.Now(), aRun("r", "one", store.Refuse)
	got, fresh, err := s.Create(ctx, n)
	if err != nil || !fresh {
		return fmt.Errorf("it is created: %v, %w", fresh, err)
	}
	err = errors.Join(expectCreated("what Create returns", got, n), about("Created", got.Created, begin))
	loaded, failed := s.Load(ctx, "r")
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if err := errors.Join(expectCreated("what Load returns", loaded, n), about("Created", loaded.Created, begin)); err != nil {
		return err
	}
	lease, acquired, err := s.Acquire(ctx, "r", "owner", ttl)
	if err != nil {
		return err
	}
	if err := expectCreated("what Acquire returns", acquired, n); err != nil {
		return err
	}
	a, err := s.Commit(ctx, lease, store.Commit{Sequence: 1, Run: record("run"), Status: machine.RunRunning})
	if err := expect("the first commit", a, err, store.AppliedNow); err != nil {
		return err
	}
	if loaded, err = s.Load(ctx, "r"); err != nil {
		return err
	}
	return errors.Join(same("the Spec of a run that has begun", normalSpec(loaded.Spec), normalSpec(n.Spec)), same("its WakeAt", loaded.WakeAt, time.Time{}))
}

func createRefused(ctx context.Context, s store.Admin) error {
	if _, _, err := s.Create(ctx, aRun("r", "one", store.Refuse)); err != nil {
		return err
	}
	return unchanged(ctx, s, func() error {
		_, _, err := s.Create(ctx, aRun("r", "one", store.Refuse))
		return expectError("Create of a run that exists", err, store.ErrExists)
	})
}

func createReused(ctx context.Context, s store.Admin) error {
	if _, err := begunAs(ctx, s, aRun("r", "one", store.Reuse)); err != nil {
		return err
	}
	other := func(change func(n *store.NewRun)) store.NewRun {
		n := aRun("r", "one", store.Reuse)
		change(&n)
		return n
	}
	return unchanged(ctx, s, func() error {
		n := other(func(n *store.NewRun) { // a run with other labels, parent, time or spelling of the inputs counts as the same run
			n.Labels, n.Parent, n.NotBefore = nil, "", time.Time{}
			n.Inputs = json.RawMessage(`{"text":"one","n":12345678901234567890}`)
		})
		got, fresh, err := s.Create(ctx, n)
		if err != nil || fresh || got.Status != machine.RunRunning || got.ID != "r" {
			return fmt.Errorf("the same again: %+v, %v, %w", got, fresh, err)
		}
		for what, change := range map[string]func(n *store.NewRun){
			"another workflow": func(n *store.NewRun) { n.Workflow = "x" }, "another plan": func(n *store.NewRun) { n.Plan = "x" },
			"no inputs":    func(n *store.NewRun) { n.Inputs = nil },
			"other inputs": func(n *store.NewRun) { n.Inputs = json.RawMessage(`{"n": 12345678901234567891, "text": "one"}`) },
		} {
			if _, _, err := s.Create(ctx, other(change)); !errors.Is(err, store.ErrMismatch) {
				return fmt.Errorf("with %s: %v", what, err)
			}
		}
		return nil
	})
}

// begunAs creates a run, acquires it, and makes its first commit.
func begunAs(ctx context.Context, s store.Admin, n store.NewRun) (store.Lease, error) {
	if _, _, err := s.Create(ctx, n); err != nil {
		return store.Lease{}, err
	}
	return begun(ctx, s, n.ID)
}

func createReplaced(ctx context.Context, s store.Admin) error {
	if _, _, err := s.Create(ctx, aRun("r", "one", store.Refuse)); err != nil {
		return err
	}
	lease, _, err := s.Acquire(ctx, "r", "owner", 20*time.Millisecond)
	if err != nil {
		return err
	}
	time.Sleep(40 * time.Millisecond)
	n := aRun("r", "two", store.Replace)
	got, fresh, err := s.Create(ctx, n)
	if err != nil || !fresh {
		return fmt.Errorf("it is created: %v, %w", fresh, err)
	}
	loaded, err := s.Load(ctx, "r")
	if err = errors.Join(err, expectCreated("what Create returns", got, n)); err != nil {
		return err
	}
	if err := expectCreated("what Load returns", loaded, n); err != nil {
		return err
	}
	_, err = s.Commit(ctx, lease, store.Commit{Sequence: 1, Run: record("run"), Status: machine.RunRunning})
	if err := expectError("a commit of the former holder", err, store.ErrFenced); err != nil {
		return err
	}
	for text, want := range map[string]int{"one": 0, "two": 1} {
		page, err := s.List(ctx, store.Query{Filter: store.Filter{Labels: map[string]string{"tenant": text}}})
		if err != nil || len(page.Runs) != want {
			return fmt.Errorf("with the label of run %s: %+v, %w", text, page.Runs, err)
		}
	}
	former := lease.Epoch
	if lease, _, err = s.Acquire(ctx, "r", "owner", ttl); err != nil || lease.Epoch <= former {
		return fmt.Errorf("epoch %d after %d, %w", lease.Epoch, former, err)
	}
	_, _, err = s.Create(ctx, n)
	if err := expectError("Create of a run that another process is about to begin", err, store.ErrLeased); err != nil {
		return err
	}
	a, err := s.Commit(ctx, lease, store.Commit{Sequence: 1, Run: record("run"), Status: machine.RunRunning})
	if err := expect("the first commit", a, err, store.AppliedNow); err != nil {
		return err
	}
	_ = s.Release(ctx, lease)
	return unchanged(ctx, s, func() error {
		_, _, err := s.Create(ctx, aRun("r", "three", store.Replace))
		return expectError("Create of a run that has begun", err, store.ErrExists)
	})
}

func createBlank(ctx context.Context, s store.Admin) error {
	for i, p := range []store.Policy{store.Refuse, store.Reuse, store.Replace} {
		id := p.String()
		lease, _, err := s.Acquire(ctx, id, "owner", ttl)
		if err != nil {
			return err
		}
		n := aRun(id, "one", p)
		if _, _, err = s.Create(ctx, n); !errors.Is(err, store.ErrLeased) {
			return fmt.Errorf("%v: Create of a leased run: %v", p, err)
		}
		if err := s.Release(ctx, lease); err != nil {
			return err
		}
		got, fresh, err := s.Create(ctx, n)
		if err != nil || !fresh {
			return fmt.Errorf("row %d: Create: %v, %w", i, fresh, err)
		}
		if err := expectCreated(id, got, n); err != nil {
			return err
		}
	}
	return nil
}

func createBad(ctx context.Context, s store.Admin) error {
	for what, n := range map[string]store.NewRun{
		"no id": {}, "inputs that are no object": {ID: "r", Spec: store.Spec{Inputs: json.RawMessage("[1]")}},
		"inputs that are not JSON": {ID: "r", Spec: store.Spec{Inputs: json.RawMessage("{")}}, "an unknown policy": {ID: "r", IfExists: 9},
	} {
		if _, _, err := s.Create(ctx, n); !errors.Is(err, machine.ErrBadValue) {
			return fmt.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Load(ctx, "r")
	return expectError("Load afterwards", err, store.ErrUnknownRun)
}

func createCompeting(ctx context.Context, s store.Admin) error {
	var made atomic.Int32
	var creators errgroup.Group
	for range 16 {
		creators.Go(func() error {
			_, fresh, err := s.Create(ctx, aRun("r", "one", store.Reuse))
			if fresh {
				made.Add(1)
			}
			return err
		})
	}
	err := creators.Wait()
	return errors.Join(err, same("how many have made the run", made.Load(), 1))
}

func adminContext(ctx context.Context, s store.Admin) error {
	dead, cancel := context.WithCancel(ctx)
	cancel()
	r := storedRun("r", 1)
	_, _, c := s.Create(dead, aRun("c", "one", store.Refuse))
	_, l := s.List(dead, store.Query{})
	_, n := s.Count(dead, store.Filter{})
	_, nodes := s.ListNodes(dead, "r", store.NodeQuery{})
	_, p := s.Prune(dead, store.PruneQuery{EndedBefore: future})
	for what, err := range map[string]error{"Create": c, "List": l, "Count": n, "ListNodes": nodes, "Prune": p, "Insert": s.Insert(dead, r)} {
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: %v", what, err)
		}
	}
	page, err := s.List(ctx, store.Query{})
	if err != nil || len(page.Runs) > 0 {
		return fmt.Errorf("they have made %+v, %w", page.Runs, err)
	}
	return nil
}

// adminEngine creates a run and lets the engine perform it.
func adminEngine(ctx context.Context, s store.Admin) error {
	g := &kahn.Graph{Name: "sum"}
	g.Add(kahn.Node{ID: "a"}, kahn.Node{ID: "b", After: []string{"a"}})
	step := func(_ context.Context, s *kahn.Step) (any, error) {
		return kahn.Root[int](s, "n")
	}
	n, err := kahn.Prepare(g, kahn.RunID("r"), kahn.Inputs(map[string]any{"n": 7}), kahn.Describe(store.Spec{Labels: map[string]string{"tenant": "x"}}))
	if err != nil {
		return err
	}
	if _, _, err := s.Create(ctx, n); err != nil {
		return err
	}
	res, err := kahn.Execute(ctx, g, step, kahn.RunID("r"), kahn.Durable(s))
	if err != nil {
		return err
	}
	b, _ := res.Node("b")
	if err := same[any]("the output", b.Output, 7); err != nil {
		return err
	}
	page, err := s.List(ctx, store.Query{Filter: store.Filter{Workflow: "sum", Labels: map[string]string{"tenant": "x"}, Statuses: []machine.RunStatus{machine.RunCompleted}}})
	if err != nil || len(page.Runs) != 1 || page.Runs[0].Plan != n.Plan {
		return fmt.Errorf("it is listed as %+v, %w", page.Runs, err)
	}
	return nil
}
