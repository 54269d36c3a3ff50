// Lambdas performs a run with functions that keep nothing in memory: each invocation handles one message and ends. The run is stored in a table, as a
// JSON text. The queue delivers the messages in any order, and some of them twice. It loses one message.
//
//	$ go run ./examples/lambdas
//	12:00 list: [a b c]
//	12:00 resize[1]: disk full
//	12:01 resize[1]: b.small
//	12:04 scan: timed out
//	12:05 scan: clean
//	12:06 the call of resize[2] is sent again
//	12:06 resize[2]: c.small
//	12:10 approve: yes
//	12:10 publish: [a.small b.small c.small]
//	completed: [a.small b.small c.small]
//	As it should be: each result counted once.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

func main() {
	if err := run(os.Stdout, 7); err != nil {
		fmt.Fprintln(os.Stderr, "lambdas:", err)
		os.Exit(1)
	}
}

// graph returns the plan of the run's graph. Each invocation of the coordinator compiles the graph again.
func graph() (*kahn.Plan, error) {
	again := kahn.Retry{MaxAttempts: 2, InitialDelay: time.Minute, Jitter: kahn.JitterNone, RetryOn: []kahn.CauseKind{kahn.CauseStepError, kahn.CauseTimeout}}
	var g kahn.Graph
	g.Add(
		kahn.Node{ID: "list"},
		kahn.Node{ID: "resize", Map: &kahn.Map{Over: "files"}, In: []kahn.Edge{{From: "list", Param: "files"}}, Retry: again},
		kahn.Node{ID: "scan", After: []string{"list"}, Timeout: 4 * time.Minute, Retry: again},
		kahn.Node{ID: "approve", Kind: kahn.KindGate, After: []string{"resize", "scan"}},
		kahn.Node{ID: "publish", After: []string{"approve"}, In: []kahn.Edge{{From: "resize", Param: "files"}}},
	)
	return g.Compile()
}

// message is a message of the queue. Messages of the kinds "call" and "stop" go to the worker, all others to the coordinator.
type message struct {
	Kind  string
	Token string          // the token of the attempt
	Data  json.RawMessage // a call, a reply or an answer
}

// world contains everything outside the functions: the table, the queue and the time.
type world struct {
	out   io.Writer
	rng   *rand.Rand
	table []byte // the snapshot of the run
	queue []message
	now   time.Time
	due   time.Time // when the coordinator must be called next; zero if there is no such time

	invocations, twice, late, lost int
}

// send adds a message to the queue, sometimes twice. The queue loses the first call of resize[2].
func (w *world) send(m message) {
	if m.Kind == "call" && w.lost == 0 && path(m) == "resize[2]" {
		w.lost++
		return
	}
	for range 1 + w.rng.IntN(2) {
		w.queue = append(w.queue, m)
	}
}

// receive takes a random message from the queue. If the queue is empty, time passes until the coordinator must be called. If there is no such time,
// one minute passes. Then, at ten minutes past the hour, a person answers the gate. At any other minute, the coordinator looks for lost calls.
func (w *world) receive() message {
	if len(w.queue) > 0 {
		i := w.rng.IntN(len(w.queue))
		m := w.queue[i]
		w.queue = slices.Delete(w.queue, i, i+1)
		return m
	}
	if w.due.After(w.now) {
		w.now = w.due
		return message{Kind: "clock"}
	}
	w.now = w.now.Add(time.Minute)
	if w.now.Minute() == 10 {
		return message{Kind: "answer", Data: json.RawMessage(`"yes"`)}
	}
	return message{Kind: "sweep"}
}

func (w *world) print(format string, args ...any) {
	fmt.Fprintf(w.out, "%s %s\n", w.now.Format("15:04"), fmt.Sprintf(format, args...))
}

