package otelkahn

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// runSpans holds the spans of one run in flight.
type runSpans struct {
	t        *Telemetry
	ctx      context.Context // contains the run's span
	run      *kahn.Run
	plan     *kahn.Plan
	workflow attribute.KeyValue

	mu    sync.Mutex           // not held while a span begins or ends, since span processors of the host are called then
	nodes map[string]*nodeSpan // the spans of nodes, by path; nil after the end of the run
	edges map[*kahn.Plan]predecessors
}

// nodeSpan is the span of a node. Readers of the fields ctx, span, since and bare must wait until the channel `made` is closed.
type nodeSpan struct {
	made  chan struct{}
	ctx   context.Context // contains the span
	span  trace.Span
	since time.Time
	bare  bool // whether the span has no links yet

	// The field mu of runSpans guards the fields below.
	attempted bool      // whether the node has had its first attempt
	attempt   int       // the number of the last attempt that has begun
	ended     bool      // whether Telemetry.node has handled the end of the node
	before    *nodeSpan // the open span of this path from an earlier attempt of the composite around the node; nil if there is none
}

// spansKey is the context key under which steps find the run's spans.
type spansKey struct{}

// The method `around` begins the span of a run, and returns the function that ends the span.
func (t *Telemetry) around(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
	var links []trace.Link
	if last := t.lives.Last(ctx, r.ID()); last.IsValid() {
		links = []trace.Link{{SpanContext: last, Attributes: []attribute.KeyValue{attribute.String("kahn.link", "earlier life")}}}
	}
	x := &runSpans{t: t, run: r, plan: r.Plan(), workflow: workflowKey.String(r.Name()), nodes: map[string]*nodeSpan{}, edges: map[*kahn.Plan]predecessors{}}
	ctx, span := t.tracer.Start(ctx, strings.TrimSpace("run "+r.Name()), trace.WithLinks(links...),
		trace.WithAttributes(x.workflow, runKey.String(r.ID()), planKey.String(r.Plan().Hash())))
	ctx = context.WithValue(ctx, spansKey{}, x)
	x.ctx = ctx
	t.lives.Began(ctx, r.ID(), span.SpanContext())
	t.runs.Store(r.ID(), x)
	t.runsActive.Add(ctx, 1, metric.WithAttributes(x.workflow))
	return ctx, func(res *kahn.Result) {
		t.runs.CompareAndDelete(r.ID(), x)
		t.runsActive.Add(ctx, -1, metric.WithAttributes(x.workflow))
		t.runDuration.Record(ctx, res.Duration.Seconds(), metric.WithAttributes(x.workflow, statusKey.String(res.Status.String())))
		x.end(res)
		describeRun(span, res)
		span.End()
	}
}

func describeRun(span trace.Span, res *kahn.Result) {
	span.SetAttributes(statusKey.String(res.Status.String()))
	span.SetAttributes(usageOf(res.Usage())...)
	if res.Cause.Kind != kahn.CauseNone {
		span.SetAttributes(causeKey.String(res.Cause.Kind.String()))
	}
	for _, w := range res.Waiting {
		span.AddEvent("suspended", trace.WithAttributes(nodeKey.String(w.Node)))
	}
	for _, w := range res.Warnings {
		span.AddEvent("warning", trace.WithAttributes(attribute.String("message", w.Error())))
	}
	if res.Status == kahn.RunFailed {
		span.SetStatus(codes.Error, failuresOf(res))
	}
}

// failuresOf describes a failed run. It names the first five nodes that failed by themselves. If there are no such nodes, it returns the cause of
// the run's failure.
func failuresOf(res *kahn.Result) string {
	const most = 5
	var failed []string
	for n := range res.Nodes() {
		if n.Status == kahn.Failed {
			if failed = append(failed, n.ID); len(failed) > most {
				failed[most] = "and more"
				break
			}
		}
	}
	if len(failed) == 0 {
		return res.Cause.Kind.String()
	}
	return "failed: " + strings.Join(failed, ", ")
}

