package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/progress"
)

var runCommand = command{
	name: "run", args: "FILE", least: 1, most: 1, alone: "follow",
	summary: "run a definition",
	text: `
A definition decides which commands run: run only a definition that you would run as a script.

With -store the command keeps the run in an SQLite file, each step as it ends. After a crash, or while the run waits for an answer, the same command
continues the definition's run that has not ended, with the inputs that the run began with. A step that was running when the process crashed
runs again. With -run the run has that id, and the same command continues it, or reports how it ended. Two runs of one
definition with different inputs do not disturb each other.

The command ends when the run waits for an answer, unless -ask or -ui lets people answer. Without -store the state of the run is lost then.

The first Ctrl-C cancels the run: its cleanup steps still run. The second one kills the process. With -store the first Ctrl-C leaves the run instead:
it stops the running steps, cleanup steps do not run, and the same command continues the run and runs these steps again. With -store and -cancel
Ctrl-C cancels the run.

With -redrive the nodes of an ended run that failed or were stopped run again, and all nodes after them. Composites continue inside: of a map only the
failed items run again. With -node only the named nodes and the nodes after them run again; a name is a path such as ship, ship[3] or sub/charge. -dry
shows what would run again. The command refuses a path that leads nowhere, and a redrive of a failure that a node has already handled, such as by a refund.

With -cache a node with a memo, which is the version of what the node does, does not run if an earlier run of this or another definition has its output:
a run with the same id, memo and kind of the node, the same config after the templates were expanded, and the same contents of the node's files, called
in the same folder. Other files and services that a command reads are not compared. The output of a composite depends on its graph and on the inputs that
nodes inside name, and the output of a map's item on the item's value. The command removes outputs that were not used for 30 days, and the oldest ones above 1 GiB. You may
remove the folder at any time.

With -follow the command shows a run that another process performs, as if it ran here, until it ends: of a run that stores its events, as runs of this
command do, every event as it is stored; of another run what its records show, read once a second. It says what the run waits for. If the process of the
run has died, it says since when, and waits until another process continues the run. It only reads the file. Ctrl-C ends the command and leaves the run
alone. With -v it also prints what commands write, and of a run that has ended every event. The exit code is as if the run had run here.

If another process runs the run, the command posts the answers of -answer in the file for that process, and ends with code 3.

The exit code is 0 if the run completed, 1 if the run or the store failed, 3 if the run waits for an answer, or if a gate refused an answer or no
gate took it, 130 if Ctrl-C cancelled or left the run, and 2 if nothing ran because of a bad flag or definition. (go run turns every code but 0 into 1.)`,
	register: func(f *flags) action {
		h := &host{inputs: pairs{}, answers: pairs{}, given: f.given}
		f.Var(h.inputs, "input", "a root input of the run, as `name=value`, or name:=value for a value in JSON; may be repeated")
		f.Var(h.answers, "answer", "the answer for a gate that the run waits for, as `gate=value`, or gate:=value in JSON; may be repeated")
		f.BoolVar(&h.ask, "ask", false, "ask for answers on the terminal")
		f.file(&h.store, "store", "keep the run in this `file`, so that it survives the process")
		f.StringVar(&h.id, "run", "", "the `id` of the run (default: with -store the run that has not ended, else a new one)")
		f.StringVar(&h.followed, "follow", "", "with -store, and without FILE: show the run with this `id`, which another process performs")
		f.DurationVar(&h.lease, "lease", 10*time.Second, "with -store: how long a process that hangs keeps its run")
		h.cache.register(f)
		f.BoolVar(&h.cancels, "cancel", false, "with -store: Ctrl-C cancels the run instead of leaving it")
		f.BoolVar(&h.again.asked, "redrive", false, "with -store and -run: run the failed nodes of an ended run again, and the nodes that follow them")
		f.Var(&h.again.nodes, "node", "with -redrive: run the node at this `path` again, and the nodes that follow it; may be repeated")
		f.BoolVar(&h.again.anew, "anew", false, "with -redrive: begin composites that -node names anew, with everything inside them")
		f.BoolVar(&h.again.despite, "despite-handlers", false, "with -redrive: run nodes again although another node, such as a refund, has handled their failure")
		f.BoolVar(&h.again.keep, "keep-descendants", false, "with -redrive: completed nodes that follow keep their results")
		f.StringVar(&h.page.addr, "ui", "", "show the run in the browser, on this `address` such as localhost:8080; port 0 is any free one")
		f.BoolVar(&h.page.remote, "ui-remote", false, "let -ui listen on an address that other machines reach: anyone who has the link can see and do everything")
		f.BoolVar(&h.page.stay, "ui-stay", false, "with -ui: keep showing the run when it has ended, until Ctrl-C")
		f.BoolVar(&h.dry, "dry", false, "run no step, and show which steps would run, with their configs; gates are approved")
		f.IntVar(&h.limit, "limit", 0, "run at most `n` steps at the same time; 0 means no limit")
		f.DurationVar(&h.timeout, "timeout", 0, "stop, and fail, after this long; 0 means never")
		f.BoolVar(&h.verbose, "v", false, "print the output of commands, line by line")
		var modes []string
		for mode := progress.Auto; mode <= progress.JSON; mode++ {
			modes = append(modes, mode.String())
		}
		var show string
		f.choice(&show, "progress", "how progress is shown", modes...)
		return func(ctx context.Context, t *terminal, args []string) int {
			h.show = progress.Auto + progress.Mode(slices.Index(modes, show))
			return h.run(ctx, t, args)
		}
	},
}

