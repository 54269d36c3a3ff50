// Command temporal-dev is a Temporal service in one process and in memory, for development and for the tests of module temporal that have
// the tag server. It prints its address and its namespace, and runs until it is interrupted.
//
//	cd cmd/temporal-dev && GOWORK=off go run .
package main

import (
	"fmt"
	"os"
	"os/signal"

	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/temporal"
	"go.temporal.io/server/temporaltest"
)

// pollRate is how often in a second the service looks for tasks that it has to pass on. By default it looks 20 times, so that each step of
// a chain takes 50 ms.
const pollRate = 2000

func main() {
	s := temporaltest.NewServer(temporaltest.WithBaseServerOptions(temporal.WithDynamicConfigClient(dynamicconfig.StaticClient{
		dynamicconfig.TransferProcessorMaxPollRPS.Key(): []dynamicconfig.ConstrainedValue{{Value: pollRate}},
	})))
	defer s.Stop()
	fmt.Println(s.GetFrontendHostPort(), s.GetDefaultNamespace())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	<-stop
}