// The method `end` ends the open spans when the run ends. These are the spans of nodes that still wait, and of nodes whose attempts were abandoned.
func (x *runSpans) end(res *kahn.Result) {
	waits := map[string]bool{}
	for _, w := range res.Waiting { // a gate has no attempt that begins its span, so the span may not exist yet
		waits[w.Node] = true
		x.begin(w.Node, w.Since, false, x.linksOf)
	}
	x.mu.Lock()
	nodes := x.nodes
	x.nodes = nil
	x.mu.Unlock()
	for path, n := range nodes {
		for ; n.before != nil; n = n.before {
			<-n.made
			n.span.End()
		}
		if <-n.made; !n.span.IsRecording() {
			continue
		}
		if waits[path] {
			n.span.SetAttributes(statusKey.String(kahn.Suspended.String()))
		} else if node, is := res.Node(path); is {
			n.span.SetAttributes(statusKey.String(node.Status.String()))
		}
		n.span.End()
	}
}

// The method `at` returns the entry of a node, or nil if the run has ended. If isNew is true, the caller must create the span of the entry. The
// parameter `first` is true if the node's first attempt begins. If `first` is true for an entry that already had a first attempt, then a new
// attempt of the composite around the node has begun. In this case the method creates a new entry.
func (x *runSpans) at(path string, first bool) (n *nodeSpan, isNew bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n = x.nodes[path]
	if again := n != nil && n.attempted && first; x.nodes != nil && (n == nil || again) {
		before := n
		n, isNew = &nodeSpan{made: make(chan struct{}), ctx: x.ctx, span: trace.SpanFromContext(context.Background())}, true
		if x.nodes[path] = n; before != nil && !before.ended {
			n.before = before
		}
	}
	if n != nil {
		n.attempted = n.attempted || first
	}
	return n, isNew
}

// begin returns the span of a node, or nil if the run has ended. If the node has no span yet, begin creates one as a child of the span of the
// composite around the node. The new span begins at the time `since`, or now if this time is zero.
func (x *runSpans) begin(path string, since time.Time, first bool, links func(path string) []trace.Link) *nodeSpan {
	n, isNew := x.at(path, first)
	if !isNew {
		if n != nil {
			<-n.made
		}
		return n
	}
	defer close(n.made)
	ctx := x.ctx
	if since.IsZero() {
		since = time.Now()
	}
	if parent := siteOf(x.plan, path).within; parent != "" {
		if p := x.begin(parent, since, false, x.linksOf); p != nil {
			ctx = p.ctx
		}
	}
	opts := []trace.SpanStartOption{trace.WithAttributes(x.workflow, nodeKey.String(path)), trace.WithTimestamp(since)}
	if n.bare = links == nil; !n.bare {
		opts = append(opts, trace.WithLinks(links(path)...))
	}
	n.ctx, n.span = x.t.tracer.Start(ctx, nameOf(path), opts...)
	n.since = since
	return n
}

// linkTo appends to `links` a link to the span of a node, if the node completed or failed.
func (x *runSpans) linkTo(links []trace.Link, path string, status kahn.Status, since time.Time) []trace.Link {
	if status != kahn.Completed && status != kahn.Failed {
		return links
	}
	// A composite without nodes, or a mock, may have no span yet: then begin creates one without links, and Telemetry.node adds its links later.
	n := x.begin(path, since, false, nil)
	if n == nil {
		return links
	}
	return append(links, trace.Link{SpanContext: n.span.SpanContext(), Attributes: []attribute.KeyValue{statusKey.String(status.String())}})
}

// linksTo returns links to the spans of a step's predecessors, as far as they completed or failed.
func (x *runSpans) linksTo(s *kahn.Step) (links []trace.Link) {
	for _, p := range s.Predecessors() {
		links = x.linkTo(links, p.Path, p.Status, s.Queued())
	}
	return links
}

// linksOf returns the same links as linksTo, but for a node without a step: a composite, a gate, a condition or a mock. It reads the statuses of the
// predecessors from the run. It returns no links for a node of a graph without a plan: see siteOf.
func (x *runSpans) linksOf(path string) (links []trace.Link) {
	at := siteOf(x.plan, path)
	if at.plan == nil {
		return nil
	}
	for _, id := range x.predecessorsIn(at.plan)[at.id] {
		from := path[:len(path)-len(at.id)] + id
		if n, err := x.run.Node(from); err == nil {
			links = x.linkTo(links, from, n.Status, n.Start)
		}
	}
	return links
}

// predecessorsIn returns the predecessors of each node in a graph. It computes them once for each graph.
func (x *runSpans) predecessorsIn(p *kahn.Plan) predecessors {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.edges[p] == nil {
		x.edges[p] = predecessorsIn(p)
	}
	return x.edges[p]
}

