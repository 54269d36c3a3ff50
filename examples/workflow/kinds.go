package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/seed-c794f7ef/kahn"
)

// maxText bounds the texts that a step keeps of files, responses and the output of commands.
const maxText = 1 << 20

// kinds are the steps that a definition may name, by kind:
//
//	exec      runs a command: {command, dir, env, stdin}; output {stdout, stderr}, see exec.go
//	http      sends a request: {method, url, headers, body}; output {status, body}
//	read      reads a file: {path}; output its text
//	write     writes a file: {path, text}; output its path
//	checksum  sums files up: {files, a pattern}; output lines of SHA-256 and name
//	sleep     waits: {for, a duration}
//	template  output {text}
//	jq        output of the jq program {query} for the parameter input
//	fail      fails with {message}
func kinds() kahn.Mux {
	return kahn.Mux{
		"exec": execute, "http": request, "read": read, "write": write, "checksum": checksum, "sleep": sleep,
		"template": text, "jq": jq, "fail": fail,
	}
}

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
	return limited(f)
}

// limited reads a text that must not be longer than maxText.
func limited(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil && len(data) > maxText {
		err = kahn.Permanent(fmt.Errorf("longer than %d bytes", maxText))
	}
	return string(data), err
}

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
		fmt.Fprintf(&sums, "%x  %s\n", h.Sum(nil), filepath.Base(file))
	}
	return sums.String(), nil
}

func sleep(ctx context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ For string }](s)
	if err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(c.For)
	if err != nil {
		return nil, kahn.Permanent(err)
	}
	select {
	case <-time.After(d):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func text(_ context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Text string }](s)
	return c.Text, err
}

func fail(_ context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct{ Message string }](s)
	if err != nil {
		return nil, err
	}
	return nil, kahn.Permanent(errors.New(c.Message))
}

// request sends an HTTP request. The status decides about another attempt: there is none after 4xx, except 429, whose
// Retry-After says when.
func request(ctx context.Context, s *kahn.Step) (any, error) {
	c, err := configured[struct {
		Method, URL, Body string
		Headers           map[string]string
	}](s)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, c.Method, c.URL, strings.NewReader(c.Body))
	if err != nil {
		return nil, kahn.Permanent(err)
	}
	for name, value := range c.Headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := limited(resp.Body)
	if err != nil {
		return nil, err
	}
	failure := fmt.Errorf("%s %s: %s", req.Method, req.URL.Redacted(), resp.Status)
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // without it the policy's own delay
		return nil, kahn.RateLimited(failure, time.Duration(seconds)*time.Second)
	case resp.StatusCode >= 500:
		return nil, failure
	case resp.StatusCode >= 400:
		return nil, kahn.Permanent(failure)
	}
	return map[string]any{"status": resp.StatusCode, "body": body}, nil
}

// jq runs a jq program. Its only value is the output; several are a list, none is null.
func jq(ctx context.Context, s *kahn.Step) (any, error) {
	c, ok := s.Config().(map[string]any) // do not expand the program as a template: both use braces
	query, isText := c["query"].(string)
	if !ok || !isText || len(c) != 1 {
		return nil, kahn.Permanent(errors.New("config: expected {query}"))
	}
	program, err := gojq.Parse(query)
	if err != nil {
		return nil, kahn.Permanent(err)
	}
	code, err := gojq.Compile(program)
	if err != nil {
		return nil, kahn.Permanent(err)
	}
	input, _ := s.Param("input")
	if input, err = jqValue(input); err != nil {
		return nil, kahn.Permanent(err)
	}
	var values []any
	for it := code.RunWithContext(ctx, input); ; {
		v, ok := it.Next()
		if !ok {
			break
		}
		if err, ok := v.(error); ok {
			return nil, kahn.Permanent(err)
		}
		values = append(values, v)
	}
	switch len(values) {
	case 0:
		return nil, nil
	case 1:
		return values[0], nil
	}
	return values, nil
}

// jqValue brings a value into the form that gojq works on. Integers keep their digits.
func jqValue(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return jqNumbers(v), nil
}

func jqNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		if n, ok := new(big.Int).SetString(v.String(), 10); ok {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = jqNumbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = jqNumbers(v[key])
		}
	}
	return v
}
