// Package strict makes tests fail where a run would only report a defect and continue.
package strict

// If Transitions is set, a State checks each transition of a node against the table of transitions, and panics if the table lacks the
// transition. The project's own tests set Transitions before anything runs.
var Transitions bool
