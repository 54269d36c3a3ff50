package conformance_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestJudgesStress runs random graphs whose contracts and moderators take time, refuse, return errors, panic, call Goexit and hang, while runs
// are cancelled, time out and fail fast. No step may run without accepted inputs, no refused output may be used, and every slot and goroutine
// must be released. try checks the events.
func TestJudgesStress(t *testing.T) {
	for seed := range uint64(400) {
		synctest.Test(t, func(t *testing.T) { judgesStress(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// verdicts holds the last verdict about each phase of each node.
type verdicts struct {
	mu     sync.Mutex
	passed map[string]map[event.Phase]bool
}

func (v *verdicts) say(id string, phase event.Phase, passed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.passed[id] == nil {
		v.passed[id] = map[event.Phase]bool{}
	}
	v.passed[id][phase] = passed
}

func (v *verdicts) of(id string, phase event.Phase) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.passed[id][phase]
}

func judgesStress(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	one := func(n int) bool { return rng.IntN(n) == 0 }
	said := verdicts{passed: map[string]map[event.Phase]bool{}}

	// judge draws the behavior of a contract or a moderator. All calls of one judge behave in the same way, except that a judge that failed
	// may succeed later.
	judge := func(id string, phase event.Phase) func(ctx context.Context) error {
		delay, ill, calls := time.Duration(rng.IntN(4))*ms, rng.IntN(14), 0
		heals, deaf := one(2), one(8)
		return func(ctx context.Context) error {
			said.say(id, phase, false)
			calls++
			if deaf || ctx == nil {
				time.Sleep(delay)
			} else {
				select {
				case <-time.After(delay):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if calls == 1 || !heals {
				switch ill {
				case 0:
					return kahn.Flag("ill")
				case 1:
					return errHost
				case 2:
					panic(errHost)
				case 3:
					runtime.Goexit()
				}
			}
			said.say(id, phase, true)
			return nil
		}
	}
	moderators := map[string]map[event.Phase]func(context.Context) error{}
	g := graph()
	g.Groups = []kahn.Group{{Name: "g", Limit: 1 + rng.IntN(2), CancelOnFailure: one(4)}}
	nodes := 2 + rng.IntN(8)
	for i := range nodes {
		n := kahn.Node{ID: fmt.Sprint(i), Cleanup: one(10), ContinueOnFail: one(6), Critical: one(20)}
		for j := range i {
			if one(4) {
				n.After = append(n.After, fmt.Sprint(j))
			}
		}
		if one(2) {
			n.Moderation = kahn.Moderation(1 + rng.IntN(3))
			moderators[n.ID] = map[event.Phase]func(context.Context) error{
				event.PhaseInput: judge(n.ID, event.PhaseInput), event.PhaseOutput: judge(n.ID, event.PhaseOutput)}
		} else {
			contract := func(phase event.Phase) kahn.Contract {
				f := judge(n.ID, phase)
				return shape{func(any) []kahn.Violation {
					if f(nil) != nil {
						return []kahn.Violation{tooSmall}
					}
					return nil
				}}
			}
			if one(2) {
				n.InputSchema = contract(event.PhaseInput)
			}
			if one(2) {
				n.OutputSchema = contract(event.PhaseOutput)
			}
		}
		if one(3) {
			n.Timeout = time.Duration(1+rng.IntN(6)) * ms
		}
		if one(5) {
			n.OverallTimeout = time.Duration(3+rng.IntN(9)) * ms
		}
		if one(2) {
			n.Retry = kahn.Retry{MaxAttempts: 3, InitialDelay: time.Duration(rng.IntN(3)) * ms, RetryOn: []kahn.CauseKind{
				kahn.CauseContractOutput, kahn.CauseTimeout, kahn.CauseStepError, kahn.CausePanic}}
		}
		if one(5) {
			n.Fallback = func(context.Context, error) (any, error) { return "fallback", nil }
		}
		if one(4) {
			n.Groups = []string{"g"}
		}
		if one(6) && len(n.After) > 1 {
			n.Join, n.CancelLosers = kahn.AnySucceeded, one(2)
			n.Cleanup = false
		}
		judged := n.InputSchema != nil || n.Moderation == kahn.ModerateInput || n.Moderation == kahn.ModerateBoth
		delay, fails := time.Duration(rng.IntN(4))*ms, one(8)
		n.Do = func(ctx context.Context, s *kahn.Step) (any, error) {
			if judged && !said.of(s.ID(), event.PhaseInput) {
				t.Errorf("%s was called although its inputs did not pass", s.ID())
			}
			if fails && s.Attempt() == 1 {
				return nil, errStep
			}
			return takes(delay)(ctx, s)
		}
		g.Add(n)
	}
	opts := []kahn.Option{
		kahn.Limit(rng.IntN(4)), kahn.CancelGrace(ms), kahn.Mode(rng.IntN(2)),
		kahn.FailureMode(rng.IntN(3)), kahn.StopMode(rng.IntN(2)),
		kahn.Moderate(func(ctx context.Context, phase event.Phase, s *kahn.Step, _ any) error {
			return moderators[s.ID()][phase](ctx)
		}),
	}
	if one(4) {
		opts = append(opts, kahn.Timeout(time.Duration(2+rng.IntN(12))*ms))
	}
	stop := time.Duration(rng.IntN(15)) * ms
	var run *kahn.Run
	r := tryControlled(t, t.Context(), g, nil, func(self *kahn.Run) {
		run = self
		switch rng.IntN(6) {
		case 0:
			time.Sleep(stop)
			run.Cancel()
		case 1:
			time.Sleep(stop)
			run.AbortAll(nil)
		case 2:
			time.Sleep(stop)
			_ = run.CancelNode("0")
		}
	}, opts...)
	if left := leftovers(run); left != "" {
		t.Errorf("left over: %s", left)
	}
	for _, n := range g.Nodes() {
		res := r.node(n.ID)
		judged := n.OutputSchema != nil || n.Moderation == kahn.ModerateOutput || n.Moderation == kahn.ModerateBoth
		if res.Status == kahn.Completed && judged && !said.of(n.ID, event.PhaseOutput) {
			t.Errorf("%s completed although its output did not pass: %+v", n.ID, res)
		}
		switch res.Cause.Kind {
		case kahn.CauseContractInput, kahn.CauseModeration:
			if res.Cause.Kind == kahn.CauseContractInput && res.Attempts != 0 || res.LastErr != nil && res.Attempts < 1 {
				t.Errorf("%+v", res)
			}
		}
	}
	for _, w := range r.Warnings {
		if !strings.Contains(w.Error(), "a cleanup node that follows no node") { // the random graphs contain such nodes
			t.Errorf("warning %v", w)
		}
	}
	time.Sleep(time.Second) // abandoned judges return
}
