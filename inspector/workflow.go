package inspector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Workflow describes runs of Options.Store to the handler. Without a Workflow, the nodes of a run are shown without the edges between
// them, unless Options.Runner has the run.
type Workflow struct {
	// Plan is the plan of the runs. A run belongs to the Workflow if the run's plan has the same hash as Plan. If several Workflows have plans with
	// the same name, the last of them performs forks.
	Plan *kahn.Plan
	// Perform performs a run in this process. The options say what to do with the run. They contain the run's id, except for a fork that gets
	// a generated id. If Options.Store is set, they contain kahn.Durable. A service with a Runner passes the options on:
	//
	//	func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) { return rn.Start(ctx, graph, step, opts...) }
	//
	// The context does not end with the request. If Perform is nil, this process cannot continue, redrive or fork the runs.
	Perform func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error)
}

// addWorkflows indexes the workflows by the hashes and by the names of their plans.
func (h *handler) addWorkflows() {
	h.byPlan, h.byName = map[string]*Workflow{}, map[string]*Workflow{}
	for i := range h.Workflows {
		w := &h.Workflows[i]
		if w.Plan == nil {
			h.defect = fmt.Sprintf("Options.Workflows[%d].Plan is nil", i)
			return
		}
		h.byPlan[w.Plan.Hash()], h.byName[w.Plan.Name()] = w, w
	}
}

// workflowOf returns the Workflow of a stored run; nil if there is none.
func (h *handler) workflowOf(spec store.Spec) *Workflow { return h.byPlan[spec.Plan] }

// copyOf returns the Runner's run with the id and the plan of a stored run; nil if there is none. The Runner keeps a run that it has left.
func (h *handler) copyOf(row *store.Run) *kahn.Run {
	if run, ok := h.Runner.Run(row.ID); ok && run.Plan().Hash() == row.Plan {
		return run
	}
	return nil
}

// forkOf returns the Workflow that performs a fork of a run: the last Workflow with the run's name. A run without a name is forked with
// its own plan.
func (h *handler) forkOf(run subject) *Workflow {
	if name := run.Name(); name != "" {
		return h.byName[name]
	}
	if plan := run.Plan(); plan != nil {
		return h.byPlan[plan.Hash()]
	}
	return nil
}

// actionsOf returns the actions that a run's status allows. The client may lack the permission for some of them.
func (h *handler) actionsOf(run subject) []string {
	list := []string{}
	s, isStored := run.(*storedRun)
	performed := !isStored || s.workflow != nil && s.workflow.Perform != nil
	ended := over(run)
	if performed && (ended || isStored && s.due()) || ended && h.asksRedrive(s) {
		list = append(list, "redrive")
		if ended && compensationOf(run) == kahn.CompensationFailed {
			list = append(list, "compensate")
		}
	}
	switch {
	case ended:
	case isStored:
		list = append(list, h.stopsOf(performed)...)
	default:
		list = append(list, "cancel", "abort", "leave")
	}
	if w := h.forkOf(run); w != nil && w.Perform != nil && run.Status() != kahn.RunPending {
		list = append(list, "fork")
	}
	return list
}

// asksRedrive reports whether this process may post a redrive of a stored run as a request, without performing the run. This process must have
// the plan of the run, because the plan shows what would run again.
func (h *handler) asksRedrive(s *storedRun) bool {
	_, controls := h.Store.(Controller)
	_, asks := h.Store.(store.Inbox)
	return s != nil && s.Plan() != nil && asks && !controls
}

// stopsOf returns the actions that stop an unfinished stored run. The argument `performed` says whether this process can perform the run.
func (h *handler) stopsOf(performed bool) []string {
	if _, ok := h.Store.(Controller); ok {
		return []string{"cancel", "abort"}
	}
	if _, ok := h.Store.(store.Inbox); ok || performed {
		return []string{"cancel"}
	}
	return nil
}

// The method `execute` calls the Perform of a workflow.
func (c *call) execute(w *Workflow, opts ...kahn.Option) (*kahn.Run, error) {
	if w == nil || w.Perform == nil {
		return nil, errNotPerformed
	}
	if c.h.Store != nil {
		opts = append(opts, kahn.Durable(c.h.Store))
	}
	defer c.h.changed(c.target.ID())
	run, err := w.Perform(context.WithoutCancel(c.r.Context()), opts...)
	if err == nil && run == nil {
		err = &fault{Status: http.StatusInternalServerError, Code: "failed", Message: "Workflow.Perform has returned no run"}
	}
	return run, err
}

var errNotPerformed = &fault{Status: http.StatusConflict, Code: "not_performed", Message: "this process cannot perform the run: no entry of Options.Workflows with its workflow and plan has a Perform"}

// goOn lets this process continue a stored run. If this process performs the run already, goOn makes the Runner's run the target of the
// call, and returns errHere.
func (c *call) goOn(s *storedRun, opts ...kahn.Option) (*kahn.Run, error) {
	// Requests that continue the same run take turns, so a second request finds the run in this process already.
	end, err := c.h.turns.begin(c.r.Context(), s.ID())
	if err != nil {
		return nil, err
	}
	defer end()
	if run, ok := c.h.Runner.Run(s.ID()); ok && !wasLeft(run) {
		c.target = run
		return nil, errHere
	}
	return c.execute(s.workflow, append(opts, kahn.RunID(s.ID()))...)
}

