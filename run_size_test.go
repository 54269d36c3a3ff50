package kahn

import (
	"fmt"
	"os"
	"reflect"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestMain runs the tests. Afterwards it checks that none of them has written to notRare, which all runs share.
func TestMain(m *testing.M) {
	code := m.Run()
	if !reflect.ValueOf(&notRare).Elem().IsZero() {
		fmt.Printf("a run has written to notRare: %+v\n", notRare)
		code = 1
	}
	os.Exit(code)
}

// TestSizeOfRun: every run, also a nested one, is one object of this size class of Go's allocator or a smaller one.
func TestSizeOfRun(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, unsafe.Sizeof(Run{}), uintptr(1024))
}
