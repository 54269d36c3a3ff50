package kahn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// Call is one attempt of a node as data. It contains everything that the step can read from its [Step]. [Step.Call] makes a Call from a Step, and
// [NewStep] makes a Step from a Call, even in another process. A coordinator that keeps its own state may set the fields of a Call itself.
//
// In JSON, the values have the form that Codec gives them. A decoded error has the original text and matches the same sentinel errors. The error of
// a failed predecessor also keeps its fields.
type Call struct {
	// RunID, ID, Path, Kind, Label, Config, Attempt, Tier, IdempotencyKey, Epoch, Queued and Predecessors are the results of the Step's methods
	// with the same names. If IdempotencyKey is empty, Step.IdempotencyKey computes the key from RunID and Path.
	RunID          string        `json:"run_id,omitempty"`
	ID             string        `json:"id,omitempty"`
	Path           string        `json:"path,omitempty"`
	Kind           string        `json:"kind,omitempty"`
	Label          string        `json:"label,omitempty"`
	Config         any           `json:"-"`
	Attempt        int           `json:"attempt,omitempty"`
	Tier           int           `json:"tier,omitempty"`
	IdempotencyKey string        `json:"idempotency_key,omitempty"`
	Epoch          uint64        `json:"epoch,omitempty"`
	Queued         time.Time     `json:"queued,omitzero"`
	Predecessors   []Predecessor `json:"predecessors,omitempty"`
	// Deadline is the earliest deadline of the attempt, the node and the run. It is zero if none of them has a deadline. The run enforces it:
	// it is also the deadline of the step's context in the run.
	Deadline time.Time `json:"deadline,omitzero"`
	// Params contains the parameters, by name. Upstream contains the values that the predecessors delivered, by the predecessors' ids.
	Params   map[string]any `json:"-"`
	Upstream map[string]any `json:"-"`
	// Root contains the root inputs. For a node in a composite, it contains the composite's parameters instead.
	Root map[string]any `json:"-"`
	// InMap is set if the node is inside a map. Then Item is the item of the innermost map, and Index is the item's index.
	InMap bool `json:"in_map,omitempty"`
	Index int  `json:"index,omitempty"`
	Item  any  `json:"-"`
	// If Resumed is set, Signal is the value that ended the node's wait.
	Resumed    bool  `json:"resumed,omitempty"`
	Signal     any   `json:"-"`
	SavedState any   `json:"-"`
	LastErr    error `json:"-"`
	// Compensating is set if the attempt undoes the node: see [Step.Compensating]. If it is set, Compensated and Certain are the results of
	// [Step.Compensated].
	Compensating bool `json:"compensating,omitempty"`
	Compensated  any  `json:"-"`
	Certain      bool `json:"certain,omitempty"`
	// Awaited contains the answers about the runs that the step has awaited, see [AwaitRun].
	Awaited []store.Ended `json:"awaited,omitempty"`
	// View is the data of [Step.View]. Its Iteration is also the result of [Step.Iteration]. [Step.Call] puts all ancestors of the node into View.
	// To make the call smaller, a host may remove ancestors that the step does not use. If the View's Root is nil, [Step.View] shows the Call's Root.
	// If the View's Config is nil, [Step.View] shows the Call's Config, unless Compensating is set.
	View ViewData `json:"-"`
	// Codec encodes and decodes the values. Step.Call sets it to the run's codec; nil means nil [Types].
	Codec Codec `json:"-"`

	early *early // the edges that had not resolved when an early join started the node, or nil
}

// ViewData is the data of a [View]: see [NewView] and [View.Data].
type ViewData struct {
	ID        string         `json:"id,omitempty"`
	Config    any            `json:"-"`
	Root      map[string]any `json:"-"` // the root inputs
	Fired     bool           `json:"fired,omitempty"`
	Trigger   any            `json:"-"` // the payload with which the run was fired, if Fired is set
	Iteration int            `json:"iteration,omitempty"`
	RunStatus RunStatus      `json:"run_status,omitzero"`
	// Nodes are the ancestors, by id.
	Nodes map[string]NodeData `json:"-"`
	// Codec encodes and decodes the values; nil means nil [Types].
	Codec Codec `json:"-"`

	asks *asking // supplies root inputs and nodes if Plan.Check or Plan.Evaluate calls a guard or a condition; otherwise nil
}

