package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// DirCache is a cache for a kahn.Memo. It keeps each entry in a file in the folder Dir. Any number of processes may share a folder. The modification
// time of a file says when its entry was last used; it may be up to an hour too early. The folder grows until [DirCache.Prune] is called.
type DirCache struct{ Dir string }

const (
	usedWithin = time.Hour // Get records a use only if the last recorded use is longer ago
	partial    = ".part"   // the suffix of the names of files that Put is writing
)

// The method `file` returns the path of an entry.
func (c DirCache) file(key string) (string, error) {
	if c.Dir == "" {
		return "", fmt.Errorf("%w: a DirCache without Dir", machine.ErrBadValue)
	}
	if len(key) < 3 || strings.Trim(key, "0123456789abcdef") != "" {
		return "", fmt.Errorf("%w: the key %.80q of a cache: hex digits are expected", machine.ErrBadValue, key)
	}
	return filepath.Join(c.Dir, key[:2], key), nil
}

// Get returns the entry of a key.
func (c DirCache) Get(_ context.Context, key string) (data []byte, ok bool, err error) {
	name, err := c.file(key)
	if err != nil {
		return nil, false, err
	}
	data, err = os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > usedWithin {
		now := time.Now()
		_ = os.Chtimes(name, now, now) // an error is ignored, since the folder may be read-only
	}
	return data, true, nil
}

// Put stores data under a key. A reader sees either the old data or the new data, even if it reads during Put or after a crash of this process.
func (c DirCache) Put(_ context.Context, key string, data []byte) error {
	name, err := c.file(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), key+"-*"+partial)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Prune removes each entry whose last use is longer ago than "unused". Then, while the remaining entries have more than "bytes" bytes in all, it
// removes the least recently used entry. An argument of 0 means no bound. Prune returns how many entries it has removed.
func (c DirCache) Prune(ctx context.Context, unused time.Duration, bytes int64) (removed int, err error) {
	if c.Dir == "" || unused < 0 || bytes < 0 {
		return 0, fmt.Errorf("%w: Prune(%v, %d) of the cache in %q: a folder and bounds that are not negative are expected", machine.ErrBadValue, unused, bytes, c.Dir)
	}
	type entry struct {
		name string
		used time.Time
		size int64
	}
	var entries []entry
	total, now := int64(0), time.Now()
	err = filepath.WalkDir(c.Dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // the folder does not exist yet, or another process has removed the file
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		part := strings.HasSuffix(name, partial)
		if _, err := c.file(filepath.Base(name)); d.IsDir() || err != nil && !part {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if part {
			if now.Sub(info.ModTime()) > usedWithin {
				return os.Remove(name) // the process that was writing the file has died
			}
			return nil
		}
		entries, total = append(entries, entry{name, info.ModTime(), info.Size()}), total+info.Size()
		return nil
	})
	if err != nil {
		return 0, err
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.used.Compare(b.used) })
	for _, e := range entries {
		old := unused > 0 && now.Sub(e.used) > unused
		if !old && (bytes == 0 || total <= bytes) {
			break
		}
		if err := os.Remove(e.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
		removed, total = removed+1, total-e.size
	}
	return removed, nil
}
