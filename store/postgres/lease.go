package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/store"
)

// acquisition holds the arguments and results of a call of Acquire.
type acquisition struct {
	owner  string
	ttl    time.Duration
	key    *string // the key of the turn in which the run is acquired; nil in a call of Acquire
	run    *run    // nil if the run was not acquired; whoHolds says why
	stored *store.Run
	err    error // set if the run's row cannot be read
}

// Acquire implements [store.Store]. One statement creates the run, if necessary, and acquires it.
func (s *Store) Acquire(ctx context.Context, id, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	if err := s.enter(); err != nil {
		return store.Lease{}, nil, about("acquire", id, err)
	}
	defer s.workers.Done() // Close waits until this call has remembered the lease, and then releases the lease
	c := &call[*acquisition]{arg: &acquisition{owner: owner, ttl: ttl}, run: id}
	if err := s.acquire(ctx, c); err != nil {
		return store.Lease{}, nil, about("acquire", id, err)
	}
	s.remember(c.arg.run)
	return c.arg.run.lease, c.arg.stored, nil
}

func (s *Store) acquire(ctx context.Context, c *call[*acquisition]) error {
	if err := checkTexts(c.run, c.arg.owner); err != nil {
		return err
	}
	if err := s.acquires.do(ctx, c); err != nil {
		return err
	}
	return s.acquired(ctx, c)
}

// The method `acquired` completes a call of Acquire or AcquireTurn, after the statement that acquires the run.
func (s *Store) acquired(ctx context.Context, c *call[*acquisition]) error {
	r := c.arg.run
	if r == nil {
		return s.whoHolds(ctx, c.run, c.arg.key)
	}
	if err := s.complete(ctx, c.arg); err != nil { // if the run cannot be loaded, this process must not keep the lease of the run
		var rows leaseRows
		rows.add(r.lease, 0)
		// Release uses the line s.renewals, which Close may have closed. So this call executes the statement itself. If the statement fails, the
		// lease stays until it expires.
		_, _, _ = s.changeLeases(context.WithoutCancel(ctx), s.texts.release, &rows)
		return err
	}
	return nil
}

// AcquireTurn implements [store.TurnStore]. If the number of leased runs of the key is bounded, each run of the key is acquired in its own
// transaction, one after the other. While a transaction waits for the previous one, it holds no lock on the row of a run.
func (s *Store) AcquireTurn(ctx context.Context, id, owner string, ttl time.Duration, t store.Turn) (store.Lease, *store.Run, error) {
	if err := s.enter(); err != nil {
		return store.Lease{}, nil, about("acquire", id, err)
	}
	defer s.workers.Done()
	c := &call[*acquisition]{arg: &acquisition{owner: owner, ttl: ttl, key: &t.Key}, run: id}
	err := checkTexts(t.Key)
	switch {
	case err != nil:
	case t.Most <= 0 || t.Key == "":
		err = s.acquire(ctx, c)
	default:
		err = s.acquireWithin(ctx, c, t)
	}
	if err != nil {
		return store.Lease{}, nil, about("acquire", id, err)
	}
	s.remember(c.arg.run)
	return c.arg.run.lease, c.arg.stored, nil
}

// acquireWithin acquires a run of a key whose number of leased runs is bounded. A separate statement waits for the advisory lock of the key. So the
// next statement sees the leases that other processes have acquired during the wait.
func (s *Store) acquireWithin(ctx context.Context, c *call[*acquisition], t store.Turn) error {
	if err := checkTexts(c.run, c.arg.owner); err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := pgx.BeginTxFunc(bound, s.pool, s.begins(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(bound, "SELECT pg_advisory_xact_lock(hashtextextended($1, 2))", "kahn "+s.schema+" "+t.Key); err != nil {
			return err
		}
		var leased int
		if err := tx.QueryRow(bound, s.sql("SELECT ("+keyLeases+" AND o.id <> $2) FROM (SELECT $1::text AS run_key) r"), t.Key, c.run).Scan(&leased); err != nil {
			return err
		}
		if leased >= t.Most {
			return store.KeyFull(t)
		}
		return s.takeRows(bound, tx, []*call[*acquisition]{c})
	})
	if err != nil {
		return describe(err)
	}
	return s.acquired(ctx, c)
}

