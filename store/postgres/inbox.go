package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/internal/notify"
	"github.com/seed-c794f7ef/kahn/store"
)

// wakesAt is when a run goes on without a signal: a request that waits has made it due.
const wakesAt = "CASE WHEN r.posted > r.taken AND (r.status <> 'pending' OR r.urgent) THEN least(r.wake, r.since) ELSE r.wake END"

// answerRows are answers to requests, by columns.
type answerRows struct {
	runs, numbers []int64
	answers       [][]byte
}

const answerColumns = "run bigint, number bigint, answer bytea"

func (a *answerRows) add(run int64, taken []store.TakenRequest) {
	for i := range taken {
		t := &taken[i]
		a.runs, a.numbers, a.answers = append(a.runs, run), append(a.numbers, int64(t.Number)), append(a.answers, []byte(t.Refused))
	}
}

// lastTaken is the number of the last request that a commit answers, nil if it answers none.
func lastTaken(c *store.Commit) *int64 {
	if len(c.Taken) == 0 {
		return nil
	}
	last := int64(c.Taken[len(c.Taken)-1].Number)
	return &last
}

// maxPayload is how long the payload of a notification is. The notification of a run with a longer id leaves the id out.
const maxPayload = 7000

// postText is the statement that posts a request. It returns the run's status and the request that is stored under the id, and whether it has
// written the new one. Posters of one run wait for one another. Two that post the same id at the same moment collide, and one of them repeats it.
const postText = `WITH asked AS MATERIALIZED (SELECT r.run, r.status FROM $S.runs r WHERE r.id = $1 FOR NO KEY UPDATE),
old AS MATERIALIZED (SELECT q.request FROM $S.requests q JOIN asked USING (run) WHERE q.id = $2),
counted AS (
	UPDATE $S.runs r SET posted = r.posted + 1, since = CASE WHEN r.posted > r.taken THEN r.since ELSE $NOW END, urgent = r.urgent OR $4
	FROM asked a WHERE r.run = a.run AND a.status NOT IN ('completed', 'failed', 'cancelled') AND NOT EXISTS (SELECT FROM old) RETURNING r.run, r.posted
),
written AS (INSERT INTO $S.requests (run, number, id, posted, request) SELECT c.run, c.posted, $2, $NOW, $3 FROM counted c),
linked AS (INSERT INTO $S.blobs SELECT b.key, c.run FROM counted c CROSS JOIN unnest($5::text[]) AS b(key) ON CONFLICT DO NOTHING)
SELECT a.status, (SELECT o.request FROM old o), (SELECT pg_notify($6, $7)::text FROM counted) IS NOT NULL FROM asked a`

// channel is the channel on which the server notifies of requests for the runs of a schema.
func channel(schema string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(schema)) // it never fails
	return fmt.Sprintf("kahn_requests_%x", h.Sum64())
}

