package kahn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Snapshot is the state of a run at one point in time. For every node that is not idle it contains the status, the attempts, the output, the
// errors, the branches that the node took, and its wait. It also contains the position of the event log. [Resume], [Redrive] and [Fork] continue
// from a Snapshot, in any process. It is immutable. It may be resumed any number of times, but two runs that resume from it repeat the same work.
//
// A Snapshot also contains the nodes inside composites, at any depth, but only from the last attempt of each composite. For a loop it contains the
// nodes of the current iteration, and the output of the previous iteration. It contains the nodes of earlier iterations only if they may have to be
// undone. For an expanded node it contains the nodes inside, but not the graph, see [Expand].
//
// A Snapshot that was taken in this process contains the values themselves, and the part of the log that [Run.Events] needs. Its JSON form contains
// the values as the run's [Codec] encodes them. If a value cannot be encoded, the error of MarshalJSON matches [ErrNotEncodable] and contains the
// node's path. The list of a running map is stored too, so the map has the same items when the run continues. A decoded error has the text of the
// original error, and matches the same sentinel errors of this package and of package context.
type Snapshot struct {
	file  snapshotFile
	codec Codec     // used by MarshalJSON; the values of a decoded snapshot are read with the codec of the run that resumes
	log   *eventLog // the log of the run, for a run that continues in this process; nil in a snapshot from a file or a store, or if the run has no log
}

// snapshotVersion is the version of the JSON form. A reader of snapshots accepts only this version and undoVersion.
const snapshotVersion = 1

// undoVersion is the version of a snapshot if the run has undone a node. A run's record in a store then also has this version. Older readers would
// overlook the undone nodes, so they must refuse undoVersion.
const undoVersion = 3

// answersVersion is the version of a run's record in a store if the run has taken a signal with an ID, or has answered a request before an earlier
// request. Older readers would overlook these signals and answers: they would accept a repeated signal as a new one. So they must refuse the
// record.
const answersVersion = 2

// snapshotFile is the JSON form of a snapshot.
type snapshotFile struct {
	Version   int               `json:"version"`
	Graph     string            `json:"graph,omitempty"` // the name of the graph
	Hash      string            `json:"hash"`            // the hash of the plan
	Run       string            `json:"run"`             // the run's id
	Epoch     int               `json:"epoch"`           // 1, plus one for each redrive
	Status    RunStatus         `json:"status"`          // running, if the snapshot was taken before the run ended or was suspended
	Taken     time.Time         `json:"taken"`
	Deadline  time.Time         `json:"deadline,omitzero"`   // the deadline of the whole run; missing in files of older versions
	Estimates *estimates        `json:"estimates,omitempty"` // the durations from the run's History
	Mode      Mode              `json:"mode,omitempty"`
	InWave    bool              `json:"in_wave,omitempty"` // in the mode Waves: whether a wave has started
	LastEvent uint64            `json:"last_event,omitempty"`
	Deltas    map[string]int    `json:"deltas,omitempty"`    // the number of deltas of each node, by path: see deltaCounts
	Cancelled bool              `json:"cancelled,omitempty"` // whether a stop of the run was requested
	Stop      *stopState        `json:"stop,omitempty"`      // the stop of the run
	Asked     *Request          `json:"stop_request,omitempty"`
	Redriven  *Request          `json:"redrive_request,omitempty"`
	Inputs    map[string]stored `json:"inputs,omitempty"`
	Fired     *firedState       `json:"fired,omitempty"`
	Signals   []signalState     `json:"signals,omitempty"`  // signals for gates that the run has not reached yet
	Answered  []answeredState   `json:"answered,omitempty"` // the signals with IDs; in a store they have their own records, unless an older version wrote them
	Failed    []groupFailure    `json:"failed_groups,omitempty"`
	Forked    string            `json:"forked,omitempty"`         // set only in a store, for a fork: the run from which the fork has kept results
	Kept      []keptEpoch       `json:"kept_epochs,omitempty"`    // set only in a store
	Ahead     []aheadState      `json:"answered_ahead,omitempty"` // set only in a store
	Undoing   *undoingState     `json:"undoing,omitempty"`        // nil if nothing was undone
	Labels    map[string]string `json:"labels,omitempty"`         // the labels that steps have set
	Usage     map[string]Usage  `json:"usage,omitempty"`          // the usage of ended attempts, by kind
	Undone    map[string]int    `json:"undone,omitempty"`         // how often each node was undone, by path; in a store, the records of nodes contain some of these counts
	InFlight  *flightState      `json:"in_flight,omitempty"`      // set only by Coordinator.Snapshot
	Nodes     []nodeState       `json:"nodes"`                    // the nodes that are not idle, in the order of declaration

	undone   map[string]int // from a store: the part of Undone that the records of nodes do not have
	counted  map[string]int // from a store: the counts in Deltas that are not in records of nodes
	recorded int            // from a store: the number of entries of Answered that have their own records
}

