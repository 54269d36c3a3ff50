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

// read is the kind read.
func read(_ context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Path string }](s)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(c.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return limited(f, "the file "+c.Path)
}

// limited reads a text that must not be longer than maxText. what names it in the error.
func limited(r io.Reader, what string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil && len(data) > maxText {
		err = kahn.Permanent(fmt.Errorf("%s is longer than %d bytes", what, maxText))
	}
	return string(data), err
}

// write is the kind write.
func write(_ context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Path, Text string }](s)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o755); err != nil {
		return nil, err
	}
	return c.Path, os.WriteFile(c.Path, []byte(c.Text), 0o644)
}

// checksum is the kind checksum.
func checksum(ctx context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Files string }](s)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(c.Files)
	if err != nil {
		return nil, kahn.Permanent(err)
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
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		_ = f.Close() // it was only read
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

// fixedFolder is the folder that all matches of a pattern are in: the part of the pattern before the first name with a wildcard.
func fixedFolder(pattern string) string {
	folder := filepath.Dir(pattern)
	for strings.ContainsAny(folder, "*?[") {
		folder = filepath.Dir(folder)
	}
	return folder
}
