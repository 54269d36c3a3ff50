package progress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
)

// composites returns nodes with the id c that are composites of every kind. Nodes named bad fail.
func composites() map[string]kahn.Node {
	inner := func() *kahn.Graph {
		return new(kahn.Graph).Add(kahn.Node{ID: "x"}, kahn.Node{ID: "bad", ContinueOnFail: true}, kahn.Node{ID: "y", After: []string{"x"}})
	}
	items := map[string]any{"items": []any{1, 2, 3}}
	return map[string]kahn.Node{
		"sub":                {Sub: inner()},
		"loop":               {Sub: inner(), Loop: &kahn.Loop{While: func(v kahn.View) (bool, error) { return v.Iteration() < 3, nil }, MaxIterations: 3}},
		"map":                {Map: &kahn.Map{Over: "items", ToleratedCount: 3}, Params: items},
		"map that fails":     {Map: &kahn.Map{Over: "items"}, Params: items},
		"map of graphs":      {Map: &kahn.Map{Over: "items"}, Params: items, Sub: inner()},
		"map in a sub-graph": {Sub: new(kahn.Graph).Add(kahn.Node{ID: "z", Map: &kahn.Map{Over: "items"}, Params: items, Sub: inner()})},
		"expanded":           {Do: func(context.Context, *kahn.Step) (any, error) { return nil, kahn.Expand(inner(), nil, nil) }},
	}
}

// If a run continues after a crash at any of its writes, the display counts each node of the outermost graph once, as the Result does. The nodes
// inside a composite are shown below the composite.
func TestLifeAfterACrash(t *testing.T) {
	for name, c := range composites() {
		c.ID = "c"
		t.Run(name, func(t *testing.T) {
			kahntest.InFakeTime(t, func(t *testing.T) {
				ended := 0
				var p *Progress
				var events []event.Event
				var g *kahn.Graph
				kahntest.Crashes(t, func(*kahntest.Process) (*kahn.Graph, kahn.StepFunc) {
					// "bad[7]" is the id of a node, but looks like the path of an item.
					g = new(kahn.Graph).Add(kahn.Node{ID: "bad[7]", ContinueOnFail: true}, c, kahn.Node{ID: "last", After: []string{"c"}, OnUpstreamFailure: kahn.UpstreamSkip})
					return g, func(_ context.Context, s *kahn.Step) (any, error) {
						time.Sleep(time.Duration(1+s.Index()) * time.Second)
						if strings.HasPrefix(s.ID(), "bad") || s.Index() == 1 && strings.HasPrefix(name, "map") {
							s.Log(slog.LevelInfo, "output of "+s.Path())
							return nil, errors.New("broken")
						}
						return nil, nil
					}
				}, kahn.Around(func(_ context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
					p, events = New(&bytes.Buffer{}, Plain), nil
					p.Follow(r)
					life := p
					return nil, func(res *kahn.Result) {
						if err := life.Close(); err != nil {
							t.Error(err)
						}
						if err := kahntest.CheckEvents(g, res, events); err != nil {
							t.Error(err)
						}
						if !life.run.over {
							return
						}
						ended++
						want := [len(life.run.counts)]int{}
						for n := range res.Nodes() {
							want[n.Status]++
						}
						_, below, failed := strings.Cut(text(life.run.frame(time.Now(), 80, 50)), "FAILED c: ")
						wrote := slices.ContainsFunc(events, func(e event.Event) bool {
							_, is := e.Payload.(event.LogRecord)
							return is && strings.HasPrefix(e.Path, "c") && !slices.ContainsFunc(events, func(end event.Event) bool {
								return end.Type == event.NodeCompleted && strings.HasPrefix(e.Path, end.Path+"/") // the item has completed despite the failure
							})
						})
						if failed && wrote != strings.Contains(below, "\n   | output of c") {
							t.Errorf("what an item has written in this life (%t) is not below the failure of its map: %s", wrote, below)
						}
						if len(life.run.maps) > 0 {
							t.Errorf("%d maps are live after the end", len(life.run.maps))
						}
						if life.run.counts != want {
							t.Errorf("%s: counts %v, want %v", life.run.summary(), life.run.counts, want)
						}
					}
				}), kahn.OnEvent(func(e event.Event) {
					events = append(events, e)
					p.Event(e)
					var done int
					if _, err := fmt.Sscanf(p.run.done(), "[%d/3]", &done); err != nil || done > 3 || slices.Min(p.run.counts[:]) < 0 {
						t.Errorf("%s %v after %v", p.run.summary(), p.run.counts, e)
					}
				}))
				if ended < 3 {
					t.Errorf("%d lives have ended", ended)
				}
			})
		})
	}
}

