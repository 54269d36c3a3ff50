// Package store has the contract between runs and the stores that keep them, and a store in memory.
//
// A [Store] keeps durable runs: package kahn writes each change of a run as a [Commit], under the [Lease] of the run, and reads the
// run back as a [Run] in the next process. Who writes a store implements the interface, imports this package and package
// machine for the statuses, and tests the store with package storetest. [Memory] is a store for tests, store/sqlite one in a file, and
// store/postgres one in a database that processes on several machines share.
//
// An [EventStore] keeps the events of runs, too, each with the fact that it tells: [ReadEvents] reads a page of them, and an [EventLog] follows
// a run that any process performs.
//
// Values pass through a codec before they come into a store. [Blobs] and [Sealed] are codecs around a codec, for the option
// kahn.Encoding: the first keeps large values apart, the second encrypts.
//
//	kahn.Encoding(&store.Blobs{Codec: &store.Sealed{Codec: kahn.Types{}, Keys: keys, Current: "2026"}, Store: store.Dir("/var/lib/blobs")})
package store
