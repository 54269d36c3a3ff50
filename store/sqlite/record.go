package sqlite

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// record is what a row of kahn_nodes holds of a node's record. The engine's records are JSON objects whose members are mostly
// the same: these have columns, so that rows are small and can be queried. The other members stay as they are. All members
// together are the record again, in another order.
//
// A record of another form is kept whole.
type record struct {
	shape  int64 // of a record in members: the length of the id, and which times have columns
	split  bool  // it is in members
	status string
	cause  string
	hash   []byte
	start  time.Time // zero if there is none
	end    time.Time
	value  string // JSON
	rest   string // the other members, separated by commas
	whole  []byte // of a record that is not in members; nil if there is none
}

// The bits of a shape. Above them is the length of the id, which is the end of the node's key, plus one; or zero if there is no id.
const (
	shapeStart = 1 << iota // the start is in its column alone
	shapeEnd
	shapeLength = iota
)

// splitRecord takes a record apart.
func splitRecord(key string, data []byte) record {
	if r, ok := splitMembers(key, data); ok {
		return r
	}
	if len(data) == 0 {
		return record{}
	}
	return record{whole: data}
}

func splitMembers(key string, data []byte) (r record, ok bool) {
	r.split = true
	rest := make([]byte, 0, len(data))
	seen := 0
	s := scanner{data: data}
	if !s.take('{') {
		return r, false
	}
	for first := true; first || s.take(','); first = false {
		begin := s.at
		name, ok := s.text()
		if !ok || !s.take(':') {
			return r, false
		}
		value := s.value()
		if len(value) == 0 {
			return r, false
		}
		member, known := r.member(key, name, value)
		if known {
			if seen&member != 0 {
				return r, false
			}
			seen |= member
		}
		if !known || member == memberTime {
			if len(rest) > 0 {
				rest = append(rest, ',')
			}
			rest = append(rest, data[begin:s.at]...)
		}
	}
	r.rest = string(rest)
	return r, s.take('}') && s.at == len(data)
}

// The members that have columns. memberTime is a time that has a column, and stays among the rest because of its form.
const (
	memberID = 1 << iota
	memberHash
	memberStatus
	memberCause
	memberStart
	memberEnd
	memberValue
	memberTime = 0
)

// member sets the column of a member.
func (r *record) member(key, name string, value []byte) (member int, known bool) {
	text, quoted := plainText(value)
	switch {
	case name == "value":
		r.value = string(value)
		return memberValue, true
	case !quoted || text == "":
	case name == "id" && strings.HasSuffix(key, text):
		r.shape |= int64(len(text)+1) << shapeLength
		return memberID, true
	case name == "hash":
		hash, err := hex.DecodeString(text)
		if err == nil && hex.EncodeToString(hash) == text {
			r.hash = hash
			return memberHash, true
		}
	case name == "status":
		r.status = text
		return memberStatus, true
	case name == "cause":
		r.cause = text
		return memberCause, true
	case name == "start":
		return r.time(&r.start, text, shapeStart, memberStart)
	case name == "end":
		return r.time(&r.end, text, shapeEnd, memberEnd)
	}
	return 0, false
}

// time sets the column of a time. One that another text might stand for is kept as it is, too.
func (r *record) time(column *time.Time, text string, bit int64, member int) (int, bool) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1700 || t.Year() > 2200 { // beyond, no int64 holds the nanoseconds
		return 0, false
	}
	*column = t
	if t.UTC().Format(time.RFC3339Nano) != text {
		return memberTime, true
	}
	r.shape |= bit
	return member, true
}

// json returns the record, or nil if there is none.
func (r *record) json(key string) json.RawMessage {
	if !r.split {
		return r.whole
	}
	var b bytes.Buffer
	b.WriteByte('{')
	add := func(name, value string) {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(name))
		b.WriteByte(':')
		b.WriteString(value)
	}
	text := func(name, value string) { add(name, `"`+value+`"`) }
	if n := int(r.shape >> shapeLength); n > 0 {
		text("id", key[len(key)-n+1:])
	}
	if len(r.hash) > 0 {
		text("hash", hex.EncodeToString(r.hash))
	}
	if r.status != "" {
		text("status", r.status)
	}
	if r.cause != "" {
		text("cause", r.cause)
	}
	if r.shape&shapeStart != 0 {
		text("start", r.start.UTC().Format(time.RFC3339Nano))
	}
	if r.shape&shapeEnd != 0 {
		text("end", r.end.UTC().Format(time.RFC3339Nano))
	}
	if r.value != "" {
		add("value", r.value)
	}
	if r.rest != "" {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(r.rest)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// scanner walks over JSON without white space between members.
type scanner struct {
	data []byte
	at   int
}

// take moves over a byte if it is the next one.
func (s *scanner) take(c byte) bool {
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

// text moves over a string without escapes and returns what it says.
func (s *scanner) text() (string, bool) {
	if !s.take('"') {
		return "", false
	}
	n := bytes.IndexByte(s.data[s.at:], '"')
	if n < 0 || bytes.IndexByte(s.data[s.at:s.at+n], '\\') >= 0 {
		return "", false
	}
	text := string(s.data[s.at : s.at+n])
	s.at += n + 1
	return text, true
}

// value moves over a value and returns it; none if it does not end.
func (s *scanner) value() []byte {
	begin, depth := s.at, 0
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case '"':
			if !s.quoted() {
				return nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return s.data[begin:s.at]
			}
			depth--
		case ',':
			if depth == 0 {
				return s.data[begin:s.at]
			}
		}
		s.at++
	}
	return nil
}

// quoted moves over a string.
func (s *scanner) quoted() bool {
	for s.at++; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return true
		}
	}
	return false
}

// plainText is the text of a JSON string that has no escapes.
func plainText(value []byte) (text string, ok bool) {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return "", false
	}
	inside := value[1 : len(value)-1]
	if bytes.IndexByte(inside, '\\') >= 0 || bytes.IndexByte(inside, '"') >= 0 {
		return "", false
	}
	return string(inside), true
}
