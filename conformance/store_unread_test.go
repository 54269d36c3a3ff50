package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/store"
)

// lockedCodec is a codec that cannot decode or encode texts with the word "locked" until reads or writes is set.
type lockedCodec struct {
	kahn.Types
	reads, writes atomic.Bool
}

var errNoKey = errors.New("the key is not there yet")

func newLocked(key bool) *lockedCodec {
	c := new(lockedCodec)
	c.reads.Store(key)
	c.writes.Store(true)
	return c
}

func (c *lockedCodec) Decode(data json.RawMessage) (any, error) {
	if strings.Contains(string(data), "locked") && !c.reads.Load() {
		return nil, errNoKey
	}
	return c.Types.Decode(data)
}

func (c *lockedCodec) Encode(v any) (json.RawMessage, error) {
	data, err := c.Types.Encode(v)
	if strings.Contains(string(data), "locked") && !c.writes.Load() {
		return nil, errNoKey
	}
	return data, err
}

// expectStatuses compares the statuses of requests.
func expectStatuses(t testing.TB, db store.Inbox, want string) {
	t.Helper()
	list, err := db.LoadRequests(t.Context(), "r", 0, store.MaxPage)
	require.NoError(t, err)
	var got []string
	for _, q := range list {
		got = append(got, q.ID+" "+q.Status.String())
	}
	require.Equal(t, want, strings.Join(got, ", "))
}

func answer(t testing.TB, db store.Inbox, gate, id, value string) {
	t.Helper()
	post(t, db, gate, kahn.Decision{Value: value, ID: id})
}

// A request whose value cannot be decoded waits, in this life and in later ones, until it can be decoded.
func TestRequestThatCannotBeRead(t *testing.T) {
	t.Parallel()
	g := graph(gate("G"), after("A", "G"))
	for name, codecs := range map[string][2]*lockedCodec{"read": {newLocked(false), newLocked(true)}, "written": {newLocked(true), newLocked(true)}} {
		codecs[0].writes.Store(name == "read")
		inBubble(t, "at rest, "+name, func(t *testing.T) {
			db := new(store.Memory)
			life(t, g, nothing, db).expect("G:suspended A:waiting", "suspended")
			answer(t, db, "G", "1", "locked yes")
			for range 3 {
				r := life(t, g, nothing, db, kahn.Encoding(codecs[0]))
				require.ErrorIs(t, r.err, kahn.ErrUndecoded)
				require.ErrorIs(t, r.err, errNoKey)
				require.Contains(t, r.err.Error(), `"1"`)
				r.expect("G:suspended A:waiting", "suspended")
				require.Len(t, r.Warnings, 1)
				expectStatuses(t, db, "1 waiting")
			}
			r := life(t, g, nothing, db, kahn.Encoding(codecs[1]))
			r.expect("G:ok A:ok", "completed")
			require.NoError(t, r.err)
			require.Equal(t, "locked yes", r.node("G").Output)
			r.count(event.NodeSignalled, "G", 1)
			expectStatuses(t, db, "1 applied")
		})
		inBubble(t, "at work, "+name, func(t *testing.T) {
			db, codec := new(store.Memory), newLocked(name == "written")
			codec.writes.Store(name == "read")
			r := tryControlled(t, t.Context(), g, nothing, func(*kahn.Run) {
				answer(t, db, "G", "1", "locked yes")
				time.Sleep(time.Hour)
				expectStatuses(t, db, "1 waiting")
				codec.reads.Store(true)
				codec.writes.Store(true)
				time.Sleep(time.Minute + time.Second)
				expectStatuses(t, db, "1 applied")
			}, kahn.Durable(db), kahn.RunID("r"), kahn.Encoding(codec))
			r.expect("G:ok A:ok", "completed")
			r.count(event.NodeSignalled, "G", 1)
		})
	}
	inBubble(t, "while the store is silent for a while", func(t *testing.T) {
		db, codec := &inboxFaults{Memory: new(store.Memory)}, newLocked(false)
		r := tryControlled(t, t.Context(), g, nothing, func(*kahn.Run) {
			answer(t, db, "G", "1", "locked yes")
			synctest.Wait()
			db.fail(errors.New("silent"))
			answer(t, db, "A", "2", "it is a hint to load, which fails")
			synctest.Wait()
			db.fail(nil)
			codec.reads.Store(true)
			time.Sleep(2 * time.Minute)
			expectStatuses(t, db, "1 applied, 2 refused")
		}, kahn.Durable(db), kahn.RunID("r"), kahn.Encoding(codec))
		r.expect("G:ok A:ok", "completed")
	})
	inBubble(t, "a type that is not registered", func(t *testing.T) {
		type money int
		db := new(store.Memory)
		life(t, g, nothing, db).expect("G:suspended A:waiting", "suspended")
		postRequest(t, db, store.Request{ID: "1", Kind: store.KindSignal, Node: "G", Value: []byte(`{"$type":"money","value":1}`)})
		require.ErrorContains(t, life(t, g, nothing, db).err, "money")
		r := life(t, g, nothing, db, kahn.Encoding(kahn.Types{"money": money(0)}))
		r.expect("G:ok A:ok", "completed")
		require.Equal(t, money(1), r.node("G").Output)
	})
	inBubble(t, "a run that has not begun", func(t *testing.T) {
		db := new(store.Memory)
		n, err := kahn.Prepare(g, kahn.RunID("r"))
		require.NoError(t, err)
		_, _, err = db.Create(t.Context(), n)
		require.NoError(t, err)
		answer(t, db, "G", "1", "locked yes")
		r := life(t, g, nothing, db, kahn.Encoding(newLocked(false)))
		require.ErrorIs(t, r.err, kahn.ErrUndecoded)
		life(t, g, nothing, db, kahn.Encoding(newLocked(true))).expect("G:ok A:ok", "completed")
		expectStatuses(t, db, "1 applied")
	})
	inBubble(t, "inside of an expanded node whose graph is not known", func(t *testing.T) {
		db := new(store.Memory)
		g := graph(kahn.Node{ID: "E", Do: func(context.Context, *kahn.Step) (any, error) {
			time.Sleep(time.Second)
			return nil, kahn.Expand(graph(gate("G")), nil, nil)
		}})
		require.Equal(t, kahn.RunSuspended, life(t, g, nil, db).Status)
		answer(t, db, "E/G", "1", "locked yes")
		answer(t, db, "E/G", "2", "locked no")
		answer(t, db, "E/H", "3", "locked")
		require.ErrorIs(t, life(t, g, nil, db, kahn.Encoding(newLocked(false))).err, kahn.ErrUndecoded)
		life(t, g, nil, db, kahn.Encoding(newLocked(true))).expect("E:ok", "completed")
		expectStatuses(t, db, "1 applied, 2 refused, 3 refused")
	})
}

