package yaml

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
)

// Encode writes a graph as a YAML document: see [definition.Encode]. Decoding the document gives an equal graph.
func Encode(g *kahn.Graph) ([]byte, error) { return EncodeDocument(&definition.Document{Graph: g}) }

// EncodeDocument is like Encode, but also writes the schedule of the document.
func EncodeDocument(doc *definition.Document) ([]byte, error) {
	root, err := doc.Tree()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	dumper, err := yaml.NewDumper(&b, yaml.WithV4Defaults(), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, err
	}
	if err := dumper.Dump(node(root)); err != nil {
		return nil, err
	}
	if err := dumper.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// The function `node` turns a value into a node of the YAML library. Empty lists and objects
// are written on one line, and so are lists of scalars without line breaks.
func node(v *definition.Value) *yaml.Node {
	switch v.Type {
	case definition.Null:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	case definition.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: v.Text}
	case definition.Number:
		tag := "!!int"
		if strings.ContainsAny(v.Text, ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: v.Text}
	case definition.Text:
		return text(v.Text)
	}
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if v.Type == definition.Object {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	flat := v.Type == definition.List
	for i := range v.Items {
		item := &v.Items[i]
		if v.Type == definition.Object {
			n.Content = append(n.Content, text(item.Key))
		}
		n.Content = append(n.Content, node(item))
		flat = flat && item.Type < definition.List && !strings.Contains(item.Text, "\n")
	}
	if flat || len(v.Items) == 0 {
		n.Style = yaml.FlowStyle
	}
	return n
}

// The function `text` returns the node of a text. A text of several lines is written as a block if a block can express it, and otherwise in
// double quotes. A text of one line is in double quotes if some readers do not read it as text, or if it has a character that must be escaped. For
// any other text of one line, the YAML library decides whether it needs quotes.
func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	t, ok := resolve(s)
	switch {
	case strings.Contains(s, "\n") && !strings.ContainsFunc(s, special) && !strings.HasPrefix(s, " ") && !strings.HasPrefix(s, "\n"):
		n.Style = yaml.LiteralStyle
	case t != definition.Text || !ok || strings.ContainsFunc(s, func(r rune) bool { return r == '\n' || special(r) }):
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// The function `special` reports whether a character must be escaped.
func special(r rune) bool {
	return r < ' ' && r != '\n' || 0x7f <= r && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\uFEFF' || r == '\uFFFE' || r == '\uFFFF'
}
