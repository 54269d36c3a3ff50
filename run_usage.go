package kahn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// Usage maps names to the amounts that steps have used. The host chooses the names, for example tokens, machine seconds or cents. See [Step.Use].
type Usage map[string]float64

// The names under which [Step.Tokens] adds tokens to the usage.
const (
	UsageInputTokens  = "input_tokens"
	UsageOutputTokens = "output_tokens"
)

// ErrBudget is matched by the error of a run that its [Budget] has stopped.
var ErrBudget = errors.New("over budget")

// Budget stops the run when check returns an error or panics. The stop is like [Run.AbortAll], but has the cause [CauseBudget]. The run's error wraps
// [ErrBudget] and the error of check. [Step.Use] calls check after each amount that it adds, so calls of check from concurrent steps may overlap. The
// argument of check is the usage of the run so far, including the usage before the run was last continued. check may keep and change this map.
func Budget(check func(Usage) error) Option {
	return optionFunc(func(c *config) error {
		if check == nil {
			return fmt.Errorf("%w: Budget(nil)", ErrBadOption)
		}
		c.budget = check
		return nil
	})
}

// maxUsageName is the greatest length of a usage name in bytes. maxUsageNames is the largest number of names in a run.
const (
	maxUsageName  = 100
	maxUsageNames = 100
)

// Use adds an amount to the usage of the node under a name that the host chooses. The usage sums up all attempts of the node. The amount counts for
// the node, for the composites around it, and for the run, whether or not the attempt succeeds: see [Result.Usage], [NodeResult] and [Budget]. A
// durable run writes an attempt's amounts when the attempt ends. If the process dies during the attempt, these amounts are lost. The amount must be
// finite and not negative. The name must be UTF-8 of 1 to 100 bytes. A run uses at most 100 names. If a call breaks one of these rules, Use ignores
// it and logs a warning for the node. After the attempt has ended, Use does nothing.
func (s *Step) Use(name string, amount float64) {
	if s.given() != nil {
		if to, is := s.reporter().(interface {
			Use(name string, amount float64)
		}); is {
			to.Use(name, amount)
		}
		return
	}
	s.run.use(s.known(), name, amount)
}

// Tokens adds the numbers of input and output tokens to the usage of the node. It calls [Step.Use] with the names [UsageInputTokens] and
// [UsageOutputTokens].
func (s *Step) Tokens(input, output int) {
	if s.given() != nil {
		s.reporter().Tokens(input, output)
		return
	}
	s.run.use(s.known(), UsageInputTokens, float64(input))
	s.run.use(s.known(), UsageOutputTokens, float64(output))
}

// Usage returns the usage of the run so far. It includes the usage of running attempts, and the usage before the run was last continued. The caller
// owns the map. Usage returns nil if nothing was used.
func (r *Run) Usage() Usage {
	r = r.outermost()
	r.st.Lock()
	defer r.st.Unlock()
	if x := r.remarked().usage; x != nil {
		return maps.Clone(x.live)
	}
	return nil
}

// Usage returns what the run has used, by the names that its steps gave to [Step.Use]. It includes the usage before the run was last
// continued. It returns nil if nothing was used. The Result of a nested run returns the usage of the outermost run.
func (r *Result) Usage() Usage {
	if !r.hasRun() {
		return nil
	}
	return r.run.Usage()
}

// Usage returns what the run has used, by the names that its steps gave to [Step.Use]. It leaves out the attempts that were running when
// the snapshot was taken. It returns nil if nothing was used.
func (s *Snapshot) Usage() Usage {
	if s == nil {
		return nil
	}
	var sum Usage
	for _, used := range s.file.Usage {
		sum = plus(sum, used)
	}
	return sum
}

// UsageByKind returns the usage of the run by the kinds of its nodes, without running attempts.
func (r *Result) UsageByKind() map[string]Usage {
	if !r.hasRun() {
		return nil
	}
	root := r.run.outermost()
	root.st.Lock()
	defer root.st.Unlock()
	if x := root.remarked().usage; x != nil {
		return cloneUsages(x.by)
	}
	return nil
}

func cloneUsages(by map[string]Usage) map[string]Usage {
	to := maps.Clone(by)
	for kind, u := range to {
		to[kind] = maps.Clone(u)
	}
	return to
}

// runUsage is the usage of a run. The field `live` includes running attempts. The field `by` is the usage of ended attempts, by the kinds of their
// nodes. The store gets only `by`. So if an attempt is repeated after a crash, its usage counts once.
type runUsage struct {
	live Usage
	by   map[string]Usage
}

