package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/plant"
)

// core returns the names of the Go files of the root package and of package machine, relative to the root of the repository. It omits tests.
func core(root string) (files []string, err error) {
	for _, folder := range []string{"", "machine/"} {
		entries, err := os.ReadDir(filepath.Join(root, folder))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				files = append(files, folder+name)
			}
		}
	}
	return files, nil
}

// A mutant is a bug that was generated from a line of the code.
type mutant struct {
	plant.Bug
	line int
	at   int // the line that a test must execute to reach the bug: for the condition of a case, where the switch begins
}

// generateAll returns all mutants of the core.
func generateAll(root string) ([]mutant, error) {
	files, err := core(root)
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, file := range files {
		mutants, err := generate(root, file)
		if err != nil {
			return nil, err
		}
		all = append(all, mutants...)
	}
	return all, nil
}

// generate returns all mutants of a file.
func generate(root, name string) ([]mutant, error) {
	source, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &generator{file: name, source: string(source), fset: fset, comms: map[ast.Stmt]bool{}}
	for _, group := range file.Comments {
		for _, c := range group.List {
			g.comments = append(g.comments, g.offset(c.Pos()))
		}
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && f.Name.Name != "String" && f.Name.Name != "Error" {
			g.function, g.body, g.end = plant.FuncName(f), g.offset(f.Body.Lbrace)+1, g.offset(f.Body.Rbrace)
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if n != nil {
					g.mutate(n)
				}
				return true
			})
		}
	}
	return g.mutants, nil
}

// generator makes the mutants of one file. A mutant always replaces whole lines, so that the text of these lines identifies it.
type generator struct {
	file, source string
	fset         *token.FileSet
	comments     []int // the offsets at which comments begin
	function     string
	body, end    int               // the offsets of the function's body
	comms        map[ast.Stmt]bool // the communications of select clauses
	cases        []condition
	mutants      []mutant
}

// condition is the condition of a case: its offsets, and the line where the switch begins. A profile of coverage has only the body of a case.
type condition struct{ from, to, at int }

func (g *generator) conditions(body *ast.BlockStmt, begin token.Pos) {
	for _, s := range body.List {
		for _, e := range s.(*ast.CaseClause).List {
			g.cases = append(g.cases, condition{g.offset(e.Pos()), g.offset(e.End()), g.fset.Position(begin).Line})
		}
	}
}

func (g *generator) offset(p token.Pos) int { return g.fset.Position(p).Offset }

func (g *generator) text(n ast.Node) string { return g.source[g.offset(n.Pos()):g.offset(n.End())] }

// The method `replace` makes a mutant in which the text `with` stands instead of the node n.
func (g *generator) replace(n ast.Node, with string) {
	g.replaceRange(g.offset(n.Pos()), g.offset(n.End()), with)
}

func (g *generator) replaceRange(from, to int, with string) {
	first := strings.LastIndexByte(g.source[:from], '\n') + 1
	first += len(g.source[first:from]) - len(strings.TrimLeft(g.source[first:from], " \t"))
	first = max(first, g.body)
	last := to + strings.IndexByte(g.source[to:]+"\n", '\n')
	for _, c := range g.comments {
		if c >= to && c < last {
			last = c
		}
	}
	last = min(last, g.end)
	last = first + len(strings.TrimRight(g.source[first:last], " \t"))
	b := plant.Bug{File: g.file, Func: g.function, Old: g.source[first:last]}
	b.New = strings.TrimSpace(g.source[first:from] + with + g.source[to:last])
	body := g.source[g.body:g.end]
	for plant.Find(body, b.Old, b.Nth) != first-g.body {
		b.Nth++
	}
	known := slices.ContainsFunc(g.mutants, func(m mutant) bool { return m.Bug == b })
	if strings.Count(b.Old, "\n") < 3 && !known {
		line := strings.Count(g.source[:from], "\n") + 1
		m := mutant{b, line, line}
		for _, c := range g.cases { // the innermost one comes last
			if c.from <= from && from <= c.to {
				m.at = c.at
			}
		}
		g.mutants = append(g.mutants, m)
	}
}

