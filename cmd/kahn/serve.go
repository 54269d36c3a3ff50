package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // time zones for schedules, for machines without a time zone database

	"github.com/google/uuid"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/inspector"
	"github.com/seed-c794f7ef/kahn/schedule"
	"github.com/seed-c794f7ef/kahn/store"
	"github.com/seed-c794f7ef/kahn/store/sqlite"
)

var serveCommand = command{
	name: "serve", args: "PATH...", least: 1, most: manyFiles,
	summary: "run definitions at the times of their schedules",
	text: `
A PATH is a definition, or a folder whose .yaml, .yml and .json files are definitions, apart from tests. Each definition is a workflow;
one with a schedule runs at its times:

    name: report
    schedule: {cron: "30 2 * * *", zone: Europe/Berlin}

The definitions decide which commands run: serve a definition only if you would run it as a script.

Runs and schedules are kept in a file of SQLite, each step as it ends. A command that is started again continues the runs that have not ended, and
the latest tick that was missed meanwhile runs, unless the schedule says otherwise. Several commands may serve one file on one machine: each tick has one
run. The page shows the runs and the schedules; there operators start runs, answer gates, and pause a schedule or run it now.

The first Ctrl-C, or SIGTERM, ends the command: it takes no further run, lets running steps end, and stops the steps that have not ended after
-grace. When the command is started again, it continues the runs, and repeats the stopped steps. A second Ctrl-C kills the process.

A schedule whose definition is gone stays in the file, and is reported; -forget removes it.

The exit code is 0 if the command was ended, 1 if the store has failed, and 2 if nothing was served, because of a bad flag or definition.`,
	register: func(f *flags) action {
		s := &server{}
		f.file(&s.store, "store", "keep runs and schedules in this `file` (default: kahn.db)")
		f.StringVar(&s.page.addr, "ui", "localhost:8080", "show the page on this `address`; port 0 is any free port; none shows no page")
		f.BoolVar(&s.page.remote, "ui-remote", false, "let -ui listen on an address that other machines reach: anyone who has the link can see and do everything")
		f.IntVar(&s.runs, "runs", 10, "perform at most `n` runs at the same time; 0 means no limit")
		f.IntVar(&s.limit, "limit", 0, "run at most `n` steps of each run at the same time; 0 means no limit")
		f.DurationVar(&s.lease, "lease", 10*time.Second, "how long a process that hangs keeps its runs")
		f.DurationVar(&s.grace, "grace", 10*time.Second, "how long running steps may take after Ctrl-C")
		f.DurationVar(&s.keep, "keep", 0, "remove runs this long after they have ended; 0 keeps them")
		s.cache.register(f)
		f.Func("forget", "remove the schedule of this `name` from the store; may be repeated", func(name string) error {
			s.forget = append(s.forget, name)
			return nil
		})
		f.BoolVar(&s.verbose, "v", false, "print the output of commands, line by line")
		return s.serve
	},
}

// server performs the command `kahn serve`.
type server struct {
	store        string
	page         page
	runs, limit  int
	lease, grace time.Duration
	keep         time.Duration
	forget       []string
	cache        cache
	kept         []kahn.Option // the options of the cache, which all runs share
	verbose      bool

	t         *terminal
	db        *sqlite.Store
	runner    *kahn.Runner
	flows     []flow
	schedules []schedule.Schedule
}

// flow is a definition that the command serves.
type flow struct {
	file, here string
	graph      *kahn.Graph
	plan       *kahn.Plan
}

