package sse

import (
	"fmt"

	"github.com/seed-c794f7ef/kahn/machine"
)

// bound is a numeric field of a Handler or a Client, with its name.
type bound struct {
	field string
	value int64
}

// The function `check` returns an error if a number is negative. The error matches [machine.ErrBadValue] and names the field.
func check(bounds ...bound) error {
	for _, b := range bounds {
		if b.value < 0 {
			return fmt.Errorf("sse: %w: %s is negative; zero means the default", machine.ErrBadValue, b.field)
		}
	}
	return nil
}

func (h *Handler) check() error {
	return check(bound{"Handler.Heartbeat", int64(h.Heartbeat)}, bound{"Handler.WriteTimeout", int64(h.WriteTimeout)}, bound{"Handler.Retry", int64(h.Retry)},
		bound{"Handler.MaxStreams", int64(h.MaxStreams)}, bound{"Handler.MaxStreamsPerKey", int64(h.MaxStreamsPerKey)})
}

func (c *Client) check() error {
	return check(bound{"Client.Wait", int64(c.Wait)}, bound{"Client.Attempts", int64(c.Attempts)}, bound{"Client.MaxBytes", int64(c.MaxBytes)})
}
