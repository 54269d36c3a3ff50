// Package owned lets the modules of this repository find the lease owner in the options of a run, see kahn.Lease.
package owned

// Of returns the owner that the options name, or "". options is a []kahn.Option. Package kahn sets Of.
var Of = func(options any) string { return "" }
