package notify

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWatchers(t *testing.T) {
	t.Parallel()
	var w Watchers
	var told []string
	note := func(who string) func(string) { return func(name string) { told = append(told, who+" "+name) } }
	stopA := w.Add("a", note("1"))
	stopAgain := w.Add("a", note("2"))
	stopAll := w.Add("", note("all"))
	require.Equal(t, 3, w.Len())
	w.Tell("a")
	w.Tell("b")
	require.Equal(t, []string{"1 a", "2 a", "all a", "all b"}, told)
	told = nil
	stopA()
	stopA()
	w.Tell("a")
	require.Equal(t, []string{"2 a", "all a"}, told)
	stopAgain()
	stopAll()
	require.Zero(t, w.Len())
	require.Empty(t, w.names)
}
