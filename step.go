package kahn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// StepFunc performs one attempt of one node and returns the node's output. ctx is the Step itself; it is cancelled when the attempt must stop. If a
// step returns nil, nil, the node completes with a null output.
//
// An error fails the attempt. The errors [Skip], [Permanent], [AbortRun], [RateLimited] and [ErrCallAborted] have special meanings;
// [Suspend] and [Expand] are not failures. A panic or a call of runtime.Goexit fails the attempt, but does not end the process.
type StepFunc func(ctx context.Context, s *Step) (any, error)

// Step represents one attempt of one node. The function that performs the attempt gets the Step. The Step is also the attempt's context.
//
// The function may keep its Step after it has returned, but the context has then ended. Any goroutine may call the methods of a Step.
type Step struct {
	run     *Run
	ctx     atomic.Pointer[attemptContext] // nil until needed, see attemptContext
	ref     machine.Ref
	attempt int32
	state   atomic.Uint32 // stepActive, stepReturned or stepStopped; only the goroutine that ends the attempt's context changes it from stepActive
	flags   stepFlags
}

const (
	stepActive   = iota
	stepReturned // the step function has returned
	stepStopped  // the attempt was stopped before its step returned; its attemptContext contains the cause
)

// attemptContext contains the data that an attempt's context needs besides the Step itself. It is made when it is first needed, for example when the
// attempt has a deadline, or when it is stopped. Until then the Step contains a nil pointer instead.
//
// The goroutine that makes the live context stores it before it loads the Step's state. The goroutine that ends the attempt stores the
// state before it loads the live context. So at least one of the two goroutines ends the live context.
type attemptContext struct {
	live     atomic.Pointer[liveContext]
	cause    atomic.Pointer[stopCause] // set, once, before the state becomes stepStopped
	handed   *handedContext            // the context that middleware or the caller of NewStep has set; fixed when the attemptContext is made
	deadline int64                     // deadline of the attempt or the node, in ns since the run's start; 0 means none. Set before the step is called.
	timeout  *alarm                    // ends the attempt when its Timeout has passed; nil if there is none. The run's lock guards it.
}

// usedContext and timedContext save an allocation: each contains an attemptContext together with the liveContext or the alarm that it needs first.
type (
	usedContext struct {
		attemptContext
		first liveContext
	}
	timedContext struct {
		attemptContext
		alarm alarm
	}
)

// handedContext is the context of a Step that was not made by a run: middleware has derived the Step, or NewStep has made it from a Call.
type handedContext struct {
	context.Context
	attempt *Step // the attempt's first Step, made by the run or by NewStep

	call     *Call    // for a Step that was made from data; otherwise nil
	reporter reporter // for a Step that was made from data; may be nil
}

// stepKey is a key for Value: a Step, and a context that is derived from it, return the Step for this key.
type stepKey struct{}

// StepOf returns the Step of the attempt to which ctx belongs. The Step is ctx itself, or the Step from which ctx was derived, for example by
// context.WithTimeout. StepOf is meant for functions that get only a context, such as functions that a step calls, and steps of package typed:
//
//	key := kahn.StepOf(ctx).IdempotencyKey()
//
// In a nested run StepOf returns the innermost Step. It returns nil for a context that is not derived from a Step.
func StepOf(ctx context.Context) *Step {
	if ctx == nil {
		return nil
	}
	if s, is := ctx.(*Step); is {
		return s
	}
	s, _ := ctx.Value(stepKey{}).(*Step)
	return s
}

// The method `under` returns a Step of the same attempt, with ctx as its context. If middleware calls its function `next` with a derived context, the
// step gets this new Step. So if the step uses its Step as a context, it uses the derived context.
func (s *Step) under(ctx context.Context) *Step {
	if own, is := ctx.(*Step); ctx == nil || is && own == s {
		return s
	}
	to := &Step{run: s.run, ref: s.ref, attempt: s.attempt, flags: s.flags}
	handed := &handedContext{Context: ctx, attempt: s.known()}
	if h := s.handed(); h != nil {
		handed.call, handed.reporter = h.call, h.reporter
	}
	to.ctx.Store(&attemptContext{handed: handed})
	return to
}

// The method `handed` returns the handedContext of the Step. It returns nil for a Step that a run made.
func (s *Step) handed() *handedContext {
	if x := s.ctx.Load(); x != nil {
		return x.handed
	}
	return nil
}

