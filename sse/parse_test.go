package sse

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// parsed returns all messages of a stream as text, the last retry and the error that ended the stream.
func parsed(p *parser) (got []string, err error) {
	for {
		m, err := p.next()
		if err != nil {
			return got, err
		}
		text := fmt.Sprintf("%s|%s|", m.id, m.event)
		if m.hasData {
			text += fmt.Sprintf("%q", m.data)
		}
		got = append(got, text)
	}
}

// The streams are the examples of the HTML standard, section 9.2.6, and further cases of its grammar and processing rules.
var streams = []struct {
	name, text string
	want       []string
}{
	{"the standard's first example", "data: YHOO\ndata: +2\ndata: 10\n\n", []string{`||"YHOO\n+2\n10"`}},
	{"the standard's second example", ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n",
		[]string{`1||"first event"`, `||"second event"`}},
	{"the standard's third example", "data\n\ndata\ndata\n\ndata:", []string{`||""`, `||"\n"`}},
	{"the standard's fourth example", "data:test\n\ndata: test\n\n", []string{`||"test"`, `||"test"`}},
	{"line feeds", "id: 1\nevent: a\ndata: x\n\nid: 2\ndata: y\n\n", []string{`1|a|"x"`, `2||"y"`}},
	{"carriage returns", "id: 1\revent: a\rdata: x\r\rid: 2\rdata: y\r\r", []string{`1|a|"x"`, `2||"y"`}},
	{"both", "id: 1\r\nevent: a\r\ndata: x\r\n\r\nid: 2\r\ndata: y\r\n\r\n", []string{`1|a|"x"`, `2||"y"`}},
	{"mixed", "id: 1\r\nevent: a\rdata: x\n\rid: 2\ndata: y\r\n\n", []string{`1|a|"x"`, `2||"y"`}},
	{"a byte order mark", "\ufeffdata: x\n\n", []string{`||"x"`}},
	{"a second byte order mark is part of a name", "\ufeff\ufeffdata: x\n\n", nil},
	{"a byte order mark later on too", "data: x\n\n\ufeffdata: y\n\n", []string{`||"x"`}},
	{"comments", ": a\ndata: x\n:\n:data: y\n\n: b\n\n", []string{`||"x"`}},
	{"an id stays", "id: 7\ndata: x\n\ndata: y\n\n", []string{`7||"x"`, `7||"y"`}},
	{"an id without data", "id: 7\n\n", []string{`7||`}},
	{"an event without data is none", "event: a\n\ndata: x\n\n", []string{`||"x"`}},
	{"an id with NUL is ignored", "id: 7\ndata: x\n\nid: 8\x00\ndata: y\n\n", []string{`7||"x"`, `7||"y"`}},
	{"the last id of a block counts", "id: 7\nid: 8\ndata: x\n\n", []string{`8||"x"`}},
	{"the last name counts", "event: a\nevent: b\ndata: x\n\n", []string{`|b|"x"`}},
	{"one space is taken off", "data:  x \n\n", []string{`||" x "`}},
	{"colons in values", "data: a: b\n\n", []string{`||"a: b"`}},
	{"unknown fields", "Data: a\nfoo: b\n data: c\ndata: x\n\n", []string{`||"x"`}},
	{"what is broken off is dropped", "data: x\n\nid: 9\ndata: y\n", []string{`||"x"`}},
	{"also in a line", "data: x\n\ndata: y", []string{`||"x"`}},
	{"blank lines", "\n\n\r\r\n\n", nil},
	{"nothing", "", nil},
}

func TestParse(t *testing.T) {
	for _, row := range streams {
		// The result does not depend on how reads cut the stream.
		for way, r := range map[string]io.Reader{
			"whole": strings.NewReader(row.text), "bytes": iotest.OneByteReader(strings.NewReader(row.text)),
		} {
			got, err := parsed(newParser(r, 1000))
			if err != io.EOF || !slices.Equal(got, row.want) {
				t.Errorf("%s, %s: %q, %v; expected %q", row.name, way, got, err, row.want)
			}
		}
	}
}

