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
	for name, shared := range map[string]any{"notRare": &notRare, "notMore": &notMore, "plainComposite": &plainComposite} {
		if v := reflect.ValueOf(shared).Elem(); !v.IsZero() {
			fmt.Printf("a run has written to %s: %+v\n", name, v)
			code = 1
		}
	}
	os.Exit(code)
}

// TestSizeOfRun: every nested run is one object of this size class of Go's allocator or a smaller one.
func TestSizeOfRun(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, unsafe.Sizeof(Run{}), uintptr(1024))
}
