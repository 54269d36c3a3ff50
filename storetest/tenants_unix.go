//go:build unix

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// TenantStore is a store through which processes share two kinds of limits: how many steps may run (GrantStore), and how many runs of a tenant
// may be leased (TurnStore).
type TenantStore interface {
	store.TurnStore
	store.GrantStore
}

// Tenants describes a test in which processes compete for the runs of several tenants, see [RunTenants].
type Tenants struct {
	Runs int
	// Command returns the command for a process that calls [ServeTenants] with the folder.
	Command func(dir string) *exec.Cmd
	// Open opens the store of the folder for this process.
	Open func(t *testing.T, dir string) TenantStore
	// Faults are functions that disturb the store, for example by cutting all connections. RunTenants calls one of them now and then.
	Faults []func(dir string) error
	// Full is like Command, but its process cannot write much, as if the disk were full. Nil means that there are no such processes.
	Full func(dir string) *exec.Cmd
}

// The bounds and times of the test.
const (
	tenantCount     = 4
	tenantRuns      = 2 // how many runs of a tenant may be leased at once
	tenantSteps     = 2 // how many steps of a tenant may run at once
	tenantGroup     = 2 // how many steps of the group db may run at once
	tenantAll       = 6 // how many steps may run at once
	tenantLease     = time.Second
	tenantGrants    = 1500 * time.Millisecond // the lease of grants
	tenantStop      = 2 * time.Second         // how long a process is stopped, longer than both leases
	tenantRenewed   = 500 * time.Millisecond  // a running step counts for this long after its process was stopped; after that the process may have lost its slots
	tenantProcess   = "KAHN_TENANTS_PROCESS"  // names the environment variable with the number of a process
	tenantFightEnds = 10 * time.Minute
)

// tenantGraph returns a graph with single steps, the items of a map, and the steps of a sub-graph. A step belongs to the tenant, to the group db,
// to both, or to neither.
func tenantGraph() *kahn.Graph {
	inside := (&kahn.Graph{Groups: []kahn.Group{{Name: "db"}}, Inputs: []kahn.Input{{Name: "tenant"}}}).Add(
		kahn.Node{ID: "write", Groups: []string{"db"}}, kahn.Node{ID: "index", Groups: []string{"db"}, KeyFrom: "tenant", After: []string{"write"}})
	return (&kahn.Graph{Name: "tenants", Inputs: []kahn.Input{{Name: "tenant"}}}).Add(
		kahn.Node{ID: "first", KeyFrom: "tenant"},
		kahn.Node{ID: "parts", KeyFrom: "tenant", Params: map[string]any{"list": []int{1, 2, 3}}, Map: &kahn.Map{Over: "list"}, In: []kahn.Edge{{From: "first", Param: "tenant"}}},
		kahn.Node{ID: "sub", Sub: inside, In: []kahn.Edge{{From: "first", Param: "tenant"}}},
		kahn.Node{ID: "free"})
}

// ServeTenants is the main function of a process that [RunTenants] has started: it serves the runs until it is killed. If "alone" is set, the
// process does not share its bounds with other processes. Then RunTenants must notice that the processes together exceed the bounds.
func ServeTenants(ctx context.Context, dir string, db TenantStore, alone bool) (err error) {
	log, err := os.OpenFile(filepath.Join(dir, "steps"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	var calls atomic.Int64
	process := os.Getenv(tenantProcess)
	say := func(format string, args ...any) error {
		_, err := log.WriteString(fmt.Sprintf(format, args...) + "\n")
		return err
	}
	step := func(ctx context.Context, s *kahn.Step) (any, error) {
		call := calls.Add(1)
		tenant, err := kahn.Root[string](s, "tenant")
		if err != nil { // in an item of the map, the tenant is a parameter
			if tenant, err = kahn.Param[string](s, "tenant"); err != nil {
				return nil, err
			}
		}
		if err := say("begins %s %d %d %s %s %s", process, call, time.Now().UnixNano(), s.RunID(), tenant, s.ID()); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(5+rand.IntN(35)) * time.Millisecond):
		case <-ctx.Done():
		}
		return tenant, errors.Join(say("ends %s %d %d", process, call, time.Now().UnixNano()), context.Cause(ctx))
	}
	rn := &kahn.Runner{MaxRuns: 8, Options: []kahn.Option{kahn.Lease("", tenantLease), kahn.MaxCrashes(-1)}}
	service := kahn.Service{Store: db, KeyRuns: tenantRuns, Workflows: []kahn.Workflow{{Graph: tenantGraph(), Step: step}},
		OnError: func(string, store.Queue, error) {}} // the store fails on purpose
	rn.Shared = &kahn.Shared{Store: db, Limit: tenantAll, KeyLimit: tenantSteps, Groups: []kahn.Group{{Name: "db", Limit: tenantGroup}}, Lease: tenantGrants, OnError: func(error) {}}
	if alone {
		rn.Shared, rn.Limit, rn.KeyLimit, service.KeyRuns = nil, tenantAll, tenantSteps, 0
	}
	return rn.Serve(ctx, service)
}