// undoingState is the state of a run that undoes its nodes.
type undoingState struct {
	Status RunStatus    `json:"status,omitempty"` // the status with which the run was about to end; zero if only nested runs have undone nodes
	Abort  *storedError `json:"abort,omitempty"`  // why the run stopped undoing its nodes
}

// undoState is the state of a node's compensation.
type undoState struct {
	Status   Compensation `json:"status"`
	Attempts int32        `json:"attempts,omitempty"`
	Cut      int32        `json:"cut,omitempty"` // Cut and Crashes count attempts like the fields of the same names in nodeFacts
	Crashes  int32        `json:"crashes,omitempty"`
	AtWork   bool         `json:"at_work,omitempty"` // whether the last attempt is running
	Began    time.Time    `json:"began,omitzero"`
	Ended    time.Time    `json:"ended,omitzero"` // when the undo succeeded or was given up
	Due      time.Time    `json:"due,omitzero"`   // when the next attempt begins, after a backoff
	Err      *storedError `json:"error,omitempty"`
	By       *Request     `json:"by,omitempty"`     // who has undone the node by hand
	Inside   bool         `json:"inside,omitempty"` // of a composite: whether the nodes inside were undone one by one, not the composite as a whole

	fresh  bool // whether a redrive has changed this state
	around bool // of a composite: whether a redrive repeats compensations inside
}

// aheadState is the answer to a request that was answered before an earlier request.
type aheadState = store.TakenRequest

// firedState is the trigger that fired the run, together with its payload.
type firedState struct {
	Trigger string    `json:"trigger"`
	Prune   PruneMode `json:"prune,omitempty"`
	Payload *stored   `json:"payload,omitempty"`
}

// insideState is the state of a composite's nested run, the current one or the last one. In a store the nodes have their own records.
type insideState struct {
	// For a loop: Iteration is the number of the current iteration, from 1, and Previous is the output of the previous iteration. Collected
	// contains the outputs of all earlier iterations, if the loop collects them. Degraded reports whether an earlier iteration handled failures.
	// DegradedAt is the number of the first iteration that handled failures (missing in files of older versions).
	Iteration  int      `json:"iteration,omitempty"`
	Previous   *stored  `json:"previous,omitempty"`
	Collected  []stored `json:"collected,omitempty"`
	Degraded   bool     `json:"degraded,omitempty"`
	DegradedAt int      `json:"degraded_at,omitempty"`
	// Due is the time when the current iteration begins, if the loop pauses before it.
	Due time.Time `json:"due,omitzero"`
	// For a map: Items is the number of items, and AbortRun reports whether an item has returned AbortRun.
	Items    int  `json:"items,omitempty"`
	AbortRun bool `json:"abort_run,omitempty"`

	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	First uint64    `json:"first,omitempty"` // the id of the composite's start event, with which the nested run began
	// StoppedFor is the cause for which the composite was stopped. Stop describes the stop of the nested run. The reason for this stop is
	// StoppedFor or a failure inside the nested run.
	StoppedFor CauseKind     `json:"stopped_for,omitempty"`
	Stop       *stopState    `json:"stop,omitempty"`
	Cancelled  bool          `json:"cancelled,omitempty"`
	Signals    []signalState `json:"signals,omitempty"`
	// Failed lists the groups whose members were stopped in the nested run (see Group.CancelOnFailure). If a loop pauses between two iterations, Failed
	// lists the groups whose members were stopped in the earlier iterations of the loop's current attempt.
	Failed []groupFailure `json:"failed_groups,omitempty"`
	Nodes  []nodeState    `json:"nodes,omitempty"`
	// Undoes reports whether nodes inside may have to be undone. If so, Past contains the earlier iterations of a loop. If the nested run has
	// begun to undo its nodes, Undoing is the status with which it was about to end.
	Undoes  bool          `json:"undoes,omitempty"`
	Past    []insideState `json:"past,omitempty"`
	Undoing RunStatus     `json:"undoing,omitempty"`
	// Whole reports whether the verdict of the nested run is final and is not the failure of a compensation. The verdict is final if the composite
	// has ended. It is also final if the nested run completed but the attempt of the composite failed. Undoing the nodes inside later does not
	// change a final verdict. In files of older versions, Whole is set only for running composites.
	Whole bool `json:"whole,omitempty"`
	// Expanded is the hash of the graph that the step of an expanded node returned. The step is called again after a [Redrive]. When it has
	// returned the graph, Redo determines which nodes of the graph run again.
	Expanded string     `json:"expanded,omitempty"`
	Redo     *redoState `json:"redo,omitempty"`

	plan    *Plan       // the graph's plan; nil if the snapshot comes from a file
	goesOn  bool        // whether the nested run of an expanded node continues without a call of the step
	apart   int         // the number of elements of Collected that have their own records in the store
	dropped []nodeState // the nodes that a redrive has removed
	redone  bool        // set by a redrive if the composite had ended, or if a node inside it runs again
	// deeper contains signals for nodes inside the composites of an expanded graph, while this graph is not known. Each signal names its node by
	// the path in that graph. In a store, Signals contains these signals too, since the nested runs that would store them do not exist yet.
	deeper []signalState
}

