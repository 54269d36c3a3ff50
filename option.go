package kahn

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/internal/prepared"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// Option sets one property of a run. Modes, status rules and failure modes are options themselves:
//
//	kahn.Execute(ctx, &g, step, kahn.Waves, kahn.Limit(8), kahn.StatusStrict)
//
// Options are applied in order. A later option overrides an earlier option of the same kind. But OnEvent, OnNode, Use and Around add to the earlier
// options.
type Option interface {
	apply(*config) error
}

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

// config contains the options of a run.
type config struct {
	mode           Mode
	statusRule     StatusRule
	onFailure      FailureMode
	stopMode       StopMode
	onSuspend      SuspendMode
	codec          Codec
	store          store.Store
	spec           *store.Spec // the labels, the parent, the key and the priority; nil if none of them was set; immutable
	leaseTime      time.Duration
	owner          string
	maxCrashes     int
	ctxCancels     bool                                                // whether the end of the caller's context cancels a run with a store
	reads          bool                                                // for ReadResult: the run performs nothing
	adopts         *Adoption                                           // for Adopt and AdoptSnapshot: the Adoption that the restoration fills in
	idle           bool                                                // whether the run only writes its first transaction and performs nothing
	listed         *store.Run                                          // the stored run as a list showed it to the caller: if the stored run has changed since then, this run is refused; nil if changes do not matter
	report         func(error)                                         // set by Runner.Serve: reports errors that prevent the run from taking a request
	restAfter      time.Duration                                       // set by Runner.Serve: a run with nothing to do for longer than this time is left, see doze; 0 means that the run is never left for this reason
	served         bool                                                // set by Runner.Serve: the run is stored already, and ends when it rests, as under Execute
	turn           *keyTurn                                            // set by Runner.Serve: the turn of the run's key; nil if the run has no key
	dueAt          time.Time                                           // set by Runner.Serve: the time from which the run may begin; the store's clock has reached this time
	admission      func(context.Context, *store.Run) (*Request, error) // set by Runner.Serve: the function Service.Admit, or nil
	refused        *Request                                            // set by admission if the run must be cancelled before it begins
	runner         *Runner
	given          *given // the arguments of the run, for Runner.Redrive; nil without a Runner
	replaces       *Run   // for Runner.Redrive: the ended run that this run replaces
	idempotency    *IdempotencyStore
	idempotencyKey string
	memo           *Memo
	refresh        bool // whether the run ignores the outputs that its memo contains
	budget         func(Usage) error
	bounds         *room // the bounds of transactions, set by tests; nil for the usual bounds
	checkValues    bool  // whether outputs are encoded when their nodes complete
	from           *Snapshot
	signals        map[string]any
	redrive        bool
	fork           bool
	redriven       []string // the nodes that a redrive or a fork names
	redrivenBy     *Request
	repeats        RedriveMode
	allowChange    bool
	limit          int
	keyLimit       int
	startRate      Rate
	pool           *pool // limits that the run shares with other runs; nil if there are none
	keyRate        Rate
	estimates      *Result
	history        *History
	inputs         map[string]any
	inputText      json.RawMessage // the inputs of a durable run, as the codec has encoded them; nil if there are none
	fired          *fired
	prune          PruneMode
	sinks          []func(Event)
	retain         int
	runID          string
	traceID        string
	defaultRetry   Retry
	timeout        time.Duration
	cancelGrace    time.Duration
	cleanupTimeout time.Duration
	random         func() float64
	cloneInputs    func(any) any
	moderator      moderator
	middleware     []func(StepFunc) StepFunc
	observers      []func(NodeResult)
	around         []func(context.Context, *Run) (context.Context, func(*Result))
	eventOutputs   int // the greatest length of an output in an event; 0 means that events carry no outputs
	storeEvents    bool
	test           *testMode
	kinds          interface{ Kinds() []string }
	manual         *manual // for NewCoordinator
	expanded       func(path string, state any) (*Graph, error)
	graphCalls     func(path, field string, call func() (any, error)) (any, error)
}

// keyTurn is the turn of a run's key, together with the store that records the turn.
type keyTurn struct {
	store store.TurnStore
	store.Turn
}

const (
	defaultCancelGrace    = 5 * time.Second
	defaultCleanupTimeout = 30 * time.Second
	defaultEventOutput    = 32 << 10
)