// A request may be refused because of the plan or the node even if its value cannot be decoded.
func TestRequestThatIsRefusedUnread(t *testing.T) {
	t.Parallel()
	g := graph(gate("G"), gate("H"), kahn.Node{ID: "B", Do: untilStopped}, gate("I", "B"))
	for _, rests := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("at rest %v", rests), func(t *testing.T) {
			db := new(store.Memory)
			post := func() {
				answer(t, db, "nowhere", "1", "locked")
				answer(t, db, "B", "2", "locked") // B does not wait
				answer(t, db, "G", "3", "locked")
				answer(t, db, "G", "4", "yes")
				postRequest(t, db, store.Request{ID: "5", Kind: store.KindCancelNode, Node: "I"})
				answer(t, db, "I", "6", "locked")
			}
			opts := []kahn.Option{kahn.Durable(db), kahn.RunID("r"), kahn.Encoding(newLocked(false)), kahn.Lease("us", 0)}
			rn := new(kahn.Runner)
			run, err := rn.Start(t.Context(), g, nothing, opts...)
			require.NoError(t, err)
			if synctest.Wait(); rests {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = rn.Shutdown(ctx)
				_, _ = run.Wait()
				post()
				run, err = kahn.Start(t.Context(), g, nothing, opts...)
				require.NoError(t, err)
			} else {
				post()
			}
			time.Sleep(2 * time.Second) // the request is tried again after one second
			expectStatuses(t, db, "1 refused, 2 refused, 3 refused, 4 applied, 5 applied, 6 refused")
			_, why := became(t, db, "3")
			require.Contains(t, why, kahn.ErrAnswered.Error())
			run.Cancel()
			_, _ = run.Wait()
		})
	}
}

