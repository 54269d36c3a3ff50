package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunGrants tests what [store.GrantStore] promises beyond [store.Store]. Like [Run] it runs each check as a subtest.
func RunGrants(t *testing.T, open func(t *testing.T) store.GrantStore) {
	runAll(t, grantChecks, open)
}

// CheckGrants checks what [store.GrantStore] promises beyond [store.Store], and returns the failures as [Check] does.
func CheckGrants(ctx context.Context, open func() store.GrantStore) []error {
	return findAll(ctx, grantChecks, open)
}

var grantChecks = []check[store.GrantStore]{
	{"grants are taken, kept and given back", grantsTaken},
	{"grants last as long as their lease", grantsLast},
	{"a holder is renewed", grantsRenewed},
	{"what others want is known", grantsWanted},
	{"who holds grants is named", grantsNamed},
	{"limits and holders are kept apart", grantsApart},
	{"many limits in one call", grantsMany},
	{"tokens are taken and come back", grantTokens},
	{"of competing holders as many get grants as there are", grantsCompete},
	{"of competing holders as many get tokens as there are", tokensCompete},
	{"requests for grants that make no sense", grantsRefused},
	{"grants under a cancelled context", grantsContext},
}

// The function `ask` makes a request for one limit.
func ask(ctx context.Context, s store.GrantStore, holder string, d time.Duration, r store.GrantRequest) (store.Granted, error) {
	answers, err := s.Grant(ctx, holder, d, []store.GrantRequest{r})
	if err == nil && len(answers) != 1 {
		err = fmt.Errorf("%d answers to one request", len(answers))
	}
	if err != nil {
		return store.Granted{}, fmt.Errorf("grants of %q for %q: %w", r.Limit, holder, err)
	}
	return answers[0], nil
}

// The function `slots` returns a request for slots of a limit of four.
func slots(keep, want int) store.GrantRequest {
	return store.GrantRequest{Limit: "limit", Most: 4, Keep: keep, Want: want}
}

// The function `held` makes a request, and returns an error unless the holder then has "want" slots.
func held(ctx context.Context, s store.GrantStore, what, holder string, d time.Duration, r store.GrantRequest, want int) error {
	a, err := ask(ctx, s, holder, d, r)
	return errors.Join(err, same(what+": the slots of "+holder, a.Held, want))
}

// grantsTaken: all holders together never have more slots than the limit, and a slot that one holder gives back is free for another holder.
func grantsTaken(ctx context.Context, s store.GrantStore) error {
	for _, step := range []struct {
		what, holder string
		store.GrantRequest
		want int
	}{
		{"three of four are taken", "a", slots(0, 3), 3},
		{"one is left", "b", slots(0, 1), 1},
		{"none is left", "c", slots(0, 1), 0},
		{"asked again", "a", slots(3, 3), 3},
		{"two are given back", "a", slots(1, 1), 1},
		{"somebody else takes them", "c", slots(0, 2), 2},
		{"all are given back", "b", slots(0, 0), 0},
		{"they are free", "a", slots(1, 2), 2},
		{"the limit has become less", "d", store.GrantRequest{Limit: "limit", Most: 3, Want: 1}, 0},
		{"who has them keeps what is left", "a", store.GrantRequest{Limit: "limit", Most: 3, Keep: 2, Want: 2}, 1},
		{"the last ones", "c", slots(0, 0), 0},
		{"the last ones", "d", slots(0, 0), 0},
		{"the last ones", "a", slots(0, 0), 0},
		{"as at the beginning", "e", slots(0, 9), 4},
	} {
		if err := held(ctx, s, step.what, step.holder, ttl, step.GrantRequest, step.want); err != nil {
			return err
		}
	}
	return nil
}

