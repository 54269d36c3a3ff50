package progress

import (
	"cmp"
	"container/list"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// maxFailures is the maximum number of failures that are kept and shown. The same maximum applies to warnings. Further failures and warnings are
// only counted.
const maxFailures = 100

// The type `state` is the state of a run according to its events so far. The cost of an event does not depend on the number of nodes. Nodes inside
// composites, and items of maps, are shown while they run, but the fields `total` and `counts` do not include them.
type state struct {
	start   time.Time
	now     time.Time              // the time of the latest event
	total   int                    // the number of nodes; 0 if unknown, as for a run that continues
	counts  [kahn.Skipped + 1]int  // the number of nodes in each status, as far as known
	live    map[string]*live       // the nodes that are queued or have begun, and have not ended, by path
	before  map[string]kahn.Status // nodes that ended before the first event, by path; later events may correct the statuses
	source  *kahn.Run              // the run whose past is read at the next event; nil after that
	run     *kahn.Run              // the run to ask for the numbers of nodes inside composites; nil if unknown
	maps    []*live                // the live maps that are not inside other maps
	life    int                    // how often the run has continued after a crash or a wait
	latest  *live                  // the node of the latest event, or nil
	listed  time.Time              // when plain mode last wrote a line about items or, before the first of these lines, when the first live map began
	plan    *kahn.Plan             // lists the nodes of the outermost graph, but not items of its maps; nil if the run is unknown
	running list.List              // the *live nodes that are running or being undone, in the order in which their attempts began
	waiting list.List              // the *live nodes that are suspended, in the order in which they began to wait
	undoing map[string]*live       // the nodes that are being undone, at any depth, by path
	undone  [kahn.CompensationFailed + 1]int
	failed  []failure              // the first failures
	warned  []failure              // the first warnings
	warning int                    // the number of warnings
	gone    time.Time              // the time since which no process has performed the run; zero if a process performs it
	last    map[string]kahn.Status // the last statuses of ended nodes of the outermost graph, by path; used if a redrive runs a node again
	rests   bool                   // whether the latest event was the suspension of the run
	over    bool
	ended   event.RunEnd
}

// The type `live` is a node that is queued or has begun, and has not ended.
type live struct {
	path    string
	status  kahn.Status
	attempt int
	since   time.Time
	undo    bool          // whether the node is being undone
	info    string        // the text that a suspended node gives about its wait; may be empty
	signal  bool          // whether the suspended node itself waits for a signal; false for a composite, which waits for nodes inside
	output  *tail         // the output of the latest attempt; nil if there is no output
	inside  *inside       // the counts of a composite; nil if no node inside has begun
	back    bool          // whether the method `around` has put the composite back
	element *list.Element // the node's element in state.running or state.waiting, or nil
}

// The type `failure` describes a failure of a node, a failed compensation or a warning. A failure includes the last lines of the node's output.
type failure struct {
	id, text string
	output   []string
	undo     bool
}

// nodeStatus maps the type of an event to the status of the event's node after the event.
var nodeStatus = map[event.Type]kahn.Status{
	event.NodeQueued: kahn.Ready, event.NodeStarted: kahn.Running, event.NodeRetried: kahn.Retrying,
	event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted,
	event.NodeCancelled: kahn.Cancelled, event.NodeSkipped: kahn.Skipped, event.NodeSuspended: kahn.Suspended,
}

// The function `path` returns the path of an event's node, or the node's id if the event has no path.
func path(e event.Event) string { return cmp.Or(e.Path, e.Node) }

func (s *state) of(event.Event) *state { return s }

func (s *state) record(e event.Event) {
	if s.start.IsZero() {
		s.start = e.Time
	}
	s.now, s.rests, s.latest, s.gone = e.Time, false, nil, time.Time{}
	switch payload := e.Payload.(type) {
	case event.Start:
		s.total = payload.TotalNodes
	case event.Compensation:
		s.recordUndo(e, payload)
		return
	case event.StatusChange:
		if s.rests = payload.To == kahn.RunSuspended; !s.rests {
			s.life++
		}
	case event.Recovery:
		s.life++
	case event.RunEnd:
		s.over, s.ended = true, payload
	case event.Invalidation:
		s.invalidate(path(e))
	case event.LogRecord:
		if !warns(e, payload) {
			s.output(path(e), payload.Message+"\n")
			break
		}
		if s.warning++; len(s.warned) < maxFailures {
			s.warned = append(s.warned, failure{id: path(e), text: payload.Message})
		}
	case event.Delta:
		switch chunk := payload.Chunk.(type) {
		case string:
			s.output(path(e), chunk)
		case []byte:
			s.output(path(e), string(chunk))
		}
	}
	status, ok := nodeStatus[e.Type]
	if !ok {
		return
	}
	if wait, is := e.Payload.(event.Suspension); is && wait.Token == "" && !wait.Deadline.IsZero() {
		status = kahn.Retrying // the node sleeps until its deadline, and no signal wakes it
	}
	counts := s.outermost(e)
	var around *live
	if !counts {
		around = s.around(e)
	}
	was, known := kahn.Idle, false
	if before := s.live[path(e)]; before != nil {
		was, known = before.status, true
	}
	n := s.become(path(e), status, e.Attempt, e.Time, counts)
	s.latest = n
	if counts && status.Terminal() {
		if s.last == nil {
			s.last = map[string]kahn.Status{}
		}
		s.last[n.path] = status
	}
	if !counts {
		s.count(e, status, was, known)
	}
	switch payload := e.Payload.(type) {
	case event.Suspension:
		n.info, _ = payload.Info.(string)
		n.signal = payload.Token != ""
	case event.NodeEnd:
		switch {
		case status != kahn.Failed:
		case counts:
			s.fail(failure{id: e.Node, text: describe(payload), output: n.output.last(tailLines)})
		case around != nil && n.output != nil: // the composite shows the output, even below its own failure
			around.output = n.output
		}
	}
}

// A redrive will run the node again: invalidate removes the node's old end from the counts, and the node's old failure from the list.
func (s *state) invalidate(id string) {
	ended, is := s.last[id]
	if !is {
		return
	}
	delete(s.last, id)
	s.counts[ended]--
	s.failed = slices.DeleteFunc(s.failed, func(old failure) bool { return old.id == id })
}

// recordUndo records the start of an attempt to undo a node, or the end of the node's compensation.
func (s *state) recordUndo(e event.Event, p event.Compensation) {
	id := path(e)
	n, known := s.undoing[id]
	if known {
		s.running.Remove(n.element)
		s.undone[kahn.CompensationRunning]--
		delete(s.undoing, id)
	}
	switch {
	case e.Type == event.NodeCompensating:
		s.undoes(id, e.Attempt, e.Time)
	case p.Err == nil:
		s.undone[kahn.CompensationDone]++
	default:
		s.undone[kahn.CompensationFailed]++
		f := failure{id: id, text: errorText(p.Err), undo: true}
		if known {
			f.output = n.output.last(tailLines)
		}
		s.fail(f)
	}
}

// The method `undoes` records that an attempt to undo a node runs: it adds the node to s.running and s.undoing.
func (s *state) undoes(id string, attempt int, at time.Time) {
	if s.undoing == nil {
		s.undoing = map[string]*live{}
	}
	n := &live{path: id, attempt: attempt, since: at, undo: true}
	n.element = s.running.PushBack(n)
	s.undoing[id] = n
	s.undone[kahn.CompensationRunning]++
}

// outermost reports whether the node of an event belongs to the outermost graph. A path such as "m[2]" may be the id of a node, or the path of an
// item of the map "m". If there is a plan, it decides. Without a plan, outermost takes the path as an item if the node "m" is live. If the run
// continued from a snapshot or a store, the map may have begun before the first event. Then outermost always takes the path as an item.
func (s *state) outermost(e event.Event) bool {
	id := path(e)
	if id != e.Node {
		return false
	}
	if s.plan != nil {
		_, is := s.plan.Ref(id)
		return is
	}
	of, is := itemOf(id)
	return !is || s.total > 0 && s.live[of] == nil
}

// If path may name an item, itemOf returns the path of the map, and true. Otherwise it returns path and false.
func itemOf(path string) (of string, is bool) {
	at := strings.LastIndexByte(path, '[')
	if at < 0 || !strings.HasSuffix(path, "]") {
		return path, false
	}
	return path[:at], true
}

// The method `around` returns the innermost running composite around the node of an event, or nil if none is known. Usually an earlier event has
// put the composite into s.live. If the composite began before the first event, the method `inherit` has put it there. But the composite may have
// ended before the display read the run's past, while events from inside it are still to come. Then `inherit` has recorded the end of the
// composite, and `around` changes its status back to running.
func (s *state) around(e event.Event) *live {
	for at := range enclosing(path(e)) {
		if n := s.live[at]; n != nil {
			return n
		}
		if _, ended := s.before[at]; ended {
			n := s.become(at, kahn.Running, 1, e.Time, true)
			n.back = true
			return n
		}
	}
	return nil
}

// enclosing yields the paths that composites around a node may have, the innermost first: for "m[2]/l#1/x" it yields "m[2]/l#1", "m[2]/l", "m[2]"
// and "m".
func enclosing(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for path != "" {
			at := strings.LastIndexAny(path, "/[#")
			if path = path[:max(at, 0)]; path != "" && !yield(path) {
				return
			}
		}
	}
}

