package postgres_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/postgres"
	"github.com/seed-c794f7ef/kahn/store/postgres/postgrestest"
)

// row returns a chain of n nodes.
func row(n int) *kahn.Graph {
	g := &kahn.Graph{Name: "row"}
	for i := range n {
		node := kahn.Node{ID: fmt.Sprint("n", i)}
		if i > 0 {
			node.After = []string{fmt.Sprint("n", i-1)}
		}
		g.Add(node)
	}
	return g
}

// performance says how many chains are performed, and how many steps each has.
type performance struct{ runs, steps int }

// chains are a few long chains.
var chains = performance{runs: 5, steps: 100}

// performing performs chains over a store, at most a hundred at once, while the function "disturb" interferes, and then checks what is stored.
// Each step must be called once, since the disturbances are shorter than the leases.
func performing(t *testing.T, s, reader *postgres.Store, p performance, disturb func(progress func() int)) {
	t.Helper()
	called, lives := make([][]int, p.runs), make([]int, p.runs)
	var progress atomic.Int64
	over, slots := make(chan error, p.runs), make(chan bool, 100)
	for i := range p.runs {
		called[i] = make([]int, p.steps)
		step := func(_ context.Context, step *kahn.Step) (any, error) {
			n, err := strconv.Atoi(step.ID()[1:])
			called[i][n]++ // no lock is needed, since the steps of a chain run one after the other
			progress.Add(1)
			return n, err
		}
		go func() {
			slots <- true
			defer func() { <-slots }()
			for {
				lives[i]++
				_, err := kahn.Execute(t.Context(), row(p.steps), step, kahn.RunID(fmt.Sprint("r", i)), kahn.Durable(s), kahn.Lease("", time.Minute), kahn.Lease("owner", 0))
				if !errors.Is(err, kahn.ErrStore) || called[i][0] > 0 { // begin anew if the first call of the store failed: the engine does not repeat Acquire or the first write
					over <- err
					return
				}
			}
		}()
	}
	if disturb != nil {
		disturb(func() int { return int(progress.Load()) })
	}
	for range p.runs {
		require.NoError(t, <-over)
	}
	for i := range p.runs {
		for n, times := range called[i] {
			require.Equal(t, 1, times, "step %d of run %d", n, i)
		}
		stored, err := reader.Load(t.Context(), fmt.Sprint("r", i))
		for tries := 0; err != nil && tries < 100; tries++ { // the pool may still have connections that broke when the server restarted
			stored, err = reader.Load(t.Context(), fmt.Sprint("r", i))
		}
		require.NoError(t, err)
		require.Equal(t, kahn.RunCompleted, stored.Status)
		require.Len(t, stored.Nodes, p.steps)
		require.LessOrEqual(t, stored.Sequence, uint64(p.steps+1+lives[i]), "a commit was applied twice") // each Execute begins with one commit
	}
}

// link is a proxy between the store and the server. It cuts connections at random, after a message or within one.
type link struct {
	listener net.Listener
	server   string
	messages atomic.Int64 // how many messages pass before the next cut; far below zero means no cuts
	cuts     atomic.Int64
	mu       sync.Mutex
	random   *rand.Rand
}

func newLink(t *testing.T, server string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{listener: listener, server: server, random: rand.New(rand.NewPCG(41, 43))}
	l.next()
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			connections.Go(func() { l.serve(client) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		connections.Wait()
	})
	return l
}

// next chooses when the next cut happens. Loading a run takes about a hundred messages.
func (l *link) next() { l.messages.Store(int64(150 + l.intN(400))) }

func (l *link) intN(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.IntN(n)
}

func (l *link) serve(client net.Conn) {
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		client.Close()
		return
	}
	cut := func() {
		client.Close()
		server.Close()
	}
	var ways sync.WaitGroup
	ways.Go(func() {
		defer cut()
		_ = l.pass(client, server, true) // pass returns an error when the connection ends
	})
	ways.Go(func() {
		defer cut()
		_ = l.pass(server, client, false)
	})
	ways.Wait()
}

