package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/machine"
)

// GrantStore is a [Store] through which processes share limits. Each process takes grants for the steps that it runs, and holds them under a lease.
// [Memory], store/sqlite and store/postgres implement it; other stores need not. kahn.Shared needs it.
type GrantStore interface {
	Store
	// Grant takes, keeps and gives back grants for a holder. One transaction does this for all the limits. The answers are in the order of the
	// requests. The lease of the holder's slots lasts for ttl, by the clock of the store; each further call renews it. When the lease has run out,
	// other holders may get the slots, but tokens that the holder took do not return to the bucket. [Grants.Ask] implements these rules. The error
	// matches [machine.ErrBadValue] if the requests make no sense, see [CheckGrants]. After any other error, either all changes were made, or none
	// was.
	Grant(ctx context.Context, holder string, ttl time.Duration, requests []GrantRequest) ([]Granted, error)
}

// GrantRequest asks for grants of one limit. All processes should give a limit the same Most, Every and Burst, since the store judges each request
// by the values in that request.
type GrantRequest struct {
	Limit string // the name of the limit, of 1 to MaxGrantName bytes
	Most  int    // how many slots all holders together may have; 0 means that the limit has no slots
	// Keep is how many of its slots the holder is using, and so does not give back. Want is how many slots it wants in all, Keep included. After the
	// call the holder has Keep to Want slots. It has fewer than Keep only if its lease ran out and other holders took the slots, or if Most was
	// lowered.
	Keep, Want int
	// A new token comes each time Every has passed, until the bucket holds Burst tokens. Every and Burst are 0 if the limit has no tokens.
	Every time.Duration
	Burst int
	// Tokens is how many tokens the holder wants to take, and Back is how many tokens it gives back.
	Tokens, Back int
	// Runs are the ids of runs that use the slots, perhaps not all of them. Other processes can display these ids.
	Runs []string
}

// Granted is the answer to a GrantRequest.
type Granted struct {
	Held int // the slots that the holder has now
	// Fair is the holder's share of the slots, given what the other holders want. A holder with more slots than Fair gives slots back when its steps
	// return.
	Fair   int
	Tokens int // how many tokens the holder got
	// Next is the time until the bucket has a token; 0 if it has one after this request.
	Next   time.Duration
	Others []GrantHolder // the other holders that hold or want slots, sorted by name
}

// GrantHolder is a holder of slots of a limit.
type GrantHolder struct {
	Holder string   `json:"holder"`
	Held   int      `json:"held"`
	Want   int      `json:"want"` // how many slots the holder wants in all, the held slots included
	Runs   []string `json:"runs,omitempty"`
}

// MaxGrantName is how many bytes the name of a limit or holder may have, and MaxGrants is how many limits one call may name.
const (
	MaxGrantName = 500
	MaxGrants    = 1000
)

const (
	// grantPatience is how long the Want of a request counts. If the holder asks for no slots for longer, it counts as wanting only the slots that
	// it has.
	grantPatience = 2 * time.Second
	// If there are fewer slots than holders, grantTurn is how long a holder may use its slots while other holders have none.
	grantTurn = time.Second
)

