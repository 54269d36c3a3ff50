package inspector

import (
	"net/http"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// The method `sees` reports whether a client may know of a run.
func (h *handler) sees(r *http.Request, run RunInfo) (visible bool) {
	if h.Visible == nil {
		return true
	}
	err := h.contain(r, "Visible", func() error { visible = h.Visible(r, run); return nil })
	return visible && err == nil
}

func (h *handler) seesLive(r *http.Request, run *kahn.Run) bool {
	return h.Visible == nil || h.sees(r, RunInfo{run.ID(), run.Name(), run.Labels()})
}

func (h *handler) seesStored(r *http.Request, run *store.Run) bool {
	return h.Visible == nil || h.sees(r, RunInfo{run.ID, run.Workflow, run.Labels})
}

// seesTarget reports whether the client may know of the run that the request names. It returns true if the request names no run.
func (c *call) seesTarget() bool {
	switch run := c.target.(type) {
	case *kahn.Run:
		return c.h.seesLive(c.r, run)
	case *storedRun:
		return c.h.seesStored(c.r, run.row)
	}
	return true
}

// liveRuns yields the Runner's runs that the client may know of, in the Runner's order.
func (c *call) liveRuns(yield func(*kahn.Run) bool) {
	for run := range c.h.Runner.Runs() {
		if c.h.seesLive(c.r, run) && !yield(run) {
			return
		}
	}
}
