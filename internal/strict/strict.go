// Package strict makes kahn's own tests fail where a run in production only reports a defect and continues.
package strict

// If Transitions is set, a State checks each transition of a node, and panics if the table of transitions does not contain it. The project's own
// tests set Transitions before anything runs.
var Transitions bool
