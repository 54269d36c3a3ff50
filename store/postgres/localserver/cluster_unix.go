//go:build unix

package localserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Nobody is the user id of a server that the superuser starts. PostgreSQL refuses to run as the superuser.
const Nobody = 65534

// Cluster is a separate server on a port of this machine, with its data in a temporary folder. When the process that started the server ends, the
// server ends, too.
type Cluster struct {
	Dir      string // the temporary folder
	Port     int
	bin      string
	settings string
	keeper   *exec.Cmd // a shell that stops the server when this process has ended
	alive    io.Closer // the keeper's input
}

// NewCluster makes a cluster and starts its server with additional settings, for example "fsync=off". The error matches [ErrNoServer] if no server is
// installed.
func NewCluster(settings ...string) (*Cluster, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, missing := exec.LookPath("initdb"); missing == nil {
		found = append(found, path)
	}
	if err != nil || len(found) == 0 {
		return nil, errors.Join(ErrNoServer, err)
	}
	c := &Cluster{bin: filepath.Dir(found[len(found)-1])}
	for _, s := range settings {
		c.settings += " -c " + s
	}
	if c.Dir, err = os.MkdirTemp("", "kahn-postgres"); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 {
		err = os.Chown(c.Dir, Nobody, Nobody)
	}
	if err == nil {
		out, failed := c.Command(filepath.Join(c.bin, "initdb"), "-D", c.data(), "-U", "kahn", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync").CombinedOutput()
		if failed != nil {
			err = fmt.Errorf("initdb: %w\n%s", failed, out)
		}
	}
	if err == nil {
		c.Port, err = FreePort()
	}
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.Dir))
	}
	return c, nil
}

func (c *Cluster) data() string { return filepath.Join(c.Dir, "data") }

// Command makes a command that runs as the user of the server.
func (c *Cluster) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.Dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Nobody, Gid: Nobody}}
	}
	return cmd
}

// FreePort returns a port of this machine that was free a moment ago.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }() // the listener was opened only to find a free port
	return l.Addr().(*net.TCPAddr).Port, nil
}

// URL returns the URL of a database of the cluster.
func (c *Cluster) URL(database string) string {
	return fmt.Sprintf("postgres://kahn@127.0.0.1:%d/%s?sslmode=disable", c.Port, database)
}

// Start starts the server and waits until it answers.
func (c *Cluster) Start() error {
	settings := fmt.Sprintf("-D %s -p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 -c fsync=on -c shared_buffers=64MB%s", c.data(), c.Port, c.settings)
	script := "exec 3<&0; " + filepath.Join(c.bin, "postgres") + " " + settings + " >>log 2>&1 3<&- & server=$!; (read -r _ <&3; kill -QUIT $server 2>/dev/null) & exec 3<&-; wait $server"
	for began := time.Now(); ; {
		c.keeper = c.Command("sh", "-c", script)
		input, err := c.keeper.StdinPipe()
		if err != nil {
			return err
		}
		c.alive = input
		if err := c.keeper.Start(); err != nil {
			return err
		}
		for range 100 { // the new server may refuse to start while processes of the old server still run
			if err = c.answers(); err == nil {
				return nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		if time.Since(began) > time.Minute {
			log, missing := os.ReadFile(filepath.Join(c.Dir, "log"))
			return errors.Join(fmt.Errorf("the server does not start: %w\n%s", err, log), missing)
		}
		if err := c.release(); err != nil {
			return err
		}
	}
}

func (c *Cluster) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// The method `release` makes the keeper stop the server, and waits until the keeper and the server have ended.
func (c *Cluster) release() error {
	if c.keeper.ProcessState != nil { // the keeper has already ended
		return nil
	}
	return errors.Join(c.alive.Close(), c.ended())
}

// Signal sends a signal to the server, and waits until the server has ended. INT asks PostgreSQL for a fast shutdown, QUIT for an immediate one,
// and KILL kills the server.
func (c *Cluster) Signal(s syscall.Signal) error {
	data, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return err
	}
	number, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, s); err != nil {
		return err
	}
	return c.ended()
}

// The method `ended` waits until the keeper has ended. The keeper ends when the server ends.
func (c *Cluster) ended() error {
	if err := c.keeper.Wait(); !errors.As(err, new(*exec.ExitError)) { // the exit status of a stopped server does not matter
		return err
	}
	return nil
}

// Remove stops the server and removes its data.
func (c *Cluster) Remove() error {
	return errors.Join(c.release(), os.RemoveAll(c.Dir))
}
