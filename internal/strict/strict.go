// Package strict makes kahn's own tests fail if the engine has a defect. In production, the engine reports the defect, and the run continues.
package strict

// Transitions makes a State check each transition of a node, and panic if the table of transitions does not contain the transition. The project's own
// tests set Transitions before anything runs.
var Transitions bool