// Post implements [store.Inbox], in one statement.
func (s *Store) Post(ctx context.Context, run string, q store.Request) (posted bool, err error) {
	if err := errors.Join(q.Check(), s.check(ctx)); err != nil {
		return false, about("post for", run, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	for range 3 {
		if posted, err = s.post(ctx, s.pool, run, &q); !collides(err) {
			break
		}
	}
	if err == nil && posted {
		s.requests.Tell(run)
	}
	return posted, about("post for", run, err)
}

// collides reports whether a statement has met another one that wrote the same key at the same moment.
func collides(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == "23505"
}

// PostTx is Post in a transaction of the program's own, in the database of the store: the request is there, and watchers are told, when the
// transaction is committed. An error of [store.Inbox] leaves the transaction as it was. Commits of the run wait until the transaction has ended.
func (s *Store) PostTx(ctx context.Context, tx pgx.Tx, run string, q store.Request) (posted bool, err error) {
	if err = errors.Join(q.Check(), s.check(ctx)); err == nil && storable(run) {
		// The statement that posts begins when the lock is held, so it sees what others have posted.
		_, err = tx.Exec(ctx, s.sql("SELECT FROM $S.runs r WHERE r.id = $1 FOR NO KEY UPDATE"), run)
		err = describe(err)
	}
	if err == nil {
		posted, err = s.post(ctx, tx, run, &q)
	}
	return posted, about("post for", run, err)
}

// post is Post over a pool or a transaction.
func (s *Store) post(ctx context.Context, db queryer, id string, q *store.Request) (posted bool, err error) {
	if !storable(id) {
		return false, store.ErrUnknownRun
	}
	if err := s.CheckValue(q.Value); err != nil {
		return false, err
	}
	content, err := json.Marshal(q)
	if err != nil {
		return false, err
	}
	payload := id
	if len(payload) > maxPayload {
		payload = ""
	}
	run, known, stored := store.Run{ID: id}, false, (*store.Request)(nil)
	args := []any{id, []byte(q.ID), content, q.Wakes(false), store.BlobKeys(q.Value), channel(s.schema), payload}
	err = rowsOf(ctx, db, s.sql(postText), args, func(rows pgx.Rows) error {
		var status string
		var old []byte
		if err := rows.Scan(&status, &old, &posted); err != nil {
			return err
		}
		known = true
		err := run.Status.UnmarshalText([]byte(status))
		if old != nil {
			stored = new(store.Request)
			err = errors.Join(err, json.Unmarshal(old, stored))
		}
		return err
	})
	switch {
	case err != nil:
		return false, err
	case !known:
		return false, store.ErrUnknownRun
	case posted:
		return true, nil
	}
	_, err = q.Judge(&run, stored)
	return false, err
}

// requestsQuery is a part of the requests of a run. It has one row without a request if there is none.
const requestsQuery = `SELECT r.taken, q.number, q.posted, q.request, q.answer
FROM $S.runs r LEFT JOIN LATERAL (SELECT * FROM $S.requests q WHERE q.run = r.run AND %s) q ON true WHERE r.id = $1 ORDER BY q.number`

// readRequests reads the requests that a condition selects.
func (s *Store) readRequests(ctx context.Context, run, condition string, args ...any) (list []store.PostedRequest, err error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	if !storable(run) {
		return nil, store.ErrUnknownRun
	}
	known := false
	err = s.do(ctx, s.sql(fmt.Sprintf(requestsQuery, condition)), append([]any{run}, args...), func(rows pgx.Rows) error {
		var taken uint64
		var number *int64
		var posted pgtype.Timestamptz
		var content, answer []byte
		if err := rows.Scan(&taken, &number, &posted, &content, &answer); err != nil {
			return err
		}
		if known = true; number == nil {
			return nil
		}
		q := store.PostedRequest{Number: uint64(*number), Posted: timeOf(posted)}
		if err := json.Unmarshal(content, &q.Request); err != nil {
			return fmt.Errorf("%w: request %d: %w", ErrDamaged, *number, err)
		}
		var refused *string
		if answer != nil {
			text := string(answer)
			refused = &text
		}
		q.Settle(taken, refused)
		list = append(list, q)
		return nil
	})
	if err == nil && !known {
		err = store.ErrUnknownRun
	}
	return list, err
}

// LoadRequests implements [store.Inbox].
func (s *Store) LoadRequests(ctx context.Context, run string, after uint64, limit int) ([]store.PostedRequest, error) {
	list, err := s.readRequests(ctx, run, "q.number > $2 ORDER BY q.number LIMIT $3", int64(min(after, math.MaxInt64)), limit)
	if err != nil {
		return nil, about("load requests for", run, err)
	}
	return list, nil
}

// FindRequest implements [store.Inbox].
func (s *Store) FindRequest(ctx context.Context, run, id string) (store.PostedRequest, error) {
	list, err := s.readRequests(ctx, run, "q.id = $2", []byte(id))
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%w: %s", store.ErrUnknownRequest, foreign.Quote(id))
	}
	if err != nil {
		return store.PostedRequest{}, about("find a request for", run, err)
	}
	return list[0], nil
}

// WatchRequests implements [store.Inbox]. With [Options].Listen the server notifies this Store of requests that other processes post; else, and
// behind that, one goroutine asks for those of all runs each [Options].Poll.
func (s *Store) WatchRequests(run string, arrived func(run string)) (stop func()) {
	return s.requests.Watch(run, arrived)
}

// lookForRequests is the Look of the Poller. It finds the runs with requests that wait, by an index that has no others.
func (s *Store) lookForRequests(ctx context.Context, _ bool) (found []notify.Sighting, unchanged bool, err error) {
	err = s.do(ctx, s.sql("SELECT r.id, r.posted FROM $S.runs r WHERE r.posted > r.taken"), nil, func(rows pgx.Rows) error {
		var x notify.Sighting
		err := rows.Scan(&x.Name, &x.Version)
		found = append(found, x)
		return err
	})
	return found, false, err
}

// The pauses of the listener: before it connects again, and after which it asks whether its connection is alive.
const (
	minListenPause = 100 * time.Millisecond
	maxListenPause = 5 * time.Second
	listenAlive    = 15 * time.Second
)

// listen listens for notifications until the context ends, over one connection after the other.
func (s *Store) listen(ctx context.Context, config *pgx.ConnConfig) {
	for pause := minListenPause; ctx.Err() == nil; pause = min(2*pause, maxListenPause) {
		if s.listenOnce(ctx, config) {
			pause = minListenPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// listenOnce listens as long as a connection lasts, and reports whether there was one. What is posted while there is none is found by polling, and
// when the next one begins.
func (s *Store) listenOnce(ctx context.Context, config *pgx.ConnConfig) (listened bool) {
	opening, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(opening, config)
	if err != nil {
		return false
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing) // the server ends it
	}()
	if _, err := conn.Exec(opening, "LISTEN "+channel(s.schema)); err != nil {
		return false
	}
	s.requests.Hurry()
	for {
		waiting, cancel := context.WithTimeout(ctx, listenAlive)
		n, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil && n.Payload != "":
			s.requests.Tell(n.Payload)
		case err == nil:
			s.requests.Hurry()
		case ctx.Err() != nil || conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded):
			return true
		default:
			alive, cancel := context.WithTimeout(ctx, s.timeout)
			err := conn.Ping(alive)
			if cancel(); err != nil {
				return true
			}
		}
	}
}
