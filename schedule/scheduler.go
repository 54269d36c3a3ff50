package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// Scheduler performs the runs in a store, and begins the runs of schedules at their ticks. [New] makes one.
type Scheduler struct {
	runner    *kahn.Runner
	service   kahn.Service
	store     store.ScheduleStore
	own       map[string]*owned
	workflows map[string]*kahn.Workflow // by name; of several workflows with the same name, the first one
	host      func(ctx context.Context, r *store.Run) (*kahn.Request, error)

	woken chan struct{} // gets an element when a run ends, if the next tick waits for the end of this run
	mu    sync.Mutex    // guards the fields below
	late  map[string]bool
}

// The type `owned` is a schedule that this process serves.
type owned struct {
	*rule
	data []byte
}

// ErrUnknownSchedule is returned if the store does not have the schedule.
var ErrUnknownSchedule = errors.New("unknown schedule")

// tendEvery is the interval at which a Scheduler looks for schedules that lack their next tick.
const tendEvery = 10 * time.Second

// New returns a Scheduler. The store of the service must be a [store.ScheduleStore], and the service must have the workflows of the schedules. If
// several workflows have the same name, the first of them creates the runs. New writes nothing to the store: Serve writes the schedules. The error
// matches [ErrBadSchedule] if a schedule is invalid or listed twice, if its workflow is missing, or if the graph does not take the inputs of the next
// tick. The error matches [kahn.ErrBadOption] if runner is nil or the store is not a ScheduleStore.
func New(runner *kahn.Runner, service kahn.Service, schedules ...Schedule) (*Scheduler, error) {
	s := &Scheduler{
		runner: runner, service: service, own: map[string]*owned{}, workflows: map[string]*kahn.Workflow{}, woken: make(chan struct{}, 1), late: map[string]bool{},
	}
	if runner == nil {
		return nil, fmt.Errorf("%w: schedule.New without a Runner", kahn.ErrBadOption)
	}
	var ok bool
	if s.store, ok = service.Store.(store.ScheduleStore); !ok {
		return nil, fmt.Errorf("%w: %T does not implement store.ScheduleStore", kahn.ErrBadOption, service.Store)
	}
	s.service.Workflows = slices.Clone(service.Workflows)
	for i := range s.service.Workflows {
		w := &s.service.Workflows[i]
		if w.Graph != nil && s.workflows[w.Graph.Name] == nil {
			s.workflows[w.Graph.Name] = &service.Workflows[i]
		}
		w.Options = append(slices.Clone(w.Options), kahn.Around(s.around))
	}
	for i := range schedules {
		r, data, err := schedules[i].define()
		switch {
		case err != nil:
			return nil, err
		case s.own[r.name] != nil:
			return nil, fmt.Errorf("%w %q: it is listed twice", ErrBadSchedule, r.name)
		case s.workflows[r.Workflow] == nil:
			return nil, fmt.Errorf("%w %q: the service has no workflow %q", ErrBadSchedule, r.name, r.Workflow)
		}
		if err := r.check(s.workflows[r.Workflow], runner.Options); err != nil {
			return nil, err
		}
		s.own[r.name] = &owned{r, data}
	}
	s.host, s.service.Admit = service.Admit, s.admit
	return s, nil
}

// Serve writes the schedules into the store. Then it performs runs like [kahn.Runner.Serve], and returns the errors of that method. Any number of
// processes may serve the same schedules. If their definitions differ, the definition of the process that called Serve last applies. If the store has
// a schedule that this Scheduler does not have, Serve does not change the definition. Serve performs or cancels the run of its pending tick,
// but does not create the next tick. If no process has the schedule any more, no tick follows, and [Scheduler.Remove] can remove the schedule.
func (s *Scheduler) Serve(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(s.own)) {
		if err := s.define(ctx, s.own[name]); err != nil {
			return err
		}
	}
	tending, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { s.tend(tending) })
	defer done.Wait()
	defer stop()
	return s.runner.Serve(ctx, s.service)
}

