package inspector

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// infoReply says what the client may do and what the handler offers.
type infoReply struct {
	Actions   []Action `json:"actions"`
	Workflows []string `json:"workflows"` // workflows that can be started
	Known     []string `json:"known"`     // the workflows of the Runner's runs, at most 100
	Stored    bool     `json:"stored"`    // whether there is a store
	Schedules bool     `json:"schedules"` // whether there is a Scheduler
	Limits    limits   `json:"limits"`
	Counts    counts   `json:"counts"`
	Actor     string   `json:"actor,omitempty"`
	Now       string   `json:"now"`
}

type limits struct {
	MaxRuns int `json:"max_runs,omitempty"`
	Slots   int `json:"slots,omitempty"`
}

// The type `counts` maps each status to the number of runs with this status.
type counts map[string]int

func (c *call) info() (any, error) {
	reply := infoReply{Actions: []Action{}, Workflows: []string{}, Known: []string{}, Counts: counts{}, Stored: c.h.Store != nil, Schedules: c.h.hasSchedules(), Actor: c.actor(), Now: stamp(time.Now())}
	for _, a := range []Action{View, ViewData, Signal, Cancel, Redrive, Start, Schedule} {
		if c.h.allows(c.r, a) {
			reply.Actions = append(reply.Actions, a)
		}
	}
	for name := range c.h.Start {
		reply.Workflows = append(reply.Workflows, name)
	}
	slices.Sort(reply.Workflows)
	for run := range c.liveRuns {
		reply.Counts[run.Status().String()]++
		if at, found := slices.BinarySearch(reply.Known, run.Name()); !found && len(reply.Known) < 100 {
			reply.Known = slices.Insert(reply.Known, at, run.Name())
		}
	}
	reply.Limits = limits{MaxRuns: c.h.Runner.MaxRuns, Slots: c.h.Runner.Limit}
	return reply, nil
}

// runRow is one run in the list.
type runRow struct {
	ID       string         `json:"id"`
	Workflow string         `json:"workflow"`
	Status   kahn.RunStatus `json:"status"`
	Degraded bool           `json:"degraded,omitempty"`
	Cause    string         `json:"cause,omitempty"` // why the run was stopped as a whole, such as cancel_run
	// Compensation is the progress of undoing the run's nodes: running, done or failed; empty if no node is undone.
	Compensation string `json:"compensation,omitempty"`
	// Usage maps the name of each resource to the amount that the steps have used since the run first began. For a stored run, the amounts do not
	// include running attempts.
	Usage   kahn.Usage `json:"usage,omitempty"`
	Arrived string     `json:"arrived"`
	Started string     `json:"started,omitempty"` // when the run first began, in whichever process
	// Continued is when this process continued the run, if the run had begun earlier.
	Continued string `json:"continued,omitempty"`
	Ended     string `json:"ended,omitempty"`
	// Millis is the duration of a run that has ended, was left or has lost its process. It is nil for any other run, and for a run that never started.
	Millis *float64 `json:"duration_ms,omitempty"`
	// Remaining is an estimate of the time until a live run ends, not counting waits for answers and for other runs. It is nil if unknown.
	// RemainingWaits means that a node waits for an answer or for another run, or that a gate has not ended.
	Remaining      *float64 `json:"remaining_ms,omitempty"`
	RemainingWaits bool     `json:"remaining_waits,omitempty"`
	// Late is the longest time by which a running step exceeds its estimate; nil if there is no such step. If Late is set, Remaining is a lower bound.
	Late *float64 `json:"late_ms,omitempty"`
	// LateNode is the path of the step that exceeds its estimate by Late, and LateLabel is the step's label. LateEstimate is the step's estimate, or
	// nil if Run.Estimate does not know it.
	LateNode     string   `json:"late_node,omitempty"`
	LateLabel    string   `json:"late_label,omitempty"`
	LateEstimate *float64 `json:"late_estimate_ms,omitempty"`
	// Gone is when the run's process was last heard of. It is set only if the status of a stored run is running but no process performs the
	// run.
	Gone string `json:"gone,omitempty"`
	// Counts maps each status to the number of the graph's nodes with this status. Nodes is the number of all nodes, and Done is the number of ended
	// nodes.
	Counts map[string]int `json:"counts"`
	Nodes  int            `json:"nodes"`
	Done   int            `json:"done"`
	// Waiting has the first few nodes that wait for a signal. Waits is the number of all nodes that wait.
	Waiting []string `json:"waiting,omitempty"`
	Waits   int      `json:"waits,omitempty"`
	// Running is the first running node. It is nil if no node runs, or if the graph has more than 1,000 nodes.
	Running *runningNode `json:"running,omitempty"`
	Failed  []string     `json:"failed,omitempty"` // the first few failed nodes, if the run has ended
	Error   string       `json:"error,omitempty"`  // the first line of the error that caused the first failure or that stopped the run
	// ErrorPath is the path of the node whose error is in Error: a failed node, or a node inside it that caused the failure.
	ErrorPath string `json:"error_path,omitempty"`
	// If the run was cancelled or aborted, StoppedBy is the person or program that requested this, and StopReason is the reason in the request.
	// Both are only for clients that may view_data.
	StoppedBy  string `json:"stopped_by,omitempty"`
	StopReason string `json:"stop_reason,omitempty"`
	First      uint64 `json:"first"` // First and Last are the ids of the first and the last event that is kept
	Last       uint64 `json:"last"`
	// Actions are the actions that the run's status allows: cancel, abort, leave, redrive and fork; compensate if a compensation has
	// failed.
	Actions []string `json:"actions"`
	// Stored means that the row shows the stored state, since the Runner does not have the run or has left it. Note says whether a process performs
	// the run, and what the row lacks.
	Stored bool   `json:"stored,omitempty"`
	Note   string `json:"note,omitempty"`
	// Requests are the last few requests that a stored run has refused or has yet to apply.
	Requests []requestRow `json:"requests,omitempty"`
	// CanContinue means that this process can continue the stored run, for example when the last gate of the run is answered.
	CanContinue bool `json:"can_continue,omitempty"`
	// Queue is set if no live process serves the queue of a stored run.
	Queue *queueRow `json:"queue,omitempty"`
	// Key and Priority determine the order in which the pending runs of a store begin. Key is only for clients that may view_data.
	Key      string   `json:"key,omitempty"`
	Priority int      `json:"priority,omitempty"`
	Line     *lineRow `json:"line,omitempty"` // the place of a pending run in the line of runs that wait to begin; nil in lists of runs
	// Left means that this process has left the run before the run ended: the run may continue in another process.
	Left bool `json:"left,omitempty"`
}

