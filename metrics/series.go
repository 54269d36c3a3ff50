package metrics

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A family is a metric: all series with the same name.
type family int

const (
	runsActive family = iota
	runDuration
	attemptsActive
	attemptQueue
	attemptDuration
	nodesTotal
	nodeRetries
	compensationDuration
	usageTotal
)

// families describes the metrics. All metrics have the label workflow.
var families = [...]struct {
	name, help, typ string
	kind            bool   // whether the series has the label kind
	last            string // the name of the last label, or ""
}{
	runsActive:      {"kahn_runs_active", "Runs in flight.", "gauge", false, ""},
	runDuration:     {"kahn_run_duration_seconds", "Durations of the lives of runs, in seconds.", "histogram", false, "status"},
	attemptsActive:  {"kahn_attempts_active", "Attempts in flight.", "gauge", true, ""},
	attemptQueue:    {"kahn_attempt_queue_seconds", "Times between readiness and start of attempts, in seconds.", "histogram", true, ""},
	attemptDuration: {"kahn_attempt_duration_seconds", "Durations of attempts, in seconds.", "histogram", true, "outcome"},
	nodesTotal:      {"kahn_nodes_total", "Nodes that have ended.", "counter", true, "status"},
	nodeRetries:     {"kahn_node_retries_total", "Attempts after the first.", "counter", true, ""},

	compensationDuration: {"kahn_compensation_duration_seconds", "Durations of compensations, in seconds.", "histogram", true, "status"},
	usageTotal:           {"kahn_usage_total", "What steps have used, by the names of the host.", "counter", true, "name"},
}

// bounds are the upper bounds of the histograms' buckets, in seconds. They fit steps that take between a millisecond and some hours.
var bounds = [...]float64{0.001, 0.005, 0.025, 0.1, 0.25, 1, 2.5, 10, 30, 60, 300, 1800, 7200}

// key identifies a series.
type key struct {
	family               family
	workflow, kind, last string
}

// A series is a number or a histogram.
type series struct {
	value   int64 // if the series is a number, the number is `value` plus `sum`
	count   uint64
	sum     float64
	buckets [len(bounds)]uint64 // by bound: the number of durations up to this bound and above the previous bound
}

// The method `of` returns the series with the given labels. If there is none, it creates the series. The caller holds m.mu.
func (m *Metrics) of(f family, x *run, kind, last string) *series {
	k := key{f, x.workflow, kind, last}
	s, ok := m.series[k]
	if !ok {
		if m.series == nil {
			m.series = map[key]*series{}
		}
		s = &series{}
		m.series[k] = s
	}
	return s
}

// observe adds a duration to a histogram.
func (s *series) observe(d time.Duration) {
	v := max(d, 0).Seconds()
	s.count++
	s.sum += v
	if i, _ := slices.BinarySearch(bounds[:], v); i < len(bounds) {
		s.buckets[i]++
	}
}

// The type `labelled` is a series with its key.
type labelled struct {
	key
	series
}

// The method `all` returns copies of the series, sorted.
func (m *Metrics) all() []labelled {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]labelled, 0, len(m.series))
	for k, s := range m.series {
		list = append(list, labelled{k, *s})
	}
	slices.SortFunc(list, func(a, b labelled) int {
		return cmp.Or(cmp.Compare(a.family, b.family), strings.Compare(a.workflow, b.workflow), strings.Compare(a.kind, b.kind), strings.Compare(a.last, b.last))
	})
	return list
}

// The method `labels` returns the labels of a series, followed by the labels `more`, in braces.
func (k key) labels(more ...string) string {
	list := []string{label("workflow", k.workflow)}
	if families[k.family].kind {
		list = append(list, label("kind", k.kind))
	}
	if name := families[k.family].last; name != "" {
		list = append(list, label(name, k.last))
	}
	return "{" + strings.Join(append(list, more...), ",") + "}"
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func label(name, value string) string {
	return name + `="` + escape.Replace(strings.ToValidUTF8(value, "\uFFFD")) + `"`
}

// ServeHTTP writes the metrics in the text format of Prometheus, version 0.0.4.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	last := family(-1)
	for _, s := range m.all() {
		f := families[s.family]
		if s.family != last {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.typ)
			last = s.family
		}
		if f.typ != "histogram" {
			fmt.Fprintf(&b, "%s%s %s\n", f.name, s.labels(), number(float64(s.value)+s.sum))
			continue
		}
		sum := uint64(0)
		for i, n := range s.buckets {
			sum += n
			fmt.Fprintf(&b, "%s_bucket%s %d\n", f.name, s.labels(label("le", number(bounds[i]))), sum)
		}
		fmt.Fprintf(&b, "%s_bucket%s %d\n%s_sum%s %s\n%s_count%s %d\n", f.name, s.labels(label("le", "+Inf")), s.count,
			f.name, s.labels(), number(s.sum), f.name, s.labels(), s.count)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // an error means that the client is gone
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// String returns the metrics as a JSON object, for package expvar. For a histogram, the object contains its count and its sum; for any other series
// it contains the number.
func (m *Metrics) String() string {
	object := map[string]any{}
	for _, s := range m.all() {
		f := families[s.family]
		if f.typ == "histogram" {
			object[f.name+s.labels()] = map[string]any{"count": s.count, "sum": finite(s.sum)}
		} else {
			object[f.name+s.labels()] = finite(float64(s.value) + s.sum)
		}
	}
	text, _ := json.Marshal(object) // finite numbers and strings can always be encoded
	return string(text)
}

// finite returns v or, for an infinite v, the nearest finite number, since JSON has no infinity.
func finite(v float64) float64 { return max(-math.MaxFloat64, min(v, math.MaxFloat64)) }
