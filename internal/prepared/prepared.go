// Package prepared lets package typed prepare one option for all runs of a pipeline.
package prepared

// Source has the types of the values of a pipeline. Types returns the same map each time.
type Source interface{ Types() map[string]any }

// Types returns a kahn.Option that has the effect of kahn.Types with the map of the source. The codec of a run calls the method Types when the codec
// first needs a type. If a run has no other option, the option costs the run nothing. Package kahn assigns the function to this variable.
var Types func(Source) any
