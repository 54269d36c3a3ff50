package verify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/storetest"
)

// The crash test kills a process at random moments while the process runs a graph over a store in a file. After each kill it starts another
// process, until the run has ended.

const (
	crashEnv  = "KAHN_CRASH_DIR"  // if set, the test binary is the process that is killed; the value is the folder of its files
	crashTorn = "KAHN_CRASH_TORN" // if set, the store of the killed process writes in two parts
)

// cycles returns the number of processes that the test kills.
var cycles = func() int {
	if long() {
		return 500
	}
	return 20
}()

// TestCrashChild is the code of the process that is killed. In other processes it is skipped.
func TestCrashChild(t *testing.T) {
	dir := os.Getenv(crashEnv)
	if dir == "" {
		t.Skip("it is a process of other tests")
	}
	var db store.Store
	db, err := openFileStore(filepath.Join(dir, "store"))
	require.NoError(t, err)
	if os.Getenv(crashTorn) != "" {
		db = storetest.Torn(db)
	}
	require.NoError(t, storetest.Killed(t.Context(), dir, db))
}

// crashChild returns the command that starts TestCrashChild.
func crashChild(dir string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
	cmd.Env = append(append(os.Environ(), crashEnv+"="+dir), env...)
	return cmd
}

func TestCrash(t *testing.T) {
	storetest.RunKill(t, cycles, func(dir string) *exec.Cmd { return crashChild(dir) }, func(dir string) *exec.Cmd { return crashChild(dir, crashTorn+"=1") })
}

// fileStore is a store in a file: a log of the applied writes. Each write is on the disk before it is acknowledged. There is one process at a
// time, so leases are in memory.
type fileStore struct {
	*store.Memory
	mu   sync.Mutex
	file *os.File
}

func openFileStore(path string) (*fileStore, error) {
	s := &fileStore{Memory: new(store.Memory)}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1] // the last line may be incomplete
	if err := s.replay(bytes.NewReader(whole)); err != nil {
		return nil, err
	}
	if s.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	if err := s.file.Truncate(int64(len(whole))); err != nil {
		return nil, err
	}
	_, err = s.file.Seek(0, io.SeekEnd)
	return s, err
}

func (s *fileStore) replay(r io.Reader) error {
	ctx := context.Background()
	lease, _, err := s.Memory.Acquire(ctx, "crash", "replay", time.Hour)
	if err != nil {
		return err
	}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return s.Memory.Release(ctx, lease)
		}
		var c store.Commit
		if err := json.Unmarshal(line, &c); err != nil {
			return err
		}
		applied, err := s.Memory.Commit(ctx, lease, c)
		if err != nil || applied != store.AppliedNow {
			return fmt.Errorf("replay of %s: %v, %w", line, applied, err)
		}
	}
}

func (s *fileStore) append(c store.Commit) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := s.file.Write(append(line, '\n')); err != nil {
		return err
	}
	return s.file.Sync()
}

func (s *fileStore) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, err := s.Memory.Commit(ctx, l, c)
	if err == nil && a == store.AppliedNow {
		err = s.append(c)
	}
	return a, err
}
