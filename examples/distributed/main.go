// Command distributed runs a graph of 300 nodes on Temporal. It starts a development server and three worker processes, kills one worker during the
// run, and compares the Result with the Result of kahn.Execute. The nodes have two kinds, and each kind has its own task queue.
//
//	go run ./examples/distributed
//
// The program builds cmd/temporal-dev, which takes minutes the first time. With -service and an address, the program uses a running Temporal service
// instead. With -page localhost:8080 it also serves the inspector's page, which shows the run. After the run, it serves the page until it is
// interrupted.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/inspector"
	"github.com/seed-c794f7ef/kahn/temporal"
)

const (
	taskQueue = "distributed"
	oddQueue  = "distributed-odd" // the task queue for nodes of the kind "odd"
	deep      = 20
	wide      = 15
	workers   = 3
	killAfter = deep * wide / 3 // the program kills a worker when this many nodes have completed
)

func main() {
	log.SetFlags(0)
	address := flag.String("service", "", "use the Temporal service at this address (default: start a development server)")
	namespace := flag.String("namespace", "default", "use this namespace of the Temporal service")
	page := flag.String("page", "", "serve the inspector at this address, such as localhost:8080 (default: no inspector)")
	isWorker := flag.Bool("worker", false, "be a worker; the command starts its workers with this flag")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *address, *namespace, *page, *isWorker)
	stop()
	if err != nil {
		log.Fatal("distributed: ", err)
	}
}

func run(ctx context.Context, address, namespace, page string, isWorker bool) error {
	if isWorker {
		return work(address, namespace)
	}
	if address == "" {
		s, err := startServer(ctx)
		if err != nil {
			return fmt.Errorf("the development server: %w", err)
		}
		defer s.stop()
		address, namespace = s.address, s.namespace
	}
	c, err := connect(address, namespace)
	if err != nil {
		return err
	}
	defer c.Close()
	plan, err := layers()
	if err != nil {
		return err
	}
	started, stop, err := startWorkers(ctx, address, namespace)
	defer stop()
	if err != nil {
		return err
	}
	if page == "" {
		return perform(ctx, c, plan, started[0])
	}
	shown, err := show(c, plan, page)
	if err != nil {
		return err
	}
	defer func() {
		if err := shown.Close(); err != nil {
			log.Print(err)
		}
	}()
	if err := perform(ctx, c, plan, started[0]); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// Through this interface, the page answers the gates of runs on Temporal, and stops these runs.
var _ inspector.Controller = temporal.Store{}

// show serves the page of the inspector.
func show(c client.Client, plan *kahn.Plan, address string) (*http.Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	token := rand.Text()
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, Handler: inspector.Handler(inspector.Options{
		Token: token, Store: temporal.Store{Client: c}, Workflows: []inspector.Workflow{{Plan: plan}},
	})}
	go func() { // Serve returns when the server is closed
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Print(err)
		}
	}()
	log.Printf("the page is at http://%s/#token=%s", l.Addr(), token)
	return s, nil
}

// layers returns the plan of the graph. Each node adds its own number to the outputs of two nodes of the previous layer.
func layers() (*kahn.Plan, error) {
	g := &kahn.Graph{Name: "layers"}
	id := func(layer, i int) string { return fmt.Sprintf("n%02d-%02d", layer, i%wide) }
	for layer := range deep {
		for i := range wide {
			n := kahn.Node{ID: id(layer, i), Kind: []string{"even", "odd"}[i%2], Params: map[string]any{"own": layer*wide + i}, Retry: kahn.Retry{MaxAttempts: 2}}
			if layer > 0 {
				n.In = []kahn.Edge{{From: id(layer-1, i), Param: "left"}, {From: id(layer-1, i+1), Param: "right"}}
			}
			g.Add(n)
		}
	}
	return g.Compile()
}

