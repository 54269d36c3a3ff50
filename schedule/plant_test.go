package schedule_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/internal/plant"
)

// defects lists bugs in this package and in the store in memory, each with the test that must find it.
var defects = []struct {
	test           string
	file, function string
	old, planted   string
}{
	{"TestEachTickOnce", "schedule/scheduler.go", "Scheduler.look", `x.Begun && !x.Paused`, `x.Begun && x.Paused`},
	{"TestEachTickOnce", "schedule/scheduler.go", "Scheduler.admit", `r.Overlap == Skip && x.Busy && x.Active != run.ID`, `r.Overlap == Skip && x.Busy && x.Active == run.ID`},
	{"TestEachTickOnce", "schedule/schedule.go", "rule.after", `return next, 0
	}
	var ring`, `return r.times.Next(now), 0
	}
	var ring`},
	{"TestEachTickOnce", "store/memory_schedule.go", "Memory.PutSchedule", `m.create(create)`, `m.create(&NewRun{ID: create.ID + " ", Spec: create.Spec, NotBefore: create.NotBefore})`},
}

// TestPlantedBugs plants each of the defects in a copy of the code, and requires that its test then fails.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	plant.Wanted(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var cases []plant.Case
	for _, d := range defects {
		cases = append(cases, plant.Case{Bug: plant.Bug{File: d.file, Func: d.function, Old: d.old, New: d.planted}, Test: d.test})
	}
	most := 2
	if os.Getenv("KAHN_LONG") != "" {
		most = len(cases)
	}
	require.NoError(t, plant.Try(ctx, "..", cases, most, "KAHN_LONG=")) // without KAHN_LONG the tests try few cases
}