// The method `attempt` is a middleware that traces and measures an attempt.
func (t *Telemetry) attempt(next kahn.StepFunc) kahn.StepFunc {
	return func(ctx context.Context, s *kahn.Step) (value any, err error) {
		x, _ := ctx.Value(spansKey{}).(*runSpans)
		if x == nil {
			return next(ctx, s)
		}
		if s.Compensating() {
			return x.compensation(ctx, s, next)
		}
		start := time.Now()
		_, resumed := s.Resumed()
		n := x.begin(s.Path(), s.Queued(), s.Attempt() == 1 && !resumed, func(string) []trace.Link { return x.linksTo(s) })
		if n == nil { // the run has ended, and the attempt was abandoned before this call
			return next(ctx, s)
		}
		if start.Before(n.since) { // possible if the machine's clock was corrected: n.since is the run's start plus a measured duration
			start = n.since
		}
		of := attribute.NewSet(x.workflow, kindKey.String(s.Kind()))
		t.attemptsActive.Add(ctx, 1, metric.WithAttributeSet(of))
		t.queueDuration.Record(ctx, start.Sub(s.Queued()).Seconds(), metric.WithAttributeSet(of))
		if x.retried(n, s.Attempt()) {
			t.retries.Add(ctx, 1, metric.WithAttributeSet(of))
		}
		ctx, span := t.tracer.Start(trace.ContextWithSpan(ctx, n.span), "attempt", trace.WithTimestamp(start),
			trace.WithAttributes(x.workflow, kindKey.String(s.Kind()), attemptKey.Int(s.Attempt())))
		outcome, failure := kahn.CausePanic.String(), "the step panicked, or ended its goroutine"
		defer func() { // deferred, since the step may panic or call Goexit
			if failure != "" {
				span.SetStatus(codes.Error, failure)
			}
			span.SetAttributes(outcomeKey.String(outcome))
			span.End()
			t.attemptsActive.Add(ctx, -1, metric.WithAttributeSet(of))
			t.attemptDuration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(x.workflow, kindKey.String(s.Kind()), outcomeKey.String(outcome)))
		}()
		value, err = next(ctx, s)
		outcome, failure = outcomeOf(err)
		return value, err
	}
}

// The method `known` returns the span of a node, or nil if there is none in this life of the run.
func (x *runSpans) known(path string) *nodeSpan {
	x.mu.Lock()
	n := x.nodes[path]
	x.mu.Unlock()
	if n != nil {
		<-n.made
	}
	return n
}

// The method `compensation` performs an attempt to undo a node. The span of the attempt has the same parent as the node's ended span, and links to
// that span.
func (x *runSpans) compensation(ctx context.Context, s *kahn.Step, next kahn.StepFunc) (value any, err error) {
	parent := x.ctx
	opts := []trace.SpanStartOption{trace.WithAttributes(x.workflow, nodeKey.String(s.Path()), kindKey.String(s.Kind()), attemptKey.Int(s.Attempt()))}
	if within := x.known(siteOf(x.plan, s.Path()).within); within != nil {
		parent = within.ctx
	}
	if of := x.known(s.Path()); of != nil {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: of.span.SpanContext()}))
	}
	_, certain := s.Compensated()
	start := time.Now()
	ctx, span := x.t.tracer.Start(trace.ContextWithSpan(ctx, trace.SpanFromContext(parent)), "compensate "+nameOf(s.Path()), opts...)
	outcome, failure := kahn.CausePanic.String(), "the compensation panicked, or ended its goroutine"
	defer func() { // deferred, since the compensation may panic or call Goexit
		if failure != "" {
			span.SetStatus(codes.Error, failure)
		}
		span.SetAttributes(outcomeKey.String(outcome), attribute.Bool("kahn.certain", certain))
		span.End()
		x.t.compensationDuration.Record(ctx, time.Since(start).Seconds(), metric.WithAttributes(x.workflow, kindKey.String(s.Kind()), outcomeKey.String(outcome)))
	}()
	value, err = next(ctx, s)
	outcome, failure = outcomeOf(err)
	return value, err
}

// The method `retried` reports whether an attempt is a retry. A step that suspended is called again in the same attempt, and this call is no retry.
func (x *runSpans) retried(n *nodeSpan, attempt int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := max(1, n.attempt)
	n.attempt = attempt
	return attempt > before
}