// The variable `others` maps each operator to the operators that replace it. It omits the operators of masks and shifts, except |= and &^=. Nearly
// every test would detect a change of an omitted operator, so these mutants would make the tests look better than they are.
var others = map[token.Token][]string{
	token.EQL: {"!="}, token.NEQ: {"=="},
	token.LSS: {"<=", ">="}, token.LEQ: {"<", ">"}, token.GTR: {">=", "<="}, token.GEQ: {">", "<"},
	token.LAND: {"||"}, token.LOR: {"&&"},
	token.ADD: {"-"}, token.SUB: {"+"}, token.MUL: {"+"}, token.QUO: {"*"},
	token.INC: {"--"}, token.DEC: {"++"},
	token.ADD_ASSIGN: {"-="}, token.SUB_ASSIGN: {"+="}, token.OR_ASSIGN: {"&^="}, token.AND_NOT_ASSIGN: {"|="},
}

// mutate makes the mutants of a node, but not of its children.
func (g *generator) mutate(n ast.Node) {
	swap := func(at token.Pos, op token.Token) {
		for _, other := range others[op] {
			g.replaceRange(g.offset(at), g.offset(at)+len(op.String()), other)
		}
	}
	if stmt, ok := n.(ast.Stmt); ok && g.comms[stmt] {
		return // a clause of a select does not compile without its send or receive
	}
	switch n := n.(type) {
	case *ast.CommClause:
		if n.Comm != nil {
			g.comms[n.Comm] = true
		}
	case *ast.BinaryExpr:
		swap(n.OpPos, n.Op)
		if n.Op == token.LAND || n.Op == token.LOR {
			g.replace(n, g.text(n.X))
			g.replace(n, g.text(n.Y))
		}
	case *ast.IncDecStmt:
		swap(n.TokPos, n.Tok)
		g.replace(n, "")
	case *ast.AssignStmt:
		swap(n.TokPos, n.Tok)
		if n.Tok != token.DEFINE {
			g.replace(n, "")
		}
	case *ast.ExprStmt:
		// Calls of Lock and Unlock stay: without one of them the tests would crash or hang.
		if call := g.text(n); !strings.HasPrefix(call, "panic(") && !strings.HasSuffix(call, "ock()") {
			g.replace(n, "")
		}
	case *ast.SendStmt:
		g.replace(n, "")
	case *ast.DeferStmt:
		if text := g.text(n); !strings.HasSuffix(text, "ock()") && !strings.HasSuffix(text, "lockPool()()") {
			g.replace(n, "")
		}
	case *ast.BranchStmt:
		if n.Label == nil && n.Tok != token.FALLTHROUGH {
			g.replace(n, map[token.Token]string{token.BREAK: "continue", token.CONTINUE: "break"}[n.Tok])
		}
		g.replace(n, "")
	case *ast.ReturnStmt:
		if len(n.Results) == 0 {
			g.replace(n, "")
		}
	case *ast.IfStmt:
		g.negate(n.Cond)
	case *ast.ForStmt:
		g.negate(n.Cond)
	case *ast.SwitchStmt:
		g.conditions(n.Body, n.Switch)
		for _, c := range n.Body.List {
			clause := c.(*ast.CaseClause)
			if n.Tag == nil {
				for _, x := range clause.List {
					g.negate(x)
				}
			}
			for i, x := range clause.List {
				if len(clause.List) == 1 {
					break
				}
				if i == 0 {
					g.replaceRange(g.offset(x.Pos()), g.offset(clause.List[1].Pos()), "")
				} else {
					g.replaceRange(g.offset(clause.List[i-1].End()), g.offset(x.End()), "")
				}
			}
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			g.replace(n, g.text(n.X))
		}
	case *ast.BasicLit:
		if i, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
			if g.replace(n, strconv.Itoa(i+1)); i == 1 {
				g.replace(n, "0")
			}
		}
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			g.replace(n, other)
		}
	}
}

// negate makes a mutant with the opposite condition. It does nothing for a condition with an operator, because mutate replaces or removes operators.
func (g *generator) negate(cond ast.Expr) {
	switch cond.(type) {
	case *ast.Ident, *ast.CallExpr, *ast.SelectorExpr, *ast.IndexExpr:
		g.replace(cond, fmt.Sprintf("!%s", g.text(cond)))
	}
}
