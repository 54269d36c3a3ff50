package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// RunInbox tests what [store.Inbox] promises beyond [store.Store]. Like [Run] it runs each check as a subtest. If the store is a [store.Admin],
// RunInbox also lists, prunes, imports and replaces runs that have requests.
func RunInbox(t *testing.T, open func(t *testing.T) store.Inbox) {
	runAll(t, inboxChecks, open)
}

// CheckInbox checks what [store.Inbox] promises beyond [store.Store], and returns the failures as [Check] does.
func CheckInbox(ctx context.Context, open func() store.Inbox) []error {
	return findAll(ctx, inboxChecks, open)
}

// Each check in inboxChecks gets a new and empty store.
var inboxChecks = []check[store.Inbox]{
	{"requests are stored", requestsStored},
	{"requests are loaded in pages", requestPages},
	{"requests of any size and characters", anyRequests},
	{"a request is posted once", requestsOnce},
	{"requests that make no sense", badRequests},
	{"requests for an unknown run", requestsUnknown},
	{"a cancelled context ends calls of an inbox", requestsCancelled},
	{"a commit answers requests", requestsAnswered},
	{"requests are answered in their order", requestsFollow},
	{"an answer and its effect are one transaction", requestsWhole},
	{"a duplicate answers no request twice", requestsDuplicate},
	{"who was overtaken answers no request", requestsFenced},
	{"a run with a request is due", requestsDue},
	{"a run with a request is due to those who serve", requestsServed},
	{"a run that has not begun is due for a cancel", requestsBeforeBegin},
	{"the end of a run refuses requests", requestsEnded},
	{"requests of runs are apart", requestsApart},
	{"requests that many post", requestsCompeting},
	{"watchers are notified of requests", requestsTold},
	{"requests of pruned and replaced runs are gone", requestsPruned},
	{"requests for a run of kahn", engineRequests},
	{"redrives are posted for runs that have ended", redrivesPosted},
	{"redrives are refused without a change of the run", redrivesRefused},
	{"a redrive and its answer are one transaction", redrivesApplied},
	{"a run with a redrive is due to those who serve", redrivesServed},
	{"redrives for a run of kahn", engineRedriveRequests},
}

// aSignal returns a request for a signal. Its parts depend on the number.
func aSignal(number int) store.Request {
	return store.Request{
		ID: fmt.Sprint("request ", number), Kind: store.KindSignal, Node: fmt.Sprint("gate ", number), Value: json.RawMessage(fmt.Sprintf(`{"n": %d}`, number)),
		Actor: fmt.Sprint("actor ", number), Comment: fmt.Sprint("comment ", number),
	}
}

var aCancel = store.Request{ID: "cancel", Kind: store.KindCancel, Actor: "ann"}

// postTo posts a new request.
func postTo(ctx context.Context, s store.Inbox, run string, q store.Request) error {
	posted, err := s.Post(ctx, run, q)
	if err == nil && !posted {
		err = errors.New("it is not posted")
	}
	if err != nil {
		return fmt.Errorf("post %s for run %s: %w", q.ID, run, err)
	}
	return nil
}

// The function `asked` begins a run, posts the given number of signals for it, and returns the lease.
func asked(ctx context.Context, s store.Inbox, run string, signals int) (store.Lease, error) {
	lease, err := begun(ctx, s, run)
	for i := range signals {
		err = errors.Join(err, postTo(ctx, s, run, aSignal(i+1)))
	}
	return lease, err
}

// The function `answering` returns a commit with answers. The argument "2" says that request 2 is applied, and "2: why" says that request 2 is
// refused for the reason "why".
func answering(sequence uint64, answers ...string) store.Commit {
	c := store.Commit{Sequence: sequence}
	for _, a := range answers {
		var t store.TakenRequest
		number, refused, _ := strings.Cut(a, ": ")
		_, _ = fmt.Sscan(number, &t.Number)
		t.Refused = refused
		c.Taken = append(c.Taken, t)
	}
	return c
}