// fail records a failure. The failure replaces an earlier failure of the same kind of the same node. Otherwise, if maxFailures are already
// recorded, fail drops the new failure.
func (s *state) fail(f failure) {
	if i := slices.IndexFunc(s.failed, func(old failure) bool { return old.id == f.id && old.undo == f.undo }); i >= 0 {
		s.failed[i] = f
	} else if len(s.failed) < maxFailures {
		s.failed = append(s.failed, f)
	}
}

// If a node is live or being undone, the method `output` adds a text to the node's output.
func (s *state) output(path, text string) {
	n, ok := s.live[path]
	if undo, is := s.undoing[path]; is {
		n, ok = undo, true
	}
	if !ok {
		return
	}
	if n.output == nil {
		n.output = &tail{}
	}
	n.output.write(text)
}

// become changes the status of a node. If the node is not in s.live, become adds it. If the new status is terminal, become removes the node from
// s.live. If `counts` is true, become also updates s.counts.
func (s *state) become(path string, status kahn.Status, attempt int, at time.Time, counts bool) *live {
	n, known := s.live[path]
	if !known {
		n = &live{path: path}
		if s.live == nil {
			s.live = map[string]*live{}
		}
		s.live[n.path] = n
	}
	if counts {
		if known {
			s.counts[n.status]--
		} else if ended, ok := s.before[path]; ok {
			s.counts[ended]--
			delete(s.before, path)
			s.failed = slices.DeleteFunc(s.failed, func(old failure) bool { return old.id == path })
		}
		s.counts[status]++
	}
	if n.element != nil { // one of the two lists contains the element; the other list ignores Remove
		s.running.Remove(n.element)
		s.waiting.Remove(n.element)
		n.element = nil
	}
	if status == kahn.Running && attempt > n.attempt && n.attempt > 0 {
		s.forgetInside(n) // the next attempt begins with its first item or node
	}
	n.status, n.attempt, n.since = status, attempt, at
	switch {
	case status == kahn.Running:
		n.output = nil // drop the output of the previous attempt
		n.element = s.running.PushBack(n)
	case status == kahn.Suspended:
		n.element = s.waiting.PushBack(n)
	case status.Terminal():
		delete(s.live, n.path)
		s.maps = slices.DeleteFunc(s.maps, func(m *live) bool { return m == n })
	}
	return n
}

