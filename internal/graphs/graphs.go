// Package graphs generates graphs of a given shape for tests and benchmarks.
package graphs

import (
	"fmt"
	"iter"
)

// Layered yields the nodes of a graph with layers. For each node it yields the id of the node and the ids of the node's predecessors. The
// predecessors are three nodes of the preceding layer. Nodes of the first layer have no predecessors. Node i of a layer has the id "n<layer>.<i>".
func Layered(layers, width int) iter.Seq2[string, []string] {
	return func(yield func(id string, after []string) bool) {
		for layer := range layers {
			for i := range width {
				var after []string
				for j := range 3 {
					if layer > 0 {
						after = append(after, fmt.Sprintf("n%d.%d", layer-1, (i+j)%width))
					}
				}
				if !yield(fmt.Sprintf("n%d.%d", layer, i), after) {
					return
				}
			}
		}
	}
}
