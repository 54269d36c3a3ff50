package verify

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A property test covers only the cases that occur in its random graphs. This test checks that each case in its list
// occurs often enough.
func TestGeneratorReachesEverything(t *testing.T) {
	const graphsTried, atLeast = 4000, 5
	seen := map[string]int{}
	for seed := range graphsTried {
		note(predict(graphs.Example(seed)), func(what string) { seen[what]++ })
	}
	for _, what := range []string{
		"all run", "all skip", "all blocked", "any run", "any skip", "any blocked", "k run", "k skip", "k blocked",
		"done run", "done skip", "done1 run", "done1 skip", "done1 blocked", "1fail run", "1fail skip",
		"allfail run", "allfail skip", "nofail run", "nofail skip", "nofail blocked", "noskip run", "noskip skip",
		"allskip run", "allskip skip", "1done run", "1done skip", "bnd run", "bnd skip",
		"early all", "early nofail", "early k blocked", "early any", "early k", "early 1fail", "early 1done",
		"waits for a required port",
		"policy abort", "policy skip", "policy prop", "policy def",
		"mode sat satisfies", "mode sat stays neutral", "mode strict skips",
		"edge shielded", "edge caught", "edge not caught", "edge always", "edge tolerated", "edge routed away", "edge data",
		"skip ann", "skip br", "skip up", "skip when", "skip null", "skip pf", "skip rule", "skip self",
		"routing root", "bypass root",
		"edge way in", "edge earlier way in, no router asked", "edge earlier way in, a router asked", "edge side S", "edge side F",
		"all skip for side edges", "bnd skip for side edges", "all run by a way in", "no defaults", "defaults for an always edge", "defaults of another rule",
		"label into the end taken", "label into the end not taken", "default hidden by a label into the end",
		"cause step_error", "cause panic", "cause goexit", "cause condition_error", "cause merge_error",
		"cause no_branch_match", "cause upstream_failure", "cause upstream_cancelled", "cause external",
		"propagated from a cancellation", "several origins", "fallback", "retried", "default label", "two branches",
		"end verdict", "end broken", "handled though it observes by default", "observed though it handles by default", "victim of the class cancel",
		"escaped completed", "escaped failed", "escaped cancelled", "escaped degraded",
		"leaves completed", "leaves failed", "leaves cancelled", "leaves degraded",
		"strict completed", "strict failed", "strict cancelled", "strict degraded",
		"the rules differ",
	} {
		assert.GreaterOrEqual(t, seen[what], atLeast, "%s, in %d graphs", what, graphsTried)
	}
}

func note(p *prediction, saw func(string)) {
	at := p.eager()
	for _, n := range p.g.nodes {
		noteNode(p, n, at, func(yes bool, what string) {
			if yes {
				saw(what)
			}
		})
	}
	for rule, status := range p.status {
		saw(rule + " " + status)
		if p.degraded[rule] {
			saw(rule + " degraded")
		}
	}
	if p.status["escaped"] != p.status["leaves"] || p.status["leaves"] != p.status["strict"] {
		saw("the rules differ")
	}
}