// byDefault contains two configs, which all runs without options share. The first is for runs whose events have no reader, the second for runs
// whose events may be read. Nothing may write to these configs.
var byDefault = [2]config{
	{cancelGrace: defaultCancelGrace, cleanupTimeout: defaultCleanupTimeout, leaseTime: defaultLeaseTime, maxCrashes: defaultMaxCrashes},
	{cancelGrace: defaultCancelGrace, cleanupTimeout: defaultCleanupTimeout, leaseTime: defaultLeaseTime, maxCrashes: defaultMaxCrashes, retain: keepAll},
}

// preparedTypes is an option like [Types] for all runs of a typed pipeline. All runs that have no other option share the configs in the field "alone",
// as runs without options share byDefault. The first such run makes the config.
type preparedTypes struct {
	index typeIndex
	alone [2]atomic.Pointer[config]
}

func init() {
	prepared.Types = func(from prepared.Source) any { return &preparedTypes{index: typeIndex{from: from}} }
}

func (p *preparedTypes) apply(c *config) error { //nolint:unparam // an Option returns an error
	if c.codec == nil {
		c.codec = p.codec()
	}
	return nil
}

func (p *preparedTypes) codec() Codec { return types{index: &p.index} }

// config returns the config at the index of byDefault, with the option applied.
func (p *preparedTypes) config(index int) *config {
	c := p.alone[index].Load()
	if c == nil {
		own := byDefault[index]
		own.codec, c = p.codec(), &own
		p.alone[index].Store(c)
	}
	return c
}

// configure makes the config of a run. If `readable` is false, the run keeps no events for readers.
func configure(opts []Option, readable bool) (*config, error) {
	index := 0
	if readable {
		index = 1
	}
	if len(opts) == 0 {
		return &byDefault[index], nil
	}
	if p, is := opts[0].(*preparedTypes); is && len(opts) == 1 {
		return p.config(index), nil
	}
	c := byDefault[1]
	if err := c.apply(opts); err != nil {
		return nil, err
	}
	if c.redrive && c.from == nil && c.store == nil {
		return nil, fmt.Errorf("%w: Redrive(nil) is for a durable run: see Durable", ErrBadOption)
	}
	if c.repeats&KeepDescendants != 0 && c.fork {
		return nil, fmt.Errorf("%w: KeepDescendants is for Redrive, not for Fork", ErrBadOption)
	}
	if c.repeats != 0 && !c.redrive && !c.fork {
		return nil, fmt.Errorf("%w: a RedriveMode needs Redrive or Fork", ErrBadOption)
	}
	if c.refresh && c.memo == nil {
		return nil, fmt.Errorf("%w: Refresh needs the option *Memo", ErrBadOption)
	}
	if !readable {
		c.retain = 0
	}
	return &c, nil
}

func (c *config) apply(opts []Option) error {
	for _, o := range opts {
		if o == nil {
			return fmt.Errorf("%w: nil option", ErrBadOption)
		}
		if err := o.apply(c); err != nil {
			return err
		}
	}
	return nil
}

// The method `setup` returns the part of the options that the run's State needs.
func (c *config) setup(p *Plan) machine.Setup {
	x := machine.Setup{
		Waves: c.mode == Waves, Holds: c.onSuspend == SuspendStop || c.onSuspend == suspendDefault && c.mode == Waves,
		Limit: c.limit, Rule: machine.StatusRule(c.statusRule), Stops: machine.StopSetup{OnFailure: machine.OnFailure(c.onFailure), Drains: c.stopMode == Drain},
		SlotSetup: machine.SlotSetup{KeyLimit: c.keyLimit, KeyRate: c.keyRate.count(), StartRate: c.startRate.count()},
	}
	if c.pool != nil {
		c.pool.setup(&x.SlotSetup, p)
	}
	if c.estimates != nil {
		own := p.net.Order(c.estimates.estimate(p))
		x.Order = &own
	}
	return x
}

// Mode determines when a node whose predecessors are done may start.
type Mode uint8

// The modes. Both lead to the same final statuses, unless a [FailureMode] stops work early.
const (
	// Eager, the default, starts a node as soon as its join rule permits this.
	Eager Mode = iota
	// Waves runs the graph tier by tier: a node starts only after all nodes of lower tiers are terminal.
	Waves

	modeCount
)

var modeNames = enum.Of[Mode]("mode", "eager", "waves")

