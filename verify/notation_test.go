package verify

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Graphs are written in the notation of the conformance matrix, with these additions:
//
//	edges     A.k>B.p      takes the output port k and feeds the parameter p     A-!{panic,step_error}>H  filtered catch edge
//	options   in:p in:p! in:p=  a declared port, required, with a default        set:p set:p=null  a static parameter
//	          when:1 when:err when:panic, ge:skip ge:fail (GuardErrors)          merge:array merge:bad (fails)
//	          test (a condition with a Go test), routes (a condition even without a labelled edge), nomatch (NoMatchFail)
//	          fb (a fallback that produces a value), fb:err (one that fails), try3 (attempts), handles observes (Handling)
//	          ms:5 (how long an attempt takes)                                   *{sat,up:skip} (defaults of all nodes)
//	outcomes  A=panic A=goexit A=flaky (fails once)   C=a+b (two labels)   C=a@2 (which kind of output carries the label)
//	          A=cancel@1 A=cancel@2 A=cancel@3 (by CancelNode; the step heeds it, returns an error, returns a value)
//	          Z=completed Z=failed (the verdict of the end node)

var joinWords = []string{"any", "done", "done1", "1fail", "allfail", "nofail", "noskip", "allskip", "1done", "bnd"}

var (
	edgePattern = regexp.MustCompile(
		`^(\w+)(?:\.(\w+))?(>|~>|-\*>|-!(?:\{([\w,]*)\})?>|-\[(\w+)\]([*!]?)>)(\w+)(?:\.(\w+))?$`)
	optionPattern = regexp.MustCompile(`^(\w+|\*)\{(.*)\}$`)
)

// parse reads the first three fields of a matrix row.
func parse(graphText, options, outcomes string) (*graph, error) {
	g := &graph{}
	declare := func(id string) *node {
		n := g.node(id)
		if n == nil {
			n = &node{id: id}
			g.nodes = append(g.nodes, n)
		}
		return n
	}
	for _, word := range strings.Fields(graphText) {
		if !strings.Contains(word, ">") {
			declare(word)
			continue
		}
		m := edgePattern.FindStringSubmatch(word)
		if m == nil {
			return nil, fmt.Errorf("not an edge: %q", word)
		}
		e := &edge{from: m[1], key: m[2], label: m[5], to: m[7], param: m[8]}
		switch arrow := m[3]; {
		case arrow == "~>":
			e.data = true
		case arrow == "-*>" || m[6] == "*":
			e.on = '*'
		case strings.HasPrefix(arrow, "-!") || m[6] == "!":
			e.on = '!'
		}
		if m[4] != "" {
			e.causes = strings.Split(m[4], ",")
		}
		declare(e.from)
		declare(e.to)
		g.edges = append(g.edges, e)
	}
	for _, word := range strings.Fields(options) {
		m := optionPattern.FindStringSubmatch(word)
		if m == nil || m[1] != "*" && g.node(m[1]) == nil {
			return nil, fmt.Errorf("not an option: %q", word)
		}
		n := &g.defaults
		if m[1] != "*" {
			n = g.node(m[1])
		}
		for option := range strings.SplitSeq(m[2], ",") {
			if err := g.option(n, option); err != nil {
				return nil, err
			}
		}
	}
	for _, word := range strings.Fields(outcomes) {
		id, what, _ := strings.Cut(word, "=")
		n := g.node(id)
		if n == nil {
			return nil, fmt.Errorf("outcome of an unknown node: %q", word)
		}
		what, coding, _ := strings.Cut(what, "@")
		if coding != "" {
			var err error
			if n.coding, err = strconv.Atoi(coding); err != nil {
				return nil, err
			}
		}
		switch what {
		case "ok":
		case "err", "skip", "cancel", "null", "panic", "goexit", "flaky":
			n.outcome = what
		default:
			if n.end {
				n.outcome = what
				break
			}
			n.outcome, n.labels = "label", strings.Split(what, "+")
		}
	}
	return g, nil
}

func (g *graph) option(n *node, option string) error {
	word, arg, _ := strings.Cut(option, ":")
	number := func(prefix string) (int, bool) {
		i, err := strconv.Atoi(strings.TrimPrefix(option, prefix))
		return i, err == nil && strings.HasPrefix(option, prefix)
	}
	if k, ok := number("k"); ok {
		n.join, n.k = "k", k
		return nil
	}
	if tries, ok := number("try"); ok {
		n.tries = tries
		return nil
	}
	switch word {
	case "sat", "strict", "cascade":
		n.skip = word
	case "up":
		n.up = arg
	case "cof":
		n.cof = true
	case "off":
		n.off = true
	case "clean":
		n.cleanup = true
	case "end":
		n.end = true
	case "handles", "observes":
		n.handling = word
	case "test":
		n.test = true
	case "routes":
		n.routes = true
	case "nomatch":
		n.nomatch = true
	case "when":
		n.guard = arg
	case "ge":
		n.guardErr = arg
	case "merge":
		n.merge = arg
	case "fb":
		n.fallback = arg
		if arg == "" {
			n.fallback = "ok"
		}
	case "ms":
		ms, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		n.ms = ms
	case "req":
		n.ports = append(n.ports, port{name: arg, required: true})
		for _, e := range g.edges {
			if e.from == arg && e.to == n.id {
				e.param = arg
			}
		}
	case "in":
		name := strings.TrimRight(arg, "!=")
		n.ports = append(n.ports, port{name, strings.Contains(arg, "!"), strings.Contains(arg, "=")})
	case "set":
		name, val, _ := strings.Cut(arg, "=")
		n.sets = append(n.sets, static{name, val == "null"})
	default:
		if !slices.Contains(joinWords, option) {
			return fmt.Errorf("unknown option: %q", option)
		}
		n.join = option
	}
	return nil
}

