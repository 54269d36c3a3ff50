package store

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// grantWorld calls Grants.Ask with its own clock.
type grantWorld struct {
	Grants
	now time.Time
}

func (w *grantWorld) ask(holder string, most, keep, want int) Granted {
	return w.Ask(w.now, holder, time.Minute, GrantRequest{Limit: "x", Most: most, Keep: keep, Want: want})
}

// TestGrantsTakeTurns: if there are fewer slots than holders, a free slot goes to the holder that has waited longest.
func TestGrantsTakeTurns(t *testing.T) {
	w := &grantWorld{now: time.UnixMilli(0)}
	names, has := []string{"a", "b", "c", "d", "e"}, map[string]int{}
	var order []string
	for range 2000 { // every 10 ms all holders ask, and each gives back the slots above its Fair share
		for _, name := range names {
			a := w.ask(name, 2, min(has[name], 1), 3)
			if a.Held > a.Fair {
				a = w.ask(name, 2, a.Fair, 3)
			}
			if a.Held > has[name] {
				order = append(order, name)
			}
			has[name] = a.Held
		}
		w.now = w.now.Add(10 * time.Millisecond)
	}
	counts := map[string]int{}
	for i, name := range order {
		counts[name]++
		if i >= len(names) {
			require.Equal(t, order[i-len(names)], name, "turn %d of %q", i, order)
		}
	}
	require.Len(t, counts, len(names))
	require.Greater(t, counts["a"], 4)
}

// TestGrantsNeverExceed asks for random numbers of slots and lets leases run out. All leases together never exceed the limit. A holder gets all
// the slots that it wants if no other holder wants them. The state survives a JSON round trip.
func TestGrantsNeverExceed(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		most, w := 1+rnd.IntN(9), &grantWorld{now: time.UnixMicro(rnd.Int64N(1e15))}
		for range 200 {
			w.now = w.now.Add(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			name, keep := fmt.Sprint("h", rnd.IntN(5)), 0
			for _, l := range w.Holders {
				if l.Holder == name {
					keep = rnd.IntN(l.Held + 1)
				}
			}
			r := GrantRequest{Limit: "x", Most: most, Keep: keep, Want: keep + rnd.IntN(6)}
			a := w.Ask(w.now, name, time.Duration(1+rnd.IntN(3000))*time.Millisecond, r)
			total, others := 0, 0
			for _, l := range w.Holders {
				if total += l.Held; l.Holder != name {
					others += max(l.Held, l.Want)
				}
			}
			require.LessOrEqual(t, total, most, "seed %d", seed)
			require.LessOrEqual(t, a.Held, r.Want)
			require.LessOrEqual(t, a.Fair, r.Want)
			if others+r.Want <= most {
				require.Equal(t, r.Want, a.Held, "seed %d: nobody else wants them", seed)
			}
			data, err := json.Marshal(&w.Grants)
			require.NoError(t, err)
			var stored Grants
			require.NoError(t, json.Unmarshal(data, &stored))
			again, err := json.Marshal(&stored)
			require.NoError(t, err)
			require.Equal(t, string(data), string(again))
			w.Grants = stored
		}
	}
}

// TestGrantTokensAreExact: holders never get more tokens than Burst and the rate allow, and a token is available at exactly the time that Next
// announces.
func TestGrantTokensAreExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 1))
	for range 60 {
		r := GrantRequest{Limit: "x", Every: time.Duration(1 + rnd.IntN(1000)), Burst: 1 + rnd.IntN(5)}
		begun := time.Unix(1e9, 0)
		w, taken := &grantWorld{now: begun}, 0
		for range 100 {
			r.Tokens = rnd.IntN(r.Burst + 1)
			a := w.Ask(w.now, "a", time.Minute, r)
			taken += a.Tokens
			require.LessOrEqual(t, taken, r.Burst+int(w.now.Sub(begun)/r.Every))
			if a.Tokens < r.Tokens {
				require.Greater(t, a.Next, time.Duration(0))
				require.LessOrEqual(t, a.Next, r.Every)
				w.now = w.now.Add(a.Next - 1)
				r.Tokens = 1
				require.Zero(t, w.Ask(w.now, "a", time.Minute, r).Tokens, "a nanosecond early")
				w.now = w.now.Add(1)
				require.Equal(t, 1, w.Ask(w.now, "a", time.Minute, r).Tokens)
				taken++
			}
			w.now = w.now.Add(time.Duration(rnd.IntN(3000)))
		}
		w.now = w.now.Add(time.Duration(r.Burst) * r.Every)
		require.False(t, w.Expires().After(w.now), "the bucket is full: nothing has to be kept")
	}
}