// CheckGrants returns an error that matches [machine.ErrBadValue] if a call of Grant makes no sense. It is for implementations of [GrantStore].
func CheckGrants(holder string, ttl time.Duration, requests []GrantRequest) error {
	err := checkGrantName("holder", holder)
	if err == nil && ttl <= 0 {
		err = fmt.Errorf("the lease, %v, must be longer than 0", ttl)
	}
	if err == nil && len(requests) > MaxGrants {
		err = fmt.Errorf("%d requests are more than the maximum, %d", len(requests), MaxGrants)
	}
	seen := make(map[string]bool, len(requests))
	for i := range requests {
		if err == nil {
			err = requests[i].check(seen)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: grants: %w", machine.ErrBadValue, err)
	}
	return nil
}

func checkGrantName(what, name string) error {
	if name == "" || len(name) > MaxGrantName || !utf8.ValidString(name) || strings.Contains(name, "\x00") {
		return fmt.Errorf("the %s %s is not a text of 1 to %d bytes", what, foreign.Quote(name), MaxGrantName)
	}
	return nil
}

func (r *GrantRequest) check(seen map[string]bool) error {
	if err := checkGrantName("limit", r.Limit); err != nil {
		return err
	}
	var wrong string
	switch {
	case seen[r.Limit]:
		wrong = "it is requested twice"
	case r.Most < 0 || r.Keep < 0 || r.Want < r.Keep || r.Most == 0 && r.Want > 0:
		wrong = fmt.Sprintf("Keep %d, Want %d and Most %d are not valid together", r.Keep, r.Want, r.Most)
	case r.Every < 0 || r.Burst < 0 || (r.Every == 0) != (r.Burst == 0), r.Every > 0 && int64(r.Burst) > math.MaxInt64/int64(r.Every):
		wrong = fmt.Sprintf("Every %v and Burst %d are not valid together", r.Every, r.Burst)
	case r.Tokens < 0 || r.Back < 0 || r.Tokens > r.Burst || r.Back > r.Burst:
		wrong = fmt.Sprintf("Tokens %d and Back %d must be 0 to Burst, %d", r.Tokens, r.Back, r.Burst)
	}
	for _, id := range r.Runs {
		if !utf8.ValidString(id) {
			wrong = "the id of a run is not UTF-8"
		}
	}
	seen[r.Limit] = true
	if wrong == "" {
		return nil
	}
	return fmt.Errorf("the limit %s: %s", foreign.Quote(r.Limit), wrong)
}

// Grants is the state of a limit as a store keeps it: its holders and its tokens. The zero value is a limit with a full bucket and without holders.
// Grants is for implementations of [GrantStore], which may store Grants as JSON.
type Grants struct {
	Holders []GrantLease `json:"holders,omitempty"` // sorted by name
	// Full is when the bucket of tokens will be full if no further token is taken.
	Full time.Time `json:"full,omitzero"`
}

// GrantLease is a holder of slots of a limit, with the times of its lease.
type GrantLease struct {
	GrantHolder
	Until time.Time `json:"until"` // when the lease runs out
	Asked time.Time `json:"asked"` // when the holder last asked
	Since time.Time `json:"since"` // since when the holder has had slots, or has had none
}

// Expires returns the time from which the limit has no holders and a full bucket. From then on a store need not keep the state.
func (g *Grants) Expires() time.Time {
	last := g.Full
	for i := range g.Holders {
		if at := g.Holders[i].Until; at.After(last) {
			last = at
		}
	}
	return last
}

// Ask answers a request that CheckGrants has accepted, and changes the state. The parameter "now" is the time by the clock of the store.
func (g *Grants) Ask(now time.Time, holder string, ttl time.Duration, r GrantRequest) Granted {
	g.Holders = slices.DeleteFunc(g.Holders, func(l GrantLease) bool { return !l.Until.After(now) })
	var a Granted
	a.Tokens, a.Next = g.takeTokens(now, &r)
	i, there := slices.BinarySearchFunc(g.Holders, holder, func(l GrantLease, name string) int { return strings.Compare(l.Holder, name) })
	if !there {
		g.Holders = slices.Insert(g.Holders, i, GrantLease{GrantHolder: GrantHolder{Holder: holder}, Since: now})
	}
	others := 0
	for j := range g.Holders {
		if j != i {
			others += g.Holders[j].Held
			a.Others = append(a.Others, g.Holders[j].GrantHolder)
		}
	}
	own := &g.Holders[i]
	own.Want, own.Runs, own.Asked, own.Until = r.Want, slices.Clone(r.Runs), now, now.Add(ttl)
	a.Fair = g.fair(now, r.Most, i)
	a.Held = max(0, min(r.Want, max(r.Keep, a.Fair), r.Most-others))
	if (own.Held > 0) != (a.Held > 0) {
		own.Since = now
	}
	if own.Held = a.Held; own.Want == 0 {
		g.Holders = slices.Delete(g.Holders, i, i+1)
	}
	return a
}

// takeTokens puts the returned tokens into the bucket, and then takes the wanted tokens, or as many as the bucket has.
func (g *Grants) takeTokens(now time.Time, r *GrantRequest) (taken int, next time.Duration) {
	if r.Burst == 0 {
		return 0, 0
	}
	size := int64(r.Every) * int64(r.Burst)
	missing := min(int64(max(g.Full.Sub(now), 0)), size) // the time until the bucket is full
	missing = max(missing-int64(r.Every)*int64(r.Back), 0)
	taken = int(min(int64(r.Tokens), (size-missing)/int64(r.Every)))
	missing += int64(taken) * int64(r.Every)
	g.Full = now.Add(time.Duration(missing))
	if left := size - missing; left < int64(r.Every) {
		next = time.Duration(int64(r.Every) - left)
	}
	return taken, next
}

// The method `fair` returns a holder's share of the slots. If there are enough slots for all holders, the share is what the holder wants. Otherwise
// holders that want few slots get what they want, and the other holders share the remaining slots evenly. If the slots do not divide evenly, each
// slot that is left over goes to a different holder, first to the holders that have the most slots now. If there are fewer slots than holders, the
// holders take turns.
func (g *Grants) fair(now time.Time, most, of int) int {
	wants, order := make([]int, len(g.Holders)), make([]int, len(g.Holders))
	for i := range g.Holders {
		l := &g.Holders[i]
		if wants[i], order[i] = l.Held, i; now.Sub(l.Asked) < grantPatience {
			wants[i] = max(l.Want, l.Held)
		}
		if i == of {
			wants[i] = l.Want
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wants[a], wants[b]) })
	left, level := most, 0
	for k, i := range order {
		level = left / (len(order) - k)
		if wants[i] > level {
			left -= level * (len(order) - k)
			order = order[k:]
			break
		}
		left -= wants[i]
		if k == len(order)-1 {
			return wants[of] // there are enough slots for all holders
		}
	}
	if wants[of] <= level {
		return wants[of]
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &g.Holders[a], &g.Holders[b]
		if level > 0 {
			return cmp.Or(cmp.Compare(y.Held, x.Held), x.Since.Compare(y.Since), cmp.Compare(a, b))
		}
		rank := cmp.Compare(x.rank(now), y.rank(now))
		if x.rank(now) == turnOver {
			return cmp.Or(rank, y.Since.Compare(x.Since), cmp.Compare(a, b))
		}
		return cmp.Or(rank, x.Since.Compare(y.Since), cmp.Compare(a, b))
	})
	if slices.Index(order, of) < left {
		return level + 1
	}
	return level
}

const (
	inTurn   = iota // the holder has slots, and its turn is not over
	waits           // the holder has no slots
	turnOver        // the holder has had slots for longer than a turn
)

func (l *GrantLease) rank(now time.Time) int {
	switch {
	case l.Held == 0:
		return waits
	case now.Sub(l.Since) < grantTurn:
		return inTurn
	}
	return turnOver
}
