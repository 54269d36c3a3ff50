// Package tour_test runs the programs of the tour, and compares what they print with the file output.txt beside each.
package tour_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	goparser "go/parser"
	"go/token"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/sse"
)

var write = flag.Bool("write", false, "write the files that output is compared with")

// calls lists, for programs that are called several times, the arguments of each call. All other programs are called once, without arguments.
var calls = map[string][][]string{"17-approval": {nil, {"approve"}}}

// programs returns the folders of the tour, in order.
func programs(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("[0-9][0-9]-*")
	if err != nil || len(names) != 25 {
		t.Fatalf("%d programs, expected 25, %v", len(names), err)
	}
	return names
}

// linked returns the programs that TestTour runs. Linking a program takes a second, so TestTour usually runs three programs. It also runs every third
// program if KAHN_SAMPLE is set, as in .ci/run, and all programs if KAHN_LONG is set.
func linked(t *testing.T) []string {
	t.Helper()
	names := programs(t)
	if *write || os.Getenv("KAHN_LONG") != "" {
		return names
	}
	var some []string
	for i, name := range names {
		if slices.Contains([]string{"01-first-graph", "17-approval", "19-service"}, name) || os.Getenv("KAHN_SAMPLE") != "" && i%3 == 1 {
			some = append(some, name)
		}
	}
	return some
}

func TestTour(t *testing.T) {
	bin := t.TempDir()
	names := linked(t)
	build := []string{"build", "-ldflags=-s -w", "-o", bin + string(filepath.Separator)}
	for _, name := range names {
		build = append(build, "./"+name)
	}
	// The linker takes half the time without the tables for debuggers (-s -w).
	if out, err := exec.CommandContext(t.Context(), "go", build...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p := &program{file: filepath.Join(bin, name), dir: t.TempDir()}
			if name == "19-service" {
				p.serve(ctx, t)
			} else {
				list, ok := calls[name]
				if !ok {
					list = [][]string{nil}
				}
				for _, args := range list {
					p.run(ctx, t, args)
				}
			}
			golden := filepath.Join(name, "output.txt")
			if *write {
				if err := os.WriteFile(golden, p.out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || !bytes.Equal(want, p.out.Bytes()) {
				t.Errorf("%s differs from\n%s\n%v", golden, &p.out, err)
			}
		})
	}
}

// program is a program of the tour, and what its calls printed.
type program struct {
	file, dir string
	out       bytes.Buffer
}

// command returns a call of the program, in its folder.
func (p *program) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, p.file, args...)
	c.Dir = p.dir
	return c
}

// prompt adds a line with the command that calls the program.
func (p *program) prompt(args ...string) {
	fmt.Fprintln(&p.out, strings.Join(append([]string{"$ go run ./examples/tour/" + filepath.Base(p.file)}, args...), " "))
}

func (p *program) run(ctx context.Context, t *testing.T, args []string) {
	t.Helper()
	p.prompt(args...)
	c := p.command(ctx, args...)
	var errs bytes.Buffer
	c.Stdout, c.Stderr = &p.out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
}

// serve runs the service twice: the service packs an order, is stopped while the order waits for its payment, and is started again.
func (p *program) serve(ctx context.Context, t *testing.T) {
	t.Helper()
	p.serveOnce(ctx, t, event.NodeSuspended, "POST /orders/7", "GET /orders/7/events")
	p.serveOnce(ctx, t, event.RunCompleted, "POST /orders/7", "POST /orders/7/paid", "GET /orders/7/events", "POST /orders/7/paid", "POST /orders/7")
}

// serveOnce starts the service, sends requests, reads events up to the last one, and stops the service as an operator does.
func (p *program) serveOnce(ctx context.Context, t *testing.T, last event.Type, requests ...string) {
	t.Helper()
	p.prompt()
	c := p.command(ctx, "-addr", "localhost:0")
	var printed bytes.Buffer
	c.Stdout = &printed
	errs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(errs).ReadString('\n')
	_, addr, found := strings.Cut(strings.TrimSpace(line), "listening on ")
	if !found {
		t.Fatalf("%q, %v", line, err)
	}
	for _, request := range requests {
		fmt.Fprintln(&p.out, "#", request)
		method, path, _ := strings.Cut(request, " ")
		url := "http://" + addr + path
		if method == http.MethodGet {
			for e, err := range (&sse.Client{URL: url}).Events(ctx, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Type != event.RunStatusChanged { // the number of these events depends on when the service is stopped
					fmt.Fprintln(&p.out, e.Type, e.Node)
				}
				if e.Type == last {
					break
				}
			}
			continue
		}
		r, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		fmt.Fprintln(&p.out, response.Status)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&p.out, "# SIGTERM; the service has printed:\n%s", &printed)
}

// Each program is short and says what it shows, and the index lists it.
func TestIndex(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range programs(t) {
		file := filepath.Join(name, "main.go")
		fset := token.NewFileSet()
		parsed, err := goparser.ParseFile(fset, file, nil, goparser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		imports := parsed.Imports[len(parsed.Imports)-1]
		if n := fset.File(parsed.FileStart).LineCount() - fset.Position(imports.End()).Line; n < 15 || n > 60 {
			t.Errorf("%s has %d lines after its imports", file, n)
		}
		if parsed.Doc == nil {
			t.Errorf("%s does not say what it shows", file)
		}
		if !strings.Contains(string(index), "]("+name+"/main.go)") {
			t.Errorf("README.md does not list %s", name)
		}
	}
}
