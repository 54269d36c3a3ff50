package kahn

import (
	"encoding/json"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
)

// record is the data that a run keeps about every node. Only the holder of the run's lock writes it. Once the node is terminal, the record changes
// only if a store refuses or loses the node's end. So a terminal node's record may be read without the lock, like the node's word in the State. But
// in a durable run, a guard or a merge must take the lock to read the record of a predecessor, since the store may still refuse the predecessor's
// end.
type record struct {
	first    Step  // the first attempt; later attempts and fallbacks have their own Steps
	value    any   // the output of a completed node, or the error of a failed node
	start    int64 // start of the first attempt, in ns since the run's start
	end      int64 // end of the last attempt
	attempts int32
	active   activeStep // which Step belongs to the running attempt, if any; this is not a pointer, since the garbage collector would scan a pointer
	fallback bool
	noRetry  event.NoRetry // for a node whose attempt failed: why it was not retried
	returned bool          // whether the running attempt's step has returned, but the end of the attempt waits for room in the store's outbox
}

type activeStep uint8

const (
	activeNone activeStep = iota
	activeFirst
	activeLater // the Step in the node's extra
)

// The method `current` returns the Step of the node's running attempt, or nil.
func (r *Run) current(ref machine.Ref) *Step {
	rec := &r.records[ref]
	if rec.active == activeFirst {
		return &rec.first
	}
	return r.later(ref)
}

func (r *Run) later(ref machine.Ref) *Step {
	if r.records[ref].active == activeLater {
		return r.extras[ref].later
	}
	return nil
}

// activate makes step the Step of its node's running attempt.
func (r *Run) activate(step *Step) {
	rec := &r.records[step.ref]
	if rec.active = activeFirst; step != &rec.first {
		rec.active = activeLater
		r.extra(step.ref).later = step
	}
}

// errorOf returns the error of a terminal node that failed by itself, or nil for other nodes.
func (rec *record) errorOf() error {
	err, _ := rec.value.(error)
	return err
}

// The type `extra` is an additional record that only composites and few other nodes need.
type extra struct {
	comp  *composite // for a composite that has begun, and for an expanded node
	items *items     // for a map: its items, which the check has made
	*extraMore
}

// extraMore contains the fields of an extra that few composites set, so that the other composites are smaller. A node that has set none of them
// shares notMore, which is never written to, because writers call Run.extra or extra.own first. A life of a run is the time in which one process
// performs the run.
type extraMore struct {
	nodeFacts
	later    *Step          // the last Step of the node, if this is not the field `first` of its record: the Step of a later attempt or of a fallback
	errs     []attemptError // the errors of the retried attempts, in order
	began    int64          // when the node last began, in ns since the run's start, if it has begun more than once; otherwise 0
	ready    int64          // when the node became ready again, after a backoff or a signal
	lastErr  error          // the error of the last attempt that was retried, replaced by a fallback, or stopped
	guardErr error          // why the guard could not decide
	asked    []machine.Ref  // for a condition: the failed nodes whose status or error the condition's test has read; nil if not recorded
	merged   map[string]any // the merged parameters that the check has computed
	stop     error          // the cause of the stop, if only this node was stopped
	timedOut timeoutScope   // the timeout that has passed in the current attempt
	timeout  time.Duration  // the length of this timeout
	overdue  bool           // whether the OverallTimeout passed only after the attempt's step had returned
	behind   bool           // whether an attempt of a node in the composite was abandoned
	deltas   int            // the number of deltas emitted so far, in all attempts
	counted  uint64         // the number of the last transaction that records how many deltas the node has emitted
	kept     *nodeState     // for a node that was expanded in an earlier life: its state in the snapshot, until its graph is known
	answers  int            // the number of signals put into the field `kept`
	former   *formerState   // for an expanded node whose last attempt ended in an earlier life: the nested run of this attempt, if its graph is not known

	wait      *Wait             // for a suspended node: its wait
	answered  *Wait             // the wait that ended last
	saved     any               // the state that the step gave to Suspend or Expand
	decision  *Decision         // the signal that answered the node; nil if there was none
	texts     *texts            // the encoded values in the fields wait, saved and decision; nil if there are none
	reentries int32             // how often the step was entered again in the same attempt
	due       int64             // for a node that backs off: when it is ready, in ns since the run's start
	refused   error             // why the store refused the output of the last attempt; nil if it accepted the output
	reads     []string          // for a memoized node: the inputs that its step has read, see Memo
	labels    map[string]string // set by the current attempt; nil if it has set none
	using     Usage             // reported by the current attempt; nil if it has reported nothing
	left      bool              // whether the current attempt was interrupted because the run is being left
	awaited   []awaitedRun      // the answers to AwaitRun

	overall, grace, backoff, gate *alarm // nil unless armed
}