var errCut = errors.New("the link is cut")

// pass copies messages until the connection is cut or ends. The first message of a client has no type.
func (l *link) pass(from io.Reader, to io.Writer, untyped bool) error {
	reader := bufio.NewReader(from)
	for {
		head := make([]byte, 5)
		if untyped {
			head, untyped = head[:4], false
		}
		if _, err := io.ReadFull(reader, head); err != nil {
			return err
		}
		message := make([]byte, len(head)-4+int(binary.BigEndian.Uint32(head[len(head)-4:])))
		copy(message, head)
		if _, err := io.ReadFull(reader, message[len(head):]); err != nil {
			return err
		}
		last := l.messages.Add(-1) == 0
		if last && l.intN(2) == 0 {
			message = message[:l.intN(len(message))]
		}
		_, err := to.Write(message)
		if last {
			l.cuts.Add(1)
			l.next()
			return errCut
		}
		if err != nil {
			return err
		}
	}
}

// TestLinkIsCut: connections break between messages and within them, so that statements and answers are lost. Even so, no step is called twice,
// and no commit is applied twice.
func TestLinkIsCut(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(database)
	require.NoError(t, err)
	if u.Hostname() == "" {
		t.Skip("the server is not reached over TCP: there is no link to be cut")
	}
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	l := newLink(t, net.JoinHostPort(u.Hostname(), port))
	u.Host = l.listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	schema := newSchema()
	direct := postgrestest.NewPool(t, database)
	reader := openStore(t, direct, schema)
	pool := postgrestest.NewPool(t, u.String(), func(c *pgxpool.Config) { c.MaxConns = 4 })
	var s *postgres.Store
	require.Eventually(t, func() bool {
		s, err = postgres.Open(t.Context(), pool, postgres.Options{Schema: schema})
		return err == nil
	}, 10*time.Second, time.Millisecond, "%v", err)
	for range size(3, 100) {
		performing(t, s, reader, chains, nil)
		_, err := direct.Exec(t.Context(), "TRUNCATE "+table(schema, "runs")+", "+table(schema, "nodes"))
		require.NoError(t, err)
	}
	require.Greater(t, l.cuts.Load(), int64(5))
	l.messages.Store(-1 << 40) // no more cuts
	require.Eventually(t, func() bool { return s.Close() == nil }, 10*time.Second, time.Millisecond)
}

// TestTimeout: a call returns an error if the server does not answer in time; repeating the call does not apply it twice.
func TestTimeout(t *testing.T) {
	t.Parallel()
	pool, schema := postgrestest.NewPool(t, database), newSchema()
	s, err := postgres.Open(t.Context(), pool, postgres.Options{Schema: schema, Timeout: 300 * time.Millisecond})
	require.NoError(t, err)
	lease := begun(t, s, "r")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()                         // does nothing after the Rollback below
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+table(schema, "runs")+" IN ACCESS EXCLUSIVE MODE") // every statement of the store waits for this lock
	require.NoError(t, err)
	c := store.Commit{Sequence: 2, Started: []store.Attempt{{Node: "a", Attempt: 1}}}
	_, err = s.Commit(t.Context(), lease, c)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, store.ErrUnusable)
	_, err = s.Load(t.Context(), "r")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = s.Commit(ended, lease, c) // a caller whose context ends does not wait for the server
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Eventually(t, func() bool {
		a, err := s.Commit(t.Context(), lease, c)
		return err == nil && (a == store.AppliedNow || a == store.Duplicate)
	}, 5*time.Second, time.Millisecond)
	r, err := s.Load(t.Context(), "r")
	require.NoError(t, err)
	require.Equal(t, uint64(2), r.Sequence)
	require.Equal(t, int32(1), r.Nodes["a"].Attempt)
	require.NoError(t, s.Close())
}
