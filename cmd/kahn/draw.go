package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/trace"
)

var drawCommand = command{
	name: "draw", args: "FILE", least: 1, most: 1,
	summary: "draw the graph of a definition in Mermaid, DOT or SVG",
	text: `
Mermaid is read by GitHub, GitLab and many editors, DOT by Graphviz; an SVG is a picture for a browser. With -kinds
the definition is one of a host: see "kahn help vet".

The exit code is 0, 1 if the definition has problems or the standard output cannot be written, and 2 if a file cannot be read or written.`,
	register: func(f *flags) action {
		var format, output string
		var drawing trace.Drawing
		var by performer
		f.choice(&format, "format", "the language of the picture", "mermaid", "dot", "svg")
		f.file(&output, "o", "write to this `file` instead of the standard output")
		f.kinds(&by)
		f.BoolVar(&drawing.LeftToRight, "lr", false, "draw from left to right instead of from the top down")
		f.BoolVar(&drawing.Reduced, "reduced", false, "leave out edges that other edges imply")
		return func(_ context.Context, t *terminal, args []string) int {
			g, code := t.load(by, args[0])
			if g == nil {
				return code
			}
			p, err := g.Compile()
			if err != nil {
				return t.refuse(err)
			}
			picture := map[string]func(*kahn.Plan, *kahn.Result) string{"mermaid": drawing.Mermaid, "dot": drawing.DOT, "svg": drawing.SVG}[format](p, nil)
			if output == "" {
				_, _ = io.WriteString(t.out, picture) // t.out stores a write error
			} else if err := os.WriteFile(output, []byte(picture), 0o644); err != nil {
				return t.refuse(err)
			}
			return exitOK
		}
	},
}

// The method `load` reads a definition. If this fails or the definition has problems, load reports them, and returns nil and the exit code.
func (t *terminal) load(p performer, file string) (*kahn.Graph, int) {
	g, err := p.load(file)
	if found, ok := err.(problems); ok {
		found.write(t.err)
		t.printf("kahn: %s: nothing is done, because of %s\n", file, count(len(found), "problem"))
		return nil, exitProblems
	}
	if err != nil {
		return nil, t.refuse(err)
	}
	return g, exitOK
}

// The function `count` renders a number with its noun.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
