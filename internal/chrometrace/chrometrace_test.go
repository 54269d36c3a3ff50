package chrometrace

import (
	"fmt"
	"strings"
	"testing"
)

// valid is a trace with every kind of event that Read accepts.
const valid = `{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":1,"args":{"name":"one"}},
	{"name":"outer","ph":"X","ts":1,"dur":10.5,"pid":1,"tid":1},
	{"name":"inner","ph":"X","ts":1,"dur":2,"pid":1,"tid":1,"cat":"a,b","cname":"good","args":{"x":1}},
	{"name":"next","ph":"X","ts":3,"dur":8.5,"pid":1,"tid":1},
	{"name":"wait","ph":"b","cat":"c","id":"1","ts":0,"pid":1,"tid":1},
	{"name":"wait","ph":"e","cat":"c","id":"1","ts":2,"pid":1,"tid":1},
	{"name":"arrow","ph":"s","cat":"c","id":"1","ts":2,"pid":1,"tid":1},
	{"name":"arrow","ph":"f","bp":"e","cat":"c","id":"1","ts":4,"pid":1,"tid":1},
	{"name":"now","ph":"i","s":"t","ts":4.125,"pid":1,"tid":1}`

func file(events string) string {
	return fmt.Sprintf(`{"displayTimeUnit":"ms","otherData":{"any":"thing"},"traceEvents":[%s]}`, events)
}

func TestValid(t *testing.T) {
	f, err := Read(strings.NewReader(file(valid)))
	if err != nil || len(f.TraceEvents) != 9 {
		t.Error(err)
	}
}

// Each case is the valid trace with an additional event or a replaced part.
func TestInvalid(t *testing.T) {
	for events, want := range map[string]string{
		`{"ph":"X","ts":1,"dur":1,"pid":1,"tid":1}`:                                             "name, pid and tid",
		`{"name":"x","ph":"X","ts":1,"dur":1,"tid":1}`:                                          "name, pid and tid",
		`{"name":"x","ph":"X","ts":1,"dur":1,"pid":1}`:                                          "name, pid and tid",
		`{"name":"x","ph":"X","dur":1,"pid":1,"tid":1}`:                                         "ts is required",
		`{"name":"x","ph":"X","ts":"soon","dur":1,"pid":1,"tid":1}`:                             "invalid number",
		`{"name":"x","ph":"X","ts":-1,"dur":1,"pid":1,"tid":1}`:                                 "ts -1",
		`{"name":"x","ph":"X","ts":20,"dur":-1,"pid":1,"tid":1}`:                                "dur -1",
		`{"name":"x","ph":"X","ts":20,"pid":1,"tid":1}`:                                         "field dur",
		`{"name":"x","ph":"i","s":"t","ts":20,"dur":1,"pid":1,"tid":1}`:                         "field dur",
		`{"name":"x","ph":"i","s":"z","ts":20,"pid":1,"tid":1}`:                                 "scope",
		`{"name":"x","ph":"i","ts":20,"pid":1,"tid":1}`:                                         "field s",
		`{"name":"x","ph":"Q","ts":20,"pid":1,"tid":1}`:                                         "phase",
		`{"name":"x","ph":"X","ts":20,"dur":1,"pid":1,"tid":1,"colour":"red"}`:                  "unknown field",
		`{"name":"x","ph":"X","ts":20,"dur":1,"pid":1,"tid":1,"cname":"red"}`:                   "cname",
		`{"name":"x","ph":"X","ts":20,"dur":1,"pid":1,"tid":1,"id":"1"}`:                        "field id",
		`{"name":"x","ph":"X","ts":2,"dur":2,"pid":1,"tid":1}`:                                  "begins within",
		`{"name":"x","ph":"X","ts":20,"dur":2,"pid":1,"tid":2}`:                                 "has no name",
		`{"name":"x","ph":"b","cat":"c","id":"2","ts":0,"pid":1,"tid":1}`:                       "does not end",
		`{"name":"x","ph":"b","id":"2","ts":0,"pid":1,"tid":1}`:                                 "field cat",
		`{"name":"x","ph":"e","cat":"c","id":"2","ts":0,"pid":1,"tid":1}`:                       "without a beginning",
		`{"name":"arrow","ph":"s","cat":"c","id":"2","ts":2,"pid":1,"tid":1}`:                   "start and",
		`{"name":"arrow","ph":"f","cat":"c","id":"2","ts":2,"pid":1,"tid":1}`:                   "before its start",
		`{"name":"arrow","ph":"f","cat":"c","id":"1","ts":1,"pid":1,"tid":1}`:                   "before its start",
		`{"name":"arrow","ph":"s","cat":"c","id":"1","ts":2,"pid":1,"tid":1}`:                   "starts twice",
		`{"name":"arrow","ph":"s","cat":"c","id":"3","ts":20,"pid":1,"tid":1}`:                  "at no event",
		`{"name":"arrow","ph":"f","bp":"x","cat":"c","id":"1","ts":4,"pid":1,"tid":1}`:          "binding point",
		`{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":2}`:                                "field args",
		`{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":2,"args":{"nom":"two"}}`:           "metadata",
		`{"name":"thread_sort_index","ph":"M","ts":0,"pid":1,"tid":2,"args":{"sort_index":""}}`: "metadata",
		`{"name":"invention","ph":"M","ts":0,"pid":1,"tid":2,"args":{"name":"two"}}`:            "metadata",
	} {
		if _, err := Read(strings.NewReader(file(valid + "," + events))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", events, err, want)
		}
	}
	for text, want := range map[string]string{
		file(valid) + "{}":                         "something follows",
		`{"displayTimeUnit":"s","traceEvents":[]}`: "displayTimeUnit",
		`{"displayTimeUnit":"ms"}`:                 "no traceEvents",
		`{"displayTimeUnit":"ms","traceEvents":[}`: "invalid character",
		strings.Replace(file(valid), `"ph":"e","cat":"c","id":"1","ts":2`, `"ph":"e","cat":"c","id":"1","ts":-0.5`, 1): "ts -0.5",
		strings.Replace(file(valid), `"name":"wait","ph":"e"`, `"name":"other","ph":"e"`, 1):                           "ends another",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}
