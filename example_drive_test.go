package kahn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/reactive"
)

// The smallest host of a State consists of two functions: one begins a call, and one aborts it.
func ExampleState_Drive() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "fetch"},
		kahn.Node{ID: "parse", After: []string{"fetch"}},
		kahn.Node{ID: "audit"}, // never returns in time
		kahn.Node{ID: "report", After: []string{"parse", "audit"}},
	)
	plan, _ := g.Compile()
	st, _ := kahn.NewState(plan)

	calls := map[string]machine.Token{} // calls that have begun and not ended
	_ = st.Drive(
		func(t machine.Task) { calls[plan.ID(t.Ref)] = t.Token; fmt.Println("begin", plan.ID(t.Ref)) },
		func(t machine.Token) { delete(calls, plan.ID(t.Ref)); fmt.Println("abort", plan.ID(t.Ref)) },
	)
	// Results arrive in any order. In this example there is no network.
	_ = st.Settle(calls["fetch"], machine.Outcome{Status: kahn.Completed})
	_ = st.Settle(calls["parse"], machine.Outcome{Status: kahn.Completed})
	_ = st.CancelNode(calls["audit"].Ref)
	fmt.Println("run", st.RunStatusSignal().Load())
	// Output:
	// begin fetch
	// begin audit
	// begin parse
	// abort audit
	// run cancelled
}

// Two processes perform one run without goroutines, by exchanging JSON.
func ExampleCoordinator() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "list", Kind: "list"},
		kahn.Node{ID: "copy", Kind: "copy", In: []kahn.Edge{{From: "list", Param: "files"}}, Map: &kahn.Map{Over: "files", Limit: 1},
			Retry: kahn.Retry{MaxAttempts: 2, InitialDelay: time.Minute, Jitter: kahn.JitterNone}},
	)
	worker := func(call []byte) []byte { // in another process
		var c kahn.Call
		if err := json.Unmarshal(call, &c); err != nil {
			return nil
		}
		reply, _ := json.Marshal(c.Perform(context.Background(), kahn.Mux{
			"list": func(context.Context, *kahn.Step) (any, error) { return []string{"a", "b"}, nil },
			"copy": func(_ context.Context, s *kahn.Step) (any, error) {
				file, err := kahn.Param[string](s, "item")
				if file == "b" && s.Attempt() == 1 {
					err = fmt.Errorf("disk full")
				}
				return file + ".bak", err
			},
		}.Step, nil))
		return reply
	}

	plan, _ := g.Compile()
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	c, _ := kahn.NewCoordinator(plan, now)
	for c.Run().Status() == kahn.RunRunning {
		s, ok := c.Next()
		if !ok { // no step can be called now: wait
			now, _ = c.Due()
			c.Advance(now)
			continue
		}
		call, _ := json.Marshal(s.Call())
		var reply kahn.Reply
		_ = json.Unmarshal(worker(call), &reply)
		fmt.Println(now.Format(time.TimeOnly), s.Path(), reply.Value, reply.Err)
		_ = c.Return(s, reply.Value, reply.Err)
	}
	res, err := c.Result()
	fmt.Println(res.Status, res.Output(), err)
	// Output:
	// 12:00:00 list [a b] <nil>
	// 12:00:00 copy[0] a.bak <nil>
	// 12:00:00 copy[1] <nil> disk full
	// 12:01:00 copy[1] b.bak <nil>
	// completed [a.bak b.bak] <nil>
}

// A run that waits for a person continues from a snapshot, in another process and at a later time. The host sets the time. NextStop returns the step
// that has timed out, and the host stops it.
func ExampleCoordinator_snapshot() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "scan", Timeout: time.Minute, ContinueOnFail: true},
		kahn.Node{ID: "ask", Kind: kahn.KindGate, In: []kahn.Edge{{From: "scan", On: kahn.OnAlways}}},
		kahn.Node{ID: "publish", After: []string{"ask"}},
	)
	plan, _ := g.Compile()
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	c, _ := kahn.NewCoordinator(plan, now, kahn.RunID("r1"))
	scan, _ := c.Next()
	fmt.Println("call", scan.Path())

	at, _ := c.Due() // in this example the step returns only at its timeout
	c.Advance(at)
	stop, _ := c.NextStop()
	fmt.Println(at.Format(time.TimeOnly), "stop", stop.Path(), context.Cause(stop))
	_ = c.Return(scan, nil, context.Cause(stop))
	fmt.Println(c.Run().Status(), c.Run().Waiting()[0].Node)

	data, _ := json.Marshal(c.Run().Snapshot()) // no call is in flight

	var from kahn.Snapshot // in another process, a day later
	_ = json.Unmarshal(data, &from)
	now = now.AddDate(0, 0, 1)
	c, _ = kahn.NewCoordinator(plan, now, kahn.Resume(&from))
	_ = c.Run().Signal(context.Background(), "ask", "yes")
	publish, _ := c.Next()
	fmt.Println("call", publish.Path())
	_ = c.Return(publish, "done", nil)
	res, err := c.Result()
	fmt.Println(res.Status, res.Output(), err)
	// Output:
	// call scan
	// 12:01:00 stop scan timed out
	// suspended ask
	// call publish
	// completed done <nil>
}

