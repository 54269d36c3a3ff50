package kahn

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/internal/bucket"
	"github.com/seed-c794f7ef/kahn/internal/enum"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Retry is a retry policy: the number of attempts of a node's step, and the delays between them. A node whose Retry is zero uses the policy of the
// graph's Defaults or, if they have none, the run's policy. If the run has no policy either, the node has a single attempt: to repeat an unknown
// side effect is worse than to report a failure.
//
// After failed attempt k, counted from 1, the delay is min(MaxDelay, InitialDelay * Multiplier^(k-1)), randomized by Jitter.
//
// As an option, a Retry is the policy of the run. It applies to nodes without a policy if the Defaults of their graph have none.
type Retry struct {
	// MaxAttempts is the total number of attempts, including the first. Zero means 1. [Plan.Warnings] reports a policy that sets other fields but not
	// MaxAttempts.
	MaxAttempts int
	// InitialDelay is the delay after the first attempt. Zero means 500 ms, and a negative value means no delay.
	InitialDelay time.Duration
	// Multiplier is the factor from one delay to the next. Zero means 2.
	Multiplier float64
	// MaxDelay is the longest delay, before jitter. Zero means 8 s, or InitialDelay if that is longer. A negative value means no bound.
	// [Plan.Warnings] reports a MaxDelay that is shorter than InitialDelay.
	MaxDelay time.Duration
	// Jitter randomizes the delays, so that nodes that failed together are retried at different times. Default: [JitterHalf].
	Jitter Jitter
	// RetryOn lists causes: a failure is retried only if its cause is in the list. RetryOn may contain [CauseTimeout], [CauseStepError],
	// [CauseRateLimit], [CauseContractOutput] and [CausePanic]. Nil means timeout, step error and rate limit. With an empty list that is not nil, no
	// failure is retried. The failure of a nested run counts as a step error.
	RetryOn []CauseKind
	// MaxRetryAfter is the longest wait that a [RateLimited] error may demand. If the error demands a longer wait, the node fails at once. Zero means 5
	// min.
	MaxRetryAfter time.Duration
}

// Jitter determines how a delay d is randomized, with U drawn uniformly from [0, 1).
type Jitter uint8

// The jitters. JitterHalf and JitterFull are the "equal" and the "full" jitter of Brooker, Exponential Backoff And Jitter (2015).
const (
	jitterDefault Jitter = iota
	JitterHalf           // d * (0.5 + U*0.5)
	JitterNone           // d
	JitterFull           // d * U

	jitterCount
)

var jitterNames = enum.Of[Jitter]("jitter", "", "half", "none", "full")

// String returns the name of j: "half", "none" or "full", or "" for the zero value.
func (j Jitter) String() string { return jitterNames.Name(j) }

// MarshalText encodes j as its name. It returns an error that matches [ErrBadValue] if j is not one of the jitters.
func (j Jitter) MarshalText() ([]byte, error) { return jitterNames.Text(j) }

// UnmarshalText decodes a name. It returns an error that matches [ErrBadValue] for any other text.
func (j *Jitter) UnmarshalText(text []byte) error { return jitterNames.Parse(j, text) }

// noRetryOr returns n if it is not zero. If n is zero, the node failed outside an attempt, and noRetryOr returns why a failure with this cause
// was not retried.
func noRetryOr(n event.NoRetry, kind CauseKind) event.NoRetry {
	switch {
	case n != 0:
		return n
	case kind == CauseGateTimeout || kind == CauseStoreError || kind == CauseStoreRejected || kind == CauseCrashed:
		return event.NoRetryCause
	}
	return event.NoRetryUnstarted
}

const (
	defaultInitialDelay  = 500 * time.Millisecond
	defaultMaxDelay      = 8 * time.Second
	defaultMultiplier    = 2
	defaultMaxRetryAfter = 5 * time.Minute
)

// retryable are the causes that a policy may list. retriedByDefault are the causes that are retried if RetryOn is nil.
const (
	retryable        = machine.CauseSet(1<<CauseTimeout | 1<<CauseStepError | 1<<CauseRateLimit | 1<<CauseContractOutput | 1<<CausePanic)
	retriedByDefault = machine.CauseSet(1<<CauseTimeout | 1<<CauseStepError | 1<<CauseSubrun | 1<<CauseRateLimit)
)

