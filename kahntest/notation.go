package kahntest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-c794f7ef/kahn"
)

// Graph builds a graph from a text in the notation of this package. It ends the test if it cannot read the text, or if the graph does not compile.
func Graph(t testing.TB, text string) *kahn.Graph {
	t.Helper()
	nodes, edges, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	g := new(kahn.Graph).Add(nodes...).Connect(edges...)
	if _, err := g.Compile(); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return g
}

var edgeSyntax = regexp.MustCompile(`^([^\s>~{}-]+?)(?:-\[([^\]]*)\]>|-!>|-\*>|~>|>)([^\s>{}]+)$`)

// Parse reads a text in the notation of this package. It is for tests that change the nodes before they make a graph. The error names the word that
// Parse cannot read.
func Parse(text string) ([]kahn.Node, []kahn.Edge, error) {
	p := parser{index: map[string]int{}, between: map[[2]string][]int{}}
	var options []string
	for _, word := range strings.Fields(text) {
		if strings.HasSuffix(word, "}") && strings.Contains(word, "{") {
			options = append(options, word)
		} else if err := p.word(word); err != nil {
			return nil, nil, err
		}
	}
	for _, word := range options {
		id, list, _ := strings.Cut(strings.TrimSuffix(word, "}"), "{")
		n := p.find(id)
		if n == nil {
			return nil, nil, p.badOptions(word, id, list)
		}
		for option := range strings.SplitSeq(list, ",") {
			if err := p.option(n, option); err != nil {
				return nil, nil, fmt.Errorf("%q: %w", word, err)
			}
		}
	}
	return p.nodes, p.edges, nil
}

// badOptions returns the error for a word with options whose node no other word names.
func (p *parser) badOptions(word, id, list string) error {
	if m := edgeSyntax.FindStringSubmatch(id); m != nil {
		return fmt.Errorf("%q is neither a node nor an edge: the options of a node are a word of their own: write %q", word, id+" "+m[3]+"{"+list+"}")
	}
	end := ": write " + strconv.Quote(id+" "+word)
	if len(p.nodes) > 0 {
		end = instead(id, p.ids())
	}
	return fmt.Errorf("%q has options, but no other word names the node %q%s", word, id, end)
}

type parser struct {
	nodes []kahn.Node
	edges []kahn.Edge
	index map[string]int // the indices of the nodes, by id

	between map[[2]string][]int // by the ids of the source and the target: the indices of the edges that have no parameter
}

func (p *parser) find(id string) *kahn.Node {
	i, ok := p.index[id]
	if !ok {
		return nil
	}
	return &p.nodes[i]
}

func (p *parser) ids() (ids []string) {
	for _, n := range p.nodes {
		ids = append(ids, n.ID)
	}
	return ids
}

func (p *parser) declare(id string) {
	if p.find(id) == nil {
		p.index[id] = len(p.nodes)
		p.nodes = append(p.nodes, kahn.Node{ID: id})
	}
}

// The method `word` reads a word that is an edge or a node.
func (p *parser) word(word string) error {
	m := edgeSyntax.FindStringSubmatch(word)
	if m == nil || otherArrow.MatchString(word) {
		if strings.Contains(word, "{") {
			return fmt.Errorf("%q is neither a node nor an edge: options are written A{opt,opt}, without spaces", word)
		}
		if strings.ContainsAny(word, ">}→") {
			return fmt.Errorf("%q is neither a node nor an edge%s", word, edgeInstead(word))
		}
		p.declare(word)
		return nil
	}
	e := kahn.Edge{From: m[1], To: m[3], Label: m[2]}
	p.declare(e.From)
	p.declare(e.To)
	switch arrow := word[len(e.From) : len(word)-len(e.To)]; {
	case arrow == "-!>":
		e.On = kahn.OnFailure
	case arrow == "-*>":
		e.On = kahn.OnAlways
	case arrow == "~>":
		e.DataOnly = true
	case e.Label != "":
		p.find(e.From).Routes = true
	}
	ends := [2]string{e.From, e.To}
	p.between[ends] = append(p.between[ends], len(p.edges))
	p.edges = append(p.edges, e)
	return nil
}