// host performs the command `kahn run`.
type host struct {
	inputs, answers pairs
	ask             bool
	store, id       string
	followed        string
	given           func() []string // the names of the flags that the user has set
	again           redrive
	lease           time.Duration
	cancels         bool
	cache           cache
	page            page
	dry, verbose    bool
	limit           int
	timeout         time.Duration
	show            progress.Mode

	t     *terminal
	file  string
	graph *kahn.Graph
	names names
	step  kahn.StepFunc

	untaken pairs // the answers that no gate has taken
}

// run performs the command.
func (h *host) run(ctx context.Context, t *terminal, args []string) int {
	if len(args) == 0 {
		return h.follow(ctx, t)
	}
	g, _ := t.load(performer{}, args[0])
	if g == nil {
		return exitUsage
	}
	h.t, h.file, h.graph, h.step = t, args[0], g, steps().Step
	g.Name, h.names = name(g, h.file), namesOf(g)
	if err := errors.Join(h.check(), h.names.check(h.answers, h.inputs, h.dry)); err != nil {
		return t.refuse(err)
	}
	switch {
	case h.dry && h.again.asked:
		return h.preview(ctx)
	case h.dry:
		return h.rehearse(ctx)
	}
	var err error
	if h.graph, err = h.cache.prepare(g); err != nil {
		return t.refuse(err)
	}
	defer h.cache.tidy(context.WithoutCancel(ctx), t)
	return h.execute(ctx)
}

// The method `conclude` reports the outcome of the run, and returns the exit code. The Result is nil if no run has begun.
func (h *host) conclude(res *kahn.Result, err error, interrupted bool) int {
	switch {
	case res == nil && errors.Is(err, kahn.ErrLeft):
		h.t.printf("kahn: %v\n", err)
		return exitCancelled
	case errors.Is(err, errPosted), errors.Is(err, errRefused):
		h.t.printf("kahn: %v\n", err)
		return exitWaiting
	case res == nil:
		return h.t.refuse(hinted(err))
	}
	report(h.t, res)
	if gone := (*goneError)(nil); errors.As(err, &gone) {
		h.t.printf("kahn: %v\n", gone)
		return exitProblems
	}
	if res.Status == kahn.RunSuspended {
		h.advise(res)
		if err != nil && !errors.Is(err, kahn.ErrLeft) {
			h.t.printf("kahn: %v\n", err)
		}
		switch {
		case errors.Is(err, kahn.ErrStore):
			return exitProblems // after a store failure the store may not contain what the run waits for
		case interrupted:
			h.t.printf("interrupted; to continue: kahn run -store %s -run %s %s\n", shellWord(h.store), shellWord(res.ID()), shellWord(h.file))
			return exitCancelled
		}
	}
	if res.Status == kahn.RunFailed && h.store != "" {
		h.t.printf("to repeat what has failed: kahn run -store %s -run %s -redrive %s\n", shellWord(h.store), shellWord(res.ID()), shellWord(h.file))
	}
	return exitCode(res)
}

// exitCode returns the exit code for a Result.
func exitCode(res *kahn.Result) int { return codeOf(res.Status) }

// codeOf returns the exit code for the status of a run.
func codeOf(status kahn.RunStatus) int {
	switch status {
	case kahn.RunCompleted:
		return exitOK
	case kahn.RunCancelled:
		return exitCancelled
	case kahn.RunSuspended:
		return exitWaiting
	}
	return exitProblems
}

// The method `check` returns an error for flags that must not be combined, and for values that a flag must not have.
func (h *host) check() error {
	switch {
	case h.page.addr == "" && (h.page.remote || h.page.stay):
		return errors.New("-ui-remote and -ui-stay need -ui")
	case h.dry && (h.store != "" && !h.again.asked || h.page.addr != "" || h.ask):
		return errors.New("-dry runs nothing: it does not go with -ui, -ask and, without -redrive, -store")
	case h.again.asked && (h.store == "" || h.id == ""):
		return errors.New("-redrive needs -store and -run")
	case h.again.asked && len(h.inputs) > 0:
		return errors.New("-input does not go with -redrive: a redrive has the inputs with which the run began")
	case !h.again.asked && (len(h.again.nodes) > 0 || h.again.anew || h.again.despite || h.again.keep):
		return errors.New("-node, -anew, -despite-handlers and -keep-descendants need -redrive")
	case h.ask && h.page.addr != "":
		return errors.New("-ask and -ui do not go together: the page asks")
	case h.cancels && h.store == "":
		return errors.New("-cancel needs -store: without -store Ctrl-C always cancels the run")
	case h.store == "" && slices.Contains(h.given(), "lease"):
		return errors.New("-lease needs -store: without -store no other process can continue the run")
	case h.again.anew && len(h.again.nodes) == 0:
		return errors.New("-anew needs -node, which names the composites that begin anew")
	case h.lease <= 0:
		return errors.New("-lease must be longer than 0")
	case h.dry && h.cache.dir != "":
		return errors.New("-dry runs nothing: it does not go with -cache")
	}
	return h.cache.check()
}

// The method `roots` returns the root inputs: the given inputs, and the folder of the definition.
func (h *host) roots() (map[string]any, error) {
	return performer{}.inputs(h.file, h.inputs)
}
