// Package store defines the contract between runs and the stores that keep them, and has a store in memory.
//
// A [Store] keeps durable runs: package kahn writes each change of a run as a [Commit], under the [Lease] of the run, and reads the run back as a
// [Run] in the next process. To write a store, implement the interface, import this package and package machine for the statuses, and test the
// store with package storetest. [Memory] is a store for tests, store/sqlite keeps runs in a file, and store/postgres in a database that processes
// on several machines share.
//
// An [EventStore] keeps the events of runs, too. It stores each event in the transaction that stores the change that the event reports.
// [ReadEvents] reads a page of events, and an [EventLog] follows a run that any process performs.
//
// Values pass through a codec before they reach a store. [Blobs] and [Sealed] wrap a codec, for the option kahn.Encoding: Blobs moves large values
// to a [BlobStore], and Sealed encrypts values.
//
//	kahn.Encoding(&store.Blobs{Codec: &store.Sealed{Codec: kahn.Types{}, Keys: keys, Current: "2026"}, Store: store.Dir("/var/lib/blobs")})
package store
