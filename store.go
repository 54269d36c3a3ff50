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
	// ErrFenced is returned for a write under a lease that has expired or was taken over by another owner.
	ErrFenced = store.ErrFenced
	// ErrLeased is returned if another owner holds the run.
	ErrLeased = store.ErrLeased
	// ErrUnknownRun is returned if the run is not stored.
	ErrUnknownRun = store.ErrUnknownRun
	// ErrRejected is returned if the store can never contain a value, because the value is too large or contains characters that the store cannot
	// represent.
	ErrRejected = store.ErrRejected
	// ErrUnusable is returned by a store that cannot be used, because it has no schema or the schema of another version, its file is not a
	// database, or it is read-only. The engine does not repeat the call.
	ErrUnusable = store.ErrUnusable
	// The error of [Execute] matches ErrStore if kahn has left the run because the store did not answer, or if the run failed because of the store.
	// An error of a function that reads a stored run, such as [ReadRun], matches ErrStore if the store returned it.
	ErrStore = errors.New("store")
)

// Durable makes the run durable: an attempt is stored before its step is called, and its results become visible when the transaction that stores them
// is committed. If the store contains a run with this id, see [RunID], the run continues from its stored state. Without a RunID each call begins a
// new run. The error matches [ErrFinished] if the stored run has ended, see [ReadResult]. Values are encoded as by [Encoding], whose default is nil
// [Types].
//
// A write that the store does not answer is repeated until the lease expires, see [Lease]. The run's first write in this process, and a write
// answered with [ErrUnusable], are not repeated. When kahn gives up a write, it leaves the run, as [Run.Leave] does; the error matches [ErrStore],
// and the Result contains the stored state. If the store rejects a step's output with [ErrRejected], the run is also left; when it continues, the
// node fails with [CauseStoreRejected]. The run fails with [CauseStoreError] if another owner holds it, or if the store refuses any other write.
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

// EarlySignals answers the waiting nodes of a run that continues from a snapshot or a store. It also answers gates that the run has not reached, or
// that a redrive reaches again. Gates in composites can be answered only if the composites have begun. The keys of the map `signals` name the nodes
// by id, by path in a composite, or by token. Inside an expanded node only waiting nodes can be answered. Such an answer is checked when the graph
// of the expanded node is known. A gate keeps the deadline of its first wait; if this deadline has passed, the gate fails before any signal
// arrives.
//
// Execute returns the same errors as [Run.Signal] for a node that accepts no answer, [ErrDuplicateGate] if two signals name the same node, and a
// [*ChoiceError] if a signal is not one of the choices of a [Gate]. After any of these errors, no step has run.
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

// defaultLeaseTime is the length of a lease without the option Lease.
const defaultLeaseTime = 30 * time.Second

// Lease sets the owner and the length of the run's lease in its store. An empty owner, or a time of 0, keeps the current setting.
//
// The owner is a name. An owner may acquire a run that it already holds, so a process that has the same name after a crash continues its runs at
// once. But two processes with the same name would take runs from each other, so each process needs a distinct name. The default is a unique name,
// made of the host's name, the process, the boot of the machine, and a random part.
//
// The time is the duration of the lease. The run renews the lease after a third of the time. If the lease expires because the store cannot be
// reached, the run is left. If the run's process dies, another owner can acquire the run after the lease has expired, or at once if the store is from
// package store/sqlite. Default: 30 s. The error matches [ErrBadOption] if the time is negative.
func Lease(owner string, d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d < 0 {
			return fmt.Errorf("%w: Lease: the time %v is negative", ErrBadOption, d)
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
		boot = []byte("-") // the system is not Linux, so only the random part makes the name unique
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), strings.TrimSpace(string(boot)))
})

// leaseOwner returns the owner of a lease that a run acquires.
func (c *config) leaseOwner() string {
	if c.owner != "" {
		return c.owner
	}
	return machineAndProcess() + "/" + uuid.NewString()
}

// The method `keep` encodes a value. It returns an error if the codec cannot encode the value or the store refuses it. It calls user code, so the
// caller must not hold the run's lock. If the run does not check its values, `keep` returns neither a text nor an error.
//
// The caller keeps the text beside the value until the text is written. So the codec, which may encrypt a value or send it to another system, is
// called only once.
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

