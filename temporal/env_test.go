package temporal

import (
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/seed-c794f7ef/kahn"
)

// trial is a run in the SDK's test environment.
type trial struct {
	workflow Workflow
	options  Options
	inputs   map[string]any
	// during is called before each execution of the workflow; tests use it to send requests at chosen times.
	during       func(env *testsuite.TestWorkflowEnvironment, execution int)
	interceptors []interceptor.WorkerInterceptor
	// envs are the environments of all executions.
	envs []*testsuite.TestWorkflowEnvironment

	// former makes the run look as if a former version had started it.
	former bool
	// redrive, if not nil, is a redrive that an operator requests once, after the end of the run.
	redrive *redriving

	executions int
	err        error // the error of the last execution
	in         input
	out        output
}

var discard = sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))

// epoch is the start time of all trials.
var epoch = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// run performs the workflow with all its executions, and returns what Wait would return.
func (x *trial) run(t testing.TB) (*kahn.Result, error) {
	t.Helper()
	x.workflow.Types, x.workflow.Blobs = x.options.Types, x.options.Blobs
	x.options.Plans = append(x.options.Plans, x.workflow.Plan)
	x.options.LostAfter = time.Hour // the environment measures it in real time, and mocked steps send no heartbeats
	in, err := x.workflow.input(x.inputs)
	require.NoError(t, err)
	in.ShortCalls, in.RunID = !x.former, uuid.NewString() // with a run id the workflow needs no memo
	for now := epoch; ; {
		var suite testsuite.WorkflowTestSuite
		suite.SetLogger(discard)
		env := suite.NewTestWorkflowEnvironment()
		env.SetStartTime(now)
		env.SetTestTimeout(time.Minute)
		env.SetWorkflowRunTimeout(100 * 365 * 24 * time.Hour)                                                     // answers to gates may come late
		env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute, Interceptors: x.interceptors}) // a busy machine may be slow
		require.NoError(t, x.options.Register(env))
		if x.during != nil {
			x.during(env, x.executions)
		}
		x.executions++
		x.envs = append(x.envs, env)
		name := x.workflow.workflowType()
		if x.former {
			name = WorkflowName
		}
		env.ExecuteWorkflow(name, in)
		now = env.Now()
		require.True(t, env.IsWorkflowCompleted())
		var out output
		err := env.GetWorkflowResult(&out)
		var more *workflow.ContinueAsNewError
		if errors.As(err, &more) {
			in = input{}
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(more.Input, &in))
			require.Less(t, x.executions, 1000)
			continue
		}
		if x.err = err; err != nil {
			if err := outputOf(err, &out); err != nil {
				return nil, err
			}
		}
		x.in, x.out = in, out
		if x.redrive != nil {
			last := lastExecution{in: in, out: out}
			in, err = last.redriven(x.workflow, x.redrive)
			require.NoError(t, err)
			x.redrive = nil
			continue
		}
		return x.workflow.result(out)
	}
}

func plan(t testing.TB, g *kahn.Graph) *kahn.Plan {
	t.Helper()
	p, err := g.Compile()
	require.NoError(t, err)
	return p
}

// before returns an interceptor of the workflows' calls to Temporal.
func before(of func(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor) []interceptor.WorkerInterceptor {
	return []interceptor.WorkerInterceptor{&outbound{of: of}}
}

// outbound makes an interceptor for each workflow.
type outbound struct {
	interceptor.WorkerInterceptorBase
	of func(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor
}

func (o *outbound) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &inbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, o.of}
}

// inbound installs the interceptor of an outbound in one workflow.
type inbound struct {
	interceptor.WorkflowInboundInterceptorBase
	of func(next interceptor.WorkflowOutboundInterceptor) interceptor.WorkflowOutboundInterceptor
}

func (i *inbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return i.WorkflowInboundInterceptorBase.Init(i.of(next))
}
