package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// stops expects that events about the stop of a run contain the request, and that other events contain none.
func (r trial) stops(want kahn.Request, nodes ...string) {
	r.t.Helper()
	if r.StopRequest != want {
		r.t.Errorf("the result says %v, expected %v", r.StopRequest, want)
	}
	stopped := map[string]bool{}
	for _, id := range nodes {
		stopped[id] = true
	}
	for _, e := range r.events {
		switch p := e.Payload.(type) {
		case event.NodeEnd:
			expected := kahn.Request{}
			if stopped[e.Path] {
				expected = want
				delete(stopped, e.Path)
			}
			if p.Request != expected {
				r.t.Errorf("%v, expected %v", e, expected)
			}
		case event.RunEnd:
			if p.Request != want {
				r.t.Errorf("%v, expected %v", e, want)
			}
		}
	}
	for id := range stopped {
		r.t.Errorf("nothing tells of the stop of %s\n%s", id, eventText(r.events))
	}
}

func TestStopRequest(t *testing.T) {
	ann := kahn.Request{Actor: "ann@example.com", Reason: "wrong input"}
	bob := kahn.Request{Actor: "bob", Reason: "out of budget"}
	// A is running and B waits for A. In S, x runs and y waits for x. D has failed before.
	g := graph(after("A"), after("B", "A"), subgraph("S", graph(after("x"), after("y", "x"))), kahn.Node{ID: "D", Do: fails(0)})
	inside := []string{"A", "B", "S", "S/x", "S/y"}

	inBubble(t, "cancel", func(t *testing.T) {
		for _, opts := range [][]kahn.Option{{}, {kahn.Limit(3)}, {kahn.Waves}} {
			r := tryControlled(t, t.Context(), g, untilStopped, soon(func(run *kahn.Run) {
				run.Cancel(ann)
				run.Cancel(bob)
				run.AbortAll(errStep, bob)
			}), opts...)
			r.expect("A:C B:C S:C D:F", "failed") // the failure of D came first
			r.stops(ann, inside...)
			if !r.CancelRequested {
				t.Error("nobody has asked")
			}
		}
	})
	inBubble(t, "abort", func(t *testing.T) {
		r := tryControlled(t, t.Context(), g, untilStopped, soon(func(run *kahn.Run) { run.AbortAll(errStep, bob) }))
		r.expect("A:X B:X S:X D:F", "failed")
		r.stops(bob, inside...)
		if !errors.Is(r.err, errStep) {
			t.Error(r.err)
		}
	})
	inBubble(t, "the first request stands, also if it said nothing", func(t *testing.T) {
		r := tryControlled(t, t.Context(), g, untilStopped, soon(func(run *kahn.Run) { run.Cancel(); run.Cancel(ann) }))
		r.stops(kahn.Request{})
	})
	inBubble(t, "a node that is stopped inside of a run that goes on is not ended by a request for the run", func(t *testing.T) {
		g := graph(after("A"), subgraph("S", graph(after("x"), subgraph("T", graph(after("y"))))))
		slow := func(ctx context.Context, s *kahn.Step) (any, error) { // ends after both requests
			<-ctx.Done()
			time.Sleep(10 * ms)
			return nil, ctx.Err()
		}
		r := tryControlled(t, t.Context(), g, slow, soon(func(run *kahn.Run) {
			if err := run.CancelNode("S"); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			run.Cancel(ann)
		}))
		r.expect("A:C S:C", "cancelled")
		r.stops(ann, "A")
	})
	inBubble(t, "neither is one whose time was up before", func(t *testing.T) {
		g := graph(after("A"), kahn.Node{ID: "Z", Do: takes(10 * ms), Cleanup: true, After: []string{"A"}})
		r := tryControlled(t, t.Context(), g, untilStopped, func(run *kahn.Run) { time.Sleep(15 * ms); run.Cancel(ann) }, kahn.Timeout(10*ms))
		r.expect("A:X Z:ok", "failed")
		r.stops(ann) // the request is kept, although no node was stopped
	})
	inBubble(t, "a pending run", func(t *testing.T) {
		rn := &kahn.Runner{MaxRuns: 1}
		first, err := rn.Start(t.Context(), graph(after("A")), takes(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		rec := newRecorder()
		run, err := rn.Start(t.Context(), graph(after("A")), neverStep(t), kahn.OnEvent(rec.add))
		if err != nil {
			t.Fatal(err)
		}
		run.Cancel(ann)
		res, err := run.Wait()
		r := trial{res, t, err, rec.all()}
		r.expect("A:C", "cancelled")
		r.stops(ann, "A")
		_, _ = first.Wait()
	})
	inBubble(t, "texts are bounded and valid", func(t *testing.T) {
		r := tryControlled(t, t.Context(), graph(after("A")), untilStopped, soon(func(run *kahn.Run) {
			run.Cancel(kahn.Request{Actor: "\xff", Reason: strings.Repeat("ä", 5000)})
		}))
		got := r.StopRequest
		if len(got.Reason) > 1100 || !strings.HasPrefix(got.Reason, "ää") || !utf8.ValidString(got.Actor+got.Reason) || got.Actor == "" {
			t.Errorf("%d bytes: %v", len(got.Reason), got)
		}
		r.stops(got, "A")
	})
}

// If a process dies before its stopped run has ended, the next life still knows the request of the stop.
func TestStopRequestSurvives(t *testing.T) {
	ann := kahn.Request{Actor: "ann", Reason: "wrong input"}
	g := graph(after("A"), subgraph("S", graph(after("x"))))
	for name, stored := range map[string]bool{"snapshot": false, "store": true} {
		inBubble(t, name, func(t *testing.T) {
			var opts []kahn.Option
			store := new(journal)
			if stored {
				opts = []kahn.Option{kahn.Durable(store), kahn.RunID("r")}
			}
			// The steps take long to stop. The snapshot, or the copy of the store, is taken before they have stopped.
			slow := func(ctx context.Context, _ *kahn.Step) (any, error) {
				<-ctx.Done()
				time.Sleep(time.Second)
				return nil, ctx.Err()
			}
			rec := newRecorder()
			run, err := kahn.Start(t.Context(), g, slow, append(opts, kahn.OnEvent(rec.add))...)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			run.Cancel(ann)
			synctest.Wait()
			seen := rec.all()
			snapshot := run.Snapshot()
			if stored {
				opts = []kahn.Option{kahn.Durable(store.replay(t, "r", store.len())), kahn.RunID("r")}
			} else {
				opts = []kahn.Option{kahn.Resume(reload(t, snapshot))}
			}
			_, _ = run.Wait()
			again := newRecorder()
			res, err := kahn.Execute(t.Context(), g, neverStep(t), append(opts, kahn.OnEvent(again.add))...)
			if res == nil {
				t.Fatal(err)
			}
			from := again.all()[0].Payload.(event.Recovery).From
			r := trial{res, t, err, append(seen[:from:from], again.all()...)}
			checkEvents(t, g, res, r.events)
			r.expect("A:C S:C", "cancelled")
			r.stops(ann, "A", "S", "S/x")
		})
	}
}

func TestRedriveRequest(t *testing.T) {
	ann, bob := kahn.Request{Actor: "ann", Reason: "the disk was full"}, kahn.Request{Actor: "bob", Reason: "stop it"}
	g := graph(after("A"), gate("G", "A"), after("B", "G"))
	inBubble(t, "redrive, resume, stop, redrive", func(t *testing.T) {
		r := try(t, g, breaks("A"))
		r.expect("A:F G:X B:X", "failed")
		r = r.goOn(g, takes(0), []kahn.Option{kahn.Redrive(reload(t, r.Snapshot()), nil, ann)})
		r.expect("A:ok G:suspended B:waiting", "suspended")
		told := map[event.Type]int{}
		for _, e := range r.events {
			var got kahn.Request
			switch p := e.Payload.(type) {
			case event.StatusChange:
				if got = p.Request; p.To == kahn.RunSuspended && got == (kahn.Request{}) {
					continue
				}
			case event.Invalidation:
				got = p.Request
			default:
				continue
			}
			told[e.Type]++
			if got != ann {
				t.Errorf("%v", e)
			}
		}
		if told[event.RunStatusChanged] != 1 || told[event.NodeInvalidated] != 3 {
			t.Errorf("%v\n%s", told, eventText(r.events))
		}
		if r.RedriveRequest != ann || r.StopRequest != (kahn.Request{}) {
			t.Errorf("the result says %v, %v", r.RedriveRequest, r.StopRequest)
		}
		r = r.resume(g, untilStopped, map[string]any{"G": 1}, kahn.Timeout(time.Second)) // the epoch continues
		r.expect("A:ok G:ok B:X", "failed")
		if r.RedriveRequest != ann {
			t.Errorf("the next life says %v", r.RedriveRequest)
		}
		r = r.redrive(g, takes(0)) // a new epoch, without a request
		r.expect("A:ok G:ok B:ok", "completed")
		if r.RedriveRequest != (kahn.Request{}) {
			t.Errorf("the next epoch says %v", r.RedriveRequest)
		}
	})
	inBubble(t, "what was said of the stop of an epoch is not said of the next", func(t *testing.T) {
		g := graph(after("A"))
		r := tryControlled(t, t.Context(), g, untilStopped, soon(func(run *kahn.Run) { run.Cancel(bob) }))
		r = r.goOn(g, takes(0), []kahn.Option{kahn.Redrive(reload(t, r.Snapshot()), nil, ann)})
		r.expect("A:ok", "completed")
		if r.StopRequest != (kahn.Request{}) || r.RedriveRequest != ann || r.CancelRequested {
			t.Errorf("%v, %v, %v", r.StopRequest, r.RedriveRequest, r.CancelRequested)
		}
	})
	inBubble(t, "of several the first counts, and the last Redrive", func(t *testing.T) {
		r := tryControlled(t, t.Context(), g, untilStopped, soon(func(run *kahn.Run) { run.Cancel(bob, ann) }))
		if r.StopRequest != bob {
			t.Error(r.StopRequest)
		}
		s := reload(t, r.Snapshot())
		r = r.goOn(g, takes(0), []kahn.Option{kahn.Redrive(s, nil, ann), kahn.Redrive(s, nil)})
		if r.RedriveRequest != (kahn.Request{}) {
			t.Error(r.RedriveRequest)
		}
	})
}

func TestRequestTexts(t *testing.T) {
	for want, q := range map[string]kahn.Request{
		``:                             {},
		`by "ann"`:                     {Actor: "ann"},
		`because "no\nmoney"`:          {Reason: "no\nmoney"},
		`by "a b" because "it is bad"`: {Actor: "a b", Reason: "it is bad"},
	} {
		if got := q.String(); got != want {
			t.Errorf("%s, expected %s", got, want)
		}
	}
	inBubble(t, "logs", func(t *testing.T) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, nil))
		tryControlled(t, t.Context(), graph(after("A")), untilStopped, soon(func(run *kahn.Run) { run.Cancel(kahn.Request{Actor: "ann", Reason: "wrong"}) }),
			kahn.OnEvent(event.LogTo(logger)))
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			told := strings.Contains(line, "actor=ann request_reason=wrong")
			if ended := strings.Contains(line, "cancelled"); told != ended {
				t.Error(line)
			}
		}
	})
}
