package definition

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// ErrorKind is a kind of problem. errors.Is finds the kinds of all problems in an error of this package.
type ErrorKind string

// Error returns the kind in words.
func (k ErrorKind) Error() string { return "definition: " + string(k) }

// The kinds of problems.
const (
	ErrSyntax       ErrorKind = "not well-formed"     // the text is not JSON or YAML, or text follows the end of the document
	ErrEncoding     ErrorKind = "invalid encoding"    // invalid UTF-8, a lone surrogate, a byte order mark
	ErrLimit        ErrorKind = "limit exceeded"      // see [Limits]
	ErrVersion      ErrorKind = "unknown version"     // the version is missing, or this package does not read it
	ErrUnknownField ErrorKind = "unknown field"       // names are case-sensitive
	ErrDuplicate    ErrorKind = "duplicate"           // a key occurs twice in one object, or an id twice in one graph
	ErrMissing      ErrorKind = "missing field"       // a required field is missing
	ErrType         ErrorKind = "wrong type"          // text where a number is expected, null, and so on
	ErrValue        ErrorKind = "bad value"           // the type is right, but the value is not allowed
	ErrReference    ErrorKind = "unknown node"        // an edge names a node that the graph does not have
	ErrAmbiguous    ErrorKind = "ambiguous"           // YAML that readers disagree about, such as a bare yes
	ErrUnsupported  ErrorKind = "unsupported feature" // YAML tags, merge keys, several documents
	ErrNotData      ErrorKind = "not data"            // [Encode] only: Go code, or a Go value without a JSON form
	ErrGraph        ErrorKind = "invalid graph"       // [Loader] only: the graph does not compile; see the Problem's Err
)

// maxProblems is the largest number of problems in an Error. Few people read more.
const maxProblems = 100

// Error holds the problems of a document. An Error from [Encode] holds the problems of a graph. An Error unwraps to the problems and to
// Err.
type Error struct {
	// Problems holds the first 100 problems, in document order. Decode reports a problem of a whole object, such as a missing field,
	// after the problems of the object's members.
	Problems []*Problem
	// More counts the problems beyond the first 100.
	More int
	// Err is the [*kahn.GraphError] of a graph that does not compile, or nil.
	Err error
}

// Error lists the problems, one per line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("definition: ")
	sep := ""
	if len(e.Problems) > 1 {
		fmt.Fprintf(&b, "%d problems", len(e.Problems)+e.More)
		sep = "\n\t"
	}
	for _, p := range e.Problems {
		b.WriteString(sep)
		b.WriteString(p.text())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n\tand %d more", e.More)
	}
	return b.String()
}

// Unwrap returns the problems, and Err if there is one.
func (e *Error) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// Problem is one defect of a document. errors.Is matches its Kind, and everything that Err matches.
type Problem struct {
	Kind ErrorKind
	// File is the name of the document, see [Loader].File, or empty.
	File string
	// Path is the place in the document, such as $.nodes[3].retry.max_attempts. For a syntax problem it is the path of
	// the innermost value that was being read.
	Path string
	// Position is the place in the text. It is zero for problems of Encode.
	Position Position
	// Node is the id of the node with the problem. For a node of a sub-graph, Node has all ids on the path to the node, separated by
	// slashes. Node is empty for a problem outside nodes. If an id on the path is missing or is not a text, Node lacks this id.
	Node string
	// Field is the name of the Go field in which Encode found a function, or "RegisterMerge" for a merge strategy. Otherwise it is empty.
	Field string
	// Message describes the expected and the actual value, without the place.
	Message string
	// Suggestion is what the author probably meant to write, for example the name of a field, a node or a kind, or a corrected value. It
	// is empty if there is no suggestion. In most problems, Message also contains the suggestion.
	Suggestion string
	// Err is the error behind the problem, or nil.
	Err error
}

// Position is a place in a text. Line and Column count from 1; Column counts characters. Offset counts bytes from 0. All three
// are zero if the place is not known.
type Position struct {
	Line, Column, Offset int
}

// Error renders the place, the kind and the message.
func (p *Problem) Error() string { return "definition: " + p.text() }