// RunTenants lets three to five processes serve the runs of four tenants. It kills processes, stops others for longer than their leases, and calls
// the functions in Faults. Four bounds must hold for all processes together: on the steps of each tenant, on the steps of the group, on all steps,
// and on the runs of each tenant. A step of a stopped process no longer counts once the leases of the process may have ended. All runs must
// complete. The function "alone" makes processes that share no bounds. These must exceed the bounds, which shows that the check can fail.
func RunTenants(t *testing.T, f Tenants, alone func(dir string) *exec.Cmd) {
	f.fight(t, t.TempDir(), false)
	f.Command, f.Faults, f.Full, f.Runs = alone, nil, nil, min(f.Runs, 60)
	for range 5 { // repeated, because chance decides whether the processes exceed a bound
		if len(f.fight(t, t.TempDir(), true)) > 0 {
			return
		}
	}
	t.Error("processes with bounds of their own have together not exceeded the bounds: this test cannot fail")
}

// tenantFighter is one of the competing processes.
type tenantFighter struct {
	*exec.Cmd
	number int
	ended  chan struct{}
	resume time.Time // when a stopped process continues; zero if it runs
}

// tenantWorld has the competing processes, and records what happened to them.
type tenantWorld struct {
	t      *testing.T
	dir    string
	lives  []*tenantFighter
	count  int
	kills  map[int]time.Time      // by the number of the process
	pauses map[int][][2]time.Time // when a process was stopped, and when it continued
}

func (w *tenantWorld) start(command func(dir string) *exec.Cmd) {
	w.count++
	x := &tenantFighter{Cmd: command(w.dir), number: w.count, ended: make(chan struct{})}
	if x.Env == nil {
		x.Env = os.Environ()
	}
	x.Env = append(x.Env, tenantProcess+"="+strconv.Itoa(w.count))
	x.Stdout, x.Stderr = new(bytes.Buffer), nil
	if err := x.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		_ = x.Wait() // an error is expected, because most processes are killed
		close(x.ended)
	}()
	w.lives = append(w.lives, x)
}

func (w *tenantWorld) kill(x *tenantFighter) {
	if !x.resume.IsZero() {
		w.proceed(x)
	}
	w.kills[x.number] = time.Now()
	_ = x.Process.Kill() // an error means that the process has ended
	<-x.ended
	w.lives = slices.DeleteFunc(w.lives, func(o *tenantFighter) bool { return o == x })
}

func (w *tenantWorld) pause(x *tenantFighter) {
	x.resume = time.Now().Add(tenantStop)
	w.pauses[x.number] = append(w.pauses[x.number], [2]time.Time{time.Now()})
	_ = x.Process.Signal(syscall.SIGSTOP)
}

func (w *tenantWorld) proceed(x *tenantFighter) {
	_ = x.Process.Signal(syscall.SIGCONT)
	list := w.pauses[x.number]
	list[len(list)-1][1] = time.Now()
	x.resume = time.Time{}
}

