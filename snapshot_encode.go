package kahn

import "time"

// node writes a node of a snapshot, with every value and error as text. The members are in the order of nodeState, as package
// json would write them, which writes those that few nodes have.
func (w *jsonWriter) node(n *nodeState) {
	w.open()
	w.text("id", n.ID)
	w.text("status", n.Status.String())
	w.rest(n)
	w.close()
}

// record writes what a store keeps of a node beside its key and the parts that NodeColumns has by themselves.
func (w *jsonWriter) record(n *nodeState, key string) {
	rest := *n
	rest.Hash, rest.Cause, rest.Start, rest.End, rest.Value = "", CauseNone, time.Time{}, time.Time{}, nil
	w.open()
	if n.ID != key {
		w.text("id", n.ID)
	}
	w.rest(&rest)
	w.close()
}

// rest writes the members that follow id and status.
func (w *jsonWriter) rest(n *nodeState) {
	w.idIf("event", n.Event)
	w.textIf("hash", n.Hash)
	w.flag("checking", n.Checking)
	w.flag("reached", n.Reached)
	w.flag("substituted", n.Substituted)
	w.flag("propagated", n.Propagated)
	w.flag("tolerated", n.Tolerated)
	w.flag("bypass", n.Bypass)
	if n.Cause != CauseNone {
		w.text("cause", n.Cause.String())
	}
	if n.Skip != SkipNone {
		w.text("skip", n.Skip.String())
	}
	w.textIf("origin", n.Origin)
	w.numberIf("by", int64(n.By))
	if len(n.Labels) > 0 {
		w.list("labels", n.Labels)
	}
	w.textIf("answer", n.Answer)
	w.numberIf("epoch", int64(n.Epoch))
	w.numberIf("settled", int64(n.Settled))
	w.numberIf("decided", int64(n.Decided))
	w.numberIf("attempts", int64(n.Attempts))
	w.numberIf("cut", int64(n.Cut))
	w.numberIf("crashes", int64(n.Crashes))
	w.timeIf("due", n.Due)
	w.numberIf("started", int64(n.Started))
	w.numberIf("entries", int64(n.Entries))
	w.timeIf("start", n.Start)
	w.timeIf("end", n.End)
	writeIf(w, "value", n.Value)
	w.flag("fallback", n.Fallback)
	w.flag("memoized", n.Memoized)
	w.flag("abandoned", n.Abandoned)
	w.textIf("message", n.Message)
	if n.Tokens != [2]int{} {
		w.json("tokens", n.Tokens)
	}
	w.idIf("latest", n.Latest)
	writeIf(w, "error", n.Err)
	writeIf(w, "last_error", n.LastErr)
	writeIf(w, "guard_error", n.GuardErr)
	writeIf(w, "stop_error", n.StopErr)
	if len(n.Errs) > 0 {
		w.json("attempt_errors", n.Errs)
	}
	if len(n.Retried) > 0 {
		w.json("retried", n.Retried)
	}
	w.timeIf("attempt_start", n.Began)
	if len(n.Merged) > 0 {
		w.json("merged", n.Merged)
	}
	writeIf(w, "wait", n.Wait)
	writeIf(w, "saved", n.Saved)
	writeIf(w, "signal", n.Signal)
	w.flag("signalled", n.Signalled)
	w.textIf("actor", n.Actor)
	w.textIf("comment", n.Comment)
	w.flag("dormant", n.Dormant)
	w.flag("draining", n.Draining)
	w.numberIf("timed_out", int64(n.TimedOut))
	w.numberIf("timeout", int64(n.Timeout))
	writeIf(w, "list", n.List)
	writeIf(w, "inside", n.Inside)
}

// writeIf leaves out a member that is nil. Others it leaves to package json.
func writeIf[T any](w *jsonWriter, key string, v *T) {
	if v != nil {
		w.json(key, v)
	}
}
