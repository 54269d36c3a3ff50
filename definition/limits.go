package definition

// Limits bound the size of a document. For a larger document the error matches [ErrLimit]. A field that is 0 has its
// default; a negative field means no limit. The limits apply to a document together with all its sub-graphs.
//
// Bytes and Values bound the memory: a document is kept as text, as a tree of about 120 bytes per value, and as the
// graph.
type Limits struct {
	// Bytes bounds the length of the text. Default: 1 MiB. Read reads at most Bytes and one byte more.
	Bytes int
	// Depth bounds how deep lists and objects may nest; a sub-graph takes four levels. Default: 100. The largest
	// value is 10,000; a larger or negative value means 10,000.
	Depth int
	// Values bounds the number of values; each item of a list and each member of an object is a value. The values that a YAML
	// alias stands for count each time the alias is used. Default: 100,000.
	Values int
	// Aliases bounds the number of aliases in a YAML document. Default: 100.
	Aliases int
	// Nodes bounds the number of nodes. Default: 10,000.
	Nodes int
	// Edges bounds the number of edges. Default: 50,000.
	Edges int
	// NameBytes bounds the length, in bytes, of ids and other names. Default: 256.
	NameBytes int
}

// maxDepth is the greatest depth that this package can handle.
const maxDepth = 10_000

// Resolved returns the limits with all defaults filled in. A negative limit becomes the largest int; for Depth it becomes 10,000. The readers of
// other formats call Resolved.
func (l Limits) Resolved() Limits {
	for _, f := range []struct {
		limit *int
		value int
	}{
		{&l.Bytes, 1 << 20}, {&l.Depth, 100}, {&l.Values, 100_000}, {&l.Aliases, 100}, {&l.Nodes, 10_000}, {&l.Edges, 50_000},
		{&l.NameBytes, 256},
	} {
		switch {
		case *f.limit == 0:
			*f.limit = f.value
		case *f.limit < 0:
			*f.limit = maxInt
		}
	}
	l.Depth = min(l.Depth, maxDepth)
	return l
}

const maxInt = int(^uint(0) >> 1)
