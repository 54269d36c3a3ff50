//go:build !unix

package localserver

// Cluster is a separate server, which is not supported on this system.
type Cluster struct{}

// NewCluster returns [ErrNoServer].
func NewCluster(...string) (*Cluster, error) { return nil, ErrNoServer }

// URL returns "".
func (*Cluster) URL(string) string { return "" }

// Remove does nothing.
func (*Cluster) Remove() error { return nil }