// The method `complete` loads the nodes of an acquired run. No other process writes these nodes while the lease lasts.
func (s *Store) complete(ctx context.Context, a *acquisition) error {
	if a.err != nil || a.stored.Sequence == 0 { // a run without commits has no nodes
		return a.err
	}
	stored, loaded, _, err := s.load(ctx, s.texts.load, a.run.lease.Run)
	if err == nil && loaded.lease != a.run.lease {
		err = fencedAt(a.run.lease.Epoch)
	}
	if err == nil {
		a.run, a.stored = loaded, stored
	}
	return err
}

// whoHolds returns the error for a run that was not acquired: another owner has the lease of the run, or no run has the given id and key.
func (s *Store) whoHolds(ctx context.Context, id string, key *string) error {
	var owner, has string
	there := false
	err := s.do(ctx, s.sql("SELECT r.owner, r.run_key FROM $S.runs r WHERE r.id = $1"), []any{id}, func(rows pgx.Rows) error {
		there = true
		return rows.Scan(&owner, &has)
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", store.ErrLeased, err)
	case key != nil && (!there || has != *key):
		return fmt.Errorf("%w with the key %s", store.ErrUnknownRun, foreign.Quote(*key))
	}
	return fmt.Errorf("%w, by %s", store.ErrLeased, foreign.Quote(owner))
}

// performAcquires acquires runs in one statement.
func (s *Store) performAcquires(batch []*call[*acquisition]) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	err := s.takeRows(ctx, s.pool, batch)
	for _, c := range batch {
		c.err = err
	}
	if len(batch) > 1 && isVerdict(err) {
		for i := range batch {
			s.performAcquires(batch[i : i+1])
		}
	}
}

// takeRows executes the statement that acquires runs.
func (s *Store) takeRows(ctx context.Context, db queryer, batch []*call[*acquisition]) error {
	var ids, owners []string
	var ttls []int64
	var keys []*string
	calls := map[string]*call[*acquisition]{}
	for _, c := range batch {
		ids, owners, ttls, keys = append(ids, c.run), append(owners, c.arg.owner), append(ttls, microseconds(c.arg.ttl)), append(keys, c.arg.key)
		calls[c.run] = c
	}
	return rowsOf(ctx, db, s.texts.acquire, []any{ids, owners, ttls, keys}, func(rows pgx.Rows) error {
		var number, epoch, sequence int64
		var h head
		if err := scan(rows, []any{&number, &epoch, &sequence}, h.targets()); err != nil {
			return err
		}
		a := calls[h.id].arg
		lease := store.Lease{Run: h.id, Owner: a.owner, Epoch: uint64(epoch)}
		if a.stored, a.err = h.run(); a.err != nil {
			a.stored = new(store.Run)
		}
		a.stored.Sequence = uint64(sequence)
		a.run = newRun(number, lease, a.stored)
		return nil
	})
}

// The function `microseconds` converts a duration and rounds up, so that a lease is never shorter than requested.
func microseconds(d time.Duration) int64 {
	us := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	return us
}

// renewal holds the arguments of a call of Renew or Release.
type renewal struct {
	lease   store.Lease
	ttl     time.Duration
	release bool
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) error {
	return about("renew", lease.Run, s.renewals.do(ctx, &call[renewal]{arg: renewal{lease: lease, ttl: ttl}, run: lease.Run}))
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, lease store.Lease) error {
	s.forget(lease)
	return about("release", lease.Run, s.renewals.do(ctx, &call[renewal]{arg: renewal{lease: lease, release: true}, run: lease.Run}))
}

