package kahn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// A release waits for a person. The answer to the gate is the label of the branch that the run takes.
func ExampleGate() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "build", Do: nothing},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"build"}, Gate: &kahn.Gate{Timeout: 24 * time.Hour}},
		kahn.Node{ID: "publish", Do: nothing},
		kahn.Node{ID: "discard", Do: nothing},
	)
	g.Connect(
		kahn.Edge{From: "approve", To: "publish", Label: "approved"},
		kahn.Edge{From: "approve", To: "discard", Label: "rejected"},
	)
	run, err := kahn.Start(context.Background(), &g, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var wrong *kahn.ChoiceError
	if errors.As(run.Signal(context.Background(), "approve", "maybe"), &wrong) {
		fmt.Println("choose one of", wrong.Choices[:2])
	}
	if err := run.Signal(context.Background(), "approve", kahn.Decision{Value: "approved", Actor: "Ada"}); err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Wait()
	for n := range res.Nodes() {
		fmt.Println(n.ID, n.Status)
	}
	fmt.Println(err)
	// Output:
	// choose one of [approved rejected]
	// build completed
	// approve completed
	// publish completed
	// discard skipped
	// <nil>
}

// A step that follows a gate records who approved.
func ExampleView_Decision() {
	g := new(kahn.Graph).Add(
		kahn.Node{ID: "approve", Kind: kahn.KindGate},
		kahn.Node{ID: "publish", After: []string{"approve"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			d := s.View().Decision("approve")
			return fmt.Sprintf("approved by %s: %s", d.Actor, d.Comment), nil
		}},
	)
	answer := kahn.Decision{Value: "yes", Actor: "Ada", Comment: "after the audit"}
	res, err := kahn.Execute(context.Background(), g, nil, kahn.EarlySignals(map[string]any{"approve": answer}))
	fmt.Println(res.Output(), err)
	// Output: approved by Ada: after the audit <nil>
}

// A run that can only wait returns suspended. Another process continues it when the answer arrives.
func ExampleResume() {
	graph := func() *kahn.Graph {
		return new(kahn.Graph).Add(
			kahn.Node{ID: "draft", Do: func(context.Context, *kahn.Step) (any, error) { return "Dear customer", nil }},
			kahn.Node{ID: "review", Kind: kahn.KindGate, After: []string{"draft"}},
			kahn.Node{ID: "send", After: []string{"review"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
				return fmt.Sprint("sent: ", s.View().Output("draft")), nil
			}},
		)
	}
	ctx := context.Background()
	res, err := kahn.Execute(ctx, graph(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status, res.Waiting[0].Node)
	file, err := json.Marshal(res.Snapshot())
	if err != nil {
		fmt.Println(err)
		return
	}

	snapshot := new(kahn.Snapshot) // in another process
	if err := json.Unmarshal(file, snapshot); err != nil {
		fmt.Println(err)
		return
	}
	res, err = kahn.Execute(ctx, graph(), nil, kahn.Resume(snapshot), kahn.EarlySignals(map[string]any{"review": true}))
	send, _ := res.Node("send")
	fmt.Println(res.Status, send.Output, err)
	// Output:
	// suspended review
	// completed sent: Dear customer <nil>
}

// A step starts a slow job and suspends. It is called again when the result of the job arrives.
func ExampleSuspend() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "render", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		if url, ok := s.Resumed(); ok {
			return url, nil
		}
		// The result of the job will be reported under the same name.
		return nil, kahn.Suspend("job-17", "a video is rendered", nil)
	}})
	run, err := kahn.Start(context.Background(), &g, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := run.WaitFor(context.Background(), "render", kahn.Suspended); err != nil {
		fmt.Println(err)
		return
	}
	if err := run.Signal(context.Background(), "job-17", "https://example.org/video"); err != nil {
		fmt.Println(err)
		return
	}
	res, err := run.Wait()
	render, _ := res.Node("render")
	fmt.Println(render.Output, render.Attempts, err)
	// Output: https://example.org/video 1 <nil>
}

// A step runs for each item of a list, for two items at a time. One of three items may fail.
func ExampleMap() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "list", Do: func(context.Context, *kahn.Step) (any, error) { return []string{"a", "bb", ""}, nil }},
		kahn.Node{ID: "measure", Map: &kahn.Map{Over: "words", Limit: 2, ToleratedCount: 1}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			word, _ := s.Item()
			if word == "" {
				return nil, errors.New("no word")
			}
			return len(word.(string)), nil
		}},
	)
	g.Connect(kahn.Edge{From: "list", To: "measure", Param: "words"})
	res, err := kahn.Execute(context.Background(), &g, nil)
	measure, _ := res.Node("measure")
	fmt.Println(measure.Output, res.Degraded, err)
	for n := range measure.Sub.Nodes() {
		fmt.Println(n.ID, n.Status, n.Output)
	}
	// Output:
	// [1 2 <nil>] true <nil>
	// measure[0] completed 1
	// measure[1] completed 2
	// measure[2] failed <nil>
}

