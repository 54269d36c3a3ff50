package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// checker visits the events of one run and records violations of the semantics.
type checker struct {
	p        *prediction
	w        way
	r        *record
	index    map[string]int // the index of a node's terminal event
	tier     map[string]int
	problems []string
}

func (c *checker) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

var terminalEvents = map[event.Type]kahn.Status{
	event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted,
	event.NodeCancelled: kahn.Cancelled, event.NodeSkipped: kahn.Skipped,
}

var runEnds = map[event.Type]kahn.RunStatus{
	event.RunCompleted: kahn.RunCompleted, event.RunFailed: kahn.RunFailed,
	event.RunCancelled: kahn.RunCancelled, event.RunTimedOut: kahn.RunFailed,
}

// checkEvents returns the violations in the events of a run. The run's result must agree with the model.
func checkEvents(p *prediction, w way, r *record) []string {
	c := &checker{p: p, w: w, r: r, index: map[string]int{}, tier: p.tiers()}
	c.envelope()
	if len(c.problems) > 0 {
		return c.problems // the checks below need valid ids and times
	}
	for _, n := range p.g.nodes {
		c.life(n)
	}
	for _, n := range p.g.nodes {
		if _, ended := c.index[n.id]; ended {
			c.causality(n)
		}
	}
	c.slots()
	c.barriers()
	c.times()
	return c.problems
}

// envelope checks the whole stream: ids without gaps, run.started first, one event that ends the run and is last, and times that do not decrease.
func (c *checker) envelope() {
	events, res := c.r.events, c.r.res
	if len(events) < 2 {
		c.problem("there are %d events", len(events))
		return
	}
	if first := events[0]; first.Type != event.RunStarted {
		c.problem("the first event is %v", first)
	} else if payload, ok := first.Payload.(event.Start); !ok || payload.Waves != (c.w.mode == kahn.Waves) ||
		payload.TotalNodes != len(c.p.g.nodes) {
		c.problem("run.started says %+v", first.Payload)
	}
	for i, e := range events {
		if e.ID != uint64(i+1) {
			c.problem("event %d has the id %d", i+1, e.ID)
		}
		if e.RunID != res.ID() || e.Workflow != "verify" {
			c.problem("event %v belongs to %q, %q", e, e.RunID, e.Workflow)
		}
		if i > 0 && e.Time.Before(events[i-1].Time) {
			c.problem("event %v is older than the one before", e)
		}
		if e.Type == event.RunStarted && i > 0 {
			c.problem("run.started is event %d", i+1)
		}
		status, ends := runEnds[e.Type]
		if ends != (i == len(events)-1) {
			c.problem("event %d of %d is %s", i+1, len(events), e.Type)
		}
		if ends && status != res.Status {
			c.problem("%v ends a run that is %v", e, res.Status)
		}
		if ends {
			c.runEnded(e)
		}
		if e.Node != "" && c.p.g.node(e.Node) == nil {
			c.problem("event %v names an unknown node", e)
		} else if e.Node != "" && e.Tier != c.tier[e.Node] {
			c.problem("event %v has tier %d, want %d", e, e.Tier, c.tier[e.Node])
		}
	}
}

func (c *checker) runEnded(e kahn.Event) {
	payload, ok := e.Payload.(event.RunEnd)
	if !ok {
		c.problem("%s has the payload %T", e.Type, e.Payload)
		return
	}
	steps := 0
	var failed []string
	for _, n := range c.p.g.nodes {
		if n.end {
			continue
		}
		steps++
		if c.p.fates[n.id].status == "F" {
			failed = append(failed, n.id)
		}
	}
	if payload.Status != c.r.res.Status || payload.Degraded != c.r.res.Degraded || payload.TotalSteps != steps ||
		payload.FailedSteps != len(failed) || !slices.Equal(payload.Failed, failed) {
		c.problem("%s says %+v, want %d steps, failed %v", e.Type, payload, steps, failed)
	}
}