// nodeFacts contains facts about a node that the State lacks, in the form in which a snapshot stores them. A new fact needs a field here and a line
// in nodeWriter.
type nodeFacts struct {
	Message   string     `json:"message,omitempty"`   // the message of a step that skipped itself
	Key       string     `json:"key,omitempty"`       // the node's key, if it comes from a value, see Node.KeyFrom
	Answer    string     `json:"answer,omitempty"`    // the answer of a condition, if it differs from the labels of the branches taken, see conclusion
	Memoized  bool       `json:"memoized,omitempty"`  // whether the output comes from an earlier run
	Hit       *event.Hit `json:"hit,omitempty"`       // the earlier run; nil in a file of an older version
	Harmless  int32      `json:"harmless,omitempty"`  // the number of attempts that certainly had no effect
	Inherited bool       `json:"inherited,omitempty"` // whether the node ended in the run from which this run was forked; then only that earlier run undoes the node
	Abandoned bool       `json:"abandoned,omitempty"`
	Sleeps    bool       `json:"sleeps,omitempty"` // for a node that backs off: whether its step has returned SuspendUntil
	Tokens    [2]int     `json:"tokens,omitzero"`  // in files of older versions: the numbers of consumed input and output tokens
	Usage     *spent     `json:"usage,omitempty"`  // the consumption of all ended attempts
	// Cut and Crashes are for a node that has not ended. Cut is the number of attempts that were interrupted because the run was left. These attempts do
	// not count towards MaxAttempts. Crashes says how many of the latest attempts, in a row, ended because the process died.
	Cut     int32 `json:"cut,omitempty"`
	Crashes int32 `json:"crashes,omitempty"`
}

// attemptError is the error of a retried attempt. An attempt that a crash interrupted has no attemptError.
type attemptError struct {
	attempt    int32 // the attempt's number within this life; 0 for an attempt of an earlier life
	number     int32 // the attempt's number over all lives; 0 if a file of an older version lacks it
	err        error
	start, end int64 // ns since the run's start; 0 if a file of an older version lacks them
	delay      time.Duration
}

// The method `extra` returns the extra of a node for writing. If there is none, it creates the extra.
func (r *Run) extra(ref machine.Ref) *extra {
	x := r.extras[ref]
	if x == nil {
		y := &struct {
			extra
			more extraMore
		}{}
		x = &y.extra
		x.extraMore = &y.more
		r.keepExtra(ref, x)
	}
	x.own()
	return x
}

// extraInside returns the extra of a composite, for writing only the fields outside extraMore. If there is none, it creates the extra.
func (r *Run) extraInside(ref machine.Ref) *extra {
	x := r.extras[ref]
	if x == nil {
		x = &extra{extraMore: &notMore}
		r.keepExtra(ref, x)
	}
	return x
}

func (r *Run) keepExtra(ref machine.Ref, x *extra) {
	if r.extras == nil {
		r.extras = map[machine.Ref]*extra{}
	}
	r.extras[ref] = x
}

// The method `own` returns the fields of extraMore for writing.
func (x *extra) own() *extraMore {
	if x.extraMore == &notMore {
		x.extraMore = &extraMore{}
	}
	return x.extraMore
}

var notMore extraMore

// attemptStart returns the time when the current or last attempt of a node began.
func (r *Run) attemptStart(ref machine.Ref, x *extra) int64 {
	if x != nil && x.began != 0 {
		return x.began
	}
	return r.records[ref].start
}

// attemptOf returns the number of an attempt as users count attempts: an attempt that is entered again, for example after a wait, keeps its number.
func (r *Run) attemptOf(ref machine.Ref, started int32) int32 {
	if x := r.extras[ref]; x != nil {
		return started - x.reentries
	}
	return started
}

// texts contains encoded values of a node: the info of its wait, its saved state and the signal. Each is nil until the codec has encoded the
// value.
type texts struct{ info, saved, signal json.RawMessage }

// The method `known` returns *t, or empty texts if t is nil.
func (t *texts) known() texts {
	if t == nil {
		return texts{}
	}
	return *t
}
