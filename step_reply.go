package kahn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Reply is what an attempt has returned, as data: the way back of a [Call]. As JSON its error keeps its text, the sentinel errors that it
// matches, and what the engine reacts to: [Permanent], [AbortRun], [RateLimited], [Skip], [Suspend] and panics. A graph that a step
// returned with [Expand] cannot be encoded: an error that matches [ErrNotEncodable].
type Reply struct {
	Value any
	Err   error
	// Codec writes and reads the values; nil means nil [Types].
	Codec Codec
}

// Perform calls a step function with the attempt, and returns its result; a panic becomes an error of type [*PanicError]. A step that calls
// runtime.Goexit ends the goroutine, and Perform returns nothing: a host that has to reply then defers a Reply with [ErrGoexit]. See
// [NewStep] for the context and the Reporter.
func (c Call) Perform(ctx context.Context, step StepFunc, to Reporter) Reply {
	reply := Reply{Codec: c.Codec}
	if step == nil {
		reply.Err = Permanent(fmt.Errorf("%w: node %s", ErrNoStep, quoteID(c.Path)))
		return reply
	}
	if ctx == nil {
		reply.Err = Permanent(ErrNoContext)
		return reply
	}
	s := NewStep(ctx, c, to)
	if err := contain(func() error { reply.Value, reply.Err = step(s, s); return nil }); err != nil {
		reply.Value, reply.Err = nil, err
	}
	return reply
}

// replyForm is the JSON form of a Reply.
type replyForm struct {
	Value      *stored       `json:"value,omitempty"`
	Err        *stored       `json:"error,omitempty"`
	Panic      *panicForm    `json:"panic,omitempty"`
	Goexit     bool          `json:"goexit,omitempty"`
	Permanent  bool          `json:"permanent,omitempty"`
	AbortRun   bool          `json:"abort_run,omitempty"`
	RateLimit  bool          `json:"rate_limited,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	Skip       *string       `json:"skip,omitempty"`
	Suspend    *suspendForm  `json:"suspend,omitempty"`
}

// panicForm is a panic: its value as text, or in the error of the reply if it is one.
type panicForm struct {
	Text  string `json:"text,omitempty"`
	Stack []byte `json:"stack"`
}

type suspendForm struct {
	Token string  `json:"token,omitempty"`
	Info  *stored `json:"info,omitempty"`
	State *stored `json:"state,omitempty"`
}

// MarshalJSON implements json.Marshaler. A value that cannot be encoded is an error that matches [ErrNotEncodable].
func (r Reply) MarshalJSON() ([]byte, error) {
	x := values{codec: r.Codec}
	form := replyForm{Value: x.write("value", r.Value)}
	if r.Err != nil {
		form.Value = nil
		if err := form.writeError(&x, r.Err); err != nil {
			return nil, err
		}
	}
	if x.err != nil {
		return nil, x.err
	}
	return json.Marshal(form)
}

func (form *replyForm) writeError(x *values, err error) error {
	facts := inspectError(err)
	if facts.unsafe {
		err = bounded(err)
	}
	form.Permanent, form.AbortRun, form.Goexit = facts.permanent, facts.abortRun, err == ErrGoexit
	switch p, panicked := err.(*PanicError); {
	case panicked:
		form.Panic = &panicForm{Stack: p.Stack}
		if err = p.Unwrap(); err == nil {
			form.Panic.Text = valueText(p.Value)
		}
	case facts.skip != nil:
		form.Skip = &facts.skip.message
	case facts.suspend != nil:
		form.Suspend = &suspendForm{facts.suspend.token, x.write("suspend info", facts.suspend.info), x.write("suspend state", facts.suspend.state)}
	case facts.expand != nil:
		return errExpansion
	case facts.rate != nil:
		form.RateLimit, form.RetryAfter = true, facts.rate.after
	}
	form.Err = x.writeError("error", "", err)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. It reads the values with the Codec that the Reply has. null and members that are not known are
// errors, so that no failure is taken for a success.
func (r *Reply) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return fmt.Errorf("%w: a reply is an object, not null", ErrBadValue)
	}
	var form replyForm
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(&form); err != nil {
		return fmt.Errorf("%w: reply: %w", ErrBadValue, err)
	}
	x := values{codec: r.Codec}
	r.Value, r.Err = x.read("value", form.Value), form.error(&x)
	return x.err
}

// error is the reverse of writeError.
func (form *replyForm) error(x *values) error {
	err := x.readError("error", "", form.Err)
	switch {
	case form.Panic != nil && err != nil:
		return &PanicError{Value: err, Stack: form.Panic.Stack}
	case form.Panic != nil:
		return &PanicError{Value: form.Panic.Text, Stack: form.Panic.Stack}
	case form.Goexit:
		return ErrGoexit
	case form.Skip != nil:
		return Skip(*form.Skip)
	case form.Suspend != nil:
		return Suspend(form.Suspend.Token, x.read("suspend info", form.Suspend.Info), x.read("suspend state", form.Suspend.State))
	case form.RateLimit:
		err = RateLimited(err, form.RetryAfter)
	case err == nil && (form.Permanent || form.AbortRun || form.RetryAfter != 0):
		x.failed("error", "", fmt.Errorf("%w: there is none that is permanent, aborts the run, or is to be retried", ErrBadValue))
		return nil
	}
	if form.Permanent {
		err = Permanent(err)
	}
	if form.AbortRun {
		err = AbortRun(err)
	}
	return err
}