// isEmpty reports whether no field but Codec is set.
func (d *ViewData) isEmpty() bool {
	return d.ID == "" && d.Config == nil && d.Root == nil && !d.Fired && d.Trigger == nil && d.Iteration == 0 && d.RunStatus == RunPending && len(d.Nodes) == 0
}

// The method `node` returns the data of an ancestor.
func (d *ViewData) node(id string) (n NodeData, ok bool) {
	if d.asks != nil {
		return d.asks.node(id)
	}
	n, ok = d.Nodes[id]
	return n, ok
}

// The method `root` returns a root input.
func (d *ViewData) root(name string) (value any, ok bool) {
	if d.asks != nil {
		return d.asks.input(name)
	}
	value, ok = d.Root[name]
	return value, ok
}

// NodeData is the data of a node in a [View].
type NodeData struct {
	Status Status
	Output any
	Err    error
	// Decision is the signal that answered the node, or nil if no signal did: see [View.Decision]. [Plan.View] does not set this field.
	Decision *Decision
	// Tolerated is true for a node that failed under ContinueOnFail, and for a superseded node: see [View.Unread].
	Tolerated bool
}

// isUnread reports whether the node failed, was aborted or was cancelled, and is not Tolerated. If a guard, a condition or the test of a loop
// reads the output of this node, it must also ask for the node's status or error: see [View.Unread].
func (n NodeData) isUnread() bool {
	return (n.Status == Failed || n.Status == Aborted || n.Status == Cancelled) && !n.Tolerated
}

// reporter receives the reports of a step while it runs. In the process of the run, a [*Step] is a reporter.
type reporter interface {
	Emit(chunk any)
	Log(level slog.Level, message string)
	Tokens(input, output int)
}

// NewStep returns a Step whose methods return the data in the Call. Its context is ctx; the host cancels ctx when the attempt must stop. If ctx is
// nil, the context is [context.Background]. The parameter "to" receives the step's deltas, logs and token counts; if "to" is nil, they are dropped.
// In the process of the run, "to" may be the attempt's [*Step].
func NewStep(ctx context.Context, c Call, to interface {
	Emit(chunk any)
	Log(level slog.Level, message string)
	Tokens(input, output int)
}) *Step {
	if ctx == nil {
		ctx = context.Background()
	}
	s := &Step{attempt: int32(c.Attempt)}
	if c.Compensating {
		s.flags = stepUndo
	}
	s.ctx.Store(&attemptContext{handed: &handedContext{Context: ctx, attempt: s, call: &c, reporter: to}})
	return s
}

// NewView returns a View of the data.
func NewView(d ViewData) View { return View{data: &d} }

// The method `given` returns the Call from which the Step was made. For a Step of a run it returns nil.
func (s *Step) given() *Call {
	if h := s.handed(); h != nil {
		return h.call
	}
	return nil
}

// The method `reporter` returns the reporter of a Step that was made from a Call. The result is never nil.
func (s *Step) reporter() reporter {
	if to := s.handed().reporter; to != nil {
		return to
	}
	return noReporter{}
}

type noReporter struct{}

func (noReporter) Emit(any)               {}
func (noReporter) Log(slog.Level, string) {}
func (noReporter) Tokens(int, int)        {}

// Call returns the attempt as data. It takes time linear in the number of the node's ancestors, since it collects their results for the field View;
// [Step.CallWithoutView] does not. If [NewStep] made the Step from a Call, both methods return that Call.
func (s *Step) Call() Call {
	c := s.CallWithoutView()
	if s.given() == nil {
		c.View = s.View().Data()
	}
	return c
}

