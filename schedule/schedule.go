package schedule

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/store"
)

// Schedule says when runs of a workflow begin.
type Schedule struct {
	// Name identifies the schedule in its store. It must not contain an @.
	Name string
	// Workflow is the name of the graph of a served workflow. If Workflow is empty, Name is also the name of the graph.
	Workflow string
	// Cron is a cron expression and Zone its time zone, see the function [Cron]. Every is an interval, see the function [Every]. A schedule has
	// either Cron or Every.
	Cron, Zone string
	Every      time.Duration
	// Missed says what happens to ticks at which no process served the schedule.
	Missed Missed
	// StartingDeadline is how late the run of a tick may begin. If the run does not begin by then, the tick is missed. Zero means one
	// minute if Missed is None, and no bound otherwise.
	StartingDeadline time.Duration
	// Overlap says what happens to a tick if the run of an earlier tick has not ended.
	Overlap Overlap
	// Jitter bounds the delay of runs: the run of a tick is due at the tick plus a delay below Jitter. The delay depends only on the name and the
	// tick, so it is the same in each process.
	Jitter time.Duration
	// Labels are the runs' labels, in addition to [LabelSchedule] and the other labels of this package.
	Labels map[string]string
	// Key and Priority are the key and the priority of the runs, see [kahn.RunKey] and [kahn.RunPriority]. Key is usually the name of a tenant: the
	// schedule's runs then take turns, and count towards bounds, like the tenant's other runs. Runs of RunNow and Backfill have the same key and
	// priority.
	Key      string
	Priority int
	// Inputs returns the inputs of the run of a tick. It is called when the run is created, usually at the previous tick, and may be called again.
	// New also calls it once, to check the inputs of the next tick. If Inputs does not return an input "tick", the run has the time of the tick as
	// this input, as a text in RFC 3339, unless the graph declares only other inputs. If Inputs fails, or the graph does not take the inputs, the run
	// does not begin. Service.OnError then gets an error that matches ErrBadSchedule; if OnError is nil, slog.Default logs the error.
	Inputs func(tick time.Time) (map[string]any, error)
}

// Missed says what happens to ticks at which no process served a schedule. Only the last 1,000 missed ticks have runs.
type Missed string

// The values of Missed say what happens to missed ticks. If a missed tick does not run, its run is cancelled with the reason "missed".
const (
	Latest Missed = ""     // the latest missed tick runs
	None   Missed = "none" // no missed tick runs
	All    Missed = "all"  // all missed ticks run, one after the other, or side by side if Overlap is Allow
)

// Overlap says what happens to a tick if the run of an earlier tick has not ended.
type Overlap string

// The values of Overlap say what happens to ticks that overlap.
const (
	Skip  Overlap = ""      // the run of the later tick is cancelled, with the reason "overlaps"
	Allow Overlap = "allow" // the run of the later tick begins beside the other run
)

// The labels of the runs of a schedule.
const (
	LabelSchedule = "schedule"         // the name of the schedule
	LabelTick     = "schedule.tick"    // the time of the tick, in RFC 3339, UTC
	LabelKind     = "schedule.kind"    // "now" for RunNow and "backfill" for Backfill; other runs do not have this label
	LabelLeftOut  = "schedule.leftout" // why the run was cancelled: "missed", "overlaps", "paused", "replaced", ...
	// labelDefinition identifies the definition from which the run was made.
	labelDefinition = "schedule.definition"
)

const (
	kindNow      = "now"
	kindBackfill = "backfill"
	// mostMissed is how many missed ticks have runs: the latest ones. One call of Backfill creates at most this number of runs.
	mostMissed = 1000
	// noneLate is the default StartingDeadline of schedules whose missed ticks do not run.
	noneLate = time.Minute
)

