package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/seed-c794f7ef/kahn"
)

// report is the result of a run. All times are in seconds.
type report struct {
	Status   kahn.RunStatus      `json:"status"`
	Cause    string              `json:"cause,omitempty"` // why the whole run was stopped
	Mode     string              `json:"mode"`
	Limit    int                 `json:"limit"`
	Imports  int                 `json:"imports"` // the number of edges of the graph
	Statuses map[kahn.Status]int `json:"statuses"`
	Cached   int                 `json:"cached,omitempty"` // how many packages have a result from an earlier run

	Wall             float64  `json:"wall"`
	Work             float64  `json:"work"`          // the sum of the times of all packages
	CriticalPath     float64  `json:"critical_path"` // the greatest sum of times along a chain of imports
	CriticalPackages []string `json:"critical_packages"`
	SpeedUp          float64  `json:"speed_up"`
	Bound            float64  `json:"speed_up_bound"` // no order of these checks has a higher speed-up

	Packages []packageReport `json:"packages"` // each package comes after its imports
}

// packageReport is the result of checking one package.
type packageReport struct {
	Path    string      `json:"path"`
	Status  kahn.Status `json:"status"`
	Time    float64     `json:"time"`
	Cached  bool        `json:"cached,omitempty"` // the result comes from an earlier run
	Error   string      `json:"error,omitempty"`
	Origins []string    `json:"origins,omitempty"` // the failed packages on which an aborted package depends
}

func newReport(g *kahn.Graph, result *kahn.Result, mode kahn.Mode, limit int) *report {
	rep := &report{
		Status:   result.Status,
		Mode:     mode.String(),
		Limit:    limit,
		Imports:  len(g.Edges()),
		Statuses: map[kahn.Status]int{},
		Wall:     result.Duration.Seconds(),
	}
	if result.Cause.Err != nil {
		rep.Cause = result.Cause.Err.Error()
	}
	for node := range result.Nodes() {
		pkg := packageReport{Path: node.ID, Status: node.Status, Time: node.Duration.Seconds(), Cached: node.Memoized}
		switch node.Status {
		case kahn.Failed:
			pkg.Error = errors.Unwrap(node.Err).Error() // the step's error, without the text that kahn has added
		case kahn.Aborted:
			pkg.Origins = node.Cause.Origins
		}
		if node.Memoized {
			rep.Cached++
		}
		rep.Statuses[node.Status]++
		rep.Work += pkg.Time
		rep.Packages = append(rep.Packages, pkg)
	}
	for _, node := range criticalPath(g, result) {
		rep.CriticalPackages = append(rep.CriticalPackages, node.ID)
		rep.CriticalPath += node.Duration.Seconds()
	}
	rep.SpeedUp = ratio(rep.Work, rep.Wall)
	rep.Bound = ratio(rep.Work, max(rep.CriticalPath, rep.Work/float64(limit)))
	return rep
}

// criticalPath returns the chain of imports with the greatest sum of times. A Plan computes its critical path from the estimates of its nodes. So
// criticalPath compiles a copy of the graph, with the measured times as estimates.
func criticalPath(g *kahn.Graph, result *kahn.Result) (path []kahn.NodeResult) {
	measured := new(kahn.Graph)
	for _, node := range g.Nodes() {
		r, _ := result.Node(node.ID)
		node.Estimate = r.Duration
		measured.Add(node)
	}
	plan, err := measured.Connect(g.Edges()...).Compile()
	if err != nil {
		return nil // impossible: the same graph has just been run
	}
	for _, id := range plan.CriticalPath() {
		if r, _ := result.Node(id); r.Attempts > 0 {
			path = append(path, r)
		}
	}
	return path
}

// ratio returns a / b, or 0 if b is 0. If a run is stopped before it has checked a package, b may be 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "\t")
	return enc.Encode(r)
}

func (r *report) writeText(w io.Writer) error {
	var b strings.Builder

	victims := map[string]int{}
	for _, pkg := range r.Packages {
		for _, origin := range pkg.Origins {
			victims[origin]++
		}
	}
	for _, pkg := range r.Packages {
		if pkg.Status == kahn.Failed {
			fmt.Fprintf(&b, "%s: failed (dependents aborted: %d)\n", pkg.Path, victims[pkg.Path])
			fmt.Fprintf(&b, "\t%s\n", strings.ReplaceAll(pkg.Error, "\n", "\n\t"))
		}
	}

	var counts []string
	for s := kahn.Completed; s <= kahn.Skipped; s++ {
		if n := r.Statuses[s]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %v", n, s))
		}
	}
	fmt.Fprintf(&b, "%d packages with %d imports: %s\n", len(r.Packages), r.Imports, strings.Join(counts, ", "))
	if r.Cached > 0 {
		fmt.Fprintf(&b, "%d of them as they were\n", r.Cached)
	}
	fmt.Fprintf(&b, "run %v", r.Status)
	if r.Cause != "" {
		fmt.Fprintf(&b, ": %s", r.Cause)
	}
	fmt.Fprintf(&b, "\n\n")

	fmt.Fprintf(&b, "wall time      %6.2f s  %s, limit %d\n", r.Wall, r.Mode, r.Limit)
	fmt.Fprintf(&b, "work           %6.2f s\n", r.Work)
	fmt.Fprintf(&b, "critical path  %6.2f s  %d packages", r.CriticalPath, len(r.CriticalPackages))
	if n := len(r.CriticalPackages); n > 0 {
		fmt.Fprintf(&b, ", %s to %s", r.CriticalPackages[0], r.CriticalPackages[n-1])
	}
	fmt.Fprintf(&b, "\nspeed-up       %6.2f    of at most %.2f\n\n", r.SpeedUp, r.Bound)

	const most = 5
	slowest := slices.SortedStableFunc(slices.Values(r.Packages), func(a, b packageReport) int {
		return cmp.Compare(b.Time, a.Time)
	})
	for i, pkg := range slowest[:min(most, len(slowest))] {
		label := "slowest"
		if i > 0 {
			label = ""
		}
		fmt.Fprintf(&b, "%-14s %6.2f s  %s\n", label, pkg.Time, pkg.Path)
	}

	_, err := io.WriteString(w, b.String())
	return err
}
