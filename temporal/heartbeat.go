package temporal

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// details are what a step passed to its last call of activity.RecordHeartbeat, usually a checkpoint for the next attempt of its node.
type details []*commonpb.Payload

const (
	maxDetails  = 8        // the most payloads in one heartbeat
	detailBytes = 32 << 10 // the most bytes of the details for the next attempt of a node, and of all details with which a run continues
)

func (d details) size() (n int) {
	for _, p := range d {
		n += len(p.GetData())
		for name, value := range p.GetMetadata() {
			n += len(name) + len(value)
		}
	}
	return n
}

// The function raw returns details as payloads that are not decoded. It returns nil if there are no details.
func raw(get func(into ...any) error) details {
	var values [maxDetails]converter.RawValue
	into := make([]any, maxDetails)
	for i := range values {
		into[i] = &values[i]
	}
	if err := get(into...); err != nil {
		return nil // there are no details, or the data converter does not know raw values
	}
	var d details
	for _, v := range values {
		if v.Payload() != nil {
			d = append(d, v.Payload())
		}
	}
	return d
}

// lastDetails returns the details of the last heartbeat of an activity that has timed out.
func lastDetails(err *sdk.TimeoutError) details {
	if !err.HasLastHeartbeatDetails() {
		return nil
	}
	return raw(err.LastHeartbeatDetails)
}

// Interceptor returns the interceptor that makes activity.RecordHeartbeat and activity.GetHeartbeatDetails work in steps. The worker's own
// heartbeats repeat the details that the step recorded last. The next attempt of the node gets these details. NewWorker adds the
// interceptor to its worker. A host that makes its own worker, see [Options.Register], must add it to worker.Options.Interceptors. The
// interceptor does not affect other activities.
func (o Options) Interceptor() interceptor.WorkerInterceptor {
	return &beating{dc: o.converter(), types: slices.Sorted(maps.Keys(o.activityTypes()))}
}

func (o Options) converter() converter.DataConverter {
	if o.DataConverter != nil {
		return o.DataConverter
	}
	return converter.GetDefaultDataConverter()
}

// beating is the interceptor that Options.Interceptor returns: it makes a pulse for each attempt.
type beating struct {
	interceptor.WorkerInterceptorBase
	dc    converter.DataConverter
	types []string // the activity types of the plans, sorted
}

// InterceptActivity implements [interceptor.WorkerInterceptor].
func (b *beating) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &attempting{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, of: b}
}

type attempting struct {
	interceptor.ActivityInboundInterceptorBase
	of   *beating
	next interceptor.ActivityOutboundInterceptor
}

// Init implements [interceptor.ActivityInboundInterceptor].
func (a *attempting) Init(next interceptor.ActivityOutboundInterceptor) error {
	a.next = next
	return a.Next.Init(&pulsing{interceptor.ActivityOutboundInterceptorBase{Next: next}})
}

// ExecuteActivity implements [interceptor.ActivityInboundInterceptor].
func (a *attempting) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	info := activity.GetInfo(ctx)
	if _, is := slices.BinarySearch(a.of.types, info.ActivityType.Name); is && !info.IsLocalActivity {
		ctx = context.WithValue(ctx, pulseKey{}, &pulse{next: a.next, dc: a.of.dc})
	}
	return a.Next.ExecuteActivity(ctx, in)
}

// pulsing performs the calls that a step makes to the heartbeat functions of package activity.
type pulsing struct {
	interceptor.ActivityOutboundInterceptorBase
}

// RecordHeartbeat implements [interceptor.ActivityOutboundInterceptor].
func (p *pulsing) RecordHeartbeat(ctx context.Context, values ...any) {
	if of := pulseOf(ctx); of != nil {
		of.record(ctx, values)
		return
	}
	p.Next.RecordHeartbeat(ctx, values...)
}

// HasHeartbeatDetails implements [interceptor.ActivityOutboundInterceptor].
func (p *pulsing) HasHeartbeatDetails(ctx context.Context) bool {
	of := pulseOf(ctx)
	return p.Next.HasHeartbeatDetails(ctx) || of != nil && len(of.before) > 0
}

