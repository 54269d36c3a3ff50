package temporal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// The names of the updates that carry a signal or a stop, and of the query for the status. See also AdoptUpdate.
const (
	SignalUpdate = "kahn.Signal"
	StopUpdate   = "kahn.Stop"
	StateQuery   = "kahn.State"
)

// signalRequest is the argument of SignalUpdate.
type signalRequest struct {
	Gate    string          `json:"gate"` // the id, the path or the token of the node that waits
	Value   json.RawMessage `json:"value,omitempty"`
	Actor   string          `json:"actor,omitempty"`
	Comment string          `json:"comment,omitempty"`
	ID      string          `json:"id,omitempty"`
}

// stopRequest is the argument of StopUpdate.
type stopRequest struct {
	Node   string `json:"node,omitempty"`  // the single node to stop; "" means the run
	Abort  bool   `json:"abort,omitempty"` // true: the run is aborted; false: it is cancelled
	Error  string `json:"error,omitempty"` // the cause of the abort
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// state is the answer to StateQuery.
type state struct {
	Status  kahn.RunStatus `json:"status"`
	Waiting []waiting      `json:"waiting,omitempty"`
}

// waiting is a [kahn.Wait] as data.
type waiting struct {
	Node     string          `json:"node"`
	Token    string          `json:"token,omitempty"`
	Info     json.RawMessage `json:"info,omitempty"`
	Since    time.Time       `json:"since"`
	Deadline time.Time       `json:"deadline,omitzero"`
	Choices  []string        `json:"choices,omitempty"`
}

// The method handle sets the handlers of the updates and of the queries. The handler of an update carries out the update, and does not
// block.
func (x *interpreter) handle() error {
	return errors.Join(
		workflow.SetUpdateHandlerWithOptions(x.ctx, SignalUpdate, func(_ workflow.Context, r signalRequest) error { return x.request(func() error { return x.signal(r) }) },
			workflow.UpdateHandlerOptions{Validator: func(r signalRequest) error { return encodeRefusal(x.checkSignal(r)) }}),
		workflow.SetUpdateHandlerWithOptions(x.ctx, StopUpdate, func(_ workflow.Context, r stopRequest) error { return x.request(func() error { return x.stopBy(r) }) },
			workflow.UpdateHandlerOptions{Validator: func(r stopRequest) error { return encodeRefusal(x.checkStop(r)) }}),
		workflow.SetUpdateHandlerWithOptions(x.ctx, AdoptUpdate, func(_ workflow.Context, r adoptRequest) error { return x.request(func() error { return x.adopt(r) }) },
			workflow.UpdateHandlerOptions{Validator: func(r adoptRequest) error { return encodeRefusal(x.checkAdopt(r)) }}),
		workflow.SetQueryHandler(x.ctx, StateQuery, x.state),
		workflow.SetQueryHandler(x.ctx, EventsQuery, x.events),
		workflow.SetQueryHandler(x.ctx, SnapshotQuery, x.snapshot),
	)
}

// The method request carries out a request at the current time of the workflow, and wakes the coroutine that drives the run.
func (x *interpreter) request(ask func() error) error {
	x.c.Advance(workflow.Now(x.ctx))
	err := ask()
	x.wake.SendAsync(true)
	return encodeRefusal(err)
}

func (x *interpreter) signal(r signalRequest) error {
	d, err := r.decision(x.texts.Codec)
	if err == nil {
		err = x.c.Run().Signal(context.Background(), r.Gate, d)
	}
	if err == nil {
		x.answered(r)
	}
	return err
}

// The method decision returns the answer in a request.
func (r signalRequest) decision(codec kahn.Codec) (d kahn.Decision, err error) {
	d = kahn.Decision{Actor: r.Actor, Comment: r.Comment, ID: r.ID}
	if r.Value != nil {
		d.Value, err = codec.Decode(r.Value)
	}
	return d, err
}

// checkSignal returns an error if the run would refuse a signal, so that a refused signal never enters the history. It changes nothing. If the
// BlobStore cannot read the value at the moment, checkSignal returns nil. The later call of x.signal then fails the workflow task.
func (x *interpreter) checkSignal(r signalRequest) error {
	var silent error
	d, err := r.decision(x.watched(x.ctx, &silent).Codec)
	switch {
	case silent != nil:
		return nil
	case err != nil:
		return err
	}
	if err := x.c.Run().CheckSignal(r.Gate, d); err != nil {
		return err
	}
	return x.fitsAnswer(r)
}

// checkStop returns an error if the run would refuse a stop. It changes nothing.
func (x *interpreter) checkStop(r stopRequest) error {
	if r.Node == "" {
		return nil
	}
	return x.c.Run().CheckCancelNode(r.Node)
}

func (x *interpreter) stopBy(r stopRequest) error {
	run, q := x.c.Run(), kahn.Request{Actor: r.Actor, Reason: r.Reason}
	switch {
	case r.Node != "":
		return run.CancelNode(r.Node)
	case r.Abort && r.Error != "":
		return run.AbortAll(errors.New(r.Error), q)
	case r.Abort:
		return run.AbortAll(nil, q)
	default:
		return run.Cancel(q)
	}
}

func (x *interpreter) state() (state, error) {
	s := state{Status: x.c.Run().Status()}
	for _, w := range x.c.Run().Waiting() {
		info, err := x.host.texts.Encode(w.Info)
		if err != nil {
			return s, fmt.Errorf("kahn/temporal: the info of node %q: %w", w.Node, err)
		}
		s.Waiting = append(s.Waiting, waiting{w.Node, w.Token, info, w.Since, w.Deadline, w.Choices})
	}
	return s, nil
}

// The sentinel errors of refusals. In the process that has sent the request, errors.Is also finds these errors.
var refusals = []struct {
	name string
	err  error
}{
	{"unknown gate", kahn.ErrUnknownGate}, {"answered", kahn.ErrAnswered}, {"choice", kahn.ErrChoice}, {"finished", kahn.ErrFinished},
	{"signal conflict", kahn.ErrSignalConflict}, {"unknown node", kahn.ErrUnknownNode}, {"transition", kahn.ErrTransition},
	{"bad value", kahn.ErrBadValue}, {"too large", ErrTooLarge},
	{"unknown plan", ErrUnknownPlan}, {"graph changed", kahn.ErrGraphChanged}, {"missing input", kahn.ErrMissingInput},
	{"unknown input", kahn.ErrUnknownInput}, {"bad option", kahn.ErrBadOption}, {"at rest", kahn.ErrAtRest},
}

// otherRefusal is the type of a refusal whose error matches none of the refusals above.
const otherRefusal = "refused"

// refusalOf returns the type of a refusal with the given error, and the error in refusals that the given error matches. If it matches none of them,
// "matches" is nil.
func refusalOf(err error) (name string, matches error) {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return r.name, r.err
		}
	}
	return otherRefusal, nil
}

