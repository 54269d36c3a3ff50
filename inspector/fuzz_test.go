package inspector

import (
	"encoding/json"
	"net/url"
	"slices"
	"testing"
	"unicode/utf8"
)

// If the decoder accepts a query, each value in it belongs to a parameter and is within the parameter's bounds.
func FuzzQuery(f *testing.F) {
	f.Fuzz(func(t *testing.T, at uint8, raw string) {
		x := &routes[int(at)%len(routes)]
		q, err := parseQuery(x.params, raw)
		if err != nil {
			if faultOf(err).Status != 400 {
				t.Fatalf("%v", err)
			}
			return
		}
		again := url.Values{}
		for _, p := range x.params {
			list := q.texts[p.Name]
			switch {
			case p.Number && (q.numbers[p.Name] < min(p.Least, p.Default) || q.numbers[p.Name] > p.Most):
				t.Fatalf("%s is %d", p.Name, q.numbers[p.Name])
			case p.Required && q.text(p.Name) == "", !p.Many && len(list) > 1:
				t.Fatalf("%s is %q", p.Name, list)
			}
			for _, text := range list {
				if !utf8.ValidString(text) || p.Choices != nil && !slices.Contains(p.Choices, text) {
					t.Fatalf("%s is %q", p.Name, text)
				}
				again.Add(p.Name, text)
			}
		}
		if b := again["before"]; len(b) == 1 {
			if from, err := parseCursor(b[0]); err == nil {
				if back, err := parseCursor(from.cursor()); err != nil || !back.at.Equal(from.at) || back.id != from.id {
					t.Fatalf("the cursor %q becomes %q", b[0], from.cursor())
				}
			}
		}
		if _, err := parseQuery(x.params, again.Encode()); err != nil {
			t.Fatalf("%q is refused when it is encoded again: %v", raw, err)
		}
	})
}

// If the decoder accepts a body, encoding and decoding it again does not change it.
func FuzzBody(f *testing.F) {
	var bodies []func() any
	for i := range routes {
		if routes[i].body != nil {
			bodies = append(bodies, routes[i].body)
		}
	}
	f.Fuzz(func(t *testing.T, at uint8, data []byte) {
		fresh := bodies[int(at)%len(bodies)]
		body := fresh()
		if err := parseBody(data, body); err != nil {
			if faultOf(err).Status != 400 {
				t.Fatalf("%v", err)
			}
			return
		}
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		again := fresh()
		if s, ok := body.(*signalBody); ok && s.Value == nil {
			return // the endpoint rejects it
		}
		if err := parseBody(text, again); err != nil {
			t.Fatalf("%s becomes %s: %v", data, text, err)
		}
		if back, _ := json.Marshal(again); string(back) != string(text) {
			t.Fatalf("%s becomes %s", text, back)
		}
	})
}

// The handler finds its mount point in any path without a panic. The part after the mount point is a suffix of the path.
func FuzzMount(f *testing.F) {
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if rest, _ := within(pattern, path); len(rest) > len(path) || path[len(path)-len(rest):] != rest {
			t.Fatalf("%q in %q leaves %q", pattern, path, rest)
		}
	})
}