type stopState struct {
	Kind   CauseKind    `json:"kind"`
	Origin string       `json:"origin,omitempty"`
	Drain  bool         `json:"drain,omitempty"` // whether running attempts may finish
	Err    *storedError `json:"error,omitempty"`
	// Later contains the stops that followed the first one, sorted by kind: at most one of each kind, and none of the first stop's kind. A node
	// that was still running at a later stop may have the cause of that stop.
	Later []laterStop `json:"later,omitempty"`
}

type laterStop struct {
	Kind CauseKind    `json:"kind"`
	Err  *storedError `json:"error,omitempty"`
}

type signalState struct {
	Node    string `json:"node"`
	Value   stored `json:"value"`
	Actor   string `json:"actor,omitempty"`
	Comment string `json:"comment,omitempty"`
	ID      string `json:"id,omitempty"`

	given bool // whether the options of the continuing run contain the signal; then it is too late if the deadline of the wait has passed
}

// nodeState is the state of a node in a snapshot.
type nodeState struct {
	ID string `json:"id"`
	machine.Facts
	nodeFacts
	// Event is the id of the last event when the record was written. It is set only in a store.
	Event uint64 `json:"event,omitempty"`
	Hash  string `json:"hash,omitempty"` // the hash of the node, its in-edges and the nodes inside it; "" for nodes in composites
	// Origin is the node that caused a stop or a supersession.
	Origin string   `json:"origin,omitempty"`
	Labels []string `json:"labels,omitempty"` // the branches taken
	// Asked is for a condition: it contains the failed nodes whose status or error the condition's test has read. If the condition follows no
	// failure, Asked is nil, not empty. It is also nil in files of older versions.
	Asked []string `json:"asked,omitzero"`
	// Epoch is set if the run was redriven with KeepDescendants, RepeatCompensations or CompensatedByHand. It is the epoch in which the node has
	// ended or will end.
	Epoch    int       `json:"epoch,omitempty"`
	Attempts int32     `json:"attempts,omitempty"` // the number of attempts, as in events
	Due      time.Time `json:"due,omitzero"`       // when the backoff of the node ends
	// Refused is the reason why the store refused the output of the last attempt. The node will fail.
	Refused *storedError `json:"refused,omitempty"`
	Entries int32        `json:"entries,omitempty"` // the number of re-entries, including a re-entry that has not started yet
	// Start and End are the times in the node's record. They are wall clock times, so that another process can use them.
	Start    time.Time `json:"start,omitzero"`
	End      time.Time `json:"end,omitzero"`
	Value    *stored   `json:"value,omitempty"`
	Fallback bool      `json:"fallback,omitempty"`
	Latest   uint64    `json:"latest,omitempty"` // the id of the node's last event, not counting deltas and logs
	Deltas   int       `json:"deltas,omitempty"` // in a store: the number of deltas so far, in all attempts
	// Collected is the number of the iteration whose collected output is the record's Value. It is set only in a store, in a record that does not
	// describe a node.
	Collected int `json:"collected,omitempty"`
	// Taken is a signal with an ID. It is set only in a store, in a record that contains this signal and does not describe a node.
	Taken *answeredState `json:"taken,omitempty"`

	Err      *storedError      `json:"error,omitempty"`
	LastErr  *storedError      `json:"last_error,omitempty"`
	GuardErr *storedError      `json:"guard_error,omitempty"`
	StopErr  *storedError      `json:"stop_error,omitempty"`
	Errs     []*storedError    `json:"attempt_errors,omitempty"`
	Retried  []retriedState    `json:"retried,omitempty"`      // the attempts whose errors are in Errs; missing in files of older versions
	Began    time.Time         `json:"attempt_start,omitzero"` // when the last attempt began, if it was not the first
	Merged   map[string]stored `json:"merged,omitempty"`
	Wait     *waitState        `json:"wait,omitempty"`
	Awaited  []awaitedRun      `json:"awaited,omitempty"`
	Saved    *stored           `json:"saved,omitempty"`
	Signal   *stored           `json:"signal,omitempty"`
	// Signalled reports whether the node has received a signal. Signal does not show this if the signal's value is null, because JSON omits null.
	Signalled bool   `json:"signalled,omitempty"`
	Actor     string `json:"actor,omitempty"` // Actor, Comment and SignalID belong to the signal
	Comment   string `json:"comment,omitempty"`
	SignalID  string `json:"signal_id,omitempty"`

	// The fields up to Listed are for composites. TimedOut says which timeout of the current attempt has passed: 1 means Node.Timeout, and 2 means
	// Node.OverallTimeout. Timeout is the length of this timeout.
	TimedOut timeoutScope  `json:"timed_out,omitempty"`
	Timeout  time.Duration `json:"timeout,omitempty"`
	List     *stored       `json:"list,omitempty"` // the list of a map; missing for ended maps in files of older versions
	Inside   *insideState  `json:"inside,omitempty"`
	Former   *formerState  `json:"former,omitempty"`
	// Listed reports whether the record's Value is the list of a map. It is set only in a store, in a record that does not describe a node.
	Listed bool `json:"listed,omitempty"`
	// Undo is the state of the node's compensation. In a store it has its own record.
	Undo *undoState `json:"undo,omitempty"`

	reopened bool                  // whether a redrive continues inside the composite although it had ended
	apart    bool                  // whether the List has its own record in the store
	lost     bool                  // for an expanded node whose graph is not known: whether it stays unknown in this life, so that the nodes inside are not undone
	stored   map[string]store.Node // for an expanded node with a Redo: the run's nodes in the store
}

