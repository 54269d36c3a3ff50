package once

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// While the function of Do sleeps, two other goroutines call Do. They wait, and do not keep the clock from advancing.
func TestOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o Once
		var calls int
		var all sync.WaitGroup
		begin := time.Now()
		for range 3 {
			all.Go(func() {
				o.Do(func() {
					calls++
					time.Sleep(time.Second)
				})
				require.Equal(t, time.Second, time.Since(begin))
			})
		}
		all.Wait()
		o.Do(func() { calls++ })
		require.Equal(t, 1, calls)
	})
}

// A function that panics counts as called.
func TestOncePanics(t *testing.T) {
	t.Parallel()
	var o Once
	require.Panics(t, func() { o.Do(func() { panic("once") }) })
	o.Do(func() { t.Error("called again") })
}
