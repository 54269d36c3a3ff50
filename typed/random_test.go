package typed_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/kahntest"
	"github.com/seed-c794f7ef/kahn/typed"
)

// program is a random pipeline with its expected outcome. The expected outcome comes from a sequential evaluation of the same functions, by the
// rules of the package documentation.
type program struct {
	rand   *rand.Rand
	fails  bool
	nodes  []*made
	result *made
	count  *int
}

type kind int

const (
	step kind = iota
	cond
	either
	tried
	list
	each
	total
	nested
)

// made is a node, with its inputs and its expected status.
type made struct {
	val     typed.Val[int]
	id      string
	kind    kind
	in      *program
	block   *area
	takes   []*made
	tried   *made // the Try that takes the value
	follows bool  // a node of the same graph takes the value
	inner   *program
	imports []*made // for a nested pipeline: the values from outside that its nodes take

	status kahn.Status
	null   bool // the node completed without a value
	value  int
}

// area is a block of the pipeline.
type area struct {
	b      *typed.Block
	parent *area
	router *made
	when   int
}

var errRandom = errors.New("random")

// compute is the common body of all functions.
func compute(id string, fails bool, in ...int) (int, error) {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, id, in) // writing to a hash never fails
	v := int(h.Sum32() % 1000)
	if fails && v%8 == 0 {
		return 0, errRandom
	}
	return v, nil
}

func (p *program) id(what string) string {
	*p.count++
	return fmt.Sprintf("%s%d", what, *p.count)
}

func (p *program) add(m *made) *made {
	m.in = p
	p.nodes = append(p.nodes, m)
	for _, of := range m.takes {
		of.follows = of.follows || of.in == p
	}
	if m.block.router != nil && m.kind != tried && m.kind != either {
		m.block.router.follows = true
	}
	return m
}

// fill adds nodes to a block. The nodes may take known values.
func (p *program) fill(at *area, known []*made, depth int) []*made {
	pick := func() *made { return known[p.rand.IntN(len(known))] }
	for range 1 + p.rand.IntN(5) {
		fails := p.fails
		switch c := p.rand.IntN(12); {
		case len(known) == 0:
			id := p.id("a")
			v := typed.Do0(at.b, id, func(context.Context) (int, error) { return compute(id, fails) })
			known = append(known, p.add(&made{val: v, id: id, block: at}))
		case c < 3:
			id, x := p.id("b"), pick()
			v := typed.Do1(at.b, id, func(_ context.Context, x int) (int, error) { return compute(id, fails, x) }, x.val)
			known = append(known, p.add(&made{val: v, id: id, block: at, takes: []*made{x}}))
		case c < 6:
			id, x, y, z := p.id("c"), pick(), pick(), pick()
			v := typed.Do3(at.b, id, func(_ context.Context, x, y, z int) (int, error) { return compute(id, fails, x, y, z) }, x.val, y.val, z.val)
			known = append(known, p.add(&made{val: v, id: id, block: at, takes: []*made{x, y, z}}))
		case c < 7:
			x := pick()
			if x.in != p || x.block != at || x.tried != nil {
				continue
			}
			id := p.id("t")
			t := typed.Try(at.b, id+"?", x.val)
			seen := p.add(&made{id: id + "?", kind: tried, block: at, takes: []*made{x}})
			x.tried = seen
			v := typed.Do1(at.b, id, func(_ context.Context, r typed.Tried[int]) (int, error) {
				if r.Err != nil {
					return compute(id, fails, -1)
				}
				return compute(id, fails, r.Value)
			}, t)
			known = append(known, p.add(&made{val: v, id: id, block: at, takes: []*made{seen}}))
		case c < 9 && depth > 0:
			known = append(known, p.branches(at, known, pick(), depth))
		case c < 10 && depth > 0:
			known = append(known, p.nest(at, known, depth))
		default:
			known = append(known, p.each(at, pick()))
		}
	}
	return known
}