// Requests do not wait for an earlier request that cannot be decoded. No request takes effect twice, however the life ends in between.
func TestRequestsBehindOneThatCannotBeRead(t *testing.T) {
	t.Parallel()
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		if s.ID() == "B" {
			return untilStopped(ctx, s)
		}
		return asks(ctx, s)
	}
	g := graph(gate("G"), gate("H"), kahn.Node{ID: "B"}, kahn.Node{ID: "S"}, kahn.Node{ID: "Z", After: []string{"G"}})
	const mixed = "1 waiting, 2 waiting, 3 waiting, 4 waiting, 5 waiting"
	for _, end := range []string{"nothing", "the key", "cancel", "leave", "death"} {
		for lives := range 3 {
			inBubble(t, fmt.Sprintf("%s ends %d lives", end, lives), func(t *testing.T) {
				db, codec := new(store.Memory), newLocked(false)
				opts := []kahn.Option{kahn.RunID("r"), kahn.Encoding(codec), kahn.Lease("us", 0), kahn.StoreEvents()}
				var process *mortal
				begin := func() *kahn.Run {
					process = &mortal{eternal: db}
					run, err := kahn.Start(t.Context(), g, step, append(opts, kahn.Durable(process))...)
					require.NoError(t, err)
					synctest.Wait()
					return run
				}
				run := begin()
				answer(t, db, "G", "1", "locked yes")
				answer(t, db, "H", "2", "yes")
				answer(t, db, "H", "3", "no")
				postRequest(t, db, store.Request{ID: "4", Kind: store.KindCancelNode, Node: "B"})
				answer(t, db, "S", "5", "five")
				synctest.Wait()
				for node, want := range map[string]kahn.Status{"G": kahn.Suspended, "H": kahn.Completed, "B": kahn.Cancelled, "S": kahn.Completed} {
					expectStatus(t, run, node, want)
				}
				expectStatuses(t, db, mixed)
				for range lives {
					switch end {
					case "leave":
						run.Leave()
						_, err := run.Wait()
						require.ErrorIs(t, err, kahn.ErrUndecoded)
						run = begin()
					case "death":
						process.dead.Store(true)
						run.Cancel()
						_, _ = run.Wait()
						run = begin()
					}
				}
				expectStatuses(t, db, mixed)
				if end == "cancel" {
					postRequest(t, db, cancelRun)
				} else {
					codec.reads.Store(true)
					time.Sleep(2 * time.Minute)
					answer(t, db, "Z", "6", "six")
				}
				res, _ := run.Wait()
				if end == "cancel" {
					require.Equal(t, kahn.RunCancelled, res.Status)
					expectStatuses(t, db, "1 refused, 2 applied, 3 refused, 4 applied, 5 applied, cancel applied")
				} else {
					expectStatuses(t, db, "1 applied, 2 applied, 3 refused, 4 applied, 5 applied, 6 applied")
				}
				events := storedEvents(t, db, "r")
				require.NoError(t, kahntest.CheckEvents(g, res, events))
				seen := map[string]int{}
				for _, e := range events {
					if e.Type == event.NodeSignalled {
						seen[e.Path]++
					}
				}
				for path, n := range seen {
					require.Equal(t, 1, n, path)
				}
			})
		}
	}
}