func encodeRefusal(err error) error {
	if err == nil {
		return nil
	}
	name, _ := refusalOf(err)
	return sdk.NewNonRetryableApplicationError(err.Error(), name, nil)
}

// refuse returns the failure of a run that cannot begin on any worker. If err matches an error in refusals, the failure has a
// cause, whose type names this error.
func refuse(err error) error {
	o := sdk.ApplicationErrorOptions{NonRetryable: true}
	if name, matches := refusalOf(err); matches != nil {
		o.Cause = sdk.NewNonRetryableApplicationError(matches.Error(), name, nil)
	}
	return sdk.NewApplicationErrorWithOptions(err.Error(), refusedRun, o)
}

// decodeRefusal is the reverse of encodeRefusal and of refuse. If the error matches none of the refusals, it returns the error unchanged.
func decodeRefusal(err error) error {
	var outer *sdk.ApplicationError
	if !errors.As(err, &outer) {
		return err
	}
	failure := outer
	if outer.Type() == refusedRun && !errors.As(outer.Unwrap(), &failure) {
		return err
	}
	for _, r := range refusals {
		if failure.Type() == r.name {
			return &refusal{outer.Message(), r.err, outer}
		}
	}
	return err
}

// refusal is the error of a request that the run has refused. It wraps the sentinel error, and the SDK's error with the type of
// the refusal.
type refusal struct {
	text string
	err  error
	of   *sdk.ApplicationError // nil if this process has refused the request
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() []error {
	if r.of == nil {
		return []error{r.err}
	}
	return []error{r.err, r.of}
}
