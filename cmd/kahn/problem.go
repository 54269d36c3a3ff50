package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// severity tells problems from warnings.
type severity string

const (
	isError   severity = "error"
	isWarning severity = "warning"
)

// problem is one finding of vet.
type problem struct {
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"` // from 1; 0 if the place is not known
	Column   int      `json:"column,omitempty"`
	Path     string   `json:"path,omitempty"` // in the document, such as $.nodes[3].config.url
	Node     string   `json:"node,omitempty"` // the path of the node, such as S/x
	Severity severity `json:"severity"`
	Message  string   `json:"message"`
	// Suggestion is what the author may have meant.
	Suggestion string `json:"suggestion,omitempty"`
}

// String renders the problem as compilers do.
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
	if p.Node != "" {
		fmt.Fprintf(&b, "node %q: ", p.Node)
	}
	b.WriteString(p.Message)
	if p.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", p.Suggestion)
	}
	return b.String()
}

// problems are the findings in one or more files.
type problems []problem

// Error lists the problems, one a line.
func (ps problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// errors leaves the warnings out.
func (ps problems) errors() problems {
	return slices.DeleteFunc(slices.Clone(ps), func(p problem) bool { return p.Severity == isWarning })
}

func (ps problems) write(w io.Writer) {
	if len(ps) > 0 {
		_, _ = fmt.Fprintln(w, ps.Error()) // nobody could be told that it has failed
	}
}

// sort puts the problems in the order of the text, those without a place first.
func (ps problems) sort() {
	slices.SortStableFunc(ps, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// checker collects the problems of one file.
type checker struct {
	file    string
	doc     *document // nil if the text cannot be parsed
	limited bool      // the document exceeds a limit, and is not looked at any further
	found   problems
}

// add adds a problem, unless there is one of the same place and text.
func (c *checker) add(p problem) {
	p.File = c.file
	p.Severity = cmp.Or(p.Severity, isError)
	if !slices.Contains(c.found, p) {
		c.found = append(c.found, p)
	}
}

// suggested is the end of a message that has a suggestion.
var suggested = regexp.MustCompile(`; did you mean "((?:[^"\\]|\\.)*)"\?`)

// split takes the suggestion out of a message.
func split(message string) (rest, suggestion string) {
	at := suggested.FindStringSubmatchIndex(message)
	if at == nil {
		return message, ""
	}
	suggestion = message[at[2]:at[3]]
	if plain, err := strconv.Unquote(`"` + suggestion + `"`); err == nil {
		suggestion = plain
	}
	return message[:at[0]] + message[at[1]:], suggestion
}

// meant is the name that is near to what was written, "" if there is none.
func meant(written string, choices []string) string {
	name, _ := nearest.Name(written, choices)
	return name
}

// addError adds the problems of an error of package definition or of a compilation.
func (c *checker) addError(err error) {
	var written *definition.Error
	var graph *kahn.GraphError
	switch {
	case err == nil:
	case errors.As(err, &written):
		for _, p := range written.Problems {
			c.addProblem(p)
		}
		if written.More > 0 {
			c.add(problem{Message: fmt.Sprintf("and %d more problems", written.More)})
		}
	case errors.As(err, &graph):
		for _, p := range graph.Problems {
			c.addGraphProblem(p)
		}
		if graph.More > 0 {
			c.add(problem{Message: fmt.Sprintf("and %d more problems", graph.More)})
		}
	default:
		c.add(problem{Message: err.Error()})
	}
}

// addProblem adds a problem that package definition has found.
func (c *checker) addProblem(p *definition.Problem) {
	c.limited = c.limited || p.Kind == definition.ErrLimit
	message, suggestion := split(p.Message)
	c.add(problem{
		Line: p.Position.Line, Column: p.Position.Column, Path: p.Path, Node: p.Node, Message: message, Suggestion: suggestion,
	})
}

// ofNode is the beginning of a problem of a compilation that concerns a node.
var ofNode = regexp.MustCompile(`^(?:in "((?:[^"\\]|\\.)*)": )?node "((?:[^"\\]|\\.)*)": `)

// addGraphProblem adds a problem of a compilation.
func (c *checker) addGraphProblem(err error) {
	message, suggestion := split(err.Error())
	p := problem{Message: message, Suggestion: suggestion}
	if at := ofNode.FindStringSubmatch(message); at != nil {
		p.Node, p.Message = at[2], message[len(at[0]):]
		if at[1] != "" {
			p.Node = at[1] + "/" + at[2]
		}
		p.Line, p.Column, p.Path = c.placeOf(p.Node)
	}
	c.add(p)
}

// placeOf returns the place of a node, by its path.
func (c *checker) placeOf(node string) (line, column int, path string) {
	if c.doc == nil {
		return 0, 0, ""
	}
	for at, n := range nodesOf(c.doc.root) {
		if at.node == node {
			where := of(n)
			return where.Line, where.Column, at.path
		}
	}
	return 0, 0, ""
}