// The method `known` returns the attempt's first Step. This is s itself, or the Step from which middleware derived s.
func (s *Step) known() *Step {
	if h := s.handed(); h != nil {
		return h.attempt
	}
	return s
}

// stepFlags are properties of an attempt. They do not change after the step is called.
type stepFlags uint8

const (
	stepSubstituted stepFlags = 1 << iota // failed and skipped predecessors deliver defaults
	stepDetached                          // a cleanup or end node: a stop of the run does not reach it
	stepAdmitting                         // the inputs of the node are checked before the attempt starts
	stepFallback                          // an attempt of the fallback
	stepCrashed                           // the node is doomed, see Run.doomed: only its fallback is called
	stepAgain                             // the step is called only to get again the graph that an earlier call has returned
	stepUndo                              // the attempt undoes the node
	stepMemo                              // the run records the inputs that the step reads, see Memo
)

// liveContext is the context of an attempt, and is made on first use. A cancel function of package context always sets the error Canceled, but an
// attempt with a deadline may end with DeadlineExceeded. So a live context with a deadline has a parentContext, and copies the parent's error.
type liveContext struct {
	context.Context
	cancel context.CancelCauseFunc
	parent *parentContext // nil without a deadline
}

// boundContext is a liveContext with its parent.
type boundContext struct {
	liveContext
	over parentContext
}

// parentContext is the parent of a live context. It has the values of the run's context. When the parent ends, its function `fire` is called.
type parentContext struct {
	context.Context
	stop atomic.Pointer[stopCause]
	once sync.Once
	fire func() // cancels the live context; the live context then copies the Err and the Cause of this parent
}

// The variable `never` is the Done channel of each parentContext. It is never closed: when a parentContext ends, it calls the function that AfterFunc
// has registered, and does nothing else.
var never = make(chan struct{})

func (p *parentContext) Done() <-chan struct{} { return never }

func (p *parentContext) Err() error {
	if stop := p.stop.Load(); stop != nil {
		return stop.is
	}
	return nil
}

// AfterFunc registers the function that cancels the child of the parentContext. If another package implements a parent, package context calls the
// parent's AfterFunc. A parentContext has only one child.
func (p *parentContext) AfterFunc(f func()) (stop func() bool) {
	p.fire = f
	return func() bool { return false }
}

// Value looks up the key in the run's context. After the parent was stopped, Value looks up the key in a context that has ended with the cause of
// the stop, so that context.Cause finds this cause.
func (p *parentContext) Value(key any) any {
	if stop := p.stop.Load(); stop != nil {
		return stop.value(p.Context, key)
	}
	if key == causeKey {
		return nil // the parent has not ended, and a look-up in the base context would allocate
	}
	return p.Context.Value(key)
}

// causeKey is the key that package context passes to Value when it looks for the cause of a context.
var causeKey = func() any {
	var asked keyAsked
	_ = context.Cause(&asked)
	return asked.key
}()

type keyAsked struct {
	context.Context
	key any
}

func (a *keyAsked) Value(key any) any {
	a.key = key
	return nil
}

func (a *keyAsked) Err() error { return context.Canceled }

// The method `make` makes the context with the values of base, which may be a parentContext.
func (c *liveContext) make(base context.Context) {
	// If base is no parentContext but can end, it comes from a function of Around, or from a run that was stopped before it began. The end of
	// base must not end the new context.
	if c.parent, _ = base.(*parentContext); c.parent == nil && base.Done() != nil {
		base = context.WithoutCancel(base)
	}
	c.Context, c.cancel = context.WithCancelCause(base)
}

// The method `end` ends the context. When it returns, the context has ended, even if another goroutine ended it.
func (c *liveContext) end(cause *stopCause) {
	p := c.parent
	if p == nil {
		c.cancel(cause.err)
		return
	}
	p.once.Do(func() {
		p.stop.Store(cause)
		p.fire()
	})
}

// stopCause is the reason why an attempt's context ended. For this context, context.Cause returns the field `err`, and Err returns the field `is`
// (context.Canceled or context.DeadlineExceeded).
type stopCause struct{ err, is error }

// The method `value` looks up key in a context that is derived from base and has ended with the cause c. The method must also find the private key of
// package context that context.Cause looks up.
func (c *stopCause) value(base context.Context, key any) any {
	if c != attemptEnded {
		return c.over(base).Value(key)
	}
	if value := endedContext.Value(key); value != nil {
		return value
	}
	return base.Value(key)
}

