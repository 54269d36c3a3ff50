// Package strict lets kahn's own tests fail at a defect of the engine. In production, the engine only reports such a defect, and the run continues.
package strict

// If Transitions is set, a State checks each transition of a node, and panics if the table of transitions does not contain it. The project's own
// tests set Transitions before anything runs.
var Transitions bool
