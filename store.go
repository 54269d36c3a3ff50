package kahn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/seed-c794f7ef/kahn/internal/owned"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// The errors of stores. All except ErrStore come from package store.
var (
	// ErrFenced is returned for a write if the writer's lease has expired, or if another owner has taken over the lease.
	ErrFenced = store.ErrFenced
	// ErrLeased is returned if another owner holds the run.
	ErrLeased = store.ErrLeased
	// ErrUnknownRun is returned if the run is not stored.
	ErrUnknownRun = store.ErrUnknownRun
	// ErrRejected is returned if the store can never contain a value: the value is too large, or contains characters that the store cannot
	// represent.
	ErrRejected = store.ErrRejected
	// ErrUnusable is returned if the store cannot be used: it has no schema, it has the schema of another version, its file is not a database, or
	// it is read-only. The engine does not repeat the call.
	ErrUnusable = store.ErrUnusable
	// The error of [Execute] matches ErrStore if kahn has left the run because the store did not answer, or if the run failed because of the store.
	// If the store returns an error to a function that reads a stored run, such as [ReadRun], the function's error matches ErrStore.
	ErrStore = errors.New("store")
)

// Durable makes the run durable. kahn stores an attempt before it calls the step. The step's result becomes visible after its commit. If the
// store contains a run with the id from [RunID], this run continues from its stored state. Without a RunID, each call begins a new run. The error
// matches [ErrFinished] if the stored run has ended, see [ReadResult]. The codec from [Encoding], by default nil [Types], encodes the values.
//
// If the store does not answer a write, kahn repeats the write until the lease expires, see [Lease]. It does not repeat the run's first write in this
// process, or a write for which the store returns [ErrUnusable]. When kahn gives up a write, it leaves the run, as [Run.Leave] does; the error
// matches [ErrStore], and the Result contains the stored state. kahn also leaves the run if the store rejects a step's output with [ErrRejected];
// when the run continues, the node fails with [CauseStoreRejected]. The run fails with [CauseStoreError] if another owner holds it, or if the store
// refuses any other write.
//
// When the caller's context ends, kahn leaves the run: Execute returns the Result and an error that matches [ErrLeft] and the context's cause.
// [CancelWithContext] cancels the run instead. docs/durable.md describes what is repeated when the run continues.
func Durable(s store.Store) Option {
	return optionFunc(func(c *config) error {
		if s == nil {
			return fmt.Errorf("%w: Durable(nil)", ErrBadOption)
		}
		c.store, c.checkValues = s, true
		return nil
	})
}

// EarlySignals answers nodes before the run starts or continues. If the run continues from a snapshot or a store, it answers the waiting nodes. In
// any run, it answers gates that the run has not reached, or that a redrive reaches again. A gate in a composite can be answered if the composite
// has begun. The keys of the map `signals` name the nodes by id, by path in a composite, or by token. Inside an expanded node, a node can be answered
// if it waits. Check and Schema of a gate judge this answer when kahn knows the graph of the expanded node. A gate keeps the deadline of its first
// wait; if this deadline has passed, the gate fails before any signal arrives.
//
// Execute returns the same errors as [Run.Signal] for a node that accepts no answer, [ErrDuplicateGate] if two signals name the same node, and a
// [*ChoiceError] if a signal is not one of the choices of a [Gate]. If Execute returns one of these errors, it has called no step.
func EarlySignals(signals map[string]any) Option {
	return optionFunc(func(c *config) error { c.signals = signals; return nil })
}

// leastRetry and mostRetry are the shortest and the longest pause after a failure of the store. Each successive failure doubles the pause.
const (
	leastRetry = time.Second
	mostRetry  = time.Minute
)

// retryPause returns the pause after a number of successive failures.
func retryPause(failures int) time.Duration {
	return min(leastRetry<<min(failures-1, 10), mostRetry)
}

// defaultLeaseTime is the length of a lease if the option Lease is not given.
const defaultLeaseTime = 30 * time.Second

