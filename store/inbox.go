package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Inbox is a [Store] that takes requests for runs from any process: signals, cancels and redrives. The process that performs a run takes the run's
// requests in the order of their posts. One transaction stores the effect of a request and the answer to it, see [Commit].Taken. So a crash neither
// loses a request nor applies it twice. [Memory], store/sqlite and store/postgres implement it; package storetest tests it.
//
// A request waits until a transaction answers it. A signal keeps waiting while its value cannot be read. The run performs later requests, but stores
// their answers together with the signal's answer; until then their Status is RequestWaiting, too. A transaction that ends the run refuses all
// requests that still wait. If a run has begun and a request waits, the run is due, whatever the WakeAt of its last commit: Acquire, Load and List
// return a WakeAt that is not later than now. If the run has not begun, only a KindCancel makes it due; a signal does not make it begin before
// [NewRun].NotBefore. If a new run replaces the run, see [Replace], the store drops the old run's requests. A run that has ended takes redrives and
// no other requests; a run that has not ended refuses redrives. While a redrive waits, the run is due, and Prune does not remove the run. A store
// may limit the number and the sizes of requests, but this package does not. The store keeps requests until Prune removes the run.
type Inbox interface {
	Store
	// Post stores a request for a run, whether or not a process performs the run. The result "posted" is false if the same request was posted under
	// this id before, even if it was answered. The error matches ErrRequestConflict if the run has another request with this id, and ErrUnknownRun
	// if the run is not stored. It matches ErrNotEnded for a redrive of a run that has not ended, ErrEnded for any other request for a run that has
	// ended, and [machine.ErrBadValue] if Request.Check refuses the request.
	Post(ctx context.Context, run string, r Request) (posted bool, err error)
	// LoadRequests returns at most "limit" requests of a run with numbers above "after", in order. Answered requests are among them. The limit is
	// from 1 to MaxPage. The error matches ErrUnknownRun if the run is not stored.
	LoadRequests(ctx context.Context, run string, after uint64, limit int) ([]PostedRequest, error)
	// FindRequest returns a request of a run, with its Status, by its id. The error matches ErrUnknownRequest if the id was not posted,
	// and ErrUnknownRun if the run is not stored.
	FindRequest(ctx context.Context, run, id string) (PostedRequest, error)
	// WatchRequests calls the function "arrived" with the id of each run that has waiting requests. It does so when the watch begins, and whenever a
	// request is posted. If this process has posted the request, the store calls "arrived" at once. If another process has posted it, the store
	// calls "arrived" within its polling interval. If the argument "run" is "", the watch covers all runs. The store may also call the function for
	// a run without waiting requests, and from several goroutines. The function must not block or call "stop". The function "stop" ends the watch;
	// "arrived" may still run after "stop" has returned.
	WatchRequests(run string, arrived func(run string)) (stop func())
}

// Errors of [Inbox].
var (
	// ErrEnded is returned if a request other than a redrive is posted for a run that has ended.
	ErrEnded = errors.New("the run has ended")
	// ErrNotEnded is returned for the redrive of a run that has not ended.
	ErrNotEnded = errors.New("the run has not ended")
	// ErrRequestConflict is returned for a request whose id belongs to another request of the run.
	ErrRequestConflict = errors.New("the id of the request was posted with another content")
	// ErrUnknownRequest is returned if the run has no request with the id.
	ErrUnknownRequest = errors.New("unknown request")
)

// Request is a signal, the cancel of a run or a node, a redrive, or the store's answer to an await, see [Awaiter]. kahn.PrepareSignal
// makes a signal and encodes its value, and kahn.PrepareRedrive makes a redrive.
type Request struct {
	// ID identifies the request among the requests for the run. A second post with the same ID, Kind, Node and Value changes nothing.
	ID   string      `json:"id"`
	Kind RequestKind `json:"kind"`
	// Node names the node. For a KindSignal it is the path or the token of a waiting node, as in Run.Signal. For a KindCancelNode it is the id of
	// the node, and for a KindEnded it is the path of the awaiting node. A KindCancel and a KindRedrive have no Node.
	Node string `json:"node,omitempty"`
	// Value is JSON. For a KindSignal it is the signal's value, as the run's codec has encoded it. For a KindRedrive it is a [Redriving] or nil, and
	// for a KindEnded an [Ended]. For other kinds it is nil.
	Value json.RawMessage `json:"value,omitempty"`
	// Actor names the person or program that makes the request, and Comment says why. Two requests that differ only in Actor or Comment count as the
	// same.
	Actor   string `json:"actor,omitempty"`
	Comment string `json:"comment,omitempty"`
}

