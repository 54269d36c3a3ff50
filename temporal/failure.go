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

// Errors of nodes travel as texts. An ApplicationError of the SDK that such an error is or wraps travels beside the text, with its type and details, so
// that errors.As finds it in the Result that a client reads.
func init() {
	foreign.KeepErrors("temporal.ApplicationError", foreign.KeptError{Write: writeApplication, Read: readApplication})
}

// applicationForm is the JSON form of an ApplicationError, or of another error that an ApplicationError wraps.
type applicationForm struct {
	Message      string           `json:"message"`
	Type         string           `json:"type,omitempty"`
	NonRetryable bool             `json:"non_retryable,omitempty"`
	Category     int              `json:"category,omitempty"`
	Details      []byte           `json:"details,omitempty"` // payloads that no codec has encoded: the whole form is in a payload that the codec encodes
	Cause        *applicationForm `json:"cause,omitempty"`
	Other        bool             `json:"other,omitempty"` // it is another error
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
		e = inner // what is between the two is only an envelope, such as a ChildWorkflowExecutionError
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

// detailsOf returns the details of an ApplicationError as payloads that no codec has encoded, or none if they cannot be encoded. Of details from a history
// it returns at most keptDetails.
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
	// The data converter of details from a history decodes them. Details of this process are values, and Details returns an error or panics.
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
	}, panicked) // a detail that cannot be encoded; the error travels without its details
	return list
}

func readApplication(data json.RawMessage) error {
	var form applicationForm
	if json.Unmarshal(data, &form) != nil {
		return nil
	}
	return form.error(0)
}

// error returns the error of a form, or nil if there is none.
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

// causeOf returns the cause of the failure of a run's workflow: what has failed first, as an ApplicationError. Its message is the text of the node's
// error. Its type and details are of the ApplicationError that the step, or the workflow that performs the step, has returned; without one the type is the
// cause of the node's failure, such as step_error. Parents in any language read it; the details of the failure itself are kahn's.
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

// failedChild is the error of a run that a workflow of the host has started: the error of the run, in which errors.As also finds the cause of its
// workflow's failure.
type failedChild struct {
	err   error
	cause *sdk.ApplicationError
}

// Error returns the text of the run's error.
func (f *failedChild) Error() string { return f.err.Error() }

// Unwrap returns the cause. If a workflow returns the error, the SDK makes the cause of its failure of it.
func (f *failedChild) Unwrap() error { return f.cause }

// Is reports whether the error of the run matches.
func (f *failedChild) Is(target error) bool { return errors.Is(f.err, target) }

// As finds an ApplicationError in the cause, and any other error in the error of the run. The details of the cause are encoded as in the history, so a
// workflow may return it.
func (f *failedChild) As(target any) bool {
	if into, is := target.(**sdk.ApplicationError); is {
		*into = f.cause
		return true
	}
	return errors.As(f.err, target)
}

// withCause returns the error of a run with the cause of its workflow's failure, as the SDK has decoded it.
func withCause(err, failure error) error {
	var failed, cause *sdk.ApplicationError
	if err == nil || !errors.As(failure, &failed) || failed.Type() != failedRun || !errors.As(failed.Unwrap(), &cause) {
		return err
	}
	return &failedChild{err, cause}
}