// performRenewals renews leases in one statement, and releases leases in another one.
func (s *Store) performRenewals(batch []*call[renewal]) {
	var renewed, released leaseRows
	for _, c := range batch {
		if c.arg.release {
			released.add(c.arg.lease, 0)
		} else {
			renewed.add(c.arg.lease, c.arg.ttl)
		}
	}
	s.settle(batch, true, s.texts.release, &released)
	s.settle(batch, false, s.texts.renew, &renewed, renewed.ttls)
}

// The method `settle` renews leases, or releases them if the parameter "release" is set. Then it sets the errors of the calls that asked for the
// renewal or the release.
func (s *Store) settle(batch []*call[renewal], release bool, text string, rows *leaseRows, more ...any) {
	done, lasting, err := s.changeLeases(context.Background(), text, rows, more...)
	for _, c := range batch {
		switch {
		case c.arg.release != release:
		case err != nil:
			c.err = err
		case done[c.run]:
		case lasting[c.run]:
			c.err = errLocked
		case !release:
			c.err = s.refused(c.arg.lease)
		}
	}
}

// leaseRows holds leases, one slice for each column.
type leaseRows struct {
	ids, owners  []string
	epochs, ttls []int64
}

func (r *leaseRows) add(l store.Lease, ttl time.Duration) {
	r.ids, r.owners = append(r.ids, l.Run), append(r.owners, l.Owner)
	r.epochs, r.ttls = append(r.epochs, int64(l.Epoch)), append(r.ttls, microseconds(ttl))
}

// changeLeases renews or releases leases in one statement. The result "done" contains the runs whose leases the statement has changed. If the
// statement has left out a lease, the result "lasting" contains the runs whose leases have not expired. If a run is in "lasting" but not in "done",
// another transaction had locked the row of the run.
func (s *Store) changeLeases(ctx context.Context, text string, leases *leaseRows, more ...any) (done, lasting map[string]bool, err error) {
	if len(leases.ids) == 0 {
		return nil, nil, nil
	}
	ids := func(text string, args ...any) (map[string]bool, error) {
		found := map[string]bool{}
		err := s.do(ctx, text, append([]any{leases.ids, leases.owners, leases.epochs}, args...), func(rows pgx.Rows) error {
			var id string
			err := rows.Scan(&id, nil)
			found[id] = true
			return err
		})
		return found, err
	}
	if done, err = ids(text, more...); err == nil && len(done) < len(leases.ids) {
		lasting, err = ids(s.texts.leases)
	}
	return done, lasting, err
}

// releaseAll releases all remembered leases. If another transaction has locked the row of a run, releaseAll lets the lease of that run expire.
func (s *Store) releaseAll() error {
	var rows leaseRows
	s.mu.Lock()
	for _, r := range s.held {
		rows.add(r.lease, 0)
	}
	clear(s.held)
	s.mu.Unlock()
	_, _, err := s.changeLeases(context.Background(), s.texts.release, &rows)
	return err
}

// The method `refused` returns the error for a lease that was not renewed.
func (s *Store) refused(l store.Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	if _, _, _, _, err := s.head(ctx, s.pool, l.Run); err != nil {
		return err
	}
	return fencedAt(l.Epoch)
}

func fencedAt(epoch uint64) error { return fmt.Errorf("%w: epoch %d", store.ErrFenced, epoch) }

// ReadLease implements [store.LeaseReader].
func (s *Store) ReadLease(ctx context.Context, id string) (owner string, until time.Time, err error) {
	err, there := s.check(ctx), false
	if err == nil && storable(id) {
		text := s.sql("SELECT CASE WHEN r.expires > $NOW THEN r.owner ELSE '' END, CASE WHEN r.expires > $NOW AND r.owner <> '' THEN r.expires END FROM $S.runs r WHERE r.id = $1")
		err = s.do(ctx, text, []any{id}, func(rows pgx.Rows) error {
			there = true
			var end *time.Time
			err := rows.Scan(&owner, &end)
			if end != nil {
				until = end.UTC()
			}
			return err
		})
	}
	if err == nil && !there {
		err = store.ErrUnknownRun
	}
	return owner, until, about("read the lease of", id, err)
}
