package sse_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/sse"
)

// TestNegativeNumbers: a negative number in a Handler or a Client causes an error that names the field, before a run is looked up or a server
// contacted.
func TestNegativeNumbers(t *testing.T) {
	find := func(*http.Request) (sse.Source, error) {
		t.Error("a run is looked for")
		return nil, nil
	}
	for field, h := range map[string]*sse.Handler{
		"Handler.Heartbeat": {Heartbeat: -1}, "Handler.WriteTimeout": {WriteTimeout: -1}, "Handler.Retry": {Retry: -1},
		"Handler.MaxStreams": {MaxStreams: -1}, "Handler.MaxStreamsPerKey": {MaxStreamsPerKey: -1},
	} {
		h.Find = find
		got := ask(t, h, http.MethodGet, "/")
		require.Equal(t, http.StatusInternalServerError, got.code, field)
		require.Contains(t, got.body, field+" is negative")
	}
	for field, h := range map[string]*sse.Handler{"Handler.Heartbeat": {Heartbeat: 5}, "Handler.WriteTimeout": {WriteTimeout: 5}, "Handler.Retry": {Retry: 5}} {
		h.Find = find
		require.Contains(t, ask(t, h, http.MethodGet, "/").body, field+" 5ns: is its unit missing?")
	}
	hasty := sse.Client{URL: "http://memory/", HTTP: &http.Client{Transport: never{t}}, Wait: 5}
	for _, err := range hasty.Events(context.Background(), 0) {
		require.ErrorContains(t, err, "Client.Wait 5ns: is its unit missing?")
	}
	for field, c := range map[string]sse.Client{
		"Client.Wait": {Wait: -1}, "Client.Attempts": {Attempts: -1}, "Client.MaxBytes": {MaxBytes: -1},
	} {
		c.URL = "http://memory/"
		c.HTTP = &http.Client{Transport: never{t}}
		n := 0
		for e, err := range c.Events(context.Background(), 0) {
			n++
			require.Zero(t, e)
			require.ErrorIs(t, err, machine.ErrBadValue)
			require.True(t, strings.Contains(err.Error(), field), err)
		}
		require.Equal(t, 1, n, field)
	}
}

// never is a transport that the test must not use.
type never struct{ t *testing.T }

func (n never) RoundTrip(*http.Request) (*http.Response, error) {
	n.t.Error("a server is asked")
	return nil, http.ErrNotSupported
}