func (p *Problem) text() string {
	var b strings.Builder
	switch at := p.Position; {
	case at.Line > 0 && p.File != "":
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, at.Line, at.Column)
	case p.File != "":
		b.WriteString(p.File + ": ")
	case at.Line > 0:
		fmt.Fprintf(&b, "line %d, column %d: ", at.Line, at.Column)
	}
	b.WriteString(p.Path + ": ")
	if p.Node != "" {
		fmt.Fprintf(&b, "node %.60q: ", p.Node)
	}
	return b.String() + p.Message
}

// Unwrap returns the Kind of the problem, and also its Err unless Err is nil.
func (p *Problem) Unwrap() []error {
	if p.Err == nil {
		return []error{p.Kind}
	}
	return []error{p.Kind, p.Err}
}

// report collects problems and tracks the current place in the document.
type report struct {
	file string
	path []segment
	node []string // the ids of the enclosing nodes
	err  Error
	// stopped is true after a problem that ends the reading or the encoding, such as an exceeded limit.
	stopped bool
}

// segment is one step of a path: a key, or an index if the key is empty and index is not negative.
type segment struct {
	key   string
	index int
}

func (r *report) push(key string, index int) { r.path = append(r.path, segment{key, index}) }
func (r *report) pop()                       { r.path = r.path[:len(r.path)-1] }

// suggest sets the Suggestion of the problem to the parameter `meant`, and adds `meant` to the Message. It does nothing if `meant` is empty.
func (p *Problem) suggest(meant string) {
	if meant != "" {
		p.Message += "; did you mean " + quote(meant) + "?"
		p.Suggestion = meant
	}
}

// nearest adds a suggestion to a problem if one of the choices is similar to the written text.
func (p *Problem) nearest(written string, choices []string) {
	meant, _ := nearest.Name(written, choices)
	p.suggest(meant)
}

// add reports a problem at the current place. If there are already maxProblems problems, add only counts the problem and returns nil.
func (r *report) add(at Position, kind ErrorKind, format string, args ...any) *Problem {
	if len(r.err.Problems) == maxProblems {
		r.err.More++
		return nil
	}
	p := &Problem{Kind: kind, File: r.file, Position: at, Message: fmt.Sprintf(format, args...), Path: r.where(), Node: strings.Join(r.node, "/")}
	r.err.Problems = append(r.err.Problems, p)
	return p
}

// addToLast adds text to the message of the last problem. It does nothing if the last problem was only counted.
func (r *report) addToLast(text string) {
	if n := len(r.err.Problems); n > 0 && r.err.More == 0 {
		r.err.Problems[n-1].Message += text
	}
}

// The method `stop` reports a problem and ends the reading or the encoding. After the first call it does nothing.
func (r *report) stop(at Position, kind ErrorKind, format string, args ...any) {
	if !r.stopped {
		r.add(at, kind, format, args...)
		r.stopped = true
	}
}

// result returns the problems as an error, or nil if there are none.
func (r *report) result() error {
	if len(r.err.Problems) == 0 {
		return nil
	}
	return &r.err
}

// The method `where` renders the current path. It leaves out the middle of a deep path, and cuts off long keys.
func (r *report) where() string {
	const head, tail = 12, 4
	b := []byte{'$'}
	for i, s := range r.path {
		if len(r.path) > head+tail && i >= head && i < len(r.path)-tail {
			if i == head {
				b = fmt.Appendf(b, "...(%d more)...", len(r.path)-head-tail)
			}
			continue
		}
		switch {
		case s.key == "" && s.index >= 0:
			b = append(strconv.AppendInt(append(b, '['), int64(s.index), 10), ']')
		case plainKey(s.key):
			b = append(append(b, '.'), s.key...)
		default:
			b = fmt.Appendf(b, "[%.40q]", s.key)
		}
	}
	return string(b)
}

func plainKey(s string) bool {
	if s == "" || len(s) > 40 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '_' && c != '$' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// quote renders a text of the document, or its beginning, for a message.
func quote(s string) string { return fmt.Sprintf("%.60q", s) }
