package storetest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// granting is a correct store behind a layer that changes requests and answers about grants.
type granting struct {
	*store.Memory
	holder  func(string) string
	ttl     func(time.Duration) time.Duration
	request func(r *store.GrantRequest)
	answer  func(a *store.Granted)
	list    func(a []store.Granted) []store.Granted
	once    bool // a lease is never renewed
	late    bool // the slots of other holders are read before slots are taken
	passes  bool // invalid calls are not refused
	deaf    bool // Grant ignores its context

	known sync.Map // the holders that have called Grant
}

func (s *granting) Grant(ctx context.Context, holder string, ttl time.Duration, requests []store.GrantRequest) ([]store.Granted, error) {
	if s.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if store.CheckGrants(holder, ttl, requests) != nil {
		if s.passes {
			requests = slices.DeleteFunc(slices.Clone(requests), func(r store.GrantRequest) bool { return store.CheckGrants("h", 1, []store.GrantRequest{r}) != nil })
			return s.Memory.Grant(ctx, "a", time.Minute, requests[:min(len(requests), 1)])
		}
		return s.Memory.Grant(ctx, holder, ttl, requests)
	}
	holder, requests = through(s.holder, holder), slices.Clone(requests)
	if s.ttl != nil {
		ttl = s.ttl(ttl)
	}
	if s.once {
		if _, known := s.known.LoadOrStore(holder, true); known {
			ttl = 1
		}
	}
	for i := range requests {
		r := &requests[i]
		if change(s.request, r); s.late && r.Most > 0 {
			read, err := s.Memory.Grant(ctx, "reads", 1, []store.GrantRequest{{Limit: r.Limit, Most: r.Most}})
			if err != nil {
				return nil, err
			}
			for _, o := range read[0].Others {
				if o.Holder != holder {
					r.Most -= o.Held
				}
			}
			time.Sleep(10 * time.Millisecond)
			r.Want = max(r.Keep, min(r.Want, max(r.Most, 0)))
			r.Most = 1000
		}
	}
	answers, err := s.Memory.Grant(ctx, holder, ttl, requests)
	for i := range answers {
		change(s.answer, &answers[i])
	}
	return through(s.list, answers), err
}

// TestGrantDefects plants defects in store.GrantStore; the named check must find each of them.
func TestGrantDefects(t *testing.T) {
	t.Parallel()
	const taken, last, wanted, named, apart, tokens, refused = "grants are taken, kept and given back", "grants last as long as their lease", "what others want is known", "who holds grants is named",
		"limits and holders are kept apart", "tokens are taken and come back", "requests for grants that make no sense"
	for _, row := range []struct {
		name  string
		store *granting
		check string
	}{
		{"no defect", &granting{}, ""},
		{"there is one slot more", &granting{request: func(r *store.GrantRequest) {
			if r.Most > 0 {
				r.Most++
			}
		}}, taken},
		{"slots are not given back", &granting{request: func(r *store.GrantRequest) { r.Want = max(r.Want, min(r.Most, 2)) }}, taken},
		{"a limit that has become less takes all", &granting{request: func(r *store.GrantRequest) {
			if r.Most == 3 && r.Keep == 2 {
				r.Most, r.Keep = 1, 1
			}
		}}, taken},
		{"a lease lasts for ever", &granting{ttl: func(time.Duration) time.Duration { return time.Hour }}, last},
		{"a lease is short", &granting{ttl: func(d time.Duration) time.Duration { return d / 1e6 }}, last},
		{"a lease is not renewed", &granting{once: true}, "a holder is renewed"},
		{"what others want is forgotten", &granting{request: func(r *store.GrantRequest) {
			if r.Want == 9 && r.Keep == 0 {
				r.Want = 4
			}
		}, answer: func(a *store.Granted) { a.Fair = max(a.Fair, a.Held) }}, wanted},
		{"runs are not named", &granting{request: func(r *store.GrantRequest) { r.Runs = nil }}, named},
		{"a holder is among the others", &granting{answer: func(a *store.Granted) { a.Others = append(a.Others, store.GrantHolder{Holder: "me", Want: 1}) }}, named},
		{"limits are folded by case", &granting{request: func(r *store.GrantRequest) {
			if r.Limit == "Limit" {
				r.Limit = "limit"
			}
		}}, apart},
		{"limits lose spaces at their end", &granting{request: func(r *store.GrantRequest) { r.Limit = strings.TrimRight(r.Limit, " ") }}, apart},
		{"limits are cut", &granting{request: func(r *store.GrantRequest) { r.Limit = r.Limit[:min(len(r.Limit), 400)] }}, apart},
		{"holders are folded by case", &granting{holder: strings.ToLower}, apart},
		{"answers are in another order", &granting{list: func(a []store.Granted) []store.Granted { slices.Reverse(a); return a }}, "many limits in one call"},
		{"a call is about 100 limits", &granting{list: func(a []store.Granted) []store.Granted { return a[:min(len(a), 100)] }}, "many limits in one call"},
		{"tokens do not become less", &granting{request: func(r *store.GrantRequest) { r.Back = r.Burst }}, tokens},
		{"tokens that are given back are lost", &granting{request: func(r *store.GrantRequest) { r.Back = 0 }}, tokens},
		{"nobody says when a token comes", &granting{answer: func(a *store.Granted) { a.Next = 0 }}, tokens},
		{"slots are counted, and then taken", &granting{late: true}, "of competing holders as many get grants as there are"},
		{"a rate has one token more", &granting{request: func(r *store.GrantRequest) {
			if r.Burst > 0 {
				r.Burst++
			}
		}}, "of competing holders as many get tokens as there are"},
		{"calls are not checked", &granting{passes: true}, refused},
		{"Grant under a dead context", &granting{deaf: true}, "grants under a cancelled context"},
	} {
		expectFound(t, row.name, row.check, storetest.CheckGrants, func() store.GrantStore {
			d := row.store
			return &granting{Memory: new(store.Memory), holder: d.holder, ttl: d.ttl, request: d.request, answer: d.answer, list: d.list, once: d.once, late: d.late, passes: d.passes, deaf: d.deaf}
		})
	}
}

func TestMemoryGrants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, err := range storetest.CheckGrants(t.Context(), func() store.GrantStore { return new(store.Memory) }) {
			t.Error(err)
		}
	})
}
