package temporal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// Errors of Check, of workers and of programs that start runs.
var (
	// ErrUnsupported is matched by the error of [Check] if the plan does not carry over.
	ErrUnsupported = errors.New("unsupported on Temporal")
	// ErrUnknownPlan is matched by the error of a worker that does not have the plan of a run. Another worker then performs the run.
	ErrUnknownPlan = errors.New("the worker does not have the plan")
)

// Check returns an error if a plan does not carry over to Temporal. It joins an error for each node concerned; each error has the node's
// path and the reason, and matches [ErrUnsupported]. Workers and [Start] check their plans before they start anything.
//
// A Go function does not carry over if the workflow itself would have to call it to assemble or check values. Such functions are Map.Key,
// Map.Estimate, the host's own merges, and contracts that are Go values. A worker accepts these functions if Options.Pure declares them as pure.
func Check(p *kahn.Plan) error { return check(p, false) }

func check(p *kahn.Plan, pure bool) error {
	if p == nil {
		return fmt.Errorf("kahn/temporal: %w", kahn.ErrNoGraph)
	}
	c := &checker{pure: pure}
	for prefix, p := range levels(p) {
		for r := range p.Declared() {
			c.node(prefix, p.Node(r))
		}
		for e := range p.Edges() {
			if !pure && !builtin(e.Merge) {
				c.refuse(prefix+e.To, fmt.Sprintf("the merge %q", e.Merge)+goCode)
			}
		}
	}
	return errors.Join(c.errs...)
}

// The function levels yields a plan and the plans of its composites at any depth, each with the prefix of the paths of its nodes, in a
// fixed order.
func levels(p *kahn.Plan) iter.Seq2[string, *kahn.Plan] {
	type level struct {
		prefix string
		plan   *kahn.Plan
	}
	return func(yield func(string, *kahn.Plan) bool) {
		for todo := []level{{"", p}}; len(todo) > 0; {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if !yield(at.prefix, at.plan) {
				return
			}
			for r, id := range at.plan.Declared() {
				if sub := at.plan.Sub(r); sub != nil {
					todo = append(todo, level{at.prefix + id + "/", sub})
				}
			}
		}
	}
}

const goCode = " is Go code that the workflow would call: if all such functions of the worker are pure, set Options.Pure"

type checker struct {
	pure bool
	errs []error
}

func (c *checker) node(prefix string, n kahn.Node) {
	if n.Moderation != kahn.ModerateNone {
		c.refuse(prefix+n.ID, "Moderation needs a moderator, which a workflow cannot have")
	}
	if c.pure {
		return
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"InputSchema", isContract(n.InputSchema)}, {"OutputSchema", isContract(n.OutputSchema)},
		{"Map.Key", n.Map != nil && n.Map.Key != nil}, {"Map.Estimate", n.Map != nil && n.Map.Estimate != nil},
		{fmt.Sprintf("the merge %q", n.Merge), !builtin(n.Merge)},
	} {
		if f.set {
			c.refuse(prefix+n.ID, f.name+goCode)
		}
	}
}

func (c *checker) refuse(path, reason string) {
	c.errs = append(c.errs, fmt.Errorf("kahn/temporal: node %q: %w: %s", path, ErrUnsupported, reason))
}

func isContract(schema any) bool {
	_, is := schema.(kahn.Contract)
	return is
}

func builtin(merge string) bool {
	switch merge {
	case "", kahn.MergeLast, kahn.MergeConcat, kahn.MergeArray, kahn.MergeObject:
		return true
	}
	return false
}

// timing has the fields of a node that decide when and how often its steps are performed. Of these fields, the hash
// that [kahn.Plan.Hash] returns depends only on ID.
type timing struct {
	ID                                       string
	Retry                                    kahn.Retry
	Timeout, OverallTimeout, Pause, Estimate time.Duration
	MaxCrashes, Priority                     int
	Groups                                   []string
	Key                                      string
	KeyFrom                                  string        `json:",omitempty"`
	CompensateRetry                          *kahn.Retry   `json:",omitempty"` // nil if the node has no CompensateRetry
	CompensateTimeout                        time.Duration `json:",omitempty"`
}

// fingerprint returns a digest of everything in a plan that affects a run: the plan's hash, and the timing of its nodes and groups. To continue a
// run, a worker needs a plan with the same fingerprint as the plan of the run.
func fingerprint(p *kahn.Plan) string {
	sum := sha256.New()
	write := json.NewEncoder(sum)
	encode := func(v any) {
		if err := write.Encode(v); err != nil {
			panic(fmt.Sprintf("kahn/temporal: the timing of a node has no JSON form: %v", err)) // this is a bug, because plain data has a JSON form
		}
	}
	encode(p.Hash())
	for prefix, p := range levels(p) {
		encode(prefix)
		encode(p.Groups())
		for r := range p.Declared() {
			n := p.Node(r)
			t := timing{
				ID: n.ID, Retry: n.Retry, Timeout: n.Timeout, OverallTimeout: n.OverallTimeout, Estimate: n.Estimate, MaxCrashes: n.MaxCrashes,
				Priority: n.Priority, Groups: n.Groups, Key: n.Key, KeyFrom: n.KeyFrom,
			}
			if n.Compensate != nil || n.CompensateBy != nil {
				t.CompensateRetry, t.CompensateTimeout = &n.CompensateRetry, n.CompensateTimeout
			}
			if n.Loop != nil {
				t.Pause = n.Loop.Pause
			}
			encode(t)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
