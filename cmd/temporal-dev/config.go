package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/membership/static"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/schema/sqlite"
)

const (
	localhost   = "127.0.0.1"
	clusterName = "active"
)

// services lists the parts of a Temporal service. All parts run in this process.
var services = []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService}

// configure returns the configuration of a service that listens on `port`. The service stores its data in the SQLite file `file`, or in memory if
// `file` is "". The map `hosts` contains the addresses of the service's parts, so the parts need no discovery.
func configure(port int, file string) (c *config.Config, hosts map[primitives.ServiceName]static.Hosts, err error) {
	store := &config.SQL{PluginName: sqliteplugin.PluginName, DatabaseName: file, ConnectAttributes: map[string]string{
		"mode": "rwc", "journal_mode": "wal", "synchronous": "normal", // commits survive a killed process, but a power failure may undo the last ones
	}}
	if file == "" {
		store.DatabaseName, store.ConnectAttributes = "temporal-dev", map[string]string{"mode": "memory", "cache": "shared"}
	}
	c = &config.Config{
		Persistence: config.Persistence{
			DefaultStore: sqliteplugin.PluginName, VisibilityStore: sqliteplugin.PluginName, NumHistoryShards: 1,
			DataStores: map[string]config.DataStore{sqliteplugin.PluginName: {SQL: store}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: fmt.Sprintf("%s:%d", localhost, port)},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		PublicClient:        config.PublicClient{HostPort: fmt.Sprintf("%s:%d", localhost, port)},
		Services:            map[string]config.Service{},
	}
	c.Global.Membership = config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: localhost}
	archival := config.ArchivalNamespaceDefaults{
		History:    config.HistoryArchivalNamespaceDefaults{State: "disabled"},
		Visibility: config.VisibilityArchivalNamespaceDefaults{State: "disabled"},
	}
	c.NamespaceDefaults = config.NamespaceDefaults{Archival: archival}
	c.Archival = config.Archival{History: config.HistoryArchival{State: "disabled"}, Visibility: config.VisibilityArchival{State: "disabled"}}

	hosts = map[primitives.ServiceName]static.Hosts{}
	for _, name := range services {
		at := port
		if name != primitives.FrontendService {
			if at, err = freePort(); err != nil {
				return nil, nil, err
			}
		}
		membership, err := freePort()
		if err != nil {
			return nil, nil, err
		}
		c.Services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: at, MembershipPort: membership, BindOnIP: localhost}}
		hosts[name] = static.SingleLocalHost(fmt.Sprintf("%s:%d", localhost, at))
	}
	return c, hosts, nil
}

// searchAttributes are the search attributes of module temporal: its constants WorkflowAttribute and StatusAttribute.
var searchAttributes = map[string]enums.IndexedValueType{
	"KahnWorkflow": enums.INDEXED_VALUE_TYPE_KEYWORD, "KahnStatus": enums.INDEXED_VALUE_TYPE_KEYWORD,
}

// freePort returns a port on which no process listens now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", localhost+":0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// prepare creates the namespace. If `file` names a file that does not exist, prepare first creates the file with its tables.
func prepare(c *config.Config, file, namespace string) error {
	store := c.Persistence.DataStores[sqliteplugin.PluginName].SQL
	if file != "" {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			if err := sqlite.SetupSchema(store); err != nil {
				return fmt.Errorf("the tables of %s: %w", file, err)
			}
		}
	}
	n, err := sqlite.NewNamespaceConfig(clusterName, namespace, false, searchAttributes)
	if err != nil {
		return err
	}
	return sqlite.CreateNamespaces(store, n)
}