func (c *stopCause) over(base context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(base)
	cancel(c.err)
	return ctx
}

// attemptEnded is the cause of the context of an attempt that has returned. All attempts that have returned share endedContext, which has this cause.
var (
	attemptEnded = &stopCause{fmt.Errorf("attempt ended: %w", context.Canceled), context.Canceled}
	endedContext = attemptEnded.over(context.Background())
)

func (s *Step) node() *node { return s.run.plan.node(s.ref) }

// ID returns the id of the node. For an item, this is the id of the map.
func (s *Step) ID() string {
	if c := s.given(); c != nil {
		return c.ID
	}
	r, ref, _ := s.run.home(s.ref, s.flags)
	return r.plan.names[ref]
}

// Path returns the node's name in events: its id, or in a composite its path. Examples are "S/x" for node x of sub-graph S, "M[2]" for the third
// item of map M, and "L#1/x" for node x in the first iteration of loop L.
func (s *Step) Path() string {
	if c := s.given(); c != nil {
		return c.Path
	}
	return s.run.path(s.ref)
}

// Kind returns the node's Kind.
func (s *Step) Kind() string {
	if c := s.given(); c != nil {
		return c.Kind
	}
	if x := s.node().Undo; s.flags&stepUndo != 0 && x.by != nil {
		return x.by.Kind
	}
	return s.node().Kind
}

// Label returns the node's Label.
func (s *Step) Label() string {
	if c := s.given(); c != nil {
		return c.Label
	}
	return s.node().Label
}

// Config returns the node's Config.
func (s *Step) Config() any {
	if c := s.given(); c != nil {
		return c.Config
	}
	if x := s.node().Undo; s.flags&stepUndo != 0 && x.by != nil {
		return x.by.Config
	}
	return s.node().Config
}

// Do returns the node's own function. It returns nil if the host's step function performs the node, or if the Step was made from a [Call]. For a
// Step that undoes its node, it returns the node's Compensate function.
func (s *Step) Do() StepFunc {
	switch {
	case s.given() != nil:
		return nil
	case s.flags&stepUndo == 0:
		return s.node().Do
	}
	undo := s.node().Undo.do
	if undo == nil {
		return nil
	}
	return func(ctx context.Context, s *Step) (any, error) { return nil, undo(ctx, s) }
}

// Attempt returns the number of the attempt, from 1.
func (s *Step) Attempt() int { return int(s.attempt) }

// Tier returns the node's tier, see [Plan.Tier].
func (s *Step) Tier() int {
	if c := s.given(); c != nil {
		return c.Tier
	}
	return s.run.plan.Tier(s.ref)
}

// RunID returns the id of the run.
func (s *Step) RunID() string {
	if c := s.given(); c != nil {
		return c.RunID
	}
	return s.run.ID()
}

// IdempotencyKey returns a key that is the same in all attempts of this node in this run. No other node or run has this key: it is the SHA-256, in
// hex, of the run's id and the node's path. Attempts to undo the node share another key. A node that is performed again after it was undone gets a
// new key.
func (s *Step) IdempotencyKey() string {
	if c := s.given(); c != nil {
		if c.IdempotencyKey == "" && c.RunID != "" {
			return s.keyAfter(0)
		}
		return c.IdempotencyKey
	}
	return s.keyAfter(s.run.undoneBefore(s, s.Path()))
}

