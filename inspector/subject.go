package inspector

import (
	"context"
	"iter"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// subject is a run that the page shows: a [*kahn.Run], or a run in its stored state.
type subject interface {
	ID() string
	Name() string
	Plan() *kahn.Plan // nil if unknown
	Status() kahn.RunStatus
	Started() time.Time
	FirstStarted() time.Time // the start of the run's first node, in whichever process
	Counts() map[kahn.Status]int
	Node(path string) (kahn.NodeResult, error)
	Nodes() iter.Seq[kahn.NodeResult]
	Inside(path string) (kahn.Inside, error)
	Why(path string) (kahn.Why, error)
	Inputs(path string) (params map[string]any, open []string, err error)
	Waiting() []kahn.Wait
	EventRange() (first, last uint64)
	Events(ctx context.Context, after uint64) iter.Seq2[kahn.Event, error]
}

var (
	_ subject = (*kahn.Run)(nil)
	_ subject = (*storedRun)(nil)
)

// The method `live` returns the field target as a run of the Runner. It returns nil if there is no target, or if the target is a stored run.
func (c *call) live() *kahn.Run {
	run, _ := c.target.(*kahn.Run)
	return run
}

// The method `stored` returns the field target as a stored run. It returns nil if there is no target, or if the target is a run of the Runner.
func (c *call) stored() *storedRun {
	run, _ := c.target.(*storedRun)
	return run
}
