package kahn_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/trees"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// TestRandomTrees runs random composites whose steps fail, are slow or ignore their context, under limits, stopped at a
// random moment, and checks the events, and that no goroutine, slot or timer is left.
func TestRandomTrees(t *testing.T) {
	n := uint64(300)
	if testing.Short() {
		n = 50
	}
	for seed := range n {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, seed))
			g := trees.Maker{Rand: rng}.Graph(3)
			opts := []kahn.Option{kahn.Limit(rng.IntN(3)), kahn.KeyLimit(rng.IntN(2)), kahn.Mode(rng.IntN(2)), kahn.FailureMode(rng.IntN(3)),
				kahn.StopMode(rng.IntN(2)), kahn.CancelGrace(20 * ms), kahn.Random(func() float64 { return 0.5 })}
			stop, after := rng.IntN(6), time.Duration(rng.IntN(200))*ms
			salt := rng.Uint64()
			step := func(ctx context.Context, s *kahn.Step) (any, error) {
				h := rand.New(rand.NewPCG(salt, uint64(len(s.Path())*31+s.Attempt())+uint64(s.Index()+1)*7+uint64(s.Path()[len(s.Path())-1])))
				d := time.Duration(h.IntN(40)) * ms
				switch h.IntN(12) {
				case 0:
					time.Sleep(d + 30*ms) // whatever its context says
					return nil, ctx.Err()
				case 1, 2:
					time.Sleep(d)
					return nil, errStep
				case 3:
					return nil, kahn.Skip("no")
				}
				return takes(d)(ctx, s)
			}
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), g, step, append(opts, kahn.OnEvent(rec.add))...)
			if err != nil {
				t.Fatal(seed, err)
			}
			switch stop {
			case 0, 1:
				time.AfterFunc(after, func() { run.Cancel() })
			case 2:
				time.AfterFunc(after, func() { run.AbortAll(errHost) })
			case 3:
				time.AfterFunc(after, func() { _ = run.CancelNode("n0") })
			}
			res, _ := run.Wait()
			if left := run.Leftovers(); left != "" {
				t.Errorf("seed %d: left over: %s", seed, left)
			}
			if len(res.Warnings) > 0 || !res.Status.Terminal() {
				t.Errorf("seed %d: %v, warnings %v", seed, res.Status, res.Warnings)
			}
			if len(res.Abandoned) == 0 {
				if err := kahntest.CheckEvents(g, res, rec.all()); err != nil {
					t.Errorf("seed %d: %v\n%s", seed, err, eventText(rec.all()))
				}
			}
			time.Sleep(time.Second) // abandoned steps return
		})
		if t.Failed() {
			return
		}
	}
}
