package progress

import (
	"cmp"
	"container/list"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// maxFailures is how many failures, and how many warnings, are kept to be shown. The others are counted.
const maxFailures = 100

// state is the state of a run according to its events so far. Each event costs the same, however many nodes there are. Nodes
// inside of composites are shown while they run, and do not count.
type state struct {
	start   time.Time
	now     time.Time             // of the latest event
	total   int                   // 0 if the events do not tell, as in a later life of a run
	counts  [kahn.Skipped + 1]int // of the nodes that are known to be in a status
	live    map[string]*live      // the nodes that are neither idle nor terminal, by path
	running list.List             // of *live, in the order in which their attempts began
	failed  []failure             // the first ones
	warned  []failure             // the first warnings
	warning int                   // how many there are
	over    bool
	ended   event.RunEnd
}

// live is a node that has begun and not ended.
type live struct {
	path    string
	status  kahn.Status
	attempt int
	since   time.Time
	element *list.Element // in running, or nil
}

type failure struct{ id, text string }

// nodeStatus is the status that each event type of nodes stands for.
var nodeStatus = map[event.Type]kahn.Status{
	event.NodeQueued: kahn.Ready, event.NodeStarted: kahn.Running, event.NodeRetried: kahn.Retrying,
	event.NodeCompleted: kahn.Completed, event.NodeFailed: kahn.Failed, event.NodeAborted: kahn.Aborted,
	event.NodeCancelled: kahn.Cancelled, event.NodeSkipped: kahn.Skipped, event.NodeSuspended: kahn.Suspended,
}

// path names the node of an event.
func path(e event.Event) string { return cmp.Or(e.Path, e.Node) }

func (s *state) event(e event.Event) {
	if s.start.IsZero() {
		s.start = e.Time
	}
	s.now = e.Time
	switch payload := e.Payload.(type) {
	case event.Start:
		s.total = payload.TotalNodes
	case event.RunEnd:
		s.over, s.ended = true, payload
	case event.LogRecord:
		if !warns(e, payload) {
			break
		}
		if s.warning++; len(s.warned) < maxFailures {
			s.warned = append(s.warned, failure{path(e), payload.Message})
		}
	}
	status, ok := nodeStatus[e.Type]
	if !ok {
		return
	}
	counts := path(e) == e.Node
	s.become(e, status, counts)
	if ended, ok := e.Payload.(event.NodeEnd); ok && counts && status == kahn.Failed && len(s.failed) < maxFailures {
		s.failed = append(s.failed, failure{e.Node, describe(ended)})
	}
}

// become moves a node from the status that it was in to another.
func (s *state) become(e event.Event, status kahn.Status, counts bool) {
	n, known := s.live[path(e)]
	if !known {
		n = &live{path: path(e)}
		if s.live == nil {
			s.live = map[string]*live{}
		}
		s.live[n.path] = n
	}
	if counts {
		if known {
			s.counts[n.status]--
		}
		s.counts[status]++
	}
	n.status, n.attempt, n.since = status, e.Attempt, e.Time
	if n.element != nil {
		s.running.Remove(n.element)
		n.element = nil
	}
	if status == kahn.Running {
		n.element = s.running.PushBack(n)
	}
	if status.Terminal() {
		delete(s.live, n.path)
	}
}

// longest yields the nodes whose attempts have been running longest, longest first.
func (s *state) longest(most int) (nodes []*live) {
	for el := s.running.Front(); el != nil && len(nodes) < most; el = el.Next() {
		nodes = append(nodes, el.Value.(*live))
	}
	return nodes
}

// shown are the statuses that are counted in a summary.
var shown = []kahn.Status{
	kahn.Running, kahn.Retrying, kahn.Suspended, kahn.Failed, kahn.Aborted, kahn.Cancelled, kahn.Skipped,
}

// summary is the progress of the run: "[12/40] 3 running 1 failed".
func (s *state) summary() string {
	done := 0
	for status := kahn.Completed; status <= kahn.Skipped; status++ {
		done += s.counts[status]
	}
	total := "?"
	if s.total > 0 || s.over {
		total = strconv.Itoa(max(s.total, s.ended.TotalSteps))
	}
	text := fmt.Sprintf("[%d/%s]", done, total)
	sep := " "
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
	}
	return text
}

// describe tells why a node ended: "step_error: connection refused", "upstream_failure of fetch".
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

// causeless is errorText without the cause, which the caller writes in front of it: the text of a panic begins with it.
func causeless(cause kahn.CauseKind, err error) string {
	return strings.TrimPrefix(errorText(err), cause.String()+": ")
}

// errorText is the text of a step's error, without the name of the node. A NodeError renders a user's error, bounded, and
// recovers from panics of its Error method.
func errorText(err error) string {
	if own, ok := err.(*kahn.NodeError); ok {
		err = own.Err
	}
	anonymous := &kahn.NodeError{}
	prefix := strings.TrimSuffix(anonymous.Error(), "<nil>")
	anonymous.Err = err
	return strings.TrimPrefix(anonymous.Error(), prefix)
}