// A display that joins a running run shows the time since the start of the run. It does not count the nodes inside a composite that began
// earlier.
func TestDisplayBeginsLater(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		inner := new(kahn.Graph).Add(kahn.Node{ID: "ask", Kind: kahn.KindGate})
		g := new(kahn.Graph).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "m", Map: &kahn.Map{Over: "items"}, Params: map[string]any{"items": []int{1}}, Sub: inner})
		first, second := New(&bytes.Buffer{}, Plain), New(&log, Plain)
		now := first
		sink, checked := watched(t, g, func(e event.Event) { now.Event(e) })
		runner := kahn.Runner{}
		run, err := runner.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { time.Sleep(5 * time.Second); return nil, nil }, kahn.OnEvent(sink))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		now = second
		second.Follow(run)
		if err := run.Signal(context.Background(), "m[0]/ask", true); err != nil {
			t.Error(err)
		}
		res, err := run.Wait()
		if err != nil {
			t.Error(err)
		}
		checked(res)
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	})
	for line := range strings.Lines(log.String()) {
		if !strings.HasPrefix(line, "01:00 ") {
			t.Errorf("another time: %s", line)
		}
	}
	if !strings.Contains(log.String(), "01:00 [2/2] run completed in 60.000s\n") {
		t.Error(log.String())
	}
}

// A display joins a run that waits, and then gets events from before. Whatever the first of these events is, the line about a map that has ended never
// says that only some of its items have.
func TestDisplayIsBehind(t *testing.T) {
	t.Parallel()
	kahntest.InFakeTime(t, func(t *testing.T) {
		inner := new(kahn.Graph).Add(kahn.Node{ID: "draft"}, kahn.Node{ID: "polish", After: []string{"draft"}})
		for name, m := range map[string]kahn.Node{
			"graphs": {ID: "m", Map: &kahn.Map{Over: "list", Limit: 2}, Params: numbers(5), Sub: inner},
			"steps":  {ID: "m", Map: &kahn.Map{Over: "list", Limit: 2}, Params: numbers(5)},
		} {
			var rec kahntest.Recorder
			g := new(kahn.Graph).Add(kahn.Node{ID: "list"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"m"}})
			m.After = []string{"list"}
			g.Add(m)
			var runner kahn.Runner
			run, err := runner.Start(t.Context(), g, func(context.Context, *kahn.Step) (any, error) { return nil, nil }, kahn.OnEvent(rec.Add))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			counted := 0
			for i := range rec.Events() {
				var log bytes.Buffer
				p := New(&log, Plain)
				p.Follow(run)
				for _, e := range rec.Events()[i:] {
					p.Event(e)
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				_, line, _ := strings.Cut(log.String(), " m: completed in 0.000s")
				line, _, _ = strings.Cut(line, "\n")
				if line != "" && line != ", 5/5 items" {
					t.Errorf("%s, from %v on: %q", name, rec.Events()[i], line)
				} else if line != "" {
					counted++
				}
			}
			if counted < 10 {
				t.Errorf("%s: %d lines say how many items have ended", name, counted)
			}
			run.Leave()
			res, _ := run.Wait()
			if err := kahntest.CheckEvents(g, res, rec.Events()); err != nil {
				t.Error(err)
			}
		}
	})
}

// In a run that continues, items are not counted as nodes, even if only the events since the continuation are known.
func TestItemsOfALaterLifeByEventsAlone(t *testing.T) {
	var s state
	for _, id := range []string{"m[0]", "m[1]", "m", "n"} {
		s.record(event.Event{Type: event.NodeCompleted, Node: id, Path: id, Payload: event.Completion{}})
	}
	if got := s.done(); got != "[2/?]" {
		t.Error(got)
	}
}

func TestEnclosing(t *testing.T) {
	for path, want := range map[string]string{"a": "", "a/b": "a", "m[12]": "m", "m[2]/l#1/x": "m[2]/l#1 m[2]/l m[2] m", "/": ""} {
		if got := strings.Join(slices.Collect(enclosing(path)), " "); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
