package inspector

import (
	"context"
	"fmt"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// causeOf follows an error of a node to the failure that caused it. It returns the path of the node that failed by itself. It also returns the error
// of that node, without the text that each enclosing node has added.
func causeOf(path string, err error) (string, error) {
	for range 20 { // deeper graphs are rare
		failed, ok := err.(*kahn.NodeError)
		if !ok {
			return path, err
		}
		switch inner := failed.Err.(type) {
		case *kahn.NodeError:
			path, err = path+"/"+inner.Node, inner
		case *kahn.RunError:
			if len(inner.Errs) == 0 {
				return path, inner
			}
			first, ok := inner.Errs[0].(*kahn.NodeError)
			if !ok {
				return path, inner.Errs[0]
			}
			path, err = path+"/"+first.Node, first
		case *kahn.MapError:
			if len(inner.Errs) == 0 {
				return path, inner
			}
			path, err = fmt.Sprintf("%s[%d]", path, inner.Indexes[0]), inner.Errs[0]
		case nil:
			return path, failed
		default:
			// An error of a step is shown without its kind. So is a panic, since its text begins with the kind anyway.
			if failed.Kind == kahn.CauseStepError || failed.Kind == kahn.CausePanic {
				return path, inner
			}
			return path, fmt.Errorf("%v: %w", failed.Kind, inner)
		}
	}
	return path, err
}

// addCause adds to the row what went wrong in an ended run: the error of a failed node, and who stopped the run and why. It leaves out what the
// client may not see.
func (c *call) addCause(row *runRow, run subject) {
	in := *c
	in.target = run
	if len(row.Failed) > 0 {
		if res, err := run.Node(row.Failed[0]); err == nil {
			in.addError(row, row.Failed[0], res.Err)
		}
	}
	if !row.Status.Terminal() || row.Status == kahn.RunCompleted {
		return
	}
	request := in.stopRequest(row.Last)
	if row.Cause == "" || row.Error == "" {
		in.addStop(row, run)
	}
	if c.mayViewData() {
		row.StoppedBy = clip(request.Actor, shownText)
		row.StopReason = in.dataText(Value{Kind: Answer, Name: "comment", Value: request.Reason})
	}
}

// addError adds the error of a node, which may be a composite.
func (c *call) addError(row *runRow, node string, err error) {
	path, cause := causeOf(node, err)
	if row.Error = firstLine(c.shownError(path, cause)); row.Error != "" {
		row.ErrorPath = path
	}
}

// stopRequest returns the request that stopped the run. It returns the zero Request if there was none, or if neither the last event nor
// the store contains it.
func (c *call) stopRequest(last uint64) kahn.Request {
	if e, ok := eventAt(c.r.Context(), c.target, last); ok {
		if end, ok := e.Payload.(event.RunEnd); ok {
			return end.Request
		}
	}
	if s := c.stored(); s != nil && s.snapshot != nil {
		return s.snapshot.StopRequest()
	}
	return kahn.Request{}
}

// addStop adds the cause for which the whole run was stopped. It reads the cause from the first node that was stopped with the run. If the row has no
// error yet, addStop also adds the error with which the program stopped the run.
func (c *call) addStop(row *runRow, run subject) {
	for n := range run.Nodes() {
		if n.Status != kahn.Cancelled && n.Status != kahn.Aborted || !stopsRuns[n.Cause.Kind] {
			continue
		}
		if row.Cause == "" {
			row.Cause = n.Cause.Kind.String()
		}
		if err := stopError(n.Cause.Err); row.Error == "" && err != nil {
			row.Error = firstLine(c.shownError("", err))
		}
		return
	}
}

// stopsRuns contains the causes for which a whole run is stopped.
var stopsRuns = map[kahn.CauseKind]bool{
	kahn.CauseFailFast: true, kahn.CauseAbortAll: true, kahn.CauseBudget: true, kahn.CauseRunTimeout: true, kahn.CauseStoreError: true,
	kahn.CauseContext: true, kahn.CauseCancelRun: true,
}

// stopError returns the error with which a program has stopped a run, or nil if the error says no more than the cause.
func stopError(err error) error {
	if own, ok := err.(*kahn.NodeError); ok {
		err = own.Err
	}
	switch err { //nolint:errorlint // an error that wraps one of these says more
	case kahn.ErrAborted, kahn.ErrCancelled, kahn.ErrRunTimeout, context.Canceled, context.DeadlineExceeded:
		return nil
	}
	return err
}
