package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// severity distinguishes errors from warnings.
type severity string

const (
	isError   severity = "error"
	isWarning severity = "warning"
)

// problem is one finding of vet.
type problem struct {
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"` // counted from 1; 0 if the place is not known
	Column   int      `json:"column,omitempty"`
	Path     string   `json:"path,omitempty"` // the path in the document, such as $.nodes[3].config.url
	Node     string   `json:"node,omitempty"` // the path of the node, such as S/x
	Severity severity `json:"severity"`
	Message  string   `json:"message"`
	// Suggestion is what the author may have meant. Message contains the suggestion, too.
	Suggestion string `json:"suggestion,omitempty"`
}

// String renders the problem as compilers do: file:line:column: message.
func (p problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if p.Severity == isWarning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.said())
	return b.String()
}

// The method `said` returns the message, preceded by the path of the node if there is a node.
func (p problem) said() string {
	if p.Node == "" {
		return p.Message
	}
	return fmt.Sprintf("node %q: %s", p.Node, p.Message)
}

// problems are the findings in one or more files.
type problems []problem

// Error lists the problems, one per line.
func (ps problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// The method `errors` returns the problems that are not warnings.
func (ps problems) errors() problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p problem) bool { return p.Severity == isWarning })
}

// The method `without` returns the problems in ps that are not in others. Vetting the tests of a definition reports the problems of the definition
// again; this method removes them.
func (ps problems) without(others problems) problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p problem) bool {
		return slices.ContainsFunc(others, func(other problem) bool {
			other.File, p.File = filepath.Clean(other.File), filepath.Clean(p.File)
			return other == p
		})
	})
}

func (ps problems) write(w io.Writer) {
	if len(ps) > 0 {
		_, _ = fmt.Fprintln(w, visible(ps.Error())) // a failure could not be reported anywhere
	}
}

// The method `sort` sorts the problems by their places in the text. Problems without a place come first.
func (ps problems) sort() {
	slices.SortStableFunc(ps, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// maxProblems bounds the number of problems that are reported for a file.
const maxProblems = 100

// checker collects the problems of one file.
type checker struct {
	file  string
	text  []byte    // the text of the file
	lines []string  // the lines of the text; set on first use
	by    performer // who performs the steps of the definition
	found problems
	known map[problem]bool // the same problems as in `found`, as a set
	more  int              // the number of further problems, which `found` does not contain
}

// The method `finish` returns the first maxProblems problems in the order of the text. If there are more problems, a last one says how many were left
// out.
func (c *checker) finish() problems {
	c.found.sort()
	if over := len(c.found) - maxProblems; over > 0 {
		c.found, c.more = c.found[:maxProblems], c.more+over
	}
	if c.more > 0 {
		c.add(problem{Message: "and " + count(c.more, "more problem")})
	}
	return c.found
}

// The method `add` adds a problem, unless it was added before.
func (c *checker) add(p problem) {
	p.File = c.file
	p.Severity = cmp.Or(p.Severity, isError)
	if c.known == nil {
		c.known = map[problem]bool{}
	}
	if !c.known[p] {
		c.known[p] = true
		c.found = append(c.found, p)
	}
}

// maxCompared bounds the number of names with which vet compares an unknown name. If there are more names, vet suggests none, since the comparison
// would take too long.
const maxCompared = 1000

// The function `meant` returns the choice that is most similar to a written name. It returns "" if no choice is similar, or if there are too many.
func meant(written string, choices []string) string {
	if len(choices) > maxCompared {
		return ""
	}
	name, _ := nearest.Name(written, choices)
	return name
}

// addError adds the problems that an error of package definition lists. It adds any other error as one problem.
func (c *checker) addError(err error) {
	var all *definition.Error
	switch {
	case err == nil:
		return
	case !errors.As(err, &all):
		c.add(problem{Message: err.Error()})
		return
	}
	for _, p := range all.Problems {
		c.addProblem(p)
	}
	c.more += all.More
}

// addProblem adds a problem that package definition found.
func (c *checker) addProblem(p *definition.Problem) {
	message := p.Message
	if c.by.hosted == nil && p.Suggestion == "" && errors.Is(p, kahn.ErrUnknownKind) && strings.HasSuffix(p.Path, ".kind") {
		message += `; if a host performs this kind, list it in the file of "kahn vet -kinds"`
	}
	if errors.Is(p, kahn.ErrCycle) {
		message += "; take one of these edges out, or let a loop repeat the nodes"
	}
	c.add(problem{Line: p.Position.Line, Column: p.Position.Column, Path: p.Path, Node: p.Node, Message: message, Suggestion: p.Suggestion})
}

// addAt adds a problem at a position, and appends the suggestion of the problem to the message.
func (c *checker) addAt(at definition.Position, p problem) {
	p.Line, p.Column = at.Line, at.Column
	if p.Suggestion != "" {
		p.Message += fmt.Sprintf("; did you mean %q?", p.Suggestion)
	}
	c.add(p)
}