// Lease sets the owner and the length of the run's lease in its store. An empty owner, or a time of 0, keeps the current setting.
//
// The owner is a name. An owner may acquire a run that it already holds. So if a process restarts with the same name after a crash, it continues its
// runs at once. Two processes with the same name would take runs from each other, so each process needs its own name. The default is a unique name,
// made of the host's name, the process id, the id of the machine's boot, and a random part.
//
// The time is the duration of the lease. The run renews the lease after a third of the time. If the lease expires because the store cannot be
// reached, kahn leaves the run. If the run's process dies, another owner can acquire the run after the lease has expired, or at once if the store is
// from package store/sqlite. Default: 30 s. The error matches [ErrBadOption] if the time is negative or below 1 us.
func Lease(owner string, d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("%w: Lease: the time %v is negative", ErrBadOption, d)
		}
		if lacksUnit(d) {
			return fmt.Errorf("%w: Lease: the time %v: is its unit missing?", ErrBadOption, d)
		}
		c.owner, c.leaseTime = cmp.Or(owner, c.owner), cmp.Or(d, c.leaseTime)
		return nil
	})
}

func init() {
	owned.Of = func(options any) string {
		list, _ := options.([]Option)
		c := byDefault[1]
		if c.apply(list) != nil { // Execute or Start will return the error
			return ""
		}
		return c.owner
	}
}

// machineAndProcess returns a name of this process for human readers of a store.
var machineAndProcess = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = []byte("-") // the system is not Linux; the random part must make the name unique
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), strings.TrimSpace(string(boot)))
})

// leaseOwner returns the owner for the lease that a run acquires.
func (c *config) leaseOwner() string {
	if c.owner != "" {
		return c.owner
	}
	return machineAndProcess() + "/" + uuid.NewString()
}

// The method `keep` encodes a value. It returns an error if the codec cannot encode the value or the store refuses it. It calls user code, so the
// caller must not hold the run's lock. If the run does not check its values, `keep` returns neither a text nor an error.
//
// The caller keeps the text beside the value until the text is written. So the codec is called once for each value. This matters, since the codec may
// encrypt the value or send it to another system.
func (r *Run) keep(value any) (text json.RawMessage, err error) {
	if !r.cfg.checkValues {
		return nil, nil
	}
	if text, err = encodeValue(r.cfg.codec, value); err != nil {
		return nil, err
	}
	checker, ok := r.cfg.store.(store.ValueChecker)
	if !ok {
		return text, nil
	}
	if err = guarded(func() error { return checker.CheckValue(text) }); errors.Is(err, ErrRejected) {
		return nil, err
	}
	return text, nil // any other error is reported when the text is committed
}

// forgetTexts drops the texts of a node. It is called after the end of the node was written to the store.
func (r *Run) forgetTexts(ref machine.Ref) {
	x := r.extras[ref]
	if x == nil {
		return
	}
	if x.texts != nil {
		x.texts = nil
	}
	if x.items != nil {
		x.items.text = nil
	}
}

// outputText adds the text of a completed node's output to the node's pending write.
func (r *Run) outputText(ref machine.Ref, status Status, text json.RawMessage) {
	if d := r.durable; d != nil && d.failed == nil && status == Completed && text != nil {
		d.pending(place{r, ref}).text = text
		d.outbox.bytes += len(text)
	}
}

// causeOfKeep returns the cause with which a node fails if `keep` has returned err for the node's value.
func causeOfKeep(err error) CauseKind {
	if errors.Is(err, ErrRejected) {
		return CauseStoreRejected
	}
	return CauseStoreError
}

// ReadSnapshot returns a stored run as a [Snapshot], even if a process holds the run. A program can display the Snapshot, encode it as JSON, or pass
// it to [Redrive] or [Fork]. If the run has not ended, it can continue only from its store, not from the Snapshot. If the run has
// not begun, the error matches [ErrNotEnded] if the stored run has a Plan, see [Prepare], and [ErrUnknownRun] if it has none. The error also matches
// [ErrUnknownRun] if the run is not stored.
func ReadSnapshot(ctx context.Context, s store.Store, run string) (*Snapshot, error) {
	stored, err := load(ctx, s, run)
	if err != nil {
		return nil, err
	}
	file, err := fileOf(stored)
	if err != nil {
		return nil, err
	}
	return &Snapshot{file: file}, nil
}

