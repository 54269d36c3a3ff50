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

// keptFor and keptBytes limit a cache. The method `tidy` removes each output that was not used for the duration keptFor. Then it removes the least
// recently used outputs, until the others have at most keptBytes in total.
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
		return errors.New("-refresh is for -cache")
	}
	return nil
}

// The method `options` returns the options for runs of a graph that `prepare` has returned. Runs with the same options share a Memo: if several of
// them need the same output at the same time, one run calls the step, and the others wait for it.
func (c *cache) options() []kahn.Option {
	switch {
	case c.dir == "":
		return nil
	case c.refresh:
		return []kahn.Option{&kahn.Memo{Cache: store.DirCache{Dir: c.dir}}, kahn.Refresh()}
	}
	return []kahn.Option{&kahn.Memo{Cache: store.DirCache{Dir: c.dir}}}
}

// The method `tidy` removes outputs from the cache: see keptFor.
func (c *cache) tidy(ctx context.Context, t *terminal) {
	if c.dir == "" {
		return
	}
	if _, err := (store.DirCache{Dir: c.dir}).Prune(ctx, keptFor, keptBytes); err != nil && ctx.Err() == nil {
		t.printf("kahn: the cache in %s: %v\n", c.dir, err)
	}
}

// The method `prepare` returns the graph with memo keys, which contain everything on which the outputs of nodes with a memo depend. The hash of the
// graph's plan does not change.
func (c *cache) prepare(g *kahn.Graph) (*kahn.Graph, error) {
	if c.dir == "" {
		return g, nil
	}
	folder, err := os.Getwd() // commands and files are relative to this folder
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

// keyOfStep returns, as JSON, the values on which the output of a step depends: the folder, the kind, the config with its templates expanded and, for
// a jq program, its input.
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
// graph inside, the parameters of the composite, and the inputs of the run that templates and expressions of inner nodes name. Templates of inner
// nodes read these inputs whether or not the composite passes them on.
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
	// All parameters of a composite count. The item of a map is an exception: its parameters include the whole list, but its output depends on the list
	// only if an inner node names the list.
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
