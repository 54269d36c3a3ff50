package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// traceEvent is an event of the Trace Event Format.
type traceEvent struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	TS    micros         `json:"ts"`
	Dur   *micros        `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	ID    string         `json:"id,omitempty"`
	Scope string         `json:"s,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Color string         `json:"cname,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// micros is a time in microseconds, exact to the nanosecond.
type micros time.Duration

// MarshalJSON encodes the time as a number with three decimals.
func (m micros) MarshalJSON() ([]byte, error) {
	sign := ""
	if m < 0 { // the clock of an earlier process of the run may have been ahead
		sign, m = "-", -m
	}
	return fmt.Appendf(nil, "%s%d.%03d", sign, m/1000, m%1000), nil
}

// The numbers of the tracks. The tracks of slots begin at tidLanes, and the tracks of attempts without a slot follow them.
const (
	pid         = 1
	tidCritical = 1
	tidNotRun   = 2
	tidLanes    = 3
)

// spanColours are colour names that Chrome knows.
var spanColours = map[kahn.Status]string{
	kahn.Running: "thread_state_running", kahn.Completed: "good", kahn.Failed: "terrible", kahn.Retrying: "bad", kahn.Aborted: "grey",
	kahn.Cancelled: "grey", kahn.Skipped: "white", kahn.Suspended: "thread_state_sleeping",
}

