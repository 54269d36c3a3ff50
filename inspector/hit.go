package inspector

import (
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
)

// hitReply names the earlier run that produced a memoized output: see kahn.Memo.
type hitReply struct {
	Run string `json:"run,omitempty"` // empty if the client is not allowed to know of the run
	At  string `json:"at"`            // when the step of that run returned the output
}

// The method `hit` describes the earlier run that produced a memoized output. It returns nil if h is nil.
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

// seesHit reports whether the client may know of the run that produced an output. If Options.Visible is set, seesHit returns false for every run
// that the Runner does not have: Visible needs the labels of a run, and seesHit can read only the labels of the Runner's runs.
func (c *call) seesHit(id string) bool {
	if c.h.Visible == nil {
		return true
	}
	run, ok := c.h.Runner.Run(id)
	return ok && c.h.seesLive(c.r, run)
}

// hitLine describes in words from which run the memoized output of a node comes.
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