// CallWithoutView is like Call, but of the ancestors the View contains only the predecessors with an error, which [Step.UpstreamErr] needs. All
// other data of the View is complete, such as the root inputs and the trigger. CallWithoutView is meant for steps that do not read results of
// ancestors from [Step.View]. It takes time linear in the number of the node's edges. So one CallWithoutView for each node takes time linear in the
// number of edges in the graph. One Call for each node takes quadratic time in a graph with long paths.
func (s *Step) CallWithoutView() Call {
	if c := s.given(); c != nil {
		return *c
	}
	c := Call{
		RunID: s.RunID(), ID: s.ID(), Path: s.Path(), Kind: s.Kind(), Label: s.Label(), Config: s.Config(), Attempt: s.Attempt(), Tier: s.Tier(),
		IdempotencyKey: s.IdempotencyKey(), Epoch: s.Epoch(), Queued: s.Queued(), Predecessors: s.Predecessors(),
		Params: s.Params(), Upstream: s.UpstreamAll(), Root: s.run.allInputs(), Index: s.Index(), SavedState: s.SavedState(), LastErr: s.LastErr(),
		Codec: s.run.cfg.codec, early: s.early(),
	}
	c.Deadline, _ = s.Deadline()
	if c.Item, c.InMap = s.Item(); !c.InMap {
		c.Index = 0
	}
	c.Signal, c.Resumed = s.Resumed()
	if c.Compensating = s.Compensating(); c.Compensating {
		c.Compensated, c.Certain = s.Compensated()
	}
	c.Awaited = s.awaited()
	v := s.View()
	c.View = ViewData{ID: v.ID(), Iteration: v.Iteration(), RunStatus: v.RunStatus(), Codec: c.Codec, Nodes: map[string]NodeData{}}
	if c.View.Trigger, c.View.Fired = v.Trigger(); c.Compensating {
		c.View.Config = v.Config()
	}
	if v.run != s.run { // the View of an item is the View of its map
		c.View.Root = v.run.allInputs()
	}
	for _, p := range c.Predecessors {
		if n := v.nodeData(p.ID); n.Err != nil {
			c.View.Nodes[p.ID] = n
		}
	}
	return c
}

// The method `nodes` returns the ids of the nodes about which the Call has data, sorted.
func (c *Call) nodes() []string {
	ids := slices.Collect(maps.Keys(c.View.Nodes))
	for _, p := range c.Predecessors {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// The method `view` returns the data of [Step.View].
func (c *Call) view() ViewData {
	d := c.View
	// If the attempt undoes its node, c.Config may be the Config of the compensation, so the View keeps its own Config.
	if d.Config == nil && !c.Compensating {
		d.Config = c.Config
	}
	if d.Root == nil {
		d.Root = c.Root
	}
	return d
}

// allInputs returns the root inputs in a new map.
func (r *Run) allInputs() map[string]any {
	m := map[string]any{}
	r.eachInput(func(name string) {
		if _, done := m[name]; done {
			return
		}
		if v, ok := r.input(name); ok {
			m[name] = r.clone(v)
		}
	})
	return m
}

// Data returns the data of the View. It takes time linear in the number of the node's ancestors.
func (v View) Data() ViewData {
	switch {
	case v.data != nil && v.data.asks != nil:
		return v.data.asks.of.view(v.data.asks.ref)
	case v.data != nil:
		return *v.data
	}
	d := ViewData{
		ID: v.ID(), Config: v.Config(), Root: v.run.allInputs(), Iteration: v.Iteration(), RunStatus: v.RunStatus(), Codec: v.run.cfg.codec,
		Nodes: map[string]NodeData{},
	}
	d.Trigger, d.Fired = v.Trigger()
	for _, id := range v.ancestors() {
		d.Nodes[id] = v.nodeData(id)
	}
	return d
}

func (v View) nodeData(id string) NodeData {
	n := NodeData{Status: v.Status(id), Output: v.Output(id), Err: v.Err(id), Decision: v.Decision(id)}
	if n.isUnread() {
		n.Tolerated = v.tolerates(id)
	}
	return n
}

// The method `tolerates` reports whether the run tolerates that the node failed, was aborted or was cancelled.
func (v View) tolerates(id string) bool {
	r, ok := v.ancestor(id)
	if !ok {
		return false
	}
	v.run.st.Lock()
	defer v.run.st.Unlock()
	return !v.run.st.Bad(r)
}

// The method `ancestors` returns the ids of the nodes in the View.
func (v View) ancestors() []string {
	p := v.run.plan
	if v.ref == everyNode {
		return p.names
	}
	return p.Ancestors(p.names[v.ref])
}

// The JSON forms of Call and ViewData, and of their parts. callForm and viewForm embed a type without methods, so package json encodes the fields of
// this type itself. The fields of the type stored contain values that the codec has encoded.
type (
	plainCall Call
	callForm  struct {
		*plainCall
		Config     *stored           `json:"config,omitempty"`
		Params     map[string]stored `json:"params,omitempty"`
		Upstream   map[string]stored `json:"upstream,omitempty"`
		Root       map[string]stored `json:"root,omitempty"`
		Item       *stored           `json:"item,omitempty"`
		Signal     *stored           `json:"signal,omitempty"`
		SavedState *stored           `json:"saved_state,omitempty"`
		LastErr    *stored           `json:"last_error,omitempty"`
		Undone     *stored           `json:"compensated,omitempty"`
		View       *ViewData         `json:"view,omitempty"`
		Early      *early            `json:"early,omitempty"`
	}
	plainView ViewData
	viewForm  struct {
		*plainView
		Config  *stored             `json:"config,omitempty"`
		Root    map[string]stored   `json:"root,omitzero"`
		Trigger *stored             `json:"trigger,omitempty"`
		Nodes   map[string]nodeForm `json:"nodes,omitempty"`
	}
	nodeForm struct {
		Status Status  `json:"status"`
		Output *stored `json:"output,omitempty"`
		Err    *stored `json:"error,omitempty"`

		Decision  *decisionForm `json:"decision,omitempty"`
		Tolerated bool          `json:"tolerated,omitempty"`
	}
	decisionForm struct {
		Value   *stored `json:"value,omitempty"`
		Actor   string  `json:"actor,omitempty"`
		Comment string  `json:"comment,omitempty"`
		ID      string  `json:"id,omitempty"`
	}
)

// formError changes the names in an error of package json. It replaces the name of the form by the name of the exported type. It removes the name of
// the embedded type from the path of the field.
func formError(err error, form, exported reflect.Type) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		if mismatch.Struct == form.Name() {
			mismatch.Struct = exported.String()
		}
		if mismatch.Type == form {
			mismatch.Type = exported
		}
		mismatch.Field = strings.TrimPrefix(mismatch.Field, form.Field(0).Name+".")
	}
	return err
}

