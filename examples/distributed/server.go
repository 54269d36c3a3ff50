package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// server is a development server in a process of its own.
type server struct {
	cmd                *exec.Cmd
	dir                string // contains the binary of the server
	address, namespace string
}

// startServer builds cmd/temporal-dev, a module outside the workspace, and starts it.
func startServer(ctx context.Context) (*server, error) {
	source, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/seed-c794f7ef/kahn/examples/distributed").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: run the command inside the repository", err)
	}
	s := &server{}
	if s.dir, err = os.MkdirTemp("", "temporal-dev-"); err != nil {
		return nil, err
	}
	binary := filepath.Join(s.dir, "temporal-dev")
	log.Print("building the development server: the first time this takes minutes")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
	build.Dir = filepath.Join(strings.TrimSpace(string(source)), "..", "..", "cmd", "temporal-dev")
	build.Env = append(os.Environ(), "GOWORK=off")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		s.stop()
		return nil, fmt.Errorf("go build: %w", err)
	}
	s.cmd = exec.CommandContext(ctx, binary)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		s.cmd = nil
		s.stop()
		return nil, err
	}
	if _, err := fmt.Fscanln(out, &s.address, &s.namespace); err != nil {
		s.stop()
		return nil, fmt.Errorf("it has not reported its address: %w", err)
	}
	log.Printf("the development server listens at %s", s.address)
	return s, nil
}

// stop kills the server and removes the folder with the server's binary. No other file remains, since the server keeps its data in memory.
func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait() // returns an error, since the server was killed
	}
	if err := os.RemoveAll(s.dir); err != nil {
		log.Print(err)
	}
}