// StoredRun is the state of a run in a store, see [ReadRun].
type StoredRun struct {
	ID       string
	Workflow string // the name of the graph
	Plan     string // the hash of the plan
	Labels   map[string]string
	Parent   string
	Status   RunStatus
	Epoch    int // 1 plus the number of redrives; 0 if the run has not begun
	// Created is the time at which the run was created, and Ended is the time at which it ended. WakeAt is the time at which the run continues even
	// if no answer arrives: the earliest end of a backoff, the earliest deadline, or the time at which the run may begin. Ended and WakeAt are zero
	// if there is no such time.
	Created, Ended, WakeAt time.Time
	// Compensation is the state of the run's compensations: see [Run.Compensation].
	Compensation Compensation
	// Usage is what the run's steps have used, by name. It includes all attempts that have ended, in any process. It is nil if they used nothing.
	Usage Usage
	// Counts maps a status to the number of nodes with this status. It counts the nodes of the outermost graph, but not idle nodes, since the
	// store has no records of them.
	Counts map[Status]int
	// Waiting describes the nodes that wait for an answer, as in the Result. But the field Info is JSON from the run's [Codec]; it is nil if the
	// node has no info.
	Waiting []Wait
	// Requests is the number of requests posted for the run that the run has not taken yet. It is 0 if the run has ended.
	Requests int
	// Holder is the owner of the lease, usually the process that performs the run. HeldUntil is the time at which the lease expires if it is not
	// renewed. Holder and HeldUntil are zero if no process holds the run, or if the store does not implement [store.LeaseReader].
	Holder    string
	HeldUntil time.Time
}

// ReadRun returns the state of a stored run. A process may hold the run, and the run may have ended or may not have begun. ReadRun needs no
// graph and decodes no values. The error matches [ErrUnknownRun] if the run is not stored, and [ErrStore] if the store fails.
func ReadRun(ctx context.Context, s store.Store, run string) (*StoredRun, error) {
	if ctx == nil {
		return nil, ErrNoContext
	}
	if s == nil {
		return nil, fmt.Errorf("%w: there is no store", ErrBadOption)
	}
	var holder string
	var until time.Time
	var stored *store.Run
	err := guarded(func() (err error) {
		if leases, ok := s.(store.LeaseReader); ok {
			if holder, until, err = leases.ReadLease(ctx, run); err != nil {
				return err
			}
		}
		stored, err = s.Load(ctx, run)
		return err
	})
	if err == nil && stored == nil {
		err = fmt.Errorf("%w: %s", ErrUnknownRun, quoteID(run))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	x := &StoredRun{
		ID: stored.ID, Workflow: stored.Workflow, Plan: stored.Plan, Labels: stored.Labels, Parent: stored.Parent, Status: stored.Status, Compensation: stored.Compensation, Usage: stored.Usage,
		Created: stored.Created, Ended: stored.Ended, WakeAt: stored.WakeAt, Counts: map[Status]int{}, Holder: holder, HeldUntil: until,
	}
	if !stored.Status.Terminal() && stored.Posted > stored.Taken {
		x.Requests = int(stored.Posted - stored.Taken)
	}
	if stored.Record == nil {
		return x, nil
	}
	file, err := fileOf(stored)
	if err != nil {
		return nil, err
	}
	x.Epoch = file.Epoch
	nodes, err := (&Snapshot{file: file}).Nodes(nil)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		x.Counts[nodes[i].Status]++
	}
	x.Waiting = waitsOf(nil, nodes)
	return x, nil
}

// waitsOf appends the waits of the nodes, and of all nodes inside them, to the list.
func waitsOf(list []Wait, nodes []SnapshotNode) []Wait {
	for i := range nodes {
		switch n := &nodes[i]; {
		case n.Status == Suspended && n.Wait != nil:
			wait := *n.Wait
			if info, ok := wait.Info.(json.RawMessage); ok && string(info) == "null" {
				wait.Info = nil // the node has no info
			}
			list = append(list, wait)
		case !n.Status.Terminal():
			list = waitsOf(list, n.Inside)
		}
	}
	return list
}

// In any process, ReadResult returns the Result of a stored run that has ended. The graph must be the run's graph, see [Plan.Hash]; otherwise the
// error matches [ErrGraphChanged]. ReadResult uses the options [AllowGraphChange], [Encoding] and [StatusRule]. The last two must be as in the run.
// If the run failed or was cancelled, ReadResult returns the same error as [Execute]. The error matches [ErrNotEnded] if the run has not ended, and
// [ErrUnknownRun] if the run is not stored. ReadResult performs no nodes. So, with AllowGraphChange, the error matches [ErrBadValue] if the graph has
// a node that did not end in the run.
//
// The Result is the same as from Execute, but has no Warnings and no nested Results of expanded nodes. Its Start is the beginning of the first
// attempt. Its Duration is the time from Start to the end of the last attempt.
func ReadResult(ctx context.Context, g *Graph, s store.Store, run string, opts ...Option) (*Result, error) {
	p, err := g.Compile()
	if err != nil {
		return nil, err
	}
	stored, err := load(ctx, s, run)
	if err != nil {
		return nil, err
	}
	if !stored.Status.Terminal() {
		return nil, fmt.Errorf("%w: run %s is %v", ErrNotEnded, quoteID(run), stored.Status)
	}
	r, err := reader(p, run, opts)
	if err != nil {
		return nil, err
	}
	x, err := r.restoreStored(stored)
	if err != nil {
		return nil, err
	}
	return r.readEnded(x, stored.Status)
}