// retriedState describes an attempt that was retried, except for its error.
type retriedState struct {
	Number int32         `json:"attempt,omitempty"`
	Start  time.Time     `json:"start,omitzero"`
	End    time.Time     `json:"end,omitzero"`
	Delay  time.Duration `json:"delay,omitempty"`
}

type waitState struct {
	Token    string    `json:"token"`
	Info     stored    `json:"info"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline,omitzero"`
	Run      string    `json:"run,omitempty"` // the awaited run
	Choices  []string  `json:"choices,omitempty"`
}

// awaitedRun is the answer to a call of AwaitRun by a node.
type awaitedRun struct {
	store.Ended
	Attempt int32 `json:"attempt"` // the attempt of the node
}

// The type `stored` is a value of a snapshot. A snapshot that was taken in this process has the value itself, and a snapshot from a file has the
// encoded value.
type stored struct {
	value any
	raw   json.RawMessage
}

func storedValue(v any) *stored { return &stored{value: v} }

// MarshalJSON and UnmarshalJSON only copy the encoded value. The functions of encoder and decoder call the codec.
func (v stored) MarshalJSON() ([]byte, error) {
	if v.raw == nil {
		return nil, fmt.Errorf("%w: no codec has encoded it", ErrNotEncodable)
	}
	return v.raw, nil
}

func (v *stored) UnmarshalJSON(data []byte) error {
	v.raw = append(json.RawMessage{}, data...)
	return nil
}

// storedError is the text of an error, with the sentinel errors that it matches.
type storedError struct {
	Text    string   `json:"text"`
	Matches []string `json:"matches,omitempty"`
	// Kept contains errors of other packages in encoded form, see foreign.KeepErrors.
	Kept map[string]json.RawMessage `json:"kept,omitempty"`

	err error // nil if the error comes from a file
}

// storeError returns an error as a storedError for a snapshot. It does not call Error, which is user code; Error is called when the snapshot is
// encoded.
func storeError(err error) *storedError {
	if err == nil {
		return nil
	}
	return &storedError{err: err}
}

// restoredError is an error that was read from a file.
type restoredError struct {
	text    string
	matches []error
}

func (e *restoredError) Error() string   { return e.text }
func (e *restoredError) Unwrap() []error { return e.matches }

func (e *storedError) restore() error {
	switch {
	case e == nil:
		return nil
	case e.err != nil:
		return e.err
	}
	r := &restoredError{text: e.Text}
	for _, name := range e.Matches {
		if sentinel := sentinels[name]; sentinel != nil {
			r.matches = append(r.matches, sentinel)
		}
	}
	r.matches = append(r.matches, foreign.ReadKept(e.Kept)...)
	if len(r.matches) == 1 && r.matches[0].Error() == r.text {
		return r.matches[0] // the error was the sentinel error itself
	}
	return r
}

// MarshalJSON implements json.Marshaler.
func (s *Snapshot) MarshalJSON() ([]byte, error) {
	s = orZero(s)
	file, err := s.file.encoded(s.codec)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file)
}

