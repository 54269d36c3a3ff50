package kahn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/store"
)

// Adoption lists the nodes of a run that goes on with another plan: those that keep their results, run and are dropped. See [Adopt].
type Adoption struct {
	Keep    []string    // the nodes that keep their results, in the order of declaration
	Run     []AdoptNode // those that run, in the order of declaration
	Dropped []string    // those that the run has begun and the new graph does not have, sorted
}

// AdoptNode is a node that runs in a run that goes on with another plan.
type AdoptNode struct {
	Node   string
	Reason AdoptReason
	After  string // under AdoptFollows the node that it follows
}

// AdoptReason tells why a node does not keep a result.
type AdoptReason uint8

// The reasons.
const (
	AdoptNoResult AdoptReason = iota // the run has no result of it: it is new, or has not completed
	AdoptChanged                     // its declaration is another one, or its in-edges or its inside are
	AdoptFollows                     // it follows a node that runs

	adoptReasonCount
)

var adoptReasonNames = [adoptReasonCount]string{"no_result", "changed", "follows"}

// String returns "no_result", "changed" or "follows".
func (a AdoptReason) String() string { return enum.Name(adoptReasonNames[:], int(a), "AdoptReason") }

// MarshalText encodes a as its name. A value outside the enum is an error that matches [ErrBadValue].
func (a AdoptReason) MarshalText() ([]byte, error) {
	return enum.Text(adoptReasonNames[:], int(a), "reason of an adoption")
}

// UnmarshalText decodes a name. Anything else is an error that matches [ErrBadValue].
func (a *AdoptReason) UnmarshalText(text []byte) error {
	return enum.Parse(a, adoptReasonNames[:], text, "reason of an adoption")
}

// AdoptPreview tells what [Adopt] would do to a run of which [ReadSnapshot] has read the snapshot. It changes nothing, and reads no values.
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
	return p.adoption(s.file.Nodes)
}

// adoptable refuses a run that cannot go on with another plan.
func (file *snapshotFile) adoptable(p *Plan) error {
	switch {
	case file.Status.Terminal():
		return fmt.Errorf("%w: run %s is %v", ErrFinished, quoteID(file.Run), file.Status)
	case file.Stop != nil:
		return fmt.Errorf("%w: run %s is being stopped", ErrFinished, quoteID(file.Run))
	case file.Graph != p.name:
		return otherWorkflow(file.Run, file.Graph, p)
	}
	return nil
}

func otherWorkflow(run, workflow string, p *Plan) error {
	return fmt.Errorf("%w: run %s is one of the workflow %s, not %s", ErrGraphChanged, quoteID(run), quoteID(workflow), quoteID(p.name))
}

// adoption compares the nodes of a run with those of the plan.
func (p *Plan) adoption(nodes []nodeState) (*Adoption, error) {
	p.Hash() // and of its nodes
	again, err := p.forkAgain(nodes, nil)
	if err != nil {
		return nil, err
	}
	a, had := new(Adoption), map[Ref]*nodeState{}
	for i := range nodes {
		if ref, ok := p.Ref(nodes[i].ID); ok {
			had[ref] = &nodes[i]
		} else {
			a.Dropped = append(a.Dropped, nodes[i].ID)
		}
	}
	slices.Sort(a.Dropped)
	for _, ref := range p.declared {
		switch n := had[ref]; {
		case !again[ref]:
			a.Keep = append(a.Keep, p.names[ref])
		case n == nil || !n.Status.Terminal():
			a.Run = append(a.Run, AdoptNode{Node: p.names[ref]})
		case n.Hash != p.nodeHash(ref):
			a.Run = append(a.Run, AdoptNode{Node: p.names[ref], Reason: AdoptChanged})
		default:
			a.Run = append(a.Run, p.adoptFollower(ref, n, again))
		}
	}
	return a, nil
}