// A line that ends in CR is complete. Waiting for the next byte would delay its event until the next event.
func TestParseDoesNotWait(t *testing.T) {
	for _, text := range []string{"data: x\r\r", "data: x\r\n\r", "data: x\n\n"} {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, text) }()
		m, err := newParser(r, 1000).next()
		if err != nil || string(m.data) != "x" {
			t.Errorf("%q: %q, %v", text, m.data, err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestParseRetry(t *testing.T) {
	for _, row := range []struct {
		text string
		want time.Duration
	}{
		{"retry: 1500\n", 1500 * time.Millisecond}, {"retry: 0\n", 0}, {"retry:5\nretry: 6\n", 6 * time.Millisecond},
		{"retry\n", -1}, {"retry: -5\n", -1}, {"retry: 1.5\n", -1}, {"retry: +5\n", -1}, {"retry: 0x5\n", -1}, {"retry: 1_0\n", -1},
		{"retry: 5 \n", -1}, {"retry: 99999999999999999999999\n", time.Hour}, {"retry: 9223372036854775807\n", time.Hour},
	} {
		p := newParser(strings.NewReader(row.text), 1000)
		_, _ = p.next()
		if p.retry != row.want {
			t.Errorf("%q: %v, expected %v", row.text, p.retry, row.want)
		}
	}
}

// endless is a reader that repeats its text.
type endless string

func (e endless) Read(b []byte) (int, error) { return copy(b, e), nil }

func TestParseBounds(t *testing.T) {
	for _, text := range []string{"data: abc\n", "aaa", ": comment", "id: 12", "data\n", "data: \r\n"} {
		p := newParser(endless(text), 10_000)
		if _, err := p.next(); err != errTooLong {
			t.Errorf("%q: %v", text, err)
		}
		if cap(p.data) > 50_000 || cap(p.line) > 50_000 {
			t.Errorf("%q: %d and %d bytes are kept", text, cap(p.data), cap(p.line))
		}
	}
	exact := "data: " + strings.Repeat("x", 94) + "\n\n"
	if got, err := parsed(newParser(strings.NewReader(exact), 100)); len(got) != 1 || err != io.EOF {
		t.Errorf("a line of just the bound: %d messages, %v", len(got), err)
	}
	if got, err := parsed(newParser(strings.NewReader(exact), 99)); len(got) != 0 || err != errTooLong {
		t.Errorf("a line above the bound: %d messages, %v", len(got), err)
	}
}

// reference parses a whole text by the steps of the standard: decode, split into lines, process each line.
func reference(text string) (got []string) {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	lines := strings.Split(text, "\n")
	var id, lastID, event, data string
	changed := false
	for _, line := range lines[:len(lines)-1] { // text after the last line end is not a line
		if line == "" {
			lastID = id
			if data != "" {
				got = append(got, fmt.Sprintf("%s|%s|%q", lastID, event, strings.TrimSuffix(data, "\n")))
			} else if changed {
				got = append(got, fmt.Sprintf("%s|%s|", lastID, event))
			}
			event, data, changed = "", "", false
			continue
		}
		field, value, found := strings.Cut(line, ":")
		if found && field == "" {
			continue
		}
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			event = value
		case "data":
			data += value + "\n"
		case "id":
			if !strings.Contains(value, "\x00") {
				id, changed = value, true
			}
		}
	}
	return got
}

func FuzzParse(f *testing.F) {
	for _, row := range streams {
		f.Add(row.text, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		want := reference(text)
		whole, err := parsed(newParser(strings.NewReader(text), len(text)+1))
		if err != io.EOF || !slices.Equal(whole, want) {
			t.Fatalf("%q, %v\nexpected %q", whole, err, want)
		}
		pieces, err := parsed(newParser(&chunked{text, int(size)%7 + 1}, len(text)+1))
		if err != io.EOF || !slices.Equal(pieces, want) {
			t.Fatalf("in pieces: %q, %v\nexpected %q", pieces, err, want)
		}
	})
}

// chunked is a reader that hands out a few bytes at a time.
type chunked struct {
	text string
	size int
}

func (c *chunked) Read(b []byte) (int, error) {
	if c.text == "" {
		return 0, io.EOF
	}
	n := copy(b[:min(c.size, len(b))], c.text)
	c.text = c.text[n:]
	return n, nil
}
