package temporal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// AdoptUpdate is the name of the update that moves a run to another version of its plan, see [Run.Adopt].
const AdoptUpdate = "kahn.Adopt"

// adoptRequest is the argument of AdoptUpdate.
type adoptRequest struct {
	Plan   planID `json:"plan"`
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Checked says that the sender has the plan, and has checked that the run can continue with it. The run may then accept a plan that its worker does
	// not have, because another worker has it.
	Checked bool `json:"checked,omitempty"`
}

// adopting is the part of a workflow's input that describes an adoption. The input also has the new plan, and the snapshot of the run.
type adopting struct {
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// adoptedName names the member of the memo that has the present planID of an adopted run. The member "kahn" keeps the planID with which the run
// began.
const adoptedName = "kahn.adopted"

// Adopt moves a running run to the Plan of its Workflow, see [Attach], although the run began with another version of the plan. The rules of
// kahn.Adopt apply: completed nodes that are unchanged keep their results, and kahn.AdoptPreview lists these nodes for a Snapshot of the run. Adopt
// returns when the run has accepted the plan. From then on, no further attempt begins. When the running attempts have ended, the run continues with
// the new plan in a new execution. So a running attempt is not repeated, unless its node has changed. If the run ends or is stopped before it
// continues, it keeps its former plan. The worker that performs the run needs the former plan; the next worker needs only the new plan.
//
// If Adopt returns an error, the run has not changed and its history has no further event. The error matches [kahn.ErrFinished] if the run has ended,
// is being stopped or undoes nodes, [kahn.ErrGraphChanged] if the plan belongs to another workflow, [kahn.ErrMissingInput] if the plan needs inputs
// that the run does not have, [ErrTooLarge] if the run cannot continue as a new execution, and [kahn.ErrUnknownRun] if there is no workflow.
func (r *Run) Adopt(ctx context.Context, q kahn.Request) error {
	if err := check(r.of.Plan, true); err != nil {
		return err
	}
	s, err := r.Snapshot(ctx)
	if err == nil {
		err = adoptable(r.of.Plan, s, nil, r.of.texts().Codec)
	}
	if err != nil {
		return fmt.Errorf("kahn/temporal: workflow %q: %w", r.of.ID, known(err))
	}
	return r.update(ctx, AdoptUpdate, adoptRequest{idOf(r.of.Plan), q.Actor, q.Reason, true})
}

// adoptable returns an error if a run cannot continue from a snapshot with a plan. It calls no function of the plan.
func adoptable(p *kahn.Plan, s *kahn.Snapshot, settings []kahn.Option, codec kahn.Codec) error {
	if _, err := kahn.AdoptPreview(p, s); err != nil {
		return err
	}
	opts := append(slices.Clone(settings), kahn.Encoding(codec), kahn.Retain(0), uncalled)
	_, err := kahn.NewCoordinator(p, time.Now(), append(opts, kahn.AdoptSnapshot(s))...)
	return err
}

// checkAdopt returns an error if the run would refuse an adoption. It changes nothing.
func (x *interpreter) checkAdopt(r adoptRequest) error {
	if r.Plan == x.in.Plan {
		return nil // the run has the plan; perhaps the request was sent twice
	}
	if x.full {
		return fmt.Errorf("kahn/temporal: %w: the results of the run do not fit into a new execution, so the run cannot adopt a plan", ErrTooLarge)
	}
	s := x.c.Run().Snapshot()
	if p := x.plans[r.Plan]; p != nil {
		return adoptable(p, s, x.in.Settings.options(), x.host.texts.Codec)
	}
	switch {
	case !r.Checked:
		return fmt.Errorf("kahn/temporal: %w %q with the fingerprint %q: it has %s", ErrUnknownPlan, r.Plan.Name, r.Plan.Print, x.choices())
	case r.Plan.Name != x.plan.Name():
		return fmt.Errorf("kahn/temporal: %w: the run belongs to workflow %q, not %q", kahn.ErrGraphChanged, x.plan.Name(), r.Plan.Name)
	}
	// The worker does not have the new plan, so it checks with the former plan whether the run can be adopted at all.
	_, err := kahn.AdoptPreview(x.plan, s)
	return err
}

// The method `choices` returns a text with the fingerprints of the worker's plans that have the name of the run's plan.
func (x *interpreter) choices() string {
	var list []string
	for _, p := range x.Plans {
		if p.Name() == x.plan.Name() {
			mark := ""
			if idOf(p) == x.in.Plan {
				mark = " (the plan of the run)"
			}
			list = append(list, fingerprint(p)+mark)
		}
	}
	return strings.Join(list, ", ")
}

// The method `adopt` makes the run leave this execution, to continue with another plan. It does nothing if the run has the requested plan.
func (x *interpreter) adopt(r adoptRequest) error {
	if r.Plan != x.in.Plan {
		x.adopting, x.leaving = &r, true
	}
	return nil
}

// The method `adopted` changes the input of the next execution if an operator has moved the run to another plan. It leaves the input as it is if the
// run was stopped after the request.
func (x *interpreter) adopted(next *input, s *kahn.Snapshot) (moved bool) {
	r := x.adopting
	if r == nil {
		return false
	}
	if _, err := kahn.AdoptPreview(x.plan, s); err != nil {
		workflow.GetLogger(x.ctx).Warn("kahn/temporal: the run keeps its plan", "plan", r.Plan.Print, "error", err)
		return false
	}
	// The details of heartbeats are not kept, since the nodes that have not completed begin again with their first attempts.
	next.Plan, next.Adopting, next.Beats = r.Plan, &adopting{r.Actor, r.Reason}, nil
	return true
}

// The method `note` records the plan of an adopted run in the memo, for programs that start or read the run.
func (a *adopting) note(ctx workflow.Context, id planID) error {
	if a == nil {
		return nil
	}
	return workflow.UpsertMemo(ctx, map[string]any{adoptedName: id})
}

// The method `options` returns the options of a Coordinator for an adoption from a snapshot.
func (a *adopting) options(from *kahn.Snapshot) []kahn.Option {
	return []kahn.Option{kahn.AdoptSnapshot(from, kahn.Request{Actor: a.Actor, Reason: a.Reason})}
}
