package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// The function `read` is the step of kind read.
func read(_ context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Path string }](s)
	if err != nil {
		return nil, err
	}
	f, err := openFile(c.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // an error of Close does not matter after reading
	return limited(f, "the file "+c.Path)
}

// openFile opens a file for reading. It returns an error for a named pipe: os.Open would block until another process opens the pipe, and the
// timeout of the step could not end this wait.
func openFile(path string) (*os.File, error) {
	if err := refusePipe(path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

func refusePipe(path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return kahn.Permanent(fmt.Errorf("%s is a named pipe, which may block the step for longer than its timeout", path))
	}
	return nil
}

// The function `limited` reads a text of at most maxText bytes. If the text is longer, the error says that `what` is too long.
func limited(r io.Reader, what string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil && len(data) > maxText {
		err = kahn.Permanent(fmt.Errorf("%s is longer than %d bytes", what, maxText))
	}
	return string(data), err
}

// untilEnd is a reader that fails when its context has ended.
type untilEnd struct {
	ctx context.Context
	io.Reader
}

// Read implements io.Reader.
func (u *untilEnd) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.Reader.Read(p)
}

// The function `write` is the step of kind write.
func write(_ context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Path, Text string }](s)
	if err != nil {
		return nil, err
	}
	if err := refusePipe(c.Path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o755); err != nil {
		return nil, err
	}
	return c.Path, os.WriteFile(c.Path, []byte(c.Text), 0o644)
}

// checksum is the step of kind checksum.
func checksum(ctx context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Files string }](s)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(c.Files)
	if err != nil {
		return nil, kahn.Permanent(fmt.Errorf("%s: %w", c.Files, err))
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no file matches %s", c.Files)
	}
	folder := fixedFolder(c.Files)
	var sums strings.Builder
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := openFile(file)
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(h, &untilEnd{ctx, f})
		_ = f.Close() // an error of Close does not matter after reading
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return nil, kahn.Permanent(err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", h.Sum(nil), name)
	}
	return sums.String(), nil
}

// fixedFolder returns the folder that contains all matches of a pattern: the folder of the pattern, cut before the first name with a wildcard.
func fixedFolder(pattern string) string {
	folder := filepath.Dir(pattern)
	for strings.ContainsAny(folder, "*?[") {
		folder = filepath.Dir(folder)
	}
	return folder
}
