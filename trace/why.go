package trace

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn"
)

// explain returns, by Ref, the reasons why nodes did not run. The text is empty for a node that ran or completed.
func explain(res *kahn.Result, p *kahn.Plan, results []kahn.NodeResult) []string {
	whys := make([]string, len(results))
	// A skipped node can cause skips of its successors. Each successor then has the reason of the node at which this chain of skips began.
	// Predecessors have smaller Refs, so the list "roots" already contains their reasons.
	roots := make([]string, len(results))
	for ref := range results {
		r := &results[ref]
		if r.Status == kahn.Skipped {
			roots[ref] = why(res, r.ID)
			if from, ok := p.Ref(r.Skip.Node); ok && r.Skip.Kind == kahn.SkipUpstreamSkipped && int(from) < ref && roots[from] != "" {
				roots[ref] = roots[from]
				if results[from].Skip.Kind != kahn.SkipUpstreamSkipped {
					roots[ref] = fmt.Sprintf("%s was skipped: %s", clean(r.Skip.Node), roots[from])
				}
			}
		}
		if r.Attempts > 0 || r.Status == kahn.Completed {
			continue
		}
		switch r.Status {
		case kahn.Skipped:
			whys[ref] = roots[ref]
		case kahn.Suspended:
			whys[ref] = "it waits for an answer"
		case kahn.Failed, kahn.Aborted, kahn.Cancelled:
			whys[ref] = why(res, r.ID)
		default:
			whys[ref] = "the run is not over: it is " + r.Status.String()
		}
	}
	return whys
}

// The function why describes why a node ended as it did.
func why(res *kahn.Result, id string) string {
	y, err := res.Why(id)
	if err != nil {
		return ""
	}
	return clean(y.String())
}
