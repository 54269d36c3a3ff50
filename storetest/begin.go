package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Begin acquires a run for a minute and makes its first commit.
func Begin(t *testing.T, s store.Store, run string) store.Lease {
	t.Helper()
	lease, _, err := s.Acquire(t.Context(), run, "owner", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	Commit(t, s, lease, store.Commit{Sequence: 1, Run: []byte(`{"version":1}`), Status: machine.RunRunning})
	return lease
}

// Commit makes a commit, and fails the test unless the store applies it.
func Commit(t *testing.T, s store.Store, lease store.Lease, c store.Commit) {
	t.Helper()
	got, err := s.Commit(t.Context(), lease, c)
	if err := expect("a commit", got, err, store.AppliedNow); err != nil {
		t.Fatal(err)
	}
}

// errUndo is the error that RunCreateTx passes to `place`, so that `place` rolls its transaction back.
var errUndo = errors.New("the transaction is undone")

// RunCreateTx tests a store that creates runs in the program's own transactions: the transaction stores both the run and the program's
// writes, or neither. The function `place` inserts an order and creates the run in one transaction. If CreateTx returns an error, `place`
// rolls the transaction back and returns the error. If the argument `fails` is not nil, `place` rolls the transaction back and returns this
// error. The function `orders` returns how many orders there are.
func RunCreateTx(t *testing.T, s store.Admin, place func(n store.NewRun, fails error) (created bool, err error), orders func() int) {
	for i, row := range []struct {
		id     string
		policy store.Policy
		fails  error
		made   bool
		want   error
		orders int
	}{
		{"a", store.Refuse, errUndo, true, errUndo, 0},
		{"a", store.Refuse, nil, true, nil, 1},
		{"a", store.Refuse, nil, false, store.ErrExists, 1},
		{"a", store.Reuse, nil, false, nil, 2},
		{"a", store.Replace, nil, true, nil, 3},
		{"", store.Refuse, nil, false, machine.ErrBadValue, 3},
	} {
		n := store.NewRun{ID: row.id, Spec: store.Spec{Workflow: "fixture", Labels: map[string]string{"tenant": "x"}}, IfExists: row.policy}
		made, err := place(n, row.fails)
		if !errors.Is(err, row.want) || made != row.made {
			t.Errorf("row %d: created: %v, %v", i, made, err)
		}
		page, err := s.List(t.Context(), store.Query{Filter: store.Filter{Labels: n.Labels}})
		if got := orders(); got != row.orders || err != nil || len(page.Runs) != min(1, got) {
			t.Errorf("row %d: %d orders, %d runs, %v", i, got, len(page.Runs), err)
		}
	}
}
