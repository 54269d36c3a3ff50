package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// gauge counts, under each name, how many steps run at the same time in all processes together.
type gauge struct {
	mu        sync.Mutex
	now, most map[string]int
	begun     []string // the ids of runs, in the order in which their steps began
	ended     []string
}

func newGauge() *gauge { return &gauge{now: map[string]int{}, most: map[string]int{}} }

// tenantOf returns the tenant to which a run belongs.
func tenantOf(run string) string {
	tenant, _, _ := strings.Cut(run, "-")
	return tenant
}

// The method `during` performs a step that takes the time d. While the step runs, it is counted under each of the names.
func (g *gauge) during(ctx context.Context, s *kahn.Step, d time.Duration, names ...string) (any, error) {
	g.add(1, names)
	defer g.add(-1, names)
	g.note(&g.begun, s.RunID())
	defer g.note(&g.ended, s.RunID())
	return nil, pause(ctx, d)
}

func (g *gauge) add(n int, names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		g.now[name] += n
		g.most[name] = max(g.most[name], g.now[name])
	}
}

func (g *gauge) note(list *[]string, run string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*list = append(*list, run)
}

// The method `within` checks the greatest count under each name. It returns an error if no step ran, or if more than `bound` steps ran at the same time.
func (g *gauge) within(bound int, names ...string) error {
	for _, name := range names {
		if most := g.most[name]; most > bound || most == 0 {
			return fmt.Errorf("%s: %d at once, expected up to %d", name, most, bound)
		}
	}
	return nil
}
