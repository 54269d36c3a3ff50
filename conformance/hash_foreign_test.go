package conformance_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// hashing is a Config that calls a function when it is hashed.
type hashing struct{ does *func() }

func (h hashing) MarshalJSON() ([]byte, error) {
	(*h.does)()
	return []byte("1"), nil
}

// Hashing a plan calls user code. This code may call Goexit, or ask for the hash.
func TestHashCallsUserCode(t *testing.T) {
	t.Parallel()
	does := func() {}
	g := graph(kahn.Node{ID: "A"}, kahn.Node{ID: "B", Config: hashing{&does}})
	want, err := graph(kahn.Node{ID: "A"}, kahn.Node{ID: "B", Config: 1}).Compile()
	require.NoError(t, err)
	p, err := g.Compile()
	require.NoError(t, err)

	does = runtime.Goexit
	returned := make(chan bool)
	go func() {
		defer close(returned)
		p.Hash()
		returned <- true
	}()
	require.False(t, <-returned)

	asked := []string{}
	does = func() { asked = append(asked, p.Hash()) }
	within(t, func() { require.Equal(t, want.Hash(), p.Hash()) })
	require.Equal(t, []string{""}, asked)
	require.Equal(t, want.Hash(), p.Hash())
	require.Len(t, asked, 1) // the hash was computed once, and kept
}