// UnmarshalJSON implements json.Unmarshaler. The error matches [ErrBadValue] if data is not a snapshot of a known version. The values stay encoded;
// when a run resumes from the snapshot, the codec of that run decodes them.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	if s == nil {
		return fmt.Errorf("%w: snapshot: decoded to a nil Snapshot", ErrBadValue)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("%w: snapshot: %w", ErrBadValue, err)
	}
	if err := checkVersion(head.Version, snapshotVersion, undoVersion); err != nil {
		return fmt.Errorf("%w: snapshot: %w", ErrBadValue, err)
	}
	var file snapshotFile
	if err := json.Unmarshal(data, &file); err != nil {
		return fmt.Errorf("%w: snapshot: %w", ErrBadValue, err)
	}
	s.file, s.codec = file, nil
	return nil
}

// checkVersion returns an error if the format version is not among the known versions.
func checkVersion(version int, known ...int) error {
	if !slices.Contains(known, version) {
		return fmt.Errorf("version %d is unknown: this version of kahn reads the versions %v", version, known)
	}
	return nil
}

// RunID returns the id of the run.
func (s *Snapshot) RunID() string { return orZero(s).file.Run }

// Epoch returns the epoch of the run: 1, plus one for each [Redrive].
func (s *Snapshot) Epoch() int { return orZero(s).file.Epoch }

// Status returns the status of the run when the snapshot was taken. A snapshot with the status [RunRunning] was taken before the run ended or was
// suspended. A run that resumes from this snapshot continues as after a crash: it repeats the attempts that were running.
func (s *Snapshot) Status() RunStatus { return orZero(s).file.Status }

// StopRequest returns the first request to stop the run, like Result.StopRequest, or the zero Request if there was none.
func (s *Snapshot) StopRequest() Request { return requestOf(orZero(s).file.Asked) }

// Inputs returns the root inputs of the run. A [Redrive] repeats nodes with these inputs. If the snapshot comes from a file or a store, the values
// are json.RawMessage, as the run's [Codec] has encoded them.
func (s *Snapshot) Inputs() map[string]any {
	inputs := map[string]any{}
	for name, v := range orZero(s).file.Inputs {
		inputs[name] = v.shown()
	}
	return inputs
}

// Waiting returns the nodes that wait for a signal, in the order of declaration: each node by its id, or by its path if it is inside a composite.
func (s *Snapshot) Waiting() []string {
	return (&insideState{Nodes: orZero(s).file.Nodes}).waiting(nil, "", true)
}

// The method `waiting` appends the paths of the nodes that wait. If `unanswered` is set, the method omits a node inside an expanded node if the
// node's signal has already arrived. The run delivers this signal when the graph is known.
func (in *insideState) waiting(paths []string, prefix string, unanswered bool) []string {
	if in.Redo != nil && !in.Redo.Open {
		return paths // the nodes that waited inside begin again
	}
	answered := map[string]bool{}
	for i := range in.Signals {
		answered[in.Signals[i].Node] = unanswered
	}
	for i := range in.Nodes {
		switch n := &in.Nodes[i]; {
		case n.Status == Suspended && answered[n.ID]:
		case n.Status == Suspended:
			paths = append(paths, prefix+n.ID)
		case n.Inside != nil && !n.Status.Terminal():
			paths = n.Inside.waiting(paths, n.prefixInside(prefix), unanswered)
		}
	}
	return paths
}

// eachValue calls f for every value of the file, with the path of the node to which the value belongs, see visitor.
func (file *snapshotFile) eachValue(f func(node string, v *stored) error) error {
	return errors.Join(file.eachOfRun(f), eachOfNodes(file.Nodes, f))
}

// eachOfRun calls f for every value of the file, except the values in the states of nodes.
func (file *snapshotFile) eachOfRun(f func(node string, v *stored) error) error {
	return collecting(f, func(visit visitor) {
		visit.inputs(file.Inputs)
		if file.Fired != nil && file.Fired.Payload != nil {
			visit(file.Fired.Trigger, file.Fired.Payload)
		}
		visit.signals(file.Signals, "")
		if file.InFlight != nil {
			for i := range file.InFlight.Runs {
				if of := strings.TrimRight(file.InFlight.Runs[i].Run, "/["); of != "" {
					visit.all(of, file.InFlight.Runs[i].Inputs)
				} else {
					visit.inputs(file.InFlight.Runs[i].Inputs)
				}
			}
		}
	})
}

// eachOfNodes calls f for every value of the given nodes.
func eachOfNodes(nodes []nodeState, f func(node string, v *stored) error) error {
	return collecting(f, func(visit visitor) {
		for i := range nodes {
			visit.node(&nodes[i], "")
		}
	})
}

// The function `collecting` calls walk with a visitor that calls f, and returns all errors of f.
func collecting(f func(node string, v *stored) error, walk func(visitor)) error {
	var errs []error
	walk(func(node string, v *stored) {
		if err := f(node, v); err != nil {
			errs = append(errs, err)
		}
	})
	return errors.Join(errs...)
}

// visitor is called with each value of a snapshot, and with the path of the node to which the value belongs. For a root input of the run, the path
// is inputMark and the name of the input.
type visitor func(path string, v *stored)

