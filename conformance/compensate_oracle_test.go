package conformance_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/sagas"
)

var sagaCount = flag.Int("sagas", 400, "random graphs whose compensations are checked")

// tellSaga performs a random saga, stops it at a random time and in a random way, and returns the errors that it finds in the end state.
func tellSaga(t *testing.T, seed uint64, depth int) (res *kahn.Result, wrong []string) {
	synctest.Test(t, func(t *testing.T) {
		w := sagas.New(seed)
		r := rand.New(rand.NewPCG(seed, 7))
		g := w.Graph(r, depth)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		opts, host := sagas.Conditions(r, cancel)
		trial := tryControlled(t, ctx, g, nil, host, opts...)
		res = trial.Result
		wrong = w.Check(g, trial.Result, trial.err, trial.events)
		if len(wrong) > 0 {
			t.Logf("seed %d: %v\n%s\n%s\n%s", seed, res.Status, strings.Join(wrong, "\n"), eventText(trial.events), slices.Sorted(maps.Keys(w.Has)))
		}
	})
	return res, wrong
}

// The test performs random graphs with random outcomes and stops. Each effect is compensated or reported, nodes are compensated in reverse order,
// and a run that completes undoes nothing.
func TestSagas(t *testing.T) {
	t.Parallel()
	for depth := range 3 {
		t.Run(fmt.Sprint("depth ", depth), func(t *testing.T) { sagasOf(t, depth) })
	}
}

func sagasOf(t *testing.T, depth int) {
	ends := map[kahn.RunStatus]int{}
	undone, failed := 0, 0
	count := size(*sagaCount, *sagaCount/5, 20**sagaCount)
	for seed := range seeds(t, count) {
		res, wrong := tellSaga(t, seed, depth)
		if len(wrong) > 0 {
			t.Fatalf("seed %d: %s", seed, strings.Join(wrong, "\n"))
		}
		ends[res.Status]++
		for n := range res.Nodes() {
			switch n.Compensation {
			case kahn.CompensationDone:
				undone++
			case kahn.CompensationFailed:
				failed++
			}
		}
	}
	t.Log(ends, undone, failed)
	if ends[kahn.RunCompleted] < count/20 || ends[kahn.RunCancelled] < count/20 || undone < count || failed < count/50 {
		t.Errorf("the sagas show too little: %v, %d undone, %d failed", ends, undone, failed)
	}
}
