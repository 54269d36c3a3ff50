package conformance_test

import (
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/strict"
	"github.com/seed-c794f7ef/kahn/machine"
)

// What package machine offers the drivers of a State, used to look at the State of a run.

// core returns the State of a run, locked.
func core(run *kahn.Run) (s *machine.Locked, unlock func()) {
	s = (*machine.Locked)(run.State())
	s.Lock()
	return s, s.Unlock
}

// leftovers names what the State of a run still holds: slots, and nodes that are not terminal. It is empty if the run has ended.
func leftovers(run *kahn.Run) string {
	s, unlock := core(run)
	defer unlock()
	return strings.Join(append(s.HeldSlots(), s.Leftovers()...), ", ")
}

// heldSlots names the slots that a run which was left still holds, or "".
func heldSlots(run *kahn.Run) string {
	s, unlock := core(run)
	defer unlock()
	return strings.Join(s.HeldSlots(), ", ")
}

// transitions returns the transitions of nodes since KeepLog was called.
func transitions(st *machine.State) []machine.Change {
	return slices.DeleteFunc(slices.Clone((*machine.Locked)(st).Changes()), func(c machine.Change) bool { return c.Wave != 0 })
}

// tolerateBugs lets transitions that are not in the table be warnings, as they are outside of tests, until it is undone.
func tolerateBugs() (undo func()) {
	strict.Transitions = false
	return func() { strict.Transitions = true }
}
