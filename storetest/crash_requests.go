package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/store"
)

// Served is a store with events. Some processes serve its runs, and other processes post requests for them.
type Served interface {
	store.EventStore
	store.Inbox
	store.QueueStore
}

// The ids and times that the started processes and the process of the test use.
const (
	askedRuns  = 6
	askedSteps = 6
	askedIdle  = 3
	cancelID   = "run"                  // the id and the comment of the request that cancels the run
	askedToken = "answer"               // the token under which all steps of the chain wait
	askedLife  = 100 * time.Millisecond // how long a process serves at least; doubles after each process that answered no request
)

// askedGraph returns a graph with steps that run until they are cancelled, and a chain of steps that wait for an answer under the same token. If a
// signal took effect twice, it would answer two steps of the chain.
func askedGraph() *kahn.Graph {
	g := &kahn.Graph{Name: "asked"}
	for i := range askedSteps {
		n := kahn.Node{ID: fmt.Sprint("step", i)}
		if i > 0 {
			n.After = []string{fmt.Sprint("step", i-1)}
		}
		n.Do = func(_ context.Context, s *kahn.Step) (any, error) {
			if answer, ok := s.Resumed(); ok {
				return answer, nil
			}
			return nil, kahn.Suspend(askedToken, nil, nil)
		}
		g.Add(n)
	}
	for i := range askedIdle {
		g.Add(kahn.Node{ID: fmt.Sprint("idle", i), Do: func(ctx context.Context, _ *kahn.Step) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	}
	return g
}

// servesAsked is what a process prints when it begins to serve. On a slow machine, a process needs a while before it serves.
const servesAsked = "serves"

// ServeAsked is the main function of a process that [RunKillAsked] has started: it serves the runs until it is killed, or until a run has a problem
// other than ErrStore.
func ServeAsked(ctx context.Context, db Served, opts ...kahn.Option) error {
	opts = append(opts, kahn.StoreEvents(), kahn.MaxCrashes(-1))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fmt.Println(servesAsked)
	return (&kahn.Runner{Options: opts}).Serve(ctx, kahn.Service{Store: db, Workflows: []kahn.Workflow{{Graph: askedGraph()}}, OnError: func(run string, _ store.Queue, err error) {
		// ErrStore does not end the process: it means that the process was slower than its lease.
		if run != "" && !errors.Is(err, kahn.ErrStore) {
			cancel(err)
		}
	}})
}

// killAsked starts and kills the processes of [RunKillAsked]. It returns how many requests were answered, and the first fault.
func killAsked(ctx context.Context, starts int, command func(dir string) *exec.Cmd, folder func() string, open func(dir string) Served,
	check checkEvents) (answered int, err error) {
	random := rand.New(rand.NewPCG(41, 43))
	for started := 0; started < starts; {
		dir := folder()
		db := open(dir)
		var posters sync.WaitGroup
		var asked [askedRuns]poster
		for i := range asked {
			asked[i] = poster{ctx: ctx, db: db, run: fmt.Sprint("r", i), random: rand.New(rand.NewPCG(random.Uint64(), 47))}
			if err := asked[i].create(); err != nil {
				return answered, err
			}
			posters.Go(asked[i].post)
		}
		over := make(chan bool)
		go func() {
			posters.Wait()
			close(over)
		}()
		life := askedLife
		for ended, taken := false, uint64(0); !ended; started++ {
			if ended, err = liveFor(command(dir), life+time.Duration(random.Int64N(int64(3*life))), over); err != nil {
				return answered, err
			}
			before := taken
			if taken, err = takenOf(ctx, db); err != nil {
				return answered, err
			}
			if life *= 2; taken > before {
				life = askedLife
			}
		}
		for i := range asked {
			n, err := asked[i].judge(check)
			if err != nil {
				return answered, fmt.Errorf("%s: %w", asked[i].run, err)
			}
			answered += n
		}
	}
	return answered, nil
}

// takenOf returns how many requests for the runs have been answered.
func takenOf(ctx context.Context, db Served) (taken uint64, err error) {
	for i := range askedRuns {
		r, err := db.Load(ctx, fmt.Sprint("r", i))
		if err != nil {
			return 0, err
		}
		taken += r.Taken
	}
	return taken, nil
}

// checkEvents is the type of kahntest.CheckEvents.
type checkEvents func(g *kahn.Graph, res *kahn.Result, events []kahn.Event) error

// output collects what a process prints, and reports when the process serves.
type output struct {
	text   bytes.Buffer
	serves chan bool
	said   bool
}

func (o *output) Write(text []byte) (int, error) {
	n, err := o.text.Write(text)
	if !o.said && bytes.Contains(o.text.Bytes(), []byte(servesAsked)) {
		o.said = true
		close(o.serves)
	}
	return n, err
}

// liveFor lets a process serve for some time, or until the channel "over" is closed, and kills it. It reports whether the channel is
// closed.
func liveFor(cmd *exec.Cmd, alive time.Duration, over <-chan bool) (ended bool, err error) {
	out := output{serves: make(chan bool)}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return false, err
	}
	select {
	case <-out.serves:
	case <-time.After(askedTime): // the process has not begun to serve in time
	}
	select {
	case <-over:
		ended = true
	case <-time.After(alive):
	}
	_ = cmd.Process.Kill() // an error means that the process has ended by itself, which Exited reports below
	if err := cmd.Wait(); cmd.ProcessState.Exited() {
		return ended, fmt.Errorf("the process has failed: %w\n%s", err, out.text.String())
	}
	return ended, nil
}

// poster posts the requests for a run.
type poster struct {
	ctx    context.Context
	db     Served
	run    string
	random *rand.Rand
	posted int
	err    error
}

func (p *poster) create() error {
	n, err := kahn.Prepare(askedGraph(), kahn.RunID(p.run))
	if err == nil {
		_, _, err = p.db.Create(p.ctx, n)
	}
	return err
}

// askedTime is how long the runs of a folder may take.
const askedTime = 5 * time.Minute

// The method post adds requests to the inbox of the run until the run has ended. Most requests are signals; a few cancel a node or the run.
func (p *poster) post() {
	ctx, cancel := context.WithTimeout(p.ctx, askedTime)
	defer cancel()
	cancels := []store.Request{{ID: cancelID, Kind: store.KindCancel, Actor: "ann", Comment: cancelID}}[:p.random.IntN(2)]
	for i := range askedIdle {
		id := fmt.Sprint("idle", i)
		cancels = append(cancels, store.Request{ID: id, Kind: store.KindCancelNode, Node: id})
	}
	p.random.Shuffle(len(cancels), func(i, j int) { cancels[i], cancels[j] = cancels[j], cancels[i] })
	for i := 0; p.err == nil; i++ {
		q, err := kahn.PrepareSignal(askedToken, kahn.Decision{Value: float64(i), ID: fmt.Sprint(i)})
		if len(cancels) > 0 && i > 0 && p.random.IntN(4) == 0 {
			q, cancels = cancels[0], cancels[1:]
		}
		if err == nil {
			err = p.postTwice(ctx, q)
		}
		if errors.Is(err, store.ErrEnded) {
			return
		}
		p.err = err
		time.Sleep(time.Duration(p.random.IntN(30)) * time.Millisecond)
	}
}

// postTwice posts a request, and sometimes posts it again.
func (p *poster) postTwice(ctx context.Context, q store.Request) error {
	if posted, err := p.db.Post(ctx, p.run, q); err != nil || !posted {
		return errors.Join(err, same("the request is posted", posted, err == nil))
	}
	p.posted++
	if p.random.IntN(3) > 0 {
		return nil
	}
	posted, err := p.db.Post(ctx, p.run, q)
	return errors.Join(err, same("the same request is posted again", posted, false))
}

// judge compares the answers to the requests with the outcome of the run.
func (p *poster) judge(check checkEvents) (answered int, err error) {
	if p.err != nil {
		return 0, p.err
	}
	g := askedGraph()
	res, err := kahn.ReadResult(p.ctx, g, p.db, p.run)
	if res == nil {
		return 0, err
	}
	events, err := p.events()
	if err != nil {
		return 0, err
	}
	var given []string
	for after := uint64(0); ; {
		page, err := p.db.LoadRequests(p.ctx, p.run, after, store.MaxPage)
		if err != nil {
			return 0, err
		}
		for _, q := range page {
			switch q.Status {
			case store.RequestWaiting:
				return 0, fmt.Errorf("request %s waits although the run has ended", q.ID)
			case store.RequestApplied:
				if q.Kind == store.KindCancelNode && slices.Contains(given, cancelID) {
					continue // the node was already stopping because of the run, so this request is not the cause
				}
				given = append(given, q.ID)
			}
		}
		if answered += len(page); len(page) < store.MaxPage {
			break
		}
		after = page[len(page)-1].Number
	}
	slices.Sort(given)
	effects, err := effectsOf(res, events)
	return answered, errors.Join(err, same("requests that were stored", answered, p.posted), same("the effects", effects, given), check(g, res, events))
}

// effectsOf returns the ids of the requests that had an effect, sorted. A signal had an effect if there is an event for the signal. A cancel had an
// effect if the result names the cancel as the cause of a stop.
func effectsOf(res *kahn.Result, events []kahn.Event) (ids []string, err error) {
	signals := map[string]string{}
	for _, e := range events {
		if answer, ok := e.Payload.(event.Answer); ok && e.Type == event.NodeSignalled {
			signals[e.Node] = answer.ID
			ids = append(ids, answer.ID)
		}
	}
	for n := range res.Nodes() {
		switch {
		case n.Status == kahn.Completed && fmt.Sprint(n.Output) != signals[n.ID]:
			err = errors.Join(err, fmt.Errorf("%s has the answer %v of another request than %s", n.ID, n.Output, signals[n.ID]))
		case n.Cause.Kind == kahn.CauseCancelNode:
			ids = append(ids, n.ID)
		}
	}
	if res.StopRequest.Reason != "" {
		ids = append(ids, res.StopRequest.Reason)
	}
	slices.Sort(ids)
	return ids, err
}

// events returns the stored events of the run.
func (p *poster) events() (list []kahn.Event, err error) {
	for after := uint64(0); ; {
		page, err := store.ReadEvents(p.ctx, p.db, p.run, after, store.MaxPage)
		if err != nil || len(page) == 0 {
			return list, err
		}
		list, after = append(list, page...), page[len(page)-1].ID
	}
}

// TornAnswers returns a store with a defect: unless a commit ends the run, the store first writes the effects of the requests, and then their
// answers in a second commit. If the process is killed between the two commits, a test must notice that an effect has no answer.
func TornAnswers(s Served) Served { return &tornAnswers{Served: s} }

type tornAnswers struct{ Served }

func (s *tornAnswers) Commit(ctx context.Context, l store.Lease, c store.Commit) (store.Applied, error) {
	r, err := s.Load(ctx, l.Run)
	if err != nil {
		return 0, err
	}
	c.Sequence = r.Sequence + 1
	taken := c.Taken
	c.Taken = nil
	a, err := s.Served.Commit(ctx, l, c)
	if err != nil || a != store.AppliedNow || len(taken) == 0 || c.Status.Terminal() {
		return a, err
	}
	time.Sleep(20 * time.Millisecond)
	return s.Served.Commit(ctx, l, store.Commit{Sequence: c.Sequence + 1, WakeAt: c.WakeAt, Taken: taken})
}

// RunKillAsked starts one process after the other. Each process serves runs until RunKillAsked kills it at a random time. Meanwhile the process of
// the test posts signals and requests that cancel runs and nodes. It posts some of these requests twice. When all runs have ended, it creates runs
// in a new folder, until it has started at least the given number of processes. Each request must be answered once, together with its effect.
// Processes made by the function "whole" must not violate this rule. Processes made by the function "torn", whose store is [TornAnswers], must
// violate it; otherwise the test fails. The processes call [ServeAsked] for the folder. The function "open" opens the store of the folder for the
// process of the test. The parameter "check" is kahntest.CheckEvents.
func RunKillAsked(t *testing.T, starts int, whole, torn func(dir string) *exec.Cmd, open func(t *testing.T, dir string) Served,
	check func(g *kahn.Graph, res *kahn.Result, events []kahn.Event) error) {
	kill := func(t *testing.T, starts int, command func(dir string) *exec.Cmd) (int, error) {
		return killAsked(t.Context(), starts, command, t.TempDir, func(dir string) Served { return open(t, dir) }, check)
	}
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		answered, err := kill(t, starts, whole)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d processes or more, %d requests answered", starts, answered)
	})
	t.Run("torn", func(t *testing.T) {
		t.Parallel()
		_, err := kill(t, 200, torn)
		if err == nil {
			t.Fatal("answers that are torn from their effects went unnoticed")
		}
		if !strings.Contains(err.Error(), "the effects") {
			t.Fatal(err)
		}
	})
}
