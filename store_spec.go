package kahn

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/store"
)

// ErrNotDue refuses to begin a run that was created for a later time, by the clock of this process, see [store.NewRun].
var ErrNotDue = errors.New("the run is not due")

// RunLabels are the labels of a durable run, by which [store.Admin] finds it. Those that are given when the run goes on replace the stored
// ones.
func RunLabels(labels map[string]string) Option {
	labels = maps.Clone(labels)
	return optionFunc(func(c *config) error {
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			if !utf8.ValidString(name) || !utf8.ValidString(labels[name]) {
				return fmt.Errorf("%w: RunLabels: %s: %s is not UTF-8", ErrBadOption, quoteID(name), quoteID(labels[name]))
			}
		}
		c.described().Labels = labels
		return nil
	})
}

// ParentRun is the id of the run that a durable run was started for, by which [store.Admin] finds it. One that is given when the run goes on
// replaces the stored one.
func ParentRun(id string) Option {
	return optionFunc(func(c *config) error {
		if !utf8.ValidString(id) {
			return fmt.Errorf("%w: ParentRun(%s) is not UTF-8", ErrBadOption, quoteID(id))
		}
		c.described().Parent = id
		return nil
	})
}

// described returns the part of the run's Spec that options give, as a copy: other configs may share the one before.
func (c *config) described() *store.Spec {
	var s store.Spec
	if c.spec != nil {
		s = *c.spec
	}
	c.spec = &s
	return &s
}

// Prepare returns a run that [store.Admin] can create, in whatever process: nothing is performed. Of the options, [RunID], [Inputs],
// [Encoding], [RunLabels] and [ParentRun] matter; without RunID the id is a new one. The errors are those of [Execute] about the graph,
// the options and the inputs. A run that is fired, see [Fire], cannot be prepared.
//
// Whoever calls Execute with the id and [Durable] performs the run, with the inputs that are stored. Other inputs are then an error that matches
// [store.ErrMismatch], another graph is one that matches [ErrGraphChanged], unless [AllowGraphChange] is given, and before NotBefore the
// error matches [ErrNotDue].
func Prepare(g *Graph, opts ...Option) (n store.NewRun, err error) {
	p, err := g.compiled()
	if err != nil {
		return n, err
	}
	c, err := configure(opts, false)
	switch {
	case err != nil:
		return n, err
	case c.fired != nil:
		return n, fmt.Errorf("%w: Prepare with Fire", ErrBadOption)
	}
	if err := p.checkInputs(c.inputs, c.inputs); err != nil {
		return n, err
	}
	r := &Run{runGiven: runGiven{plan: p, cfg: c}, runNest: runNest{instance: &notNested}}
	spec, err := r.spec()
	return store.NewRun{ID: r.ID(), Spec: spec}, err
}

// spec is what a store keeps of what the run is to do. It calls user code.
func (r *Run) spec() (s store.Spec, err error) {
	if r.cfg.spec != nil {
		s = *r.cfg.spec
	}
	s.Workflow, s.Plan = r.plan.name, r.plan.Hash()
	if s.Inputs = r.cfg.inputText; s.Inputs == nil {
		s.Inputs, err = encodeInputs(r.cfg.inputs, r.cfg.encode)
	}
	return s, err
}

// keepGiven encodes the inputs, and the payload of the trigger, that a run over a store was given, so that nothing begins which the store
// cannot hold. It calls user code.
func (r *Run) keepGiven() (err error) {
	c := r.cfg
	if c.inputText, err = encodeInputs(c.inputs, r.keep); err != nil {
		return err
	}
	if f := c.fired; f != nil {
		if f.text, err = r.keep(f.payload); err != nil {
			return fmt.Errorf("the payload of %s: %w", quoteID(f.trigger), err)
		}
	}
	return nil
}

func (c *config) encode(value any) (json.RawMessage, error) { return encodeValue(c.codec, value) }