// The constant `few` is the maximum length of the lists in a row.
const few = 5

// runsReply is a page of the list.
type runsReply struct {
	Runs []runRow `json:"runs"`
	// Next is the cursor of the next page; empty on the last page.
	Next string `json:"next,omitempty"`
	// Total is the number of runs on all pages.
	Total int `json:"total"`
}

// An arrival is a run with its place in the list. The list is sorted by rank, then by time of arrival, the latest first, then by id.
type arrival struct {
	rank int // the result of troubleOf if the list begins with runs in trouble; otherwise 0
	at   time.Time
	id   string
	run  *kahn.Run
}

func later(a, b arrival) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), b.at.Compare(a.at), cmp.Compare(b.id, a.id))
}

func (a arrival) cursor() string {
	return strconv.Itoa(a.rank) + "." + strconv.FormatInt(a.at.UnixNano(), 36) + "." + a.id
}

// parseCursor parses a text that the method `cursor` has returned.
func parseCursor(text string) (arrival, error) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) < 3 {
		return arrival{}, errNoRunCursor
	}
	rank, err := strconv.Atoi(parts[0])
	n, err2 := strconv.ParseInt(parts[1], 36, 64)
	if err != nil || err2 != nil {
		return arrival{}, errNoRunCursor
	}
	return arrival{rank: rank, at: time.Unix(0, n), id: parts[2]}, nil
}

var errNoRunCursor = badQuery("the parameter before is not a cursor")

// troubleOf returns the rank of a run in a list in which runs in trouble come first.
func troubleOf(run *kahn.Run) int {
	switch status := run.Status(); {
	case status == kahn.RunFailed || wasLeft(run) || run.Compensation() == kahn.CompensationFailed:
		return 0
	case status.Terminal():
		return 5
	case len(run.Waiting()) > 0:
		return 1
	case run.Counts()[kahn.Failed] > 0:
		return 2
	case status == kahn.RunPending:
		return 4
	}
	return 3
}