// String returns the name of m: "eager" or "waves".
func (m Mode) String() string { return modeNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (m Mode) MarshalText() ([]byte, error) { return modeNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (m *Mode) UnmarshalText(text []byte) error { return modeNames.Parse(m, text) }

func (m Mode) apply(c *config) error {
	if m >= modeCount {
		return fmt.Errorf("%w: %v", ErrBadOption, m)
	}
	c.mode = m
	return nil
}

// StatusRule determines how the statuses of the nodes yield the status of the run.
type StatusRule uint8

// The status rules. A node is bad if it failed without ContinueOnFail, was aborted, or was cancelled. But a node that was cancelled because of
// CancelLosers is not bad.
const (
	// StatusEscaped, the default, completes the run if all bad nodes were handled. A bad node was handled if its failure reached another node, and the
	// other node has run, is bad itself, or was skipped by its own upstream policy because of this failure. Nodes that only observe failures do not
	// count, see [Handling]. If each unhandled bad node was cancelled, or was aborted only because of cancelled nodes, the run is cancelled. If there
	// is any other unhandled bad node, the run fails.
	StatusEscaped StatusRule = iota
	// StatusLeaves completes the run if all leaves (nodes without successors) completed or were skipped. Otherwise the run is cancelled if at least
	// one node was cancelled and no node failed. In all other cases the run fails.
	StatusLeaves
	// StatusStrict completes the run if there is no bad node. If each bad node was cancelled, or was aborted only because of cancelled nodes, the run
	// is cancelled. If there is any other bad node, the run fails.
	StatusStrict

	statusRuleCount
)

var statusRuleNames = enum.Of[StatusRule]("status rule", "escaped", "leaves", "strict")

// String returns the name of r: "escaped", "leaves" or "strict".
func (r StatusRule) String() string { return statusRuleNames.Name(r) }

// MarshalText encodes r as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (r StatusRule) MarshalText() ([]byte, error) { return statusRuleNames.Text(r) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (r *StatusRule) UnmarshalText(text []byte) error { return statusRuleNames.Parse(r, text) }

func (r StatusRule) apply(c *config) error {
	if r >= statusRuleCount {
		return fmt.Errorf("%w: %v", ErrBadOption, r)
	}
	c.statusRule = r
	return nil
}

// FailureMode determines how the failure of one node affects the nodes that do not depend on it.
type FailureMode uint8

// The failure modes.
const (
	// Continue, the default, finishes all nodes that do not depend on the failed node.
	Continue FailureMode = iota
	// StopScheduling takes effect at the first failure for which the graph has no handler. Running attempts finish. All nodes that have not started
	// are aborted, except cleanup nodes and the end node.
	StopScheduling
	// AbortRunning is like StopScheduling, and also cancels running attempts.
	AbortRunning

	failureModeCount
)

var failureModeNames = enum.Of[FailureMode]("failure mode", "continue", "stop_scheduling", "abort_running")

// String returns the name of m: "continue", "stop_scheduling" or "abort_running".
func (m FailureMode) String() string { return failureModeNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (m FailureMode) MarshalText() ([]byte, error) { return failureModeNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (m *FailureMode) UnmarshalText(text []byte) error { return failureModeNames.Parse(m, text) }

func (m FailureMode) apply(c *config) error {
	if m >= failureModeCount {
		return fmt.Errorf("%w: %v", ErrBadOption, m)
	}
	c.onFailure = m
	return nil
}

// StopMode determines how running steps are stopped when the run or their group is stopped.
type StopMode uint8

// The stop modes. In both modes, the end of the caller's context and a timeout of the run interrupt running attempts.
const (
	// Interrupt, the default, ends the context of running attempts.
	Interrupt StopMode = iota
	// Drain lets running attempts finish. Failed attempts are not retried, and an attempt that suspends itself is stopped.
	Drain

	stopModeCount
)

var stopModeNames = enum.Of[StopMode]("stop mode", "interrupt", "drain")

// String returns the name of m: "interrupt" or "drain".
func (m StopMode) String() string { return stopModeNames.Name(m) }

// MarshalText encodes m as its name. It returns an error that matches [ErrBadValue] for a value outside the enum.
func (m StopMode) MarshalText() ([]byte, error) { return stopModeNames.Text(m) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (m *StopMode) UnmarshalText(text []byte) error { return stopModeNames.Parse(m, text) }

func (m StopMode) apply(c *config) error {
	if m >= stopModeCount {
		return fmt.Errorf("%w: %v", ErrBadOption, m)
	}
	c.stopMode = m
	return nil
}

func (m StopMode) manner() machine.StopManner {
	if m == Drain {
		return machine.StopDraining
	}
	return machine.StopAsking
}

// Limit sets the largest number of steps that run at the same time. Zero, the default, means no limit. No limit is needed for steps that mostly
// wait for other services, since a running step costs only its goroutine. The run is refused with [ErrBadOption] if the limit is negative. A
// condition with a Go test does not count towards the limit. Under Limit(1), nothing else starts during such a test, not even in composites. So
// under Limit(1) the order of events depends only on the graph, on the results and durations of its steps, and on events from outside.
func Limit(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 0 {
			return fmt.Errorf("%w: Limit(%d) is negative", ErrBadOption, n)
		}
		c.limit = n
		return nil
	})
}

// KeyLimit sets the largest number of nodes with the same Key that run at the same time. Zero, the default, means no limit.
func KeyLimit(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 0 {
			return fmt.Errorf("%w: KeyLimit(%d) is negative", ErrBadOption, n)
		}
		c.keyLimit = n
		return nil
	})
}

// apply makes r the rate of the run, which bounds how often attempts start in the whole run, including its nested runs.
func (r Rate) apply(c *config) error { return rate(&c.startRate, "Rate", r) }

// KeyRate bounds how often attempts of nodes with the same Key start. The zero Rate bounds nothing. The run is refused with [ErrBadOption] if the
// Starts or the Per of any other Rate is not positive, or if the Burst is negative or too large to count.
func KeyRate(r Rate) Option {
	return optionFunc(func(c *config) error { return rate(&c.keyRate, "KeyRate", r) })
}

func rate(field *Rate, name string, r Rate) error {
	if err := r.validate(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBadOption, name, err)
	}
	*field = r
	return nil
}

