package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunPost posts requests through one store value while a run is performed through another store value, as in two processes. The run begins with a
// loop over a gate. RunPost posts an answer to the gate in each iteration, and cancels the run after the loop. It logs the average and the longest
// time from a request to its effect.
func RunPost(t *testing.T, performing, posting store.Inbox) {
	const rounds = 20
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "rounds", Sub: new(kahn.Graph).Add(kahn.Node{ID: "gate", Kind: kahn.KindGate}), Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < rounds, nil }, MaxIterations: rounds}},
		kahn.Node{ID: "long", After: []string{"rounds"}})
	step := func(ctx context.Context, _ *kahn.Step) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	run, err := kahn.Start(t.Context(), g, step, kahn.RunID("r"), kahn.Durable(performing))
	if err != nil {
		t.Fatal(err)
	}
	var slowest, sum time.Duration
	post := func(q store.Request) {
		began := time.Now()
		if posted, err := posting.Post(t.Context(), "r", q); err != nil || !posted {
			t.Fatalf("%s is posted: %v, %v", q.ID, posted, err)
		}
		for {
			found, err := posting.FindRequest(t.Context(), "r", q.ID)
			if err != nil || found.Status == store.RequestRefused {
				t.Fatalf("%+v, %v", found, err)
			}
			if found.Status == store.RequestApplied {
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatal("nobody takes ", q.ID)
			}
			time.Sleep(time.Millisecond)
		}
		took := time.Since(began)
		slowest, sum = max(slowest, took), sum+took
	}
	for i := 1; i <= rounds; i++ {
		gate := fmt.Sprintf("rounds#%d/gate", i)
		q, err := kahn.PrepareSignal(gate, kahn.Decision{Value: i, ID: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		for len(run.Waiting()) == 0 || run.Waiting()[0].Node != gate {
			time.Sleep(time.Millisecond)
		}
		post(q)
	}
	if _, err := run.WaitFor(t.Context(), "long", kahn.Running); err != nil {
		t.Fatal(err)
	}
	post(store.Request{ID: "cancel", Kind: store.KindCancel, Actor: "ann", Comment: "enough"})
	res, _ := run.Wait()
	if err := same("the request of the cancel", res.StopRequest, kahn.Request{Actor: "ann", Reason: "enough"}); err != nil || res.Status != kahn.RunCancelled {
		t.Errorf("the run is %v, %v", res.Status, err)
	}
	t.Logf("from a request to its effect: %v on average, %v at most", sum/(rounds+1), slowest)
}

// RunPostTx tests a store that posts requests in the program's own transactions. In one transaction, the function `place` inserts an answer into a
// table of the program and posts the request. If the store refuses the request, `place` rolls the transaction back and returns the error. If the
// argument `fails` is not nil, `place` rolls the transaction back and returns `fails`. The function `answers` returns the number of answers in the
// table.
func RunPostTx(t *testing.T, s store.Inbox, place func(run string, q store.Request, fails error) (posted bool, err error), answers func() int) {
	told := make(ear, 100)
	defer s.WatchRequests("r", told.tell)()
	lease := Begin(t, s, "r")
	for i, row := range []struct {
		run     string
		request store.Request
		fails   error
		posted  bool
		want    error
		answers int
	}{
		{"r", aSignal(1), errUndo, true, errUndo, 0},
		{"r", aSignal(1), nil, true, nil, 1},
		{"r", aSignal(1), nil, false, nil, 2},
		{"r", store.Request{ID: aSignal(1).ID, Kind: store.KindCancel}, nil, false, store.ErrRequestConflict, 2},
		{"r", store.Request{ID: "bad"}, nil, false, machine.ErrBadValue, 2},
		{"nobody", aSignal(1), nil, false, store.ErrUnknownRun, 2},
	} {
		posted, err := place(row.run, row.request, row.fails)
		if err := expectCause(err, row.want); err != nil || posted != row.posted {
			t.Errorf("row %d: posted: %v, %v", i, posted, err)
		}
		if got := answers(); got != row.answers {
			t.Errorf("row %d: %d answers", i, got)
		}
	}
	if err := told.heard("a watcher", "r"); err != nil {
		t.Error(err)
	}
	if err := expectRequests(t.Context(), s, "r", "1 waiting"); err != nil {
		t.Error(err)
	}
	Commit(t, s, lease, store.Commit{Sequence: 2, Status: machine.RunCompleted})
	if _, err := place("r", aSignal(2), nil); expectCause(err, store.ErrEnded) != nil {
		t.Error(err)
	}
}

// expectCause does what expectError does, except that it expects no error if want is nil.
func expectCause(err, want error) error {
	if err == nil && want == nil {
		return nil
	}
	return expectError("the transaction", err, want)
}