// expectRequests returns an error unless a run has the wanted requests, each written as "1 applied", "2 refused: why" or "3 waiting".
func expectRequests(ctx context.Context, s store.Inbox, run string, want ...string) error {
	list, err := s.LoadRequests(ctx, run, 0, store.MaxPage)
	if err != nil {
		return err
	}
	tell := func(q *store.PostedRequest) string {
		text := fmt.Sprint(q.Number, " ", q.Status)
		if q.Refused != "" {
			text += ": " + q.Refused
		}
		return text
	}
	var got []string
	waiting := 0
	for i := range list {
		if got = append(got, tell(&list[i])); list[i].Status == store.RequestWaiting {
			waiting++
		}
		found, err := s.FindRequest(ctx, run, list[i].ID)
		if err := errors.Join(err, same("the request that was found", tell(&found), tell(&list[i]))); err != nil {
			return err
		}
	}
	r, err := s.Load(ctx, run)
	if err != nil {
		return err
	}
	return errors.Join(same("the requests of run "+run, got, want), same("Posted", r.Posted, uint64(len(want))), same("Taken", r.Taken, r.Posted-uint64(waiting)))
}

func requestsStored(ctx context.Context, s store.Inbox) error {
	before := time.Now().Add(-time.Minute)
	if _, err := asked(ctx, s, "r", 1); err != nil {
		return err
	}
	node := store.Request{ID: "node", Kind: store.KindCancelNode, Node: "a", Comment: "why"}
	if err := errors.Join(postTo(ctx, s, "r", node), postTo(ctx, s, "r", aCancel)); err != nil {
		return err
	}
	list, err := s.LoadRequests(ctx, "r", 0, 10)
	if err != nil {
		return err
	}
	for i := range list {
		found, err := s.FindRequest(ctx, "r", list[i].ID)
		if err := errors.Join(err, same("the request that was found", found.Request.ID, list[i].ID)); err != nil {
			return err
		}
		if t := list[i].Posted; t.Before(before) || t.After(time.Now().Add(time.Minute)) {
			return fmt.Errorf("request %d was posted at %v", i+1, t)
		}
		list[i].Posted, list[i].Value = time.Time{}, compact(list[i].Value)
	}
	signal := aSignal(1)
	signal.Value = compact(signal.Value)
	return errors.Join(same("the requests", list, []store.PostedRequest{{Request: signal, Number: 1}, {Request: node, Number: 2}, {Request: aCancel, Number: 3}}),
		expectRequests(ctx, s, "r", "1 waiting", "2 waiting", "3 waiting"))
}

func requestPages(ctx context.Context, s store.Inbox) error {
	if _, err := asked(ctx, s, "r", 20); err != nil {
		return err
	}
	for _, limit := range []int{1, 7, 20, store.MaxPage} {
		for after := uint64(0); after < 20; {
			list, err := s.LoadRequests(ctx, "r", after, limit)
			if err != nil || len(list) != min(limit, 20-int(after)) {
				return fmt.Errorf("after %d with limit %d: %d requests, %w", after, limit, len(list), err)
			}
			for _, q := range list {
				if after++; q.Number != after || q.ID != aSignal(int(after)).ID {
					return fmt.Errorf("limit %d: request %d, %s, instead of %d", limit, q.Number, q.ID, after)
				}
			}
		}
	}
	for _, after := range []uint64{20, 21, 1 << 32, 1<<64 - 1} {
		if list, err := s.LoadRequests(ctx, "r", after, 10); err != nil || len(list) > 0 {
			return fmt.Errorf("after %d: %d requests, %w", after, len(list), err)
		}
	}
	return nil
}