func noteNode(p *prediction, n *node, at map[string]moment, saw func(bool, string)) {
	f := p.fates[n.id]
	saw(f.status == "S", "skip "+f.reason)
	saw(f.cause != "", "cause "+f.cause)
	saw(n.end && (n.outcome == "completed" || n.outcome == "failed"), "end verdict")
	saw(n.end && f.status == "F", "end broken")
	if f.root || n.end {
		return
	}
	join := p.join(n)
	noteBranch(p, n, join, saw)
	in := p.g.in(n.id)
	last := 0
	for _, e := range in {
		c := p.resolve(e)
		src := p.fates[e.from]
		bound := slices.ContainsFunc(n.ports, func(port port) bool { return port.required && port.name == e.param })
		last = max(last, at[e.from].ended)
		saw(c == neutral && src.status != "S", "edge shielded")
		saw(c == satisfied && e.on == '!', "edge caught")
		saw(c == failure && e.on == '!', "edge not caught")
		saw(c == satisfied && e.on == '*' && src.status != "ok", "edge always")
		saw(c == satisfied && src.tolerated && e.on == 0, "edge tolerated")
		saw(c == dead && e.on == 0 && (src.status == "F" && !src.tolerated || src.status == "X"), "edge routed away")
		saw(c == dataOnly, "edge data")
		saw(c == neutral && n.skip == "sat" && p.seen(n, e) == satisfied, "mode sat satisfies")
		saw(c == neutral && n.skip == "sat" && p.seen(n, e) == neutral, "mode sat stays neutral")
		saw(bound && slices.Contains(earlyRules, n.rule()) && at[n.id].decided == at[e.from].ended && len(in) > 1,
			"waits for a required port")
	}
	if len(in) > 0 && p.count(n, dataOnly) < len(in) {
		saw(true, n.rule()+" "+join)
		early := at[n.id].decided < last
		saw(early && join == "run", "early "+n.rule())
		saw(early && join == "blocked" && n.rule() == "k", "early k blocked")
		saw(early && join == "blocked" && n.rule() != "k", "early "+n.rule())
	}
	policy := n.up
	if policy == "" {
		policy = "abort"
	}
	saw(join == "blocked", "policy "+policy)
	saw(join == "skip" && n.skip == "strict" && n.rule() == "all" && p.count(n, satisfied) > 0, "mode strict skips")
	saw(join == "skip" && f.routing, "routing root")
	saw(join == "skip" && !f.routing, "bypass root")
	saw(f.status == "F" && !f.own && f.cause == "upstream_cancelled", "propagated from a cancellation")
	saw(f.status == "X" && !p.failureClass(n), "victim of the class cancel")
	saw(len(f.origins) > 1, "several origins")
	saw(f.fallback, "fallback")
	saw(f.attempts > 1, "retried")
	saw(slices.Contains(f.taken, "default") && !slices.Contains(n.labels, "default"), "default label")
	saw(len(f.taken) > 1, "two branches")
	saw(f.ready && !n.observer() && n.observesByDefault() && p.count(n, failure) > 0, "handled though it observes by default")
	saw(f.ready && n.observer() && !n.observesByDefault() && p.count(n, failure) > 0, "observed though it handles by default")
}

// noteBranch counts the cases of nodes that are on a branch.
func noteBranch(p *prediction, n *node, join string, saw func(bool, string)) {
	for _, e := range p.g.in(n.id) {
		standing, c := p.standing(e), p.seen(n, e)
		side := p.side(n, e)
		saw(standing == wayIn, "edge way in")
		saw(standing == earlierWayIn && !side, "edge earlier way in, no router asked")
		saw(standing == earlierWayIn && side, "edge earlier way in, a router asked")
		saw(side && c == satisfied, "edge side S")
		saw(side && c == failure, "edge side F")
		saw(c == satisfied && !side && standing != regular && n.rule() == "all" && join == "run" &&
			p.countReasons(n, satisfied) == 1, "all run by a way in")
	}
	s, f := p.count(n, satisfied), p.count(n, failure)
	saw(join == "skip" && n.rule() == "all" && n.skip != "strict" && s > 0, "all skip for side edges")
	saw(join == "skip" && n.rule() == "bnd" && s+f > 0, "bnd skip for side edges")
	substitutes := join == "blocked" && n.up == "def" && len(p.g.routers(n.id)) > 0
	beside := substitutes && !slices.ContainsFunc(p.g.in(n.id), func(e *edge) bool {
		return p.seen(n, e) == failure && !p.side(n, e) || p.seen(n, e) == satisfied && (e.routes() || e.plain() && !p.side(n, e))
	})
	always := slices.ContainsFunc(p.g.in(n.id), func(e *edge) bool { return e.on == '*' && p.seen(n, e) == satisfied })
	saw(substitutes && p.noDefaults(n), "no defaults")
	saw(beside && n.rule() == "all" && always, "defaults for an always edge")
	saw(beside && n.rule() != "all", "defaults of another rule")
	for _, e := range p.g.out(n.id) {
		if e.label == "" || !p.g.node(e.to).end || p.fates[n.id].status != "ok" {
			continue
		}
		taken := slices.Contains(p.fates[n.id].taken, e.label)
		alone := !slices.ContainsFunc(p.g.out(n.id), func(o *edge) bool { return o.label == e.label && o.to != e.to })
		saw(taken, "label into the end taken")
		saw(!taken, "label into the end not taken")
		saw(taken && alone && slices.ContainsFunc(p.g.out(n.id), func(o *edge) bool { return o.label == "default" && e.label != "default" }),
			"default hidden by a label into the end")
	}
}