func (p *program) branches(at *area, known []*made, x *made, depth int) *made {
	id := p.id("if")
	test := typed.Do1(at.b, id, func(_ context.Context, x int) (bool, error) { return x%2 == 1, nil }, x.val)
	router := p.add(&made{id: id, kind: cond, block: at, takes: []*made{x}})
	then, otherwise := typed.If(test)
	var vals []typed.Val[int]
	var takes []*made
	for when, b := range []*typed.Block{otherwise, then} {
		inside := &area{b: b, parent: at, router: router, when: when}
		all := p.fill(inside, slices.Clone(known), depth-1)
		last := all[len(all)-1]
		if last.in != p || last.block != inside { // the branch got no node
			id := p.id("d")
			v := typed.Do1(b, id, func(_ context.Context, x int) (int, error) { return compute(id, false, x) }, last.val)
			last = p.add(&made{val: v, id: id, kind: step, block: inside, takes: []*made{last}})
			last.kind = total
		}
		vals, takes = append(vals, last.val), append(takes, last)
	}
	id = p.id("e")
	return p.add(&made{val: typed.Either(at.b, id, vals...), id: id, kind: either, block: at, takes: takes})
}

func (p *program) nest(at *area, known []*made, depth int) *made {
	id := p.id("sub")
	m := &made{id: id, kind: nested, block: at}
	m.inner = &program{rand: p.rand, fails: p.fails, count: p.count}
	m.val = typed.Sub(at.b, id, func(b *typed.Block) typed.Val[int] {
		top := &area{b: b}
		all := m.inner.fill(top, slices.Clone(known), depth-1)
		last := all[len(all)-1]
		if last.in != m.inner || last.block != top {
			id := p.id("d")
			v := typed.Do1(b, id, func(_ context.Context, x int) (int, error) { return compute(id, false, x) }, last.val)
			last = m.inner.add(&made{val: v, id: id, kind: total, block: top, takes: []*made{last}})
		}
		m.inner.result = last
		return last.val
	})
	for _, n := range m.inner.nodes {
		for _, of := range slices.Concat(n.takes, n.imports) {
			if of.in != m.inner && !slices.Contains(m.imports, of) {
				m.imports = append(m.imports, of)
			}
		}
	}
	m.takes = m.imports
	return p.add(m)
}

func (p *program) each(at *area, x *made) *made {
	id, fails := p.id("f"), p.fails
	l := typed.Do1(at.b, id+"l", func(_ context.Context, x int) ([]int, error) { return []int{x, x + 1, x + 2, x + 3}, nil }, x.val)
	items, errs := typed.Each(at.b, id, l, func(_ context.Context, x int) (int, error) { return compute(id, fails, x) }, typed.Items[int]{ToleratedCount: 1})
	sum := typed.Do2(at.b, id+"s", func(_ context.Context, l []int, errs []error) (int, error) {
		n := 0
		for _, v := range l {
			n += v
		}
		for _, err := range errs {
			if err != nil {
				n += 10000
			}
		}
		return n, nil
	}, items, errs)
	m := p.add(&made{id: id + "l", kind: list, block: at, takes: []*made{x}})
	m = p.add(&made{id: id, kind: each, block: at, takes: []*made{m}})
	return p.add(&made{val: sum, id: id + "s", kind: total, block: at, takes: []*made{m}})
}

// class returns how a node counts for its successors: S succeeded, N skipped, X failed but caught by a Try, F failed.
func (m *made) class() byte {
	switch m.status {
	case kahn.Completed:
		return 'S'
	case kahn.Skipped:
		return 'N'
	}
	if m.tried != nil {
		return 'X'
	}
	return 'F'
}

// evaluate computes the expected statuses of all nodes.
func (p *program) evaluate() (status kahn.RunStatus) {
	for _, m := range p.nodes {
		m.evaluate()
	}
	status = kahn.RunCompleted
	for _, m := range p.nodes {
		if m.status != kahn.Failed && m.status != kahn.Aborted {
			continue
		}
		if handled := m.tried != nil && m.tried.status == kahn.Completed; !handled && (m.tried != nil || !m.follows) {
			status = kahn.RunFailed
		}
	}
	return status
}

func (m *made) evaluate() {
	if m.kind == tried {
		of, r := m.takes[0], m.block.router
		switch {
		case r != nil && (r.status != kahn.Completed || r.value != m.block.when), of.status == kahn.Skipped || of.null:
			m.status = kahn.Skipped
		case of.status == kahn.Completed:
			m.status, m.value = kahn.Completed, of.value
		default:
			m.status, m.value = kahn.Completed, -1
		}
		return
	}
	var classes []byte
	for _, of := range m.takes {
		if of.in == m.in {
			classes = append(classes, of.class())
		}
	}
	beside := func(of *made) bool { return of.in == m.in && of.block == m.block } // a value of the same branch already ties the node to the branch
	if r := m.block.router; r != nil && m.kind != either && !slices.ContainsFunc(m.takes, beside) {
		c := r.class()
		if c == 'S' && r.value != m.block.when {
			c = 'X'
		}
		classes = append(classes, c)
	}
	lives := func(of *made) bool { return of.in != m.in || of.status == kahn.Completed }
	switch {
	case slices.Contains(classes, 'F'):
		m.status = kahn.Aborted
	case m.kind == either:
		m.status = kahn.Skipped
		for _, of := range m.takes {
			if lives(of) && !of.null {
				m.status, m.value = kahn.Completed, of.value
				return
			}
		}
	case slices.Contains(classes, 'N') || slices.Contains(classes, 'X'):
		m.status = kahn.Skipped
	case m.kind != nested && slices.ContainsFunc(m.takes, func(of *made) bool { return of.null }):
		m.status = kahn.Skipped
	default:
		m.perform()
	}
}

