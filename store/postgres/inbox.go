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

// wakesAt is the expression for the WakeAt of a run: the time in the column "wake". While a request waits, it is the earlier one of the columns
// "wake" and "since". Before a run has begun, its waiting requests count only if one of its requests was a cancel. The run has begun if its status is
// not pending. The expression does not use the column "sequence": each commit changes this column, so it must not be in an index.
const wakesAt = "CASE WHEN r.posted > r.taken AND (r.status <> 'pending' OR r.urgent) THEN least(r.wake, r.since) ELSE r.wake END"

// answerRows holds answers to requests, one slice for each column.
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

// lastTaken returns the number of the last request that a commit answers, or nil if the commit answers no request.
func lastTaken(c *store.Commit) *int64 {
	if len(c.Taken) == 0 {
		return nil
	}
	last := int64(c.Taken[len(c.Taken)-1].Number)
	return &last
}

// postText is the statement that posts a request. It returns the run's status, the request that was stored under the id before, and whether the
// statement has written the new request. The third column calls pg_notify, and is true only if the statement has written the request. Posts for one
// run wait for one another. If two concurrent posts for a run have the same id, the second one can fail because the key exists. Then Post executes it
// again.
const postText = `WITH asked AS MATERIALIZED (SELECT r.run, r.status FROM $S.runs r WHERE r.id = $1 FOR NO KEY UPDATE),
old AS MATERIALIZED (SELECT q.request FROM $S.requests q JOIN asked USING (run) WHERE sha256(q.id) = sha256($2)),
counted AS (
	UPDATE $S.runs r SET posted = r.posted + 1, since = CASE WHEN r.posted > r.taken THEN r.since ELSE $NOW END, urgent = r.urgent OR $4
	FROM asked a WHERE r.run = a.run AND (a.status IN ('completed', 'failed', 'cancelled')) = $8 AND NOT EXISTS (SELECT FROM old) RETURNING r.run, r.posted
),
written AS (INSERT INTO $S.requests (run, number, id, posted, request) SELECT c.run, c.posted, $2, $NOW, $3 FROM counted c),
linked AS (INSERT INTO $S.blobs SELECT b.key, c.run FROM counted c CROSS JOIN unnest($5::text[]) AS b(key) ON CONFLICT DO NOTHING)
SELECT a.status, (SELECT o.request FROM old o), (SELECT pg_notify($6, $7)::text FROM counted) IS NOT NULL FROM asked a`

// The function `channel` returns the name of the channel on which the server reports requests, due runs and created runs of a schema.
func channel(schema string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(schema)) // writing to a hash never fails
	return fmt.Sprintf("kahn_requests_%x", h.Sum64())
}

// Post implements [store.Inbox] with one statement.
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

// collides reports whether a statement failed because a concurrent statement wrote the same key.
func collides(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == "23505"
}

// PostTx does the same as Post in a transaction of the program in the store's database. When the transaction is committed, the request is stored, and
// the server notifies the stores that listen. A store that does not listen finds the request within [Options].Poll. The Store whose PostTx was called
// finds it in the same way. If PostTx returns an error that [store.Inbox] documents for Post, for example [store.ErrEnded], the transaction remains
// usable.
//
// PostTx locks the row of the run until the transaction ends. Commits of the run and renewals of its lease wait meanwhile, so keep the transaction
// shorter than the lease. If a transaction posts for several runs, it should post in the order of their ids. Otherwise two transactions can deadlock.
// Only the context limits how long PostTx may take.
func (s *Store) PostTx(ctx context.Context, tx pgx.Tx, run string, q store.Request) (posted bool, err error) {
	if err = errors.Join(q.Check(), s.check(ctx)); err == nil && storable(run) {
		// The posting statement begins after this statement has locked the row. So it sees the requests that other transactions have committed.
		_, err = tx.Exec(ctx, s.sql("SELECT FROM $S.runs r WHERE r.id = $1 FOR NO KEY UPDATE"), run)
		err = describe(err)
	}
	if err == nil {
		posted, err = s.post(ctx, tx, run, &q)
	}
	return posted, about("post for", run, err)
}

