package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// patience is the time in the Retry-After header of a response with the status 429. One second is the shortest time that the header can express.
const patience = time.Second

// shop is the flaky server. Most endpoints have one fault each, and the shop counts the requests of its client.
type shop struct {
	free chan struct{} // closed to release the requests for /legacy, which hang until then

	mu         sync.Mutex
	requests   map[string]map[string]int // the number of requests, by endpoint and then by idempotency key
	orders     map[string]int            // the order numbers, by idempotency key
	duplicates int                       // how many requests asked for an order under a key that already had an order
	limited    time.Time                 // when the last 429 was sent
	early      int                       // how many requests came earlier than Retry-After allowed
	locked     bool
}

func newShop() *shop {
	return &shop{free: make(chan struct{}), requests: map[string]map[string]int{}, orders: map[string]int{}}
}

// ServeHTTP implements http.Handler.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	endpoint, key := r.Method+" "+r.URL.Path, r.Header.Get("Idempotency-Key")
	n := s.count(endpoint, key)
	switch endpoint {
	case "POST /orders":
		number := s.order(key)
		if n <= 2 {
			// The worst kind of failure: the order is made, but the client gets an error.
			http.Error(w, "the answer got lost", http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, "order %d", number)
	case "GET /stock":
		if n == 1 {
			<-r.Context().Done() // wait until the client gives up
			return
		}
		fmt.Fprint(w, "7 in stock")
	case "GET /prices":
		if !s.admit() {
			w.Header().Set("Retry-After", fmt.Sprint(int(patience.Seconds())))
			http.Error(w, "not now", http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, "9.99")
	case "GET /reviews":
		http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
	case "GET /ratings":
		http.Error(w, "out of order", http.StatusInternalServerError)
	case "GET /legacy":
		<-s.free
		fmt.Fprint(w, "too late")
	case "POST /lock", "DELETE /lock":
		s.lock(r.Method == http.MethodPost)
		fmt.Fprint(w, "ok")
	case "GET /export":
		<-r.Context().Done()
	default: // for example GET /coupon
		http.NotFound(w, r)
	}
}

// The method `count` counts a request and returns how many requests the endpoint has had, under all keys together.
func (s *shop) count(endpoint, key string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests[endpoint] == nil {
		s.requests[endpoint] = map[string]int{}
	}
	s.requests[endpoint][key]++
	for _, m := range s.requests[endpoint] {
		n += m
	}
	return n
}

// The method `order` returns the number of the order under an idempotency key. If the key has no order yet, the method makes one.
func (s *shop) order(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number, ok := s.orders[key]; ok {
		s.duplicates++
		return number
	}
	s.orders[key] = len(s.orders) + 1
	return s.orders[key]
}

// admit reports whether the shop serves a request. It refuses the first request. After that, it refuses each request that comes earlier
// than Retry-After allowed, and counts these requests.
func (s *shop) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.limited.IsZero():
	case time.Since(s.limited) < patience:
		s.early++
	default:
		return true
	}
	s.limited = time.Now()
	return false
}

func (s *shop) lock(locked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked = locked
}

// release makes the server answer the requests for /legacy. Until then, these requests hang.
func (s *shop) release() { close(s.free) }

// The method `account` checks the requests that the server has received. Each endpoint in requests must have been called requests[endpoint] times.
// All requests to an endpoint must have had the same idempotency key, and no request to another endpoint may have had this key.
func (s *shop) account(c *checks, requests map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := map[string]string{}
	for _, endpoint := range slices.Sorted(maps.Keys(requests)) {
		keys := slices.Collect(maps.Keys(s.requests[endpoint]))
		if !c.that(len(keys) == 1 && keys[0] != "", "%s: %d idempotency keys", endpoint, len(keys)) {
			continue
		}
		key := keys[0]
		c.that(owner[key] == "", "%s has the idempotency key of %s", endpoint, owner[key])
		owner[key] = endpoint
		n := s.requests[endpoint][key]
		c.that(n == requests[endpoint], "%s: %d requests instead of %d", endpoint, n, requests[endpoint])
	}
	c.that(len(s.orders) == 1 && s.duplicates == 2, "%d orders and %d duplicates", len(s.orders), s.duplicates)
	c.that(!s.limited.IsZero() && s.early == 0, "%d requests before the time that Retry-After said", s.early)
	c.that(!s.locked, "the lock is still held")
}

// The function `serve` serves h on the loopback interface until stop is called.
func serve(h http.Handler) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // Serve returns an error once the server is shut down
	}()
	return "http://" + listener.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // a handler has not returned in time, so close its connection
		}
		<-served
	}, nil
}

// deadURL returns the URL of a port on which no server listens.
func deadURL() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return "http://" + listener.Addr().String(), listener.Close()
}
