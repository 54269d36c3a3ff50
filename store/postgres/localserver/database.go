// Package localserver gives a program a temporary database of PostgreSQL. If the environment variable [ServerURL] is set, the database is on that
// server. Otherwise the package starts a server on a port of this machine. The package is for tests, measurements and demonstrations.
package localserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5"
)

// ErrNoServer is returned if no server is installed.
var ErrNoServer = errors.New("there is no PostgreSQL server")

// NoSync is a setting for NewCluster: the server does not wait for the disk. The data survives when the server ends, but may be lost when the machine
// crashes.
const NoSync = "fsync=off"

// ServerURL is the environment variable with the URL of a server. The role in the URL must be allowed to create databases.
const ServerURL = "KAHN_POSTGRES"

// WithDatabase makes a database and calls f with its URL. If the environment variable [ServerURL] is set, the database is on that server. Otherwise
// WithDatabase starts a server with the settings, for example "fsync=off". In this case the error matches [ErrNoServer] if no server is installed.
func WithDatabase(f func(url string) error, settings ...string) (err error) {
	server := os.Getenv(ServerURL)
	if server == "" {
		c, err := NewCluster(settings...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Remove()) }()
		server = c.URL("postgres")
	}
	name := fmt.Sprintf("kahn_test_%d", os.Getpid())
	database, err := CreateDatabase(server, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, DropDatabase(server, name)) }()
	return f(database)
}

// CreateDatabase makes a database on the server with the given URL, and returns the URL of the database.
func CreateDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), execute(server, "CREATE DATABASE "+name+" ENCODING 'UTF8' TEMPLATE template0")
}

// DropDatabase removes a database that [CreateDatabase] has made, and ends the connections to it.
func DropDatabase(server, name string) error {
	return execute(server, "DROP DATABASE "+name+" WITH (FORCE)")
}

// The function `execute` executes a statement over a connection of its own.
func execute(url, text string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, text)
	return errors.Join(err, conn.Close(ctx))
}
