// Command temporal-dev runs a Temporal service in one process, with SQLite. It is for development, for examples/distributed, and for those tests of
// module temporal that need the build tag `server`. It prints its address and its namespace, and runs until it is interrupted.
//
//	cd cmd/temporal-dev && GOWORK=off go run . -port 7233 -db temporal.db
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/temporal"
)

// pollRate is how many times per second the service may look for tasks to hand out. At Temporal's default, 20, each step of a chain takes 50 ms.
const pollRate = 2000

func main() {
	port := flag.Int("port", 0, "listen at this port of "+localhost+"; 0: at any")
	file := flag.String("db", "", "keep the data in this file; \"\": in memory")
	namespace := flag.String("namespace", "default", "create this namespace")
	flag.Parse()
	if err := serve(*port, *file, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "temporal-dev:", err)
		os.Exit(1)
	}
}

// serve runs a service until the process is interrupted.
func serve(port int, file, namespace string) (err error) {
	if port == 0 {
		if port, err = freePort(); err != nil {
			return err
		}
	}
	c, hosts, err := configure(port, file)
	if err != nil {
		return err
	}
	if err := prepare(c, file, namespace); err != nil {
		return err
	}
	s, err := temporal.NewServer(
		temporal.WithConfig(c), temporal.WithStaticHosts(hosts), temporal.ForServices(temporal.DefaultServices), temporal.WithLogger(log.NewNoopLogger()),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return authorization.NewNoopClaimMapper() }),
		temporal.WithDynamicConfigClient(dynamicconfig.StaticClient{
			dynamicconfig.TransferProcessorMaxPollRPS.Key():             []dynamicconfig.ConstrainedValue{{Value: pollRate}},
			dynamicconfig.ForceSearchAttributesCacheRefreshOnRead.Key(): []dynamicconfig.ConstrainedValue{{Value: true}},
		}))
	if err != nil {
		return err
	}
	if err := s.Start(); err != nil {
		return err
	}
	fmt.Println(c.PublicClient.HostPort, namespace)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	<-stop
	return s.Stop()
}