// WritePerfetto writes the timeline of a run in the Trace Event Format, for ui.perfetto.dev or chrome://tracing. The parameter "events" has the
// run's events, in order; deltas and logs may be missing: see [Recorder].
//
// Each used slot of the run has a track, which shows the attempts that held the slot. Waits for a slot, for the next attempt and for a signal are on
// one track, "waits". The critical path has its own track; its attempts have the category "critical" and another colour, and arrows connect them.
// Nodes that ended without a start are instants on the track "not run".
func WritePerfetto(w io.Writer, res *kahn.Result, events []event.Event) error {
	if res == nil {
		res = &kahn.Result{} // the run did not begin
	}
	p := res.Plan()
	a := analyse(p, res, newTimeline(p, events))
	out := &perfetto{w: bufio.NewWriter(w), analysis: a, plan: p}
	other, err := json.Marshal(map[string]any{
		"workflow": p.Name(), "run_id": res.ID(), "status": res.Status, "degraded": res.Degraded, "start": res.Start.UTC(),
		"duration_ns": res.Duration, "nodes": p.Len(), "critical_path": a.pathIDs(),
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out.w, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\"traceEvents\":[", other)
	out.tracks()
	out.attempts()
	out.waits()
	out.notRun(res)
	out.criticalPath()
	out.w.WriteString("\n]}\n")
	if out.err != nil {
		return out.err
	}
	return out.w.Flush()
}

// perfetto writes events, one per line.
type perfetto struct {
	*analysis
	plan *kahn.Plan
	w    *bufio.Writer // stores its first error
	n    int
	err  error // the first error of encoding JSON
}

func (o *perfetto) write(e traceEvent) {
	e.PID = pid
	line, err := json.Marshal(e)
	if err != nil {
		o.err = err
		return
	}
	if o.n++; o.n > 1 {
		o.w.WriteByte(',')
	}
	o.w.WriteByte('\n')
	o.w.Write(line)
}

// The method tracks writes the names and the order of the tracks.
func (o *perfetto) tracks() {
	name := o.plan.Name()
	if name == "" {
		name = "kahn"
	}
	o.write(traceEvent{Name: "process_name", Phase: "M", Args: map[string]any{"name": name}})
	track := func(tid int, name string) {
		o.write(traceEvent{Name: "thread_name", Phase: "M", TID: tid, Args: map[string]any{"name": name}})
		o.write(traceEvent{Name: "thread_sort_index", Phase: "M", TID: tid, Args: map[string]any{"sort_index": tid}})
	}
	track(tidCritical, "critical path")
	track(tidNotRun, "not run")
	for lane := range o.slots {
		track(tidLanes+lane, fmt.Sprintf("slot %d", lane+1))
	}
	for lane := range o.inlines {
		track(tidLanes+o.slots+lane, fmt.Sprintf("engine %d", lane+1))
	}
}

func (o *perfetto) tid(s *span) int {
	if s.inline {
		return tidLanes + o.slots + s.lane
	}
	return tidLanes + s.lane
}

func (o *perfetto) attempts() {
	critical := map[int]bool{}
	for _, id := range o.path {
		critical[id] = true
	}
	for i := range o.spans {
		s := &o.spans[i]
		args := map[string]any{"node": o.nodes[s.node].path, "attempt": s.attempt, "status": s.status}
		if s.cause != kahn.CauseNone {
			args["cause"] = s.cause
		}
		if len(s.usage) > 0 {
			args["usage"] = s.usage
		}
		if s.node < o.plan.Len() {
			args["tier"] = o.plan.Tier(machine.Ref(s.node))
			if kind := o.plan.Node(machine.Ref(s.node)).Kind; kind != "" {
				args["kind"] = kind
			}
			args["slack_ns"] = o.slack[s.node]
		}
		e := traceEvent{
			Name: o.nodes[s.node].path, Cat: "attempt", Phase: "X", TS: micros(s.start), Dur: new(micros), TID: o.tid(s),
			Color: spanColours[s.status], Args: args,
		}
		*e.Dur = micros(s.end - s.start)
		if critical[s.node] {
			args["critical"] = true
			e.Cat = "attempt,critical"
			if s.status == kahn.Completed {
				e.Color = "yellow"
			}
		}
		o.write(e)
	}
}

// The method waits writes each wait as two nested asynchronous slices, since asynchronous slices may overlap. A viewer puts outer slices with the
// same name on one track, so the outer slice has the name of the track. The inner slice has the name of the node.
func (o *perfetto) waits() {
	for i, w := range o.timeline.waits {
		if w.to == w.from {
			continue
		}
		outer := traceEvent{Name: "waits", Cat: waitNames[w.kind], Phase: "b", TS: micros(w.from), TID: tidNotRun, ID: fmt.Sprintf("wait%d", i)}
		inner := outer
		inner.Name, inner.Args = o.nodes[w.node].path, map[string]any{"for": waitNames[w.kind]}
		o.write(outer)
		o.write(inner)
		inner.Phase, inner.TS, inner.Args = "e", micros(w.to), nil
		outer.Phase, outer.TS = inner.Phase, inner.TS
		o.write(inner)
		o.write(outer)
	}
}

// notRun writes the nodes that ended without a start.
func (o *perfetto) notRun(res *kahn.Result) {
	for id := range o.nodes {
		if n := &o.nodes[id]; n.started == 0 && n.ended > 0 {
			args := map[string]any{"status": n.status}
			if r, ok := res.Node(n.path); ok {
				args["reason"] = outcome(r)
			}
			o.write(traceEvent{Name: n.path, Cat: "not run", Phase: "i", TS: micros(n.end), TID: tidNotRun, Scope: "t", Args: args})
		}
	}
}

// criticalPath writes the critical path as a track, with arrows from node to node.
func (o *perfetto) criticalPath() {
	previous := -1
	for i, id := range o.path {
		n := &o.nodes[id]
		if n.started == 0 {
			continue
		}
		dur := micros(o.until(i) - n.start)
		args := map[string]any{}
		if via := o.binds[id].via; via != ViaNothing {
			args["after"], args["via"] = o.nodes[o.binds[id].node].path, via
		}
		o.write(traceEvent{
			Name: n.path, Cat: "critical", Phase: "X", TS: micros(n.start), Dur: &dur, TID: tidCritical, Color: "yellow", Args: args,
		})
		if previous >= 0 {
			from, to := &o.spans[o.nodes[previous].last], &o.spans[n.first]
			arrow := traceEvent{Name: "critical path", Cat: "critical", ID: fmt.Sprintf("step%d", i)}
			arrow.Phase, arrow.TS, arrow.TID = "s", micros(from.start), o.tid(from)
			o.write(arrow)
			arrow.Phase, arrow.TS, arrow.TID, arrow.Bind = "f", micros(to.start), o.tid(to), "e"
			o.write(arrow)
		}
		previous = id
	}
}

// The method `until` returns the time at which the i-th node of the critical path stopped delaying the next node. For the last node it returns the
// node's end.
func (a *analysis) until(i int) time.Duration {
	if i+1 < len(a.path) {
		return a.binds[a.path[i+1]].at
	}
	return a.nodes[a.path[i]].end
}

func (a *analysis) pathIDs() []string {
	ids := []string{}
	for _, id := range a.path {
		ids = append(ids, a.nodes[id].path)
	}
	return slices.Clip(ids)
}
