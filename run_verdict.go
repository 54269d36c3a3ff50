package kahn

import "github.com/seed-c794f7ef/kahn/machine"

// verdict is the status of a run that has ended, as the end step evaluates it.
type verdict struct {
	status   RunStatus
	degraded bool
	cause    CauseKind // why the whole run was stopped, or CauseEndFailed
	failed   int       // nodes in status failed, the end node not counted
}

// EndVerdict, returned by the end node as its output, replaces the status that kahn computed for the run, except that a
// cancelled run may be called failed but not completed. An end node that returns anything else leaves the computed status
// alone, and its output is the run's.
type EndVerdict struct {
	// Status is RunCompleted or RunFailed. The zero value leaves the computed status.
	Status RunStatus
	// Output is the output of the run.
	Output any
}

// judge computes the verdict of the run: the virtual end step. It is called once, with everything terminal.
func (r *Run) judge() {
	if r.verdict = (verdict{status: RunCompleted}); r.plan.end != noRef || !r.st.Untroubled() {
		r.judgeAll()
	}
}

//go:noinline
func (r *Run) judgeAll() { // not a part of judge: see attemptAndFinish
	r.verdict = verdictOf(&r.st, r.plan.end, r.cfg.statusRule, r.endOutput)
}

// verdictOf computes the verdict of a run in which everything is terminal, from its State and the output of its end node. The lock is held.
func verdictOf(s *machine.Locked, end Ref, rule StatusRule, endOutput any) verdict {
	status, degraded := s.RunStatus(machine.StatusRule(rule))
	v := verdict{status: status, degraded: degraded, cause: s.StoppedFor()}
	for ref, w := range s.Words() {
		if w.Status() == Failed && ref != end {
			v.failed++
		}
	}
	if s.StoppedFor() == CauseStoreError {
		v.status, v.degraded = RunFailed, false // whatever the end node says
	} else if end != noRef && !s.IsClosed() {
		v.judgeEnd(s, end, endOutput)
	}
	if v.status == RunCompleted || v.status == RunCancelled && v.cause.StopStatus() == Aborted {
		v.cause = CauseNone // the stop came too late to change the outcome
	}
	return v
}

func (v *verdict) judgeEnd(s *machine.Locked, end Ref, output any) {
	if s.Word(end).Status() != Completed {
		v.degraded = false
		if v.status != RunCancelled {
			v.status, v.cause = RunFailed, CauseEndFailed
		}
		return
	}
	said, ok := output.(EndVerdict)
	if !ok || said.Status == RunPending || v.status == RunCancelled && said.Status == RunCompleted {
		return
	}
	if said.Status == RunCompleted && v.status != RunCompleted {
		// The end node has accepted the failures that escaped; only handled failures degrade the run.
		v.degraded = s.HandledFailures()
	}
	if said.Status != RunCompleted {
		v.degraded = false
	}
	v.status = said.Status
}
