package notify

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// One goroutine polls for all watchers, and only while there are watchers. Each version of a name is reported once, also to a later watcher.
func TestPoller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the variables that the poller's goroutine also uses
		found, looks, rests, broken, same := []Sighting{{"a", 1}, {"b", 1}}, 0, 0, false, false
		var told []string
		var asked []Question // the Question of each call of Look
		set := func(change func()) {
			mu.Lock()
			defer mu.Unlock()
			change()
		}
		p := Poller{Every: time.Second, Rest: func() { set(func() { rests++ }) }, Look: func(_ context.Context, question Question) ([]Sighting, bool, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, question)
			if looks++; broken {
				return nil, false, errors.New("broken")
			}
			return found, same && !question.All && len(question.Names) == 0, nil
		}}
		watch := func(who, name string) func() {
			return p.Watch(name, func(name string) { set(func() { told = append(told, who+" "+name) }) })
		}
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			set(func() {
				require.Equal(t, want, told)
				told = nil
			})
		}
		count := func(want int, of *int) {
			t.Helper()
			set(func() { require.Equal(t, want, *of) })
		}
		stop := watch("1", "a")
		expect("1 a")
		time.Sleep(10 * time.Second)
		expect()
		count(11, &looks)
		set(func() { same, found = true, []Sighting{{"a", 2}} })
		time.Sleep(time.Second)
		expect()
		all := watch("all", "") // a watcher of all names makes the next Question ask for all names
		expect("1 a", "all a")
		late := watch("2", "a")
		expect("1 a", "2 a", "all a") // a watcher may also be called although its name has no new version
		set(func() {
			last := len(asked) - 1
			require.Equal(t, []Question{{}, {All: true}, {Names: []string{"a"}}}, asked[last-2:], "a watcher of a name does not need a look for all")
		})
		set(func() { broken = true })
		p.Hurry()
		expect()
		set(func() { broken = false })
		time.Sleep(time.Second)
		expect()
		set(func() {
			require.Equal(t, []Question{{All: true}, {All: true}}, asked[len(asked)-2:], "after an error all names are asked for")
		})
		p.Tell("c")
		expect("all c")
		stop()
		stop()
		all()
		late()
		synctest.Wait()
		count(1, &rests)
		before := 0
		set(func() { before = looks })
		time.Sleep(time.Minute)
		count(before, &looks)
		defer watch("3", "a")()
		expect("3 a")
		p.Close()
		p.Close()
		count(2, &rests)
		defer watch("4", "a")()
		time.Sleep(time.Minute)
		expect()
	})
}