// outcomeOf returns the cause and the text of an attempt's error, or "ok" and "" if the error is not a failure. The error's methods may panic.
func outcomeOf(err error) (outcome, text string) {
	outcome, text = kahn.CauseStepError.String(), "an error whose methods panic"
	_ = foreign.Contain(func() error { // if a method of the error panics, outcome and text keep the values set above
		cause := kahn.CauseOf(err)
		if cause == kahn.CauseNone {
			outcome, text = "ok", ""
			return nil
		}
		outcome, text = cause.String(), firstLine(err.Error())
		return nil
	}, func(any) error { return nil })
	return outcome, text
}

// firstLine returns the first line of a text, cut to 1,000 bytes.
func firstLine(text string) string {
	const most = 1000
	text, _, _ = strings.Cut(text, "\n")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// The method `node` is called when a node has ended, and ends the span of the node.
func (t *Telemetry) node(n kahn.NodeResult) {
	found, ok := t.runs.Load(n.RunID)
	if !ok {
		return
	}
	x := found.(*runSpans)
	of := metric.WithAttributes(x.workflow, kindKey.String(n.Kind), statusKey.String(n.Status.String()))
	t.nodesEnded.Add(x.ctx, 1, of)
	end := time.Time{}
	if !n.Start.IsZero() {
		end = n.Start.Add(n.Duration)
		t.nodeDuration.Record(x.ctx, n.Duration.Seconds(), of)
	}
	if t.onlyStarted && n.Start.IsZero() {
		return
	}
	s := x.begin(n.ID, n.Start, false, nil)
	if s == nil {
		return
	}
	s = x.oldest(s)
	if s.bare && !n.Start.IsZero() {
		for _, link := range x.linksOf(n.ID) {
			s.span.AddLink(link)
		}
	}
	describe(s.span, n)
	if end.Before(s.since) {
		end = s.since
	}
	s.span.End(trace.WithTimestamp(end))
}

// The method `oldest` gets the newest entry of a path. It follows the field `before` to the oldest entry, marks this entry as ended, unlinks it
// from the newer entries, and returns it. This is the right entry, since the run reports the ends of a node in order.
func (x *runSpans) oldest(s *nodeSpan) *nodeSpan {
	x.mu.Lock()
	defer x.mu.Unlock()
	var after *nodeSpan
	for s.before != nil {
		after, s = s, s.before
	}
	if s.ended = true; after != nil {
		after.before = nil
	}
	return s
}

// usageOf returns the usage of a node or a run as attributes.
func usageOf(usage kahn.Usage) (list []attribute.KeyValue) {
	for _, name := range slices.Sorted(maps.Keys(usage)) {
		list = append(list, attribute.Float64("kahn.usage."+name, usage[name]))
	}
	return list
}

// describe sets the attributes and the status of an ended node's span.
func describe(span trace.Span, n kahn.NodeResult) {
	span.SetAttributes(kindKey.String(n.Kind), statusKey.String(n.Status.String()), attribute.Int("kahn.attempts", n.Attempts))
	if n.Label != "" {
		span.SetAttributes(labelKey.String(n.Label))
	}
	if n.Cause.Kind != kahn.CauseNone {
		span.SetAttributes(causeKey.String(n.Cause.Kind.String()), attribute.StringSlice("kahn.origins", n.Cause.Origins))
	}
	if n.Status == kahn.Skipped {
		span.SetAttributes(skipKey.String(n.Skip.Kind.String()))
	}
	if len(n.Labels) > 0 {
		span.SetAttributes(branchesKey.StringSlice(n.Labels))
	}
	span.SetAttributes(usageOf(n.Usage)...)
	for name, is := range map[string]bool{"memoized": n.Memoized, "fallback": n.Fallback, "mocked": n.Mocked, "tolerated": n.Tolerated, "abandoned": n.Abandoned} {
		if is {
			span.SetAttributes(attribute.Bool("kahn."+name, true))
		}
	}
	for _, a := range n.History() {
		if a.Delay > 0 || a.Err != nil && a.Number < n.Attempts {
			_, text := outcomeOf(a.Err)
			span.AddEvent("retry", trace.WithTimestamp(a.End), trace.WithAttributes(attemptKey.Int(a.Number), attribute.String("error", text),
				attribute.Float64("kahn.backoff", a.Delay.Seconds())))
		}
	}
	if d := n.Decision; d != nil {
		span.AddEvent("signalled", trace.WithAttributes(attribute.String("kahn.actor", d.Actor)))
	}
	if n.Status == kahn.Failed && n.Err != nil {
		_, text := outcomeOf(n.Err)
		span.SetStatus(codes.Error, text)
	}
}