// The method `ended` returns the usage of ended attempts in a new map.
func (x *runUsage) ended() (sum Usage) {
	for _, used := range x.by {
		sum = plus(sum, used)
	}
	return sum
}

// spent is the usage of a node, without a running attempt. It is immutable.
type spent struct {
	Own    Usage `json:"own,omitempty"`
	Inside Usage `json:"inside,omitempty"` // usage of the nodes inside a composite
}

// The method `all` returns the usage of a node and of the nodes inside it, or nil if nothing was used.
func (s *spent) all() Usage {
	if s == nil {
		return nil
	}
	return plus(s.Own, s.Inside)
}

// The method `own` returns the usage of a node without the nodes inside it.
func (s *spent) own() Usage {
	if s == nil {
		return nil
	}
	return s.Own
}

// plus returns the sum of a and b in a new map.
func plus(a, b Usage) Usage {
	if len(a) == 0 || len(b) == 0 {
		if len(a) == 0 {
			a = b
		}
		return maps.Clone(a)
	}
	sum := maps.Clone(a)
	for name, amount := range b {
		sum[name] += amount
	}
	return sum
}

// The method `use` adds an amount that the attempt s reports to the usage of the run and of the attempt. See fold for the usage of the node.
func (r *Run) use(s *Step, name string, amount float64) {
	if amount == 0 {
		return
	}
	if !(amount > 0) || math.IsInf(amount, 0) || name == "" || len(name) > maxUsageName || !utf8.ValidString(name) {
		r.logStep(s, slog.LevelWarn, fmt.Sprintf("%v: Use(%s, %v): an amount must be positive and finite, and a name must be UTF-8 of 1 to %d bytes", ErrBadValue, quoteID(name), amount, maxUsageName))
		return
	}
	root := r.outermost()
	r.st.Lock()
	undoes := s.flags&stepUndo != 0
	if !undoes && !r.isAtWork(s) || root.concluded() {
		r.st.Unlock()
		return
	}
	total := root.usage()
	if _, known := total.live[name]; !known && len(total.live) >= maxUsageNames {
		r.st.Unlock()
		r.logStep(s, slog.LevelWarn, fmt.Sprintf("%v: Use(%s): a run has at most %d usage names", ErrBadValue, quoteID(name), maxUsageNames))
		return
	}
	total.live[name] += amount
	x := r.extra(s.ref)
	if x.using == nil {
		x.using = Usage{}
	}
	if x.using[name] += amount; undoes {
		r.fold(s.ref)
	}
	check, live := r.cfg.budget, Usage(nil)
	if check != nil {
		live = maps.Clone(total.live)
	}
	r.st.Unlock()
	if check == nil {
		return
	}
	err := foreign.Contain(func() error { return check(live) }, func(v any) error { return newPanicError(v) })
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrBudget, bounded(err))
		root.control(func(int64) {
			root.stop(CauseBudget, noRef, &stopCause{err, context.Canceled}, root.cfg.stopMode.manner())
		})
	}
}

// usage returns the usage of the run. If there is none, usage creates an empty one. The caller holds the run's lock.
func (r *Run) usage() *runUsage {
	x := r.remark()
	if x.usage == nil {
		x.usage = &runUsage{live: Usage{}, by: map[string]Usage{}}
	}
	return x.usage
}

// fold adds the usage of an attempt to the usage of the node, of the composites around it, and of the run. It also copies the attempt's labels
// into the run's labels. fold is called when the attempt ends, so that usage and labels are stored together with the attempt's end. During a
// compensation, fold is called as soon as the compensation reports an amount or a label. The caller holds the run's lock.
func (r *Run) fold(ref machine.Ref) {
	x := r.extras[ref]
	if x != nil && x.labels != nil {
		r.outermost().addLabels(x.labels)
		x.labels = nil
	}
	if x == nil || x.using == nil {
		return
	}
	used, kind := x.using, r.plan.node(ref).Kind
	x.using = nil
	sum := spent{Own: plus(x.Usage.own(), used)}
	if x.Usage != nil {
		sum.Inside = x.Usage.Inside
	}
	x.Usage = &sum
	for r.outer != nil {
		r, ref = r.outer, r.within.ref
		y := r.extra(ref)
		sum := spent{Own: y.Usage.own(), Inside: used}
		if y.Usage != nil {
			sum.Inside = plus(y.Usage.Inside, used)
		}
		y.Usage = &sum
		r.outdated(ref)
	}
	total := r.usage()
	total.by[kind] = plus(total.by[kind], used)
	r.outdate() // the record of the run contains the sums, so it must be written again
}

// usages returns the usage of the run by kind, for a snapshot. The caller holds the run's lock.
func (r *Run) usages() map[string]Usage {
	if x := r.remarked().usage; x != nil && len(x.by) > 0 {
		return cloneUsages(x.by)
	}
	return nil
}

