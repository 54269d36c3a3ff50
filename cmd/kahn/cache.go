package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// keptFor and keptBytes limit a cache. The method `tidy` removes each output that no run has used for the time keptFor. Then it removes the least
// recently used outputs, until the remaining outputs take at most keptBytes in total.
const (
	keptFor   = 30 * 24 * time.Hour
	keptBytes = 1 << 30
)

// cache stores the outputs of nodes with a memo, so that later runs can use them.
type cache struct {
	dir     string // "" means that no outputs are kept
	refresh bool
}

func (c *cache) register(f *flags) {
	f.file(&c.dir, "cache", "keep the outputs of nodes with a memo in this `folder`, and take them from there")
	f.BoolVar(&c.refresh, "refresh", false, "with -cache: always run nodes with a memo, and replace their cached outputs")
}

func (c *cache) check() error {
	if c.refresh && c.dir == "" {
		return errors.New("-refresh needs -cache")
	}
	return nil
}

// The method `options` returns the options for runs of a graph that `prepare` has returned. Runs with the same options share a Memo: if several runs
// need the same output at the same time, one run calls the step, and the other runs wait for the output.
func (c *cache) options() []kahn.Option {
	switch {
	case c.dir == "":
		return nil
	case c.refresh:
		return []kahn.Option{&kahn.Memo{Cache: store.DirCache{Dir: c.dir}}, kahn.Refresh()}
	}
	return []kahn.Option{&kahn.Memo{Cache: store.DirCache{Dir: c.dir}}}
}

// The method `tidy` removes old outputs from the cache: see keptFor.
func (c *cache) tidy(ctx context.Context, t *terminal) {
	if c.dir == "" {
		return
	}
	if _, err := (store.DirCache{Dir: c.dir}).Prune(ctx, keptFor, keptBytes); err != nil && ctx.Err() == nil {
		t.printf("kahn: the cache in %s: %v\n", c.dir, err)
	}
}

// The method `prepare` returns a copy of the graph in which each node with a memo has a memo key: see keyOfStep and keyOfComposite. The plan of the
// copy has the same hash. Without a cache, prepare returns the graph itself.
func (c *cache) prepare(g *kahn.Graph) (*kahn.Graph, error) {
	if c.dir == "" {
		return g, nil
	}
	folder, err := os.Getwd() // commands run in this folder, and names of files are relative to it
	if err != nil {
		return nil, err
	}
	return keyed(g, folder)
}

func keyed(g *kahn.Graph, folder string) (*kahn.Graph, error) {
	to := &kahn.Graph{Name: g.Name, Defaults: g.Defaults, Inputs: g.Inputs, Groups: g.Groups, Evaluator: g.Evaluator, StrictGuards: g.StrictGuards, Schemas: g.Schemas}
	nodes, delivered := g.Nodes(), map[string]map[string]bool{}
	for _, e := range g.Edges() {
		if delivered[e.To] == nil {
			delivered[e.To] = map[string]bool{}
		}
		delivered[e.To][e.Param] = true
	}
	for i := range nodes {
		n := &nodes[i]
		if n.Memo != "" && n.Sub == nil {
			n.MemoKey = func(s *kahn.Step) (string, error) { return keyOfStep(s, folder) }
		} else if n.Memo != "" {
			key, err := keyOfComposite(n, delivered[n.ID], folder)
			if err != nil {
				return nil, err
			}
			n.MemoKey = key
		}
		if n.Sub != nil {
			inner, err := keyed(n.Sub, folder)
			if err != nil {
				return nil, err
			}
			n.Sub = inner
		}
	}
	return to.Add(nodes...).Connect(g.Edges()...), nil
}

// keyOfStep returns, as JSON, the values on which the output of a step depends: the folder, the kind, the config and, for a jq program, its input.
// The templates in the config are expanded.
func keyOfStep(s *kahn.Step, folder string) (string, error) {
	config, input := s.Config(), any(nil)
	if kinds[s.Kind()].verbatim {
		input, _ = s.Param("input") // the input of a jq program
	} else {
		var err error
		if config, err = expand(s, config); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal([]any{folder, s.Kind(), config, input})
	return string(text), err
}

// keyOfComposite returns the MemoKey function of a composite. The key contains the values on which the composite's output depends: the folder, the
// graph inside, the composite's parameters, the values from its predecessors, and each root input that inner nodes name in templates or expressions.
// Such a root input counts even if the composite does not pass it on, because templates of inner nodes can read it. If a template computes the name
// of an input, all root inputs count.
func keyOfComposite(n *kahn.Node, delivered map[string]bool, folder string) (func(s *kahn.Step) (string, error), error) {
	plan, err := n.Sub.Compile()
	if err != nil {
		return nil, err
	}
	used := namesUsed(n.Sub)
	for _, in := range n.Sub.Inputs {
		used.inputs[in.Name] = true
	}
	if n.Loop != nil {
		used.find(n.Loop.UntilExpr)
	}
	used.inputs["item"] = true
	// All parameters of a composite count, unless the composite is a map. The parameters of a map's item include the whole list, but the item's output depends
	// on the list only if an inner node names the list.
	if n.Map == nil {
		maps.Copy(used.inputs, delivered)
		for name := range n.Params {
			used.inputs[name] = true
		}
		for _, port := range n.Ports {
			used.inputs[port.Name] = true
		}
	}
	return func(s *kahn.Step) (string, error) {
		matters := func(values map[string]any) map[string]any {
			values = maps.Clone(values)
			maps.DeleteFunc(values, func(name string, _ any) bool { return !used.inputs[name] && !*used.computed })
			return values
		}
		var upstream map[string]any
		if n.Map == nil {
			upstream = s.UpstreamAll()
		}
		text, err := json.Marshal([]any{folder, plan.Hash(), matters(s.Params()), matters(rootsOf(s)), upstream})
		return string(text), err
	}, nil
}