// RetryJittered returns a policy of n attempts. The delays begin at 500 ms and double up to 8 s, with half jitter.
func RetryJittered(n int) Retry {
	return Retry{MaxAttempts: n, InitialDelay: defaultInitialDelay, MaxDelay: defaultMaxDelay, Jitter: JitterHalf}
}

// RetryStandard returns a policy of three attempts, with delays of 1 s and 2 s, without jitter. If the caller raises MaxAttempts, the delays
// continue to double, up to 30 s.
func RetryStandard() Retry {
	return Retry{MaxAttempts: 3, InitialDelay: time.Second, MaxDelay: 30 * time.Second, Jitter: JitterNone}
}

// isZero reports whether the policy is unset, so that another policy applies.
func (r *Retry) isZero() bool {
	return r.MaxAttempts == 0 && r.InitialDelay == 0 && r.Multiplier == 0 && r.MaxDelay == 0 && r.Jitter == jitterDefault && r.RetryOn == nil &&
		r.MaxRetryAfter == 0
}

func (r Retry) equal(o Retry) bool {
	return r.MaxAttempts == o.MaxAttempts && r.InitialDelay == o.InitialDelay && r.Multiplier == o.Multiplier &&
		r.MaxDelay == o.MaxDelay && r.Jitter == o.Jitter && r.MaxRetryAfter == o.MaxRetryAfter &&
		(r.RetryOn == nil) == (o.RetryOn == nil) && slices.Equal(r.RetryOn, o.RetryOn)
}

// withDefaults sets the unset fields. In its result no field except RetryOn is zero.
func (r Retry) withDefaults() Retry {
	if r.MaxAttempts == 0 {
		r.MaxAttempts = 1
	}
	if r.InitialDelay == 0 {
		r.InitialDelay = defaultInitialDelay
	}
	if r.Multiplier == 0 {
		r.Multiplier = defaultMultiplier
	}
	if r.MaxDelay == 0 {
		r.MaxDelay = max(defaultMaxDelay, r.InitialDelay)
	}
	if r.Jitter == jitterDefault {
		r.Jitter = JitterHalf
	}
	if r.MaxRetryAfter == 0 {
		r.MaxRetryAfter = defaultMaxRetryAfter
	}
	return r
}

// The method `bound` returns how long a node still waits in a backoff that began before the run was continued. This is the remaining time `rest`, but
// at most the longest delay that the policy permits.
func (r Retry) bound(rest time.Duration) time.Duration {
	if r.MaxDelay < 0 {
		return rest
	}
	return min(rest, max(r.MaxDelay, r.MaxRetryAfter))
}

// The method `causes` returns the set of causes that the policy retries.
func (r Retry) causes() (set machine.CauseSet) {
	if r.RetryOn == nil {
		return retriedByDefault
	}
	for _, k := range r.RetryOn {
		set |= 1 << k
	}
	if set.Has(CauseStepError) {
		set |= 1 << CauseSubrun
	}
	return set
}

// validate returns the name of a wrong field and an error that describes the problem. If the policy is valid, the error is nil.
func (r Retry) validate() (field string, err error) {
	switch {
	case r.MaxAttempts < 0:
		return "MaxAttempts", fmt.Errorf("%w: retry: MaxAttempts %d is negative", ErrBadValue, r.MaxAttempts)
	case r.Multiplier < 0 || math.IsNaN(r.Multiplier) || math.IsInf(r.Multiplier, 0):
		return "Multiplier", fmt.Errorf("%w: retry: Multiplier %v is not a valid factor", ErrBadValue, r.Multiplier)
	case r.Jitter >= jitterCount:
		text, _ := wrong(enumField{"Jitter", int(r.Jitter), jitterNames.Names()})
		return "Jitter", fmt.Errorf("%w: retry: %s", ErrBadValue, text)
	case r.MaxRetryAfter < 0:
		return "MaxRetryAfter", fmt.Errorf("%w: retry: MaxRetryAfter %v is negative", ErrBadValue, r.MaxRetryAfter)
	}
	for i, k := range r.RetryOn {
		if k >= causeCount || !retryable.Has(k) {
			var choices []string
			for k := range causeCount {
				if retryable.Has(k) {
					choices = append(choices, k.String())
				}
			}
			return fmt.Sprintf("RetryOn[%d]", i), fmt.Errorf("%w: retry: RetryOn lists %q, which is never retried (choose from %s)", ErrBadValue, k, strings.Join(choices, ", "))
		}
	}
	return "", nil
}