// Estimates orders ready nodes of equal priority by the longest remaining path. It computes the paths from the durations of the nodes in an earlier
// run, instead of from the Estimate of each node. Nodes are matched by id. If the earlier run did not execute a node, the node's own Estimate is
// used. If prev is nil, the option has no effect.
func Estimates(prev *Result) Option {
	return optionFunc(func(c *config) error { c.estimates = prev; return nil })
}

// Inputs sets the run's root inputs. If nothing else provides the value of a port or a parameter, the root input with the same name provides it. A
// graph that declares its Inputs accepts only the declared inputs, see [InputError]. The map is not copied, so it must not be changed.
func Inputs(in map[string]any) Option {
	return optionFunc(func(c *config) error { c.inputs = in; return nil })
}

// PerRun calls f for each run and applies the options that f returns. So these options can share a state that belongs to this run alone. PerRun is
// meant for packages whose options a [Runner] applies to many runs.
//
//	kahn.PerRun(func() []kahn.Option {
//		x := new(notes) // of one run
//		return []kahn.Option{kahn.Around(x.around), kahn.OnEvent(x.event)}
//	})
//
// f is called on the goroutine that applies the options, for example the goroutine that calls [Start]. f may be called even if no run begins. The
// run is refused with [ErrBadOption] if f is nil or panics.
func PerRun(f func() []Option) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return fmt.Errorf("%w: PerRun(nil)", ErrBadOption)
		}
		var opts []Option
		if err := contain(func() error { opts = f(); return nil }); err != nil {
			return fmt.Errorf("%w: PerRun: %w", ErrBadOption, err)
		}
		return c.apply(opts)
	})
}

// OnEvent adds a sink. The sink is called with every event of the run, in order. All calls are on one separate goroutine, so the sink cannot delay
// the run, and is never called concurrently. When the run has ended, Execute waits until the sink has received the last event, at most for
// CancelGrace or one second, whichever is longer. A sink that panics is disabled. Result.Warnings reports each sink that has panicked, or that is
// still busy when Execute returns.
func OnEvent(sink func(Event)) Option {
	return optionFunc(func(c *config) error {
		if sink == nil {
			return fmt.Errorf("%w: OnEvent(nil)", ErrBadOption)
		}
		c.sinks = append(c.sinks, sink)
		return nil
	})
}

