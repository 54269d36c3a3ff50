package sqlite

import (
	"database/sql/driver"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

// noRecord is the checksum of the columns of a node without a record.
var noRecord = checksum(new(summer), new(store.Columns))

// checksum returns the checksum of a node's columns.
func checksum(s *summer, d *store.Columns) uint32 {
	s.ints(int64(d.Status), int64(d.Cause), nanoseconds(d.Start), nanoseconds(d.End), toInt(len(d.Hash) == 0), toInt(len(d.Value) == 0), toInt(len(d.Record) == 0))
	s.part(d.Hash)
	s.part(d.Value)
	s.part(d.Record)
	return s.sum()
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// appendColumns adds the values of the columns from "status" to "record". Zero values are NULL.
func appendColumns(values []driver.Value, d *store.Columns) []driver.Value {
	var status, cause driver.Value
	if d.Status != machine.Idle {
		status = d.Status.String()
	}
	if d.Cause != machine.CauseNone {
		cause = d.Cause.String()
	}
	return append(values, status, cause, orNull(d.Start), orNull(d.End), bytesOrNull(d.Hash), bytesOrNull(d.Value), bytesOrNull(d.Record))
}

func orNull(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func bytesOrNull(data []byte) driver.Value {
	if len(data) == 0 {
		return nil
	}
	return data
}

// readColumns is the reverse of appendColumns.
func readColumns(row []driver.Value) (d store.Columns, err error) {
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
