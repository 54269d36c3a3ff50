// Package strict makes tests fail where a run would only report a defect and continue.
package strict

// Transitions makes a State check each transition of a node against the table, and panic if it is not in the table. The project's own tests
// set it before anything runs.
var Transitions bool
