package temporal

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// Settings are the options of a run, as data. A field without a comment is the option of package kahn that has the same name; zero means the
// default of that option. Settings are a part of the workflow's input, so all workers that perform a run use the same Settings. All names in the
// JSON form are in snake case; times are nanoseconds.
type Settings struct {
	Mode           kahn.Mode        `json:"mode,omitempty"`
	StatusRule     kahn.StatusRule  `json:"status_rule,omitempty"`
	OnFailure      kahn.FailureMode `json:"on_failure,omitempty"`
	StopMode       kahn.StopMode    `json:"stop_mode,omitempty"`
	OnSuspend      kahn.SuspendMode `json:"on_suspend,omitempty"`
	Limit          int              `json:"limit,omitempty"` // the default and the maximum are 1,000, since Temporal bounds the activities of a workflow
	KeyLimit       int              `json:"key_limit,omitempty"`
	StartRate      kahn.Rate        `json:"start_rate,omitzero"`
	KeyRate        kahn.Rate        `json:"key_rate,omitzero"`
	DefaultRetry   *kahn.Retry      `json:"default_retry,omitempty"`
	Timeout        time.Duration    `json:"timeout,omitempty"`
	CancelGrace    time.Duration    `json:"cancel_grace,omitempty"`
	CleanupTimeout time.Duration    `json:"cleanup_timeout,omitempty"`
	// MaxCrashes is how many consecutive attempts of one node may lose their worker. Node.MaxCrashes overrides this number for its node. Zero means
	// 3, and a negative number means no bound.
	MaxCrashes int `json:"max_crashes,omitempty"`
	// MapChildren is the number of items above which a map is large. If several attempts of a large map's items begin together, child
	// workflows perform these attempts. Each child performs 4 to 100 attempts, but at most MapChildren. Zero means 200. If MapChildren is negative,
	// 1, 2 or 3, the workflow of the run performs all attempts.
	MapChildren int `json:"map_children,omitempty"`

	// former says that the JSON form has the names of Go's fields in default_retry and in the rates. Former versions wrote this form. A run that a
	// former version has started keeps the form, since a worker of a former version may perform the next execution of the run.
	former bool
}

// plainSettings are Settings without their methods. Their JSON is the former form.
type plainSettings Settings

// settingsForm is the JSON form of Settings.
type settingsForm struct {
	plainSettings
	StartRate    rateForm   `json:"start_rate,omitzero"`
	KeyRate      rateForm   `json:"key_rate,omitzero"`
	DefaultRetry *retryForm `json:"default_retry,omitempty"`
}

// rateForm is the JSON form of a kahn.Rate. Package json ignores the case of letters, so it also reads the former names.
type rateForm struct {
	Starts int           `json:"starts"`
	Per    time.Duration `json:"per"`
	Burst  int           `json:"burst,omitempty"`
}

// retryForm is the JSON form of a kahn.Retry.
type retryForm struct {
	MaxAttempts   int              `json:"max_attempts,omitempty"`
	InitialDelay  time.Duration    `json:"initial_delay,omitempty"`
	Multiplier    float64          `json:"multiplier,omitempty"`
	MaxDelay      time.Duration    `json:"max_delay,omitempty"`
	Jitter        kahn.Jitter      `json:"jitter,omitempty"`
	RetryOn       []kahn.CauseKind `json:"retry_on,omitzero"` // an empty list differs from nil
	MaxRetryAfter time.Duration    `json:"max_retry_after,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (s Settings) MarshalJSON() ([]byte, error) {
	if s.former {
		return json.Marshal(plainSettings(s))
	}
	return json.Marshal(settingsForm{plainSettings(s), rateForm(s.StartRate), rateForm(s.KeyRate), (*retryForm)(s.DefaultRetry)})
}

// UnmarshalJSON implements [json.Unmarshaler]. It also reads the names that former versions wrote in default_retry.
func (s *Settings) UnmarshalJSON(data []byte) error {
	form := settingsForm{plainSettings: plainSettings(*s)}
	var retry struct {
		Members map[string]json.RawMessage `json:"default_retry"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return err
	}
	if form.DefaultRetry != nil {
		if err := json.Unmarshal(data, &retry); err != nil {
			return err
		}
	}
	*s = Settings(form.plainSettings)
	s.StartRate, s.KeyRate, s.DefaultRetry = kahn.Rate(form.StartRate), kahn.Rate(form.KeyRate), (*kahn.Retry)(form.DefaultRetry)
	return s.readFormer(retry.Members)
}

// readFormer reads those members of default_retry that have other names in the former form.
func (s *Settings) readFormer(members map[string]json.RawMessage) error {
	r := s.DefaultRetry
	for _, m := range []struct {
		name string
		into func() any
	}{
		{"MaxAttempts", func() any { return &r.MaxAttempts }}, {"InitialDelay", func() any { return &r.InitialDelay }}, {"MaxDelay", func() any { return &r.MaxDelay }},
		{"RetryOn", func() any { return &r.RetryOn }}, {"MaxRetryAfter", func() any { return &r.MaxRetryAfter }},
	} {
		if data, has := members[m.name]; has {
			s.former = true
			if err := json.Unmarshal(data, m.into()); err != nil {
				return fmt.Errorf("default_retry: %s: %w", m.name, err)
			}
		}
	}
	return nil
}

// maxActivities bounds the running attempts of one run. Temporal refuses more than 2,000 activities of one workflow.
const maxActivities = 1000

const (
	defaultMaxCrashes  = 3
	defaultMapChildren = 200 // a change of this default needs a new version of batchesVersion
)

// The method options returns the settings as options of a run.
func (s Settings) options() []kahn.Option {
	limit := s.Limit
	if limit == 0 || limit > maxActivities {
		limit = maxActivities
	}
	opts := []kahn.Option{s.Mode, s.StatusRule, s.OnFailure, s.StopMode, kahn.Limit(limit), kahn.KeyLimit(s.KeyLimit), kahn.Timeout(s.Timeout)}
	if s.OnSuspend.String() != "" {
		opts = append(opts, s.OnSuspend)
	}
	if s.StartRate != (kahn.Rate{}) {
		opts = append(opts, s.StartRate)
	}
	if s.KeyRate != (kahn.Rate{}) {
		opts = append(opts, kahn.KeyRate(s.KeyRate))
	}
	if s.DefaultRetry != nil {
		opts = append(opts, *s.DefaultRetry)
	}
	if s.CancelGrace != 0 {
		opts = append(opts, kahn.CancelGrace(s.CancelGrace))
	}
	if s.CleanupTimeout != 0 {
		opts = append(opts, kahn.CleanupTimeout(s.CleanupTimeout))
	}
	return opts
}

// maxCrashes returns how many consecutive attempts of a node may lose their worker.
func (s Settings) maxCrashes(n kahn.Node) int {
	switch {
	case n.MaxCrashes != 0:
		return n.MaxCrashes
	case s.MaxCrashes != 0:
		return s.MaxCrashes
	}
	return defaultMaxCrashes
}
