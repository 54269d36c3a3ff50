package yaml

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/definition/internal/source"
)

// parse reads a text into a tree. A problem of the whole text, such as a syntax error or a second document, becomes
// the Problem of an empty tree. A problem of a single value becomes the Problem of this value, so that the
// decoder reports the problem with the path of the value. The limits must be resolved.
func parse(text string, limits definition.Limits) *definition.Value {
	if p := checkText(text); p != nil {
		return &definition.Value{Problem: p}
	}
	depth := depthLimit{most: limits.Depth}
	var document, another yaml.Node
	loader, err := yaml.NewLoader(strings.NewReader(text), yaml.WithV4Defaults(), yaml.WithPlugin(&depth))
	if err == nil {
		err = loader.Load(&document)
	}
	if err != nil {
		return &definition.Value{Problem: depth.problem(text, err)}
	}
	if err := loader.Load(&another); err == nil {
		at := linesOf(text)
		return &definition.Value{Problem: at.problem(&another, definition.ErrUnsupported, "a second document begins here")}
	} else if !errors.Is(err, io.EOF) {
		return &definition.Value{Problem: depth.problem(text, err)}
	}
	c := converter{limits: limits, lines: linesOf(text), anchored: map[*yaml.Node]definition.Value{}}
	root := c.value(document.Content[0])
	return &root
}

// depthLimit is a plugin of the parser. It stops the parser at a value that is nested deeper than Limits.Depth allows.
type depthLimit struct {
	most     int
	exceeded bool // whether CheckDepth has returned an error; the parser's error does not show this
}

// CheckDepth implements yaml.LoaderLimitsPlugin.
func (d *depthLimit) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if depth > d.most {
		d.exceeded = true
		return fmt.Errorf("nested deeper than %d levels", d.most)
	}
	return nil
}

// CheckAlias implements yaml.LoaderLimitsPlugin. CheckAlias accepts all aliases, because the parser does not follow aliases. The converter
// limits their number.
func (d *depthLimit) CheckAlias(int, int) error { return nil }

// checkText looks for problems that the parser would not report, or would report without a place. These problems are invalid UTF-8, a byte order
// mark, control characters, line breaks that only some readers recognize, and directives.
func checkText(text string) *definition.Problem {
	cursor := source.Start
	at := func(offset int, kind definition.ErrorKind, message string) *definition.Problem {
		cursor.Advance(text, offset)
		return &definition.Problem{Kind: kind, Position: definition.Position(cursor), Message: message}
	}
	if offset, message := source.Invalid(text); message != "" {
		return at(offset, definition.ErrEncoding, message)
	}
	for offset, r := range text {
		switch {
		case r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\r' && !strings.HasPrefix(text[offset:], "\r\n"):
			return at(offset, definition.ErrAmbiguous, fmt.Sprintf("%U is a line break to some readers only; escape it in double quotes", r))
		case r < ' ' && r != '\t' && r != '\n' && r != '\r' || 0x7f <= r && r < 0xa0 || r == '\uFEFF' || r == '\uFFFE' || r == '\uFFFF':
			return at(offset, definition.ErrSyntax, fmt.Sprintf("%U must be escaped in double quotes", r))
		}
	}
	offset := 0
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "%"):
			return at(offset, definition.ErrUnsupported, "directives are not allowed")
		case trimmed != "" && trimmed[0] != '#':
			return nil // the document has begun
		}
		offset += len(line)
	}
	return nil
}

// The method `problem` turns an error of the parser into a problem.
func (d *depthLimit) problem(text string, err error) *definition.Problem {
	p := &definition.Problem{Kind: definition.ErrSyntax, Message: err.Error(), Position: definition.Position{Line: 1, Column: 1}}
	if d.exceeded {
		p.Kind = definition.ErrLimit
	}
	var le *yaml.LoadError
	switch {
	case errors.Is(err, io.EOF):
		p.Message = "the document is empty"
	case errors.As(err, &le) && d.exceeded:
		p.Message = fmt.Sprintf("nested deeper than %d levels", d.most)
		at := linesOf(text)
		p.Position = at.at(le.Mark.Line, le.Mark.Column)
	case errors.As(err, &le):
		p.Message = fmt.Sprintf("%.200s", strings.TrimSpace(le.Message+" "+le.ContextMsg)) // shortened, since the message may quote the text
		if le.Mark.Line > 0 {
			at := linesOf(text)
			p.Position = at.at(le.Mark.Line, le.Mark.Column)
			at.explain(p, le)
		}
	}
	return p
}

