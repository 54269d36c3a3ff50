// Package owned shows the modules of this repository which owner of leases the options of runs name, see kahn.Lease.
package owned

// Of returns the owner that options name, which are a slice of kahn.Option; "" if they name none. Package kahn sets it.
var Of = func(options any) string { return "" }
