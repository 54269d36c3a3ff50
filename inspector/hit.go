package inspector

import (
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
)

// hitReply names the earlier run whose step made an output that comes from a kahn.Memo.
type hitReply struct {
	Run string `json:"run,omitempty"` // empty if the client is not allowed to know of the run
	At  string `json:"at"`            // when the step of that run returned
}

// The method `hit` describes the earlier run that made an output. It returns nil if no earlier run made the output.
func (c *call) hit(h *event.Hit) *hitReply {
	if h == nil {
		return nil
	}
	reply := &hitReply{At: stamp(h.At)}
	if c.seesHit(h.Run) {
		reply.Run = h.Run
	}
	return reply
}

// seesHit reports whether the client may know of the run that made an output. If Options.Visible is set, seesHit returns false for a run that the
// Runner does not have: Visible needs the labels of a run, and only the labels of the Runner's runs are known here.
func (c *call) seesHit(id string) bool {
	if c.h.Visible == nil {
		return true
	}
	run, ok := c.h.Runner.Run(id)
	return ok && c.h.seesLive(c.r, run)
}

// hitLine describes in words where the output of a node comes from.
func (c *call) hitLine(p event.Completion) string {
	line := ", with the output of an earlier run"
	if p.Hit == nil {
		return line
	}
	if c.seesHit(p.Hit.Run) {
		line = ", with the output of run " + clip(p.Hit.Run, shownText)
	}
	return line + fmt.Sprintf(" of %s", p.Hit.At.UTC().Format(time.DateTime+"Z"))
}
