package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// The method `complain` reports each answer that no gate has taken, with the reason and the gates that wait. It returns the exit code. An answer that
// its gate has already is no mistake, so a command that was interrupted can be repeated.
func (h *host) complain(res *kahn.Result, code int) int {
	waits := "no gate waits"
	if len(res.Waiting) > 0 {
		var gates []string
		for _, wait := range res.Waiting {
			gates = append(gates, wait.Node)
		}
		waits = "the run waits for " + some(gates)
	}
	for _, gate := range slices.Sorted(maps.Keys(h.untaken)) {
		if reason := untaken(gate, h.untaken[gate], res); reason != "" {
			h.t.printf("kahn: -answer: no gate took the answer for %q: %s; %s\n", gate, reason, waits)
			code = cmp.Or(code, exitWaiting)
		}
	}
	return code
}

// untaken says why a gate has not taken an answer. It returns "" if the gate has the same answer already.
func untaken(gate string, answer any, res *kahn.Result) string {
	why, err := res.Why(gate)
	switch {
	case err != nil:
		return err.Error()
	case why.Status == kahn.Completed:
		was, known := outputAt(res, gate)
		if known && outputText(was) == outputText(answer) {
			return ""
		}
		if !known {
			return "it has its answer"
		}
		return "it has the answer " + outputText(was)
	case why.Status.Terminal():
		return fmt.Sprintf("it is %v", why.Status)
	case why.Status == kahn.Suspended:
		return "it still waits"
	case res.Status.Terminal():
		return fmt.Sprintf("it is %v, and the run has ended", why.Status)
	}
	return "the run has not reached it"
}

// outputAt finds a node by its path, also inside composites, and returns its output. A Result keeps only the last iteration of a loop. Before untaken calls
// outputAt, Result.Why has refused a path into another iteration.
func outputAt(res *kahn.Result, path string) (any, bool) {
	for n := range res.Nodes() {
		rest, found := strings.CutPrefix(path, n.ID)
		switch {
		case !found:
		case rest == "":
			return n.Output, true
		case n.Sub == nil:
		case strings.HasPrefix(rest, "/"):
			return outputAt(n.Sub, rest[1:])
		case strings.HasPrefix(rest, "["):
			return outputAt(n.Sub, path)
		case strings.HasPrefix(rest, "#"):
			_, inner, _ := strings.Cut(rest, "/")
			return outputAt(n.Sub, inner)
		}
	}
	return nil, false
}