// adoptFollower is the entry of a node that has ended and runs although its declaration is the same.
func (p *Plan) adoptFollower(ref Ref, n *nodeState, again []bool) AdoptNode {
	if origin, ok := p.Ref(n.Origin); ok && n.superseded() && again[origin] {
		return AdoptNode{p.names[ref], AdoptFollows, n.Origin}
	}
	for _, i := range p.net.In(ref) {
		if from := p.net.Source(i); again[from] {
			return AdoptNode{p.names[ref], AdoptFollows, p.names[from]}
		}
	}
	return AdoptNode{Node: p.names[ref]} // it failed, or is the end node
}

// Adopt makes a run of a store, that has begun under another version of its graph, go on with this one: a node keeps its result, with all that is
// inside of it, if it completed, was skipped or was superseded, if its hash in both plans is the same, see [Plan.Hash], and if it follows no node
// that runs. All others run anew: attempts count from 1, a gate that waits asks again, with a new deadline, and maps and loops that have not
// ended begin with their first item or iteration. An answer to a gate is the result of the gate; answers to gates that the run has not
// reached are kept. Nodes that the graph does not have any more are taken out of the run. [AdoptPreview] tells all that beforehand. Go functions have
// no hash: what a changed function has done is kept, unless its node is changed, too, such as its Config.
//
// Adopt performs nothing: one transaction takes back what the run loses, and stores the new plan; then the run is due. So the run is in the
// queue of the new plan, see [Runner.Serve], or goes on with Execute. Before that transaction it is as it was. A run that has not begun gets
// the new plan, and nothing else changes. Of the options [Encoding], [Owner] and [LeaseTime] matter.
//
// A run that somebody performs, and one that has not begun and has requests, are errors that match [ErrLeased], one that has ended or is being stopped one that matches [ErrFinished]: redrive
// or fork it. One of another workflow is an error that matches [ErrGraphChanged], one that is not stored one that matches [ErrUnknownRun].
// Inputs that the new graph needs, and the run does not have, are an error that matches [ErrMissingInput].
func Adopt(ctx context.Context, g *Graph, s store.Admin, run string, opts ...Option) (*Adoption, error) {
	p, err := g.compiled()
	if err != nil {
		return nil, err
	}
	old, err := ReadSnapshot(ctx, s, run)
	if errors.Is(err, ErrNotEnded) { // it has not begun
		return p.adoptCreated(ctx, s, run, opts)
	}
	if err != nil {
		return nil, err
	}
	if err := old.file.adoptable(p); err != nil { // before its lease is taken
		return nil, err
	}
	a := new(Adoption)
	opts = append(slices.Clone(opts), Durable(s), RunID(run), RedriveFrom(nil), optionFunc(func(c *config) error {
		c.adopts = a
		return nil
	}))
	if err := p.write(ctx, opts); err != nil {
		return nil, err
	}
	return a, nil
}

// adoptCreated gives another plan to a run that was created and has not begun.
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
	case errors.Is(err, store.ErrExists): // it has been asked for something, or has begun since
		return nil, fmt.Errorf("%w: run %s has begun, or has requests that it takes when it begins: %w", ErrLeased, quoteID(run), err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return p.adoption(nil)
}

// adopt makes the restoration of a run that goes on with another plan: it forgets the nodes that run anew, and those that the plan does not have.
func (x *restoration) adopt(p *Plan, c *config) error {
	file := &x.file
	if err := file.adoptable(p); err != nil {
		return err
	}
	a, err := p.adoption(file.Nodes)
	if err != nil {
		return err
	}
	*c.adopts = *a
	again := make([]bool, len(p.names))
	for _, n := range a.Run {
		ref, _ := p.Ref(n.Node)
		again[ref] = true
	}
	var refs []Ref
	file.Nodes = slices.DeleteFunc(file.Nodes, func(n nodeState) bool {
		ref, ok := p.Ref(n.ID)
		if ok {
			refs = append(refs, ref)
		}
		return !ok
	})
	return x.forget(p, c, refs, again)
}