// The method `change` reads the row of a schedule, and calls f, which may change the row and may return a run. Then it writes the row and this run.
// If another process has changed the row meanwhile, the method starts over. If f returns false as `write`, there is nothing to write.
func (s *Scheduler) change(ctx context.Context, name string, f func(x *store.ScheduleState, now time.Time) (create *store.NewRun, write bool, err error)) error {
	for {
		list, now, err := s.store.Schedules(ctx, name)
		if err != nil {
			return err
		}
		x := store.ScheduleState{Schedule: store.Schedule{Name: name}, Begun: true, Ended: true}
		if len(list) > 0 {
			x = list[0]
		}
		create, write, err := f(&x, now)
		if err != nil || !write {
			return err
		}
		if err = s.store.PutSchedule(ctx, x.Schedule, create); !errors.Is(err, store.ErrScheduleChanged) {
			if err == nil {
				s.reportLeftOut(create)
			}
			return err
		}
	}
}

// reportLeftOut reports a new run that will not begin, because Inputs failed or the graph does not take the inputs.
func (s *Scheduler) reportLeftOut(n *store.NewRun) {
	if n == nil || n.Spec.Labels[LabelLeftOut] == "" {
		return
	}
	s.report(n.ID, store.Queue{Workflow: n.Spec.Workflow},
		fmt.Errorf("%w %q: the run %s will be left out: %s", ErrBadSchedule, n.Spec.Labels[LabelSchedule], n.ID, n.Spec.Labels[LabelLeftOut]))
}

// The function `taken` reports whether a store refused to replace the run of a tick, because the run has begun, is about to begin, or has requests.
func taken(err error) bool { return errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrLeased) }

// The method `define` writes the row of a new or changed schedule, and replaces the pending tick. If the schedule has not changed but has the
// function Inputs, the pending tick stays and its run gets new inputs.
func (s *Scheduler) define(ctx context.Context, o *owned) error {
	var skip time.Time // the ticks up to this time have runs that cannot be replaced
	for {
		var tick time.Time
		replaced := ""
		err := s.change(ctx, o.name, func(x *store.ScheduleState, now time.Time) (*store.NewRun, bool, error) {
			former := tickOf(o.name, x.Tick)
			same := string(x.Definition) == string(o.data)
			x.Definition = o.data
			if same && (x.Begun || o.Inputs == nil) || x.Paused {
				return nil, !same, nil
			}
			from := now
			if !x.Begun && former.Before(now) {
				from = former.Add(-1) // the former tick and the ticks after it are missed
			}
			if from.Before(skip) {
				from = skip
			}
			if tick = o.times.Next(from); same { // the tick stays, but its run gets new inputs
				tick = former
			}
			if tick.IsZero() {
				return nil, true, nil
			}
			if !x.Begun && x.Tick != tickID(o.name, tick) {
				replaced = x.Tick
			}
			x.Tick = tickID(o.name, tick)
			n := s.newRun(o.rule, x.Tick, "", tick)
			n.IfExists = store.ReplaceUnasked
			if same && !skip.IsZero() {
				return nil, false, nil // the run of the tick is about to begin
			}
			return &n, true, nil
		})
		if taken(err) {
			skip = tick
			continue
		}
		if err == nil && replaced != "" {
			err = s.leaveOut(ctx, replaced, "replaced")
		}
		return err
	}
}

// leaveOut cancels a pending run, for the given reason.
func (s *Scheduler) leaveOut(ctx context.Context, run, reason string) error {
	in, ok := s.store.(store.Inbox)
	if !ok {
		return nil // when the run is about to begin, the method `admit` cancels it
	}
	_, err := in.Post(ctx, run, store.Request{ID: "schedule", Kind: store.KindCancel, Actor: "schedule", Comment: reason})
	if errors.Is(err, store.ErrUnknownRun) || errors.Is(err, store.ErrEnded) {
		return nil
	}
	return err
}

