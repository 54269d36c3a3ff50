package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestNoRetry: node.failed says why the node was not attempted again. Each row has a graph in which A fails.
func TestNoRetry(t *testing.T) {
	twice := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Second, Jitter: kahn.JitterNone}
	deaf := func(release chan struct{}) kahn.StepFunc {
		return func(context.Context, *kahn.Step) (any, error) { <-release; return nil, nil }
	}
	seen := map[event.NoRetry]bool{}
	for _, row := range []struct {
		name string
		want event.NoRetry
		node kahn.Node // node A
		more []kahn.Node
		opts []kahn.Option
	}{
		{"the default is one attempt", event.NoRetryNoPolicy, kahn.Node{Do: always(errStep)}, nil, nil},
		{"a policy of one attempt", event.NoRetryNoPolicy, kahn.Node{Retry: kahn.Retry{MaxAttempts: 1}, Do: always(errStep)}, nil, nil},
		{"the last attempt", event.NoRetryAttempts, kahn.Node{Retry: twice, Do: always(errStep)}, nil, nil},
		{"the last attempt, by default", event.NoRetryAttempts, kahn.Node{Do: always(errStep)}, nil, []kahn.Option{twice}},
		{"the last attempt, then the fallback", event.NoRetryAttempts, kahn.Node{
			Retry: twice, Do: always(errStep), Fallback: func(context.Context, error) (any, error) { return nil, errors.New("nor that") },
		}, nil, nil},
		{"a panic, by default", event.NoRetryCause, kahn.Node{Retry: twice, Do: func(context.Context, *kahn.Step) (any, error) { panic("oh") }}, nil, nil},
		{"a cause that the policy does not list", event.NoRetryCause, kahn.Node{
			Retry: kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{kahn.CauseTimeout}}, Do: always(errStep),
		}, nil, nil},
		{"a policy that lists none", event.NoRetryCause, kahn.Node{Retry: kahn.Retry{MaxAttempts: 2, RetryOn: []kahn.CauseKind{}}, Do: always(errStep)}, nil, nil},
		{"a gate", event.NoRetryCause, kahn.Node{Kind: kahn.KindGate, Gate: &kahn.Gate{Timeout: time.Second}}, []kahn.Node{{ID: "long", Do: takes(time.Minute)}}, nil},
		{"a permanent error", event.NoRetryPermanent, kahn.Node{Retry: twice, Do: always(kahn.Permanent(errStep))}, nil, nil},
		{"an error that aborts the run", event.NoRetryPermanent, kahn.Node{Retry: twice, Do: always(kahn.AbortRun(errStep))}, nil, nil},
		{"a hint that is too long", event.NoRetryHint, kahn.Node{Retry: twice, Do: always(kahn.RateLimited(errStep, time.Hour))}, nil, nil},
		{"no time left, the node's", event.NoRetryDeadline, kahn.Node{Retry: twice, OverallTimeout: time.Second, Do: always(errStep)}, nil, nil},
		{"no time left, the run's", event.NoRetryDeadline, kahn.Node{Retry: twice, Do: always(errStep)}, nil, []kahn.Option{kahn.Timeout(time.Second)}},
		{"the overall timeout, in an attempt", event.NoRetryOverall, kahn.Node{Retry: twice, OverallTimeout: time.Second, Do: untilStopped}, nil, nil},
		{"the overall timeout, between attempts", event.NoRetryOverall, kahn.Node{
			Retry: twice, OverallTimeout: 90 * time.Second, Groups: []string{"g"},
			Do: func(_ context.Context, s *kahn.Step) (any, error) { time.Sleep(time.Second); return nil, errStep },
		}, []kahn.Node{{ID: "other", Groups: []string{"g"}, Priority: -1, Do: takes(time.Hour)}}, nil},
		{"the attempt's timeout is retried", event.NoRetryAttempts, kahn.Node{Retry: twice, Timeout: time.Second, Do: untilStopped}, nil, nil},
		{"the run is being drained", event.NoRetryStopping, kahn.Node{Retry: twice, Do: fails(2 * time.Second)}, []kahn.Node{{ID: "B", Do: fails(time.Second)}},
			[]kahn.Option{kahn.StopScheduling}},
		{"a predecessor's failure is passed on", event.NoRetryUnstarted, kahn.Node{
			After: []string{"B"}, OnUpstreamFailure: kahn.UpstreamPropagate, Retry: twice, Do: neverStep(t),
		}, []kahn.Node{{ID: "B", Do: fails(0)}}, nil},
		{"the inputs are refused", event.NoRetryUnstarted, kahn.Node{Retry: twice, Moderation: kahn.ModerateInput, Do: neverStep(t)}, nil,
			[]kahn.Option{kahn.Moderate(func(context.Context, event.Phase, *kahn.Step, any) error { return kahn.Flag("no") })}},
		{"a sub-graph", event.NoRetryNoPolicy, kahn.Node{Sub: graph(kahn.Node{ID: "x", Do: always(errStep)})}, nil, nil},
		{"a sub-graph's last attempt", event.NoRetryAttempts, kahn.Node{Retry: twice, Sub: graph(kahn.Node{ID: "x", Do: always(errStep)})}, nil, nil},
		{"a condition", event.NoRetryCause, kahn.Node{Test: func(kahn.View) (any, error) { return nil, errStep }}, nil, []kahn.Option{twice}},
	} {
		inBubble(t, row.name, func(t *testing.T) {
			row.node.ID = "A"
			g := graph(append([]kahn.Node{row.node}, row.more...)...)
			if row.node.Groups != nil {
				g.Groups = []kahn.Group{{Name: "g", Limit: 1}}
			}
			checkNoRetry(t, try(t, g, nil, row.opts...), row.want)
		})
		seen[row.want] = true
	}
	inBubble(t, "an abandoned attempt", func(t *testing.T) {
		release := make(chan struct{})
		r := try(t, graph(kahn.Node{ID: "A", Retry: twice, Timeout: time.Second, Do: deaf(release)}), nil)
		close(release)
		checkNoRetry(t, r, event.NoRetryAbandoned)
	})
	seen[event.NoRetryAbandoned] = true
	for reason := event.NoRetryAbandoned; reason <= event.NoRetryDeadline; reason++ {
		if !seen[reason] {
			t.Errorf("no row for %v", reason)
		}
	}
}

func checkNoRetry(t *testing.T, r trial, want event.NoRetry) {
	t.Helper()
	ends := r.find(event.NodeFailed, "A")
	if len(ends) != 1 {
		t.Fatalf("A failed %d times\n%s", len(ends), eventText(r.events))
	}
	if got := ends[0].Payload.(event.NodeEnd).NoRetry; got != want {
		t.Errorf("no retry because of %v, expected %v\n%s", got, want, eventText(r.events))
	}
	data, err := ends[0].MarshalJSON()
	if text := fmt.Sprintf(`"no_retry":%q`, want); err != nil || !strings.Contains(string(data), text) {
		t.Errorf("%s, %v has no %s", data, err, text)
	}
}
