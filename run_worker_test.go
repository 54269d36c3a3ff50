package kahn

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// freshStack is the number of bytes of a new goroutine's stack that a function may use: the runtime reserves 928 of the 2,048.
const freshStack = 2048 - 928

// TestWorkerFitsItsStack bounds the stack of a worker that performs plain nodes, from its first function to the end of the run. A worker is a new
// goroutine, and if its stack has to grow, a run of one node takes twice as long. One more variable in a function on that path, or a call that
// the compiler inlines there, is enough. If this test fails, move code that few runs need into a separate function, see attemptAndFinish.
func TestWorkerFitsItsStack(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); runtime.GOARCH != "amd64" || !ok || slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		t.Skip("the bound is that of frames on amd64, without the race detector")
	}
	for _, nodes := range []struct {
		name  string
		graph *Graph
	}{
		{"single", wide(0)},
		{"fan", wide(20)},
	} {
		t.Run(nodes.name, func(t *testing.T) {
			p, err := nodes.graph.Compile()
			require.NoError(t, err)
			used := stackOf(t, p, (*Run).work)
			more := stackOf(t, p, workWithMore)
			t.Logf("a worker uses %d bytes of stack, and %d with %d more in a frame", used, more, len(ballast{}))
			require.LessOrEqual(t, used, freshStack)
			require.Greater(t, more, freshStack, "the measure notices a frame that is larger")
		})
	}
}

// wide returns a graph of a node with n successors.
func wide(n int) *Graph {
	g := new(Graph).Add(Node{ID: "first"})
	for i := range n {
		g.Add(Node{ID: fmt.Sprint("n", i)}).Connect(Edge{From: "first", To: fmt.Sprint("n", i)})
	}
	return g
}

type ballast [256]byte

//go:noinline
func workWithMore(r *Run) {
	var b ballast
	r.work()
	runtime.KeepAlive(&b)
}

// stackOf returns the number of bytes of stack that the first worker of a run of the plan uses.
func stackOf(t *testing.T, p *Plan, work func(*Run)) int {
	nothing := func(context.Context, *Step) (any, error) { return nil, nil }
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a garbage collection would shrink stacks
	return spare(func() func() { return func() {} }) - spare(func() func() {
		h := &manual{wake: make(chan struct{}, 1)}
		r, _, err := p.run(context.Background(), nothing, []Option{optionFunc(func(c *config) error { c.manual = h; return nil })}, false, false)
		require.NoError(t, err)
		require.Equal(t, []*Run{r}, h.jobs)
		r.manual = nil // so far the run has not started its first worker; from now on it is like any other run
		return func() { work(r) }
	})
}

// spare returns the depth in a goroutine's stack, in bytes, at which a function can be called without growing the stack.
func spare(prepare func() func()) (bytes int) {
	for depth, tries := 0, 0; ; {
		f, below, moved := prepare(), 0, false
		done := make(chan struct{})
		go func() {
			defer close(done)
			widen()
			var top byte
			before := uintptr(unsafe.Pointer(&top))
			below = callBelow(depth, before, f)
			moved = uintptr(unsafe.Pointer(&top)) != before
		}()
		<-done
		switch {
		case !moved:
			depth, tries, bytes = depth+1, 0, below
		case tries < 3: // a worker may have found the lock taken
			tries++
		default:
			return bytes
		}
	}
}

// widen grows the stack of the goroutine beyond the needs of a worker.
//
//go:noinline
func widen() {
	var b [16 * len(ballast{})]byte
	runtime.KeepAlive(&b)
}

// callBelow calls itself depth times, then f. It returns the distance between the top of the stack and the call of f.
//
//go:noinline
func callBelow(depth int, top uintptr, f func()) int {
	if depth > 0 {
		return callBelow(depth-1, top, f)
	}
	var here byte
	f()
	return int(top - uintptr(unsafe.Pointer(&here)))
}
