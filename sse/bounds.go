package sse

import (
	"fmt"
	"time"

	"github.com/seed-c794f7ef/kahn/machine"
)

// bound is a numeric field of a Handler or a Client, with its name.
type bound struct {
	field string
	value int64
}

// span is a field with a time.
type span struct {
	field string
	value time.Duration
}

// The function `check` returns an error if a number is negative, or if a time is so short that the author probably forgot the unit, as in 30 for
// 30*time.Second. The error matches [machine.ErrBadValue] and names the field.
func check(times []span, bounds ...bound) error {
	for _, t := range times {
		if 0 < t.value && t.value < time.Millisecond {
			return fmt.Errorf("sse: %w: %s %v: is its unit missing?", machine.ErrBadValue, t.field, t.value)
		}
		bounds = append(bounds, bound{t.field, int64(t.value)})
	}
	for _, b := range bounds {
		if b.value < 0 {
			return fmt.Errorf("sse: %w: %s is negative; zero means the default", machine.ErrBadValue, b.field)
		}
	}
	return nil
}

func (h *Handler) check() error {
	return check([]span{{"Handler.Heartbeat", h.Heartbeat}, {"Handler.WriteTimeout", h.WriteTimeout}, {"Handler.Retry", h.Retry}},
		bound{"Handler.MaxStreams", int64(h.MaxStreams)}, bound{"Handler.MaxStreamsPerKey", int64(h.MaxStreamsPerKey)})
}

func (c *Client) check() error {
	return check([]span{{"Client.Wait", c.Wait}}, bound{"Client.Attempts", int64(c.Attempts)}, bound{"Client.MaxBytes", int64(c.MaxBytes)})
}
