package progress

import "strings"

const (
	tailLines = 10  // the maximum number of lines that are kept for a node
	tailBytes = 400 // the maximum number of bytes that are kept of a line
)

// tail keeps the last lines that an attempt logged or emitted. The zero value is empty.
type tail struct {
	lines []string // the oldest first
	part  string   // a line that has not ended
	full  bool     // whether `part` was cut to tailBytes; if so, further text of the line is dropped
}

// The method `write` adds a text, which need not end with a newline.
func (t *tail) write(text string) {
	for {
		line, rest, ended := strings.Cut(text, "\n")
		if !t.full {
			t.part += line
			t.full = len(t.part) > tailBytes
			t.part = cut(t.part, tailBytes)
		}
		if !ended {
			return
		}
		t.end()
		text = rest
	}
}

// The method `end` ends the current line.
func (t *tail) end() {
	line := strings.TrimSuffix(t.part, "\r")
	t.part, t.full = "", false
	if len(t.lines) == tailLines {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, line)
}

// The method `last` returns the last lines that are not blank, at most the given number. An unfinished line counts as a line.
func (t *tail) last(most int) (lines []string) {
	if t == nil {
		return nil
	}
	for _, line := range append(t.lines[:len(t.lines):len(t.lines)], t.part) {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(len(lines)-most, 0):]
}