// restoreUsage restores the usage that the run had before it was continued.
func (r *Run) restoreUsage(by map[string]Usage) {
	for kind, used := range by {
		total := r.usage()
		total.by[kind], total.live = maps.Clone(used), plus(total.live, used)
	}
	if d := r.durable; d != nil && len(by) > 0 {
		// Stores keep the sum over all kinds, for lists of runs. If an older version of kahn has stored the run, the sum is missing. So the next
		// transaction stores the sum.
		d.stale = true
	}
}

// restoreTokens converts a node's token counts, from a file of an older version, to a usage.
func (r *Run) restoreTokens(ref machine.Ref, x *extra) {
	if x.Tokens == [2]int{} {
		return
	}
	used := Usage{}
	for i, name := range []string{UsageInputTokens, UsageOutputTokens} {
		if x.Tokens[i] > 0 {
			used[name] = float64(x.Tokens[i])
		}
	}
	if x.Tokens = [2]int{}; len(used) == 0 {
		return
	}
	total := r.outermost().usage()
	total.live = plus(total.live, used)
	x.using = used
	r.fold(ref)
}

// maxSetLabels is the largest number of labels that the steps of a run may set. maxLabelText is the greatest length of a name or a value in
// bytes.
const (
	maxSetLabels = 100
	maxLabelText = 1000
)

// SetLabel sets a label of the run, like [Describe] at the run's start. It replaces an earlier label with this name. [store.Admin] lists runs by
// their labels. A durable run writes the label in the commit that records the end of the attempt, however the attempt ends. If the process
// dies during the attempt, the label is lost. The label stays when the run continues or is redriven; a fork has its own labels. A run on
// Temporal keeps the label in its history, and sets no search attribute.
//
// The error matches [ErrBadValue] if the name or the value is not UTF-8 or is longer than 1,000 bytes, or if steps have already set 100 other
// labels. After the attempt has ended, SetLabel does nothing.
func (s *Step) SetLabel(name, value string) error {
	for _, text := range []string{name, value} {
		if !utf8.ValidString(text) || len(text) > maxLabelText {
			return fmt.Errorf("%w: the label %s: %s: the name and the value must be UTF-8 of at most %d bytes", ErrBadValue, quoteID(name), quoteID(value), maxLabelText)
		}
	}
	if s.given() != nil {
		if to, is := s.reporter().(interface {
			SetLabel(name, value string) error
		}); is {
			return to.SetLabel(name, value)
		}
		return nil
	}
	return s.run.setLabel(s.known(), name, value)
}

func (r *Run) setLabel(s *Step, name, value string) error {
	r.st.Lock()
	defer r.st.Unlock()
	undoes := s.flags&stepUndo != 0
	if !undoes && !r.isAtWork(s) || r.outermost().concluded() {
		return nil
	}
	x, set := r.extra(s.ref), r.outermost().remark().labels
	_, again := set[name]
	_, mine := x.labels[name]
	if !again && !mine && len(set)+len(x.labels) >= maxSetLabels {
		return fmt.Errorf("%w: steps set at most %d labels", ErrBadValue, maxSetLabels)
	}
	if x.labels == nil {
		x.labels = map[string]string{}
	}
	if x.labels[name] = value; undoes {
		r.fold(s.ref)
	}
	return nil
}

// addLabels adds labels to the run's labels, and replaces labels with the same names. The caller holds the run's lock.
func (r *Run) addLabels(labels map[string]string) {
	x := r.remark()
	set := make(map[string]string, len(x.labels)+len(labels)) // a new map, since a commit may be encoding the old one
	maps.Copy(set, x.labels)
	maps.Copy(set, labels)
	x.labels = set
	if r.durable != nil {
		r.durable.unspecified = true
		r.outdate()
	}
}

// labels returns the labels of the run: the host's labels and the steps' labels. If both have set a name, the step's label counts. The caller holds
// the run's lock.
func (r *Run) labels() map[string]string {
	var given map[string]string
	if r.cfg.spec != nil {
		given = r.cfg.spec.Labels
	}
	set := r.remarked().labels
	if len(set) == 0 {
		return given
	}
	all := make(map[string]string, len(given)+len(set))
	maps.Copy(all, given)
	maps.Copy(all, set)
	return all
}

// Labels returns the labels of the run, or nil if there are none: see [Describe] and [Step.SetLabel]. The caller owns the map.
func (r *Run) Labels() map[string]string {
	r = r.outermost()
	r.st.Lock()
	defer r.st.Unlock()
	return maps.Clone(r.labels())
}