// A graph runs for each item of a list. Its inputs are the item and the other parameters of the map.
func ExampleMap_sub() {
	resize := new(kahn.Graph).Add(
		kahn.Node{ID: "load", Do: func(_ context.Context, s *kahn.Step) (any, error) {
			name, _ := s.Item()
			return fmt.Sprint("pixels of ", name), nil
		}},
		kahn.Node{ID: "scale", After: []string{"load"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			width, _ := s.Root("width")
			return fmt.Sprintf("%v at width %v", s.View().Output("load"), width), nil
		}},
	)
	var g kahn.Graph
	g.Add(kahn.Node{ID: "pictures", Sub: resize, Map: &kahn.Map{Over: "names"}, Params: map[string]any{"names": []string{"cat", "dog"}, "width": 80}})
	res, err := kahn.Execute(context.Background(), &g, nil)
	pictures, _ := res.Node("pictures")
	fmt.Println(pictures.Output, err)
	// Output: [pixels of cat at width 80 pixels of dog at width 80] <nil>
}

// A nested graph is repeated until its result is good enough.
func ExampleLoop() {
	improve := new(kahn.Graph).Add(kahn.Node{ID: "improve", Do: func(_ context.Context, s *kahn.Step) (any, error) {
		guess, ok := s.Root("previous")
		if !ok {
			return 1.0, nil
		}
		x := guess.(float64)
		return (x + 2/x) / 2, nil
	}})
	var g kahn.Graph
	g.Add(kahn.Node{ID: "root", Sub: improve, Loop: &kahn.Loop{MaxIterations: 20, Until: func(v kahn.View) (bool, error) {
		x := v.Output("improve").(float64)
		square := x * x
		return square-2 < 1e-9 && 2-square < 1e-9, nil
	}}})
	res, err := kahn.Execute(context.Background(), &g, nil)
	root, _ := res.Node("root")
	fmt.Printf("%.6f %v\n", root.Output, err)
	// Output: 1.414214 <nil>
}

// A step is attempted three times. The Result contains the earlier attempts.
func ExampleRetry() {
	tries := 0
	var g kahn.Graph
	g.Add(kahn.Node{ID: "call", Retry: kahn.Retry{MaxAttempts: 3, InitialDelay: time.Millisecond}, Do: func(context.Context, *kahn.Step) (any, error) {
		if tries++; tries < 3 {
			return nil, errors.New("connection refused")
		}
		return "hello", nil
	}})
	res, err := kahn.Execute(context.Background(), &g, nil)
	call, _ := res.Node("call")
	fmt.Println(call.Output, call.Attempts, err)
	for _, attempt := range call.History() {
		fmt.Println(attempt.Err)
	}
	// Output:
	// hello 3 <nil>
	// connection refused
	// connection refused
	// <nil>
}

// An operator cancels a run with a reason. The cleanup node still runs.
func ExampleRun_Cancel() {
	began := make(chan struct{})
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "train", Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
			close(began)
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		kahn.Node{ID: "free the machine", Cleanup: true, After: []string{"train"}, Do: nothing},
	)
	run, err := kahn.Start(context.Background(), &g, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	<-began
	run.Cancel(kahn.Request{Actor: "Ada", Reason: "too expensive"})
	res, err := run.Wait()
	for n := range res.Nodes() {
		fmt.Println(n.ID, n.Status)
	}
	fmt.Printf("%s: %s, %v\n", res.StopRequest.Actor, res.StopRequest.Reason, errors.Is(err, kahn.ErrCancelled))
	// Output:
	// train cancelled
	// free the machine completed
	// Ada: too expensive, true
}

// Fire runs only the part of a graph that follows a trigger.
func ExampleFire() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "on push", Kind: kahn.KindTrigger},
		kahn.Node{ID: "on tag", Kind: kahn.KindTrigger},
		kahn.Node{ID: "test", After: []string{"on push"}, Do: nothing},
		kahn.Node{ID: "release", After: []string{"on tag"}, Do: func(_ context.Context, s *kahn.Step) (any, error) {
			tag, _ := s.View().Trigger()
			return fmt.Sprint("released ", tag), nil
		}},
	)
	res, err := kahn.Execute(context.Background(), &g, nil, kahn.Fire("on tag", "v1.2.0"))
	release, _ := res.Node("release")
	fmt.Println(release.Output, res.Pruned, err)
	// Output: released v1.2.0 [on push test] <nil>
}