// The method `slip` looks for a probable mistake in a valid policy. It returns the name of the field and a description, or two empty texts. A policy
// that sets nothing but an empty RetryOn is no mistake: it replaces the default policy.
func (r Retry) slip() (field, text string) {
	if len(r.RetryOn) == 0 {
		r.RetryOn = nil
	}
	switch {
	case r.MaxAttempts == 0 && !r.isZero():
		return "MaxAttempts", "MaxAttempts is not set: there is a single attempt"
	case lacksUnit(r.InitialDelay):
		return "InitialDelay", fmt.Sprintf("InitialDelay %v: is its unit missing?", r.InitialDelay)
	case r.MaxAttempts > 1 && r.MaxDelay > 0 && r.MaxDelay < r.InitialDelay:
		return "MaxDelay", fmt.Sprintf("MaxDelay %v is shorter than InitialDelay %v, and bounds every delay", r.MaxDelay, r.InitialDelay)
	}
	return "", ""
}

// lacksUnit reports whether a duration is so short that the author probably forgot the unit, for example 30 instead of 30*time.Second.
func lacksUnit(d time.Duration) bool { return 0 < d && d < time.Microsecond }

// warnOfRetry adds a warning about the policy of a node or, if id is empty, about the default policy of the graph.
func (c *compiler) warnOfRetry(id string, r Retry) {
	field, text := r.slip()
	switch {
	case text == "":
	case id == "":
		p := newProblem("Defaults: %w: retry: %s", ErrBadValue, text)
		p.Field = "Defaults.Retry." + field
		c.warn(p)
	default:
		c.warn(problemOf(id, "Retry."+field, "%w: retry: %s", ErrBadValue, text))
	}
}

// The method `delay` returns the wait after failed attempt k, counted from 1. The jitter uses u, which is in [0, 1). The policy must be a result of
// withDefaults. delay is a pure function. Its arithmetic saturates instead of overflowing.
func (r Retry) delay(k int, u float64) time.Duration {
	if r.InitialDelay < 0 {
		return 0
	}
	// The product may be infinite. It must be made finite before it is multiplied by u, since infinity times zero is NaN.
	d := min(float64(r.InitialDelay)*math.Pow(r.Multiplier, float64(k-1)), math.MaxInt64)
	if r.MaxDelay > 0 {
		d = min(d, float64(r.MaxDelay))
	}
	switch r.Jitter {
	case JitterHalf:
		d *= 0.5 + u*0.5
	case JitterFull:
		d *= u
	}
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}

// Next decides whether another attempt follows the failed attempt with this number, counted from 1. If so, it returns the delay before that attempt.
// Otherwise `refused` is the reason why no attempt follows. If the step's error ended the attempt, the cause is the result of [CauseOf] for err. If
// something else ended it, the cause is, for example, [CauseTimeout]. The jitter uses u, which the caller draws from [0, 1). Unset fields of the
// policy have their defaults. Next is a pure function. A run decides by the same rules, and by two more: it does not retry if the wait would
// reach the deadline of the node or of the run, or if the node or the run is being stopped.
func (r Retry) Next(attempt int, cause CauseKind, err error, u float64) (delay time.Duration, refused event.NoRetry) {
	facts := inspectError(err)
	if facts.permanent || facts.abortRun {
		return 0, event.NoRetryPermanent
	}
	hint := facts.hint()
	if cause != CauseRateLimit {
		hint = 0
	}
	return r.withDefaults().next(attempt, cause, hint, u)
}