// ends reports whether the graph of a sub-pipeline gets an end node, because the node of the result is not the last one. An end node is never
// skipped.
func (p *program) ends() bool {
	return p.result.follows || slices.ContainsFunc(p.nodes, func(m *made) bool { return m != p.result && !m.follows })
}

func (m *made) perform() {
	var in []int
	for _, of := range m.takes {
		in = append(in, of.value)
	}
	m.status = kahn.Completed
	var err error
	switch m.kind {
	case step:
		m.value, err = compute(m.id, m.in.fails, in...)
	case cond:
		m.value = in[0] % 2
	case list:
		m.value = in[0]
	case each:
		failed := 0
		for i := range 4 {
			v, err := compute(m.id, m.in.fails, in[0]+i)
			if m.value += v; err != nil {
				failed++
				m.value += 10000
			}
		}
		if failed > 1 {
			err = errRandom
		}
	case total:
		if m.value = in[0]; m.id[0] == 'd' {
			m.value, _ = compute(m.id, false, in...)
		}
	case nested:
		if m.inner.evaluate() == kahn.RunFailed {
			err = errRandom
		} else if m.inner.ends() || slices.ContainsFunc(m.inner.nodes, func(n *made) bool { return n.status != kahn.Skipped }) {
			m.value, m.null = m.inner.result.value, m.inner.result.status != kahn.Completed
		} else {
			m.status = kahn.Skipped
		}
	}
	if err != nil {
		m.status = kahn.Failed
	}
}

// Random pipelines have the same statuses and results as the sequential evaluation of their functions, in every mode and under every limit.
func TestRandomPipelines(t *testing.T) {
	t.Parallel()
	rounds, first := 400, 0
	if os.Getenv("KAHN_LONG") != "" {
		rounds, first = 20_000, rand.IntN(1e9) // a failure names its seed
	}
	seen := map[string]int{}
	for seed := first; seed < first+rounds; seed++ {
		r := rand.New(rand.NewPCG(uint64(seed), 21))
		p := &program{rand: r, fails: seed%3 != 0, count: new(int)}
		pipe := typed.New("random", func(b *typed.Block) typed.Val[int] {
			top := &area{b: b}
			known := p.fill(top, nil, 3)
			p.result = known[len(known)-1]
			return p.result.val
		})
		g, err := pipe.Graph()
		require.NoError(t, err, "seed %d", seed)
		opts := []kahn.Option{pipe.Encoding(), kahn.Limit(r.IntN(4)), kahn.Mode(r.IntN(2))}
		trial := kahntest.Run(t, g, nil, opts...)
		want := p.evaluate()
		for _, m := range p.nodes {
			n, ok := trial.Node(m.id)
			require.True(t, ok)
			require.Equal(t, m.status.String(), n.Status.String(), "seed %d: %s: %v %v", seed, m.id, n.Err, n.Skip)
			seen[fmt.Sprint(m.kind, n.Status)]++
		}
		require.Equal(t, want.String(), trial.Status.String(), "seed %d", seed)
		out, err := pipe.Output(trial.Result)
		if p.result.status == kahn.Completed && !p.result.null {
			require.NoError(t, err, "seed %d", seed)
			require.Equal(t, p.result.value, out, "seed %d", seed)
			seen["output"]++
		} else {
			require.ErrorIs(t, err, kahn.ErrNoValue, "seed %d", seed)
		}
	}
	for k := step; k <= nested; k++ {
		require.Greater(t, seen[fmt.Sprint(k, kahn.Completed)], 20, "kind %d", k)
		require.Greater(t, seen[fmt.Sprint(k, kahn.Skipped)], 3, "kind %d", k)
	}
	require.Greater(t, seen["output"], rounds/3)
}
