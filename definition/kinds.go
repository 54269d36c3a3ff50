package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// checkKinds checks the nodes and compensations of a graph. It returns a problem for each kind that the host does not perform, and for each config
// that violates the schema of its kind. It returns no problem for a node that needs no step of the host, and has no kind or a kind in ownKinds.
// checkKinds checks configs only if the graph has Schemas. If `part` is true, some parts of the document could not be read. A node may then lack its
// kind or its test, so checkKinds does not report that the node needs a step of the host.
func checkKinds(g *kahn.Graph, kinds map[string]Kind, part bool) []error {
	c := kindChecker{part: part, kinds: kinds, known: slices.Sorted(maps.Keys(kinds)), contracts: map[string]kahn.Contract{}, schemas: g.Schemas}
	c.graph("", g)
	return c.problems
}

type kindChecker struct {
	part      bool
	kinds     map[string]Kind
	known     []string
	contracts map[string]kahn.Contract
	schemas   interface {
		Compile(any) (kahn.Contract, error)
	}
	problems []error
}

func (c *kindChecker) graph(path string, g *kahn.Graph) {
	nodes := g.Nodes()
	for i := range nodes {
		n := &nodes[i]
		c.node(path, n)
		if n.Sub != nil {
			c.graph(joinPath(path, n.ID), n.Sub)
		}
	}
}

func (c *kindChecker) node(graph string, n *kahn.Node) {
	_, performed := c.kinds[n.Kind]
	_, own := ownKinds[n.Kind]
	add := func(field, suggestion string, err error) {
		c.problems = append(c.problems, &kahn.Problem{Graph: graph, Node: n.ID, Field: field, Suggestion: suggestion, Err: err})
	}
	unknown := func(field, kind string, more []string) {
		end, meant := fmt.Sprintf("; there are %s", strings.Join(c.known, ", ")), ""
		if name, ok := nearest.Name(kind, append(more, c.known...)); ok {
			end, meant = fmt.Sprintf("; did you mean %s?", quote(name)), name
		}
		add(field, meant, fmt.Errorf("%w %s%s", kahn.ErrUnknownKind, quote(kind), end))
	}
	refused := func(field, kind string, config any) {
		for _, v := range c.violations(kind, config) {
			message, in := v.Message, fieldOf(v.Path)
			if in != "" { // the document may lack the field, so the place of the problem may not name the field
				message = strings.TrimPrefix(in, ".") + ": " + message
			}
			add(field+in, "", fmt.Errorf("config of kind %s: %s", quote(kind), message))
		}
	}
	switch {
	case performed && n.Sub == nil:
		refused("Config", n.Kind, n.Config)
	case performed:
	case n.Kind != "" && !own:
		unknown("Kind", n.Kind, slices.Sorted(maps.Keys(ownKinds)))
	case needsStep(n) && !c.part:
		add("Kind", "", fmt.Errorf("%w %s: the node has a step to perform; there are %s", kahn.ErrUnknownKind, quote(n.Kind), strings.Join(c.known, ", ")))
	}
	if by := n.CompensateBy; by == nil || by.Kind == "" { // Compile rejects a CompensateBy without a kind
	} else if _, performed := c.kinds[by.Kind]; !performed {
		unknown("CompensateBy.Kind", by.Kind, nil)
	} else {
		refused("CompensateBy.Config", by.Kind, by.Config)
	}
}

// needsStep reports whether only a step function of the host can perform the node.
func needsStep(n *kahn.Node) bool {
	return n.Do == nil && n.Sub == nil && n.Test == nil && n.TestExpr == "" && !n.Disabled &&
		n.Kind != kahn.KindGate && n.Kind != kahn.KindTrigger && n.Kind != kahn.KindEnd
}

// The method `violations` checks a config against the schema of its kind.
func (c *kindChecker) violations(kind string, config any) []kahn.Violation {
	schema := c.kinds[kind].Config
	if schema == nil || c.schemas == nil {
		return nil
	}
	contract, compiled := c.contracts[kind]
	if !compiled {
		var err error
		if contract, err = c.schemas.Compile(schema); err != nil {
			c.problems = append(c.problems, fmt.Errorf("the schema of kind %s: %w", quote(kind), err))
		}
		c.contracts[kind] = contract
	}
	if contract == nil {
		return nil
	}
	if config == nil {
		return contract.Check(map[string]any{})
	}
	return contract.Check(config)
}

var (
	pointerEscape   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// fieldOf turns a JSON pointer into the form of field names: "/a/0" becomes ".a[0]".
func fieldOf(pointer string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch {
		case part == "":
		case strings.Trim(part, "0123456789") == "":
			b.WriteString("[" + part + "]")
		default:
			b.WriteString("." + pointerUnescape.Replace(part))
		}
	}
	return b.String()
}