// The type `values` encodes or decodes the values of a form. It keeps the first error, with the name of the field.
type values struct {
	codec Codec
	err   error
}

// The method `failed` records the first error that is not nil, with the name of its field. If `name` is not empty, it names a part of the field.
func (x *values) failed(field, name string, err error) {
	switch {
	case x.err != nil || err == nil:
	case name != "":
		x.err = fmt.Errorf("%s %s: %w", field, quoteID(name), err)
	default:
		x.err = fmt.Errorf("%s: %w", field, err)
	}
}

func (x *values) write(field string, v any) *stored { return x.writeNamed(field, "", v) }

func (x *values) writeNamed(field, name string, v any) *stored {
	if v == nil {
		return nil
	}
	raw, err := encodeValue(x.codec, v)
	x.failed(field, name, err)
	return &stored{raw: raw}
}

func (x *values) writeAll(field string, m map[string]any) map[string]stored {
	form := make(map[string]stored, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		raw, err := encodeValue(x.codec, m[name])
		x.failed(field, name, err)
		form[name] = stored{raw: raw}
	}
	return form
}

func (x *values) read(field string, s *stored) any { return x.readNamed(field, "", s) }

func (x *values) readNamed(field, name string, s *stored) any {
	if s == nil {
		return nil
	}
	v, err := decodeValue(x.codec, s.raw)
	x.failed(field, name, err)
	return v
}

func (x *values) readAll(field string, form map[string]stored) map[string]any {
	m := make(map[string]any, len(form))
	for _, name := range slices.Sorted(maps.Keys(form)) {
		s := form[name]
		m[name] = x.readNamed(field, name, &s)
	}
	return m
}

// The method `errors` returns a copy of x with a codec that can encode any error: the codec of x if it is a Types, otherwise a nil Types.
func (x *values) errors() values {
	switch x.codec.(type) {
	case Types, types:
		return values{codec: x.codec, err: x.err}
	}
	return values{codec: Types(nil), err: x.err}
}

func (x *values) writeError(field, name string, err error) *stored {
	if err == nil {
		return nil
	}
	in := x.errors()
	s := in.writeNamed(field, name, err)
	x.err = in.err
	return s
}