// The type `turns` ensures that no two requests continue the same stored run at the same time.
type turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // the turns in progress, by the id of the run; each channel is closed when its turn ends
}

// The method `begin` waits until no other turn of the run is in progress, and then begins a turn. The caller must call the returned function to end
// the turn. If ctx ends first, begin returns an error.
func (x *turns) begin(ctx context.Context, id string) (end func(), err error) {
	mine := make(chan struct{})
	for {
		x.mu.Lock()
		other := x.taken[id]
		if other == nil {
			break
		}
		x.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer x.mu.Unlock()
	if x.taken == nil {
		x.taken = map[string]chan struct{}{}
	}
	x.taken[id] = mine
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.taken, id)
		close(mine)
	}, nil
}

var errHere = errors.New("the run is here by now")

// signalStored answers a node of a stored run: this process continues the run, and the first transaction contains the answer.
func (c *call) signalStored(s *storedRun, path string, d kahn.Decision) error {
	run, err := c.goOn(s, kahn.EarlySignals(map[string]any{path: d}))
	if err != nil {
		return err
	}
	if err := c.begun(run); err != nil {
		return err
	}
	// The run has got the answer already. c.confirmed repeats the answer under the same id: this changes nothing, but waits until the answer is stored.
	return c.confirmed(run, path, d)
}

// The method `begun` waits until a run has begun, since a Runner may delay runs. It returns an error if the request ends first.
func (c *call) begun(run *kahn.Run) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for run.Status() == kahn.RunPending {
		select {
		case <-ticker.C:
		case <-c.r.Context().Done():
			return c.r.Context().Err()
		}
	}
	return nil
}

// cancelStored cancels a run that no process performs. A run that has not begun ends without calling a step. For any other run, this
// process first continues the run and then cancels it, so that its cleanup nodes run. Steps that are ready may be called before the
// cancellation.
func (c *call) cancelStored(s *storedRun, q kahn.Request) error {
	var opts []kahn.Option
	if s.Status() == kahn.RunPending {
		opts = append(opts, kahn.Around(func(_ context.Context, run *kahn.Run) (context.Context, func(*kahn.Result)) {
			_ = run.Cancel(q) // Cancel returns nil, since this process performs the run
			return nil, nil
		}))
	}
	run, err := c.goOn(s, opts...)
	if err != nil {
		return err
	}
	return run.Cancel(q)
}

// cancelNodeStored cancels a node of a run that no process performs. To do so, this process continues the run.
func (c *call) cancelNodeStored(s *storedRun, path string) error {
	run, err := c.goOn(s)
	if err != nil {
		return err
	}
	if err := c.begun(run); err != nil {
		return err
	}
	return run.CancelNode(path)
}

// forkBody is the body of a request for a new run with results of another run.
type forkBody struct {
	// ID is the new run's id; if empty, the new run gets a generated id.
	ID string `json:"id,omitempty"`
	// Nodes are the nodes that run again, besides the nodes whose results cannot be kept.
	Nodes []string `json:"nodes,omitempty"`
	// Inputs are all inputs of the new run, by name. If the body has no Inputs, the new run gets the inputs of the old run.
	Inputs json.RawMessage `json:"inputs,omitempty"`
	// DespiteHandlers allows the fork to repeat nodes whose failures other nodes have handled, for example by a refund.
	DespiteHandlers bool `json:"despite_handlers,omitempty"`
	// Reason is written to the audit record of the action.
	Reason string `json:"reason,omitempty"`
}

// The method `snapshot` returns a snapshot of the run that the request names.
func (c *call) snapshot() (*kahn.Snapshot, error) {
	s := c.stored()
	switch {
	case s == nil:
		return c.live().Snapshot(), nil
	case s.snapshot == nil:
		return nil, errNotBegun
	}
	return s.snapshot, nil
}

var errNotBegun = &fault{Status: http.StatusConflict, Code: "not_begun", Message: "the run has not begun"}

func (c *call) fork() (any, error) {
	body := c.body.(*forkBody)
	from, err := c.snapshot()
	if err != nil {
		return nil, err
	}
	opts := append(despite(body.DespiteHandlers), kahn.Fork(from, body.Nodes...))
	if body.ID != "" {
		opts = append(opts, kahn.RunID(body.ID))
	}
	if len(body.Inputs) > 0 {
		value, err := parseValue(body.Inputs)
		if err != nil {
			return nil, err
		}
		inputs, ok := value.(map[string]any)
		if !ok {
			return nil, badBody("the inputs are not a JSON object")
		}
		opts = append(opts, kahn.Inputs(inputs))
	}
	run, err := c.execute(c.h.forkOf(c.target), opts...)
	if err != nil {
		return nil, err
	}
	return runReply{Run: run.ID()}, nil
}

func (c *call) previewFork() (any, error) {
	w := c.h.forkOf(c.target)
	if w == nil {
		return nil, errNoPlan
	}
	from, err := c.snapshot()
	if err != nil {
		return nil, err
	}
	list, err := kahn.ForkPreview(w.Plan, from, c.query.texts["node"])
	return c.previewed(from, list, err)
}

// errNoPlan rejects a request that needs the plan of a run if the plan is unknown.
var errNoPlan = &fault{Status: http.StatusConflict, Code: "plan_unknown", Message: "neither Options.Workflows nor the Runner has the plan of the run"}