// life checks the order of a node's events: queued, started, retried, queued, started, ..., and one terminal event, which is the node's last
// event.
func (c *checker) life(n *node) {
	f := c.p.fates[n.id]
	state, attempts, blocked := "new", 0, -1
	step := func(e kahn.Event, to string, from ...string) {
		if !slices.Contains(from, state) {
			c.problem("event %v of a node that is %s", e, state)
		}
		state = to
	}
	for i, e := range c.r.events {
		if e.Node != n.id {
			continue
		}
		if blocked >= 0 && i != blocked+1 {
			c.problem("node.blocked of %s is not directly before event %v", n.id, e)
		}
		wasBlocked := blocked >= 0 // the node was blocked, and does not continue with defaults
		blocked = -1
		status, ends := terminalEvents[e.Type]
		switch {
		case ends:
			if !f.ready {
				step(e, "terminal", "new")
			} else if n.test {
				step(e, "terminal", "new", "started")
			} else {
				step(e, "terminal", "started")
			}
			c.index[n.id] = i
			if status != c.predicted(n) {
				c.problem("event %v of a node that is %v", e, c.predicted(n))
			}
			if victim := !f.own && (status == kahn.Aborted || status == kahn.Failed) || f.reason == "pf"; victim != wasBlocked {
				c.problem("event %v: directly after node.blocked: %t, want %t", e, wasBlocked, victim)
			}
			if ended, ok := e.Payload.(event.NodeEnd); ok {
				c.cause(n, e, ended)
			}
			if done, ok := e.Payload.(event.Completion); ok {
				want := slices.Sorted(slices.Values(f.taken))
				if got := slices.Sorted(slices.Values(done.Labels)); !slices.Equal(slices.Compact(got), slices.Compact(want)) {
					c.problem("event %v: want the branches %v", e, want)
				}
			}
			if skipped, ok := e.Payload.(event.Skip); ok && skipped.Reason.Kind != reasonWords[f.reason] {
				c.problem("event %v: want the reason %v", e, reasonWords[f.reason])
			}
		case e.Type == event.NodeQueued && !n.test:
			if e.Attempt != attempts+1 {
				c.problem("event %v has attempt %d, want the one that is queued for, %d", e, e.Attempt, attempts+1)
			}
			step(e, "queued", "new", "retried")
		case e.Type == event.NodeStarted:
			attempts++
			if n.test {
				step(e, "started", "new")
			} else {
				step(e, "started", "queued")
			}
			if e.Attempt != attempts {
				c.problem("event %v has attempt %d, want %d", e, e.Attempt, attempts)
			}
		case e.Type == event.NodeRetried:
			step(e, "retried", "started")
		case e.Type == event.NodeLog:
			unmatched := strings.HasPrefix(e.Payload.(event.LogRecord).Message, kahn.ErrNoMatch.Error()) // the warning about an answer that matches no edge
			if f.ready && !unmatched && !slices.Contains([]string{"err", "panic"}, n.guard) {
				c.problem("nobody logs, but there is %v", e)
			}
		case e.Type == event.NodeBlocked:
			// With defaults for missing values the node continues. Otherwise the event of the policy follows at once.
			step(e, "new", "new")
			if !f.subst {
				blocked = i
			}
			if payload, ok := e.Payload.(event.Block); !ok || len(payload.Origins) == 0 ||
				payload.Policy != max(policies[n.up], kahn.UpstreamAbort) {
				c.problem("event %v has the payload %+v", e, e.Payload)
			} else if !subset(payload.Origins, c.p.origins(n)) {
				c.problem("event %v has the origins %v, which are not all among %v", e, payload.Origins, c.p.origins(n))
			}
		default:
			c.problem("unexpected event %v", e)
		}
	}
	if state != "terminal" {
		c.problem("%s has no terminal event", n.id)
	}
	if f.ready && !n.test && attempts != f.attempts {
		c.problem("%s was started %d times, want %d", n.id, attempts, f.attempts)
	}
}

// cause checks that the event of a node's own failure has the exact cause, and that the event of a victim names only origins that were known at
// the time of the event.
func (c *checker) cause(n *node, e kahn.Event, ended event.NodeEnd) {
	f := c.p.fates[n.id]
	want := f.cause
	if f.status == "X" || f.status == "F" && !f.own {
		want = "upstream_cancelled"
		for _, id := range ended.Origins {
			if c.p.fates[id].status == "F" {
				want = "upstream_failure"
			}
		}
		if len(ended.Origins) == 0 || !subset(ended.Origins, f.origins) {
			c.problem("event %v: the origins must be among %v", e, f.origins)
		}
	}
	if ended.Cause.String() != want {
		c.problem("event %v: the cause must be %s", e, want)
	}
}

func (c *checker) predicted(n *node) kahn.Status { return statusWords[c.p.fates[n.id].status] }

func subset(some, all []string) bool {
	return !slices.ContainsFunc(some, func(id string) bool { return !slices.Contains(all, id) })
}