// otherArrow matches an edge in the notation of another tool.
var otherArrow = regexp.MustCompile(`^([^\s>~{}=→-]+)(?:[-=]+>|→)([^\s>{}→]+)$`)

// edgeInstead returns the end of an error message about a word that is not an edge. The text lists the valid forms of edges. If edgeInstead
// recognizes the edge that the author may have meant, the text also contains this edge.
func edgeInstead(word string) string {
	forms := ": edges are written A>B, A-[label]>B, A-!>B, A-*>B, A~>B, without spaces"
	if m := otherArrow.FindStringSubmatch(word); m != nil {
		return fmt.Sprintf("; did you mean %q?%s", m[1]+">"+m[2], forms)
	}
	return forms
}

var joins = map[string]kahn.Join{
	"any": kahn.AnySucceeded, "done": kahn.AllDone, "done1": kahn.AllDoneMinOne, "1fail": kahn.OneFailed,
	"allfail": kahn.AllFailed, "nofail": kahn.NoneFailed, "noskip": kahn.NoneSkipped, "allskip": kahn.AllSkipped,
	"1done": kahn.OneDone, "all": kahn.AllSucceeded, "bnd": kahn.Boundary,
}

var settings = map[string]func(*kahn.Node){
	"sat":      func(n *kahn.Node) { n.SkipMode = kahn.SkipSatisfy },
	"strict":   func(n *kahn.Node) { n.SkipMode = kahn.SkipStrict },
	"cascade":  func(n *kahn.Node) { n.SkipMode = kahn.SkipCascade },
	"up:skip":  func(n *kahn.Node) { n.OnUpstreamFailure = kahn.UpstreamSkip },
	"up:prop":  func(n *kahn.Node) { n.OnUpstreamFailure = kahn.UpstreamPropagate },
	"up:def":   func(n *kahn.Node) { n.OnUpstreamFailure = kahn.UpstreamSubstitute },
	"up:abort": func(n *kahn.Node) { n.OnUpstreamFailure = kahn.UpstreamAbort },
	"cof":      func(n *kahn.Node) { n.ContinueOnFail = true },
	"handles":  func(n *kahn.Node) { n.Handling = kahn.Handles },
	"observes": func(n *kahn.Node) { n.Handling = kahn.Observes },
	"off":      func(n *kahn.Node) { n.Disabled = true },
	"clean":    func(n *kahn.Node) { n.Cleanup = true },
	"end":      func(n *kahn.Node) { n.Kind = kahn.KindEnd },
	"gate":     func(n *kahn.Node) { n.Kind, n.Routes = kahn.KindGate, false },
	"trigger":  func(n *kahn.Node) { n.Kind = kahn.KindTrigger },
	"when:0":   func(n *kahn.Node) { n.When = func(kahn.View) (bool, error) { return false, nil } },
	"when:1":   func(n *kahn.Node) { n.When = func(kahn.View) (bool, error) { return true, nil } },
}

func (p *parser) option(n *kahn.Node, option string) error {
	if join, ok := joins[option]; ok {
		n.Join = join
		return nil
	}
	if set, ok := settings[option]; ok {
		set(n)
		return nil
	}
	if k, ok := strings.CutPrefix(option, "k"); ok {
		if k, err := strconv.Atoi(k); err == nil && k > 0 {
			n.Join = kahn.AtLeast(k)
			return nil
		}
	}
	from, ok := strings.CutPrefix(option, "req:")
	if !ok {
		known := append(slices.Sorted(maps.Keys(joins)), slices.Sorted(maps.Keys(settings))...)
		return fmt.Errorf("unknown option %q%s", option, instead(option, append(known, "k2", "req:A")))
	}
	ends := [2]string{from, n.ID}
	between := p.between[ends] // of several parallel edges, the first without a parameter gets it
	if len(between) == 0 {
		return fmt.Errorf("option %q: no edge from %q to %q", option, from, n.ID)
	}
	i := between[0]
	p.between[ends] = between[1:]
	p.edges[i].Param = "from " + from
	n.Ports = append(n.Ports, kahn.Port{Name: p.edges[i].Param, Required: true})
	return nil
}