// converter turns nodes of the parser into values. Its recursion is bounded, since depthLimit bounds the depth of the nodes.
type converter struct {
	lines
	limits   definition.Limits
	aliases  int
	anchored map[*yaml.Node]definition.Value // the values that have an anchor, by their nodes
}

func (c *converter) value(n *yaml.Node) definition.Value {
	v := definition.Value{At: c.position(n)}
	switch {
	case n.Kind == yaml.AliasNode:
		return c.alias(n)
	case n.Style&yaml.TaggedStyle != 0:
		v.Problem = c.problem(n, definition.ErrUnsupported, "tags are not allowed")
	case n.Kind == yaml.ScalarNode:
		c.scalar(&v, n)
	case n.Kind == yaml.SequenceNode:
		v.Type = definition.List
		v.Items = make([]definition.Value, len(n.Content))
		for i, item := range n.Content {
			v.Items[i] = c.value(item)
		}
	case n.Kind == yaml.MappingNode && len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode && n.Style&yaml.FlowStyle != 0:
		v.Problem = c.braces(n)
	case n.Kind == yaml.MappingNode:
		v.Type = definition.Object
		v.Items = make([]definition.Value, len(n.Content)/2)
		for i := range v.Items {
			key := c.key(n.Content[2*i])
			v.Items[i] = c.value(n.Content[2*i+1])
			v.Items[i].Key, v.Items[i].KeyAt = key.Key, key.KeyAt
			if key.Problem != nil { // a problem of the key replaces a problem of the value
				v.Items[i].Problem = key.Problem
			}
		}
	default:
		v.Problem = c.problem(n, definition.ErrUnsupported, "this is neither a scalar, a list nor a mapping")
	}
	if n.Anchor != "" {
		c.anchored[n] = v
	}
	return v
}

// The method `braces` returns the problem of a value such as {{ input "x" }}, which YAML reads as a mapping whose key
// is a mapping.
func (c *converter) braces(n *yaml.Node) *definition.Problem {
	p := c.problem(n, definition.ErrSyntax, "")
	at := p.Position.Offset
	value, _, _ := strings.Cut(c.text[at:], "\n")
	line := c.text[strings.LastIndexByte(c.text[:at], '\n')+1 : at]
	p.Message, p.Suggestion = quoted("begins with {{", valueOf(line, value))
	return p
}

// The method `alias` returns the value that an alias stands for. The items are shared with the value at the anchor, not copied. A
// problem in the value is reported at its anchor.
func (c *converter) alias(n *yaml.Node) definition.Value {
	v := definition.Value{At: c.position(n)}
	if c.aliases++; c.aliases > c.limits.Aliases {
		v.Problem = c.problem(n, definition.ErrLimit, "more than %d aliases", c.limits.Aliases)
		return v
	}
	target, ok := c.anchored[n.Alias]
	if !ok {
		v.Problem = c.problem(n, definition.ErrUnsupported, "the alias %.60q contains itself", n.Value)
		return v
	}
	target.At, target.Key, target.KeyAt = v.At, "", definition.Position{}
	return target
}

func (c *converter) scalar(v *definition.Value, n *yaml.Node) {
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		v.Type, v.Text = definition.Text, n.Value
		return
	}
	t, ok := resolve(n.Value)
	if v.Type = t; t != definition.Null {
		v.Text = n.Value
	}
	if !ok {
		v.Problem = c.problem(n, definition.ErrAmbiguous,
			"readers of YAML disagree about a plain %.60s; quote it, or write it as JSON does", n.Value)
	}
}

// The method `key` returns a member that has a key but no value. If the key has a problem, the member has this problem.
func (c *converter) key(n *yaml.Node) (item definition.Value) {
	item.Key, item.KeyAt = n.Value, c.position(n)
	if n.Kind != yaml.ScalarNode {
		item.Key, item.Problem = "?", c.problem(n, definition.ErrUnsupported, "a key must be text")
		return item
	}
	key := c.value(n)
	switch {
	case n.Value == "<<" && n.Style == 0:
		item.Problem = c.problem(n, definition.ErrUnsupported, "merge keys are not allowed")
	case key.Problem != nil:
		item.Problem = key.Problem
		if key.Problem.Kind == definition.ErrAmbiguous {
			item.Problem.Suggestion = strconv.Quote(n.Value)
			item.Problem.Message = fmt.Sprintf("readers of YAML disagree about a plain %.60s; put the key in quotes", n.Value)
		}
	case key.Type != definition.Text:
		item.Problem = c.problem(n, definition.ErrType, "a key must be text, not %v; quote it", key.Type)
	}
	return item
}