func (x *values) writeDecision(field, name string, d *Decision) *decisionForm {
	if d == nil {
		return nil
	}
	return &decisionForm{x.writeNamed(field, name, d.Value), d.Actor, d.Comment, d.ID}
}

func (x *values) readDecision(field, name string, d *decisionForm) *Decision {
	if d == nil {
		return nil
	}
	return &Decision{x.readNamed(field, name, d.Value), d.Actor, d.Comment, d.ID}
}

// readError decodes an error. If the decoded value is a text, readError returns an error with this text.
func (x *values) readError(field, name string, s *stored) error {
	in := x.errors()
	v := in.readNamed(field, name, s)
	x.err = in.err
	switch v := v.(type) {
	case nil:
	case error:
		return v
	case string:
		return errors.New(v)
	default:
		x.failed(field, name, fmt.Errorf("%w: %T is neither an error nor the text of one", ErrBadValue, v))
	}
	return nil
}

// MarshalJSON implements json.Marshaler. The error matches [ErrNotEncodable] if a value cannot be encoded.
func (c Call) MarshalJSON() ([]byte, error) {
	x := values{codec: c.Codec}
	view := c.View
	view.Codec = c.Codec
	form := callForm{
		plainCall: (*plainCall)(&c), Config: x.write("config", c.Config), Params: x.writeAll("params", c.Params), Upstream: x.writeAll("upstream", c.Upstream),
		Root: x.writeAll("root", c.Root), Item: x.write("item", c.Item), Signal: x.write("signal", c.Signal), SavedState: x.write("saved_state", c.SavedState),
		LastErr: x.writeError("last_error", "", c.LastErr), Undone: x.write("compensated", c.Compensated), View: &view, Early: c.early,
	}
	if view.isEmpty() {
		form.View = nil
	}
	if x.err != nil {
		return nil, x.err
	}
	return json.Marshal(form)
}

// UnmarshalJSON implements json.Unmarshaler. It decodes the values with c.Codec.
func (c *Call) UnmarshalJSON(data []byte) error {
	x := values{codec: c.Codec}
	form := callForm{plainCall: (*plainCall)(c), View: &ViewData{Codec: c.Codec}}
	if err := json.Unmarshal(data, &form); err != nil {
		return formError(err, reflect.TypeFor[callForm](), reflect.TypeFor[Call]())
	}
	c.Config, c.Item = x.read("config", form.Config), x.read("item", form.Item)
	c.Params, c.Upstream, c.Root = x.readAll("params", form.Params), x.readAll("upstream", form.Upstream), x.readAll("root", form.Root)
	c.Signal, c.SavedState, c.LastErr = x.read("signal", form.Signal), x.read("saved_state", form.SavedState), x.readError("last_error", "", form.LastErr)
	c.Compensated = x.read("compensated", form.Undone)
	if form.View == nil { // the text of the view is null
		form.View = &ViewData{Codec: c.Codec}
	}
	c.View, c.early = *form.View, form.Early
	return x.err
}

// MarshalJSON implements json.Marshaler. The error matches [ErrNotEncodable] if a value cannot be encoded.
func (d ViewData) MarshalJSON() ([]byte, error) {
	x := values{codec: d.Codec}
	form := viewForm{
		plainView: (*plainView)(&d), Config: x.write("config", d.Config), Trigger: x.write("trigger", d.Trigger), Nodes: make(map[string]nodeForm, len(d.Nodes)),
	}
	if d.Root != nil {
		form.Root = x.writeAll("root", d.Root)
	}
	for _, id := range slices.Sorted(maps.Keys(d.Nodes)) {
		n := d.Nodes[id]
		form.Nodes[id] = nodeForm{
			n.Status, x.writeNamed("output of node", id, n.Output), x.writeError("error of node", id, n.Err), x.writeDecision("decision of node", id, n.Decision), n.Tolerated,
		}
	}
	if x.err != nil {
		return nil, x.err
	}
	return json.Marshal(form)
}

