package sse_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
	"github.com/seed-c794f7ef/kahn/sse"
)

// closings returns a server, and a channel that receives the time of each connection that the server closes.
func closings(h http.Handler) (*http.Server, <-chan time.Time) {
	closed := make(chan time.Time, 100)
	return &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			closed <- time.Now()
		}
	}}, closed
}

// connect sends a request on a raw connection.
func connect(t *testing.T, n *network, after uint64) net.Conn {
	t.Helper()
	conn, err := n.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: memory\r\nLast-Event-ID: %d\r\n\r\n", after); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestStalledClient(t *testing.T) {
	const seconds = 60

	inBubble(t, "does not delay the run, is cut, and misses nothing", func(t *testing.T) {
		began := time.Now()
		run := start(t, chain(seconds), takes(time.Second))
		server, closed := closings(&sse.Handler{Find: sse.Fixed(run)})
		n, client := serve(t, server)

		// One client never reads a byte. The other client stops in the middle of an event.
		for range 2 {
			defer connect(t, n, 0).Close()
		}
		stuck := connect(t, n, 0)
		defer stuck.Close()
		if _, err := io.ReadFull(bufio.NewReaderSize(stuck, 16), make([]byte, 400)); err != nil {
			t.Fatal(err)
		}
		_, err := run.Wait()
		if d := time.Since(began); err != nil || d != seconds*time.Second {
			t.Errorf("the run took %v, %v", d, err)
		}
		for range 3 {
			select {
			case at := <-closed:
				if d := at.Sub(began); d > 15*time.Second {
					t.Errorf("a client that does not read was left alone for %v", d)
				}
			default:
				t.Fatal("a client that does not read is still connected")
			}
		}
		resp, err := client.Get("http://memory/?afterEventId=2")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := len(strings.Fields(ids(t, resp.Body))); got != 3*seconds {
			t.Errorf("%d events after the second", got)
		}
	})

	inBubble(t, "sse.Client: a consumer that is busy for long gets everything, once and in order", func(t *testing.T) {
		began := time.Now()
		run := start(t, chain(seconds), takes(time.Second))
		server, closed := closings(&sse.Handler{Find: sse.Fixed(run), Heartbeat: time.Second})
		_, client := serve(t, server)
		took := make(chan time.Duration, 1)
		go func() {
			_, _ = run.Wait()
			took <- time.Since(began)
		}()
		next := uint64(1)
		for e, err := range (&sse.Client{URL: "http://memory/", HTTP: client}).Events(t.Context(), 0) {
			if err != nil || e.ID != next {
				t.Fatalf("event %d: %d, %v", next, e.ID, err)
			}
			if next++; e.ID == 10 || e.ID == 70 {
				time.Sleep(time.Minute)
			}
		}
		if next != 3*seconds+3 || len(closed) < 2 {
			t.Errorf("the last event is %d; %d connections were cut", next-1, len(closed))
		}
		if d := <-took; d != seconds*time.Second {
			t.Errorf("the run took %v", d)
		}
	})

	inBubble(t, "sse.Client: a consumer that is too late is told", func(t *testing.T) {
		run := start(t, chain(seconds), takes(time.Second), kahn.Retain(30))
		_, client := serve(t, &http.Server{Handler: &sse.Handler{Find: sse.Fixed(run)}})
		c := &sse.Client{URL: "http://memory/", HTTP: client}
		var last, lost uint64
		for after := uint64(0); last < 3*seconds+2; {
			for e, err := range c.Events(t.Context(), after) {
				if gap, ok := err.(*event.GapError); ok {
					if gap.After != last || gap.First <= last+1 {
						t.Fatalf("after %d: %v", last, gap)
					}
					lost += gap.First - 1 - last
					last, after = gap.First-1, gap.First-1
					break
				}
				if err != nil || e.ID != last+1 {
					t.Fatalf("after %d: %d, %v", last, e.ID, err)
				}
				if last = e.ID; last == 10 {
					time.Sleep(seconds * time.Second)
				}
			}
		}
		// In the meantime the run has ended. The client can still read the events in the pipe, and the last 30 events.
		if lost == 0 {
			t.Error("nothing was lost, or nothing was said")
		}
	})

	// All events are written at once. The client reads up to the given text and then stops. After the last event the server only has to end the
	// response.
	for _, upto := range []string{"", "H", "\r\n\r\n", "id: 3", "run.completed", "}}\n\n", "}}\n\n\r\n", "\r\n0\r\n\r"} {
		inBubble(t, fmt.Sprintf("stops after %q of a finished run", upto), func(t *testing.T) {
			run := finished(t, chain(4), nothing)
			server, closed := closings(&sse.Handler{Find: sse.Fixed(run)})
			n, _ := serve(t, server)
			conn := connect(t, n, 0)
			defer conn.Close()
			var text string
			atEnd := strings.HasPrefix(upto, "}}") || strings.HasPrefix(upto, "\r\n0")
			for one := make([]byte, 1); !strings.HasSuffix(text, upto) || atEnd && !strings.Contains(text, "run.completed"); text += string(one) {
				if _, err := conn.Read(one); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			time.Sleep(time.Minute)
			select {
			case at := <-closed:
				if d := at.Sub(began); d > 10*time.Second {
					t.Errorf("cut after %v", d)
				}
			default:
				t.Error("still connected")
			}
		})
	}

	inBubble(t, "a client that reads a byte a second is cut", func(t *testing.T) {
		run := finished(t, chain(20), nothing)
		server, closed := closings(&sse.Handler{Find: sse.Fixed(run), WriteTimeout: 5 * time.Second})
		n, _ := serve(t, server)
		conn := connect(t, n, 0)
		defer conn.Close()
		began := time.Now()
		for one := make([]byte, 1); ; time.Sleep(time.Second) {
			if _, err := conn.Read(one); err != nil {
				break
			}
		}
		if d := (<-closed).Sub(began); d > 15*time.Second {
			t.Errorf("cut after %v", d)
		}
	})
}

func TestServerTimeouts(t *testing.T) {
	// All these timeouts are far shorter than the run and the silence of its stream.
	for _, http2 := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("http.Server's do not end a stream, HTTP/2 %v", http2), func(t *testing.T) {
			run := start(t, chain(3), takes(20*time.Second))
			var protocols http.Protocols
			protocols.SetHTTP1(!http2)
			protocols.SetUnencryptedHTTP2(http2)
			server := &http.Server{
				Handler: &sse.Handler{Find: sse.Fixed(run)}, Protocols: &protocols,
				WriteTimeout: time.Second, ReadTimeout: time.Second, ReadHeaderTimeout: time.Second, IdleTimeout: time.Second,
			}
			n, _ := serve(t, server)
			transport := &http.Transport{DialContext: n.dial, Protocols: &protocols}
			defer transport.CloseIdleConnections()
			resp, err := (&http.Client{Transport: transport}).Get("http://memory/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.ProtoMajor == 2 != http2 {
				t.Fatal(resp.Proto)
			}
			if got := ids(t, resp.Body); got != "1 2 3 4 5 6 7 8 9 10 11" {
				t.Errorf("events %s", got)
			}
		})
	}
}

func TestLeavingClient(t *testing.T) {
	inBubble(t, "its stream ends at once, and leaves nothing behind", func(t *testing.T) {
		run := start(t, chain(1), takes(time.Hour))
		h := &sse.Handler{Find: sse.Fixed(run), MaxStreams: 1}
		n, client := serve(t, &http.Server{Handler: h})
		for range 10 {
			conn := connect(t, n, 0)
			if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			synctest.Wait()
		}
		resp, err := client.Get("http://memory/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("the places of clients that have left are still taken: %d", resp.StatusCode)
		}
		run.Cancel()
		_, _ = run.Wait()
	})
}
