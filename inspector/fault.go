package inspector

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/seed-c794f7ef/kahn"
)

// A fault describes an error to a client.
type fault struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// Action is the action that the client may not perform.
	Action Action `json:"action,omitempty"`
	// Choices are the values that the service accepts instead.
	Choices []string `json:"choices,omitempty"`
	// If the request answers a node that was already answered, or for which another answer waits, Answered is the first answer; otherwise nil.
	Answered *answered `json:"answered,omitempty"`
}

// The type `answered` is the answer that a node has received.
type answered struct {
	By      string `json:"by,omitempty"`
	Comment string `json:"comment,omitempty"`
	Value   *value `json:"value,omitempty"`
}

// Error returns the message.
func (f *fault) Error() string { return f.Message }

// errNoToken is the response to a request without the right token.
var errNoToken = &fault{Status: http.StatusUnauthorized, Code: "token_needed", Message: "the request needs the token of the page: the host sets it in Options.Token, or finds it in its log"}

// The method `passes` reports whether the fault may be temporary. If the client then repeats the request with the same Idempotency-Key, the service
// tries the action again.
func (f *fault) passes() bool {
	return f != nil && (f.Status == http.StatusBadGateway || f.Status == http.StatusServiceUnavailable || f.Status == http.StatusGatewayTimeout || slices.Contains(notYet, f.Code))
}

// notYet are the codes of refusals that end without another request: when the run begins, reaches a node, judges an answer, ends or is left.
var notYet = []string{"leased", answerWaits, "not_begun", "not_due", "not_ended", "unknown_gate", "unknown_node"}

// answerWaits is the code of the refusal of an answer if another answer to the same node was posted and the run has not judged it yet.
const answerWaits = "answer_waits"

// faultReply is the body of every error response.
type faultReply struct {
	Error *fault `json:"error"`
}

// mostChoices is the maximum number of choices that a fault lists.
const mostChoices = 20

// A refusal is the status and the code for an error of package kahn.
type refusal struct {
	match  error
	status int
	code   string
}

var refusals = []refusal{
	{kahn.ErrUnknownNode, http.StatusNotFound, "unknown_node"},
	{kahn.ErrUnknownRun, http.StatusNotFound, "unknown_run"},
	{kahn.ErrUnknownGate, http.StatusNotFound, "unknown_gate"},
	{kahn.ErrAnswered, http.StatusConflict, "answered"},
	{kahn.ErrHandlers, http.StatusConflict, "handlers"},
	{kahn.ErrFinished, http.StatusConflict, "finished"},
	{kahn.ErrAtRest, http.StatusConflict, "at_rest"},
	{kahn.ErrTransition, http.StatusConflict, "wrong_status"},
	{kahn.ErrDuplicateRun, http.StatusConflict, "not_ended"},
	{kahn.ErrGraphChanged, http.StatusConflict, "graph_changed"},
	{kahn.ErrNotDue, http.StatusConflict, "not_due"},
	{kahn.ErrShutdown, http.StatusServiceUnavailable, "shut_down"},
	{kahn.ErrChoice, http.StatusUnprocessableEntity, "no_such_choice"},
	{kahn.ErrNotEncodable, http.StatusUnprocessableEntity, "bad_value"},
	{kahn.ErrBadValue, http.StatusUnprocessableEntity, "bad_value"},
}

// errRefused stands for an error that is not in refusals, for example an error of a function of the host: see refusalOf.
var errRefused = errors.New("the service refused the request")

// refusalOf returns the first refusal that an error matches, or the refusal errRefused if the error matches none.
func refusalOf(err error) refusal {
	for _, x := range refusals {
		if errors.Is(err, x.match) {
			return x
		}
	}
	return refusal{errRefused, http.StatusConflict, "refused"}
}

// faultOf returns the fault with the status, the code and the choices for an error. The message of the fault is the text of the error, even if the
// client may not see this text.
func faultOf(err error) *fault {
	var own *fault
	if errors.As(err, &own) {
		return own
	}
	x := refusalOf(err)
	f := &fault{Status: x.status, Code: x.code, Message: text(err)}
	var path *kahn.PathError
	var choice *kahn.ChoiceError
	switch {
	case errors.As(err, &path):
		f.Choices = path.Choices
	case errors.As(err, &choice):
		f.Choices = choice.Choices
	}
	f.Choices = slices.Clone(f.Choices[:min(len(f.Choices), mostChoices)])
	return f
}

// The function `refuse` writes an error as the response.
func refuse(w http.ResponseWriter, err error) {
	f := faultOf(err)
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(faultReply{f}) // an error means that the client is gone
}
