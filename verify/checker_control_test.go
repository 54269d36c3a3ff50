package verify

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// TestCheckerNoticesForgeries: each forgery makes a valid stream of events invalid, and the checker must find it.
func TestCheckerNoticesForgeries(t *testing.T) {
	const row = "A>B B>C A>J C>J K>L L>M Q-[a]>R Q-[b]>S R-!>T|J{any} A{ms:2} B{try2,ms:1} K{ms:1} Q{ms:3}|B=flaky K=err Q=a"
	find := func(events []kahn.Event, prefix string) int {
		i := slices.IndexFunc(events, func(e kahn.Event) bool {
			return strings.HasPrefix(string(e.Type)+" "+e.Node, prefix)
		})
		if i < 0 {
			panic("no event " + prefix)
		}
		return i
	}
	// move moves an event to the place of another event.
	move := func(what, to string) func([]kahn.Event) []kahn.Event {
		return func(events []kahn.Event) []kahn.Event {
			from, to := find(events, what), find(events, to)
			e := events[from]
			e.Time = events[to].Time
			return slices.Insert(slices.Delete(events, from, from+1), to, e)
		}
	}
	drop := func(what string) func([]kahn.Event) []kahn.Event {
		return func(events []kahn.Event) []kahn.Event {
			i := find(events, what)
			return slices.Delete(events, i, i+1)
		}
	}
	repeat := func(what string) func([]kahn.Event) []kahn.Event {
		return func(events []kahn.Event) []kahn.Event {
			i := find(events, what)
			return slices.Insert(events, i, events[i])
		}
	}
	change := func(what string, how func(*kahn.Event)) func([]kahn.Event) []kahn.Event {
		return func(events []kahn.Event) []kahn.Event {
			how(&events[find(events, what)])
			return events
		}
	}
	forgeries := []struct {
		name  string
		forge func([]kahn.Event) []kahn.Event
	}{
		{"no beginning", drop("run.started")},
		{"two beginnings", repeat("run.started")},
		{"no end", drop("run.failed")},
		{"two ends", repeat("run.failed")},
		{"something after the end", move("run.failed", "node.completed J")},
		{"wrong end", change("run.failed", func(e *kahn.Event) { e.Type = event.RunCompleted })},
		{"wrong count of failures", change("run.failed", func(e *kahn.Event) {
			payload := e.Payload.(event.RunEnd)
			payload.FailedSteps++
			e.Payload = payload
		})},
		{"terminal event missing", drop("node.completed R")},
		{"terminal event twice", repeat("node.completed R")},
		{"skip twice", repeat("node.skipped S")},
		{"never queued", drop("node.queued C")},
		{"queued twice", repeat("node.queued C")},
		{"never started", drop("node.started C")},
		{"started before it was queued", move("node.started C", "node.queued C")},
		{"retry not announced", drop("node.retried B")},
		{"wrong attempt", change("node.started C", func(e *kahn.Event) { e.Attempt = 2 })},
		{"wrong status", change("node.completed C", func(e *kahn.Event) { e.Type = event.NodeCancelled })},
		{"wrong cause", change("node.failed K", func(e *kahn.Event) {
			e.Payload = event.NodeEnd{Cause: kahn.CausePanic}
		})},
		{"victim of nobody", change("node.aborted L", func(e *kahn.Event) {
			e.Payload = event.NodeEnd{Cause: kahn.CauseUpstreamFailure}
		})},
		{"victim of a bystander", change("node.aborted L", func(e *kahn.Event) {
			e.Payload = event.NodeEnd{Cause: kahn.CauseUpstreamFailure, Origins: []string{"A"}}
		})},
		{"wrong branch", change("node.completed Q", func(e *kahn.Event) {
			e.Payload = event.Completion{Labels: []string{"b"}}
		})},
		{"wrong reason", change("node.skipped S", func(e *kahn.Event) {
			e.Payload = event.Skip{Reason: event.SkipReason{Kind: kahn.SkipSelf}}
		})},
		{"victim without node.blocked", drop("node.blocked L")},
		{"node.blocked too early", move("node.blocked L", "node.failed K")},
		{"node.blocked of a node that runs", change("node.blocked L", func(e *kahn.Event) { e.Node = "R" })},
		{"queued before its predecessor ended", move("node.queued C", "node.completed B")},
		{"skipped before its predecessor ended", move("node.skipped S", "node.completed Q")},
		{"early rule before any input", move("node.queued J", "node.completed A")},
		{"unknown node", change("node.started C", func(e *kahn.Event) { e.Node = "nobody" })},
		{"wrong tier", change("node.started C", func(e *kahn.Event) { e.Tier = 7 })},
		{"time runs backwards", change("node.completed A", func(e *kahn.Event) { e.Time = e.Time.Add(-1) })},
		{"foreign run", change("node.started C", func(e *kahn.Event) { e.RunID = "other" })},
	}
	fields := strings.Split(row, "|")
	g, err := parse(fields[0], fields[1], fields[2])
	require.NoError(t, err)
	p := predict(g)
	for _, mode := range []kahn.Mode{kahn.Eager, kahn.Waves} {
		w := way{mode: mode}
		honest, err := execute(t, g, p, w)
		require.NoError(t, err)
		require.Empty(t, checkEvents(p, w, honest))
		forged := func(forge func([]kahn.Event) []kahn.Event) []string {
			r := *honest
			r.events = forge(slices.Clone(honest.events))
			for i := range r.events {
				r.events[i].ID = uint64(i + 1) // renumber the events, so that gaps in the ids do not reveal the forgery
			}
			return checkEvents(p, w, &r)
		}
		for _, f := range forgeries {
			assert.NotEmpty(t, forged(f.forge), "%v: %s", mode, f.name)
		}
		hole := *honest
		hole.events = slices.Delete(slices.Clone(honest.events), 3, 4)
		assert.NotEmpty(t, checkEvents(p, w, &hole), "%v: a hole", mode)
		assert.NotEmpty(t, checkEvents(p, way{mode: mode, limit: 1}, honest), "%v: more steps at a time than the limit", mode)
		assert.NotEmpty(t, checkEvents(p, way{mode: kahn.Waves - mode}, honest), "the other mode than %v", mode)
		if mode == kahn.Waves {
			assert.NotEmpty(t, forged(move("wave.started", "node.queued R")), "a wave that begins late")
			assert.NotEmpty(t, forged(move("wave.completed", "node.completed A")), "a wave that ends early")
			assert.NotEmpty(t, forged(drop("wave.completed")), "a wave that never ends")
		}
	}
}
