package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn/internal/syncdir"
)

// MemoryBlobs is a [BlobStore] in memory, for tests. The zero value is empty and ready for use.
type MemoryBlobs struct {
	mu    sync.Mutex // guards blobs
	blobs map[string]memoryBlob
}

type memoryBlob struct {
	data []byte
	put  time.Time
}

var _, _ BlobLister = (*MemoryBlobs)(nil), Dir("")

// Put implements [BlobStore].
func (m *MemoryBlobs) Put(ctx context.Context, key string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.blobs == nil {
		m.blobs = map[string]memoryBlob{}
	}
	b, ok := m.blobs[key]
	if !ok {
		b.data = bytes.Clone(data)
	}
	b.put = time.Now()
	m.blobs[key] = b
	return nil
}

// Get implements [BlobStore].
func (m *MemoryBlobs) Get(ctx context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, ok := m.blobs[key]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoBlob, key)
	}
	return bytes.Clone(b.data), nil
}

// Delete implements [BlobStore].
func (m *MemoryBlobs) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blobs, key)
	return nil
}

// Sweep implements [BlobSweeper].
func (m *MemoryBlobs) Sweep(ctx context.Context, key string, before time.Time) (gone bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if b, ok := m.blobs[key]; ok && b.put.After(before) {
		return false, nil
	}
	delete(m.blobs, key)
	return true, nil
}

// Keys implements [BlobLister].
func (m *MemoryBlobs) Keys(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		m.mu.Lock()
		keys := slices.Sorted(maps.Keys(m.blobs))
		m.mu.Unlock()
		for _, key := range keys {
			if err := ctx.Err(); err != nil {
				yield("", err)
				return
			}
			if !yield(key, nil) {
				return
			}
		}
	}
}

// Len returns the number of blobs.
func (m *MemoryBlobs) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.blobs)
}

// Dir is a [BlobStore] in a folder of the file system. It makes the folder when needed. Each blob is a file in a subfolder; the name of the
// subfolder is the first two characters of the key. When Put returns, the blob is on disk: Put writes a temporary file in the subfolder, syncs it and
// renames it. The file's modification time says when the blob was put.
type Dir string

// The method `file` returns the path of a blob. It refuses keys that are too short, and keys that might lead out of the folder.
func (d Dir) file(key string) (string, error) {
	if len(key) < 3 || filepath.Base(key) != key || key[0] == '.' || key[2] == '.' { // the names of temporary files begin with a dot
		return "", fmt.Errorf("%w: %q is not the key of a blob", ErrRejected, key)
	}
	return filepath.Join(string(d), key[:2], key[2:]), nil
}

// Put implements [BlobStore].
func (d Dir) Put(ctx context.Context, key string, data []byte) (err error) {
	file, err := d.file(key)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if now := time.Now(); os.Chtimes(file, now, now) == nil {
		// A concurrent Sweep may have set the file aside and may not see the new time, so Put checks whether the file still exists. If it exists,
		// Put syncs the file's name, since the process that wrote the file may not have synced the name yet.
		if _, gone := os.Stat(file); gone == nil {
			return d.sync(file)
		}
	}
	if err := makeDir(filepath.Dir(file)); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	return d.sync(file)
}

// The method `sync` makes the names of a blob and of its folder durable.
func (d Dir) sync(file string) error {
	return errors.Join(syncdir.Sync(filepath.Dir(file)), syncdir.Sync(string(d)))
}

// makeDir makes a folder and its missing parents, and makes their names durable.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if around := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && around != dir {
		if err = makeDir(around); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	switch {
	case err == nil:
		return syncdir.Sync(filepath.Dir(dir))
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return err
}