// The method `post` does what Post and PostTx do, in a pool or in a transaction.
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
	run, known, stored := store.Run{ID: id}, false, (*store.Request)(nil)
	args := []any{id, []byte(q.ID), content, q.Wakes(false), store.BlobKeys(q.Value), channel(s.schema), id, q.Kind == store.KindRedrive}
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

// requestsQuery reads the requests of a run that meet a condition. If no request meets it, the result has one row without a request.
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
	list, err := s.readRequests(ctx, run, "sha256(q.id) = sha256($2)", []byte(id))
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%w: %s", store.ErrUnknownRequest, foreign.Quote(id))
	}
	if err != nil {
		return store.PostedRequest{}, about("find a request for", run, err)
	}
	return list[0], nil
}

// WatchRequests implements [store.Inbox]. If [Options].Listen is set, the server notifies this Store when another process posts a request. In any
// case one goroutine looks for the requests of all runs every [Options].Poll.
func (s *Store) WatchRequests(run string, arrived func(run string)) (stop func()) {
	return s.requests.Watch(run, arrived)
}

// The type `lookout` finds runs with waiting requests. Only the goroutine of the Poller uses the lookout.
type lookout struct {
	store *Store
	seen  string // the oldest transaction that had not ended at the last look; "" before the first look
}

// These are the statements of a look. Each statement returns at least one row. The first column is the oldest transaction that has not ended. The
// requests of this transaction may become visible only after this look. So the next look reads the requests of this transaction and of all later
// ones. allWaiting finds all runs with waiting requests; the index runs_waiting contains only these runs. newWaiting finds only some
// of these runs: the runs whose ids are in $2, and the runs for which transaction $1 or a later one has posted a request.
const (
	oldestWriter = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text, w.id, w.posted FROM (SELECT) one LEFT JOIN ("
	allWaiting   = oldestWriter + "SELECT r.id, r.posted FROM $S.runs r WHERE r.posted > r.taken) w ON true"
	newWaiting   = oldestWriter + `SELECT r.id, r.posted FROM $S.requests q JOIN $S.runs r USING (run) WHERE q.tx >= $1::text::xid8 AND r.posted > r.taken
UNION SELECT r.id, r.posted FROM $S.runs r WHERE r.id = ANY ($2) AND r.posted > r.taken) w ON true`
)

// The method `look` implements the function Look of the Poller. It reads what was posted since the last look.
func (l *lookout) look(ctx context.Context, asked notify.Question) (found []notify.Sighting, unchanged bool, err error) {
	text, args := allWaiting, []any(nil)
	if l.seen != "" && !asked.All {
		text, args = newWaiting, []any{l.seen, append([]string{}, asked.Names...)}
	}
	seen := ""
	err = l.store.do(ctx, l.store.sql(text), args, func(rows pgx.Rows) error {
		var id *string
		var posted *uint64
		err := rows.Scan(&seen, &id, &posted)
		if id != nil && posted != nil {
			found = append(found, notify.Sighting{Name: *id, Version: *posted})
		}
		return err
	})
	if err == nil {
		l.seen = seen
	}
	return found, false, err
}

// Before the listener connects again, it pauses for at least minListenPause and at most maxListenPause. When it has received no notification for
// listenAlive, it checks whether its connection is alive.
const (
	minListenPause = 100 * time.Millisecond
	maxListenPause = 5 * time.Second
	listenAlive    = 15 * time.Second
)

// The method `listen` listens for notifications until the context ends. When its connection breaks, it opens another one.
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

// listenOnce opens a connection and listens as long as it lasts. The result is false if the connection could not be opened, or if the server refused
// LISTEN. While there is no connection, polling finds the posted requests. When the next connection listens, the store looks for all waiting requests
// at once.
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
		_ = conn.Close(closing) // an error does not matter, because the connection is not used again
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
		case err == nil:
			s.requests.Tell(n.Payload)
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