// String renders the graph like the first fields of a matrix row, without the flag, so that parse can read it.
func (g *graph) String() string {
	var edges, options, outcomes []string
	var seen []string
	for _, e := range g.edges {
		edges = append(edges, e.String())
		for _, id := range []string{e.from, e.to} {
			if !slices.Contains(seen, id) {
				seen = append(seen, id)
			}
		}
	}
	// The parser declares nodes in the order in which they are first named. If the edges do not give the right order, all nodes are named.
	var names []string
	for i, n := range g.nodes {
		if i >= len(seen) || seen[i] != n.id {
			names = nil
			for _, n := range g.nodes {
				names = append(names, n.id)
			}
			break
		}
	}
	if o := g.defaults.options(); len(o) > 0 {
		options = append(options, "*{"+strings.Join(o, ",")+"}")
	}
	for _, n := range g.nodes {
		if o := n.options(); len(o) > 0 {
			options = append(options, n.id+"{"+strings.Join(o, ",")+"}")
		}
		text := n.outcome
		if text == "label" {
			text = strings.Join(n.labels, "+")
		}
		if n.coding != 0 {
			text += "@" + strconv.Itoa(n.coding)
		}
		if text != "" {
			outcomes = append(outcomes, n.id+"="+text)
		}
	}
	return strings.Join(append(names, edges...), " ") + "|" + strings.Join(options, " ") + "|" +
		strings.Join(outcomes, " ")
}

func (e *edge) String() string {
	var b strings.Builder
	b.WriteString(e.from)
	if e.key != "" {
		b.WriteString("." + e.key)
	}
	on := ""
	if e.on != 0 {
		on = string(e.on)
	}
	switch {
	case e.data:
		b.WriteString("~>")
	case e.label != "":
		b.WriteString("-[" + e.label + "]" + on + ">")
	case len(e.causes) > 0:
		b.WriteString("-!{" + strings.Join(e.causes, ",") + "}>")
	case e.on != 0:
		b.WriteString("-" + on + ">")
	default:
		b.WriteString(">")
	}
	b.WriteString(e.to)
	if e.param != "" {
		b.WriteString("." + e.param)
	}
	return b.String()
}

func (n *node) options() (o []string) {
	add := func(when bool, text string) {
		if when {
			o = append(o, text)
		}
	}
	add(n.join == "k", "k"+strconv.Itoa(n.k))
	add(n.join != "k" && n.join != "", n.join)
	add(n.skip != "", n.skip)
	add(n.up != "", "up:"+n.up)
	add(n.cof, "cof")
	add(n.off, "off")
	add(n.cleanup, "clean")
	add(n.end, "end")
	add(n.handling != "", n.handling)
	add(n.test, "test")
	add(n.routes, "routes")
	add(n.nomatch, "nomatch")
	add(n.guard != "", "when:"+n.guard)
	add(n.guardErr != "", "ge:"+n.guardErr)
	add(n.merge != "", "merge:"+n.merge)
	add(n.fallback == "ok", "fb")
	add(n.fallback == "err", "fb:err")
	add(n.tries != 0, "try"+strconv.Itoa(n.tries))
	for _, p := range n.ports {
		text := "in:" + p.name
		if p.required {
			text += "!"
		}
		if p.fallback {
			text += "="
		}
		o = append(o, text)
	}
	for _, s := range n.sets {
		text := "set:" + s.name
		if s.null {
			text += "=null"
		}
		o = append(o, text)
	}
	add(n.ms != 0, "ms:"+strconv.Itoa(n.ms))
	return o
}

// row is one scenario of the conformance matrix.
type row struct {
	line     int
	g        *graph
	statuses map[string]string // by node: ok F X C S/ann ...
	run      string
	degraded bool
	others   map[string]string // by status rule, if the note gives other statuses
}

var errFields = errors.New("a row has seven fields")

// matrix reads a file in the format of the conformance matrix.
func matrix(name string) (rows []row, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.SplitN(line, "|", 7)
		if len(fields) != 7 {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, errFields)
		}
		r := row{line: i + 1, statuses: map[string]string{}, others: map[string]string{}}
		if r.g, err = parse(fields[1], fields[2], fields[3]); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		for _, word := range strings.Fields(fields[4]) {
			id, status, _ := strings.Cut(word, ":")
			r.statuses[id] = status
		}
		r.run, r.degraded = strings.CutSuffix(fields[5], "+d")
		for _, m := range regexp.MustCompile(`\b(strict|leaves)=(\w+)`).FindAllStringSubmatch(fields[6], -1) {
			r.others[m[1]] = m[2]
		}
		rows = append(rows, r)
	}
	return rows, nil
}
