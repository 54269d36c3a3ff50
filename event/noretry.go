package event

import "github.com/seed-c794f7ef/kahn/internal/enum"

// NoRetry is the reason why a failed node was not attempted again. If several reasons apply, NoRetry is the first of them in the list below.
type NoRetry uint8

// The reasons. The zero value belongs to a node that has not failed.
const (
	_                NoRetry = iota
	NoRetryAbandoned         // an attempt of the node, or of a node inside it, ignored the end of its context and may still be running
	NoRetryOverall           // the node's overall timeout has passed
	NoRetryPermanent         // the error was marked by kahn.Permanent or kahn.AbortRun
	NoRetryStopping          // the node or the run is being stopped
	NoRetryUnstarted         // the node failed before an attempt began: because of its join, a merge, its inputs or a failed predecessor
	NoRetryNoPolicy          // the node has no policy, or its policy allows only one attempt
	NoRetryCause             // the policy does not retry the cause, the cause cannot be retried, or nodes inside were not undone
	NoRetryAttempts          // this was the policy's last attempt
	NoRetryHint              // the error demands a delay longer than MaxRetryAfter
	NoRetryDeadline          // the delay would end after the overall timeout of the node or the timeout of the run

	noRetryCount
)

var noRetryNames = enum.Of[NoRetry]("reason for no retry",
	"", "abandoned", "overall_timeout", "permanent", "stopping",
	"not_started", "no_policy", "not_retryable", "attempts_exhausted",
	"retry_after", "deadline",
)

// String returns the reason's name in events, such as "attempts_exhausted", or "" for the zero value.
func (n NoRetry) String() string { return noRetryNames.Name(n) }

// MarshalText encodes n as its name. It returns an error that matches [machine.ErrBadValue] for a value outside the enum.
func (n NoRetry) MarshalText() ([]byte, error) { return noRetryNames.Text(n) }

// UnmarshalText decodes a name. It returns an error that matches [machine.ErrBadValue] for any other text.
func (n *NoRetry) UnmarshalText(text []byte) error { return noRetryNames.Parse(n, text) }
