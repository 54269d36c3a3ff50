// Package store defines the contract between runs and the stores that keep them, and has a store in memory.
//
// A [Store] keeps durable runs. Package kahn writes each change of a run as a [Commit] under the run's [Lease]. The next process loads the run as a
// [Run]. To write a store, implement the interface with the types of this package and the statuses of package machine, and test the store with
// package storetest. [Memory] is a store for tests, store/sqlite keeps runs in a file, and store/postgres keeps runs in a database that processes on
// several machines share.
//
// An [EventStore] also keeps the events of runs. One transaction stores a change of a run and the events that report this change. [ReadEvents] reads
// a page of events, and an [EventLog] follows the events of a run, whichever process performs the run.
//
// Values pass through a codec before they reach a store. [Blobs] and [Sealed] wrap a codec: Blobs moves large values to a [BlobStore], and Sealed
// encrypts values. The option kahn.Encoding sets the codec of a run:
//
//	kahn.Encoding(&store.Blobs{Codec: &store.Sealed{Codec: kahn.Types{}, Keys: keys, Current: "2026"}, Store: store.Dir("/var/lib/blobs")})
package store