// load loads a run. It returns an error if nothing was written for the run.
func load(ctx context.Context, s store.Store, run string) (stored *store.Run, err error) {
	switch {
	case ctx == nil:
		return nil, ErrNoContext
	case s == nil:
		return nil, fmt.Errorf("%w: there is no store", ErrBadOption)
	}
	err = guarded(func() (err error) {
		stored, err = s.Load(ctx, run)
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	case stored != nil && stored.Sequence == 0 && stored.Plan != "":
		return nil, fmt.Errorf("%w: run %s has not begun", ErrNotEnded, quoteID(run))
	case stored == nil || stored.Sequence == 0:
		return nil, fmt.Errorf("%w: %s", ErrUnknownRun, quoteID(run))
	}
	return stored, nil
}

// ErrNotDue is returned if it is too early for a run to begin, by the clock of this process: see NotBefore of [store.NewRun].
var ErrNotDue = errors.New("the run is not due")

// Describe sets the labels and the parent of a durable run. The labels are s.Labels; s.Parent is the id of the run that has started this run.
// [store.Admin] finds runs by their labels and by their parent. If Describe is given when the run continues, its values replace the stored values,
// but a nil Labels or an empty Parent does not. The error matches [ErrBadOption] if any other field of s is not zero, or if a text is not UTF-8.
func Describe(s store.Spec) Option {
	labels := maps.Clone(s.Labels)
	return optionFunc(func(c *config) error {
		switch {
		case s.Workflow != "" || s.Plan != "" || s.Inputs != nil:
			return fmt.Errorf("%w: Describe: only Labels and Parent can be given", ErrBadOption)
		case s.Key != "" || s.Priority != 0:
			return fmt.Errorf("%w: Describe: the Key and the Priority of a run are given by RunKey and RunPriority", ErrBadOption)
		}
		if !utf8.ValidString(s.Parent) {
			return fmt.Errorf("%w: Describe: the parent %s is not UTF-8", ErrBadOption, quoteID(s.Parent))
		}
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			if !utf8.ValidString(name) || !utf8.ValidString(labels[name]) {
				return fmt.Errorf("%w: Describe: the label %s: %s is not UTF-8", ErrBadOption, quoteID(name), quoteID(labels[name]))
			}
		}
		d := c.described()
		d.Parent = cmp.Or(s.Parent, d.Parent)
		if labels != nil {
			d.Labels = labels
		}
		return nil
	})
}

// RunKey sets the key of a durable run, such as the name of a tenant. Under [Runner.Serve], due runs with different keys take turns. Service.KeyRuns
// bounds how many runs with the same key all processes together perform at once. The key is stored when the run is created, see [Prepare]. If a key
// is given when the run continues, it replaces the stored key; an empty key replaces nothing. The error matches [ErrBadOption] if the key is not
// UTF-8 or has more than [store.MaxKey] bytes.
func RunKey(key string) Option {
	return optionFunc(func(c *config) error {
		if err := store.CheckKey(key); err != nil {
			return fmt.Errorf("%w: RunKey: %w", ErrBadOption, err)
		}
		c.described().Key = key
		return nil
	})
}

// RunPriority sets the priority of a durable run: among the due runs of one key, the runs with the highest priority begin first. The priority is
// stored like the key, see [RunKey]. A priority of 0, the default, does not replace a stored priority. The error matches [ErrBadOption] if
// the priority is above [store.MaxPriority] or below -MaxPriority.
func RunPriority(n int) Option {
	return optionFunc(func(c *config) error {
		if err := store.CheckPriority(n); err != nil {
			return fmt.Errorf("%w: RunPriority: %w", ErrBadOption, err)
		}
		c.described().Priority = n
		return nil
	})
}

// The method `described` replaces the config's Spec by a copy, and returns the copy. An option may change the copy. It must not change the original,
// since other configs may share it.
func (c *config) described() *store.Spec {
	var s store.Spec
	if c.spec != nil {
		s = *c.spec
	}
	c.spec = &s
	return &s
}

