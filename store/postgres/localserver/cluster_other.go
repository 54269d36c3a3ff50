//go:build !unix

package localserver

// Cluster is a server of its own, which this system does not get.
type Cluster struct{}

// NewCluster returns [ErrNoServer].
func NewCluster(...string) (*Cluster, error) { return nil, ErrNoServer }

// URL returns "".
func (*Cluster) URL(string) string { return "" }

// Remove does nothing.
func (*Cluster) Remove() error { return nil }
