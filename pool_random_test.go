package kahn_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// Random runs of all kinds of nodes share random bounds and have some of their own; the host cancels, leaves, signals and resumes
// them at random. Bounds hold for every run that is not being stopped, a run that is stopped ends soon, and in the end everything is
// returned.
func TestRandomSharedStops(t *testing.T) {
	for seed := range seeds(t, size(50, 50, 20_000)) {
		synctest.Test(t, func(t *testing.T) { randomSharedStops(t, seed) })
	}
}

// sharer makes random graphs whose nodes share groups and keys.
type sharer struct {
	*rand.Rand
	rare bool
}

func (x *sharer) one(n int) bool { return x.IntN(n) == 0 }

func (x *sharer) rate() kahn.Rate {
	switch {
	case x.one(2):
		return kahn.Rate{}
	case x.rare && x.one(3):
		return kahn.Rate{Starts: 1, Per: time.Hour, Burst: 1 + x.IntN(3)}
	}
	return kahn.Rate{Starts: 1 + x.IntN(9), Per: time.Duration(1+x.IntN(1000)) * ms, Burst: x.IntN(4)}
}

func (x *sharer) graph(depth int) *kahn.Graph {
	g := new(kahn.Graph)
	n := 1 + x.IntN(6)
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i), Priority: x.IntN(2)}
		for range x.IntN(3) {
			if i > 0 {
				if from := fmt.Sprint("n", x.IntN(i)); !slices.Contains(node.After, from) {
					node.After = append(node.After, from)
				}
			}
		}
		if x.one(2) {
			node.Key = fmt.Sprint("k", x.IntN(2))
		}
		if x.one(3) {
			node.Groups = []string{"g"}
		}
		if x.one(4) {
			node.Retry = kahn.Retry{MaxAttempts: 2, InitialDelay: time.Duration(1+x.IntN(500)) * ms, Jitter: kahn.JitterNone}
		}
		if x.one(6) {
			node.Cleanup = true
		}
		switch kind := x.IntN(9); {
		case kind == 0 && !node.Cleanup:
			node = kahn.Node{ID: node.ID, Kind: kahn.KindGate, After: node.After}
		case kind == 1 && depth < 2:
			node.Sub, node.Key, node.Groups = x.graph(depth+1), "", nil
		case kind == 2:
			node.Map = &kahn.Map{Over: "list", Limit: x.IntN(3), FailFast: x.one(2)}
			if x.one(2) {
				node.Key, node.Map.Key = "", func(item any) string { return fmt.Sprint("k", item) }
			}
			if x.one(3) && depth < 2 {
				node.Sub, node.Map.Key, node.Key, node.Groups = x.graph(depth+1), nil, "", nil
			}
			node.Params = map[string]any{"list": []any{0, 1, 0, 1}[:x.IntN(5)]}
		case kind == 3 && depth < 2:
			node.Sub, node.Key, node.Groups = x.graph(depth+1), "", nil
			node.Loop = &kahn.Loop{MaxIterations: 2, OnLimit: kahn.LoopStop, While: func(kahn.View) (bool, error) { return true, nil }}
		}
		g.Add(node)
	}
	if x.one(3) {
		end := kahn.Node{ID: "end", Kind: kahn.KindEnd}
		if x.one(2) {
			end.Key = "k0"
		}
		g.Add(end)
	}
	return g
}