// RequestKind is what a request asks for.
type RequestKind uint8

// The kinds of requests. Each comment names the method of kahn.Run whose rules apply to requests of the kind.
const (
	KindSignal     RequestKind = iota + 1 // Signal
	KindCancel                            // Cancel
	KindCancelNode                        // CancelNode
	KindRedrive                           // Redrive, a method of Runner
	KindEnded                             // no method: a store posts this request, see [Awaiter]

	requestKindCount
)

var requestKindNames = enum.Of[RequestKind]("kind of request", "", "signal", "cancel", "cancel_node", "redrive", "ended")

// String returns "signal", "cancel", "cancel_node", "redrive" or "ended".
func (k RequestKind) String() string { return requestKindNames.Name(k) }

// MarshalText encodes k as its name. If k is not one of the kinds, the error matches [machine.ErrBadValue].
func (k RequestKind) MarshalText() ([]byte, error) { return requestKindNames.Text(k) }

// UnmarshalText decodes a name. It returns an error that matches [machine.ErrBadValue] for any other text.
func (k *RequestKind) UnmarshalText(text []byte) error { return requestKindNames.Parse(k, text) }

// PostedRequest is a stored request.
type PostedRequest struct {
	Request
	Number uint64        `json:"number"` // the position of the request among the requests of the run, from 1
	Posted time.Time     `json:"posted"` // the time of the post by the store's clock, exact to a millisecond or better
	Status RequestStatus `json:"status"`
	// Refused is the text of an error that says why the request was refused.
	Refused string `json:"refused,omitempty"`
}

// RequestStatus says whether a request waits, was applied or was refused.
type RequestStatus uint8

// The statuses of requests.
const (
	RequestWaiting RequestStatus = iota // no commit has answered the request
	RequestApplied                      // the run has applied the request
	RequestRefused                      // the run has refused the request, or has ended before it answered the request
)

var requestStatusNames = enum.Of[RequestStatus]("status of a request", "waiting", "applied", "refused")

// String returns "waiting", "applied" or "refused".
func (s RequestStatus) String() string { return requestStatusNames.Name(s) }

// MarshalText encodes s as its name. If s is not one of the statuses, the error matches [machine.ErrBadValue].
func (s RequestStatus) MarshalText() ([]byte, error) { return requestStatusNames.Text(s) }

// UnmarshalText decodes a name. It returns an error that matches [machine.ErrBadValue] for any other text.
func (s *RequestStatus) UnmarshalText(text []byte) error { return requestStatusNames.Parse(s, text) }

// TakenRequest answers a request.
type TakenRequest struct {
	Number  uint64 `json:"number"`            // see PostedRequest
	Refused string `json:"refused,omitempty"` // why the request was refused; "" if it was applied
}

// Redriving says what a KindRedrive repeats. The Value of the request is a Redriving in JSON. The zero value selects all nodes that failed, were
// aborted or were cancelled; so does a request without a Value.
type Redriving struct {
	// Nodes are paths of nodes, as in kahn.Redrive.
	Nodes []string `json:"nodes,omitempty"`
	// The following fields are the options of package kahn with the same names.
	Anew            bool `json:"anew,omitempty"`
	DespiteHandlers bool `json:"despite_handlers,omitempty"`
	KeepDescendants bool `json:"keep_descendants,omitempty"`
	// A redrive with RepeatCompensations or CompensatedByHand repeats no nodes. RepeatCompensations repeats compensations that have failed.
	// CompensatedByHand records that the effects of nodes were undone by hand.
	RepeatCompensations bool `json:"repeat_compensations,omitempty"`
	CompensatedByHand   bool `json:"compensated_by_hand,omitempty"`
}

// Redriving returns what a KindRedrive repeats. The error matches [machine.ErrBadValue] if the Value is not a Redriving.
func (r *Request) Redriving() (what Redriving, err error) {
	if len(r.Value) > 0 {
		d := json.NewDecoder(bytes.NewReader(r.Value))
		d.DisallowUnknownFields()
		if err = d.Decode(&what); err != nil {
			return Redriving{}, fmt.Errorf("%w: request %s: the Value of a redrive: %w", machine.ErrBadValue, foreign.Quote(r.ID), err)
		}
	}
	if slices.Contains(what.Nodes, "") {
		return Redriving{}, fmt.Errorf("%w: request %s: a redrive of a node without a name", machine.ErrBadValue, foreign.Quote(r.ID))
	}
	return what, nil
}

