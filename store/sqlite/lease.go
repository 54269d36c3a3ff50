package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// leaseStatements are the statements about the lease of a run.
type leaseStatements struct {
	find    *statement // the owner and process of a run's lease, and whether the lease still lasts
	make    *statement
	take    *statement
	renew   *statement
	release *statement
	check   *statement
}

// The constant `holds` is the condition that a lease is the newest of its run and has not expired. %s is the time.
const holds = "owner = ? AND epoch = ? AND owner <> '' AND expires > %s"

func (l *leaseStatements) prepare(w *writer, now string, err *error) {
	held := fmt.Sprintf(holds, now)
	l.find = w.prepare(err, "SELECT owner, process, expires > "+now+" FROM kahn_runs WHERE id = ?")
	l.make = w.prepare(err, "INSERT INTO kahn_runs (id, status, sequence, nodes, created, epoch, owner, expires, process, checksum) VALUES (?, 'pending', 0, 0, "+now+", 1, ?, "+now+" + ?, ?, ?) RETURNING run, created")
	l.take = w.prepare(err, "UPDATE kahn_runs SET owner = ?, process = ?, epoch = epoch + 1, expires = "+now+" + ? WHERE id = ? RETURNING epoch")
	l.renew = w.prepare(err, "UPDATE kahn_runs SET expires = "+now+" + ? WHERE id = ? AND "+held)
	l.release = w.prepare(err, "UPDATE kahn_runs SET owner = '' WHERE id = ? AND owner = ? AND epoch = ?")
	l.check = w.prepare(err, "SELECT "+held+" FROM kahn_runs WHERE id = ?")
}

