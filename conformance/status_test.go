package conformance_test

import (
	"encoding"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// TestTransitionTable lists all allowed transitions between statuses.
func TestTransitionTable(t *testing.T) {
	const I, W, R, N, Y, U = kahn.Idle, kahn.Waiting, kahn.Ready, kahn.Running, kahn.Retrying, kahn.Suspended
	const ok, F, X, C, S = kahn.Completed, kahn.Failed, kahn.Aborted, kahn.Cancelled, kahn.Skipped
	allowed := map[kahn.Status][]kahn.Status{
		I: {W, R, S, X, F, C},
		W: {R, S, X, F, C},
		R: {N, ok, F, X, C, U, S},
		N: {R, ok, F, Y, U, S, X, C},
		Y: {R, F, X, C},
		U: {R, ok, F, X, C},
	}
	for from := kahn.Idle; from <= kahn.Skipped; from++ {
		require.Equal(t, from >= kahn.Completed, from.Terminal(), "%v", from)
		for to := kahn.Idle; to <= kahn.Skipped; to++ {
			require.Equal(t, contains(allowed[from], to), from.CanBecome(to), "%v to %v", from, to)
		}
	}
	require.False(t, kahn.Status(99).CanBecome(kahn.Idle))
	require.False(t, kahn.Idle.CanBecome(99))
	require.False(t, kahn.Status(99).Terminal())
}

func contains[T comparable](list []T, x T) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

func TestCallMapping(t *testing.T) {
	actions := map[kahn.Status]machine.CallAction{
		kahn.Ready: machine.CallStart, kahn.Skipped: machine.CallSkip, kahn.Aborted: machine.CallAbort, kahn.Cancelled: machine.CallAbort,
	}
	for s := kahn.Idle; s <= kahn.Skipped; s++ {
		require.Equal(t, actions[s], s.CallAction(), "%v", s)
	}
	for _, c := range []struct {
		call  machine.CallStatus
		retry bool
		stop  kahn.CauseKind
		want  kahn.Status
		cause kahn.CauseKind
	}{
		{machine.CallRunning, false, kahn.CauseNone, kahn.Running, kahn.CauseNone},
		{machine.CallCompleted, true, kahn.CauseNone, kahn.Completed, kahn.CauseNone},
		{machine.CallFailed, true, kahn.CauseNone, kahn.Retrying, kahn.CauseNone},
		{machine.CallFailed, false, kahn.CauseNone, kahn.Failed, kahn.CauseStepError},
		{machine.CallAborted, false, kahn.CauseFailFast, kahn.Aborted, kahn.CauseFailFast},
		{machine.CallAborted, false, kahn.CauseCancelRun, kahn.Cancelled, kahn.CauseCancelRun},
		{machine.CallAborted, true, kahn.CauseNone, kahn.Cancelled, kahn.CauseExternal},
	} {
		status, cause := c.call.NodeStatus(c.retry, c.stop)
		require.Equal(t, c.want, status, "%+v", c)
		require.Equal(t, c.cause, cause, "%+v", c)
	}
}

// enum has the methods of every enum of the package.
type enum[E any] interface {
	*E
	encoding.TextUnmarshaler
}

// roundTrip checks that each value has its own name, that the name decodes to the value, and that no other name decodes.
func roundTrip[E fmt.Stringer, P enum[E]](t *testing.T, values ...E) {
	t.Helper()
	seen := map[string]bool{}
	for _, v := range values {
		text, err := any(v).(encoding.TextMarshaler).MarshalText()
		require.NoError(t, err)
		require.Equal(t, v.String(), string(text))
		require.False(t, seen[string(text)], "%T %s twice", v, text)
		seen[string(text)] = true
		var back E
		require.NoError(t, P(&back).UnmarshalText(text))
		require.Equal(t, any(v), any(back))
	}
	var bad E
	require.ErrorIs(t, P(&bad).UnmarshalText([]byte("no such name")), kahn.ErrBadValue)
}

// hasNames checks that every value of an enum up to the last has a name. The next value must be rendered as its type and number.
func hasNames[E interface {
	~uint8
	fmt.Stringer
	encoding.TextMarshaler
}, P enum[E]](t *testing.T, last E) {
	t.Helper()
	var values []E
	for v := range last + 1 {
		values = append(values, v)
	}
	roundTrip[E, P](t, values...)
	_, err := (last + 1).MarshalText()
	require.ErrorIs(t, err, kahn.ErrBadValue, "%T", last)
	require.Equal(t, fmt.Sprintf("%s(%d)", reflect.TypeOf(last).Name(), uint8(last)+1), (last + 1).String())
}

func TestEnumsRoundTrip(t *testing.T) {
	hasNames(t, kahn.Skipped)
	hasNames(t, kahn.RunCancelled)
	hasNames(t, kahn.CauseBudget)
	hasNames(t, kahn.SkipSuperseded)
	hasNames(t, kahn.OnAlways)
	hasNames(t, kahn.GuardFail)
	hasNames(t, kahn.SkipStrict)
	hasNames(t, kahn.UpstreamSubstitute)
	hasNames(t, kahn.Observes)
	hasNames(t, kahn.JitterFull)
	hasNames(t, kahn.NoMatchFail)
	hasNames(t, kahn.LoopStop)
	hasNames(t, kahn.PruneClosure)
	hasNames(t, kahn.GateLabel)
	hasNames(t, kahn.SuspendStop)
	hasNames(t, kahn.MissingFail)
	hasNames(t, kahn.WhySignal)
	hasNames(t, kahn.Waves)
	hasNames(t, kahn.StatusStrict)
	hasNames(t, kahn.AbortRunning)
	hasNames(t, kahn.Drain)
	hasNames(t, kahn.ModerateBoth)
	hasNames(t, event.NoRetryDeadline)
	hasNames(t, event.PhaseOutput)
	hasNames(t, store.Conflict)
	hasNames(t, store.KindEnded)
	hasNames(t, store.RequestRefused)
	roundTrip(t, kahn.AllSucceeded, kahn.AnySucceeded, kahn.AtLeast(1), kahn.AtLeast(70_000), kahn.AllDone, kahn.Boundary)
	for _, outside := range []kahn.Join{99, kahn.AllDone | 1<<8} {
		_, err := outside.MarshalText()
		require.ErrorIs(t, err, kahn.ErrBadValue)
		require.NotEmpty(t, outside.String())
	}
	for _, text := range []string{"at_least", "at_least(", "at_least(x)", "at_least(-1)", "at_least(99999999999)"} {
		var j kahn.Join
		require.ErrorIs(t, j.UnmarshalText([]byte(text)), kahn.ErrBadValue, text)
	}
}

func TestAliasesOfOtherEngines(t *testing.T) {
	for text, want := range map[string]kahn.Status{
		"succeeded": kahn.Completed, "error": kahn.Failed, "upstream_failed": kahn.Aborted, "blocked": kahn.Aborted,
		"canceled": kahn.Cancelled, "omitted": kahn.Skipped,
	} {
		var s kahn.Status
		require.NoError(t, s.UnmarshalText([]byte(text)))
		require.Equal(t, want, s)
	}
	var r kahn.RunStatus
	require.NoError(t, r.UnmarshalText([]byte("canceled")))
	require.Equal(t, kahn.RunCancelled, r)
}