// A host drives a State by effects. Effects on the statuses of nodes begin the calls. Settle reports the result of a call, and applies all
// consequences of the result before it returns.
func ExampleState_StatusSignal() {
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "fetch"},
		kahn.Node{ID: "resize", After: []string{"fetch"}},
		kahn.Node{ID: "publish", After: []string{"resize"}},
	)
	plan, err := g.Compile()
	if err != nil {
		fmt.Println(err)
		return
	}
	st, err := kahn.NewState(plan)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer st.Dispose()
	var calls []machine.Task // calls that have begun and not ended
	for ref, id := range plan.Declared() {
		status := st.StatusSignal(ref)
		_, err := reactive.NewEffect(st.Scope(), func(w reactive.Writer) {
			switch status.Get(w).CallAction() {
			case machine.CallStart:
				if task, err := st.Begin(ref); err == nil {
					fmt.Println("start", id)
					calls = append(calls, task)
				}
			case machine.CallAbort:
				fmt.Println("abort", id)
			}
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	_ = st.Settle(calls[0].Token, machine.Outcome{Status: kahn.Completed})
	_ = st.Settle(calls[1].Token, machine.Outcome{Status: kahn.Failed, Cause: kahn.CauseStepError})
	fmt.Println(st.RunStatusSignal().Load())
	// Output:
	// start fetch
	// start resize
	// abort publish
	// failed
}

// The host keeps nothing in memory: between any two calls the run is a text. A reply names its attempt by a token, and counts only once.
func ExampleCoordinator_Attempt() {
	var g kahn.Graph
	g.Add(kahn.Node{ID: "charge"}, kahn.Node{ID: "ship", After: []string{"charge"}})
	plan, _ := g.Compile()
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	c, _ := kahn.NewCoordinator(plan, now, kahn.RunID("r1"))
	charge, _ := c.Next()
	token := c.Token(charge)
	fmt.Println("call", token)
	stored, _ := json.Marshal(c.Snapshot())

	for range 2 { // the reply comes twice, each time to another process
		var from kahn.Snapshot
		_ = json.Unmarshal(stored, &from)
		c, _ = kahn.NewCoordinator(plan, now, kahn.Resume(&from))
		if s, err := c.Attempt(token); err != nil {
			fmt.Println(errors.Is(err, kahn.ErrAnswered), err)
		} else {
			_ = c.Return(s, "receipt", nil)
		}
		for s, ok := c.Next(); ok; s, ok = c.Next() {
			fmt.Println("call", c.Token(s))
		}
		stored, _ = json.Marshal(c.Snapshot())
	}
	for _, s := range c.InFlight() {
		fmt.Println("in flight:", c.Token(s))
	}
	// Output:
	// call step:1:1:charge@r1
	// call step:1:1:ship@r1
	// true answered already: the run already has the result of attempt "step:1:1:charge@r1"
	// in flight: step:1:1:ship@r1
}

// The graph that a step has returned is not in the snapshot. The host makes it again from the state that the step gave to Expand.
func ExampleExpandedGraphs() {
	parts := func(n int) *kahn.Graph {
		var g kahn.Graph
		for i := range n {
			g.Add(kahn.Node{ID: fmt.Sprint("part", i)})
		}
		return &g
	}
	var g kahn.Graph
	g.Add(kahn.Node{ID: "split"})
	plan, _ := g.Compile()
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	c, _ := kahn.NewCoordinator(plan, now, kahn.RunID("r1"))
	split, _ := c.Next()
	_ = c.Return(split, nil, kahn.Expand(parts(2), nil, 2))
	first, _ := c.Next()
	token := c.Token(first)
	stored, _ := json.Marshal(c.Snapshot())

	var from kahn.Snapshot // in another process
	_ = json.Unmarshal(stored, &from)
	again := kahn.ExpandedGraphs(func(path string, state any) (*kahn.Graph, error) {
		fmt.Println("the graph of", path, "has", state, "nodes")
		return parts(state.(int)), nil
	})
	c, _ = kahn.NewCoordinator(plan, now, kahn.Resume(&from), again)
	first, _ = c.Attempt(token)
	_ = c.Return(first, "done", nil)
	second, _ := c.Next()
	_ = c.Return(second, "done", nil)
	res, _ := c.Result()
	fmt.Println(token, second.Path(), res.Status)
	// Output:
	// the graph of split has 2 nodes
	// step:1:1.1:split/part0@r1 split/part1 completed
}