// GetHeartbeatDetails implements [interceptor.ActivityOutboundInterceptor].
func (p *pulsing) GetHeartbeatDetails(ctx context.Context, into ...any) error {
	of := pulseOf(ctx)
	if of == nil || len(of.before) == 0 || p.Next.HasHeartbeatDetails(ctx) { // if Temporal itself has details, they are newer, see begin
		return p.Next.GetHeartbeatDetails(ctx, into...)
	}
	return of.dc.FromPayloads(&commonpb.Payloads{Payloads: of.before}, into...)
}

type pulseKey struct{}

// pulseOf returns the pulse of the attempt to which a context belongs. It returns nil if the worker has no interceptor, or if there is no attempt.
func pulseOf(ctx context.Context) *pulse {
	p, _ := ctx.Value(pulseKey{}).(*pulse)
	return p
}

// pulse sends the heartbeats of an attempt.
type pulse struct {
	next   interceptor.ActivityOutboundInterceptor
	dc     converter.DataConverter
	before details // the details of the node's previous attempt

	mu   sync.Mutex // guards last; locked while a heartbeat is sent, so that heartbeats are sent in the order in which the step records them
	last details    // the details that were recorded last
}

// begin sets the details of the node's previous attempt. Heartbeats repeat these details until the step records new details. If Temporal itself has
// details, heartbeats repeat Temporal's details, which are newer: a worker recorded them during this attempt, and then handed the attempt back.
func (p *pulse) begin(ctx context.Context, before details) {
	p.before, p.last = before, before
	if p.next.HasHeartbeatDetails(ctx) {
		if own := raw(func(into ...any) error { return p.next.GetHeartbeatDetails(ctx, into...) }); own != nil {
			p.last = own
		}
	}
}

// The method record sends a heartbeat of the step.
func (p *pulse) record(ctx context.Context, values []any) {
	var last details
	for _, v := range values {
		if payload, err := p.dc.ToPayload(v); err == nil { // after an error, RecordHeartbeat below panics
			last = append(last, payload)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next.RecordHeartbeat(ctx, values...)
	p.last = last
}

// The method beat sends a heartbeat with the details that were recorded last.
func (p *pulse) beat(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	values := make([]any, len(p.last))
	for i, payload := range p.last {
		values[i] = converter.NewRawValue(payload)
	}
	defer func() {
		if v := recover(); v != nil { // the data converter does not know raw values
			activity.GetLogger(ctx).Warn("kahn/temporal: the details of a heartbeat cannot be repeated", "error", v)
			p.last = nil
			p.next.RecordHeartbeat(ctx)
		}
	}()
	p.next.RecordHeartbeat(ctx, values...)
}

// recorded returns the details for the next attempt of the node.
func (p *pulse) recorded() details {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// beats are the details for the next attempts of nodes, by path.
type beats map[string]details

// The method note stores the details of an attempt's last heartbeat in x.beats, for the node's next attempt. If the attempt has succeeded, or if the
// details are too long, it removes the node's details from x.beats.
func (x *interpreter) note(path string, o outcome, reply kahn.Reply, told details) {
	switch {
	case o.Ended == endedSilent && len(o.Details) > 0:
		told = o.Details
	case o.lost():
		return // there are no new details, so x.beats keeps the details of an earlier attempt
	case reply.Err == nil:
		told = nil
	}
	if size := told.size(); size > detailBytes {
		workflow.GetLogger(x.ctx).Warn("kahn/temporal: the details of a heartbeat are too long for the next attempt", "node", path, "bytes", size)
		told = nil
	}
	if len(told) == 0 {
		delete(x.beats, path)
		return
	}
	if x.beats == nil {
		x.beats = beats{}
	}
	x.beats[path] = told
}

// unfinishedBeats returns the details for the next attempts of nodes and compensations that have not ended, as many as fit into detailBytes.
func (x *interpreter) unfinishedBeats() beats {
	kept, size := beats{}, 0
	for _, path := range slices.Sorted(maps.Keys(x.beats)) {
		node, undoes := strings.CutPrefix(path, undoPrefix)
		n, err := x.c.Run().Node(node)
		if err != nil || !undoes && n.Status.Terminal() || undoes && n.Compensation != kahn.CompensationRunning {
			continue
		}
		if size += x.beats[path].size() + len(path); size > detailBytes {
			workflow.GetLogger(x.ctx).Warn("kahn/temporal: the run continues without the details of some heartbeats", "from", path)
			break
		}
		kept[path] = x.beats[path]
	}
	return kept
}
