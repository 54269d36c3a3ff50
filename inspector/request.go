package inspector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Controller is a store that can itself signal and stop its runs, whichever process performs them. If Options.Store is a Controller, like
// temporal.Store, the handler calls the Controller's methods for these actions, and not Workflow.Perform. Each method waits until the run has
// carried out or refused the request. Signal, Cancel and CancelNode return the errors of the methods of kahn.Run with the same names, and Abort
// returns the errors of kahn.Run.AbortAll. If the run does not exist, the error matches kahn.ErrUnknownRun. If the run has ended, the error
// matches kahn.ErrFinished.
type Controller interface {
	// Signal answers a waiting node. The argument `gate` is the path or the token of the node, and `value` is a kahn.Decision with an ID.
	Signal(ctx context.Context, run, gate string, value any) error
	Cancel(ctx context.Context, run string, q kahn.Request) error
	// Abort fails the run with err, or with kahn.ErrAborted if err is nil.
	Abort(ctx context.Context, run string, err error, q kahn.Request) error
	CancelNode(ctx context.Context, run, node string) error
}

// A demand is an action on a stored run, with one function for each way to perform the action.
type demand struct {
	judge   func() error                            // returns the error with which the run, in its stored state, would refuse the action; may be nil
	control func(context.Context, Controller) error // performs the action through the store itself
	perform func() error                            // performs the action in this process, which continues the run
	request func() (store.Request, error)           // returns the action as a request to the process that performs the run
}

// The method `judged` returns the error of d.judge, or nil if d.judge is nil.
func (d demand) judged() error {
	if d.judge == nil {
		return nil
	}
	return d.judge()
}

// The method `ask` performs a demand on a stored run. If the store is a Controller, the store performs the demand; otherwise this process does.
// If this process cannot, for example because another process performs the run, ask posts a request to the store. For this, the store must be a
// store.Inbox.
func (c *call) ask(s *storedRun, d demand) (any, error) {
	if x, ok := c.h.Store.(Controller); ok {
		return accepted, c.control(x, s, d)
	}
	err := d.perform()
	inbox, ok := c.h.Store.(store.Inbox)
	if !ok || !cannotPerform(err) {
		return accepted, err
	}
	if err := d.judged(); err != nil {
		return nil, err
	}
	q, err := d.request()
	if err != nil {
		return nil, err
	}
	if err := c.postRequest(inbox, s.ID(), q); err != nil || s.Status() != kahn.RunPending {
		if err == nil && q.Kind == store.KindSignal {
			err = c.first(s, q)
		}
		return requested, err
	}
	// The run has not begun, so this request cancels the run: the handler refuses all other requests for such a run. The posted request has made
	// the run due, even if the run was created for a later time. So perhaps this process can perform the run now.
	if err = d.perform(); cannotPerform(err) {
		return requested, nil
	}
	return accepted, err
}

// The method `first` is called after the answer `own` was posted. It returns an error if an earlier answer to the same node still waits for the
// run. Without this check, the client would get no error, because the run refuses `own` only when it reads its requests.
func (c *call) first(s *storedRun, own store.Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), loadTime)
	defer cancel()
	var now *storedRun
	err := c.h.contain(c.r, "Store", func() (err error) {
		now, err = c.h.glance(ctx, s.ID())
		return err
	})
	if err != nil {
		return nil // no error: the request was posted, and the row of the run will show its outcome
	}
	err = c.judgePosted(now, now.pathOf(own.Node), own.ID)
	if f := (*fault)(nil); errors.As(err, &f) {
		f.Message += "; this answer waits behind it"
	}
	return err
}

// judgePosted returns an error if an earlier answer to the same node still waits for the run. The argument `id` is the id of the new answer. The
// error contains the earlier answer and its actor. The run may yet refuse the earlier answer, so the client may repeat its request.
func (c *call) judgePosted(s *storedRun, path, id string) error {
	q := s.posted(path)
	if q == nil || q.ID == id {
		return nil
	}
	by := ""
	if q.Actor != "" {
		by = " by " + clip(q.Actor, 100)
	}
	d := kahn.Decision{Value: jsonValue(q.Value), Actor: q.Actor, Comment: q.Comment}
	return &fault{
		Status: http.StatusConflict, Code: answerWaits, Answered: c.decision(path, &d),
		Message: fmt.Sprintf("an answer%s already waits for the run, which has not judged it yet", by),
	}
}

