package kahn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Adoption lists what happens to the nodes when a run continues with another plan: some keep their results, some run, and some are dropped. See
// [Adopt].
type Adoption struct {
	Keep    []string    // the nodes that keep their results, in the order of declaration
	Run     []AdoptNode // the nodes that run, in the order of declaration
	Dropped []string    // the nodes that the run has begun and that are not in the new graph, sorted
}

// AdoptNode is a node that runs when a run continues with another plan.
type AdoptNode struct {
	Node   string
	Reason string // one of the constants below
	After  string // the node that this node follows, if the Reason is AdoptFollows
}

// The values of Reason in an [AdoptNode]. They are the reasons why the node does not keep a result.
const (
	AdoptNoResult = "no_result" // the run has no result of the node: the node is new, or has not completed
	AdoptChanged  = "changed"   // the declaration of the node differs, or its in-edges or the nodes inside it differ
	AdoptFollows  = "follows"   // the node follows a node that runs again
)

// AdoptPreview returns the Adoption that [Adopt] would return for the run of the snapshot s, see [ReadSnapshot]. It changes nothing and reads no
// values.
func AdoptPreview(p *Plan, s *Snapshot) (*Adoption, error) {
	switch {
	case !p.isCompiled():
		return nil, ErrNoGraph
	case s == nil:
		return nil, fmt.Errorf("%w: there is no snapshot", ErrBadOption)
	}
	if err := s.file.adoptable(p); err != nil {
		return nil, err
	}
	if f := s.file.Fired; f != nil { // the run has only the nodes to which its trigger leads, as in Run.fire
		switch pruned, err := p.Prune(f.Trigger, f.Prune); {
		case err == nil:
			p = pruned
		case !errors.Is(err, ErrUnknownTrigger):
			return nil, err
		}
	}
	a, _, err := p.adoption(s.file.Nodes)
	return a, err
}

// adoptable returns an error if the run cannot continue with another plan.
func (file *snapshotFile) adoptable(p *Plan) error {
	switch {
	case file.Status.Terminal():
		return fmt.Errorf("%w: run %s is %v", ErrFinished, quoteID(file.Run), file.Status)
	case file.Stop != nil:
		return fmt.Errorf("%w: run %s is being stopped", ErrFinished, quoteID(file.Run))
	case file.Undoing != nil && file.Undoing.Status != RunPending:
		return fmt.Errorf("%w: run %s is undoing its nodes", ErrFinished, quoteID(file.Run))
	case file.Graph != p.name:
		return otherWorkflow(file.Run, file.Graph, p)
	}
	// Before its next attempt, a composite may undo the nodes inside it, although the run itself undoes nothing.
	if list := undecided(nil, file.Nodes, ""); len(list) > 0 {
		return fmt.Errorf("%w: run %s is undoing node %s, or could not undo it", ErrFinished, quoteID(file.Run), quoteID(list[0]))
	}
	return nil
}

func otherWorkflow(run, workflow string, p *Plan) error {
	return fmt.Errorf("%w: run %s belongs to workflow %s, not %s", ErrGraphChanged, quoteID(run), quoteID(workflow), quoteID(p.name))
}

// adoption compares the run's nodes with the nodes of the plan.
func (p *Plan) adoption(nodes []nodeState) (*Adoption, *again, error) {
	d := redo{Strict: true}
	again, err := d.outermost(p, nodes, nil)
	if err != nil {
		return nil, nil, err
	}
	a := new(Adoption)
	for i := range nodes {
		if _, ok := p.Ref(nodes[i].ID); !ok {
			a.Dropped = append(a.Dropped, nodes[i].ID)
		}
	}
	slices.Sort(a.Dropped)
	for _, ref := range p.declared {
		if !again.is(ref) {
			a.Keep = append(a.Keep, p.names[ref])
		}
	}
	a.add(again, nodes, "")
	return a, again, nil
}

// The method `add` adds the nodes that run again to a.Run. After each composite that continues, `add` lists the nodes inside it that run again.
func (a *Adoption) add(again *again, nodes []nodeState, prefix string) {
	p, had := again.plan, again.plan.found(nodes)
	for _, ref := range p.declared {
		n, in := had[ref], again.inside[ref]
		run := AdoptNode{Node: prefix + p.names[ref], Reason: AdoptNoResult}
		switch {
		case !again.is(ref):
			continue
		case in != nil || n == nil || !n.Status.Terminal():
		case prefix == "" && n.Hash != p.nodeHash(ref):
			run.Reason = AdoptChanged
		default:
			if after := again.follows(ref, n); after != "" {
				run.Reason, run.After = AdoptFollows, prefix+after
			}
		}
		if a.Run = append(a.Run, run); in != nil && in.plan != nil {
			a.add(in, n.Inside.Nodes, n.prefixInside(prefix))
		}
	}
}

// The node ref has ended and runs again. If it runs again because another node does, the method `follows` returns the id of the other node. It
// returns "" if ref has another reason, for example if ref failed and its predecessors keep their results.
func (a *again) follows(ref machine.Ref, n *nodeState) string {
	if origin, ok := a.plan.Ref(n.Origin); ok && n.superseded() && a.is(origin) {
		return n.Origin
	}
	for _, i := range a.plan.net.In(ref) {
		if from := a.plan.net.Source(i); a.is(from) {
			return a.plan.names[from]
		}
	}
	return ""
}

