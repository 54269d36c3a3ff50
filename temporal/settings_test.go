package temporal

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
)

// The JSON of Settings has snake-case names in all its parts. The names that former versions have written are read, too, and Settings that were read
// from them are written with them, so that workers of former versions can read the input of the run's next execution.
func TestSettingsForms(t *testing.T) {
	t.Parallel()
	want := Settings{
		Limit: 5, StartRate: kahn.Rate{Starts: 1, Per: time.Second}, KeyRate: kahn.Rate{Starts: 2, Per: time.Minute, Burst: 3},
		DefaultRetry: &kahn.Retry{MaxAttempts: 3, InitialDelay: time.Second, Multiplier: 1.5, MaxDelay: time.Minute, Jitter: kahn.JitterFull,
			RetryOn: []kahn.CauseKind{kahn.CauseTimeout}, MaxRetryAfter: time.Hour},
	}
	former := `{"limit": 5, "start_rate": {"Starts": 1, "Per": 1000000000, "Burst": 0}, "key_rate": {"Starts": 2, "Per": 60000000000, "Burst": 3},
		"default_retry": {"MaxAttempts": 3, "InitialDelay": 1000000000, "Multiplier": 1.5, "MaxDelay": 60000000000, "Jitter": "full", "RetryOn": ["timeout"], "MaxRetryAfter": 3600000000000}}`
	snake := `{"limit": 5, "start_rate": {"starts": 1, "per": 1000000000}, "key_rate": {"starts": 2, "per": 60000000000, "burst": 3},
		"default_retry": {"max_attempts": 3, "initial_delay": 1000000000, "multiplier": 1.5, "max_delay": 60000000000, "jitter": "full", "retry_on": ["timeout"], "max_retry_after": 3600000000000}}`
	data, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, snake, string(data))
	for _, text := range []string{former, snake} {
		var got Settings
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		again, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, text, string(again))
		got.former = false
		require.Equal(t, want, got)
	}

	// Zero fields, and the difference between no list and an empty list.
	for text, want := range map[string]*kahn.Retry{
		`{}`: nil, `{"default_retry": null}`: nil, `{"default_retry": {}}`: {}, `{"default_retry": {"retry_on": []}}`: {RetryOn: []kahn.CauseKind{}},
		`{"default_retry": {"MaxAttempts": 2, "RetryOn": null, "Jitter": ""}}`: {MaxAttempts: 2}, `{"default_retry": {"MaxAttempts": 2, "max_delay": -1}}`: {MaxAttempts: 2, MaxDelay: -1},
	} {
		var got Settings
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		require.Equal(t, want, got.DefaultRetry, text)
	}
	data, err = json.Marshal(Settings{DefaultRetry: &kahn.Retry{RetryOn: []kahn.CauseKind{}}})
	require.NoError(t, err)
	require.Equal(t, `{"default_retry":{"retry_on":[]}}`, string(data))
	for _, text := range []string{`{"default_retry": {"max_attempts": "many"}}`, `{"default_retry": {"MaxAttempts": "many"}}`, `{"default_retry": 7}`, `{"limit": "x"}`, `7`} {
		require.Error(t, json.Unmarshal([]byte(text), new(Settings)), text)
	}
}

// The key of a run is the hash that former versions compute, so a program finds a run that a former version has started.
func TestKeyOfFormerSettings(t *testing.T) {
	t.Parallel()
	in := input{Plan: planID{"orders", "abc"}, Settings: Settings{
		StartRate: kahn.Rate{Starts: 1, Per: time.Second}, DefaultRetry: &kahn.Retry{MaxAttempts: 3, InitialDelay: 20 * time.Millisecond},
	}}
	hash := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	want := hash(`{"plan":{"name":"orders","fingerprint":"abc"},"state_version":0,"settings":{"start_rate":{"Starts":1,"Per":1000000000,"Burst":0},"default_retry":{"MaxAttempts":3,"InitialDelay":20000000,"Multiplier":0,"MaxDelay":0,"Jitter":"","RetryOn":null,"MaxRetryAfter":0}}}`)
	require.Equal(t, want, in.key())
	in.Settings.former = true
	require.Equal(t, want, in.key())
	in.Settings = Settings{}
	require.Equal(t, hash(`{"plan":{"name":"orders","fingerprint":"abc"},"state_version":0}`), in.key())
}

// A run that a former version has started keeps the former names in the inputs of all its executions; a run of this version never has them.
func TestSettingsContinue(t *testing.T) {
	t.Parallel()
	for name, former := range map[string]bool{"MaxAttempts": true, "max_attempts": false} {
		in := input{Settings: Settings{Limit: 1, DefaultRetry: &kahn.Retry{MaxAttempts: 3}}}
		in.Settings.former = former
		for range 3 {
			text := in.text()
			require.Contains(t, string(text), `"`+name+`":3`)
			in = input{}
			require.NoError(t, json.Unmarshal(text, &in))
			require.Equal(t, 3, in.Settings.DefaultRetry.MaxAttempts)
		}
	}
}
