package kahn

import (
	"time"

	"github.com/seed-c794f7ef/kahn/internal/jsonwrite"
)

// nodeWriter writes nodes of snapshots and of stores.
type nodeWriter struct{ jsonwrite.Writer }

// node writes a node of a snapshot, with every value and error as text. The members are in the order of nodeState, as package
// json would write them, which writes those that few nodes have.
func (w *nodeWriter) node(n *nodeState) {
	w.Open()
	w.Text("id", n.ID)
	w.Text("status", n.Status.String())
	w.rest(n)
	w.Close()
}

// record writes what a store keeps of a node beside its key and the parts that store.Columns has by themselves.
func (w *nodeWriter) record(n *nodeState, key string) {
	rest := *n
	rest.Hash, rest.Cause, rest.Start, rest.End, rest.Value = "", CauseNone, time.Time{}, time.Time{}, nil
	w.Open()
	if n.ID != key {
		w.Text("id", n.ID)
	}
	w.rest(&rest)
	w.Close()
}

// rest writes the members that follow id and status.
func (w *nodeWriter) rest(n *nodeState) {
	w.IDIf("event", n.Event)
	w.TextIf("hash", n.Hash)
	w.Flag("checking", n.Checking)
	w.Flag("reached", n.Reached)
	w.Flag("substituted", n.Substituted)
	w.Flag("propagated", n.Propagated)
	w.Flag("tolerated", n.Tolerated)
	w.Flag("bypass", n.Bypass)
	if n.Cause != CauseNone {
		w.Text("cause", n.Cause.String())
	}
	if n.Skip != SkipNone {
		w.Text("skip", n.Skip.String())
	}
	w.TextIf("origin", n.Origin)
	w.NumberIf("by", int64(n.By))
	if len(n.Labels) > 0 {
		w.List("labels", n.Labels)
	}
	w.TextIf("answer", n.Answer)
	w.NumberIf("epoch", int64(n.Epoch))
	w.NumberIf("settled", int64(n.Settled))
	w.NumberIf("decided", int64(n.Decided))
	w.NumberIf("attempts", int64(n.Attempts))
	w.NumberIf("cut", int64(n.Cut))
	w.NumberIf("crashes", int64(n.Crashes))
	w.TimeIf("due", n.Due)
	writeIf(w, "refused", n.Refused)
	w.NumberIf("started", int64(n.Started))
	w.NumberIf("entries", int64(n.Entries))
	w.TimeIf("start", n.Start)
	w.TimeIf("end", n.End)
	writeIf(w, "value", n.Value)
	w.Flag("fallback", n.Fallback)
	w.Flag("memoized", n.Memoized)
	w.Flag("abandoned", n.Abandoned)
	w.TextIf("message", n.Message)
	if n.Tokens != [2]int{} {
		w.JSON("tokens", n.Tokens)
	}
	w.IDIf("latest", n.Latest)
	w.NumberIf("deltas", int64(n.Deltas))
	w.NumberIf("collected", int64(n.Collected))
	writeIf(w, "taken", n.Taken)
	writeIf(w, "error", n.Err)
	writeIf(w, "last_error", n.LastErr)
	writeIf(w, "guard_error", n.GuardErr)
	writeIf(w, "stop_error", n.StopErr)
	if len(n.Errs) > 0 {
		w.JSON("attempt_errors", n.Errs)
	}
	if len(n.Retried) > 0 {
		w.JSON("retried", n.Retried)
	}
	w.TimeIf("attempt_start", n.Began)
	if len(n.Merged) > 0 {
		w.JSON("merged", n.Merged)
	}
	writeIf(w, "wait", n.Wait)
	writeIf(w, "saved", n.Saved)
	writeIf(w, "signal", n.Signal)
	w.Flag("signalled", n.Signalled)
	w.TextIf("actor", n.Actor)
	w.TextIf("comment", n.Comment)
	w.TextIf("signal_id", n.SignalID)
	w.Flag("dormant", n.Dormant)
	w.Flag("draining", n.Draining)
	w.NumberIf("timed_out", int64(n.TimedOut))
	w.NumberIf("timeout", int64(n.Timeout))
	writeIf(w, "list", n.List)
	writeIf(w, "inside", n.Inside)
}

// writeIf leaves out a member that is nil. Others it leaves to package json.
func writeIf[T any](w *nodeWriter, key string, v *T) {
	if v != nil {
		w.JSON(key, v)
	}
}
