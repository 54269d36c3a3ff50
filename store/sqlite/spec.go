package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/store"
)

// specSum returns the checksum of a Spec, or 0 if the Spec is blank. The checksum does not cover the key and the priority: earlier versions of this
// package, which do not know these two columns, must compute the same checksum.
func specSum(s *summer, spec *store.Spec) uint32 {
	if spec.Workflow == "" && spec.Plan == "" && len(spec.Inputs) == 0 && len(spec.Labels) == 0 && spec.Parent == "" {
		return 0
	}
	s.text(spec.Workflow)
	s.text(spec.Plan)
	s.text(spec.Parent)
	s.part(spec.Inputs)
	s.part(labelsText(spec.Labels))
	return max(1, s.sum())
}

// labelsText returns the JSON of labels, nil if there are none.
func labelsText(labels map[string]string) []byte {
	if len(labels) == 0 {
		return nil
	}
	text, _ := json.Marshal(labels) // Marshal returns no error for texts
	return text
}

// specColumns returns the values of the columns from "workflow" to "priority".
func specColumns(s *store.Spec) []driver.Value {
	values := []driver.Value{s.Workflow, s.Plan, bytesOrNull(s.Inputs), nil, nil, s.Key, int64(s.Priority)}
	if labels := labelsText(s.Labels); labels != nil {
		values[3] = string(labels)
	}
	if s.Parent != "" {
		values[4] = s.Parent
	}
	return values
}

// readSpec is the reverse of specColumns.
func readSpec(row []driver.Value) (s store.Spec, err error) {
	s.Workflow, _ = row[0].(string)
	s.Plan, _ = row[1].(string)
	if inputs, ok := row[2].([]byte); ok {
		s.Inputs = inputs
	}
	if labels, ok := row[3].(string); ok {
		if err := json.Unmarshal([]byte(labels), &s.Labels); err != nil {
			return s, fmt.Errorf("%w: labels: %w", ErrDamaged, err)
		}
	}
	s.Parent, _ = row[4].(string)
	s.Key, _ = row[5].(string)
	priority, _ := row[6].(int64)
	s.Priority = int(priority)
	return s, nil
}

// timeOf converts a column of kahn_runs to a time; NULL is the zero time.
func timeOf(v driver.Value) time.Time {
	ms, ok := v.(int64)
	if !ok {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// execution executes a statement in a transaction. If f is not nil, execution calls f for each row.
type execution func(text string, f func(row []driver.Value) error, values ...driver.Value) error

// The method `in` executes a statement in the writer's transaction.
func (w *writer) in(text string, f func(row []driver.Value) error, values ...driver.Value) error {
	if f == nil {
		f = func([]driver.Value) error { return nil }
	}
	return query(w.conn, text, f, values...)
}

// writeAside writes a commit's new Spec with its labels, and records the blobs to which the commit refers.
func (w *writer) writeAside(number int64, c *store.Commit) error {
	if c.Spec != nil {
		if _, err := w.rows.spec.exec(append(specColumns(c.Spec), number)...); err != nil {
			return err
		}
		if err := writeLabels(w.in, number, c.Spec.Labels, true); err != nil {
			return err
		}
	}
	keys := c.BlobKeys()
	if len(keys) == 0 {
		return nil
	}
	return writeBlobs(w.in, number, keys)
}

// writeLabels writes the labels of a run. If the parameter "replaced" is set, it first removes the former labels of the run.
func writeLabels(do execution, number int64, labels map[string]string, replaced bool) error {
	if replaced {
		if err := do("DELETE FROM kahn_labels WHERE run = ?", nil, number); err != nil {
			return err
		}
	}
	for name, value := range labels {
		if err := do("INSERT INTO kahn_labels (run, name, value) VALUES (?, ?, ?)", nil, number, name, value); err != nil {
			return err
		}
	}
	return nil
}

// writeBlobs records the blobs to which a run refers.
func writeBlobs(do execution, number int64, keys []string) error {
	for _, key := range keys {
		if err := do("INSERT OR IGNORE INTO kahn_blobs (key, run) VALUES (?, ?)", nil, key, number); err != nil {
			return err
		}
	}
	return nil
}