// Acquire implements [store.Store]. It does not wait for the lease of a dead process to run out. While the lease of a living process lasts, a call of
// Acquire in another process, or for another owner, returns an error that matches [store.ErrLeased]. If the other process uses the same owner, the
// error also matches [store.ErrOwnerInUse].
func (s *Store) Acquire(ctx context.Context, id, owner string, ttl time.Duration) (lease store.Lease, stored *store.Run, err error) {
	if err := ctx.Err(); err != nil {
		return store.Lease{}, nil, err
	}
	w := s.writer
	var refused error
	err = w.write(ctx, func() (err error) {
		lease, stored, refused, err = s.acquire(id, owner, ttl)
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return store.Lease{}, nil, s.about("acquire", id, err)
	}
	return lease, stored, nil
}

// acquire does what Acquire does, within a transaction. If another owner or process has the lease of the run, or if the run is damaged, the error is
// in the result "refused".
func (s *Store) acquire(id, owner string, ttl time.Duration) (lease store.Lease, stored *store.Run, refused, err error) {
	w := s.writer
	there, held, other := false, false, ""
	var process int64
	err = w.leases.find.query(func(row []driver.Value) error {
		there, other, process = true, row[0].(string), row[1].(int64)
		held = row[2].(int64) != 0 && other != "" && (other != owner || process != s.process)
		return nil
	}, id)
	switch {
	case err != nil:
		return lease, nil, nil, err
	case !there:
		lease, stored, err = s.create(id, owner, ttl)
		return lease, stored, nil, err
	case held:
		dead, err := s.hasDied(process)
		if err == nil && dead {
			err = s.forget(process)
		}
		switch {
		case err != nil:
			return lease, nil, nil, err
		case !dead && other == owner:
			return lease, nil, fmt.Errorf("%w: %w", store.ErrLeased, store.OwnerInUse(owner)), nil
		case !dead:
			return lease, nil, fmt.Errorf("%w, by %s", store.ErrLeased, strconv.Quote(other)), nil
		}
	}
	stored, known, refused, err := w.loader.load(id) // load before taking the lease, so that a run that cannot be loaded stays free
	if err != nil || refused != nil {
		return lease, nil, refused, err
	}
	lease = store.Lease{Run: id, Owner: owner}
	err = w.leases.take.query(func(row []driver.Value) error {
		lease.Epoch = uint64(row[0].(int64))
		return nil
	}, owner, s.process, milliseconds(ttl), id)
	if err != nil {
		return lease, nil, nil, err
	}
	known.lease = lease
	w.runs[id] = known
	return lease, stored, nil, nil
}

// create makes a run with its first lease. It runs within a transaction.
func (s *Store) create(id, owner string, ttl time.Duration) (store.Lease, *store.Run, error) {
	w := s.writer
	r := &run{id: id, status: machine.RunPending, lease: store.Lease{Run: id, Owner: owner, Epoch: 1}, nodes: map[string]*node{}}
	made := &store.Run{ID: id, Nodes: map[string]store.Node{}}
	err := w.leases.make.query(func(row []driver.Value) error {
		r.number, made.Created = row[0].(int64), timeOf(row[1])
		return nil
	}, id, owner, milliseconds(ttl), s.process, r.checksum(&w.sums))
	if err != nil {
		return store.Lease{}, nil, err
	}
	w.runs[id] = r
	return r.lease, made, nil
}

// The function `milliseconds` converts a duration and rounds up, so that a lease is never shorter than requested.
func milliseconds(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, lease store.Lease, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := s.writer
	var refused error
	err := w.write(ctx, func() error {
		refused = nil
		changed, err := w.leases.renew.exec(milliseconds(ttl), lease.Run, lease.Owner, int64(lease.Epoch))
		if err == nil && changed == 0 {
			refused, err = w.held(lease)
		}
		return err
	})
	if err == nil {
		err = refused
	}
	return s.about("renew", lease.Run, err)
}

// Release implements [store.Store].
func (s *Store) Release(ctx context.Context, lease store.Lease) error {
	w := s.writer
	err := w.write(ctx, func() error {
		if r := w.runs[lease.Run]; r != nil && r.lease == lease {
			delete(w.runs, lease.Run)
		}
		_, err := w.leases.release.exec(lease.Run, lease.Owner, int64(lease.Epoch))
		return err
	})
	return s.about("release", lease.Run, err)
}

// The method `held` checks a lease. The result "refused" is an error if the lease has run out, was released, or is not the newest of its run, or if
// the run is not stored. The method runs within a transaction.
func (w *writer) held(lease store.Lease) (refused, err error) {
	there, held := false, false
	err = w.leases.check.query(func(row []driver.Value) error {
		there, held = true, row[0].(int64) != 0
		return nil
	}, lease.Owner, int64(lease.Epoch), lease.Run)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return store.ErrUnknownRun, nil
	case !held:
		return fmt.Errorf("%w: epoch %d", store.ErrFenced, lease.Epoch), nil
	}
	return nil, nil
}

// The method `about` adds the name of the call and the run's id to an error. If the run is not found, it also adds the path of the file, since the
// program may have opened the wrong file, for example by a relative path.
func (s *Store) about(call, id string, err error) error {
	if err == nil {
		return nil
	}
	if s.path != "" && errors.Is(err, store.ErrUnknownRun) {
		err = fmt.Errorf("%w: the file %s does not have it; it is in another file, or was removed", err, strconv.Quote(s.path))
	}
	return fmt.Errorf("%s run %s: %w", call, strconv.Quote(id), err)
}

// ReadLease implements [store.LeaseReader]. It returns the lease of a dead process until the lease runs out, or until a living process
// frees or takes it.
func (s *Store) ReadLease(ctx context.Context, id string) (owner string, until time.Time, err error) {
	there := false
	err = s.view(ctx, func(do execution) error {
		return do(sqlAt("SELECT owner, expires, expires > %s FROM kahn_runs WHERE id = ?", s.now), func(row []driver.Value) error {
			there = true
			if name := row[0].(string); name != "" && row[2].(int64) != 0 {
				owner, until = name, time.UnixMilli(row[1].(int64)).UTC()
			}
			return nil
		}, id)
	})
	if err == nil && !there {
		err = store.ErrUnknownRun
	}
	return owner, until, s.about("read the lease of", id, err)
}