// serve performs the command.
func (s *server) serve(ctx context.Context, t *terminal, args []string) int {
	s.t = t
	if s.store == "" {
		s.store = "kahn.db"
	}
	if s.page.addr == "none" {
		s.page.addr = ""
	}
	if err := s.check(); err != nil {
		return t.refuse(err)
	}
	if code := s.load(args); code != exitOK {
		return code
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	db, err := sqlite.Open(s.store, sqlite.Options{})
	if err != nil {
		return t.refuse(err)
	}
	s.db = db
	defer func() { _ = db.Close() }() // an error of Close does not matter, since committed data is already in the file
	return s.work(ctx)
}

// The method `check` returns an error for flags that must not be combined, and for values that a flag must not have.
func (s *server) check() error {
	switch {
	case s.page.addr == "" && s.page.remote:
		return errors.New("-ui-remote needs -ui")
	case s.lease <= 0:
		return errors.New("-lease must be longer than 0")
	case s.grace < 0:
		return errors.New("-grace must not be negative")
	case s.keep < 0:
		return errors.New("-keep must not be negative")
	case s.runs < 0 || s.limit < 0:
		return errors.New("-runs and -limit must not be negative")
	}
	return s.cache.check()
}

// definitionsIn returns the files of the definitions to serve. A path is a definition, or a folder that contains definitions.
func definitionsIn(paths []string) (files []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, filepath.Clean(path))
			continue
		}
		before := len(files)
		entries, err := os.ReadDir(path) // sorted by name
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			file := filepath.Join(path, e.Name())
			if e.Type()&(fs.ModeDir|fs.ModeNamedPipe|fs.ModeSocket|fs.ModeDevice) == 0 && slices.Contains(extensions, filepath.Ext(file)) && !isTests(file) {
				files = append(files, file)
			}
		}
		if len(files) == before {
			return nil, fmt.Errorf("%s: there is no definition in this folder: no file ends in %s", path, strings.Join(extensions, ", "))
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// The method `load` reads the definitions. If definitions have problems, load reports all of them and returns the exit code.
func (s *server) load(paths []string) int {
	files, err := definitionsIn(paths)
	if err != nil {
		return s.t.refuse(err)
	}
	var all problems
	names, schedules := map[string]string{}, map[string]string{}
	for _, file := range files {
		doc, err := performer{}.document(file)
		if found, ok := err.(problems); ok {
			all = append(all, found...)
			continue
		}
		if err == nil {
			err = s.add(doc, file, names, schedules)
		}
		if err != nil {
			all = append(all, problem{File: file, Severity: isError, Message: err.Error()})
		}
	}
	if len(all) > 0 {
		all.write(s.t.err)
		s.t.printf("kahn: nothing is served, because of %s\n", count(len(all), "problem"))
		return exitUsage
	}
	return exitOK
}

// The method `add` adds a definition. The map `names` maps the name of each earlier definition to its file. The map `schedules` maps the
// name of each earlier schedule to its file.
func (s *server) add(doc *definition.Document, file string, names, schedules map[string]string) error {
	g := doc.Graph
	g.Name = name(g, file)
	g, err := s.cache.prepare(g)
	if err != nil {
		return err
	}
	if other := names[g.Name]; other != "" {
		return fmt.Errorf("%s has the name %q, too; give one of them another name", other, g.Name)
	}
	names[g.Name] = file
	folder, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return err
	}
	plan, err := g.Compile()
	if err != nil {
		return err
	}
	s.flows = append(s.flows, flow{file, folder, g, plan})
	if doc.Schedule == nil {
		return nil
	}
	inputs := map[string]any{here: folder}
	maps.Copy(inputs, doc.Schedule.Inputs)
	doc.Schedule.Inputs = inputs
	x, err := schedule.FromDocument(doc)
	if err != nil {
		return err
	}
	if other := schedules[x.Name]; other != "" {
		return fmt.Errorf("the schedule of %s has the name %q, too; give one of them another name", other, x.Name)
	}
	schedules[x.Name] = file
	s.schedules = append(s.schedules, x)
	return nil
}

// The method `work` serves until the context ends or the store fails, and returns the exit code.
func (s *server) work(ctx context.Context) int {
	s.runner = &kahn.Runner{MaxRuns: s.runs}
	s.kept = s.cache.options()
	s.cache.tidy(ctx, s.t)
	service := kahn.Service{Store: s.db, OnError: s.report}
	if s.keep > 0 {
		service.Retention = []store.Retention{{For: s.keep}}
	}
	for i := range s.flows {
		f := &s.flows[i]
		service.Workflows = append(service.Workflows, kahn.Workflow{Graph: f.graph, Step: steps().Step, Options: s.options(f)})
	}
	scheduler, err := schedule.New(s.runner, service, s.schedules...)
	if err != nil {
		return s.t.refuse(err)
	}
	if err := s.tidy(ctx, scheduler); err != nil {
		return s.t.refuse(err)
	}
	endPage := func() {}
	if s.page.addr != "" {
		if endPage, err = s.show(scheduler); err != nil {
			return s.t.refuse(err)
		}
	}
	defer endPage()
	s.announce()
	err = scheduler.Serve(ctx)
	ended := ctx.Err() != nil
	if ended {
		s.t.printf("ending: no further run begins, and running steps have %v to end\n", s.grace)
	} else {
		s.t.printf("kahn: %v\n", err)
	}
	leaving, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()
	if s.runner.Shutdown(leaving) != nil {
		s.t.printf("steps were stopped; they run again when the command begins again\n")
	}
	if !ended {
		return exitProblems
	}
	return exitOK
}