// Prepare returns a new run, which Create of a [store.Admin] can store. Any process may call Prepare and Create; they perform no node. Prepare
// uses the options [RunID], [Inputs], [Encoding], [Describe], [RunKey], [RunPriority], [Fire] and [PruneClosure]; without RunID it makes a new id.
// It returns the same errors as [Execute] for a bad graph, bad options or bad inputs. With Fire, the trigger fires when the run begins, even if Fire
// is not among the options of Execute. The error matches [ErrUnknownTrigger] if the graph does not contain the trigger.
//
// Any process that calls Execute with the id and [Durable] performs the run, with the stored inputs. Execute's error matches [store.ErrMismatch]
// if other inputs are given, [ErrGraphChanged] if the graph differs and [AllowGraphChange] is not given, and [ErrNotDue] if Execute is called
// before the run's NotBefore.
func Prepare(g *Graph, opts ...Option) (n store.NewRun, err error) {
	p, err := g.Compile()
	if err != nil {
		return n, err
	}
	c, err := configure(opts, false)
	if err != nil {
		return n, err
	}
	if f := c.fired; f != nil {
		if p, err = p.Prune(f.trigger, c.prune); err != nil {
			return n, err
		}
	}
	if err := p.checkInputs(c.inputs, c.inputs); err != nil {
		return n, err
	}
	r := newRun(p, c)
	spec, err := r.spec()
	return store.NewRun{ID: r.ID(), Spec: spec}, err
}

// The method `spec` returns the Spec with which the run is stored. It calls user code.
func (r *Run) spec() (s store.Spec, err error) {
	if r.cfg.spec != nil {
		s = *r.cfg.spec
	}
	s.Workflow, s.Plan = r.plan.name, r.plan.Hash()
	if s.Inputs = r.cfg.inputText; s.Inputs == nil {
		s.Inputs, err = encodeInputs(r.cfg.inputs, r.cfg.encode)
	}
	if f := r.cfg.fired; f != nil && err == nil {
		if f.text == nil {
			if f.text, err = r.cfg.encode(f.payload); err != nil {
				return s, fmt.Errorf("the payload of %s: %w", quoteID(f.trigger), err)
			}
		}
		s.Inputs, err = addFiring(s.Inputs, &firedState{Trigger: f.trigger, Prune: r.cfg.prune, Payload: &stored{raw: f.text}})
	}
	return s, err
}

// firedInput is the name of a member of the stored inputs. This member contains the trigger that fires the run, and its payload. No input may have
// this name.
const firedInput = "#fire"

// addFiring adds the trigger and its payload to the stored inputs of a run.
func addFiring(inputs json.RawMessage, f *firedState) (json.RawMessage, error) {
	all := map[string]any{}
	if inputs != nil {
		var texts map[string]json.RawMessage
		if err := json.Unmarshal(inputs, &texts); err != nil {
			return nil, err
		}
		for name, text := range texts {
			all[name] = text
		}
	}
	all[firedInput] = f
	return json.Marshal(all)
}

// firingOf returns the trigger and the payload from a run's stored inputs. It returns nil if the inputs contain no trigger. An older version of kahn
// stored none there.
func firingOf(inputs json.RawMessage) (*firedState, error) {
	var x struct {
		Fired *firedState `json:"#fire"`
	}
	if inputs == nil {
		return nil, nil
	}
	if err := json.Unmarshal(inputs, &x); err != nil {
		return nil, fmt.Errorf("%w: stored inputs: %w", ErrBadValue, err)
	}
	return x.Fired, nil
}

// keepGiven encodes the inputs of a durable run and the payload of its trigger. It returns an error if the store cannot contain one of them, so the
// run does not begin. It calls user code.
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