// Get implements [BlobStore].
func (d Dir) Get(ctx context.Context, key string) ([]byte, error) {
	file, err := d.file(key)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for range 2 { // a Sweep may rename the file back while Get looks for it
		if data, err := os.ReadFile(file); !errors.Is(err, fs.ErrNotExist) {
			return data, err
		}
		files, err := setAside(file)
		if err != nil {
			return nil, err
		}
		for _, aside := range files {
			if data, err := os.ReadFile(aside); !errors.Is(err, fs.ErrNotExist) {
				return data, err
			}
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNoBlob, key)
}

// sweptMark begins the name of a file that Sweep has set aside. After it come the name that the file had before, a hyphen and a random number.
const sweptMark = ".swept-"

// setAside returns the files of a blob that Sweep has set aside. If a process dies in Sweep, a set-aside file stays. It may be the blob's only file.
func setAside(file string) (files []string, err error) {
	list, err := os.ReadDir(filepath.Dir(file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range list {
		if sweptName(f.Name()) == filepath.Base(file) {
			files = append(files, filepath.Join(filepath.Dir(file), f.Name()))
		}
	}
	return files, nil
}

// sweptName returns the name that a file had before Sweep set it aside. If Sweep has not set the file aside, sweptName returns "".
func sweptName(name string) string {
	rest, swept := strings.CutPrefix(name, sweptMark)
	if i := strings.LastIndexByte(rest, '-'); swept && i > 0 {
		return rest[:i]
	}
	return ""
}

// Delete implements [BlobStore].
func (d Dir) Delete(_ context.Context, key string) error {
	file, err := d.file(key)
	if err != nil {
		return err
	}
	files, err := setAside(file) // Get would still find these files, too
	if err != nil {
		return err
	}
	for _, f := range append(files, file) {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Sweep implements [BlobSweeper]. It renames a file that is old enough, and then reads the file's time once more. If a concurrent Put has changed the
// time before the rename, Sweep sees the new time and keeps the blob. A Put after the rename writes a new file.
func (d Dir) Sweep(ctx context.Context, key string, before time.Time) (gone bool, err error) {
	file, err := d.file(key)
	if err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	switch info, err := os.Stat(file); {
	case errors.Is(err, fs.ErrNotExist):
		return d.sweepAside(file, before)
	case err != nil || info.ModTime().After(before):
		return false, err
	}
	aside := filepath.Join(filepath.Dir(file), fmt.Sprintf("%s%s-%x", sweptMark, filepath.Base(file), rand.Uint64()))
	switch err := os.Rename(file, aside); {
	case errors.Is(err, fs.ErrNotExist):
		return d.sweepAside(file, before)
	case err != nil:
		return false, err
	}
	return d.sweepAside(file, before)
}

// sweepAside removes the set-aside files of a blob. If one of them was put after the given time, sweepAside renames it back, and the blob stays.
// Another Sweep may call sweepAside for the same blob at the same time.
func (d Dir) sweepAside(file string, before time.Time) (gone bool, err error) {
	files, err := setAside(file)
	if err != nil {
		return false, err
	}
	gone = true
	for _, aside := range files {
		switch info, err := os.Stat(aside); {
		case errors.Is(err, fs.ErrNotExist):
			continue // another Sweep was faster
		case err != nil:
			return false, err
		case info.ModTime().After(before):
			gone, err = false, os.Rename(aside, file)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		default:
			if err := os.Remove(aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
	}
	return gone, nil
}

// Keys implements [BlobLister]. It reads one subfolder at a time.
func (d Dir) Keys(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		folders, err := os.ReadDir(string(d))
		if errors.Is(err, fs.ErrNotExist) {
			return // no blob was put
		}
		for _, folder := range folders {
			if err != nil || ctx.Err() != nil {
				break
			}
			if !folder.IsDir() || len(folder.Name()) != 2 {
				continue
			}
			var files []fs.DirEntry
			var names []string
			files, err = os.ReadDir(filepath.Join(string(d), folder.Name()))
			for _, file := range files {
				name := file.Name()
				if swept := sweptName(name); swept != "" {
					name = swept
				}
				if name[0] != '.' {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			for _, name := range slices.Compact(names) {
				if !yield(folder.Name()+name, nil) {
					return
				}
			}
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			yield("", err)
		}
	}
}
