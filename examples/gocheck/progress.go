package main

import (
	"fmt"
	"io"
	"os"

	"github.com/seed-c794f7ef/kahn"
)

// progress returns a sink for the events of a run that tells how far it has come: on a terminal in one line that is
// written over and over, elsewhere in a line for every tenth of the packages.
//
// It needs no lock: kahn calls a sink with one event at a time, and Execute does not return before the last one.
func progress(w io.Writer, terminal bool) func(kahn.Event) {
	var total, checked, failed, tenths int
	return func(e kahn.Event) {
		switch payload := e.Payload.(type) {
		case kahn.RunStarted:
			total = payload.TotalNodes
			return
		case kahn.NodeCompleted:
			checked++
		case kahn.NodeEnded:
			if e.Type != kahn.EventNodeFailed {
				return // aborted or cancelled: it was not checked
			}
			checked++
			failed++
		case kahn.RunEnded:
			if terminal {
				fmt.Fprintln(w)
			}
			return
		default:
			return
		}
		line := fmt.Sprintf("%3d%%  %d of %d packages checked, %d failed", checked*100/total, checked, total, failed)
		if terminal {
			fmt.Fprintf(w, "\r%-79.79s", line+"  "+e.Node)
		} else if checked*10/total > tenths {
			tenths = checked * 10 / total
			fmt.Fprintln(w, line)
		}
	}
}

// isTerminal reports whether w can write a line over. Without a system call for it, a character device has to do.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