// encodeInputs encodes the inputs of a run as a JSON object, or returns nil if there are none. If inputs cannot be encoded, the error names the first
// of them in the order of their names.
func encodeInputs(inputs map[string]any, encode func(value any) (json.RawMessage, error)) (json.RawMessage, error) {
	if len(inputs) == 0 {
		return nil, nil
	}
	texts := make(map[string]json.RawMessage, len(inputs))
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		text, err := encode(inputs[name])
		if err == nil && name == firedInput {
			err = fmt.Errorf("%w: the name is reserved", ErrNotEncodable)
		}
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

// readInputs splits a JSON object of inputs into stored values. It does not decode the values.
func readInputs(data json.RawMessage) (inputs map[string]stored, err error) {
	if data == nil {
		return nil, nil
	}
	if err := json.Unmarshal(data, &inputs); err != nil {
		return nil, fmt.Errorf("%w: stored inputs: %w", ErrBadValue, err)
	}
	if delete(inputs, firedInput); len(inputs) == 0 {
		return nil, nil
	}
	return inputs, nil
}

// createdInputs decodes the inputs with which a run was created.
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

// The method `adopt` is called when a created run begins. It makes the run use the stored inputs and the stored trigger. It returns an error if the
// run is not due, or if the graph or the options of r contradict the stored data.
func (r *Run) adopt(created *store.Run) (err error) {
	if created == nil || created.Plan == "" && created.Workflow == "" && created.Inputs == nil {
		return nil // no process has created the run
	}
	// Serve begins a run when the run is due by the clock of the store, and the clock of this process may be behind. So a run that Serve begins counts
	// as due if its WakeAt is still the WakeAt that Serve has read.
	if now := time.Now(); now.Before(created.WakeAt) && (!r.cfg.served || !created.WakeAt.Equal(r.cfg.dueAt)) {
		return fmt.Errorf("%w: run %s may not begin before %v", ErrNotDue, quoteID(created.ID), created.WakeAt.Format(time.RFC3339Nano))
	}
	if err := r.sameWorkflow(created); err != nil {
		return err
	}
	if err := r.fireCreated(created); err != nil {
		return err
	}
	p, c := r.plan, r.cfg
	if created.Plan != "" && created.Plan != p.Hash() && !c.allowChange {
		return fmt.Errorf("%w: run %s was created for the plan with the hash %s, not %s", ErrGraphChanged, quoteID(created.ID), created.Plan, p.Hash())
	}
	given := c.inputs
	if c.inputs, err = createdInputs(c.codec, created); err != nil || given == nil {
		return err
	}
	has, err := encodeInputs(c.inputs, c.encode) // encodes the inputs again, since the codec may have had another key at creation
	if err != nil {
		return err
	}
	if !store.SameInputs(c.inputText, has) {
		return fmt.Errorf("%w: run %s has other inputs", store.ErrMismatch, quoteID(created.ID))
	}
	return nil
}

// fireCreated fires a run with the trigger and the payload with which the run was created. If an option also fires the run, it must have the same
// trigger and the same pruning.
func (r *Run) fireCreated(created *store.Run) error {
	f, err := firingOf(created.Inputs)
	if f == nil || err != nil {
		return err
	}
	if own := r.cfg.fired; own != nil && (own.trigger != f.Trigger || r.cfg.prune != f.Prune) {
		return fmt.Errorf("%w: run %s was created with trigger %s and pruning %v", store.ErrMismatch, quoteID(created.ID), quoteID(f.Trigger), f.Prune)
	} else if own != nil {
		r.plan = r.plan.entire()
	}
	if err := r.firedBefore(f); err != nil {
		return err
	}
	r.cfg.fired.text = f.Payload.raw
	return r.choosePlan()
}

// sameWorkflow returns an error if the stored run belongs to another workflow, unless AllowGraphChange is given. The hashes of the plans may
// be equal even if the workflows differ, since the hash does not cover the workflow's name.
func (r *Run) sameWorkflow(s *store.Run) error {
	if s.Workflow == r.plan.name || r.cfg.allowChange {
		return nil
	}
	if s.Workflow == "" && s.Plan == "" { // an older version of kahn has stored the run
		return nil
	}
	return otherWorkflow(s.ID, s.Workflow, r.plan)
}

// The method `specify` records whether the next commit must write the run's Spec, because the store has no Spec or a different one. The parameter
// "given" says whether the run continues with inputs that the host has given.
func (r *Run) specify(s *store.Spec, given bool) {
	c, d := r.cfg, r.durable
	d.unspecified = s.Workflow != r.plan.name || s.Plan != r.plan.Hash() || given
	if c.spec == nil {
		c.spec = &store.Spec{Labels: s.Labels, Parent: s.Parent, Key: s.Key, Priority: s.Priority}
		return
	}
	x := c.described()
	x.Key, x.Priority = cmp.Or(x.Key, s.Key), cmp.Or(x.Priority, s.Priority)
	if x.Labels == nil {
		x.Labels = s.Labels
	}
	if x.Parent == "" {
		x.Parent = s.Parent
	}
	d.unspecified = d.unspecified || !maps.Equal(x.Labels, s.Labels) || x.Parent != s.Parent || x.Key != s.Key || x.Priority != s.Priority
}

// sameStore reports whether a and b are the same store. It returns false if one is nil, or if their type cannot be compared.
func sameStore(a, b store.Store) bool {
	return a != nil && b != nil && reflect.TypeOf(a).Comparable() && a == b
}