func (c *call) runs() (any, error) {
	reply := runsReply{Runs: []runRow{}}
	var before arrival
	if cursor := c.query.text("before"); cursor != "" {
		var err error
		if before, err = parseCursor(cursor); err != nil {
			return nil, err
		}
	}
	workflow, q := c.query.text("workflow"), strings.ToLower(c.query.text("q"))
	statuses, undoing := c.query.texts["status"], c.query.text("compensation")
	var list []arrival
	for run, at := range c.h.Runner.Runs() {
		x := arrival{at: time.Unix(0, at.UnixNano()), id: run.ID(), run: run}
		if workflow != "" && run.Name() != workflow || statuses != nil && !slices.Contains(statuses, run.Status().String()) ||
			undoing != "" && undoing != run.Compensation().String() ||
			!strings.Contains(strings.ToLower(x.id), q) && !strings.Contains(strings.ToLower(run.Name()), q) || !c.h.seesLive(c.r, run) {
			continue
		}
		if c.query.text("order") == "trouble" {
			x.rank = troubleOf(run)
		}
		list = append(list, x)
	}
	reply.Total = len(list)
	slices.SortFunc(list, later)
	if before.id != "" {
		at, _ := slices.BinarySearchFunc(list, before, later)
		for at < len(list) && later(list[at], before) <= 0 {
			at++
		}
		list = list[at:]
	}
	if limit := c.query.numbers["limit"]; len(list) > limit {
		list = list[:limit]
		reply.Next = list[limit-1].cursor()
	}
	for _, x := range list {
		row := c.h.rowOf(x.run, x.at)
		c.addCause(&row, x.run)
		reply.Runs = append(reply.Runs, row)
	}
	return reply, nil
}

func (c *call) run() (any, error) {
	return c.row(), nil
}

// The method `row` returns the row of the run that the query names.
func (c *call) row() (row runRow) {
	if s := c.stored(); s != nil {
		row = c.h.storedRow(s)
		row.Requests, row.Priority, row.Line = c.requests(s, ""), s.row.Priority, s.line
		if s.row.Key != "" && c.mayViewData() {
			row.Key = c.shownText(Value{Kind: Key, Value: s.row.Key})
		}
	} else {
		row = c.h.rowOf(c.live(), c.h.arrivalOf(c.live()))
		row.Line = c.h.lineOf(c.live())
	}
	if c.h.Visible != nil {
		row.Line = nil // the numbers in Line include runs that the client may not see
	}
	c.addCause(&row, c.target)
	return row
}

// arrivalOf returns when a run came to the Runner.
func (h *handler) arrivalOf(run *kahn.Run) time.Time {
	for other, at := range h.Runner.Runs() {
		if other == run {
			return at
		}
	}
	return time.Time{}
}

// rowOf returns the row of a run, with only what every client may see.
func (h *handler) rowOf(run *kahn.Run, arrived time.Time) runRow {
	first := run.FirstStarted()
	row := runRow{ID: run.ID(), Workflow: run.Name(), Status: run.Status(), Arrived: stamp(arrived), Started: stamp(first), Actions: h.actionsOf(run)}
	if began := run.Started(); first.Before(began) {
		row.Continued = stamp(began)
		if first.Before(arrived) { // the run came to this process when it was continued
			row.Arrived = row.Started
		}
	}
	row.Compensation, row.Usage = compensationName(run.Compensation()), run.Usage()
	row.count(run)
	row.First, row.Last = run.EventRange()
	if row.Status.Terminal() {
		if e, ok := eventAt(context.Background(), run, row.Last); ok {
			if end, ok := e.Payload.(event.RunEnd); ok {
				row.Degraded, row.Cause, row.Ended = end.Degraded, end.Cause.String(), stamp(e.Time)
				row.Failed = end.Failed[:min(few, len(end.Failed))]
				row.Millis = took(first, e.Time)
			}
		} else {
			row.addEnd(run)
			row.Millis = took(first, lastEnd(run, first))
		}
		return row
	}
	if row.Left = over(run); row.Left {
		row.Millis = took(first, lastEnd(run, first))
	}
	row.addWaits(run)
	row.addRunning(run)
	row.addForecast(run)
	return row
}

