package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// processLock shows other processes that this process is alive. It is a lock of the operating system on a file beside the database, so it ends
// with the process. The lock is taken through SQLite, which supports file locks on every system.
type processLock struct {
	conn driver.Conn
	path string
}

func lockPath(path string, process int64) string { return fmt.Sprintf("%s-process-%d", path, process) }

// lockProcess takes the lock of a process. The result "held" is true if a living process already has the lock.
func lockProcess(path, mode string) (lock *processLock, held bool, err error) {
	connector, err := sqlite.NewConnector(fileDSN(path, mode))
	if err != nil {
		return nil, false, err
	}
	conn, err := connector.Connect(context.Background())
	if err != nil {
		return nil, false, describe(err)
	}
	if err := execute(conn, "BEGIN EXCLUSIVE"); err != nil {
		return nil, hasCode(err, lib.SQLITE_BUSY), errors.Join(err, conn.Close())
	}
	return &processLock{conn, path}, false, nil
}

// release gives up the lock and removes its file.
func (l *processLock) release() error {
	err := os.Remove(l.path) // the file is removed before the lock is released, so that a process that looks for the lock finds no file
	if removed := os.Remove(l.path + "-journal"); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return errors.Join(err, l.conn.Close())
}

func hasCode(err error, code int) bool {
	var own *sqlite.Error
	return errors.As(err, &own) && own.Code()&0xff == code
}

// enter registers this process, and frees the leases of dead processes.
func (s *Store) enter() error {
	w := s.writer
	return w.write(context.Background(), func() error {
		var others []int64
		err := query(w.conn, "SELECT process FROM kahn_processes", func(row []driver.Value) error {
			others = append(others, row[0].(int64))
			return nil
		})
		if err != nil {
			return err
		}
		for _, process := range others {
			dead, err := s.hasDied(process)
			if err == nil && dead {
				err = s.forget(process)
			}
			if err != nil {
				return err
			}
		}
		err = query(w.conn, "INSERT INTO kahn_processes DEFAULT VALUES RETURNING process", func(row []driver.Value) error {
			s.process = row[0].(int64)
			return nil
		})
		if err != nil {
			return err
		}
		// The process takes the lock before the transaction is committed, since a registered process without a lock counts as dead.
		s.lock, _, err = lockProcess(lockPath(s.path, s.process), "rwc")
		return err
	})
}

// hasDied reports whether a registered process has ended.
func (s *Store) hasDied(process int64) (bool, error) {
	if s.path == "" || process == s.process {
		return false, nil
	}
	path := lockPath(s.path, process)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	lock, held, err := lockProcess(path, "rw")
	switch {
	case held:
		return false, nil
	case err != nil:
		if _, gone := os.Stat(path); errors.Is(gone, os.ErrNotExist) {
			return true, nil
		}
		return false, fmt.Errorf("lock of process %d: %w", process, err)
	}
	return true, lock.release()
}

// The method `leave` removes this process from kahn_processes, see forget. It runs within a transaction.
func (s *Store) leave() error {
	if s.process == 0 {
		return nil
	}
	return s.forget(s.process)
}

// forget removes a process from kahn_processes, frees its leases and ends its announcements. It runs within a transaction.
func (s *Store) forget(process int64) error {
	for _, text := range []string{
		"UPDATE kahn_runs SET owner = '' WHERE process = ? AND owner <> ''",
		sqlAt("UPDATE kahn_served SET until = %[1]s WHERE process = ? AND until > %[1]s", s.now),
		"DELETE FROM kahn_processes WHERE process = ?",
	} {
		err := query(s.writer.conn, text, func([]driver.Value) error { return nil }, process)
		if err != nil {
			return err
		}
	}
	return nil
}

// processesRead reads the other registered processes.
const processesRead = "SELECT process FROM kahn_processes WHERE process <> ?"

// deadPause is the least time between two searches for dead processes.
const deadPause = time.Second

// freeDead frees the leases of dead processes. It searches for dead processes at most once in deadPause, without a transaction. It begins a
// transaction only if it finds a dead process.
func (s *Store) freeDead(ctx context.Context) error {
	last, now := s.lookedForDead.Load(), time.Now().UnixNano()
	if s.path == "" || last != 0 && now-last < int64(deadPause) || !s.lookedForDead.CompareAndSwap(last, now) {
		return nil
	}
	var dead []int64
	err := s.read(ctx, processesRead, func(row []driver.Value) error {
		process, _ := row[0].(int64)
		died, err := s.hasDied(process)
		if died {
			dead = append(dead, process)
		}
		return err
	}, s.process)
	if err != nil || len(dead) == 0 {
		return err
	}
	return s.writer.write(ctx, func() error {
		for _, process := range dead {
			if err := s.forget(process); err != nil {
				return err
			}
		}
		return nil
	})
}