func (s *Scheduler) newRun(r *rule, id, kind string, tick time.Time) store.NewRun {
	return r.newRun(s.workflows[r.Workflow], s.runner.Options, id, kind, tick)
}

// The method `creates` reports whether this process can create the runs of a schedule. The process must have the Schedule itself, since the stored
// definition does not have Inputs.
func (s *Scheduler) creates(r *rule) bool {
	return s.own[r.name] != nil && s.workflows[r.Workflow] != nil
}

// ruleOf returns the rule in the row of a schedule. If this process has the schedule, the rule has its Inputs.
func (s *Scheduler) ruleOf(x *store.Schedule) (*rule, error) {
	if x.Revision == 0 {
		return nil, fmt.Errorf("%w %q: no running Scheduler has stored it yet", ErrUnknownSchedule, x.Name)
	}
	if o := s.own[x.Name]; o != nil {
		return ruleOf(x, o.rule)
	}
	return ruleOf(x, nil)
}

// The method `follow` finds the first tick that is after the given tick and after the time "skip". It makes this tick the schedule's latest tick, and
// returns the tick's run.
func (s *Scheduler) follow(x *store.Schedule, r *rule, tick, skip, now time.Time) (next time.Time, create *store.NewRun, left int) {
	if next, left = r.after(tick, now); !next.After(skip) && !skip.IsZero() {
		next = r.times.Next(skip)
	}
	if next.IsZero() {
		return next, nil, left
	}
	x.Tick = tickID(r.name, next)
	n := s.newRun(r, x.Tick, "", next)
	n.IfExists = store.ReplaceUnasked
	return next, &n, left
}

// The method `admit` is called when a run is about to begin, and decides whether the run may begin. This process holds the run's lease, so no other
// process makes this decision.
func (s *Scheduler) admit(ctx context.Context, run *store.Run) (*kahn.Request, error) {
	name := run.Labels[LabelSchedule]
	if name == "" {
		return s.ask(ctx, run)
	}
	reason, waits := "", false
	decide := func(x *store.ScheduleState, now time.Time, skip time.Time) (next time.Time, create *store.NewRun, write bool, err error) {
		reason, waits = run.Labels[LabelLeftOut], false
		r, err := s.ruleOf(&x.Schedule)
		tick, kind := tickOf(name, run.ID), run.Labels[LabelKind]
		switch {
		case errors.Is(err, ErrUnknownSchedule):
			reason = "removed"
			return next, nil, false, nil
		case err != nil || kind != "":
			return next, nil, false, err
		case run.Labels[labelDefinition] != r.hash:
			reason = "replaced"
			return next, nil, false, nil
		case x.Paused:
			reason = "paused"
			return next, nil, false, nil
		}
		following := r.times.Next(tick)
		passed := !following.IsZero() && !r.begins(following).After(now)
		late := r.late()
		_, left := r.after(tick, now)
		switch {
		case reason != "":
		case late > 0 && now.After(r.begins(tick).Add(late)), r.Missed != All && passed, left > 0:
			reason = "missed"
		case r.Overlap == Skip && x.Busy && x.Active != run.ID:
			reason = "overlaps"
		}
		if begins := reason == ""; begins {
			write, x.Active = x.Active != run.ID, run.ID
			waits = r.Missed == All && r.Overlap == Skip && passed
		}
		if x.Tick == run.ID && !waits && s.creates(r) {
			next, create, left = s.follow(&x.Schedule, r, tick, skip, now)
			if write = write || create != nil; left > 0 && reason != "" {
				reason += fmt.Sprintf(", and so were %d ticks after it, which have no runs", left)
			}
		}
		return next, create, write, nil
	}
	var next, skip time.Time
	for {
		err := s.change(ctx, name, func(x *store.ScheduleState, now time.Time) (create *store.NewRun, write bool, err error) {
			next, create, write, err = decide(x, now, skip)
			return create, write, err
		})
		if taken(err) {
			skip = next
			continue
		}
		if err != nil {
			return nil, err
		}
		break
	}
	if reason != "" {
		run.Labels[LabelLeftOut] = strings.ToValidUTF8(reason, "?")
		return &kahn.Request{Actor: "schedule", Reason: reason}, nil
	}
	if waits {
		s.mu.Lock()
		s.late[run.ID] = true
		s.mu.Unlock()
	}
	return s.ask(ctx, run)
}