// causality checks that the events of a node come after the ends of the predecessors that decided the node's join. Only an early rule in mode
// Eager may decide before all predecessors have ended.
func (c *checker) causality(n *node) {
	f := c.p.fates[n.id]
	if f.root {
		return
	}
	first := slices.IndexFunc(c.r.events, func(e kahn.Event) bool { return e.Node == n.id })
	at := map[string]moment{} // with event numbers instead of times
	for id, i := range c.index {
		at[id] = moment{ended: i}
	}
	need := 0
	switch {
	case n.end:
		for id, i := range c.index {
			if id != n.id {
				need = max(need, i)
			}
		}
	case c.w.mode == kahn.Waves:
		for _, e := range c.p.g.in(n.id) {
			need = max(need, c.index[e.from])
		}
	default:
		need = c.p.decided(n, at)
	}
	if first < need {
		c.problem("event %v comes before %v", c.r.events[first], c.r.events[need])
	}
}

// slots checks that no more attempts run at a time than the limit allows. Conditions with a Go test take no slot.
func (c *checker) slots() {
	running, most := 0, 0
	active := map[string]bool{}
	for _, e := range c.r.events {
		_, ends := terminalEvents[e.Type]
		switch {
		case e.Node == "" || c.p.g.node(e.Node).test:
		case e.Type == event.NodeStarted:
			active[e.Node] = true
			running++
		case active[e.Node] && (ends || e.Type == event.NodeRetried):
			delete(active, e.Node)
			running--
		}
		most = max(most, running)
	}
	if c.w.limit > 0 && most > c.w.limit {
		c.problem("%d attempts ran at the same time", most)
	}
}

// barriers checks mode Waves: the tiers follow one another, and the events of a tier enclose the events of its nodes.
func (c *checker) barriers() {
	if c.w.mode != kahn.Waves {
		for _, e := range c.r.events {
			if e.Type == event.WaveStarted || e.Type == event.WaveCompleted {
				c.problem("event %v in mode %v", e, c.w.mode)
			}
		}
		return
	}
	open, last := -1, -1
	for i, e := range c.r.events {
		wave, _ := e.Payload.(event.Wave)
		switch e.Type {
		case event.WaveStarted:
			if open != -1 || wave.Tier <= last {
				c.problem("event %v while tier %d is open, after tier %d", e, open, last)
			}
			open = wave.Tier
			for _, id := range wave.Nodes {
				if c.tier[id] != wave.Tier {
					c.problem("event %v names %s of tier %d", e, id, c.tier[id])
				}
			}
		case event.WaveCompleted:
			if open != wave.Tier {
				c.problem("event %v while tier %d is open", e, open)
			}
			open, last = -1, wave.Tier
			for _, n := range c.p.g.nodes {
				if c.tier[n.id] <= wave.Tier && c.index[n.id] > i {
					c.problem("event %v comes before the end of %s", e, n.id)
				}
			}
		default:
			if e.Node != "" && !c.p.fates[e.Node].root && e.Tier != open {
				c.problem("event %v while tier %d is open", e, open)
			}
		}
	}
}

// times checks that, without a limit, each node is decided and ends at a millisecond of fake time that the model predicts.
func (c *checker) times() {
	if c.w.limit > 0 {
		return
	}
	want := c.p.eager()
	if c.w.mode == kahn.Waves {
		want = c.p.waves()
	}
	since := func(e kahn.Event) time.Duration { return e.Time.Sub(c.r.start) }
	for _, n := range c.p.g.nodes {
		first := slices.IndexFunc(c.r.events, func(e kahn.Event) bool { return e.Node == n.id })
		decided, ended := c.r.events[first], c.r.events[c.index[n.id]]
		if got, want := since(decided), time.Duration(want[n.id].decided)*time.Millisecond; got != want {
			c.problem("event %v at %v, want %v", decided, got, want)
		}
		if res, _ := c.r.res.Node(n.id); c.p.fates[n.id].ready && !n.test {
			if cost := time.Duration(c.p.cost(n)) * time.Millisecond; res.Duration != cost || !res.Start.Equal(decided.Time) {
				c.problem("%s started at %v and took %v, want %v and %v", n.id, res.Start.Sub(c.r.start), res.Duration,
					since(decided), cost)
			}
		}
		if got, want := since(ended), time.Duration(want[n.id].ended)*time.Millisecond; got != want {
			c.problem("event %v at %v, want %v", ended, got, want)
		}
	}
}
