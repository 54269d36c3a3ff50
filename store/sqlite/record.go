package sqlite

import (
	"database/sql/driver"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

// noRecord is the checksum of the columns of a node without a record.
var noRecord = checksum(new(kahn.NodeColumns))

// checksum is that of what is stored of a node.
func checksum(d *kahn.NodeColumns) uint32 {
	c := sumInts(0, int64(d.Status), int64(d.Cause), nanoseconds(d.Start), nanoseconds(d.End), toInt(d.Hash == nil), toInt(d.Value == nil), toInt(d.Record == nil))
	for _, part := range [][]byte{d.Hash, d.Value, d.Record} {
		c = sum(c, part)
	}
	return c
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// columns are the values of a row from status to record. What is zero is NULL.
func columns(d *kahn.NodeColumns) []driver.Value {
	values := make([]driver.Value, 7)
	if d.Status != kahn.Idle {
		values[0] = d.Status.String()
	}
	if d.Cause != kahn.CauseNone {
		values[1] = d.Cause.String()
	}
	for i, t := range []time.Time{d.Start, d.End} {
		if !t.IsZero() {
			values[2+i] = t.UnixNano()
		}
	}
	for i, part := range [][]byte{d.Hash, d.Value, d.Record} {
		if part != nil {
			values[4+i] = part
		}
	}
	return values
}

// readColumns is the reverse of columns.
func readColumns(row []driver.Value) (d kahn.NodeColumns, err error) {
	if text, ok := row[0].(string); ok {
		err = d.Status.UnmarshalText([]byte(text))
	}
	if text, ok := row[1].(string); ok && err == nil {
		err = d.Cause.UnmarshalText([]byte(text))
	}
	for i, t := range []*time.Time{&d.Start, &d.End} {
		if ns, ok := row[2+i].(int64); ok {
			*t = time.Unix(0, ns).UTC()
		}
	}
	d.Hash, _ = row[4].([]byte)
	if value, ok := row[5].([]byte); ok {
		d.Value = value
	}
	if record, ok := row[6].([]byte); ok {
		d.Record = record
	}
	return d, err
}