// keyAfter returns the key of a node that was undone `undone` times before.
func (s *Step) keyAfter(undone int32) string {
	text := s.RunID() + "\x00" + s.Path()
	if s.flags&stepUndo != 0 {
		text += "\x00undo"
	}
	if undone > 0 {
		text += fmt.Sprint("\x00", undone)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Param returns the value of a parameter. In an item of a map, `item` and `index` are the item and its index. Any other parameter has the
// first of these values that exists:
//   - the value that edges delivered, merged if there are several;
//   - the node's static value;
//   - the root input of that name, for a declared port or a node without predecessors;
//   - the port's default.
//
// If the value is null, ok is true. If there is no value, ok is false.
func (s *Step) Param(name string) (value any, ok bool) {
	if c := s.given(); c != nil {
		value, ok = c.Params[name]
		return value, ok
	}
	s.read(readParam, name)
	v, ok := s.run.param(s.ref, s.flags, name)
	return s.run.clone(v), ok
}

// Params returns all parameters. The caller owns the map.
func (s *Step) Params() map[string]any {
	if c := s.given(); c != nil {
		return maps.Clone(c.Params)
	}
	s.read(readParams, "")
	return s.run.params(s.ref, s.flags, true)
}

// Upstream returns the value that the edge from the given node delivered. If several edges from the node delivered values, Upstream returns
// the value of the last edge in the order of declaration. ok is false if no edge from the node delivered a value.
func (s *Step) Upstream(id string) (value any, ok bool) {
	if c := s.given(); c != nil {
		value, ok = c.Upstream[id]
		return value, ok
	}
	s.read(readUpstream, id)
	v, ok := s.run.upstream(s.ref, s.flags, id)
	return s.run.clone(v), ok
}

// UpstreamAll returns the values that the predecessors delivered, by id. The caller owns the map.
func (s *Step) UpstreamAll() map[string]any {
	if c := s.given(); c != nil {
		return maps.Clone(c.Upstream)
	}
	m := map[string]any{}
	r, ref, flags := s.run.home(s.ref, s.flags)
	for _, i := range r.plan.net.In(ref) {
		if v, ok := r.delivered(ref, flags, i); ok {
			from := r.plan.ID(r.plan.net.Source(i))
			s.read(readUpstream, from)
			m[from] = r.clone(v)
		}
	}
	return m
}

// UpstreamErr returns the error of an ancestor that failed, was aborted or was cancelled. For a map that completed although some of its items failed,
// it returns the [*MapError] that lists the failed items. For any other ancestor it returns nil. It also returns nil for a node that a
// trigger has pruned. If the named node is not an ancestor, the error matches [ErrNotAncestor] and lists the nearest ancestors. In a Step made by
// [NewStep], UpstreamErr returns nil for a node that is not in the [Call], and logs a warning with Log.
func (s *Step) UpstreamErr(id string) error {
	v := s.View()
	if c := s.given(); c != nil {
		if known := c.nodes(); !slices.Contains(known, id) {
			s.Log(slog.LevelWarn, fmt.Sprintf("UpstreamErr: the call has no node %s%s", quoteID(id), instead(id, known)))
		}
	} else if _, ok := v.ancestor(id); !ok && !slices.Contains(v.run.plan.pruned, id) {
		v.reads(readNode, id)
		return v.run.plan.notAncestor(v.ref, id)
	}
	return v.Err(id)
}

// Root returns a root input of the run. For a node inside a composite, and for an item of a map, it returns a parameter of the composite instead.
// There an input of the run is available only if it is also a parameter of the composite.
func (s *Step) Root(name string) (value any, ok bool) {
	if c := s.given(); c != nil {
		value, ok = c.Root[name]
		return value, ok
	}
	s.read(readRoot, name)
	v, ok := s.run.input(name)
	return s.run.clone(v), ok
}

// LastErr returns the error of the latest earlier attempt that returned. It returns nil if there is none: in the first attempt, and if the process
// died during all earlier attempts.
func (s *Step) LastErr() error {
	if c := s.given(); c != nil {
		return c.LastErr
	}
	s.run.st.Lock()
	defer s.run.st.Unlock()
	if s.flags&stepUndo != 0 {
		return s.run.undo.nodes[s.ref].err
	}
	x := s.run.extras[s.ref]
	if x == nil {
		return nil
	}
	later, _ := slices.BinarySearchFunc(x.errs, s.attempt, func(e attemptError, attempt int32) int { return cmp.Compare(e.attempt, attempt) })
	if later == 0 {
		return nil
	}
	return x.errs[later-1].err
}

// View returns a View of the results of the node's ancestors. The View of the end node contains all results.
func (s *Step) View() View {
	if c := s.given(); c != nil {
		return NewView(c.view())
	}
	r, ref, _ := s.run.home(s.ref, s.flags)
	v := View{run: r, ref: ref}
	if s.flags&stepMemo != 0 {
		v.reader = s
	}
	return v
}

// Emit publishes a part of the output as an event node.stream.delta, before the step has completed. It does nothing if nothing reads the run's
// events or the attempt has ended. In a compensation, which has no output, Emit drops the chunk and logs a warning.
func (s *Step) Emit(chunk any) {
	if s.given() != nil {
		s.reporter().Emit(chunk)
		return
	}
	s.run.emit(s.known(), chunk)
}

// Log publishes a message as an event node.log. It does nothing if nothing reads the run's events or the attempt has ended.
func (s *Step) Log(level slog.Level, message string) {
	if s.given() != nil {
		s.reporter().Log(level, message)
		return
	}
	s.run.logStep(s.known(), level, message)
}

// endBy sets the attempt's deadline to t, in ns since the run's start, unless the attempt already has an earlier deadline. It is called before
// the step is called.
func (s *Step) endBy(t int64) {
	if x := s.own(); x.deadline == 0 || t < x.deadline {
		x.deadline = t
	}
}

// Deadline implements context.Context. It returns the earliest deadline of the attempt, the node, the run and the caller's context. For a cleanup or
// end node, which a stop of the run does not reach, only the deadlines of the attempt and the node count.
func (s *Step) Deadline() (deadline time.Time, ok bool) {
	if h := s.handed(); h != nil {
		deadline, ok = h.Deadline()
		if h.call != nil && !h.call.Deadline.IsZero() && (!ok || h.call.Deadline.Before(deadline)) {
			return h.call.Deadline, true
		}
		return deadline, ok
	}
	earlier := func(d time.Time) {
		if !ok || d.Before(deadline) {
			deadline, ok = d, true
		}
	}
	if x := s.ctx.Load(); x != nil && x.deadline != 0 {
		earlier(s.run.start.Add(time.Duration(x.deadline)))
	}
	if s.flags&stepDetached == 0 {
		if s.run.bound != 0 {
			earlier(s.run.start.Add(time.Duration(s.run.bound)))
		}
		if d, has := s.run.ctx.Deadline(); has {
			earlier(d)
		}
	}
	return deadline, ok
}

// Done implements context.Context.
func (s *Step) Done() <-chan struct{} {
	if h := s.handed(); h != nil {
		return h.Done()
	}
	if s.state.Load() == stepReturned {
		return endedContext.Done()
	}
	return s.context().Done()
}

// Err implements context.Context. It returns [context.DeadlineExceeded] if the deadline of the attempt, the node, the run or the caller's context
// has passed, and [context.Canceled] if the context ended for another reason; context.Cause distinguishes the reasons.
func (s *Step) Err() error {
	if h := s.handed(); h != nil {
		return h.Err()
	}
	stop := s.ended()
	if stop == nil {
		return nil
	}
	if live := s.live(); live != nil {
		live.end(stop) // a caller that sees the error must also see that Done is closed
	}
	return stop.is
}

// Value implements context.Context. For the key that [StepOf] uses, it returns the Step itself. It looks up any other key in the context that
// middleware passed to its function `next` or, without middleware, in the context that was passed to Execute.
func (s *Step) Value(key any) any {
	if key == (stepKey{}) {
		return s
	}
	if h := s.handed(); h != nil {
		return h.Value(key)
	}
	// Package context finds the cancellation of a parent through Value. So the Step of an attempt that was stopped, or that has a live context, must
	// pass the key to the attempt's context.
	switch stop := s.ended(); {
	case stop == attemptEnded:
		return stop.value(s.run.base, key)
	case stop != nil || s.live() != nil:
		return s.context().Value(key)
	}
	return s.run.base.Value(key)
}

// String returns a name of the attempt. The String of a context that is derived from the Step contains this name.
func (s *Step) String() string {
	if s.run == nil && s.given() == nil {
		return "kahn.Step of no run"
	}
	return fmt.Sprintf("kahn.Step(%s, attempt %d)", quoteID(s.ID()), s.attempt)
}

// The method `own` returns the attemptContext of the Step. If there is none, it creates one.
func (s *Step) own() *attemptContext {
	if x := s.ctx.Load(); x != nil {
		return x
	}
	s.ctx.CompareAndSwap(nil, &attemptContext{})
	return s.ctx.Load()
}

// timeoutAlarm makes the alarm for the Timeout of the attempt, before the step is called. The caller holds the run's lock.
func (s *Step) timeoutAlarm(lasts time.Duration) *alarm {
	if s.ctx.Load() == nil {
		x := &timedContext{}
		x.timeout = &x.alarm
		s.ctx.CompareAndSwap(nil, &x.attemptContext)
	}
	x := s.ctx.Load()
	if x.timeout == nil { // the attemptContext was made without an alarm, or the alarm was disarmed
		x.timeout = &alarm{}
	}
	*x.timeout = alarm{run: s.run, step: s, lasts: lasts}
	return x.timeout
}

func (s *Step) live() *liveContext {
	if x := s.ctx.Load(); x != nil {
		return x.live.Load()
	}
	return nil
}

// The method `ended` returns the cause of the end of the attempt's context. It returns nil if the context has not ended.
func (s *Step) ended() *stopCause {
	switch s.state.Load() {
	case stepActive:
		return nil
	case stepStopped:
		return s.ctx.Load().cause.Load()
	}
	return attemptEnded
}

func (s *Step) context() *liveContext {
	x := s.ctx.Load()
	if x == nil {
		x = s.use()
	}
	live := x.live.Load()
	if live == nil {
		live = s.newLive()
		if !x.live.CompareAndSwap(nil, live) {
			live = x.live.Load()
		}
	}
	if stop := s.ended(); stop != nil {
		live.end(stop)
	}
	return live
}

// The method `use` makes the attemptContext of a Step that has none. If the attempt has no deadline, the attemptContext includes a live context.
func (s *Step) use() *attemptContext {
	if _, bound := s.Deadline(); bound {
		return s.own()
	}
	x := &usedContext{}
	x.first.make(s.run.base)
	x.live.Store(&x.first)
	s.ctx.CompareAndSwap(nil, &x.attemptContext)
	return s.ctx.Load()
}

func (s *Step) newLive() *liveContext {
	if _, bound := s.Deadline(); !bound {
		c := &liveContext{}
		c.make(s.run.base)
		return c
	}
	c := &boundContext{}
	c.over.Context = s.run.base
	c.make(&c.over)
	return &c.liveContext
}

// The method `returned` ends the attempt's context because the step has returned, unless the context has already ended. It drops the live context:
// the Result keeps the Step, and would otherwise keep the live context, too. The caller does not hold the run's lock.
func (s *Step) returned() {
	first := s.state.CompareAndSwap(stepActive, stepReturned)
	x := s.ctx.Load()
	if x == nil {
		return
	}
	if live := x.live.Load(); live != nil {
		live.end(s.ended()) // the live context ends before it is dropped: a caller that sees the error must also see that Done is closed
		if x.live.Store(nil); first && x.deadline == 0 {
			s.ctx.Store(nil) // x may be a part of a usedContext, which also contains the live context
		}
	}
}

// The method `end` ends the attempt's context, unless the context has already ended. The caller does not hold the run's lock.
func (s *Step) end(cause *stopCause) {
	x := s.own()
	x.cause.CompareAndSwap(nil, cause)
	if s.state.CompareAndSwap(stepActive, stepStopped) {
		if live := x.live.Load(); live != nil {
			live.end(x.cause.Load())
		}
	}
}

// Resumed returns the value of the signal that ended the node's wait. ok is false if no signal has ended a wait of the node.
func (s *Step) Resumed() (value any, ok bool) {
	if c := s.given(); c != nil {
		return c.Signal, c.Resumed
	}
	_, d := s.resumption()
	if d == nil {
		return nil, false
	}
	return s.run.clone(d.Value), true
}

// resumption returns the saved state of a step that was suspended, and the signal that ended the wait. If there was no signal, d is nil.
func (s *Step) resumption() (saved any, d *Decision) {
	s.run.st.Lock()
	defer s.run.st.Unlock()
	if x := s.run.extras[s.ref]; x != nil {
		return x.saved, x.decision
	}
	return nil, nil
}

// SavedState returns the state that the step passed to [Suspend] or [Expand], or nil.
func (s *Step) SavedState() any {
	if c := s.given(); c != nil {
		return c.SavedState
	}
	saved, _ := s.resumption()
	return s.run.clone(saved)
}

// The method `awaited` returns the answers to AwaitRun. An answer with an error counts only in the attempt that received it.
func (s *Step) awaited() (list []store.Ended) {
	if c := s.given(); c != nil {
		return c.Awaited
	}
	s.run.st.Lock()
	defer s.run.st.Unlock()
	if x := s.run.extras[s.ref]; x != nil {
		for _, a := range x.awaited {
			if a.Status.Terminal() || a.Attempt == s.attempt {
				list = append(list, a.Ended)
			}
		}
	}
	return list
}

// AwaitRun returns the status of another run if that run has ended. Otherwise it returns an error, and the step must return this error. This suspends
// the node until the other run has ended. Then kahn calls the step again, in the same attempt, and AwaitRun returns the status:
//
//	status, err := kahn.AwaitRun(ctx, order)
//	if err != nil {
//		return nil, err
//	}
//
// The caller's run must be [Durable], and its store must be a [store.Awaiter]; otherwise the step fails with [ErrNoAwait]. The store must also
// contain the other run. It answers in the transaction that ends the other run, even if that run never began. The error matches [ErrUnknownRun] if
// the run is not stored, [ErrAwaitCycle] if the runs await each other, and [ErrBadValue] if run is no run id or ctx does not belong to a step.
// AwaitRun leaves [Step.SavedState] and [Step.Resumed] unchanged. No signal ends the wait. An attempt may await several runs, one after the other.
func AwaitRun(ctx context.Context, run string) (RunStatus, error) {
	s := StepOf(ctx)
	switch {
	case s == nil:
		return RunPending, fmt.Errorf("%w: AwaitRun: the context is not the context of a step", ErrBadValue)
	case run == "" || !utf8.ValidString(run):
		return RunPending, fmt.Errorf("%w: AwaitRun: %s is not a run id", ErrBadValue, quoteID(run))
	}
	for _, e := range s.awaited() {
		if e.Run != run {
			continue
		}
		switch {
		case e.Unknown:
			return RunPending, fmt.Errorf("%w: %s", store.ErrUnknownRun, quoteID(run))
		case len(e.Cycle) > 0:
			return RunPending, fmt.Errorf("%w: %s", ErrAwaitCycle, cycleText(e.Cycle))
		}
		return e.Status, nil
	}
	return RunPending, &suspendError{run: run}
}

// cycleText returns a cycle of runs as text. If the cycle is long, the text names only its first five runs and its last run.
func cycleText(cycle []string) string {
	const most = 5
	var list []string
	for i, id := range cycle {
		switch {
		case i < most || i == len(cycle)-1:
			list = append(list, quoteID(id))
		case i == most:
			list = append(list, fmt.Sprintf("%d others", len(cycle)-most-1))
		}
	}
	return strings.Join(append(list, list[0]), ", which awaits ")
}

// Queued returns the time at which the attempt became ready to start: the end of the last predecessor for which the node's join waited, the end of
// the node's backoff, or the arrival of the awaited signal. Between this time and the event node.started, the attempt waited for slots, for tokens
// and for the store. Queued must be called only while the attempt runs.
func (s *Step) Queued() time.Time {
	if c := s.given(); c != nil {
		return c.Queued
	}
	r := s.run
	r.st.Lock()
	defer r.st.Unlock()
	return r.timeAt(r.readyAt(s.ref))
}

// Predecessor describes a predecessor of the step's node: see [Step.Predecessors].
type Predecessor struct {
	ID     string
	Path   string // as in [Event]
	Status Status
}

// Predecessors returns the nodes from which an edge of any kind leads to this node, with their current statuses. It lists each node once, in the
// order in which the edges are declared. If the node's join does not decide early, all predecessors have ended. An item has the predecessors of its
// map; the first nodes of a sub-graph have none.
func (s *Step) Predecessors() []Predecessor {
	if c := s.given(); c != nil {
		return append([]Predecessor{}, c.Predecessors...)
	}
	s.read(readBefore, "")
	return s.predecessors()
}

func (s *Step) predecessors() []Predecessor {
	r, ref, _ := s.run.home(s.ref, s.flags)
	var refs []machine.Ref
	for _, i := range r.plan.net.In(ref) {
		refs = append(refs, r.plan.net.Source(i))
	}
	list := make([]Predecessor, 0, len(refs))
	seen := make(map[machine.Ref]bool, len(refs))
	r.st.Lock()
	defer r.st.Unlock()
	for _, from := range refs {
		if !seen[from] {
			seen[from] = true
			list = append(list, Predecessor{ID: r.plan.names[from], Path: r.path(from), Status: r.st.Status(from)})
		}
	}
	return slices.Clip(list)
}

// Epoch returns the epoch of the lease under which the run is performed. The epoch increases each time that a process acquires the lease, so it can
// serve as a fencing token for other systems. If a request has a lower epoch than an earlier request, the other system can refuse the later request:
// its sender has lost the run without noticing. Epoch returns 0 if the run is not [Durable].
func (s *Step) Epoch() uint64 {
	if c := s.given(); c != nil {
		return c.Epoch
	}
	if d := s.run.durable; d != nil {
		return d.lease.Epoch
	}
	return 0
}