// step is the step function, both in the workers and in kahn.Execute.
func step(ctx context.Context, s *kahn.Step) (any, error) {
	sum := 0
	for _, v := range s.Params() {
		sum += v.(int)
	}
	select {
	case <-time.After(50 * time.Millisecond):
		return sum % 1_000_003, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// work runs a worker.
func work(address, namespace string) error {
	c, err := connect(address, namespace)
	if err != nil {
		return err
	}
	defer c.Close()
	plan, err := layers()
	if err != nil {
		return err
	}
	o := temporal.Options{Plans: []*kahn.Plan{plan}, Step: step, LostAfter: 3 * time.Second}
	o.Worker.MaxConcurrentActivityExecutionSize = 5
	o.Kinds = map[string]temporal.Kind{"odd": {TaskQueue: oddQueue}}
	w, err := temporal.NewWorker(c, taskQueue, o)
	if err != nil {
		return err
	}
	o.Worker.DisableWorkflowWorker = true
	odd, err := temporal.NewWorker(c, oddQueue, o)
	if err != nil {
		return err
	}
	if err := odd.Start(); err != nil {
		return err
	}
	defer odd.Stop()
	return w.Run(worker.InterruptCh())
}

func connect(address, namespace string) (client.Client, error) {
	return client.Dial(client.Options{HostPort: address, Namespace: namespace, Logger: quiet{}})
}

// quiet is a logger for the SDK. It drops all messages, since the program kills a worker on purpose.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

var _ sdklog.Logger = quiet{}

// startWorkers starts the workers. The returned function kills them.
func startWorkers(ctx context.Context, address, namespace string) (started []*exec.Cmd, stop func(), err error) {
	stop = func() {
		for _, w := range started {
			_ = w.Process.Kill()
			_ = w.Wait() // returns an error, since the process was killed
		}
	}
	for range workers {
		w := exec.CommandContext(ctx, os.Args[0], "-worker", "-service", address, "-namespace", namespace)
		w.Stderr = os.Stderr
		if err := w.Start(); err != nil {
			return started, stop, err
		}
		started = append(started, w)
		log.Printf("worker %d has started", w.Process.Pid)
	}
	return started, stop, nil
}

// perform starts the run, kills a worker before the run ends, and compares the Result with the Result of kahn.Execute.
func perform(ctx context.Context, c client.Client, plan *kahn.Plan, victim *exec.Cmd) error {
	began := time.Now()
	of := temporal.Workflow{ID: fmt.Sprintf("distributed-%d", began.UnixNano()), TaskQueue: taskQueue, Plan: plan}
	run, err := temporal.Start(ctx, c, of, nil)
	if err != nil {
		return err
	}
	log.Printf("workflow %s: %d nodes", run.ID(), plan.Len())
	if err := follow(ctx, run, func() error {
		log.Printf("killing worker %d", victim.Process.Pid)
		return victim.Process.Kill()
	}); err != nil {
		return err
	}
	there, err := run.Wait(ctx)
	if err != nil {
		return err
	}
	log.Printf("on Temporal: %v, %d completed, in %v", there.Status, there.Count(kahn.Completed), time.Since(began).Round(time.Millisecond))
	here, err := plan.Execute(ctx, step)
	if err != nil {
		return err
	}
	return same(there, here)
}

// follow reads the events of the run until the run has ended. When killAfter nodes have completed, it calls the function `kill`.
func follow(ctx context.Context, run *temporal.Run, kill func() error) error {
	events, err := run.Events(ctx)
	if err != nil {
		return err
	}
	completed := 0
	for e, err := range events.Events(ctx, 0) {
		if err != nil {
			return err
		}
		if e.Type != event.NodeCompleted {
			continue
		}
		if completed++; completed%50 == 0 {
			log.Printf("%d nodes have completed", completed)
		}
		if completed == killAfter {
			if err := kill(); err != nil {
				return err
			}
		}
	}
	return nil
}

// The function `same` compares two results node by node.
func same(there, here *kahn.Result) error {
	var errs []error
	for n := range here.Nodes() {
		if got, ok := there.Node(n.ID); !ok || got.Status != n.Status || got.Output != n.Output {
			errs = append(errs, fmt.Errorf("node %s: %v with %v on Temporal, %v with %v in one process", n.ID, got.Status, got.Output, n.Status, n.Output))
		}
	}
	if there.Status != here.Status || there.Len() != here.Len() {
		errs = append(errs, fmt.Errorf("the run: %v with %d nodes on Temporal, %v with %d in one process", there.Status, there.Len(), here.Status, here.Len()))
	}
	if len(errs) == 0 {
		log.Printf("the Result is the same as the Result of kahn.Execute: %v, %d nodes", here.Status, here.Len())
	}
	return errors.Join(errs...)
}