// The method `next` does the same as Next, but the policy must be a result of withDefaults. It does not check whether the error forbids a retry. The
// parameter `hint` is the wait that the error demands, or 0.
func (r Retry) next(attempt int, cause CauseKind, hint time.Duration, u float64) (delay time.Duration, refused event.NoRetry) {
	switch {
	case r.MaxAttempts <= 1:
		return 0, event.NoRetryNoPolicy
	case !r.causes().Has(cause):
		return 0, event.NoRetryCause
	case attempt >= r.MaxAttempts:
		return 0, event.NoRetryAttempts
	case hint > r.MaxRetryAfter:
		return 0, event.NoRetryHint
	}
	return max(r.delay(attempt, u), hint), 0
}

// Rate limits how many attempts start, including retries: Starts in each interval Per. A Rate is a token bucket: a token arrives every Per/Starts,
// and the bucket contains at most Burst tokens. The bucket is full when a process begins or continues the run. Each attempt takes a token when it
// starts. So at most Starts+Burst attempts start in any window of length Per. The zero Rate limits nothing.
//
// An attempt that waits for a token holds no slot and no token, like an attempt that waits for a slot of [Limit]. Of the timeouts, only
// OverallTimeout and the run's [Timeout] include this wait. Nodes that do not call a step take no token: gates, triggers, conditions with a
// Test, composites, mocked nodes, nodes whose inputs are refused, and nodes whose output comes from a [Memo]. In a run that is being stopped,
// cleanup nodes and the end node also take no token, so that the run ends soon.
//
// As an option, a Rate limits the attempts of the whole run, including its nested runs. The run is refused with [ErrBadOption] if Starts or Per is
// not positive, or if Burst is negative or too large to count. The zero Rate is accepted.
type Rate struct {
	// Starts is the number of attempts that may start in each interval.
	Starts int
	// Per is the length of the interval.
	Per time.Duration
	// Burst is the largest number of tokens in the bucket. Zero means 1: attempts start evenly spaced.
	Burst int
}

// String returns the rate in the form "10 per 1s, burst 5", or "no rate" for the zero value.
func (r Rate) String() string {
	if r == (Rate{}) {
		return "no rate"
	}
	return fmt.Sprintf("%d per %v, burst %d", r.Starts, r.Per, max(r.Burst, 1))
}

// validate returns an error if nothing would ever start at this rate, if Burst is negative, or if the bucket does not fit into an int64. The zero
// Rate is valid.
func (r Rate) validate() error {
	switch {
	case r == Rate{}:
		return nil
	case r.Starts <= 0:
		return fmt.Errorf("%w: Rate.Starts %d is not positive", ErrBadValue, r.Starts)
	case r.Per <= 0:
		return fmt.Errorf("%w: Rate.Per %v is not positive", ErrBadValue, r.Per)
	case r.Burst < 0:
		return fmt.Errorf("%w: Rate.Burst %d is negative", ErrBadValue, r.Burst)
	}
	if !r.count().Fits() {
		return fmt.Errorf("%w: rate of %v: the burst is longer than %v", ErrBadValue, r, time.Duration(math.MaxInt64))
	}
	return nil
}

// The method `count` returns the rate as the bucket package represents it.
func (r Rate) count() bucket.Rate {
	return bucket.Rate{Starts: r.Starts, Per: int64(r.Per), Burst: r.Burst}
}

// retryOf returns the policy of a node. If the node has none and is not a composite, this is byDefault, the run's policy. If the node's mock is
// called only once, or if the node is a map, whose policy is for its items, this is the zero policy.
func (p *Plan) retryOf(ref machine.Ref, byDefault Retry) Retry {
	n := p.node(ref)
	if p.net.Is(ref, factOnce) || n.Map != nil && p.itemOf == "" {
		return Retry{}
	}
	if policy := n.Retry; policy.MaxAttempts != 0 || p.net.Is(ref, machine.FlagComposite) {
		return policy // defaults apply to the nodes inside a composite, not to the composite itself
	}
	return byDefault
}
