package postgrestest

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Calls counts the calls in a log of steps.
type Calls struct {
	Nodes    int // nodes that were called
	Calls    int
	Repeated int // nodes that were called more than once
	Twice    int // attempts that were called more than once
	// Landed counts late calls. A call is late if the step of a later node in the chain was called before this call. Then the node of the late call
	// had already completed. This happens if a process is stopped after it has recorded an attempt, and calls the step only when it continues.
	Landed int
}

// ReadCalls reads a log of calls from a file. Each line is a call: the id of the run, the number of the node in a chain, and the number of the
// attempt.
func ReadCalls(t testing.TB, file string) (l Calls) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	last, nodes, attempts := map[string]int{}, map[string]int{}, map[string]int{}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		require.Len(t, words, 3)
		node, err := strconv.Atoi(words[1])
		require.NoError(t, err)
		if node < last[words[0]] {
			l.Landed++
		}
		last[words[0]] = max(last[words[0]], node)
		l.Calls++
		if attempts[line]++; attempts[line] > 1 {
			l.Twice++
		}
		key := words[0] + " " + words[1]
		if nodes[key]++; nodes[key] == 2 {
			l.Repeated++
		}
	}
	l.Nodes = len(nodes)
	return l
}