// compensationOf returns the progress of undoing a run's nodes.
func compensationOf(run subject) kahn.Compensation {
	if s, ok := run.(*storedRun); ok {
		return s.row.Compensation
	}
	return run.(*kahn.Run).Compensation()
}

// compensationName returns the name of a state of compensation; "" for CompensationNone.
func compensationName(c kahn.Compensation) string {
	if c == kahn.CompensationNone {
		return ""
	}
	return c.String()
}

// The function `over` reports whether a run has ended or was left.
func over(run subject) bool {
	if live, ok := run.(*kahn.Run); ok {
		select {
		case <-live.Done():
			return true
		default:
		}
	}
	return run.Status().Terminal()
}

// The method `count` sets the fields Counts, Nodes and Done of the row.
func (row *runRow) count(run subject) {
	row.Counts = map[string]int{}
	for status, n := range run.Counts() {
		row.Counts[status.String()] = n
		if row.Nodes += n; status.Terminal() {
			row.Done += n
		}
	}
}

// addEnd adds the first few failed nodes of a run, without tolerated failures. It also adds the time when the run's last node ended.
func (row *runRow) addEnd(run subject) {
	for n := range run.Nodes() {
		if len(row.Failed) < few && n.Status == kahn.Failed && !n.Tolerated {
			row.Failed = append(row.Failed, n.ID)
		}
	}
	row.Ended = stamp(lastEnd(run, time.Time{}))
}

// addWaits adds the first few nodes that wait for a signal, and the number of all these nodes.
func (row *runRow) addWaits(run subject) {
	for _, wait := range run.Waiting() {
		if row.Waits++; row.Waits <= few {
			row.Waiting = append(row.Waiting, wait.Node)
		}
	}
}

type runningNode struct {
	Path  string `json:"path"`
	Label string `json:"label,omitempty"`
}

// addRunning looks for a running node only in graphs with at most mostLooked nodes. A search in larger graphs would make lists of runs slow, since
// addRunning is called for each row whenever a client reads a list.
const mostLooked = 1_000

// addRunning adds the first running node of a run.
func (row *runRow) addRunning(run subject) {
	if row.Counts[kahn.Running.String()] == 0 || row.Nodes > mostLooked {
		return
	}
	for n := range run.Nodes() {
		if n.Status == kahn.Running {
			row.Running = &runningNode{n.ID, n.Label}
			return
		}
	}
}

// eventAt returns the event with the given id, without waiting. It returns false if the run has not reached the event, or if the event cannot be
// read, for example because the log no longer has it.
func eventAt(ctx context.Context, run subject, id uint64) (kahn.Event, bool) {
	if first, last := run.EventRange(); id == 0 || id < first || id > last {
		return kahn.Event{}, false
	}
	var failed error
	for e := range reached(ctx, run, id-1, id, &failed) {
		return e, e.ID == id
	}
	return kahn.Event{}, false // the event cannot be read, or the log has dropped it meanwhile
}

// The function `reached` yields the events of a run from the id after+1 to the id `last`, without waiting. The run must have reached the event
// `last`. The function leaves out events that the log no longer has. If it cannot read an event, it stores the error in *failed and stops.
func reached(ctx context.Context, run subject, after, last uint64, failed *error) func(func(kahn.Event) bool) {
	return func(yield func(kahn.Event) bool) {
		if first, _ := run.EventRange(); first > 0 {
			after = max(after, first-1)
		}
		if after >= last {
			return
		}
		for e, err := range run.Events(ctx, after) {
			if err != nil {
				*failed = err
				return
			}
			if !yield(e) || e.ID >= last {
				return
			}
		}
	}
}

// The function `took` returns the time from `start` to `end` in milliseconds; nil if `start` is zero.
func took(start, end time.Time) *float64 {
	if start.IsZero() {
		return nil
	}
	ms := float64(max(0, end.Sub(start))) / float64(time.Millisecond)
	return &ms
}