// fight lets processes compete until all runs have ended, and returns a line for each time at which more steps or runs ran than a bound allows.
// Unless "alone" is set, these lines are failures of the test.
func (f Tenants) fight(t *testing.T, dir string, alone bool) []string {
	t.Helper()
	db, ctx := f.Open(t, dir), t.Context()
	for i := range f.Runs {
		tenant := fmt.Sprint("t", i%tenantCount)
		n, err := kahn.Prepare(tenantGraph(), kahn.RunID(fmt.Sprint("r", i)), kahn.RunKey(tenant), kahn.Inputs(map[string]any{"tenant": tenant}))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := db.Create(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	w := &tenantWorld{t: t, dir: dir, kills: map[int]time.Time{}, pauses: map[int][][2]time.Time{}}
	defer func() {
		for len(w.lives) > 0 {
			w.kill(w.lives[0])
		}
	}()
	rnd := rand.New(rand.NewPCG(rand.Uint64(), 35))
	size, begun, happened := 3+rnd.IntN(3), time.Now(), map[string]int{}
	for range size {
		w.start(f.Command)
	}
	for {
		time.Sleep(time.Duration(50+rnd.IntN(250)) * time.Millisecond)
		counts, err := db.Count(ctx, store.Filter{})
		if open := openRuns(counts); err == nil && open == 0 {
			break
		} else if time.Since(begun) > tenantFightEnds {
			t.Fatalf("after %v %d of %d runs are open, and Count returns %v", tenantFightEnds, open, f.Runs, err)
		}
		for _, x := range w.lives {
			if !x.resume.IsZero() && time.Now().After(x.resume) {
				w.proceed(x)
			}
		}
		x := w.lives[rnd.IntN(len(w.lives))]
		running := 0
		for _, o := range w.lives {
			if o.resume.IsZero() {
				running++
			}
		}
		switch what := rnd.IntN(8); {
		case alone:
		case what == 0:
			happened["kills"]++
			w.kill(x)
			w.start(f.Command)
		case what == 1 && x.resume.IsZero() && running > 2:
			happened["stops"]++
			w.pause(x)
		case what == 2 && len(f.Faults) > 0:
			happened["faults"]++
			if err := f.Faults[rnd.IntN(len(f.Faults))](dir); err != nil {
				t.Fatal(err)
			}
		case what == 3 && f.Full != nil:
			happened["full disks"]++
			w.kill(x)
			w.start(f.Full)
		}
	}
	for len(w.lives) > 0 {
		w.kill(w.lives[0])
	}
	counts, err := db.Count(ctx, store.Filter{Statuses: []kahn.RunStatus{kahn.RunCompleted}})
	if err != nil || len(counts) != 1 || counts[0].Runs != f.Runs {
		t.Errorf("of %d runs have completed: %v, %v", f.Runs, counts, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "steps"))
	if err != nil {
		t.Fatal(err)
	}
	steps, excesses := w.judge(string(data))
	t.Logf("%d runs, %d processes at a time, %d steps in %v: %v; %d excesses", f.Runs, size, steps, time.Since(begun).Round(time.Millisecond), happened, len(excesses))
	if !alone {
		for _, text := range excesses[:min(len(excesses), 10)] {
			t.Error(text)
		}
	}
	return excesses
}

func openRuns(counts []store.Count) (open int) {
	for _, c := range counts {
		if !c.Status.Terminal() {
			open += c.Runs
		}
	}
	return open
}

// A tenantChange is the time at which a step begins or ceases to count. The field "by" is 1 if the step begins to count, and -1 if it ceases to
// count.
type tenantChange struct {
	at     time.Time
	by     int
	run    string
	bounds []string
}

// judge reads the log of the steps. It returns the number of steps in the log, and a line for each time at which more steps or runs ran than a
// bound allows.
func (w *tenantWorld) judge(log string) (steps int, excesses []string) {
	ends := map[string]time.Time{}
	lines := strings.Split(log, "\n")
	at := func(text string) time.Time {
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		return time.Unix(0, ns)
	}
	for _, line := range lines {
		if x := strings.Fields(line); len(x) == 4 && x[0] == "ends" {
			ends[x[1]+" "+x[2]] = at(x[3])
		}
	}
	var changes []tenantChange
	for _, line := range lines {
		x := strings.Fields(line)
		if len(x) != 7 || x[0] != "begins" {
			continue
		}
		steps++
		process, err := strconv.Atoi(x[1])
		if err != nil {
			w.t.Fatal(err)
		}
		began := at(x[3])
		ended, ok := ends[x[1]+" "+x[2]]
		if !ok {
			ended = w.kills[process]
		}
		if ended = w.counts(process, began, ended); !ended.After(began) {
			continue
		}
		bounds := []string{"all steps"}
		if x[6] != "free" && x[6] != "write" {
			bounds = append(bounds, "steps of "+x[5])
		}
		if x[6] == "write" || x[6] == "index" {
			bounds = append(bounds, "the group db")
		}
		changes = append(changes, tenantChange{began, 1, x[5] + " " + x[4], bounds}, tenantChange{ended, -1, x[5] + " " + x[4], bounds})
	}
	slices.SortFunc(changes, func(a, b tenantChange) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.by - b.by // at equal times, ends come before begins
	})
	now, runs := map[string]int{}, map[string]int{}
	check := func(c tenantChange, bound string, most int) {
		if now[bound] += c.by; c.by > 0 && now[bound] > most {
			excesses = append(excesses, fmt.Sprintf("%d of %s at once, of %d, when a step of %s began", now[bound], bound, most, c.run))
		}
	}
	for _, c := range changes {
		for _, bound := range c.bounds {
			most := map[string]int{"all steps": tenantAll, "the group db": tenantGroup}[bound]
			if most == 0 {
				most = tenantSteps
			}
			check(c, bound, most)
		}
		if runs[c.run] += c.by; c.by > 0 && runs[c.run] == 1 || c.by < 0 && runs[c.run] == 0 {
			check(c, "runs of "+c.run[:2], tenantRuns)
		}
	}
	return steps, excesses
}

// The method `counts` returns when a step ceases to count. If a step was running when its process was stopped, it counts until the process may have
// lost its slots. If a step began during a stop or shortly afterwards, it does not count: the process may have been stopped just before it called
// the step, and may have lost its slots since.
func (w *tenantWorld) counts(process int, began, ended time.Time) time.Time {
	for _, p := range w.pauses[process] {
		switch lost := p[0].Add(tenantRenewed); {
		case began.Before(p[0]) && ended.After(lost):
			ended = lost
		case !began.Before(p[0]) && began.Before(p[1].Add(tenantRenewed)):
			return began
		}
	}
	return ended
}
