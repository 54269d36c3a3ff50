// Package owned lets the modules of this repository find the lease owner in the options of runs, see kahn.Lease.
package owned

// Of returns the owner that options name, or "" if they name none. options is a []kahn.Option. Package kahn sets Of.
var Of = func(options any) string { return "" }