// forgetTexts drops the texts of a node after the end of the node is written.
func (r *Run) forgetTexts(ref machine.Ref) {
	x := r.extras[ref]
	if x == nil {
		return
	}
	if x.texts = nil; x.items != nil {
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

// causeOfKeep returns the cause with which a node fails if `keep` has returned err for its value.
func causeOfKeep(err error) CauseKind {
	if errors.Is(err, ErrRejected) {
		return CauseStoreRejected
	}
	return CauseStoreError
}

// ReadSnapshot returns a stored run as a [Snapshot], even if a process holds the run. A program can display the Snapshot, encode it as JSON, or pass
// it to [Redrive] or [Fork]. If the run has not ended, it can continue only from its store, not from the Snapshot. The error matches [ErrNotEnded]
// if the run was created, see [Prepare], and has not begun. It matches [ErrUnknownRun] if the run is not stored, or has not begun and has no Plan.
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
	Epoch    int // 1, plus one for each redrive; 0 if the run has not begun
	// Created is the time when the run was created, and Ended the time when it ended. WakeAt is the time when the run continues without an answer:
	// the earliest end of a backoff, the earliest deadline, or the time at which the run may begin. Each is zero if there is no such time.
	Created, Ended, WakeAt time.Time
	// Compensation is the state of the run's compensations: see [Run.Compensation].
	Compensation Compensation
	// Usage is the usage of the run's steps, by name, in all attempts that have ended, in any process. It is nil if nothing was used.
	Usage Usage
	// Counts maps each status to the number of nodes of the outermost graph with this status. It does not count idle nodes, since the store has
	// no records of them.
	Counts map[Status]int
	// Waiting describes the nodes that wait for an answer, as in the Result. But Info is the JSON that the run's [Codec] has encoded; it is nil if
	// the node has no info.
	Waiting []Wait
	// Requests is the number of requests that were posted for the run and that the run has not taken yet.
	Requests int
	// Holder is the owner of the lease, usually the process that performs the run. HeldUntil is the time when the lease expires unless it is
	// renewed. Holder and HeldUntil are zero if no process holds the run, or if the store does not implement [store.LeaseReader].
	Holder    string
	HeldUntil time.Time
}

// ReadRun returns the state of a stored run, even if a process holds the run, and even if it has not begun or has ended. ReadRun needs no
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

// waitsOf appends to the list the waits of the nodes and of all nodes inside them.
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
// error matches [ErrGraphChanged]. ReadResult uses only the options [Encoding] and [StatusRule], which must be as in the run, and [AllowGraphChange].
// If the run failed or was cancelled, ReadResult returns the same error as [Execute]. The error matches [ErrNotEnded] if the run has not ended, and
// [ErrUnknownRun] if it is not stored. With AllowGraphChange, the error matches [ErrBadValue] if the graph has a node that did not end in the run,
// since ReadResult performs no nodes.
//
// The Result is the same as from Execute, but without Warnings and without the nested Results of expanded nodes. Its Start is the beginning of
// the first attempt, and its Duration lasts until the end of the last attempt.
func ReadResult(ctx context.Context, g *Graph, s store.Store, run string, opts ...Option) (*Result, error) {
	p, err := g.compiled()
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

// ErrNotDue is returned if, by the clock of this process, it is too early for a run to begin: see NotBefore of [store.NewRun].
var ErrNotDue = errors.New("the run is not due")

// Describe sets the labels (s.Labels) of a durable run and its parent (s.Parent), the id of the run that has started this run. [store.Admin] finds
// runs by their labels and by their parent. If Describe is given when the run continues, its values replace the stored values. If Labels is nil or
// Parent is empty, the stored value stays. The run is refused with [ErrBadOption] if any other field of s is not zero, or if a text is not UTF-8.
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

// RunKey sets the key of a durable run, such as the name of a tenant. Under [Runner.Serve] the due runs of a store take turns by their keys, and
// Service.KeyRuns bounds the number of runs with the same key that all processes together perform at once. The key is stored when the run is created,
// see [Prepare]. A key given when the run continues replaces the stored key, unless the given key is empty. The run is refused with [ErrBadOption] if
// the key is not UTF-8 or has more than [store.MaxKey] bytes.
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
// stored like the key, see [RunKey]. A priority of 0, the default, does not replace a stored priority. The run is refused with [ErrBadOption] if
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

// The method `described` replaces the config's Spec by a copy, and returns the copy. An option may change the copy, but other configs may share the
// original.
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
// It returns the errors of [Execute] about the graph, the options and the inputs. With Fire, the trigger fires when the run begins, and Execute
// does not need this option; the error matches [ErrUnknownTrigger] if the graph does not contain the trigger.
//
// Any process that calls Execute with the id and [Durable] performs the run, with the stored inputs. Execute's error matches [store.ErrMismatch]
// if other inputs are given, [ErrGraphChanged] if the graph differs and [AllowGraphChange] is not given, and [ErrNotDue] if Execute is called
// before the run's NotBefore.
func Prepare(g *Graph, opts ...Option) (n store.NewRun, err error) {
	p, err := g.compiled()
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
	r := &Run{runGiven: runGiven{plan: p, cfg: c}, runNest: runNest{instance: &notNested}, runRare: &notRare, runReports: &notReported}
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

// firedInput is the name of a member of the stored inputs. The member is the trigger that fires the run, with its payload. No input has this
// name.
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

// firingOf returns the trigger and the payload in a run's stored inputs. It returns nil if there are none, or if an older version of kahn has
// begun the run.
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

// keepGiven encodes the inputs of a durable run, and the payload of its trigger, so that no run begins with values that the store cannot contain.
// It calls user code.
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

// encodeInputs encodes the inputs of a run as a JSON object, or returns nil if there are none. If inputs cannot be encoded, the error names one of
// them: the one whose name sorts first.
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

// readInputs splits a JSON object of inputs into stored values, which are not decoded yet.
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

// createdInputs returns the inputs with which a run was created.
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
// options of r contradict the stored data.
func (r *Run) adopt(created *store.Run) (err error) {
	if created == nil || created.Plan == "" && created.Workflow == "" && created.Inputs == nil {
		return nil // no process has created the run
	}
	// Serve begins a run when the run is due by the store's clock, and this process's clock may be behind. So the run is due if its WakeAt is still
	// the WakeAt that Serve has read.
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
	has, err := encodeInputs(c.inputs, c.encode) // encoded again, since the codec may have had another key when the run was created
	if err != nil {
		return err
	}
	if !store.SameInputs(c.inputText, has) {
		return fmt.Errorf("%w: run %s has other inputs", store.ErrMismatch, quoteID(created.ID))
	}
	return nil
}

// fireCreated fires a run with the trigger and the payload with which the run was created. If an option also fires the run, it must name the same
// trigger.
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

// sameWorkflow returns an error if the stored run belongs to another workflow, unless AllowGraphChange is given. A comparison of the plans' hashes
// does not notice this, since the hash does not cover the workflow's name.
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
// "given" says whether the host has given inputs to a continuing run.
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