// Check returns an error that matches [machine.ErrBadValue] if the request makes no sense. A request needs an ID and a Kind. A KindSignal also needs
// a Node and a Value, and a KindCancelNode needs a Node. A KindRedrive may have a Value. No other kind may have a Node or a Value. The Value must be
// JSON, and the other texts must be UTF-8. Check refuses a KindEnded, since only a store posts it.
func (r *Request) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: request %s: %s", machine.ErrBadValue, foreign.Quote(r.ID), fmt.Sprintf(format, args...))
	}
	for _, text := range []string{r.ID, r.Node, r.Actor, r.Comment} {
		if !utf8.ValidString(text) {
			return bad("%s is not UTF-8", foreign.Quote(text))
		}
	}
	switch {
	case r.ID == "":
		return fmt.Errorf("%w: a request without an id", machine.ErrBadValue)
	case r.Kind == 0 || r.Kind >= requestKindCount:
		return bad("Kind %d is none of KindSignal, KindCancel, KindCancelNode and KindRedrive", r.Kind)
	case r.Kind == KindEnded || strings.HasPrefix(r.ID, endedID):
		return bad("only a store posts requests of the kind %v, or with an id that begins with %s", KindEnded, foreign.Quote(endedID))
	case r.Node == "" && (r.Kind == KindSignal || r.Kind == KindCancelNode):
		return bad("a %v needs a Node", r.Kind)
	case r.Node != "" && r.Kind != KindSignal && r.Kind != KindCancelNode:
		return bad("a %v has no Node, but Node is %s", r.Kind, foreign.Quote(r.Node))
	case r.Value == nil && r.Kind == KindSignal:
		return bad("a %v needs a Value", r.Kind)
	case r.Value != nil && r.Kind != KindSignal && r.Kind != KindRedrive:
		return bad("a %v has no Value, but Value has %d bytes", r.Kind, len(r.Value))
	case r.Value != nil && !json.Valid(r.Value):
		return bad("the Value is not JSON")
	case r.Kind == KindRedrive:
		_, err := r.Redriving()
		return err
	}
	return nil
}

// Judge decides whether a store writes a request that is posted for a run. The parameter "stored" is the run's request of the same id, or nil if the
// run has none. Judge is for implementations of [Inbox].
func (r *Request) Judge(run *Run, stored *Request) (write bool, err error) {
	switch {
	case stored != nil && (stored.Kind != r.Kind || stored.Node != r.Node || !SameInputs(stored.Value, r.Value)):
		return false, fmt.Errorf("%w: request %s for run %s", ErrRequestConflict, foreign.Quote(r.ID), foreign.Quote(run.ID))
	case stored != nil:
		return false, nil
	case r.Kind == KindRedrive && !run.Status.Terminal():
		return false, fmt.Errorf("%w: run %s is %v", ErrNotEnded, foreign.Quote(run.ID), run.Status)
	case r.Kind != KindRedrive && run.Status.Terminal():
		return false, fmt.Errorf("%w: run %s is %v", ErrEnded, foreign.Quote(run.ID), run.Status)
	}
	return true, nil
}

// Wakes reports whether the request makes its run due. If the run has begun, any request makes it due; otherwise only a KindCancel does.
func (r *Request) Wakes(begun bool) bool { return begun || r.Kind == KindCancel }

// TakenFollow reports whether the commit answers posted requests in order, beginning with the first unanswered one. The argument "taken" is the
// number of the last answered request, and "posted" is the number of the last posted request. TakenFollow is for implementations of [Inbox], which
// answer with [Conflict] if it returns false.
func (c *Commit) TakenFollow(taken, posted uint64) bool {
	for _, t := range c.Taken {
		if taken++; t.Number != taken || taken > posted {
			return false
		}
	}
	return true
}

// Settle sets Status and Refused. The parameter "taken" is the number of the last answered request of the run. The parameter "answer" is the Refused
// of the [TakenRequest] that answers r, or nil if no commit has answered r. In that case r still waits if its Number is above "taken"; otherwise the
// end of the run has refused r. Settle is for implementations of [Inbox].
func (r *PostedRequest) Settle(taken uint64, answer *string) {
	switch {
	case answer == nil && r.Number > taken:
		r.Status = RequestWaiting
	case answer == nil:
		r.Status, r.Refused = RequestRefused, ErrEnded.Error()
	case *answer != "":
		r.Status, r.Refused = RequestRefused, *answer
	default:
		r.Status = RequestApplied
	}
}
