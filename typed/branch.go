package typed

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// ErrBranch means that a value made in a branch is used outside the branch, or that a [Try] is in another block than its value. It also means that
// an [Either] would have no value if a certain branch is taken.
var ErrBranch = errors.New("values and branches do not match")

// If makes the value the condition of two branches: nodes added to a branch run only if the branch is taken. The node that makes the value is
// the condition in the graph; no further node is needed. Further calls of If for the same value return the same two blocks.
//
//	big, small := typed.If(typed.Do1(b, "big?", isBig, order))
//
// A node on a branch may take any value of the surrounding blocks. A value made in a branch exists only if the branch is taken. [Either] turns the
// values of both branches into one value.
func If(v Val[bool]) (then, otherwise *Block) {
	if !v.src.choose(choiceIf, func(out any) string {
		if yes, err := v.view.read(nil, v.src.id, out); err != nil || !yes {
			return "false"
		}
		return "true"
	}) {
		return nil, nil
	}
	return v.src.branch("true"), v.src.branch("false")
}

// Choice provides the branches of a [Switch].
type Choice[K ~string] struct{ src *source }

// Switch makes the value the choice between branches, one for each Case. All values without a case take the branch Default. If there is no Default,
// a value without a case fails the node with an error that matches [kahn.ErrNoMatch]; a gate instead rejects the value and keeps waiting.
//
//	sw := typed.Switch(typed.Do1(b, "carrier", choose, parcel))
//	air, road := sw.Case(Air), sw.Case(Road)
//
// If the program declares a constant for each case, a misspelt constant does not compile.
func Switch[K ~string](v Val[K]) Choice[K] {
	if !v.src.choose(choiceSwitch, func(out any) string {
		k, err := v.view.read(nil, v.src.id, out)
		if label := strings.TrimSpace(string(k)); err == nil && v.src.has(label) {
			return label
		}
		return defaultCase
	}) {
		return Choice[K]{}
	}
	return Choice[K]{v.src}
}

// Case returns the branch for the value k. A case needs at least one node.
func (c Choice[K]) Case(k K) *Block {
	if c.src == nil {
		return nil
	}
	if label := string(k); label == "" || label == defaultCase || label != strings.TrimSpace(label) {
		c.src.block.in.build.report("node %q: %w: %q cannot be a case: a case must not be empty, begin or end with space, or be %q, which means all other values", c.src.id, kahn.ErrBadValue, label, defaultCase)
	}
	return c.branch(string(k))
}

// Default returns the branch for all other values. Like the branch of a Case, it needs at least one node.
func (c Choice[K]) Default() *Block { return c.branch(defaultCase) }

// The method branch returns the branch for a label. It returns nil after New has returned, since runs may then read the branches.
func (c Choice[K]) branch(label string) *Block {
	if c.src == nil || c.src.block.in.build.over(c.src.id) {
		return nil
	}
	return c.src.branch(label)
}

const defaultCase = "default"

// choose makes the output of a node a choice. The function "answer" returns the label of the branch that an output takes.
func (src *source) choose(how choice, answer func(out any) string) bool {
	switch {
	case src == nil:
		return false
	case src.input:
		src.block.in.build.report("input %q: %w: If and Switch take the value of a node: add a node that returns the input, such as typed.Do1(b, id, func(ctx context.Context, v T) (T, error) { return v, nil }, v)",
			src.id, kahn.ErrBadValue)
	case src.block.in.build.over(src.id):
		return false
	}
	if src.choice == noChoice {
		src.block.in.chosen = append(src.block.in.chosen, src)
	}
	src.choice, src.more().answer = how, answer
	return true
}

// The method has reports whether the branch for a label was requested.
func (src *source) has(label string) bool {
	return slices.ContainsFunc(src.cases, func(b *Block) bool { return b.label == label })
}

// isTaken is the guard of a Try on the branch: it reports whether the branch is taken.
func (b *Block) isTaken(v kahn.View) (bool, error) {
	id := b.router.id
	return v.Status(id) == kahn.Completed && b.router.answer(v.Output(id)) == b.label, nil
}

// Either adds a node that waits until the nodes of all vals have ended. The value of this node is the first existing value in the list "vals".
// Either makes the values of branches available in the block that surrounds the branches:
//
//	shipped := typed.Either(b, "shipped", typed.Do1(big, "split", split, order), typed.Do1(small, "pack", pack, order))
//
// Whichever branches are taken, one of the values must exist. So there must be a value for each branch of an [If] or each case of a [Switch], or
// the last value must be made in the block b itself.
//
// If Options.Join is kahn.AnySucceeded, the node takes the value that exists first. If CancelLosers is set, too, the run then stops each node that
// makes another value, unless further nodes wait for that node.
func Either[T any](b *Block, id string, vals ...Val[T]) Val[T] {
	src := b.add(id, false)
	if src == nil {
		return Val[T]{}
	}
	src.either = true
	if len(vals) == 0 {
		b.in.build.report("node %q: %w: Either needs at least one value", id, kahn.ErrBadValue)
	}
	ins := make([]in[T], len(vals))
	for i, v := range vals {
		ins[i] = input(src, v, i+1)
	}
	return add(src, func(s *kahn.Step) (t T, err error) {
		for i := range ins {
			t, err = ins[i].get(s)
			if _, lacks := err.(missing); !lacks {
				return t, err
			}
		}
		return t, missing("none of the values exists")
	})
}

// checkEither reports the problems of an Either.
func (src *source) checkEither() {
	b, build := src.block, src.block.in.build
	var blocks []*Block
	for _, t := range src.takes {
		if t.input {
			build.report("node %q: %w: Either takes the input %q, but takes only values of nodes: add a node to %v that returns the input", src.id, kahn.ErrBadValue, t.id, b)
			continue
		}
		if !t.block.within(b) {
			build.report("node %q: %w: Either takes %q, which is made in %v, and that is not inside %v: add the Either to a block that surrounds all its values", src.id, ErrBranch, t.id, t.block, b)
			return
		}
		blocks = append(blocks, t.block)
	}
	if len(blocks) == 0 {
		return
	}
	if lacks := b.lacks(blocks); lacks != "" {
		build.report("node %q: %w: Either has no value if %s: add a value made in that branch, or make a value of %v the last one", src.id, ErrBranch, lacks, b)
	}
}

// lacks describes a case in which b runs but none of the blocks runs. It returns "" if there is no such case. The list "blocks" is not empty.
func (b *Block) lacks(blocks []*Block) (text string) {
	for _, at := range blocks {
		if at == b {
			return ""
		}
		for at.parent != b {
			at = at.parent
		}
		if text = at.router.lacks(blocks); text == "" {
			return ""
		}
	}
	return text
}

// lacks describes an output of a choice for which none of the blocks runs. It returns "" if there is no such output.
func (src *source) lacks(blocks []*Block) string {
	for _, branch := range src.cases {
		var inside []*Block
		for _, at := range blocks {
			if at.within(branch) {
				inside = append(inside, at)
			}
		}
		if len(inside) == 0 {
			return fmt.Sprintf("%q answers %q", src.id, branch.label)
		}
		if lacks := branch.lacks(inside); lacks != "" {
			return lacks
		}
	}
	return ""
}
