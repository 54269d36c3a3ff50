package notify

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// One goroutine looks for all watchers, and only while there are some. Each version of a name is passed on once, also to a watcher that comes later.
func TestPoller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		found, looks, rests, broken, same := []Sighting{{"a", 1}, {"b", 1}}, 0, 0, false, false
		p := Poller{Every: time.Second, Rest: func() { rests++ }, Look: func(_ context.Context, all bool) ([]Sighting, bool, error) {
			if looks++; broken {
				return nil, false, errors.New("broken")
			}
			return found, same && !all, nil
		}}
		var told []string
		watch := func(who, name string) func() {
			return p.Watch(name, func(name string) { told = append(told, who+" "+name) })
		}
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			require.Equal(t, want, told)
			told = nil
		}
		stop := watch("1", "a")
		expect("1 a")
		time.Sleep(10 * time.Second)
		expect()
		require.Equal(t, 11, looks)
		same, found = true, []Sighting{{"a", 2}}
		time.Sleep(time.Second)
		expect()
		all := watch("all", "") // this look is for all names
		expect("1 a", "all a")
		late := watch("2", "a")
		expect("1 a", "2 a", "all a") // who watches may be told without need
		broken = true
		p.Hurry()
		expect()
		broken = false
		time.Sleep(time.Second)
		expect()
		p.Tell("c")
		expect("all c")
		stop()
		stop()
		all()
		late()
		synctest.Wait()
		require.Equal(t, 1, rests)
		before := looks
		time.Sleep(time.Minute)
		require.Equal(t, before, looks)
		defer watch("3", "a")()
		expect("3 a")
		p.Close()
		p.Close()
		require.Equal(t, 2, rests)
		defer watch("4", "a")()
		time.Sleep(time.Minute)
		expect()
	})
}
