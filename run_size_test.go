package kahn

import (
	"fmt"
	"os"
	"reflect"
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