// cannotPerform reports whether the error means that this process cannot perform the run now. Perhaps another process can, now or later.
func cannotPerform(err error) bool {
	return errors.Is(err, store.ErrLeased) || errors.Is(err, errNotPerformed) || errors.Is(err, kahn.ErrNotDue)
}

// The method `control` performs a demand through a store that is a Controller.
func (c *call) control(x Controller, s *storedRun, d demand) error {
	if err := d.judged(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), loadTime)
	defer cancel()
	defer c.h.changed(s.ID())
	err := c.h.contain(c.r, "Store", func() error { return d.control(ctx, x) })
	switch {
	case ctx.Err() != nil && err != nil:
		return errSlow
	case err != nil && refusalOf(err).match == errRefused:
		return c.h.storeFault(c.r.Context(), err)
	}
	return err
}

// postRequest posts a request to the store. The id of the request is derived from the idempotency key of the action.
func (c *call) postRequest(inbox store.Inbox, run string, q store.Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), loadTime)
	defer cancel()
	defer c.h.changed(run)
	err := c.h.contain(c.r, "Store.Post", func() error {
		// If the client has repeated the action with the same key, the store already has the request under this id, and Post does nothing.
		_, err := inbox.Post(ctx, run, q)
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrEnded):
		return errEnded
	case errors.Is(err, store.ErrNotEnded):
		return errNotEnded
	case errors.Is(err, store.ErrRequestConflict):
		return errKeyReused
	case errors.Is(err, store.ErrRejected) || errors.Is(err, kahn.ErrBadValue):
		return &fault{Status: http.StatusUnprocessableEntity, Code: "bad_value", Message: "the store cannot hold the request: " + text(err)}
	}
	return c.h.storeFault(c.r.Context(), err)
}

// judgeAnswer returns an error if the node neither waits nor is a gate that the run may reach, or if the answer is a text that is not one of the
// gate's choices. If the Runner has the run, judgeAnswer also checks the answer like a live run. The run itself checks everything else.
func (s *storedRun) judgeAnswer(path string, answer any) error {
	x, err := s.place(path)
	if err != nil {
		return err
	}
	if x.Wait == nil && !x.isAhead() {
		f := &fault{Status: http.StatusNotFound, Code: "unknown_gate", Message: fmt.Sprintf("%.60q does not wait for an answer", path)}
		for _, wait := range s.Waiting() {
			f.Choices = append(f.Choices, wait.Node)
		}
		f.Choices = f.Choices[:min(len(f.Choices), mostChoices)]
		return f
	}
	if s.here != nil {
		// The Runner's run may be older than the stored state. So only its judgement of the answer counts, which depends only on the plan.
		if err := s.here.CheckSignal(path, answer); errors.Is(err, kahn.ErrChoice) {
			return err
		}
	}
	label, isText := answer.(string)
	if len(x.Choices) == 0 || !isText || slices.ContainsFunc(x.Choices, func(choice string) bool { return strings.EqualFold(choice, label) }) {
		return nil
	}
	return &kahn.ChoiceError{Node: path, Answer: clip(label, shownText), Choices: x.Choices}
}

// isAhead reports whether the node is a gate that the run has not reached: it may be answered already.
func (x *storedPlace) isAhead() bool {
	if x.plan == nil || x.Status.Terminal() || x.Kind != kahn.KindGate {
		return false
	}
	ref, ok := x.plan.Ref(strings.TrimPrefix(x.ID, x.prefix()))
	return ok && x.plan.Node(ref).Do == nil
}