func (visit visitor) all(path string, m map[string]stored) {
	if len(m) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v := m[name]
		visit(path, &v)
		m[name] = v
	}
}

// inputMark begins the path of each root input, see visitor. It is not UTF-8, so no id begins with it.
const inputMark = "\xff"

func (visit visitor) inputs(m map[string]stored) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v := m[name]
		visit(inputMark+name, &v)
		m[name] = v
	}
}

// ownerText names the owner of a value in the text of an error.
func ownerText(path string) string {
	if name, is := strings.CutPrefix(path, inputMark); is {
		return "the run's input " + quoteID(name)
	}
	return "node " + quoteID(path)
}

func (visit visitor) signals(list []signalState, prefix string) {
	for i := range list {
		visit(prefix+list[i].Node, &list[i].Value)
	}
}

func (visit visitor) node(n *nodeState, prefix string) {
	path := prefix + n.ID
	for _, v := range []*stored{n.Value, n.Saved, n.Signal, n.List} {
		if v != nil {
			visit(path, v)
		}
	}
	visit.all(path, n.Merged)
	if n.Wait != nil {
		visit(path, &n.Wait.Info)
	}
	if n.Former != nil && n.Former.Inside != nil {
		visit.node(n.Former.of(n), prefix)
	}
	in := n.Inside
	if in == nil {
		return
	}
	if in.Previous != nil {
		visit(path, in.Previous)
	}
	for i := range in.Collected {
		visit(path, &in.Collected[i])
	}
	outside := prefix
	prefix = n.prefixInside(prefix)
	visit.signals(in.Signals, prefix)
	for i := range in.Nodes {
		visit.node(&in.Nodes[i], prefix)
	}
	for i := range in.Past {
		visit.past(n, &in.Past[i], outside)
	}
}

// The method `past` visits the values of an earlier iteration.
func (visit visitor) past(n *nodeState, in *insideState, prefix string) {
	of := nodeState{ID: n.ID, Inside: in}
	visit.node(&of, prefix)
}

// prefixInside returns the prefix of the paths of the nodes inside a composite. The parameter `prefix` is the prefix of the composite's own path.
func (n *nodeState) prefixInside(prefix string) string {
	switch in := n.Inside; {
	case in.Items > 0:
		return prefix // the id of an item already contains the id of the map
	case in.Iteration > 0:
		return fmt.Sprintf("%s%s#%d/", prefix, n.ID, in.Iteration)
	}
	return prefix + n.ID + "/"
}

// clone returns a copy of the file. If eachValue or renderErrors changes the copy, the original does not change.
func (file snapshotFile) clone() snapshotFile {
	file.Inputs = maps.Clone(file.Inputs)
	file.Stop, file.Undoing = file.Stop.clone(), clonePtr(file.Undoing)
	if file.Fired = clonePtr(file.Fired); file.Fired != nil {
		file.Fired.Payload = clonePtr(file.Fired.Payload)
	}
	file.Signals, file.InFlight = slices.Clone(file.Signals), file.InFlight.clone()
	file.Nodes = cloneNodes(file.Nodes)
	return file
}

func cloneNodes(nodes []nodeState) []nodeState {
	nodes = append(make([]nodeState, 0, len(nodes)), nodes...) // never nil
	for i := range nodes {
		n := &nodes[i]
		n.Value, n.Saved, n.Signal, n.List = clonePtr(n.Value), clonePtr(n.Saved), clonePtr(n.Signal), clonePtr(n.List)
		n.Merged, n.Wait, n.Errs, n.Awaited = maps.Clone(n.Merged), clonePtr(n.Wait), slices.Clone(n.Errs), slices.Clone(n.Awaited)
		n.Inside, n.Former, n.Undo = n.Inside.clone(), n.Former.clone(), clonePtr(n.Undo)
	}
	return nodes
}

func (in *insideState) clone() *insideState {
	if in = clonePtr(in); in != nil {
		in.Previous, in.Collected, in.Stop, in.Signals = clonePtr(in.Previous), slices.Clone(in.Collected), in.Stop.clone(), slices.Clone(in.Signals)
		in.deeper = slices.Clone(in.deeper)
		in.Nodes, in.Past = cloneNodes(in.Nodes), slices.Clone(in.Past)
		for i := range in.Past {
			in.Past[i] = *in.Past[i].clone()
		}
	}
	return in
}