// Adopt lets a stored run continue with this version of its graph, although the run has begun under another version. A node and the nodes inside it
// keep their results under three conditions: the node completed, was skipped or was superseded; its hash is the same in both plans, see [Plan.Hash];
// it does not follow a node that runs. All other nodes run from the beginning. [AdoptPreview] returns the same Adoption beforehand, and
// docs/operating.md contains all rules. Go functions have no hash, so a node whose function has changed keeps its result, unless its declaration,
// such as its Config, also changes.
//
// Adopt performs no node. One transaction removes the results that are not kept, stores the new plan, and makes the run due. If it fails, the run is
// unchanged. If the run has not begun, Adopt just stores the new plan. Adopt uses the options [Encoding] and [Lease].
//
// The error matches [ErrLeased] if a process holds the run, or if the run has not begun and has requests. It matches [ErrFinished] if the run has
// ended, is being stopped or undoes nodes; redrive or fork it instead. It matches [ErrGraphChanged] if the run belongs to another workflow,
// [ErrUnknownRun] if it is not stored, and [ErrMissingInput] if the new graph needs inputs that the run does not have.
func Adopt(ctx context.Context, g *Graph, s store.Admin, run string, opts ...Option) (*Adoption, error) {
	p, err := g.Compile()
	if err != nil {
		return nil, err
	}
	old, err := ReadSnapshot(ctx, s, run)
	if errors.Is(err, ErrNotEnded) { // the run has not begun
		return p.adoptCreated(ctx, s, run, opts)
	}
	if err != nil {
		return nil, err
	}
	if err := old.file.adoptable(p); err != nil { // checked before the lease of the run is acquired
		return nil, err
	}
	a := new(Adoption)
	opts = append(slices.Clone(opts), Durable(s), RunID(run), Redrive(nil, nil), optionFunc(func(c *config) error {
		c.adopts = a
		return nil
	}))
	if err := p.write(ctx, opts); err != nil {
		return nil, err
	}
	return a, nil
}

// AdoptSnapshot continues a run from a snapshot with this version of its graph, although the run has begun under another version. The rules are the
// rules of [Adopt], and [AdoptPreview] returns the same Adoption beforehand. A [Request] names who asks; the Result and the events
// run.status.changed and node.invalidated contain the Request. AdoptSnapshot is for hosts that keep snapshots themselves; for a stored run, use
// Adopt.
//
// The error matches [ErrBadOption] if s is nil or the run has a store. It matches [ErrFinished], [ErrGraphChanged] and [ErrMissingInput] in the same
// cases as the error of Adopt. After such an error, no step has run.
func AdoptSnapshot(s *Snapshot, by ...Request) Option {
	return optionFunc(func(c *config) error {
		if s == nil {
			return fmt.Errorf("%w: AdoptSnapshot(nil)", ErrBadOption)
		}
		err := Redrive(s, nil, by...).apply(c)
		c.adopts = new(Adoption)
		return err
	})
}

// adoptCreated replaces the plan of a run that was created and has not begun.
func (p *Plan) adoptCreated(ctx context.Context, s store.Admin, run string, opts []Option) (*Adoption, error) {
	c, err := configure(opts, false)
	if err != nil {
		return nil, err
	}
	var created *store.Run
	err = guarded(func() (err error) {
		created, err = s.Load(ctx, run)
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	case created.Workflow != p.name:
		return nil, otherWorkflow(run, created.Workflow, p)
	}
	f, err := firingOf(created.Inputs)
	if err == nil && f != nil {
		p, err = p.Prune(f.Trigger, f.Prune)
	}
	if err != nil {
		return nil, err
	}
	inputs, err := createdInputs(c.codec, created)
	if err != nil {
		return nil, err
	}
	if err := p.checkInputs(inputs, inputs); err != nil {
		return nil, err
	}
	n := store.NewRun{ID: run, Spec: created.Spec, NotBefore: created.WakeAt, IfExists: store.ReplaceUnasked}
	n.Plan = p.Hash()
	err = guarded(func() error { _, _, err := s.Create(ctx, n); return err })
	switch {
	case errors.Is(err, store.ErrExists): // the run has requests, or has begun in the meantime
		return nil, fmt.Errorf("%w: run %s has begun, or has requests that it takes when it begins: %w", ErrLeased, quoteID(run), err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	a, _, err := p.adoption(nil)
	return a, err
}

// adopt prepares the restoration for another plan: it removes the nodes that run again, and the nodes that are not in the plan.
func (x *restoration) adopt(p *Plan, c *config) error {
	file := &x.file
	if err := file.adoptable(p); err != nil {
		return err
	}
	a, again, err := p.adoption(file.Nodes)
	if err != nil {
		return err
	}
	*c.adopts = *a
	file.Nodes = slices.DeleteFunc(file.Nodes, func(n nodeState) bool {
		_, ok := p.Ref(n.ID)
		return !ok
	})
	return x.forget(p, c, again)
}