// grantsLast: if a holder does not ask again before its lease expires, other holders can take its slots. If it asks again later, it gets only free
// slots.
func grantsLast(ctx context.Context, s store.GrantStore) error {
	if err := errors.Join(held(ctx, s, "at first", "dies", ttl, slots(0, 3), 3), held(ctx, s, "at first", "lives", ttl, slots(0, 1), 1), held(ctx, s, "while the leases last", "heir", ttl, slots(0, 3), 0),
		held(ctx, s, "for the last time", "dies", short, slots(3, 3), 3)); err != nil {
		return err
	}
	time.Sleep(short + 20*time.Millisecond)
	return errors.Join(held(ctx, s, "after the lease", "heir", ttl, slots(0, 2), 2), held(ctx, s, "whose lease has run out", "dies", ttl, slots(3, 3), 1), held(ctx, s, "whose lease lasts", "lives", ttl, slots(1, 1), 1))
}

// grantsRenewed: a holder that asks again before its lease expires keeps its slots.
func grantsRenewed(ctx context.Context, s store.GrantStore) error {
	if err := held(ctx, s, "at first", "a", short, slots(0, 4), 4); err != nil {
		return err
	}
	if err := held(ctx, s, "renewed", "a", ttl, slots(4, 4), 4); err != nil {
		return err
	}
	time.Sleep(short + 20*time.Millisecond)
	return held(ctx, s, "while the second lease lasts", "b", ttl, slots(0, 4), 0)
}

// grantsWanted: a holder with many slots learns from Granted.Fair that another holder wants slots. The other holder gets slots when the first
// holder gives slots back.
func grantsWanted(ctx context.Context, s store.GrantStore) (err error) {
	// If partsOf fails after a second or more, it is repeated with another limit: the store may no longer count what a holder wanted a second ago.
	for i := range 10 {
		begun := time.Now()
		if err = partsOf(ctx, s, fmt.Sprint("limit ", i)); err == nil || time.Since(begun) < time.Second {
			break
		}
	}
	return err
}

func partsOf(ctx context.Context, s store.GrantStore, limit string) error {
	for _, step := range []struct {
		what, holder string
		keep, want   int
		held, fair   int
	}{
		{"nobody else is there", "a", 0, 9, 4, 4},
		{"all are taken", "b", 0, 9, 0, 2},
		{"another one waits", "a", 4, 9, 4, 2},
		{"the part of the other one is given back", "a", 2, 9, 2, 2},
		{"it is there", "b", 0, 9, 2, 2},
		{"nobody else wants so many", "b", 1, 1, 1, 1},
		{"what another one leaves", "a", 2, 9, 3, 3},
	} {
		got, err := ask(ctx, s, step.holder, ttl, store.GrantRequest{Limit: limit, Most: 4, Keep: step.keep, Want: step.want})
		if err := errors.Join(err, same(step.what+": the slots of "+step.holder+", and its part", [2]int{got.Held, got.Fair}, [2]int{step.held, step.fair})); err != nil {
			return err
		}
	}
	return nil
}

// grantsNamed: an answer lists the other holders, each with the slots that it has, the slots that it wants, and its runs.
func grantsNamed(ctx context.Context, s store.GrantStore) error {
	first, second := slots(0, 3), slots(0, 2)
	first.Runs, second.Runs = []string{"run-7", "rún 'x' \x01"}, nil
	if _, err := ask(ctx, s, "host/1", ttl, first); err != nil {
		return err
	}
	if _, err := ask(ctx, s, "a host", ttl, second); err != nil {
		return err
	}
	got, err := ask(ctx, s, "me", ttl, slots(0, 1))
	if err != nil {
		return err
	}
	if err := same("the others", got.Others, []store.GrantHolder{{Holder: "a host", Held: 1, Want: 2}, {Holder: "host/1", Held: 3, Want: 3, Runs: first.Runs}}); err != nil {
		return err
	}
	if _, err := ask(ctx, s, "host/1", ttl, slots(0, 0)); err != nil {
		return err
	}
	got, err = ask(ctx, s, "me", ttl, slots(0, 1))
	return errors.Join(err, same("the others, without who has given all back", got.Others, []store.GrantHolder{{Holder: "a host", Held: 1, Want: 2}}))
}