// coordinate handles one message. It loads the run, applies the message and stores the run. Then it sends the worker the new calls, and requests to
// stop calls.
func (w *world) coordinate(m message) error {
	plan, err := graph()
	if err != nil {
		return err
	}
	opts := []kahn.Option{kahn.RunID("r7")}
	if m.Kind != "start" {
		var from kahn.Snapshot
		if err := json.Unmarshal(w.table, &from); err != nil {
			return err
		}
		opts = append(opts, kahn.Resume(&from))
	}
	c, err := kahn.NewCoordinator(plan, w.now, opts...)
	if errors.Is(err, kahn.ErrFinished) {
		w.twice++ // a copy of a message that has been handled
		return nil
	}
	if err != nil {
		return err
	}
	switch m.Kind {
	case "reply":
		err = w.reply(c, m)
	case "answer":
		w.print("approve: yes")
		err = c.Run().Signal(context.Background(), "approve", "yes")
	case "sweep":
		for _, s := range c.InFlight() {
			w.print("the call of %s is sent again", s.Path())
			w.send(call(c, s))
		}
	}
	if err != nil {
		return err
	}
	var calls []message // sent after the run is stored: if the function ends before it has sent a call, a sweep finds this call
	for s, ok := c.Next(); ok; s, ok = c.Next() {
		calls = append(calls, call(c, s))
	}
	for s, ok := c.NextStop(); ok; s, ok = c.NextStop() {
		w.print("%s: %v", s.Path(), context.Cause(s))
		calls = append(calls, message{Kind: "stop", Token: c.Token(s)})
	}
	w.due, _ = c.Due()
	if w.table, err = json.Marshal(c.Snapshot()); err != nil {
		return err
	}
	for _, m := range calls {
		w.send(m)
	}
	return nil
}

// reply reports the result of an attempt to the run. If the result was reported before or comes too late, reply only counts it.
func (w *world) reply(c *kahn.Coordinator, m message) error {
	s, err := c.Attempt(m.Token)
	switch {
	case errors.Is(err, kahn.ErrAnswered):
		w.twice++
		return nil
	case errors.Is(err, kahn.ErrStale):
		w.late++
		return nil
	case err != nil:
		return err
	}
	var r kahn.Reply
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return err
	}
	if s.Err() == nil && s.Path() != "resize[0]" {
		w.print("%s: %v", s.Path(), cmp.Or(text(r.Err), fmt.Sprint(r.Value)))
	}
	return c.Return(s, r.Value, r.Err)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func call(c *kahn.Coordinator, s *kahn.Step) message {
	data, err := json.Marshal(s.CallWithoutView())
	if err != nil {
		panic(err) // cannot happen, since JSON can express all values of this run
	}
	return message{Kind: "call", Token: c.Token(s), Data: data}
}

// path returns the path of a message's node.
func path(m message) string {
	var c kahn.Call
	_ = json.Unmarshal(m.Data, &c)
	return c.Path
}

// work is the function that performs calls and stops them. Its reply has the token of the call.
func (w *world) work(m message) error {
	var reply kahn.Reply
	if m.Kind == "stop" {
		reply.Err = context.Canceled
	} else {
		var c kahn.Call
		if err := json.Unmarshal(m.Data, &c); err != nil {
			return err
		}
		if c.ID == "scan" && c.Attempt == 1 {
			return nil // this call hangs until it is stopped
		}
		reply = c.Perform(context.Background(), step, nil)
	}
	data, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	w.send(message{Kind: "reply", Token: m.Token, Data: data})
	return nil
}

func step(_ context.Context, s *kahn.Step) (any, error) {
	switch s.ID() {
	case "list":
		return []string{"a", "b", "c"}, nil
	case "scan":
		return "clean", nil
	case "publish":
		return s.Params()["files"], nil
	}
	item, _ := s.Item()
	if s.Index() == 1 && s.Attempt() == 1 {
		return nil, errors.New("disk full")
	}
	return fmt.Sprint(item, ".small"), nil
}

// run delivers messages until the run has ended and the queue is empty.
func run(out io.Writer, seed uint64) error {
	w := &world{out: out, rng: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)}
	m := message{Kind: "start"}
	var last kahn.Snapshot
	for ; !last.Status().Terminal() || len(w.queue) > 0; m = w.receive() {
		handle := w.coordinate
		if m.Kind == "call" || m.Kind == "stop" {
			handle = w.work
		}
		if err := handle(m); err != nil {
			return err
		}
		if err := json.Unmarshal(w.table, &last); err != nil {
			return err
		}
		if w.invocations++; w.invocations > 1000 {
			return errors.New("the run does not end")
		}
		if last.Status().Terminal() && len(w.queue) == 0 {
			break
		}
	}
	plan, err := graph()
	if err != nil {
		return err
	}
	res, err := last.Result(plan)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%v: %v\n", res.Status, res.Output())
	if got := fmt.Sprint(res.Output()); got != "[a.small b.small c.small]" || w.twice == 0 || w.lost != 1 {
		return fmt.Errorf("the output is %s, %d messages came twice, %d were lost", got, w.twice, w.lost)
	}
	fmt.Fprintln(out, "As it should be: each result counted once.")
	return nil
}