// judgeCancel returns an error if the run has not begun, or if its outermost graph has no unfinished node with this path.
func (s *storedRun) judgeCancel(path string) error {
	x := s.places[path]
	switch {
	case x != nil && s.Status() == kahn.RunPending:
		return errNotBegun
	case x != nil && x.parent == nil && !x.Status.Terminal():
		return nil
	case x != nil && x.parent == nil:
		return fmt.Errorf("%w: node %.60q is %v", kahn.ErrTransition, path, x.Status)
	}
	choices := pathsOf(s.nodes, func(n *storedPlace) bool { return !n.Status.Terminal() })
	if x == nil {
		return &kahn.PathError{Path: path, Choices: choices}
	}
	return &fault{
		Status: http.StatusNotFound, Code: "unknown_node", Choices: choices[:min(len(choices), mostChoices)],
		Message: fmt.Sprintf("%.60q is not a node of the run's own graph: a node inside a composite cannot be cancelled alone", path),
	}
}

// mostRequests is the maximum number of requests that are loaded for a run. The latest requests are loaded.
const mostRequests = 20

// requestsOf loads the latest requests for a run. It leaves out the requests that the run has applied.
func (h *handler) requestsOf(ctx context.Context, row *store.Run) ([]store.PostedRequest, error) {
	inbox, ok := h.Store.(store.Inbox)
	if !ok || row.Posted == 0 {
		return nil, nil
	}
	list, err := inbox.LoadRequests(ctx, row.ID, row.Posted-min(row.Posted, mostRequests), mostRequests)
	return slices.DeleteFunc(list, func(q store.PostedRequest) bool { return q.Status == store.RequestApplied }), err
}

// requestRow is a request that was posted for a stored run.
type requestRow struct {
	Kind store.RequestKind `json:"kind"`
	Path string            `json:"path,omitempty"` // the path of the target node
	// Compensations is set for a redrive of failed compensations: "repeat" runs them again, and "by_hand" records that an operator has
	// undone the effects.
	Compensations undoMode            `json:"compensations,omitempty"`
	Status        store.RequestStatus `json:"status"`
	Posted        string              `json:"posted"`
	// The field By is the person who made the request, Comment is this person's comment, Value is the answer of a signal, and Refused is the reason
	// why the request was refused. These four fields are only for clients that may view_data.
	By      string `json:"by,omitempty"`
	Comment string `json:"comment,omitempty"`
	Value   *value `json:"value,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// The method `requests` returns at most `few` requests for a node of a stored run, the latest first. If the path is empty, it takes the requests
// for the run and for all its nodes. It leaves out requests that the run has applied.
func (c *call) requests(s *storedRun, path string) (list []requestRow) {
	for _, q := range slices.Backward(s.requests) {
		of := s.pathOf(q.Node)
		if path != "" && of != path || len(list) == few {
			continue
		}
		row := requestRow{Kind: q.Kind, Path: of, Status: q.Status, Posted: stamp(q.Posted)}
		if what, err := q.Redriving(); err == nil && q.Kind == store.KindRedrive {
			switch {
			case what.RepeatCompensations:
				row.Compensations = undoAgain
			case what.CompensatedByHand:
				row.Compensations = undoByHand
			}
		}
		if c.mayViewData() {
			row.By = clip(q.Actor, shownText)
			row.Comment = c.dataText(Value{Path: of, Kind: Answer, Name: "comment", Value: q.Comment})
			row.Refused = firstLine(c.dataText(Value{Path: of, Kind: Error, Value: q.Refused}))
			if q.Value != nil {
				row.Value = c.shown(Value{Path: of, Kind: Answer, Value: jsonValue(q.Value)})
			}
		}
		list = append(list, row)
	}
	return list
}

// pathOf returns the path of a node. The argument `name` is the path of the node, or the token of the node's wait. pathOf returns "" if there is
// no such node yet.
func (s *storedRun) pathOf(name string) string {
	for _, wait := range s.Waiting() {
		if wait.Token == name {
			return wait.Node
		}
	}
	if s.places[name] != nil {
		return name
	}
	return ""
}
