// Many pages are fetched at once, but at most two from each site: the key of an item is its site, and KeyLimit bounds each key.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/seed-c794f7ef/kahn"
)

type page struct{ Site, Path string }

func fetch(ctx context.Context, s *kahn.Step) (any, error) {
	p, err := kahn.Param[page](s, "item")
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Site+p.Path, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.Status + ": " + string(text), err
}

func main() {
	var pages []page
	for range 3 { // three sites; while a site serves two requests, it refuses a third
		var busy atomic.Int32
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer busy.Add(-1)
			if busy.Add(1) > 2 {
				w.WriteHeader(http.StatusTooManyRequests)
			}
			time.Sleep(5 * time.Millisecond)
			fmt.Fprint(w, "text of ", r.URL.Path)
		}))
		defer site.Close()
		pages = append(pages, page{site.URL, "/a"}, page{site.URL, "/b"}, page{site.URL, "/c"}, page{site.URL, "/d"})
	}
	sites := &kahn.Map{Over: "pages", Key: func(item any) string { return item.(page).Site }}
	g := new(kahn.Graph).Add(kahn.Node{ID: "fetch", Map: sites, Params: map[string]any{"pages": pages}, Do: fetch})
	res, err := kahn.Execute(context.Background(), g, nil, kahn.KeyLimit(2), kahn.Limit(50))
	if err != nil {
		log.Panic(err) // Panic, not Fatal, so that the deferred calls close the sites
	}
	for _, text := range res.Output().([]any) {
		fmt.Println(text)
	}
}
