package temporal

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/store"
)

// BlobPrune says which blobs [PruneBlobs] removes.
type BlobPrune struct {
	// Blobs is the store of the workers, see Options.Blobs.
	Blobs store.BlobLister
	// Clients has a client for each namespace whose runs use Blobs.
	Clients []client.Client
	// DataConverter is the clients' data converter. Nil means the SDK's default.
	DataConverter converter.DataConverter
	// Query selects the workflows whose histories may refer to blobs, in Temporal's query language. It must select all runs, their child workflows,
	// and the workflows that start runs. "" means all workflows of the namespaces.
	Query string
	// Grace is how long a blob stays after it was last put. It must be longer than the longest attempt and the longest workflow task, because
	// no history refers to the blobs of an attempt before the attempt ends. Zero means 24 h. If Grace is below an hour, PruneBlobs returns an error.
	Grace time.Duration
}

const (
	defaultGrace = 24 * time.Hour
	leastGrace   = time.Hour // more than putAgain
)

// PruneBlobs removes each blob to which no workflow history refers, directly or through another blob, if the last put of the blob was more than Grace
// ago. Runs may be in progress during the call. Temporal keeps the history of an ended workflow for the retention period of the namespace, and
// PruneBlobs keeps the blobs to which this history refers. PruneBlobs reads all histories and all blobs to which they refer. It returns the number of
// removed blobs. If PruneBlobs cannot read a history or a blob that still exists, it returns an error and removes nothing.
func PruneBlobs(ctx context.Context, q BlobPrune) (removed int, err error) {
	grace := cmp.Or(q.Grace, defaultGrace)
	if q.Blobs == nil || len(q.Clients) == 0 || grace < leastGrace {
		return 0, fmt.Errorf("kahn/temporal: %w: PruneBlobs needs Blobs, Clients, and a Grace of at least %v", kahn.ErrBadOption, leastGrace)
	}
	return q.removeBefore(ctx, time.Now().Add(-grace))
}

// removeBefore removes the unused blobs whose last put was before the given time.
func (q BlobPrune) removeBefore(ctx context.Context, before time.Time) (removed int, err error) {
	m := &marker{of: CodedBlobs(q.Blobs, q.DataConverter), dc: Options{DataConverter: q.DataConverter}.converter(), used: map[string]bool{}}
	for _, c := range q.Clients {
		if err := m.namespace(ctx, c, q.Query); err != nil {
			return 0, fmt.Errorf("kahn/temporal: nothing was removed: %w", err)
		}
	}
	for key, err := range q.Blobs.Keys(ctx) {
		if err != nil {
			return removed, fmt.Errorf("kahn/temporal: the list of the blobs: %w", err)
		}
		if m.used[key] {
			continue
		}
		gone, err := q.Blobs.Sweep(ctx, key, before)
		if err != nil {
			return removed, fmt.Errorf("kahn/temporal: blob %s: %w", key, err)
		}
		if gone {
			removed++
		}
	}
	return removed, nil
}

// marker finds the blobs to which histories refer.
type marker struct {
	of   store.BlobStore
	dc   converter.DataConverter
	used map[string]bool
}

// The method namespace marks the blobs to which the workflows of a namespace refer.
func (m *marker) namespace(ctx context.Context, c client.Client, query string) error {
	for token := []byte(nil); ; {
		page, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query, NextPageToken: token})
		if err != nil {
			return err
		}
		for _, w := range page.GetExecutions() {
			id, run := w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId()
			var none *serviceerror.NotFound
			if err := m.history(ctx, c, id, run); err != nil && !errors.As(err, &none) { // Temporal may remove a history after it was listed
				return fmt.Errorf("workflow %q: %w", id, err)
			}
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return nil
		}
	}
}

// The method history marks the blobs to which a workflow refers.
func (m *marker) history(ctx context.Context, c client.Client, id, run string) error {
	visit := proxy.VisitPayloadsOptions{SkipSearchAttributes: true, Visitor: func(_ *proxy.VisitPayloadsContext, list []*commonpb.Payload) ([]*commonpb.Payload, error) {
		for _, p := range list {
			var v converter.RawValue
			if err := m.dc.FromPayload(p, &v); err != nil {
				return nil, err
			}
			if err := m.mark(ctx, v.Payload().GetData()); err != nil {
				return nil, err
			}
		}
		return list, nil
	}}
	for events := c.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		e, err := events.Next()
		if err == nil {
			err = proxy.VisitPayloads(ctx, e, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The method mark marks the blobs to which a text refers, and the blobs to which those blobs refer.
func (m *marker) mark(ctx context.Context, text []byte) error {
	for todo := [][]byte{text}; len(todo) > 0; {
		text := todo[len(todo)-1]
		todo = append(todo[:len(todo)-1], unpacked(text)...)
		for _, key := range store.BlobKeys(text) {
			if m.used[key] {
				continue
			}
			m.used[key] = true
			data, err := m.of.Get(ctx, key)
			switch {
			case err == nil:
				todo = append(todo, data)
			case !errors.Is(err, store.ErrNoBlob):
				return fmt.Errorf("blob %s: %w", key, err)
			}
		}
	}
	return nil
}

// unpacked returns the content of each compressed snapshot in a text, see the type packed.
func unpacked(text []byte) (list [][]byte) {
	if !bytes.Contains(text, []byte(`"gzip":"`)) {
		return nil
	}
	var value any
	if json.Unmarshal(text, &value) != nil {
		return nil
	}
	for todo := []any{value}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch at := at.(type) {
		case map[string]any:
			if data, ok := at["gzip"].(string); ok {
				list = append(list, unzip(data)...)
			}
			for _, member := range at {
				todo = append(todo, member)
			}
		case []any:
			todo = append(todo, at...)
		}
	}
	return list
}

// unzip returns the content of a compressed snapshot. It returns nil if the text is not a compressed snapshot, since the value of
// a step may also have a member "gzip".
func unzip(text string) [][]byte {
	var packed []byte
	if json.Unmarshal([]byte(`"`+text+`"`), &packed) != nil {
		return nil
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r, openBytes))
	if err != nil {
		return nil
	}
	return [][]byte{data}
}
