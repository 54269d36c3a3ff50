// Package owned lets the modules of this repository find the owner of the lease in the options of a run. The option kahn.Lease sets this owner.
package owned

// Of returns the owner that the options set, or "" if they set none. The argument is a []kahn.Option. Package kahn assigns the function to this
// variable.
var Of = func(options any) string { return "" }
