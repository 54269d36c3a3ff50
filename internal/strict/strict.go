// Package strict makes tests fail where a run goes on and reports a defect.
package strict

// Transitions makes a State check each transition of a node against the table, and panic at one that is not in it. The project's own
// tests set it before anything runs.
var Transitions bool