// encodeInputs makes a JSON object of the inputs of a run, nil if there are none. The error names the first input, by name, that cannot be
// encoded.
func encodeInputs(inputs map[string]any, encode func(value any) (json.RawMessage, error)) (json.RawMessage, error) {
	if len(inputs) == 0 {
		return nil, nil
	}
	texts := make(map[string]json.RawMessage, len(inputs))
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		text, err := encode(inputs[name])
		if err == nil && !utf8.ValidString(name) {
			err = fmt.Errorf("%w: its name is not UTF-8", ErrNotEncodable)
		}
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", quoteID(name), err)
		}
		texts[name] = text
	}
	return json.Marshal(texts)
}

// readInputs decodes a JSON object of inputs to stored values that no codec has seen.
func readInputs(data json.RawMessage) (inputs map[string]stored, err error) {
	if data == nil {
		return nil, nil
	}
	if err := json.Unmarshal(data, &inputs); err != nil {
		return nil, fmt.Errorf("%w: stored inputs: %w", ErrBadValue, err)
	}
	return inputs, nil
}

// createdInputs are the inputs with which a run was created.
func createdInputs(codec Codec, created *store.Run) (map[string]any, error) {
	stored, err := readInputs(created.Inputs)
	if err != nil {
		return nil, err
	}
	file, err := (&Snapshot{file: snapshotFile{Inputs: stored}}).decode(codec)
	if err != nil {
		return nil, err
	}
	inputs := make(map[string]any, len(stored))
	for name, v := range file.Inputs {
		inputs[name] = v.value
	}
	return inputs, nil
}

// adopt takes over what a run was created with that begins now. What the run was given must not contradict that.
func (r *Run) adopt(created *store.Run) (err error) {
	if created == nil || created.Plan == "" && created.Workflow == "" && created.Inputs == nil {
		return nil // nobody has created it
	}
	if now := time.Now(); now.Before(created.WakeAt) {
		return fmt.Errorf("%w: run %s may begin at %v", ErrNotDue, quoteID(created.ID), created.WakeAt.Format(time.RFC3339Nano))
	}
	p, c := r.plan, r.cfg
	if err := r.sameWorkflow(created); err != nil {
		return err
	}
	if created.Plan != "" && created.Plan != p.Hash() && !c.allowChange {
		return fmt.Errorf("%w: run %s was created for the plan with the hash %s, not %s", ErrGraphChanged, quoteID(created.ID), created.Plan, p.Hash())
	}
	given := c.inputs
	if c.inputs, err = createdInputs(c.codec, created); err != nil || given == nil {
		return err
	}
	has, err := encodeInputs(c.inputs, c.encode) // by the codec of today, as those given: that of the time of creation may have had another key
	if err != nil {
		return err
	}
	if !store.SameInputs(c.inputText, has) {
		return fmt.Errorf("%w: run %s has other inputs", store.ErrMismatch, quoteID(created.ID))
	}
	return nil
}

// sameWorkflow refuses a stored run of another workflow, unless the graph may change. The name of a workflow is no part of the plan's hash.
func (r *Run) sameWorkflow(s *store.Run) error {
	if s.Workflow == r.plan.name || r.cfg.allowChange {
		return nil
	}
	if s.Workflow == "" && s.Plan == "" { // a former version has stored the run
		return nil
	}
	return otherWorkflow(s.ID, s.Workflow, r.plan)
}

// specify notes in the durable whether its next commit has to tell what the run does: the store does not know it, or knows something else.
// given tells that the host has given inputs to a run that goes on.
func (r *Run) specify(s *store.Spec, given bool) {
	c, d := r.cfg, r.durable
	d.unspecified = s.Workflow != r.plan.name || s.Plan != r.plan.Hash() || given
	if c.spec == nil {
		c.spec = &store.Spec{Labels: s.Labels, Parent: s.Parent}
		return
	}
	x := c.described()
	if x.Labels == nil {
		x.Labels = s.Labels
	}
	if x.Parent == "" {
		x.Parent = s.Parent
	}
	d.unspecified = d.unspecified || !maps.Equal(x.Labels, s.Labels) || x.Parent != s.Parent
}
