package riverkahn

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// stepArgs are the arguments of the job that performs an attempt of a step.
type stepArgs struct {
	Run     string `json:"run"`
	Path    string `json:"path"` // the path of the node
	Attempt int    `json:"attempt"`
	Token   string `json:"token"` // the name of the signal that carries the reply to the node
	// LostAfter is how long the process that performs the attempt may be silent.
	LostAfter time.Duration   `json:"lost_after"`
	Losses    int             `json:"losses,omitempty"` // how many processes were lost during the attempt
	Call      json.RawMessage `json:"call"`             // a kahn.Call in JSON
}

// Kind implements [river.JobArgs].
func (stepArgs) Kind() string { return "kahn_step" }

// Remote sends steps to other processes. Use its method Step as the step function of a [Workflow], or as the Do of a node. Step inserts a
// job of River, and suspends the node until the job's reply comes. One of the processes that serve the kind of the node performs the job,
// see [Server]. If the run has nothing else to do, no process performs the run until the reply comes.
//
// The job contains everything that the step can read, as JSON, see [kahn.Call]. If the codec of the run is a [store.Blobs], the job contains
// references to large values instead of the values.
type Remote struct {
	// WithView lets the step see the results of all ancestors of the node, see [kahn.Step.View]. Without WithView the step sees only the
	// results of the predecessors.
	WithView bool
	// LostAfter is how long the process of a step may be silent. If it sends no heartbeat for longer, it counts as lost, and another process
	// performs the attempt again. Zero means 30 s. After three lost processes the attempt fails.
	LostAfter time.Duration
	// Priority is the priority of the jobs, from 1 to 4. Jobs with the priority 1 come first. Zero means 1.
	Priority int
}

const (
	defaultLostAfter = 30 * time.Second
	// mostLosses is the number of lost processes after which an attempt fails.
	mostLosses = 3
	// The constant `sent` is the prefix of all tokens. A token is the name of the signal that carries the reply of a job to the node. Step
	// also saves the token as the node's state.
	sent = "kahn_step "
)

// Step sends an attempt to another process, and suspends the node. When the reply has come, the run calls Step again, and Step returns the reply.
// If no Performer performs the run, the attempt fails.
func (r Remote) Step(ctx context.Context, s *kahn.Step) (any, error) {
	if r.LostAfter < 0 || r.Priority < 0 || r.Priority > maxPriority {
		return nil, kahn.Permanent(fmt.Errorf("%w: riverkahn.Remote: LostAfter %v is negative, or Priority %d is not between 0 and %d", machine.ErrBadValue, r.LostAfter, r.Priority, maxPriority))
	}
	if unitless(r.LostAfter) {
		return nil, kahn.Permanent(fmt.Errorf("%w: riverkahn.Remote: LostAfter %v: is its unit missing?", machine.ErrBadValue, r.LostAfter))
	}
	if s.Kind() == kahn.KindEnd {
		return nil, kahn.Permanent(errEnd)
	}
	call := s.CallWithoutView()
	if r.WithView {
		call = s.Call()
	}
	state, _ := s.SavedState().(string)
	switch {
	case strings.HasPrefix(state, tokenOf(s)):
		return received(s, call.Codec)
	case strings.HasPrefix(state, sent): // state is the token of the previous attempt
		call.Resumed, call.Signal, call.SavedState = false, nil, nil
	}
	client, err := river.ClientFromContextSafely[pgx.Tx](ctx)
	if err != nil {
		return nil, kahn.Permanent(fmt.Errorf("riverkahn.Remote: no Performer performs the run: %w", err))
	}
	data, err := json.Marshal(call)
	if err != nil {
		return nil, kahn.Permanent(err)
	}
	args := stepArgs{Run: s.RunID(), Path: s.Path(), Attempt: s.Attempt(), Token: tokenOf(s) + rand.Text(), LostAfter: cmp.Or(r.LostAfter, defaultLostAfter), Call: data}
	opts := &river.InsertOpts{Queue: KindQueue(s.Kind()), Priority: r.Priority, MaxAttempts: river.MaxAttemptsDefault}
	if _, err := client.Insert(ctx, args, opts); err != nil {
		return nil, err
	}
	return nil, kahn.Suspend(args.Token, nil, args.Token)
}

// errEnd is returned for an end node whose step is a Remote.
var errEnd = fmt.Errorf("%w: riverkahn.Remote: the end node cannot wait for the reply of another process", machine.ErrBadValue)

// remoteStep is the name that package runtime gives to a method value of [Remote.Step].
var remoteStep = runtime.FuncForPC(reflect.ValueOf(Remote{}.Step).Pointer()).Name()

// isRemote reports whether a step function is the method Step of a Remote. It returns false for another function that calls this method.
func isRemote(do kahn.StepFunc) bool {
	f := runtime.FuncForPC(reflect.ValueOf(do).Pointer())
	return f != nil && f.Name() == remoteStep
}

// checkRemote returns errEnd if the step of an end node, at any depth of the plan, is a Remote. Without this check each run would fail, but only when
// the end node begins.
func checkRemote(plan *kahn.Plan, step kahn.StepFunc) error {
	for plans := []*kahn.Plan{plan}; len(plans) > 0; {
		p := plans[0]
		plans = plans[1:]
		for r, id := range p.Declared() {
			n := p.Node(r)
			if n.Do == nil {
				n.Do = step
			}
			if n.Kind == kahn.KindEnd && n.Do != nil && isRemote(n.Do) {
				return fmt.Errorf("node %s of %s: %w", id, p.Name(), errEnd)
			}
			if sub := p.Sub(r); sub != nil {
				plans = append(plans, sub)
			}
		}
	}
	return nil
}

// tokenOf returns the beginning of the token of an attempt.
func tokenOf(s *kahn.Step) string { return fmt.Sprintf("%s%d ", sent, s.Attempt()) }

// The function `received` decodes the reply that resumes an attempt.
func received(s *kahn.Step, codec kahn.Codec) (any, error) {
	answer, _ := s.Resumed()
	text, ok := answer.(string)
	if !ok {
		return nil, kahn.Permanent(fmt.Errorf("the node waits for the reply of its job, but was answered with a value of the type %T", answer))
	}
	reply := kahn.Reply{Codec: codec}
	if err := json.Unmarshal([]byte(text), &reply); err != nil {
		return nil, kahn.Permanent(err)
	}
	return reply.Value, reply.Err
}