// The method `options` returns the options of a definition's runs.
func (s *server) options(f *flow) []kahn.Option {
	opts := []kahn.Option{kahn.Lease("", s.lease), kahn.Limit(s.limit), kahn.StoreEvents(), kahn.Retain(s.page.events()), knowStoredRoots(s.t, f.graph, s.db), kahn.Around(s.follow)}
	opts = append(opts, s.kept...)
	if s.verbose {
		opts = append(opts, kahn.OnEvent(func(e kahn.Event) {
			if d, ok := e.Payload.(event.Delta); ok {
				s.t.write(fmt.Sprintf("%s %s | %v\n", screenText(e.RunID), screenText(e.Path), d.Chunk))
			}
		}))
	}
	return opts
}

// The method `follow` prints the start and the end of a run. It has the type that kahn.Around takes.
func (s *server) follow(ctx context.Context, run *kahn.Run) (context.Context, func(*kahn.Result)) {
	begun := time.Now()
	s.t.printf("%s %s: running\n", clock(begun), run.ID())
	return ctx, func(res *kahn.Result) {
		var b strings.Builder
		now := time.Now()
		fmt.Fprintf(&b, "%s %s: %v after %v\n", clock(now), res.ID(), res.Status, now.Sub(begun).Round(time.Millisecond))
		if res.Status != kahn.RunCompleted {
			reportNodes(&b, res)
		}
		s.t.printf("%s", b.String())
	}
}

func clock(t time.Time) string { return t.Format("15:04:05") }

// The method `report` prints an error of the service.
func (s *server) report(_ string, _ store.Queue, err error) {
	s.t.printf("kahn: %v\n", err)
}

// The method `tidy` removes the schedules that -forget names, and reports the stored schedules that no definition contains.
func (s *server) tidy(ctx context.Context, scheduler *schedule.Scheduler) error {
	for _, name := range s.forget {
		if err := scheduler.Remove(ctx, name); err != nil {
			return fmt.Errorf("-forget: %w", err)
		}
	}
	stored, _, err := s.db.Schedules(ctx)
	for _, x := range stored {
		if !slices.ContainsFunc(s.schedules, func(own schedule.Schedule) bool { return own.Name == x.Name }) {
			s.t.printf("the schedule %s is in the store and in none of the definitions; to remove it: -forget %s\n", x.Name, shellWord(x.Name))
		}
	}
	return err
}

// The method `announce` prints the definitions and their schedules.
func (s *server) announce() {
	s.t.printf("serving %s over %s\n", count(len(s.flows), "definition"), s.store)
	for i := range s.schedules {
		x := &s.schedules[i]
		times, err := schedule.Every(x.Every)
		when := "every " + x.Every.String()
		if x.Every == 0 {
			times, err = schedule.Cron(x.Cron, x.Zone)
			when = strings.TrimSpace(x.Cron + " " + x.Zone)
		}
		if err == nil { // FromDocument has parsed the same schedule without an error
			s.t.printf("%s: %s, next at %s\n", x.Name, when, times.Next(time.Now()).Format(time.RFC3339))
		}
	}
}

// show starts the page.
func (s *server) show(scheduler *schedule.Scheduler) (end func(), err error) {
	options := inspector.Options{Runner: s.runner, Store: s.db, Scheduler: scheduler, Start: map[string]inspector.StartFunc{}}
	for i := range s.flows {
		f := &s.flows[i]
		perform := func(ctx context.Context, opts ...kahn.Option) (*kahn.Run, error) {
			return s.runner.Start(ctx, f.graph, steps().Step, append(slices.Clone(s.options(f)), opts...)...)
		}
		options.Workflows = append(options.Workflows, inspector.Workflow{Plan: f.plan, Perform: perform})
		options.Start[f.graph.Name] = func(ctx context.Context, text json.RawMessage) (*kahn.Run, error) {
			inputs := map[string]any{}
			if len(text) > 0 {
				if err := json.Unmarshal(text, &inputs); err != nil {
					return nil, fmt.Errorf("%w: the inputs are no object: %w", kahn.ErrBadOption, err)
				}
			}
			inputs[here] = f.here
			return perform(ctx, kahn.Durable(s.db), kahn.RunID(f.graph.Name+"-"+uuid.NewString()[:8]), kahn.Inputs(inputs))
		}
	}
	return s.page.serve(s.t, options)
}