// The type `written` is the JSON form of a schedule's definition, as the store keeps it.
type written struct {
	Workflow         string            `json:"workflow"`
	Cron             string            `json:"cron,omitempty"`
	Zone             string            `json:"zone,omitempty"`
	Every            string            `json:"every,omitempty"`
	Missed           Missed            `json:"missed,omitempty"`
	StartingDeadline string            `json:"starting_deadline,omitempty"`
	Overlap          Overlap           `json:"overlap,omitempty"`
	Jitter           string            `json:"jitter,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Key              string            `json:"key,omitempty"`
	Priority         int               `json:"priority,omitempty"`
}

// rule is a checked definition.
type rule struct {
	name  string
	times *Times
	hash  string // the hash of the definition
	Schedule
}

// define checks a schedule, and returns its rule and its definition in JSON.
func (s *Schedule) define() (*rule, json.RawMessage, error) {
	bad := func(format string, args ...any) (*rule, json.RawMessage, error) {
		return nil, nil, fmt.Errorf("%w %q: %s", ErrBadSchedule, s.Name, fmt.Sprintf(format, args...))
	}
	for name := range s.Labels {
		if strings.HasPrefix(name, LabelSchedule) {
			return bad("the label %q: labels that begin with %q are reserved for package schedule", name, LabelSchedule)
		}
	}
	switch {
	case s.Name == "" || strings.ContainsAny(s.Name, "@"):
		return bad("the name must not be empty or contain an @")
	case s.Cron != "" && s.Every != 0, s.Cron == "" && s.Every == 0:
		return bad("set exactly one of Cron and Every")
	case s.Every != 0 && s.Zone != "":
		return bad("set no Zone with Every")
	case s.Missed != Latest && s.Missed != None && s.Missed != All:
		return bad("Missed %q is none of %q, %q and %q", s.Missed, Latest, None, All)
	case s.Overlap != Skip && s.Overlap != Allow:
		return bad("Overlap %q is none of %q and %q", s.Overlap, Skip, Allow)
	case s.StartingDeadline < 0:
		return bad("StartingDeadline %v is negative", s.StartingDeadline)
	case s.Jitter < 0:
		return bad("Jitter %v is negative", s.Jitter)
	case s.StartingDeadline > 0 && s.StartingDeadline < time.Millisecond:
		return bad("StartingDeadline %v: is its unit missing?", s.StartingDeadline)
	case s.Jitter > 0 && s.Jitter < time.Millisecond:
		return bad("Jitter %v: is its unit missing?", s.Jitter)
	}
	if err := errors.Join(store.CheckKey(s.Key), store.CheckPriority(s.Priority)); err != nil {
		return bad("%v", err)
	}
	times, err := Cron(cmp.Or(s.Cron, "@daily"), s.Zone)
	if s.Every != 0 {
		times, err = Every(s.Every)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("schedule %q: %w", s.Name, err)
	}
	d := written{
		Workflow: cmp.Or(s.Workflow, s.Name), Cron: s.Cron, Zone: s.Zone, Missed: s.Missed, Overlap: s.Overlap, Labels: s.Labels, Key: s.Key, Priority: s.Priority,
		Every: text(s.Every), StartingDeadline: text(s.StartingDeadline), Jitter: text(s.Jitter),
	}
	data, err := json.Marshal(d)
	if err != nil {
		return bad("%v", err)
	}
	r := &rule{name: s.Name, times: times, hash: hashOf(data), Schedule: *s}
	r.Workflow = d.Workflow
	return r, data, nil
}

func text(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// ruleOf returns the rule that the row of a schedule defines. A row cannot contain the function Inputs, so the rule gets Inputs from own,
// unless own is nil.
func ruleOf(row *store.Schedule, own *rule) (*rule, error) {
	var d written
	s := Schedule{Name: row.Name}
	err := json.Unmarshal(row.Definition, &d)
	for _, x := range []struct {
		to   *time.Duration
		text string
	}{{&s.Every, d.Every}, {&s.StartingDeadline, d.StartingDeadline}, {&s.Jitter, d.Jitter}} {
		if err == nil && x.text != "" {
			*x.to, err = time.ParseDuration(x.text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w %q: its row cannot be read: %w", ErrBadSchedule, row.Name, err)
	}
	s.Workflow, s.Cron, s.Zone, s.Missed, s.Overlap, s.Labels = d.Workflow, d.Cron, d.Zone, d.Missed, d.Overlap, d.Labels
	s.Key, s.Priority = d.Key, d.Priority
	if own != nil {
		s.Inputs = own.Inputs
	}
	r, _, err := s.define()
	if err == nil {
		r.hash = hashOf(row.Definition)
	}
	return r, err
}

// tickID returns the id of the run of a tick.
func tickID(name string, tick time.Time) string {
	return name + "@" + tick.UTC().Format(time.RFC3339)
}

// tickOf returns the time of a tick from the id of its run, or the zero time if the id belongs to no tick.
func tickOf(name, id string) time.Time {
	at, ok := strings.CutPrefix(id, name+"@")
	if !ok {
		return time.Time{}
	}
	tick, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return time.Time{}
	}
	return tick
}

// The method `begins` returns the time at which the run of a tick is due: the time of the tick plus a delay below Jitter.
func (r *rule) begins(tick time.Time) time.Time {
	if r.Jitter <= 0 {
		return tick
	}
	sum := sha256.Sum256([]byte(tickID(r.name, tick)))
	return tick.Add(time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(r.Jitter)))
}

// The method `late` returns how late the run of a tick may begin, or 0 if there is no bound.
func (r *rule) late() time.Duration {
	if r.Missed == None {
		return cmp.Or(r.StartingDeadline, noneLate)
	}
	return r.StartingDeadline
}

// The method `after` returns the next tick after a tick, or the zero time if there is none. If more than mostMissed ticks were missed, it skips the
// earliest of them, and mostMissed ticks remain. The result `left` is the number of skipped ticks.
func (r *rule) after(tick, now time.Time) (next time.Time, left int) {
	if next = r.times.Next(tick); next.IsZero() || next.After(now) {
		return next, 0
	}
	var ring [mostMissed]time.Time
	n := 0
	if every := r.times.every; every > 0 { // the ticks of an interval can be counted by a division
		if passed := (now.Unix()-next.Unix())/every + 1; passed > mostMissed {
			left = int(passed - mostMissed)
			return next.Add(time.Duration(left) * r.Every), left
		}
		return next, 0
	}
	for u := next; !u.IsZero() && !u.After(now); u = r.times.Next(u) {
		ring[n%mostMissed] = u
		n++
	}
	if n <= mostMissed {
		return next, 0
	}
	return ring[n%mostMissed], n - mostMissed
}

// newRun returns the run of a tick. If Inputs returns an error, or the graph does not take the inputs, the label LabelLeftOut contains the
// error. Scheduler.admit then cancels the run when the run is about to begin.
func (r *rule) newRun(w *kahn.Workflow, options []kahn.Option, id, kind string, tick time.Time) store.NewRun {
	labels := map[string]string{}
	for name, value := range r.Labels {
		labels[name] = value
	}
	at := tick.UTC().Format(time.RFC3339)
	labels[LabelSchedule], labels[LabelTick], labels[labelDefinition] = r.name, at, r.hash
	if kind != "" {
		labels[LabelKind] = kind
	}
	inputs, err := r.inputs(w.Graph, tick)
	var n store.NewRun
	if err == nil {
		n, err = r.prepare(w, options, id, labels, inputs)
	}
	if err != nil {
		labels[LabelLeftOut] = "inputs: " + err.Error()
		n = store.NewRun{ID: id, Spec: store.Spec{Workflow: r.Workflow, Labels: labels, Key: r.Key, Priority: r.Priority}}
	}
	n.Plan = "" // any version of the workflow may perform the run
	n.NotBefore = r.begins(tick)
	if kind != "" {
		n.NotBefore = time.Time{}
	}
	return n
}

// The method `inputs` returns the inputs of the run of a tick, or the error of Inputs.
func (r *rule) inputs(g *kahn.Graph, tick time.Time) (all map[string]any, err error) {
	all = map[string]any{}
	if declares(g, definition.InputTick) {
		all[definition.InputTick] = tick.UTC().Format(time.RFC3339)
	}
	if r.Inputs == nil {
		return all, nil
	}
	err = contain(func() error {
		given, err := r.Inputs(tick.In(r.times.zone))
		maps.Copy(all, given)
		return err
	})
	return all, err
}

// The method `prepare` returns the run of a tick. It returns an error if the graph does not take the inputs.
func (r *rule) prepare(w *kahn.Workflow, options []kahn.Option, id string, labels map[string]string, inputs map[string]any) (store.NewRun, error) {
	all := append(append([]kahn.Option{}, options...), w.Options...)
	all = append(all, kahn.RunID(id), kahn.Inputs(inputs), kahn.Describe(store.Spec{Labels: labels}))
	if r.Key != "" {
		all = append(all, kahn.RunKey(r.Key))
	}
	if r.Priority != 0 {
		all = append(all, kahn.RunPriority(r.Priority))
	}
	return kahn.Prepare(w.Graph, all...)
}

// The method `check` returns an error if the graph does not take the inputs of the next tick. It returns nil if Inputs fails, since a later call may
// succeed.
func (r *rule) check(w *kahn.Workflow, options []kahn.Option) error {
	tick := r.times.Next(time.Now())
	inputs, err := r.inputs(w.Graph, tick)
	if err != nil {
		return nil
	}
	if _, err = r.prepare(w, options, tickID(r.name, tick), nil, inputs); err != nil {
		return fmt.Errorf("%w %q: its runs cannot begin: inputs: %w", ErrBadSchedule, r.name, err)
	}
	return nil
}

// The function `contain` calls a function of the host, and returns its panic as an error.
func contain(f func() error) error {
	return foreign.Contain(f, func(v any) error { return foreign.NewPanicError(v) })
}

// The function `declares` reports whether a graph accepts an input: it declares this input, or it declares no inputs.
func declares(g *kahn.Graph, name string) bool {
	for i := range g.Inputs {
		if g.Inputs[i].Name == name {
			return true
		}
	}
	return len(g.Inputs) == 0
}