// orZero returns p, or a pointer to a zero value if p is nil.
func orZero[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// The method `encoded` returns the file with all values encoded and all errors as text.
func (file snapshotFile) encoded(codec Codec) (snapshotFile, error) {
	file = file.clone()
	err := file.eachValue(encoder(codec))
	file.Stop.render()
	file.InFlight.render()
	if u := file.Undoing; u != nil {
		u.Abort = u.Abort.text()
	}
	for i := range file.Nodes {
		file.Nodes[i].renderErrors()
	}
	return file, err
}

// encoder returns a function that encodes the values of a snapshot.
func encoder(codec Codec) func(node string, v *stored) error {
	return func(node string, v *stored) (err error) {
		if v.raw != nil {
			return nil
		}
		if v.raw, err = encodeValue(codec, v.value); err != nil {
			return fmt.Errorf("snapshot: %s: %w", ownerText(node), err)
		}
		return nil
	}
}

func (s *stopState) clone() *stopState {
	if s = clonePtr(s); s != nil {
		s.Later = slices.Clone(s.Later)
	}
	return s
}

func (s *stopState) render() {
	if s != nil {
		s.Err = s.Err.text()
		for i := range s.Later {
			s.Later[i].Err = s.Later[i].Err.text()
		}
	}
}

// renderErrors replaces the errors of a node by texts.
func (n *nodeState) renderErrors() {
	n.Err, n.LastErr, n.GuardErr, n.StopErr, n.Refused = n.Err.text(), n.LastErr.text(), n.GuardErr.text(), n.StopErr.text(), n.Refused.text()
	for i, e := range n.Errs {
		n.Errs[i] = e.text()
	}
	if n.Undo != nil {
		n.Undo.Err = n.Undo.Err.text()
	}
	if n.Inside != nil {
		n.Inside.renderErrors()
	}
	if n.Former != nil && n.Former.Inside != nil {
		n.Former.Inside.renderErrors()
	}
}

func (in *insideState) renderErrors() {
	in.Stop.render()
	for i := range in.Nodes {
		in.Nodes[i].renderErrors()
	}
	for i := range in.Past {
		in.Past[i].renderErrors()
	}
}

// The method `text` returns e with the text of its error, for a file.
func (e *storedError) text() *storedError {
	if e == nil || e.err == nil {
		return e
	}
	return &storedError{Text: errorText(e.err), Matches: sentinelsOf(e.err), Kept: foreign.WriteKept(e.err)}
}

// decode decodes the values of a file for a run that resumes. It leaves the values of nodes encoded, since a node that runs again does not need its
// values.
func (s *Snapshot) decode(codec Codec) (snapshotFile, error) {
	file := s.file.clone()
	return file, file.eachOfRun(decoder(codec))
}

// decodeNodes decodes the values of nodes.
func decodeNodes(codec Codec, nodes []nodeState) error { return eachOfNodes(nodes, decoder(codec)) }

// decoder returns a function that decodes the values of a snapshot.
func decoder(codec Codec) func(node string, v *stored) error {
	return func(node string, v *stored) (err error) {
		if v.raw == nil {
			return nil
		}
		if v.value, err = decodeValue(codec, v.raw); err != nil {
			return fmt.Errorf("snapshot: %s: %w", ownerText(node), err)
		}
		return nil
	}
}

// Result makes the Result of an ended run from the run's snapshot, in any process. The plan must be the run's plan, see [Plan.Hash]; otherwise the
// error matches [ErrGraphChanged], unless [AllowGraphChange] is given. The options [Encoding] and [StatusRule] must be as in the run. Result uses
// no other options. If the run failed or was cancelled, Result returns the same error as [Execute]. The error matches [ErrNotEnded] if the run has
// not ended. It matches [ErrBadValue] if a changed graph has a node that did not end in the run: Result calls no step, so this node cannot end.
//
// The Result is the same as from Execute, but without Warnings. Its Start is the beginning of the first attempt, and its Duration is the time from
// Start to the end of the last attempt. If the snapshot comes from a file, expanded nodes have no nested Results.
func (s *Snapshot) Result(p *Plan, opts ...Option) (*Result, error) {
	switch {
	case !p.isCompiled():
		return nil, ErrNoGraph
	case !s.Status().Terminal():
		return nil, fmt.Errorf("%w: run %s is %v", ErrNotEnded, quoteID(s.RunID()), s.Status())
	}
	r, err := reader(p, s.RunID(), opts)
	if err != nil {
		return nil, err
	}
	r.cfg.from = s
	if err := r.fire(); err != nil {
		return nil, err
	}
	x, err := r.restoration(nil)
	if err != nil {
		return nil, err
	}
	return r.readEnded(x, s.Status())
}

// reader makes a Run that is restored only for reading and performs nothing.
func reader(p *Plan, id string, opts []Option) (*Run, error) {
	given, err := configure(opts, false)
	if err != nil {
		return nil, err
	}
	cfg := byDefault[0]
	cfg.codec, cfg.statusRule, cfg.allowChange, cfg.runID, cfg.reads = given.codec, given.statusRule, given.allowChange, id, true
	r := newRun(p, &cfg)
	r.stepless, r.ctx, r.base, r.unheld = true, context.Background(), context.Background(), true
	return r, nil
}

// readEnded restores a run that has ended, and returns its Result.
func (r *Run) readEnded(x *restoration, status RunStatus) (*Result, error) {
	if !x.ended() { // a node that has not ended could end only by a call of its step, but the reader calls no step
		return nil, fmt.Errorf("%w: run %s is %v, and some nodes of the graph have not ended in it", ErrBadValue, quoteID(r.ID()), status)
	}
	r.cfg.mode = x.file.Mode
	r.prepare(x)
	r.open(x, nil, 0)
	r.st.Lock()
	r.verdict.status = status // the run keeps its stored status, even if the options contain another StatusRule
	r.began, r.ended = math.MaxInt64, math.MinInt64
	for ref := range r.records {
		if rec := &r.records[ref]; rec.attempts > 0 {
			r.began, r.ended = min(r.began, rec.start), max(r.ended, rec.end)
		}
	}
	if r.began > r.ended { // there was no attempt
		r.began, r.ended = 0, 0
	}
	r.st.Unlock()
	return r.Wait()
}

// ended reports whether every node of the plan has ended.
func (x *restoration) ended() bool {
	h := x.held
	for ref := range machine.Ref(len(h.plan.names)) {
		i, known := h.at[ref]
		if !known || !h.nodes[i].Status.Terminal() {
			return false
		}
	}
	return true
}

// The method `state` returns the state of the compensation, for a snapshot or a store.
func (u *undo) state() *undoState {
	r := u.run
	s := &undoState{
		Status: u.status, Attempts: u.attempts, Cut: u.cut, Crashes: u.crashes, AtWork: u.step != nil, Began: r.timeAt(u.began), Err: storeError(u.err), By: u.by,
	}
	s.Inside = u.by == nil && u.own() == nil
	switch {
	case u.status >= CompensationDone:
		s.Ended = r.timeAt(u.ended)
	case u.due != 0 && u.status == CompensationRunning:
		s.Due = r.timeAt(u.due)
	}
	return s
}

// The method `shown` returns the state of the compensation, for a Result.
func (s *undoState) shown(certain bool) *Undoing {
	return &Undoing{Attempts: int(s.Attempts), Certain: certain, Began: s.Began, Ended: s.Ended, By: clonePtr(s.By)}
}

// The method `record` returns the store's record of a node's compensation. It replaces the error by its text.
func (s *undoState) record(event uint64) nodeState {
	n := nodeState{Facts: machine.Facts{Status: Running}, Start: s.Began, Event: event, Undo: s}
	switch s.Err = s.Err.text(); {
	case s.Status == CompensationDone && s.Inside:
		n.Status = Skipped
	case s.Status == CompensationDone:
		n.Status = Completed
	case s.Status == CompensationFailed:
		n.Status = Failed
	}
	return n
}

// restoreUndoing restores the state of the run's undoing, before the run's nodes are restored.
func (r *Run) restoreUndoing(file *snapshotFile) {
	if len(file.Undone) > 0 {
		r.undoes().times = maps.Clone(file.Undone)
	}
	if file.Asked != nil || file.Cancelled || file.Stop != nil && file.Stop.Kind == CauseAbortAll {
		r.requests = max(r.requests, 1)
	}
	if u := file.Undoing; u != nil {
		x := r.undoes()
		if x.status = u.Status; u.Abort != nil {
			x.abort = &stopCause{u.Abort.restore(), context.Canceled}
		}
	}
}

// restoreUndo restores the compensation of a node.
func (r *Run) restoreUndo(ref machine.Ref, s *undoState) {
	if s.around && r.ownUndo(ref) == nil {
		return // the state only summarizes the compensations inside the composite
	}
	u := &undo{
		run: r, ref: ref, status: s.Status, stored: s.Status, attempts: s.Attempts, cut: min(s.Cut, s.Attempts), crashes: s.Crashes, err: s.Err.restore(), began: int64(s.Began.Sub(r.start)),
		before: r.timesUndone(r.path(ref)),
	}
	if !s.Ended.IsZero() {
		u.ended = int64(s.Ended.Sub(r.start))
	}
	if u.by = s.By; !s.Due.IsZero() {
		u.due = int64(s.Due.Sub(r.start))
	}
	if s.fresh {
		root := r.outermost().undoes()
		root.fresh = append(root.fresh, u)
	}
	switch r.undoes().nodes[ref] = u; u.status {
	case CompensationFailed:
		r.reportUndone(r.path(ref), u.err, s.Ended)
	case CompensationRunning:
		u.resumed, r.undo.delayed = true, append(r.undo.delayed, u)
		r.outermost().undoes().busy++
	}
}