// The type `past` describes what a run has done before the display reads it.
type past struct {
	start time.Time
	total int
	nodes []kahn.NodeResult // nodes that are running, waiting, backing off or ended
	waits []kahn.Wait       // includes waits inside composites
	// composites lists the composites that have begun, at any depth, outer composites first.
	composites []composite
}

// composite contains the result of a composite and the counts of the nodes inside it.
type composite struct {
	kahn.NodeResult
	kahn.Inside
}

// The function `earlier` returns what a run has done so far. The result may already include events that the display gets later. The function
// visits each node once.
func earlier(r *kahn.Run) (p past) {
	p.start, p.waits = r.Started(), r.Waiting()
	for n := range r.Nodes() {
		p.total++
		if n.Status.Terminal() || n.Status == kahn.Running || n.Status == kahn.Suspended || n.Status == kahn.Retrying {
			p.nodes = append(p.nodes, n)
		}
		p.look(r, n)
	}
	return p
}

// If n is a composite that has begun and not ended, look adds n. It then does the same for each node inside n.
func (p *past) look(r *kahn.Run, n kahn.NodeResult) {
	if n.Status != kahn.Running && n.Status != kahn.Suspended {
		return
	}
	in, err := r.Inside(n.ID)
	if err != nil || len(in.Nodes) == 0 {
		return // not a composite
	}
	p.composites = append(p.composites, composite{n, in})
	for _, n := range in.Nodes {
		p.look(r, n)
	}
}

// inherit adds the past of the run to s. Later events may repeat parts of this past.
func (s *state) inherit(p past) {
	s.start, s.total = p.start, p.total
	for _, n := range p.nodes {
		since := n.Start
		if n.Status != kahn.Running {
			since = since.Add(n.Duration)
		}
		s.become(n.ID, n.Status, n.Attempts, since, true)
		if n.Status.Terminal() {
			if s.before == nil {
				s.before = map[string]kahn.Status{}
			}
			s.before[n.ID] = n.Status
		}
		switch n.Compensation {
		case kahn.CompensationRunning:
			if n.Sub == nil { // a composite that is being undone is not shown; the nodes inside are shown once they have events
				s.undoes(n.ID, 0, since)
			}
		case kahn.CompensationFailed:
			s.fail(failure{id: n.ID, text: errorText(n.CompensationErr), undo: true})
			fallthrough
		case kahn.CompensationDone:
			s.undone[n.Compensation]++
		}
		if n.Status == kahn.Failed {
			s.fail(failure{id: n.ID, text: n.Cause.Kind.String() + ": " + causeless(n.Cause.Kind, n.Err)})
		}
	}
	for _, c := range p.composites {
		s.inheritInside(c)
	}
	for _, w := range p.waits {
		n, known := s.live[w.Node]
		if !known {
			n = s.become(w.Node, kahn.Suspended, 0, w.Since, false)
		}
		n.info, _ = w.Info.(string)
		n.signal = true
	}
}

