//go:build !unix

package postgres_test

// cluster is a server of its own, which this system does not get.
type cluster struct{}

func newCluster() (*cluster, error) { return nil, errNoServer }

func (*cluster) url(string) string { return "" }

func (*cluster) remove() error { return nil }