func randomSharedStops(t *testing.T, seed uint64) {
	x := &sharer{Rand: rand.New(rand.NewPCG(seed, 23))}
	x.rare = x.one(2)
	rn := &kahn.Runner{Limit: x.IntN(4), Rate: x.rate(), KeyLimit: x.IntN(3), KeyRate: x.rate(), MaxRuns: x.IntN(4), CancelOnShutdown: x.one(2)}
	if rn.Limit+rn.KeyLimit == 0 && rn.Rate == rn.KeyRate {
		rn.Limit = 1
	}
	moods := rand.New(rand.NewPCG(seed, 29))
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		mood := uint64(len(s.Path()))*7 + uint64(s.Attempt()) + seed
		if _, resumed := s.Resumed(); mood%11 == 0 && !resumed {
			return nil, kahn.Suspend("", nil, nil)
		}
		if _, err := takes(time.Duration(mood%7*50)*ms)(ctx, s); err != nil {
			return nil, err
		}
		if mood%5 == 0 {
			return nil, errStep
		}
		return nil, nil
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	type life struct {
		run   *kahn.Run
		g     *kahn.Graph
		opts  []kahn.Option
		rec   *recorder
		store store.Store

		events    []kahn.Event // of the lives before
		abandoned bool         // an attempt of one of them was: the next may overlap with it
	}
	var lives []*life
	begin := func(l *life, opts ...kahn.Option) {
		l.rec = newRecorder()
		run, err := rn.Start(t.Context(), l.g, step, slices.Concat(l.opts, opts, []kahn.Option{kahn.OnEvent(l.rec.add)})...)
		if err != nil {
			t.Fatal(err)
		}
		l.run = run
	}
	wait := func(l *life) *kahn.Result {
		res, err := l.run.Wait()
		if left := l.run.Leftovers(); left != "" && res.Status.Terminal() {
			t.Errorf("left over of a run that is %v: %s, %v", res.Status, left, err)
		}
		last := l.rec.all()
		if len(last) == 0 { // it was waited for before
			return res
		}
		l.events, l.rec = append(l.events, last...), newRecorder()
		l.abandoned = l.abandoned || len(res.Abandoned) > 0
		for what, events := range map[string][]kahn.Event{"all lives": l.events, "the last life": last} {
			if err := kahntest.CheckEvents(l.g, res, events); err != nil && !l.abandoned {
				t.Errorf("%s: %v\n%s", what, err, eventText(events))
			}
		}
		return res
	}
	for i := range 1 + x.IntN(4) {
		l := &life{g: x.graph(0)}
		l.g.Groups = []kahn.Group{{Name: "g", Limit: x.IntN(3), Rate: x.rate(), CancelOnFailure: x.one(4)}}
		l.opts = []kahn.Option{kahn.RunID(fmt.Sprint(i)), kahn.Limit(x.IntN(4)), kahn.StartRate(x.rate()), kahn.KeyLimit(x.IntN(3)), kahn.KeyRate(x.rate()),
			kahn.CleanupTimeout(time.Second)}
		if x.one(5) {
			l.opts = append(l.opts, kahn.Waves)
		}
		if x.one(4) {
			l.opts = append(l.opts, kahn.SuspendStop)
		}
		if x.one(4) {
			l.opts = append(l.opts, kahn.AbortRunning)
		}
		if x.one(4) {
			l.opts = append(l.opts, kahn.Drain)
		}
		if x.one(3) {
			l.store = new(kahn.MemoryStore)
			l.opts = append(l.opts, kahn.Durable(l.store))
		}
		begin(l)
		lives = append(lives, l)
	}
	for range x.IntN(12) {
		if x.one(2) {
			time.Sleep(time.Duration(x.IntN(500)) * ms)
		}
		if x.one(2) {
			synctest.Wait()
		}
		l := lives[x.IntN(len(lives))]
		switch x.IntN(8) {
		case 0:
			l.run.Cancel()
		case 1:
			l.run.AbortAll(nil)
		case 2:
			_ = l.run.CancelNode(fmt.Sprint("n", x.IntN(6)))
		case 3, 4:
			for _, w := range l.run.Waiting() {
				_ = l.run.Signal(context.Background(), cmp.Or(w.Token, w.Node), true)
			}
		default: // it goes on, or not, after it was left
			l.run.Leave()
			select {
			case <-l.run.Done():
			case <-time.After(time.Minute): // of its cleanup, if it was stopped
				t.Errorf("a run that is being left has not ended\n%s", eventText(l.rec.all()))
				return
			}
			switch res := wait(l); {
			case res.Status != kahn.RunSuspended:
			case l.store != nil:
				begin(l)
			default:
				begin(l, kahn.Resume(res.Snapshot()))
			}
		}
	}
	if x.one(2) {
		time.Sleep(time.Duration(x.IntN(3000)) * ms)
	}
	stopped := time.Now()
	if x.one(2) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(moods.IntN(2000))*ms)
		_ = rn.Shutdown(ctx)
		cancel()
	} else {
		for _, l := range lives {
			l.run.Cancel()
			if x.one(2) {
				time.Sleep(time.Duration(x.IntN(300)) * ms)
			}
		}
	}
	for _, l := range lives {
		_ = wait(l)
	}
	if took := time.Since(stopped); took > time.Minute {
		t.Errorf("the runs took %v to stop", took)
	}
	idle(t, rn)
}
