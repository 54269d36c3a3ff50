package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// A message is one block of an event stream. It has an id or data.
type message struct {
	// id is the id of this block. If the block has no id, it is the id of the last earlier block with an id.
	id    string
	event string // "" if the block has no event field
	// data is valid until the next call of parser.next. A block without data is not an event: it sets the id and does nothing else. hasData is
	// false for a block without data, and true for a block with empty data.
	data    []byte
	hasData bool
}

var errTooLong = errors.New("sse: an event of the stream is longer than the client's MaxBytes")

// parser reads an event stream. The format is defined in the section "Server-sent events" of the HTML standard.
type parser struct {
	r     *bufio.Reader
	limit int           // the maximum size of a line and the block's data together, in bytes
	retry time.Duration // the stream's latest retry field; -1 if there was none

	id      string
	data    []byte
	line    []byte
	started bool // whether the first line was read; a byte order mark is allowed only before the first line
	afterCR bool // whether the last line ended with CR, so that a line feed right after it belongs to the same line end
}

func newParser(r io.Reader, limit int) *parser {
	return &parser{r: bufio.NewReader(r), limit: limit, retry: -1}
}

// The method `next` returns the next block that has an id or data. If the stream ends inside a block, the parser drops this block. A client that
// resumes gets the block again.
func (p *parser) next() (message, error) {
	m := message{}
	id, hasID := p.id, false
	p.data = p.data[:0]
	for {
		line, err := p.readLine()
		if err != nil {
			return message{}, err
		}
		if len(line) == 0 {
			p.id = id
			if m.hasData || hasID {
				m.id, m.data = id, bytes.TrimSuffix(p.data, []byte("\n"))
				return m, nil
			}
			m = message{}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			m.event = string(value)
		case "data":
			m.hasData = true
			p.data = append(append(p.data, value...), '\n')
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id, hasID = string(value), true
			}
		case "retry":
			if d, ok := parseRetry(string(value)); ok {
				p.retry = d
			}
		}
	}
}

// maxRetry is the longest wait that a server can demand from a client.
const maxRetry = time.Hour

// parseRetry reads the value of a retry field. Only ASCII digits are valid.
func parseRetry(text string) (time.Duration, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return maxRetry, true
	}
	if err != nil {
		return 0, false
	}
	return time.Duration(min(n, uint64(maxRetry/time.Millisecond))) * time.Millisecond, true
}

// readLine returns the next line without its end: CR, LF or CR LF. It never waits for the byte after a CR.
func (p *parser) readLine() ([]byte, error) {
	p.line = p.line[:0]
	for {
		if _, err := p.r.Peek(1); err != nil {
			return nil, err // the stream may end here; an unterminated line is dropped
		}
		chunk, _ := p.r.Peek(p.r.Buffered())
		if p.afterCR {
			p.afterCR = false
			if chunk[0] == '\n' {
				_, _ = p.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		part := chunk
		if end >= 0 {
			part = chunk[:end]
		}
		if len(p.data)+len(p.line)+len(part) > p.limit {
			return nil, errTooLong
		}
		p.line = append(p.line, part...)
		if end < 0 {
			_, _ = p.r.Discard(len(chunk))
			continue
		}
		p.afterCR = chunk[end] == '\r'
		_, _ = p.r.Discard(end + 1)
		line := p.line
		if !p.started {
			p.started = true
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		return line, nil
	}
}
