package temporal

import (
	"encoding/json"
	"errors"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdk "go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
)

// The error of a node travels as text. If the error is or wraps an ApplicationError of the SDK, the ApplicationError travels beside the text, with
// its type and details. So errors.As finds the ApplicationError in the Result that a client reads.
func init() {
	foreign.KeepErrors("temporal.ApplicationError", foreign.KeptError{Write: writeApplication, Read: readApplication})
}

// applicationForm is the JSON form of an ApplicationError, or of a cause of an ApplicationError.
type applicationForm struct {
	Message      string           `json:"message"`
	Type         string           `json:"type,omitempty"`
	NonRetryable bool             `json:"non_retryable,omitempty"`
	Category     int              `json:"category,omitempty"`
	Details      []byte           `json:"details,omitempty"` // payloads that no codec has encoded, since the codec encodes the whole form
	Cause        *applicationForm `json:"cause,omitempty"`
	Other        bool             `json:"other,omitempty"` // the error is not an ApplicationError
}

const (
	keptBytes   = 4 << 10 // the most bytes of the details that travel with an error
	keptCauses  = 4       // the most causes of an ApplicationError that travel with it
	keptDetails = 16      // the most details of an ApplicationError that travel with it
)

func writeApplication(err error) json.RawMessage {
	if _, is := err.(*sdk.ApplicationError); !is {
		return nil
	}
	data, err := json.Marshal(formOfApplication(err, 0))
	if err != nil {
		return nil
	}
	return data
}

func formOfApplication(err error, depth int) *applicationForm {
	if err == nil || depth > keptCauses {
		return nil
	}
	e, is := err.(*sdk.ApplicationError)
	if !is {
		var inner *sdk.ApplicationError
		if !errors.As(err, &inner) {
			return &applicationForm{Message: foreign.ErrorText(err), Other: true}
		}
		e = inner // the errors around it are only envelopes, such as a ChildWorkflowExecutionError
	}
	form := &applicationForm{
		Message: foreign.Shorten(e.Message()), Type: foreign.Shorten(e.Type()), NonRetryable: e.NonRetryable(), Category: int(e.Category()), Cause: formOfApplication(e.Unwrap(), depth+1),
	}
	if list := detailsOf(e); len(list) > 0 {
		if data, err := proto.Marshal(&commonpb.Payloads{Payloads: list}); err == nil && len(data) <= keptBytes {
			form.Details = data
		}
	}
	return form
}

// detailsOf returns the details of an ApplicationError as payloads that no codec has encoded. If the details cannot be made payloads, it returns
// none. If the details come from a history, it returns at most the first keptDetails.
func detailsOf(e *sdk.ApplicationError) (list []*commonpb.Payload) {
	if !e.HasDetails() {
		return nil
	}
	var raws [keptDetails]converter.RawValue
	var into [keptDetails]any
	for i := range raws {
		into[i] = &raws[i]
	}
	panicked := func(v any) error { return foreign.NewPanicError(v) }
	// If the details come from a history, Details returns them as payloads. If they are values of this process, Details returns an error or panics.
	if foreign.Contain(func() error { return e.Details(into[:]...) }, panicked) == nil {
		for _, r := range raws {
			if r.Payload() != nil {
				list = append(list, r.Payload())
			}
		}
		return list
	}
	_ = foreign.Contain(func() error {
		list = sdk.GetDefaultFailureConverter().ErrorToFailure(e).GetApplicationFailureInfo().GetDetails().GetPayloads()
		return nil
	}, panicked) // if a detail cannot be encoded, the error travels without its details
	return list
}

func readApplication(data json.RawMessage) error {
	var form applicationForm
	if json.Unmarshal(data, &form) != nil {
		return nil
	}
	return form.error(0)
}

// error returns the error that the form describes, or nil if the form is nil.
func (form *applicationForm) error(depth int) error {
	switch {
	case form == nil || depth > keptCauses:
		return nil
	case form.Other:
		return errors.New(form.Message)
	}
	o := sdk.ApplicationErrorOptions{NonRetryable: form.NonRetryable, Category: sdk.ApplicationErrorCategory(form.Category), Cause: form.Cause.error(depth + 1)}
	list := new(commonpb.Payloads)
	if len(form.Details) > 0 && proto.Unmarshal(form.Details, list) == nil {
		o.Details = []any{client.NewValues(list)}
	}
	return sdk.NewApplicationErrorWithOptions(form.Message, form.Type, o)
}

// causeOf returns the cause of the failure of a run's workflow: the run's first error, as an ApplicationError. Its message is the text of that error.
// If that error wraps an ApplicationError of the step, or of the workflow that performs the step, the cause has the same type and details. Otherwise
// its type is the kind of the node's failure, such as step_error. A parent in any language can read the cause; only kahn reads the details of the
// failure itself.
func causeOf(err error) error {
	var run *kahn.RunError
	if !errors.As(err, &run) || len(run.Errs) == 0 {
		return nil
	}
	first := run.Errs[0]
	name, message := run.Cause.String(), foreign.ErrorText(first)
	var node *kahn.NodeError
	if errors.As(first, &node) {
		name = node.Kind.String()
	}
	o := sdk.ApplicationErrorOptions{NonRetryable: true}
	var application *sdk.ApplicationError
	if errors.As(first, &application) {
		if application.Type() != "" {
			name = application.Type()
		}
		for _, p := range detailsOf(application) {
			o.Details = append(o.Details, converter.NewRawValue(p)) // the failure converter encodes them again
		}
	}
	return sdk.NewApplicationErrorWithOptions(message, name, o)
}

// failedChild is the error of a run that a workflow of the host has started. It has the text of the run's error.
// In addition, errors.As finds in it the ApplicationError that made the workflow of the run fail.
type failedChild struct {
	err   error
	cause *sdk.ApplicationError
}

// Error returns the text of the run's error.
func (f *failedChild) Error() string { return f.err.Error() }

// Unwrap returns the cause. If a workflow returns a failedChild, the SDK records this cause as the cause of the workflow's failure.
func (f *failedChild) Unwrap() error { return f.cause }

// Is reports whether the error of the run matches the target.
func (f *failedChild) Is(target error) bool { return errors.Is(f.err, target) }

// As finds an ApplicationError in the cause, and any other error in the error of the run. The details of the cause are encoded as in the history, so
// a workflow may return the cause.
func (f *failedChild) As(target any) bool {
	if into, is := target.(**sdk.ApplicationError); is {
		*into = f.cause
		return true
	}
	return errors.As(f.err, target)
}

// withCause adds the cause of a workflow's failure to the error of its run. If the failure has no such cause, it returns the error unchanged.
func withCause(err, failure error) error {
	var failed, cause *sdk.ApplicationError
	if err == nil || !errors.As(failure, &failed) || failed.Type() != failedRun || !errors.As(failed.Unwrap(), &cause) {
		return err
	}
	return &failedChild{err, cause}
}
