//go:build unix

package postgres_test

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

// nobody is the user as whom a superuser starts servers: they refuse to run as the superuser.
const nobody = 65534

// cluster is a server of its own, on a port of this machine, with its data in a temporary folder.
type cluster struct {
	bin, dir string
	port     int
	keeper   *exec.Cmd // a shell that stops the server when this process has ended
	alive    io.Closer // the keeper's input
}

// newCluster makes a cluster and starts its server. The error is errNoServer if there is no program for it.
func newCluster() (*cluster, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, missing := exec.LookPath("initdb"); missing == nil {
		found = append(found, path)
	}
	if err != nil || len(found) == 0 {
		return nil, errors.Join(errNoServer, err)
	}
	c := &cluster{bin: filepath.Dir(found[len(found)-1])}
	if c.dir, err = os.MkdirTemp("", "kahn-postgres"); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 {
		err = os.Chown(c.dir, nobody, nobody)
	}
	if err == nil {
		out, failed := c.command(filepath.Join(c.bin, "initdb"), "-D", c.data(), "-U", "kahn", "-A", "trust", "-E", "UTF8", "--locale=C").CombinedOutput()
		if failed != nil {
			err = fmt.Errorf("initdb: %w\n%s", failed, out)
		}
	}
	if err == nil {
		c.port, err = freePort()
	}
	if err == nil {
		err = c.start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(c.dir))
	}
	return c, nil
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

// command makes a command of the user who may run a server.
func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }() // it was open for its number
	return l.Addr().(*net.TCPAddr).Port, nil
}

// url is that of a database of the cluster.
func (c *cluster) url(database string) string {
	return fmt.Sprintf("postgres://kahn@127.0.0.1:%d/%s?sslmode=disable", c.port, database)
}

// start starts the server and waits until it answers.
func (c *cluster) start() error {
	settings := fmt.Sprintf("-D %s -p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 -c fsync=on -c shared_buffers=64MB", c.data(), c.port)
	script := "exec 3<&0; " + filepath.Join(c.bin, "postgres") + " " + settings + " >>log 2>&1 3<&- & server=$!; (read -r _ <&3; kill -QUIT $server 2>/dev/null) & exec 3<&-; wait $server"
	for began := time.Now(); ; {
		c.keeper = c.command("sh", "-c", script)
		input, err := c.keeper.StdinPipe()
		if err != nil {
			return err
		}
		c.alive = input
		if err := c.keeper.Start(); err != nil {
			return err
		}
		for range 100 { // it may refuse to start as long as processes of its former life are there
			if err = c.answers(); err == nil {
				return nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		if time.Since(began) > time.Minute {
			log, missing := os.ReadFile(filepath.Join(c.dir, "log"))
			return errors.Join(fmt.Errorf("the server does not start: %w\n%s", err, log), missing)
		}
		if err := c.release(); err != nil {
			return err
		}
	}
}

func (c *cluster) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// release lets the keeper end, and the server with it.
func (c *cluster) release() error {
	if c.keeper.ProcessState != nil { // it has ended already
		return nil
	}
	return errors.Join(c.alive.Close(), c.ended())
}

// signal sends a signal to the server, and waits for its end: INT stops it fast, QUIT at once, KILL leaves it no choice.
func (c *cluster) signal(s syscall.Signal) error {
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

// ended waits for the end of the keeper, which is that of the server.
func (c *cluster) ended() error {
	if err := c.keeper.Wait(); !errors.As(err, new(*exec.ExitError)) { // the status of a server that was stopped does not matter
		return err
	}
	return nil
}

// remove stops the server and removes its data.
func (c *cluster) remove() error {
	return errors.Join(c.release(), os.RemoveAll(c.dir))
}