func anyRequests(ctx context.Context, s store.Inbox) error {
	lease, err := begun(ctx, s, "r")
	if err != nil {
		return err
	}
	var want, answers []string
	for i, text := range []string{"a", `"\`, "é ü 東京 🚀", strings.Repeat("x", 70<<10), "a\u0000b\u2028<>&"} {
		quoted, err := json.Marshal(text)
		if err != nil {
			return err
		}
		q := store.Request{ID: text, Kind: store.KindSignal, Node: text, Value: quoted, Actor: text, Comment: text}
		if err := postTo(ctx, s, "r", q); err != nil {
			return err
		}
		got, err := s.FindRequest(ctx, "r", text)
		got.Value, q.Value = compact(got.Value), compact(q.Value)
		if err := errors.Join(err, same("the request", got.Request, q)); err != nil {
			return err
		}
		answers = append(answers, fmt.Sprint(i+1, ": ", text))
		want = append(want, fmt.Sprint(i+1, " refused: ", text))
	}
	got, err := s.Commit(ctx, lease, answering(2, answers...))
	return errors.Join(expect("the answers", got, err, store.AppliedNow), expectRequests(ctx, s, "r", want...))
}

func requestsOnce(ctx context.Context, s store.Inbox) error {
	lease, err := asked(ctx, s, "r", 1)
	if err != nil {
		return err
	}
	again := aSignal(1)
	again.Value, again.Actor, again.Comment = json.RawMessage(`{ "n":1 }`), "somebody else", ""
	repeat := func() error {
		posted, err := s.Post(ctx, "r", again)
		if err != nil || posted {
			return fmt.Errorf("the same request again is posted: %v, %w", posted, err)
		}
		for _, change := range []func(q *store.Request){
			func(q *store.Request) { q.Value = json.RawMessage(`{"n": 2}`) },
			func(q *store.Request) { q.Node = "another gate" },
			func(q *store.Request) { q.Kind, q.Value = store.KindCancelNode, nil },
		} {
			q := aSignal(1)
			change(&q)
			if posted, err := s.Post(ctx, "r", q); posted || !errors.Is(err, store.ErrRequestConflict) {
				return fmt.Errorf("another request of the same id is posted: %v, %w", posted, err)
			}
		}
		return nil
	}
	if err := errors.Join(repeat(), expectRequests(ctx, s, "r", "1 waiting")); err != nil {
		return err
	}
	c := answering(2, "1")
	got, err := s.Commit(ctx, lease, c)
	if err := errors.Join(expect("the answer", got, err, store.AppliedNow), repeat(), expectRequests(ctx, s, "r", "1 applied")); err != nil {
		return err
	}
	got, err = s.Commit(ctx, lease, store.Commit{Sequence: 3, Status: machine.RunCompleted})
	return errors.Join(expect("the end", got, err, store.AppliedNow), repeat(), expectRequests(ctx, s, "r", "1 applied"))
}

func badRequests(ctx context.Context, s store.Inbox) error {
	if _, err := begun(ctx, s, "r"); err != nil {
		return err
	}
	for what, change := range map[string]func(q *store.Request){
		"without an id":            func(q *store.Request) { q.ID = "" },
		"without a kind":           func(q *store.Request) { q.Kind = 0 },
		"of no kind":               func(q *store.Request) { q.Kind = 77 },
		"a signal for no node":     func(q *store.Request) { q.Node = "" },
		"a signal without value":   func(q *store.Request) { q.Value = nil },
		"a value that is not JSON": func(q *store.Request) { q.Value = json.RawMessage("{") },
		"a cancel with a node":     func(q *store.Request) { q.Kind, q.Value = store.KindCancel, nil },
		"an id that is not a text": func(q *store.Request) { q.ID = "\xff" },
		"a redrive with a node":    func(q *store.Request) { q.Kind, q.Value = store.KindRedrive, nil },
		"a redrive of something":   func(q *store.Request) { q.Kind, q.Node = store.KindRedrive, "" },
		"a redrive of a number": func(q *store.Request) {
			q.Kind, q.Node, q.Value = store.KindRedrive, "", json.RawMessage(`{"nodes": [1]}`)
		},
		"a redrive of no name": func(q *store.Request) {
			q.Kind, q.Node, q.Value = store.KindRedrive, "", json.RawMessage(`{"nodes": [""]}`)
		},
	} {
		q := aSignal(1)
		change(&q)
		if _, err := s.Post(ctx, "r", q); !errors.Is(err, machine.ErrBadValue) {
			return fmt.Errorf("a request %s: %w", what, err)
		}
	}
	return expectRequests(ctx, s, "r")
}

func requestsUnknown(ctx context.Context, s store.Inbox) error {
	_, err := s.Post(ctx, "nobody", aSignal(1))
	_, loaded := s.LoadRequests(ctx, "nobody", 0, 10)
	_, found := s.FindRequest(ctx, "nobody", "x")
	if _, err := begun(ctx, s, "r"); err != nil {
		return err
	}
	_, other := s.FindRequest(ctx, "r", "x")
	return errors.Join(expectError("Post", err, store.ErrUnknownRun), expectError("LoadRequests", loaded, store.ErrUnknownRun),
		expectError("FindRequest", found, store.ErrUnknownRun), expectError("FindRequest", other, store.ErrUnknownRequest))
}

func requestsCancelled(ctx context.Context, s store.Inbox) error {
	if _, err := asked(ctx, s, "r", 1); err != nil {
		return err
	}
	dead, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Post(dead, "r", aSignal(2))
	_, loaded := s.LoadRequests(dead, "r", 0, 10)
	_, found := s.FindRequest(dead, "r", aSignal(1).ID)
	if err == nil || loaded == nil || found == nil {
		return fmt.Errorf("under a cancelled context: %v, %v, %v", err, loaded, found)
	}
	return expectRequests(ctx, s, "r", "1 waiting")
}

func requestsAnswered(ctx context.Context, s store.Inbox) error {
	lease, err := asked(ctx, s, "r", 4)
	if err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, answering(2, "1", "2: unknown gate"))
	if err := errors.Join(expect("two answers", got, err, store.AppliedNow), expectRequests(ctx, s, "r", "1 applied", "2 refused: unknown gate", "3 waiting", "4 waiting")); err != nil {
		return err
	}
	_, next, err := s.Acquire(ctx, "r", "owner", ttl)
	if err := errors.Join(err, same("Posted of the acquired run", next.Posted, 4), same("Taken of the acquired run", next.Taken, 2)); err != nil {
		return err
	}
	lease.Epoch++
	got, err = s.Commit(ctx, lease, answering(3, "3"))
	return errors.Join(expect("another answer", got, err, store.AppliedNow), expectRequests(ctx, s, "r", "1 applied", "2 refused: unknown gate", "3 applied", "4 waiting"))
}

func requestsFollow(ctx context.Context, s store.Inbox) error {
	lease, err := asked(ctx, s, "r", 3)
	if err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, answering(2, "1"))
	if err := expect("an answer", got, err, store.AppliedNow); err != nil {
		return err
	}
	for _, answers := range [][]string{{"1"}, {"3"}, {"3", "2"}, {"2", "2"}, {"2", "3", "4"}, {"0"}} {
		err := unchanged(ctx, s, func() error {
			c := answering(3, answers...)
			c.Nodes = []store.NodeRecord{{Node: "b", Columns: data("running")}}
			got, err := s.Commit(ctx, lease, c)
			return expect(fmt.Sprint("answers to ", answers), got, err, store.Conflict)
		})
		if err != nil {
			return err
		}
	}
	return expectRequests(ctx, s, "r", "1 applied", "2 waiting", "3 waiting")
}

func requestsWhole(ctx context.Context, s store.Inbox) error {
	lease, err := asked(ctx, s, "r", 1)
	if err != nil {
		return err
	}
	c := start(2, "a", 7)
	c.Taken = answering(2, "1").Taken
	got, err := s.Commit(ctx, lease, c)
	if err := errors.Join(expect("a commit that contradicts what is stored", got, err, store.Conflict), expectRequests(ctx, s, "r", "1 waiting")); err != nil {
		return err
	}
	c = start(2, "a", 1)
	c.Taken = answering(2, "1").Taken
	got, err = s.Commit(ctx, lease, c)
	r, loaded := s.Load(ctx, "r")
	return errors.Join(expect("a commit with an answer", got, err, store.AppliedNow), loaded, expectRequests(ctx, s, "r", "1 applied"), same("the attempt", r.Nodes["a"].Attempt, 1))
}

func requestsDuplicate(ctx context.Context, s store.Inbox) error {
	lease, err := asked(ctx, s, "r", 2)
	if err != nil {
		return err
	}
	c := answering(2, "1: no")
	for _, want := range []store.Applied{store.AppliedNow, store.Duplicate} {
		got, err := s.Commit(ctx, lease, c)
		if err := errors.Join(expect("an answer", got, err, want), expectRequests(ctx, s, "r", "1 refused: no", "2 waiting")); err != nil {
			return err
		}
	}
	return nil
}

func requestsFenced(ctx context.Context, s store.Inbox) error {
	lease, err := asked(ctx, s, "r", 1)
	if err != nil {
		return err
	}
	if _, _, err := s.Acquire(ctx, "r", "owner", ttl); err != nil {
		return err
	}
	_, err = s.Commit(ctx, lease, answering(2, "1"))
	return errors.Join(expectError("an answer under an old lease", err, store.ErrFenced), expectRequests(ctx, s, "r", "1 waiting"))
}

func requestsEnded(ctx context.Context, s store.Inbox) error {
	lease, err := asked(ctx, s, "r", 3)
	if err != nil {
		return err
	}
	ended := ": " + store.ErrEnded.Error()
	c := answering(2, "1")
	c.Status = machine.RunCompleted
	got, err := s.Commit(ctx, lease, c)
	if err := errors.Join(expect("the end", got, err, store.AppliedNow), expectRequests(ctx, s, "r", "1 applied", "2 refused"+ended, "3 refused"+ended), dueNow(ctx, s, "r", false)); err != nil {
		return err
	}
	_, err = s.Post(ctx, "r", aSignal(4))
	if err := expectError("a request for a run that has ended", err, store.ErrEnded); err != nil {
		return err
	}
	got, err = s.Commit(ctx, lease, store.Commit{Sequence: 3, Reopen: true, Status: machine.RunRunning})
	if err := errors.Join(expect("the redrive", got, err, store.AppliedNow), postTo(ctx, s, "r", aSignal(5)),
		expectRequests(ctx, s, "r", "1 applied", "2 refused"+ended, "3 refused"+ended, "4 waiting")); err != nil {
		return err
	}
	got, err = s.Commit(ctx, lease, answering(4, "4"))
	return errors.Join(expect("an answer after the redrive", got, err, store.AppliedNow), dueNow(ctx, s, "r", false),
		expectRequests(ctx, s, "r", "1 applied", "2 refused"+ended, "3 refused"+ended, "4 applied"))
}

func requestsApart(ctx context.Context, s store.Inbox) error {
	lease, err := asked(ctx, s, "r", 1)
	if err == nil {
		_, err = asked(ctx, s, "x", 2)
	}
	if err != nil {
		return err
	}
	got, err := s.Commit(ctx, lease, answering(2, "1"))
	return errors.Join(expect("the answer", got, err, store.AppliedNow), expectRequests(ctx, s, "r", "1 applied"), expectRequests(ctx, s, "x", "1 waiting", "2 waiting"))
}

func requestsCompeting(ctx context.Context, s store.Inbox) error {
	const posters, each = 8, 5
	if _, err := begun(ctx, s, "r"); err != nil {
		return err
	}
	var group errgroup.Group
	var news atomic.Int32
	for p := range posters {
		group.Go(func() error {
			for i := range each { // two goroutines post the same requests
				posted, err := s.Post(ctx, "r", aSignal(p/2*each+i))
				if err != nil {
					return err
				}
				if posted {
					news.Add(1)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	list, err := s.LoadRequests(ctx, "r", 0, store.MaxPage)
	ids := map[string]bool{}
	for i, q := range list {
		if ids[q.ID] = true; q.Number != uint64(i+1) {
			return fmt.Errorf("request %d has the number %d", i+1, q.Number)
		}
	}
	return errors.Join(err, same("the requests", len(list), posters/2*each), same("their ids", len(ids), len(list)), same("the new ones", int(news.Load()), len(list)))
}

// patience is how long a check waits for something that should happen at once.
const patience = 5 * time.Second

// An ear receives the ids of runs: its method `tell` is a watcher that a store calls with these ids.
type ear chan string

func (e ear) tell(run string) {
	select {
	case e <- run:
	default:
	}
}

// The method `heard` waits until the watcher is called. It returns an error if the call does not come in time, or is for another run than "run".
func (e ear) heard(what, run string) error {
	select {
	case got := <-e:
		return same(what, got, run)
	case <-time.After(patience):
		return fmt.Errorf("%s: no notification came", what)
	}
}

func requestsTold(ctx context.Context, s store.Inbox) error {
	for _, run := range []string{"r", "other"} {
		if _, err := begun(ctx, s, run); err != nil {
			return err
		}
	}
	one, all := make(ear, 100), make(ear, 100)
	stopOne, stopAll := s.WatchRequests("r", one.tell), s.WatchRequests("", all.tell)
	defer stopAll()
	defer stopOne()
	if err := errors.Join(postTo(ctx, s, "other", aSignal(1)), all.heard("all, of another run", "other"), postTo(ctx, s, "r", aSignal(1)), one.heard("a watcher", "r")); err != nil {
		return err
	}
	// The function `later` adds a watcher, and returns an error unless the store calls this watcher for run r. When this call arrives, earlier calls
	// of other watchers have arrived, too.
	later := func() error {
		late := make(ear, 100)
		stop := s.WatchRequests("r", late.tell)
		defer stop()
		return late.heard("a watcher that comes later", "r")
	}
	stopOne()
	if err := later(); err != nil {
		return err
	}
	for len(one) > 0 {
		<-one
	}
	if err := errors.Join(postTo(ctx, s, "r", aSignal(2)), later()); err != nil {
		return err
	}
	return same("what a watcher hears after its end", len(one), 0)
}

func requestsPruned(ctx context.Context, s store.Inbox) error {
	admin, ok := s.(store.Admin)
	if !ok {
		return nil
	}
	lease, err := asked(ctx, s, "r", 2)
	if err != nil {
		return err
	}
	c := answering(2, "1")
	c.Status = machine.RunCompleted
	got, err := s.Commit(ctx, lease, c)
	if err := errors.Join(expect("the end", got, err, store.AppliedNow), s.Release(ctx, lease)); err != nil {
		return err
	}
	var file bytes.Buffer
	if err := store.Export(ctx, s, "r", &file); err != nil {
		return err
	}
	if _, err := admin.Prune(ctx, store.PruneQuery{EndedBefore: future}); err != nil {
		return err
	}
	if _, err := s.LoadRequests(ctx, "r", 0, 10); !errors.Is(err, store.ErrUnknownRun) {
		return fmt.Errorf("requests of the pruned run: %w", err)
	}
	if _, err := store.Import(ctx, admin, &file); err != nil {
		return err
	}
	if err := expectRequests(ctx, s, "r"); err != nil {
		return fmt.Errorf("the imported run: %w", err)
	}
	if _, err := admin.Prune(ctx, store.PruneQuery{EndedBefore: future}); err != nil {
		return err
	}
	for _, policy := range []store.Policy{store.Refuse, store.ReplaceUnasked, store.Replace} {
		if policy == store.Replace {
			_, _, err := admin.Create(ctx, aRun("r", "asked", store.ReplaceUnasked))
			if err := errors.Join(expectError("ReplaceUnasked of a run that was asked", err, store.ErrExists), expectRequests(ctx, s, "r", "1 waiting")); err != nil {
				return err
			}
		}
		_, _, err := admin.Create(ctx, aRun("r", fmt.Sprint(policy), policy))
		if err := errors.Join(err, expectRequests(ctx, s, "r")); err != nil {
			return fmt.Errorf("the next run of this id, %v: %w", policy, err)
		}
		if policy == store.Refuse {
			continue
		}
		if err := errors.Join(postTo(ctx, s, "r", aSignal(1)), expectRequests(ctx, s, "r", "1 waiting")); err != nil {
			return err
		}
	}
	return nil
}

// engineRequests posts two requests for a run that no process performs; the second request names an unknown gate. Then a process performs the run,
// and engineRequests posts a third request.
func engineRequests(ctx context.Context, s store.Inbox) error {
	g := (&kahn.Graph{Name: "asked"}).Add(kahn.Node{ID: "a"}, kahn.Node{ID: "gate", Kind: kahn.KindGate, After: []string{"a"}},
		kahn.Node{ID: "late", Kind: kahn.KindGate, After: []string{"gate"}}, kahn.Node{ID: "b", After: []string{"late"}})
	post := func(gate, id string) error {
		q, err := kahn.PrepareSignal(gate, kahn.Decision{Value: "é of " + gate, ID: id})
		return errors.Join(err, postTo(ctx, s, "r", q))
	}
	step := func(_ context.Context, step *kahn.Step) (any, error) { return step.ID(), nil }
	opts := []kahn.Option{kahn.RunID("r"), kahn.Durable(s)}
	if _, err := kahn.Execute(ctx, g, step, opts...); err != nil {
		return err
	}
	if err := errors.Join(post("gate", "1"), post("nowhere", "2")); err != nil {
		return err
	}
	run, err := kahn.Start(ctx, g, step, opts...)
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := run.WaitFor(waiting, "late", kahn.Suspended); err != nil {
		return err
	}
	if err := post("late", "3"); err != nil {
		return err
	}
	select {
	case <-run.Done():
	case <-waiting.Done():
		return errors.Join(errors.New("a request for a run at work has no effect"), run.Cancel())
	}
	res, err := run.Wait()
	if err != nil {
		return err
	}
	late, _ := res.Node("late")
	list, err := s.LoadRequests(ctx, "r", 0, 10)
	if err := errors.Join(err, same("the status", res.Status, kahn.RunCompleted), same("the answer", late.Output, any("é of late")), same("the requests", len(list), 3)); err != nil {
		return err
	}
	statuses := []store.RequestStatus{list[0].Status, list[1].Status, list[2].Status}
	if !slices.Equal(statuses, []store.RequestStatus{store.RequestApplied, store.RequestRefused, store.RequestApplied}) || !strings.Contains(list[1].Refused, "nowhere") {
		return fmt.Errorf("the requests are %v, %s", statuses, list[1].Refused)
	}
	return nil
}
