// Package strict makes tests fail where a run reports a defect and continues.
package strict

// Transitions makes a State check each transition of a node against the table, and panic at a transition that is not in it. The
// project's own tests set it before anything runs.
var Transitions bool
