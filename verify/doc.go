// Package verify checks kahn against a second, independent model of the execution semantics, which was written without
// reading kahn's own implementation. The package contains only tests.
//
// The model (model_test.go, model_side_test.go, model_status_test.go) is simple on purpose. It has no notion of time, concurrency or early
// decisions: it visits the nodes of a small graph in topological order and computes how every node ends. This is enough, since final statuses
// must not depend on timing. kahn then runs random graphs in fake time, in both modes and under several limits, and the tests compare the whole
// Result. A second, smaller model (timing_test.go) computes when each node must start.
//
// In addition to random graphs, the tests cover all small graphs (smallscope_test.go, smalldrive_test.go): every graph of three nodes with
// every kind of edge, join rule, skip mode, upstream policy and outcome, and every order in which its nodes can end. These tests drive a State
// directly, which takes about a microsecond per case. By default they try a sample of the cases; if KAHN_LONG is set, they try all cases.
//
// Graphs are written and printed in the notation of the conformance matrix, with additional features that the matrix does not need: see
// notation_test.go. A graph that once failed is kept in testdata/graphs.txt and checked like the rows of the matrix.
package verify