// Serve reports a request that cannot be decoded, and tries its run again after pauses that grow. It resumes the run at once when another request
// arrives.
func TestServeRequestsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	keys := func(names ...string) *store.Sealed {
		c := &store.Sealed{Codec: kahn.Types(nil), Keys: map[string][]byte{}, Current: names[len(names)-1]}
		for _, name := range names {
			c.Keys[name] = []byte(strings.Repeat(name, 32))
		}
		return c
	}
	away := new(awayBlobs)
	blobs := &store.Blobs{Codec: kahn.Types(nil), Store: away, Over: 10, Patience: time.Second}
	for name, row := range map[string]struct {
		now, poster, later store.Codec
		mend               func()
	}{
		"a key that this process does not have": {keys("1"), keys("1", "2"), keys("1", "2"), func() {}},
		"a blob store that is silent":           {blobs, blobs, blobs, func() { away.silent.Store(false) }},
	} {
		inBubble(t, name, func(t *testing.T) {
			away.MemoryBlobs = new(store.MemoryBlobs)
			away.silent.Store(false)
			s := new(served)
			g := flow("w", gate("G"), gate("H"), kahn.Node{ID: "a", After: []string{"H"}})
			n, err := kahn.Prepare(g, kahn.RunID("r"), kahn.Encoding(row.now))
			require.NoError(t, err)
			_, _, err = s.Create(t.Context(), n)
			require.NoError(t, err)
			var told, acquired atomic.Int64
			x := s.service(g)
			x.Poll = time.Minute
			x.OnError = func(run string, _ store.Queue, e error) {
				require.Equal(t, "r", run)
				require.ErrorIs(t, e, kahn.ErrUndecoded)
				told.Add(1)
			}
			s.fail = func(call, _ string) error {
				if call == "acquire" {
					acquired.Add(1)
				}
				return nil
			}
			end := serve(t, &kahn.Runner{Options: []kahn.Option{kahn.Encoding(row.now)}}, x)
			q, err := kahn.PrepareSignal("G", kahn.Decision{Value: strings.Repeat("yes ", 10), ID: "1"}, kahn.Encoding(row.poster))
			require.NoError(t, err)
			away.silent.Store(true)
			postRequest(t, s, q)
			time.Sleep(time.Hour)
			expectStatuses(t, s, "1 waiting")
			require.Equal(t, acquired.Load()-1, told.Load(), "each life but the first one is reported")
			require.Greater(t, told.Load(), int64(30))
			require.Less(t, told.Load(), int64(70), "after 1 s, 2 s, 4 s, to 60 s")

			q, err = kahn.PrepareSignal("H", kahn.Decision{Value: "yes", ID: "2"}, kahn.Encoding(row.now))
			require.NoError(t, err)
			time.Sleep(time.Second)
			s.take()
			postRequest(t, s, q)
			time.Sleep(5 * time.Second)
			require.Equal(t, []string{"r a"}, s.take())

			row.mend()
			x.OnError = func(_ string, _ store.Queue, err error) { t.Error(err) }
			other := serve(t, &kahn.Runner{Options: []kahn.Option{kahn.Encoding(row.later)}}, x)
			time.Sleep(2 * time.Minute)
			require.Equal(t, kahn.RunCompleted, s.status(t, "r"))
			expectStatuses(t, s, "1 applied, 2 applied")
			end()
			other()
		})
	}
}

// Serve performs a run with a long step. If two requests for the run cannot be decoded, Serve reports each of them as soon as it has tried them again.
func TestServeReportsEachUnreadRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := new(served)
		g := flow("w", kahn.Node{ID: "long", Do: takes(10 * time.Second)}, gate("G"), gate("H"))
		s.create(t, g, time.Time{}, "r")
		x := s.service(g)
		x.Poll = time.Minute
		end := serve(t, &kahn.Runner{Options: []kahn.Option{kahn.Encoding(newLocked(false))}}, x)
		answer(t, s, "G", "1", "locked")
		answer(t, s, "H", "2", "locked")
		time.Sleep(500 * ms)
		first := s.take()
		time.Sleep(time.Second)
		second := s.take()
		end()
		require.Empty(t, first) // the key may still come
		require.Len(t, second, 2)
		for i, of := range []string{`request "1" for "G"`, `request "2" for "H"`} {
			require.Contains(t, second[i], of)
		}
	})
}

// awayBlobs is a blob store that does not answer while silent is set.
type awayBlobs struct {
	*store.MemoryBlobs
	silent atomic.Bool
}

func (b *awayBlobs) Get(ctx context.Context, key string) ([]byte, error) {
	if b.silent.Load() {
		return nil, errors.New("503 slow down")
	}
	return b.MemoryBlobs.Get(ctx, key)
}

// A run cannot read its first request, and takes the answer of the second. It then continues over a store without requests, and later over the first
// store again. The answer still counts.
func TestAnswerAheadWithoutRequests(t *testing.T) {
	t.Parallel()
	inBubble(t, "", func(t *testing.T) {
		db, g := new(store.Memory), graph(gate("G"), gate("H"), after("A", "G", "H"))
		life(t, g, nothing, db).expect("G:suspended H:suspended A:waiting", "suspended")
		answer(t, db, "G", "1", "locked yes")
		answer(t, db, "H", "2", "yes")
		r := life(t, g, nothing, db, kahn.Encoding(newLocked(false)))
		require.ErrorIs(t, r.err, kahn.ErrUndecoded)
		r.expect("G:suspended H:ok A:waiting", "suspended")
		expectStatuses(t, db, "1 waiting, 2 waiting") // the store accepts the answers in order
		r = life(t, g, nothing, struct{ store.Store }{db})
		require.NoError(t, r.err)
		r.expect("G:suspended H:ok A:waiting", "suspended")
		life(t, g, nothing, db, kahn.Encoding(newLocked(true))).expect("G:ok H:ok A:ok", "completed")
		expectStatuses(t, db, "1 applied, 2 applied")
	})
}
