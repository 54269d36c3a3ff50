package kahn

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestMain runs the tests. Afterwards it checks that none of them has written to the values that many runs and nodes share.
func TestMain(m *testing.M) {
	code := m.Run()
	for name, shared := range map[string]any{"notRare": &notRare, "notMore": &notMore, "plainComposite": &plainComposite, "plainPlan": &plainPlan} {
		if v := reflect.ValueOf(shared).Elem(); !v.IsZero() {
			fmt.Printf("a run has written to %s: %+v\n", name, v)
			code = 1
		}
	}
	os.Exit(code)
}

// TestSizes: a finished item of a map keeps a nested run, and a finished expansion also keeps a plan. Both are objects of this size class of Go's
// allocator, which needs 8 bytes of each object.
func TestSizes(t *testing.T) {
	t.Parallel()
	const class = 768
	require.LessOrEqual(t, unsafe.Sizeof(nestedRun{}), uintptr(class-8), "a nested run")
	require.LessOrEqual(t, unsafe.Sizeof(planBlock{}), uintptr(class-8), "a plan")
}

// TestLateWorkers: a tree holds back the workers of runs that begin together, and still performs all these runs at the same time. Each step returns
// only after all of them have begun.
func TestLateWorkers(t *testing.T) {
	t.Parallel()
	const n = 10 * maxStarting
	inside := new(Graph).Add(Node{ID: "x"})
	g := new(Graph).Add(Node{ID: "M", Sub: inside, Map: &Map{Over: "list"}, Params: map[string]any{"list": make([]int, n/2)}})
	for i := range n / 2 {
		g.Add(Node{ID: fmt.Sprint("e", i)})
	}
	p, err := g.Compile()
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Add(n)
	run, err := p.Start(t.Context(), func(_ context.Context, s *Step) (any, error) {
		if s.ID() != "x" {
			return nil, Expand(inside, nil, nil)
		}
		all.Done()
		all.Wait()
		return nil, nil
	})
	require.NoError(t, err)
	res, err := run.Wait()
	require.NoError(t, err)
	require.Equal(t, n/2+1, res.Count(Completed))
	run.st.Lock()
	defer run.st.Unlock()
	require.Zero(t, run.tree.starting)
	require.Empty(t, run.tree.late)
}