// UnmarshalJSON implements json.Unmarshaler. It decodes the values with d.Codec.
func (d *ViewData) UnmarshalJSON(data []byte) error {
	x := values{codec: d.Codec}
	form := viewForm{plainView: (*plainView)(d)}
	if err := json.Unmarshal(data, &form); err != nil {
		return formError(err, reflect.TypeFor[viewForm](), reflect.TypeFor[ViewData]())
	}
	d.Config, d.Trigger = x.read("config", form.Config), x.read("trigger", form.Trigger)
	if d.Root = nil; form.Root != nil {
		d.Root = x.readAll("root", form.Root)
	}
	d.Nodes = make(map[string]NodeData, len(form.Nodes))
	for _, id := range slices.Sorted(maps.Keys(form.Nodes)) {
		n := form.Nodes[id]
		d.Nodes[id] = NodeData{
			n.Status, x.readNamed("output of node", id, n.Output), x.readError("error of node", id, n.Err), x.readDecision("decision of node", id, n.Decision), n.Tolerated,
		}
	}
	return x.err
}

var errExpansion = fmt.Errorf("%w: a graph that a step has returned", ErrNotEncodable)

// Reply is the result of an attempt as data: the answer to a [Call]. A decoded Err has the original text and matches the same sentinel errors. It
// also has the same meaning for the engine: [Permanent], [AbortRun], [NoEffect], [RateLimited], [Skip], [Suspend] or a panic. If the step returned a
// graph with [Expand], the Reply cannot be encoded; the error of MarshalJSON matches [ErrNotEncodable].
type Reply struct {
	Value any
	Err   error
	// Codec encodes and decodes the values; nil means nil [Types].
	Codec Codec
}

// Perform calls a step function with the attempt and returns the function's result. If the function panics, the error is a [*PanicError]. If it calls
// runtime.Goexit, the goroutine ends and Perform does not return. A host that must reply even then sends a Reply with [ErrGoexit] from a deferred
// function. The parameters "ctx" and "to" are as for [NewStep], but if ctx is nil, the error matches [ErrNoContext]. If the step is nil, the error
// matches [ErrNoStep].
func (c Call) Perform(ctx context.Context, step StepFunc, to interface {
	Emit(chunk any)
	Log(level slog.Level, message string)
	Tokens(input, output int)
}) Reply {
	reply := Reply{Codec: c.Codec}
	if step == nil {
		reply.Err = Permanent(fmt.Errorf("%w: node %s", ErrNoStep, quoteID(c.Path)))
		return reply
	}
	if ctx == nil {
		reply.Err = Permanent(ErrNoContext)
		return reply
	}
	s := NewStep(ctx, c, to)
	if err := contain(func() error { reply.Value, reply.Err = step(s, s); return nil }); err != nil {
		reply.Value, reply.Err = nil, err
	}
	return reply
}