func (s *state) began() time.Time { return s.start }

func (s *state) finished() bool { return s.over }

func (s *state) above(int, int) []row { return nil }

// The function `first` returns nodes from the front of a list, at most the given number. They have been in the list for the longest time.
func first(list *list.List, most int) (nodes []*live) {
	for el := list.Front(); el != nil && len(nodes) < most; el = el.Next() {
		nodes = append(nodes, el.Value.(*live))
	}
	return nodes
}

// The variable `shown` lists the statuses that a summary counts. The most important statuses come first, because the end of a long summary may be
// cut off.
var shown = []kahn.Status{
	kahn.Failed, kahn.Running, kahn.Retrying, kahn.Suspended, kahn.Aborted, kahn.Cancelled, kahn.Skipped,
}

var undoWords = map[kahn.Compensation]string{kahn.CompensationRunning: "compensating", kahn.CompensationDone: "compensated"}

// The method `done` returns how many of the nodes have ended, as in "[12/40]". If s.total is unknown when the run ends, all nodes count as ended,
// and the run's last event contains their number.
func (s *state) done() string {
	if s.over && s.total == 0 {
		return fmt.Sprintf("[%d/%[1]d]", s.ended.TotalSteps)
	}
	done := 0
	for status := kahn.Completed; status <= kahn.Skipped; status++ {
		done += s.counts[status]
	}
	total := "?"
	if s.total > 0 {
		total = strconv.Itoa(max(s.total, s.ended.TotalSteps))
	}
	return fmt.Sprintf("[%d/%s]", done, total)
}

// The method `summary` returns the progress of the run, as in "[12/40] 1 failed 3 running".
func (s *state) summary() string { return s.summarize("") }

// summaryAt is like the method `summary`, but includes the items of maps, as in "[1/3] 4200/10000 items (812/s, 7s left) 1 running".
func (s *state) summaryAt(now time.Time) string { return s.summarize(s.itemsText(now)) }

// summarize returns the summary. It inserts the text about items after the number of failures.
func (s *state) summarize(items string) string {
	text := s.done()
	sep := " "
	if !s.gone.IsZero() {
		text += " no process"
		sep = ": "
	}
	if s.over {
		text += fmt.Sprintf(" run %v", s.ended.Status)
		if s.ended.Degraded {
			text += " (degraded)"
		}
		if by := s.ended.Request.String(); by != "" {
			text += ", stop asked for " + by
		}
		sep = ": "
	}
	for _, status := range shown {
		if n := s.counts[status]; n > 0 {
			text += fmt.Sprintf("%s%d %v", sep, n, status)
			sep = " "
		}
		if status == kahn.Failed && items != "" && !s.over {
			text += sep + items
			sep = " "
		}
	}
	add := func(n int, what string) {
		if n > 0 {
			text += sep + what
			sep = " "
		}
	}
	n := s.undone[kahn.CompensationFailed]
	add(n, plural(n, "compensation")+" failed")
	for _, c := range []kahn.Compensation{kahn.CompensationRunning, kahn.CompensationDone} {
		add(s.undone[c], fmt.Sprintf("%d %s", s.undone[c], undoWords[c]))
	}
	return text
}

// describe returns why a node ended, as in "step_error: connection refused" or "upstream_failure of fetch".
func describe(e event.NodeEnd) string {
	const most = 3
	text := e.Cause.String()
	if len(e.Origins) > 0 {
		text += " of " + strings.Join(e.Origins[:min(most, len(e.Origins))], ", ")
		if more := len(e.Origins) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	if by := e.Request.String(); by != "" {
		text += " " + by
	}
	if e.Abandoned {
		text += ", left behind"
	}
	if e.Err != nil {
		text += ": " + causeless(e.Cause, e.Err)
	}
	return text
}

// causeless returns the text of an error without the cause. The text of a panic begins with the cause, but the caller has already written the
// cause.
func causeless(cause kahn.CauseKind, err error) string {
	return strings.TrimPrefix(errorText(err), cause.String()+": ")
}

// errorText returns the text of a step's error, without the name of the node. A NodeError renders the text: it shortens a long text, and recovers
// if the method Error of the step's error panics.
func errorText(err error) string {
	if own, ok := err.(*kahn.NodeError); ok {
		err = own.Err
	}
	anonymous := &kahn.NodeError{}
	prefix := strings.TrimSuffix(anonymous.Error(), "<nil>")
	anonymous.Err = err
	return strings.TrimPrefix(anonymous.Error(), prefix)
}