// The function `stamp` formats a time for a response; "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// A gate is a node that waits for a signal.
type gate struct {
	Run      string   `json:"run"`
	Workflow string   `json:"workflow"`
	Path     string   `json:"path"`
	Label    string   `json:"label,omitempty"`
	Kind     string   `json:"kind,omitempty"`
	Since    string   `json:"since,omitempty"`
	Deadline string   `json:"deadline,omitempty"`
	Choices  []string `json:"choices,omitempty"` // the answers to offer; empty: any answer
	// Schema is the JSON Schema of the answers, if the gate has one.
	Schema json.RawMessage `json:"schema,omitempty"`
	Info   *value          `json:"info,omitempty"`
	Bases  []basis         `json:"bases,omitempty"` // the values on which a person decides
	// OnDeadline says what happens if there is no answer before the deadline: the gate fails (fail), the gate answers "timeout" by itself (timeout),
	// or the step that waits is called again (again).
	OnDeadline string `json:"on_deadline,omitempty"`
	// Leads says where the graph continues after each answer.
	Leads  []lead `json:"leads,omitempty"`
	Stored bool   `json:"stored,omitempty"` // the gate was read from the store
}

type gatesReply struct {
	Gates []gate `json:"gates"`
	Total int    `json:"total"`
	// Compensations are ended runs with a failed compensation: an operator must repeat the compensation, or undo the effects by hand. Failed is the
	// number of these runs. But if the store has more than a page of them, Failed does not count the runs that only the Runner has. If, in
	// addition, Options.Visible is set, Failed counts only the visible runs of the store's first page.
	Compensations []undoTask `json:"compensations"`
	Failed        int        `json:"failed"`
	// StoredGone is the number of stored runs that have lost their process. StoredWaiting is the number of other stored runs that wait for an answer.
	// Neither number includes runs that this process performs. Both are 0 in the list of one run.
	StoredGone    int    `json:"stored_gone,omitempty"`
	StoredWaiting int    `json:"stored_waiting,omitempty"`
	Note          string `json:"note,omitempty"` // what the response lacks
}

func (c *call) gates() (any, error) {
	reply := gatesReply{Gates: []gate{}, Compensations: []undoTask{}}
	limit := c.query.numbers["limit"]
	c.edges = adjacency{}
	add := func(run subject) {
		if over(run) {
			return
		}
		waits := run.Waiting()
		if s, ok := run.(*storedRun); ok { // as in the list of all runs: nobody has to act on a gate with a posted answer
			waits = slices.DeleteFunc(waits, func(w kahn.Wait) bool { return s.posted(w.Node) != nil })
		}
		reply.Total += len(waits)
		reply.Gates = append(reply.Gates, c.gatesOf(run, waits[:min(len(waits), limit-len(reply.Gates))])...)
	}
	if c.target != nil {
		add(c.target)
		c.addTask(&reply)
		return reply, nil
	}
	for run := range c.liveRuns {
		add(run)
	}
	c.addResting(&reply, limit)
	c.addTasks(&reply, limit)
	return reply, nil
}

// gatesOf describes the given waits of a run, with the values on which a person decides.
func (c *call) gatesOf(run subject, waits []kahn.Wait) (list []gate) {
	in := *c
	in.target, in.looked = run, looked{}
	for _, wait := range waits {
		g := in.gate(wait)
		g.Bases = in.bases(g.Run, g.Path, in.basesOf(g.Path))
		list = append(list, g)
	}
	return list
}

// The method `note` adds a text to Note.
func (r *gatesReply) note(text string) { r.Note = strings.TrimSpace(r.Note + " " + text) }

// The method `gate` describes the wait of a node.
func (c *call) gate(wait kahn.Wait) gate {
	g := gate{Run: c.target.ID(), Workflow: c.target.Name(), Path: wait.Node, Since: stamp(wait.Since), Deadline: stamp(wait.Deadline), Stored: c.stored() != nil}
	if res, err := c.target.Node(wait.Node); err == nil {
		g.Label, g.Kind = res.Label, res.Kind
	}
	if why, err := c.target.Why(wait.Node); err == nil {
		at, _ := c.place(wait.Node) // if c.place returns an error, the place has no plan
		g.Choices, g.Schema = c.offered(at, why.Choices), answerSchema(at)
		if g.Deadline != "" {
			g.OnDeadline = onDeadline(at)
		}
		g.Leads = c.leadsOf(at, g)
	}
	if wait.Info != nil {
		g.Info = c.shown(Value{Path: wait.Node, Kind: Info, Value: wait.Info})
	}
	return g
}

// unknownPath returns the error for a path at which there is no node.
func unknownPath(path string) error {
	return fmt.Errorf("%w: %.60q", kahn.ErrUnknownNode, path)
}