// replyForm is the JSON form of a Reply.
type replyForm struct {
	Value      *stored       `json:"value,omitempty"`
	Err        *stored       `json:"error,omitempty"`
	Panic      *panicForm    `json:"panic,omitempty"`
	Goexit     bool          `json:"goexit,omitempty"`
	Permanent  bool          `json:"permanent,omitempty"`
	AbortRun   bool          `json:"abort_run,omitempty"`
	NoEffect   bool          `json:"no_effect,omitempty"`
	RateLimit  bool          `json:"rate_limited,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	Skip       *string       `json:"skip,omitempty"`
	Suspend    *suspendForm  `json:"suspend,omitempty"`
}

// panicForm is the JSON form of a panic. Text is the panic value as text. If the panic value is an error, Text is empty, and replyForm.Err is the
// error.
type panicForm struct {
	Text  string `json:"text,omitempty"`
	Stack []byte `json:"stack"`
}

type suspendForm struct {
	Token string  `json:"token,omitempty"`
	Info  *stored `json:"info,omitempty"`
	State *stored `json:"state,omitempty"`
	// Until is the time at which the step is called again. Sleeps is set if no signal can end the wait earlier.
	Until  time.Time `json:"until,omitzero"`
	Sleeps bool      `json:"sleeps,omitempty"`
	// Run is the id of the awaited run.
	Run string `json:"run,omitempty"`
}

// MarshalJSON implements json.Marshaler. The error matches [ErrNotEncodable] if a value cannot be encoded.
func (r Reply) MarshalJSON() ([]byte, error) {
	x := values{codec: r.Codec}
	form := replyForm{Value: x.write("value", r.Value)}
	if r.Err != nil {
		form.Value = nil
		if err := form.writeError(&x, r.Err); err != nil {
			return nil, err
		}
	}
	if x.err != nil {
		return nil, x.err
	}
	return json.Marshal(form)
}

func (form *replyForm) writeError(x *values, err error) error {
	facts := inspectError(err)
	if facts.unsafe {
		err = bounded(err)
	}
	form.Permanent, form.AbortRun, form.NoEffect, form.Goexit = facts.permanent, facts.abortRun, facts.noEffect, err == ErrGoexit
	switch p, panicked := err.(*PanicError); {
	case panicked:
		form.Panic = &panicForm{Stack: p.Stack}
		if err = p.Unwrap(); err == nil {
			form.Panic.Text = valueText(p.Value)
		}
	case facts.skip != nil:
		form.Skip = &facts.skip.message
	case facts.suspend != nil:
		e := facts.suspend
		form.Suspend = &suspendForm{e.token, x.write("suspend info", e.info), x.write("suspend state", e.state), e.until, e.sleeps, e.run}
	case facts.expand != nil:
		return errExpansion
	case facts.rate != nil:
		form.RateLimit, form.RetryAfter = true, facts.rate.after
	}
	form.Err = x.writeError("error", "", err)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. It decodes the values with r.Codec. It returns an error if data is null or has an unknown
// member. Otherwise a failure could be decoded as a success.
func (r *Reply) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return fmt.Errorf("%w: a reply is an object, not null", ErrBadValue)
	}
	var form replyForm
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(&form); err != nil {
		return fmt.Errorf("%w: reply: %w", ErrBadValue, err)
	}
	x := values{codec: r.Codec}
	r.Value, r.Err = x.read("value", form.Value), form.error(&x)
	return x.err
}

// The method `error` decodes the error that writeError has encoded.
func (form *replyForm) error(x *values) error {
	err := x.readError("error", "", form.Err)
	switch {
	case form.Panic != nil && err != nil:
		return &PanicError{Value: err, Stack: form.Panic.Stack}
	case form.Panic != nil:
		return &PanicError{Value: form.Panic.Text, Stack: form.Panic.Stack}
	case form.Goexit:
		return ErrGoexit
	case form.Skip != nil:
		return Skip(*form.Skip)
	case form.Suspend != nil:
		s := form.Suspend
		return &suspendError{s.Token, x.read("suspend info", s.Info), x.read("suspend state", s.State), s.Until, s.Sleeps, s.Run}
	case form.RateLimit:
		err = RateLimited(err, form.RetryAfter)
	case err == nil && (form.Permanent || form.AbortRun || form.NoEffect || form.RetryAfter != 0):
		x.failed("error", "", fmt.Errorf("%w: the reply has no error, so permanent, abort_run, no_effect and retry_after must not be set", ErrBadValue))
		return nil
	}
	if form.NoEffect {
		err = NoEffect(err)
	}
	if form.Permanent {
		err = Permanent(err)
	}
	if form.AbortRun {
		err = AbortRun(err)
	}
	return err
}

// countUndone adds 1 to the count of how often the node was undone. The caller holds the run's lock.
func (r *Run) countUndone(path string) {
	x := r.outermost().undoes()
	if x.times == nil {
		x.times = map[string]int{}
	}
	x.times[path]++
}

// timesUndone returns how often the node, or a composite around it, was undone. The caller holds the run's lock.
func (r *Run) timesUndone(path string) (n int32) {
	x := r.outermost().undo
	if x == nil || len(x.times) == 0 {
		return 0
	}
	for i := range path {
		if strings.IndexByte("/[#", path[i]) >= 0 {
			n += int32(x.times[path[:i]])
		}
	}
	return n + int32(x.times[path])
}

// undoneBefore returns how often the node was undone before the attempt s. This attempt performs or undoes the node.
func (r *Run) undoneBefore(s *Step, path string) int32 {
	undoes := false
	for o := r; o != nil; o = o.outer {
		undoes = undoes || o.plan.undoes
	}
	if !undoes {
		return 0
	}
	r.st.Lock()
	defer r.st.Unlock()
	if s.flags&stepUndo != 0 {
		return r.undo.nodes[s.ref].before
	}
	return r.timesUndone(path)
}
