package kahn

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
	s := &r.st
	status, degraded := s.runStatus(statusFold(r.cfg.statusRule))
	v := verdict{status: status, degraded: degraded, cause: s.stoppedFor()}
	for ref, w := range s.all() {
		if w.status() == Failed && ref != r.plan.end {
			v.failed++
		}
	}
	if s.stoppedFor() == CauseStoreError {
		v.status, v.degraded = RunFailed, false // whatever the end node says
	} else if end := r.plan.end; end != noRef && !s.isClosed() {
		r.judgeEnd(&v, end)
	}
	if v.status == RunCompleted || v.status == RunCancelled && v.cause.stopStatus() == Aborted {
		v.cause = CauseNone // the stop came too late to change the outcome
	}
	r.verdict = v
}

func (r *Run) judgeEnd(v *verdict, end Ref) {
	if r.st.word(end).status() != Completed {
		v.degraded = false
		if v.status != RunCancelled {
			v.status, v.cause = RunFailed, CauseEndFailed
		}
		return
	}
	said, ok := r.endOutput.(EndVerdict)
	if !ok || said.Status == RunPending || v.status == RunCancelled && said.Status == RunCompleted {
		return
	}
	if said.Status == RunCompleted && v.status != RunCompleted {
		// The end node has accepted the failures that escaped; only handled failures degrade the run.
		v.degraded = r.st.handledFailures()
	}
	if said.Status != RunCompleted {
		v.degraded = false
	}
	v.status = said.Status
}