// grantsApart: names that differ only a little are different names.
func grantsApart(ctx context.Context, s store.GrantStore) error {
	names := []string{"limit", "Limit", "limit ", "límit", "lími\u0301t", "'", "%", "_", `\`, strings.Repeat("l", store.MaxGrantName), strings.Repeat("l", store.MaxGrantName-1)}
	for i, name := range names {
		if err := held(ctx, s, "of another limit", fmt.Sprint("holder ", i), ttl, store.GrantRequest{Limit: name, Most: 1, Want: 1}, 1); err != nil {
			return err
		}
	}
	for i, name := range names {
		want := min(1, max(0, 3-i)) // the limit has three slots
		if err := held(ctx, s, "of another holder", name, ttl, store.GrantRequest{Limit: "holders", Most: 3, Want: 1}, want); err != nil {
			return err
		}
	}
	return nil
}

// grantsMany: the answers of a call are in the order of its requests.
func grantsMany(ctx context.Context, s store.GrantStore) error {
	var list []store.GrantRequest
	for i := range 300 {
		r := store.GrantRequest{Limit: fmt.Sprint("limit ", (i*7)%300), Most: 1 + i, Want: 1 + i}
		if i%3 == 0 {
			r.Every, r.Burst, r.Tokens = time.Hour, 2+i, 1+i
		}
		list = append(list, r)
	}
	answers, err := s.Grant(ctx, "a", ttl, list)
	if err := errors.Join(err, same("the answers", len(answers), len(list))); err != nil {
		return err
	}
	for i := range list {
		if answers[i].Held != list[i].Want || answers[i].Tokens != list[i].Tokens {
			return fmt.Errorf("the answer %d of %d: %+v to %+v", i, len(list), answers[i], list[i])
		}
		list[i].Tokens = min(list[i].Burst, 2)
	}
	answers, err = s.Grant(ctx, "b", ttl, list)
	if err := errors.Join(err, same("the answers to another holder", len(answers), len(list))); err != nil {
		return err
	}
	for i := range list {
		if answers[i].Held != 0 || answers[i].Tokens != min(list[i].Burst, 1) || len(answers[i].Others) != 1 {
			return fmt.Errorf("the answer %d of %d to another holder: %+v to %+v", i, len(list), answers[i], list[i])
		}
	}
	none, err := s.Grant(ctx, "a", ttl, nil)
	return errors.Join(err, same("the answers to nothing", len(none), 0))
}

// grantTokens: a taken token comes back when Every has passed or when a holder gives it back, but not when a lease expires.
func grantTokens(ctx context.Context, s store.GrantStore) error {
	r := store.GrantRequest{Limit: "rate", Every: time.Hour, Burst: 3, Tokens: 2}
	a, err := ask(ctx, s, "a", short, r)
	if err := errors.Join(err, same("the tokens at first", a.Tokens, 2), same("the time until there is one", a.Next, 0)); err != nil {
		return err
	}
	b, err := ask(ctx, s, "b", ttl, r)
	if err := errors.Join(err, same("the tokens that are left", b.Tokens, 1)); err != nil {
		return err
	}
	if b.Next < 59*time.Minute || b.Next > time.Hour {
		return fmt.Errorf("the next token comes in an hour, not in %v", b.Next)
	}
	time.Sleep(short + 20*time.Millisecond) // the lease of a expires, but the tokens that a took do not come back
	r.Back, r.Tokens = 1, 0
	if _, err = ask(ctx, s, "b", ttl, r); err != nil {
		return err
	}
	r.Back, r.Tokens = 0, 3
	a, err = ask(ctx, s, "a", ttl, r)
	if err := errors.Join(err, same("the token that was given back", a.Tokens, 1)); err != nil {
		return err
	}
	soon := store.GrantRequest{Limit: "soon", Every: short, Burst: 2, Tokens: 2}
	a, err = ask(ctx, s, "a", ttl, soon)
	if err := errors.Join(err, same("the tokens of another rate", a.Tokens, 2)); err != nil {
		return err
	}
	time.Sleep(a.Next + 20*time.Millisecond)
	if a, err = ask(ctx, s, "a", ttl, soon); err == nil && a.Tokens < 1 {
		err = fmt.Errorf("%d tokens after the time in which one comes", a.Tokens)
	}
	return err
}

// grantsCompete: concurrent calls together get all slots of a limit, and no more.
func grantsCompete(ctx context.Context, s store.GrantStore) error {
	for round := range 12 {
		r := store.GrantRequest{Limit: fmt.Sprint("limit ", round), Most: 1 + round%5, Want: 1 + round%2}
		answers := compete(func(i int) part {
			a, err := ask(ctx, s, fmt.Sprint("holder ", i), ttl, r)
			return part{a.Held, err}
		})
		if total, err := sum(answers); err != nil || total != r.Most {
			return errors.Join(fmt.Errorf("%d slots of %d were granted to holders who want %d each", total, r.Most, r.Want), err)
		}
	}
	return nil
}

// tokensCompete: concurrent calls together get all tokens of a rate, and no more.
func tokensCompete(ctx context.Context, s store.GrantStore) error {
	for round := range 12 {
		r := store.GrantRequest{Limit: fmt.Sprint("rate ", round), Every: time.Hour, Burst: 2 + round%5, Tokens: 1 + round%2}
		answers := compete(func(i int) part {
			a, err := ask(ctx, s, fmt.Sprint("holder ", i), ttl, r)
			return part{a.Tokens, err}
		})
		if total, err := sum(answers); err != nil || total != r.Burst {
			return errors.Join(fmt.Errorf("%d tokens of %d were taken by holders who want %d each", total, r.Burst, r.Tokens), err)
		}
	}
	return nil
}

// part is how many slots or tokens one of the competing holders got.
type part struct {
	n   int
	err error
}

func sum(parts []part) (total int, err error) {
	for _, p := range parts {
		total, err = total+p.n, errors.Join(err, p.err)
	}
	return total, err
}

// grantsRefused: if a call or one of its requests is invalid, the call changes nothing.
func grantsRefused(ctx context.Context, s store.GrantStore) error {
	good := slots(0, 4)
	for _, bad := range []store.GrantRequest{
		{Most: 1, Want: 1}, {Limit: strings.Repeat("l", store.MaxGrantName+1), Most: 1, Want: 1}, {Limit: "\xff", Most: 1, Want: 1}, {Limit: "a\x00", Most: 1, Want: 1},
		{Limit: "x", Most: -1}, {Limit: "x", Most: 1, Want: -1}, {Limit: "x", Most: 2, Keep: 2, Want: 1}, {Limit: "x", Want: 1}, {Limit: "x", Most: 2, Keep: -1, Want: 1},
		{Limit: "x", Every: time.Second}, {Limit: "x", Burst: 1}, {Limit: "x", Tokens: 1}, {Limit: "x", Every: time.Hour, Burst: 1 << 60}, {Limit: "x", Every: time.Hour, Burst: 1, Tokens: 2},
		{Limit: "x", Every: time.Hour, Burst: 1, Back: -1}, {Limit: "x", Most: 1, Runs: []string{"\xff"}}, good,
	} {
		_, err := s.Grant(ctx, "a", ttl, []store.GrantRequest{good, bad})
		if err := expectError(fmt.Sprintf("the request %+v", bad), err, machine.ErrBadValue); err != nil {
			return err
		}
	}
	for _, holder := range []string{"", "\xff", "a\x00", strings.Repeat("h", store.MaxGrantName+1)} {
		_, err := ask(ctx, s, holder, ttl, good)
		if err := expectError(fmt.Sprintf("the holder %.20q", holder), err, machine.ErrBadValue); err != nil {
			return err
		}
	}
	for _, d := range []time.Duration{0, -time.Second} {
		_, err := ask(ctx, s, "a", d, good)
		if err := expectError(fmt.Sprintf("a lease of %v", d), err, machine.ErrBadValue); err != nil {
			return err
		}
	}
	_, err := s.Grant(ctx, "a", ttl, make([]store.GrantRequest, store.MaxGrants+1))
	return errors.Join(expectError("too many requests", err, machine.ErrBadValue), held(ctx, s, "what was refused has taken nothing", "b", ttl, good, 4))
}

func grantsContext(ctx context.Context, s store.GrantStore) error {
	dead, cancel := context.WithCancel(ctx)
	cancel()
	_, err := ask(dead, s, "a", ttl, slots(0, 4))
	return errors.Join(expectError("Grant", err, context.Canceled), held(ctx, s, "nothing was taken", "b", ttl, slots(0, 4), 4))
}