// EventOutputs adds outputs to events: each event node.completed contains the output of the node, and each event that ends a run contains the
// output of the run. If an output has more than `most` bytes, the event contains only the length of the output. The output is plain JSON, or the
// text of the run's [Codec] if the codec is not [Types]. If `most` is zero, the bound is 32 KiB. If `most` is negative, the run is refused with
// [ErrBadOption]. Without this option events contain no outputs. Each output is encoded once, when its event first goes to a reader, a sink or the
// store.
func EventOutputs(most int) Option {
	return optionFunc(func(c *config) error {
		if most < 0 {
			return fmt.Errorf("%w: EventOutputs(%d) is negative", ErrBadOption, most)
		}
		if c.eventOutputs = most; most == 0 {
			c.eventOutputs = defaultEventOutput
		}
		return nil
	})
}

// Retain makes a run keep only its last n events for [Run.Events]; Retain(0) keeps none. A reader that requests an older event gets a gap error.
// By default a run keeps all events. Events that a sink has not received yet are always kept; Execute keeps events only for sinks.
func Retain(n int) Option {
	return optionFunc(func(c *config) error {
		if n < 0 {
			return fmt.Errorf("%w: Retain(%d) is negative", ErrBadOption, n)
		}
		c.retain = n
		return nil
	})
}

// RunID sets the id of the run. The default, also for an empty id, is a UUID of version 7, made on first use.
func RunID(id string) Option {
	return optionFunc(func(c *config) error { c.runID = id; return nil })
}

// TraceID sets the id of the trace to which the run's events belong. Default: an id derived from the run's id, in the form of a W3C trace id, 32
// hex digits.
func TraceID(id string) Option {
	return optionFunc(func(c *config) error { c.traceID = id; return nil })
}

// apply makes r the retry policy of each node without a policy, unless the Defaults of the graph contain a policy.
func (r Retry) apply(c *config) error {
	if _, err := r.validate(); err != nil {
		return fmt.Errorf("%w: Retry: %w", ErrBadOption, err)
	}
	c.defaultRetry = r
	return nil
}

// Timeout bounds the duration of the run. When this time has passed, unfinished nodes are aborted and the run fails. Zero means no bound. The time
// counts from the beginning of the run, and includes waits for signals and periods in which no process performs the run. A process that continues
// the run keeps the deadline if it also sets this option. A [Redrive] starts the time from zero. The end of the caller's context has another
// effect: a run without a store is cancelled, and a durable run is left.
func Timeout(d time.Duration) Option {
	return optionFunc(func(c *config) error { return duration(&c.timeout, "Timeout", d) })
}

// CancelWithContext cancels a durable run when the caller's context ends, as kahn always does for a run without a store: nodes are cancelled,
// cleanup nodes and the end node are performed, and the run ends. Without this option a durable run is left, see [Durable], and can be continued
// from its store.
func CancelWithContext() Option {
	return optionFunc(func(c *config) error { c.ctxCancels = true; return nil })
}

// CancelGrace is the time for which a step may continue after its context was cancelled. A slower step is abandoned: its node ends, its slot is
// freed, and its late result is dropped. The guard, the merge or the test of a stopped node is abandoned in the same way. An abandoned step is not
// retried, even if the policy permits a retry, since two attempts would overlap. After the run's end, Wait waits for sinks at most for CancelGrace
// or one second, whichever is longer. Default: 5 s.
func CancelGrace(d time.Duration) Option {
	return optionFunc(func(c *config) error { return duration(&c.cancelGrace, "CancelGrace", d) })
}

// CleanupTimeout bounds each attempt of a cleanup node and of the end node. In a stopped run it also bounds the wait of a cleanup node that
// suspends itself. Default: 30 s.
func CleanupTimeout(d time.Duration) Option {
	return optionFunc(func(c *config) error { return duration(&c.cleanupTimeout, "CleanupTimeout", d) })
}

// Random replaces the source of the random numbers that determine jitter, for example to make a run reproducible. The numbers are in [0, 1).
func Random(source func() float64) Option {
	return optionFunc(func(c *config) error { c.random = source; return nil })
}

// CloneInputs copies values before the graph's user code gets them, so that this code may change its arguments. It copies parameters, upstream
// values, items, root inputs, the trigger's payload, the value of a signal, the saved state of a step, the output that a compensation gets, the
// outputs that a [View] shows, and the contributions to a registered merge. Without this option steps share values and must not change them. If
// clone is nil, nothing is copied.
func CloneInputs(clone func(any) any) Option {
	return optionFunc(func(c *config) error { c.cloneInputs = clone; return nil })
}

func duration(field *time.Duration, name string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%w: %s(%v) is negative", ErrBadOption, name, d)
	}
	*field = d
	return nil
}
