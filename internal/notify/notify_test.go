package notify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestBoard(t *testing.T) {
	t.Parallel()
	var b Board
	b.Notify("a") // no goroutine waits
	first, stopFirst := b.Wait("a")
	second, stopSecond := b.Wait("a")
	other, stopOther := b.Wait("b")
	require.False(t, closed(first))
	stopFirst()
	stopFirst()
	b.Notify("a")
	require.True(t, closed(second))
	require.False(t, closed(other))
	third, stopThird := b.Wait("a")
	stopSecond() // this wait was already notified; stopping it must not affect later waits
	require.False(t, closed(third))
	b.Notify("a")
	require.True(t, closed(third))
	stopThird()
	stopOther()
	require.Empty(t, b.names)
}
