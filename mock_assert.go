package kahn

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Assertion says what is expected of a node in test mode: see [TestMode]. A node that never ran can be asserted on too. Items may
// be named one by one, as in "M[2]"; where there are several instances of a node each of them has to comply.
type Assertion struct {
	node, want string
	check      func(n NodeResult, calls int) error
}

// AssertionError is an assertion that failed.
type AssertionError struct {
	// Node is the path of the node, and Want describes the expectation.
	Node, Want string
	// Err describes the actual result.
	Err error
}

// Error names the node, the expectation, and the actual result.
func (e *AssertionError) Error() string {
	return fmt.Sprintf("node %s: expected %s: %s", quoteID(e.Node), e.Want, errorText(e.Err))
}

// Unwrap returns Err.
func (e *AssertionError) Unwrap() error { return e.Err }

// AssertStatus expects a status.
func AssertStatus(node string, want Status) Assertion {
	return Assertion{node, fmt.Sprintf("status %v", want), func(n NodeResult, _ int) error {
		if n.Status == want {
			return nil
		}
		return describe(n)
	}}
}

// AssertSkip expects that the node was skipped for a reason of the given kind.
func AssertSkip(node string, want SkipKind) Assertion {
	return Assertion{node, fmt.Sprintf("skip reason %v", want), func(n NodeResult, _ int) error {
		if n.Status == Skipped && n.Skip.Kind == want {
			return nil
		}
		return describe(n)
	}}
}

// AssertError expects that the node ended with an error that matches want, by errors.Is; if want is nil, that it ended with
// none.
func AssertError(node string, want error) Assertion {
	text := "no error"
	if want != nil {
		text = "error " + errorText(want)
	}
	return Assertion{node, text, func(n NodeResult, _ int) error {
		if errors.Is(n.Err, want) {
			return nil
		}
		return describe(n)
	}}
}

// AssertCalls expects a number of attempts of the node, or of its mock, in all items and iterations: see [TestNode].Calls.
func AssertCalls(node string, want int) Assertion {
	return Assertion{node, fmt.Sprintf("%d calls", want), func(_ NodeResult, calls int) error {
		if calls == want {
			return nil
		}
		return fmt.Errorf("%d calls", calls)
	}}
}

// AssertOutput expects a value, exact in type, at a place of the output of a completed node. The place is given by keys,
// fields and indices, separated by dots, as in "items.0.name"; an empty one is the whole output.
func AssertOutput(node, place string, want any) Assertion {
	text := fmt.Sprintf("output %s", valueText(want))
	if place != "" {
		text = fmt.Sprintf("output %s at %s", valueText(want), quoteID(place))
	}
	return Assertion{node, text, func(n NodeResult, _ int) error {
		if n.Status != Completed {
			return describe(n)
		}
		got, err := at(n.Output, place)
		switch {
		case err != nil:
			return err
		case reflect.DeepEqual(got, want):
			return nil
		case reflect.TypeOf(got) != reflect.TypeOf(want):
			return fmt.Errorf("%s, of type %T instead of %T", valueText(got), got, want)
		}
		return errors.New(valueText(got))
	}}
}

// Assert expects that check returns nil. want describes the expectation in a few words.
func Assert(node, want string, check func(NodeResult) error) Assertion {
	a := Assertion{node: node, want: want}
	if check != nil {
		a.check = func(n NodeResult, _ int) error { return check(n) }
	}
	return a
}

// describe says in a few words how a node ended.
func describe(n NodeResult) error {
	switch {
	case n.Status == Skipped:
		return fmt.Errorf("%v: %v", n.Status, n.Skip)
	case n.Err != nil:
		return fmt.Errorf("%v: %s", n.Status, errorText(n.Err))
	}
	return errors.New(n.Status.String())
}

// at finds the value at a place of an output.
func at(value any, place string) (any, error) {
	if place == "" {
		return value, nil
	}
	for key := range strings.SplitSeq(place, ".") {
		v := indirect(reflect.ValueOf(value))
		var found reflect.Value
		switch v.Kind() {
		case reflect.Map:
			if t := v.Type().Key(); t.Kind() == reflect.String {
				found = v.MapIndex(reflect.ValueOf(key).Convert(t))
			}
		case reflect.Struct:
			found, _ = structField(v, key)
		case reflect.Slice, reflect.Array:
			if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < v.Len() {
				found = v.Index(i)
			}
		}
		if !found.IsValid() {
			return nil, fmt.Errorf("nothing there: %s has no %s", valueText(value), quoteID(key))
		}
		value = found.Interface()
	}
	return value, nil
}

// judge judges an assertion.
func (t *testMode) judge(s *TestSummary, a Assertion, res *Result) {
	err := ErrGoexit // unless it returns
	defer func() {
		if err == nil {
			s.Passed++
			return
		}
		s.Failed++
		s.Failures = append(s.Failures, &AssertionError{Node: a.node, Want: a.want, Err: bounded(err)})
	}()
	err = t.hold(a, res)
}

// hold checks one assertion against the result. Its methods are user code.
func (t *testMode) hold(a Assertion, res *Result) error {
	nodes := res.instances(a.node)
	if len(nodes) == 0 { // the composite that it is inside of was not begun
		nodes = []NodeResult{{ID: a.node}}
	}
	for _, n := range nodes {
		calls := n.Attempts
		if d := t.doubles[a.node]; d != nil {
			calls = int(d.calls.Load())
		}
		if err := contain(func() error { return a.check(n, calls) }); err != nil {
			return err
		}
	}
	return nil
}

// instances returns the nodes of a path. Items may be named by number, else all are meant.
func (r *Result) instances(path string) (nodes []NodeResult) {
	if n, ok := r.Node(path); ok {
		return []NodeResult{n}
	}
	for n := range r.Nodes() {
		rest, found := strings.CutPrefix(path, n.ID)
		if !found || n.Sub == nil {
			continue
		}
		if n.Sub.run.items == nil {
			if inner, ok := strings.CutPrefix(rest, "/"); ok {
				nodes = append(nodes, n.Sub.instances(inner)...)
			}
			continue
		}
		if item, inner, _ := strings.Cut(rest, "/"); item != "" && item != "[]" {
			nodes = append(nodes, n.Sub.instances(path)...)
		} else {
			for item := range n.Sub.Nodes() {
				if inner == "" {
					nodes = append(nodes, item)
				} else if item.Sub != nil {
					nodes = append(nodes, item.Sub.instances(inner)...)
				}
			}
		}
	}
	return nodes
}