// The method `ask` calls the Admit function of the host, if there is one.
func (s *Scheduler) ask(ctx context.Context, run *store.Run) (*kahn.Request, error) {
	if s.host == nil {
		return nil, nil
	}
	return s.host(ctx, run)
}

// The method `around` wakes the method `tend` when a run ends, if the next tick waits for the end of this run.
func (s *Scheduler) around(ctx context.Context, r *kahn.Run) (context.Context, func(*kahn.Result)) {
	return ctx, func(*kahn.Result) {
		s.mu.Lock()
		waits := s.late[r.ID()]
		delete(s.late, r.ID())
		s.mu.Unlock()
		if waits {
			s.wake()
		}
	}
}

func (s *Scheduler) wake() {
	select {
	case s.woken <- struct{}{}:
	default: // the method `tend` looks at the schedules soon anyway
	}
}

// The method `tend` creates ticks that no process has created. There are three reasons why a tick may be missing: the process that performed the
// previous tick has died, that process did not have the schedule, or the run of the previous tick had to end first.
func (s *Scheduler) tend(ctx context.Context) {
	timer := time.NewTicker(tendEvery)
	defer timer.Stop()
	for {
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			s.report("", store.Queue{}, fmt.Errorf("schedules: %w", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.woken:
		}
	}
}

func (s *Scheduler) report(run string, q store.Queue, err error) {
	if onError := s.service.OnError; onError != nil {
		failed := contain(func() error {
			onError(run, q, err)
			return nil
		})
		if failed != nil {
			slog.Error("Service.OnError has failed", "error", failed, "unreported", err)
		}
		return
	}
	slog.Warn("a tick is left out, or a schedule does not continue", "error", err)
}

// look creates the missing ticks.
func (s *Scheduler) look(ctx context.Context) error {
	if len(s.own) == 0 {
		return nil
	}
	list, _, err := s.store.Schedules(ctx, slices.Sorted(maps.Keys(s.own))...)
	if err != nil {
		return err
	}
	var errs []error
	for i := range list {
		if x := &list[i]; x.Begun && !x.Paused {
			errs = append(errs, s.goOn(ctx, x.Name))
		}
	}
	return errors.Join(errs...)
}

// goOn creates the tick after the latest tick, if the run of the latest tick has begun. If the next tick must wait for the end of this run, goOn does
// nothing until the run has ended.
func (s *Scheduler) goOn(ctx context.Context, name string) error {
	var next, skip time.Time
	for {
		err := s.change(ctx, name, func(x *store.ScheduleState, now time.Time) (create *store.NewRun, write bool, err error) {
			r, err := s.ruleOf(&x.Schedule)
			if errors.Is(err, ErrUnknownSchedule) || err == nil && (!x.Begun || x.Paused || !s.creates(r)) {
				return nil, false, nil
			} else if err != nil {
				return nil, false, err
			}
			tick := tickOf(name, x.Tick)
			if tick.IsZero() {
				tick = now
			}
			if following := r.times.Next(tick); r.Missed == All && r.Overlap == Skip && !x.Ended && !following.After(now) {
				return nil, false, nil
			}
			next, create, _ = s.follow(&x.Schedule, r, tick, skip, now)
			return create, create != nil, nil
		})
		if !taken(err) {
			return err
		}
		skip = next
	}
}
