package kahn

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-c794f7ef/kahn/machine"
)

// Contribution is the value that one edge delivered to a merge.
type Contribution struct {
	From  string // the id of the source node
	Label string // the source node's label for human readers; may be empty
	Value any
}

// The built-in merge strategies. If several edges are declared for one parameter, the values are merged even if only one edge delivers a value.
// So the shape of the result does not depend on the branch that was taken.
const (
	// MergeLast takes a single value. If several edges deliver a value, it takes the value of the edge that was declared last.
	MergeLast = "last_write_wins"
	// MergeConcat joins the values as text, separated by blank lines. Strings and []byte are used unchanged, errors become their texts, and all
	// other values become JSON. Nulls are dropped.
	MergeConcat = "concat"
	// MergeArray collects the values as []any.
	MergeArray = "array"
	// MergeObject collects the values as map[string]any. The key is the label of the source node. If the label is empty or not unique among the
	// edges of the parameter, the key is the node's id.
	MergeObject = "json_object"
)

func builtinMerge(name string) bool {
	switch name {
	case MergeLast, MergeConcat, MergeArray, MergeObject:
		return true
	}
	return false
}

// mergeValues applies a built-in strategy. Under MergeObject, contribution i has the key keys[i].
func mergeValues(strategy string, asJSON bool, in []Contribution, keys []string) (any, error) {
	value := func(c Contribution) any {
		// Only the text of an error goes into the JSON, since the error's fields may change between versions, and a snapshot loses some of them.
		if err, is := c.Value.(error); is && asJSON {
			return errorText(err)
		}
		return c.Value
	}
	var merged any
	switch strategy {
	case MergeConcat:
		return concat(in)
	case MergeArray:
		values := make([]any, len(in))
		for i, c := range in {
			values[i] = value(c)
		}
		merged = values
	case MergeObject:
		object := make(map[string]any, len(in))
		for i, c := range in {
			object[keys[i]] = value(c)
		}
		merged = object
	default:
		return in[len(in)-1].Value, nil
	}
	if !asJSON {
		return merged, nil
	}
	text, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("rendering the merged value as JSON: %w", err)
	}
	return string(text), nil
}

func concat(in []Contribution) (any, error) {
	var parts []string
	for _, c := range in {
		if isNull(c.Value) {
			continue
		}
		switch v := c.Value.(type) {
		case string:
			parts = append(parts, v)
		case []byte:
			parts = append(parts, string(v))
		case error:
			parts = append(parts, errorText(v))
		default:
			text, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("rendering the value of %s as JSON: %w", quoteID(c.From), err)
			}
			parts = append(parts, string(text))
		}
	}
	return strings.Join(parts, "\n\n"), nil
}

// Outputs is an output with several ports. An edge delivers the port that its Key names. The Key "output" means the whole map, unless a port has
// this name.
type Outputs map[string]any

const outputKey = "output"

// isNull reports whether v is null as data: a nil interface, pointer, map, slice, function or channel, or the JSON value null. Empty strings,
// zeros, false and empty non-nil collections are not null.
func isNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string, bool, int, float64:
		return false
	case json.RawMessage:
		return v == nil || string(bytes.TrimSpace(v)) == "null"
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return r.IsNil()
	}
	return false
}

// portOf returns the part of an output that an edge delivers. This is the value at the path `key`. If the key is empty, it is the port that has the
// name of the edge's label. If there is no such port, or if the key is "output", it is the port "output" or, without this port, the whole output.
func portOf(output any, key, label string) (value any, ok bool) {
	if key == "" && label != "" {
		if value, ok := lookup(output, label); ok {
			return value, true
		}
	}
	if key == "" || key == outputKey {
		if ports, ok := output.(Outputs); ok {
			if value, ok := ports[outputKey]; ok {
				return value, true
			}
		}
		return output, true
	}
	return follow(output, key)
}

// The type `ports` contains the declared Outputs of a node.
type ports struct {
	names   map[string]bool
	longest int
}

func newPorts(names []string) *ports {
	p := &ports{names: make(map[string]bool, len(names))}
	for _, name := range names {
		p.names[name], p.longest = true, max(p.longest, len(name))
	}
	return p
}

// The method `has` reports whether an edge from the node may have this key. Valid keys are "", "output", the name of a port, and a path into the
// value of a port.
func (p *ports) has(key string) bool {
	if key == "" || key == outputKey || p.names[key] {
		return true
	}
	for i, c := range []byte(key[:min(len(key), p.longest+1)]) {
		if c == '.' && p.names[key[:i]] {
			return true
		}
	}
	return false
}

// The function `follow` returns the value at a path. It splits the path at its dots, and looks up each part in a map or in the exported fields of a
// struct. Before it looks up a part, it tries the whole remaining path as a map key.
func follow(output any, path string) (any, bool) {
	for {
		if v, ok := lookup(output, path); ok {
			return v, true
		}
		name, rest, more := strings.Cut(path, ".")
		v, ok := member(output, name)
		if !ok || !more {
			return v, ok
		}
		output, path = v, rest
	}
}

// The function `member` is like lookup, but also finds exported fields of structs. It finds a field by its JSON name. If the field has no JSON name,
// member finds it by its Go name, in upper or lower case.
func member(output any, name string) (any, bool) {
	if v, ok := lookup(output, name); ok {
		return v, true
	}
	s := indirect(reflect.ValueOf(output))
	switch s.Kind() {
	case reflect.Struct:
		if field, ok := structField(s, name); ok {
			return field.Interface(), true
		}
	case reflect.Map: // the output is a pointer to a map
		if s.CanInterface() && reflect.TypeOf(output).Kind() == reflect.Pointer {
			return lookup(s.Interface(), name)
		}
	}
	return nil, false
}

// memberNames is for errors about a path that does not exist in an output. It returns the sorted paths of all members of the last value that the path
// reaches.
func memberNames(output any, path string) (names []string) {
	prefix := ""
	for {
		name, rest, more := strings.Cut(path, ".")
		v, ok := member(output, name)
		if !ok || !more {
			break
		}
		prefix += name + "."
		output, path = v, rest
	}
	switch v := indirect(reflect.ValueOf(output)); v.Kind() {
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if key.Kind() == reflect.String {
				names = append(names, prefix+key.String())
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				names = append(names, prefix+cmp.Or(name, f.Name))
			}
		}
	}
	slices.Sort(names)
	return names
}

// lookup finds a key in a map with string keys.
func lookup(output any, key string) (any, bool) {
	switch m := output.(type) {
	case nil:
		return nil, false
	case Outputs:
		v, ok := m[key]
		return v, ok
	case map[string]any:
		v, ok := m[key]
		return v, ok
	}
	m := reflect.ValueOf(output)
	if m.Kind() != reflect.Map || m.Type().Key().Kind() != reflect.String {
		return nil, false
	}
	v := m.MapIndex(reflect.ValueOf(key).Convert(m.Type().Key()))
	if !v.IsValid() {
		return nil, false
	}
	return v.Interface(), true
}

// A source provides the values that edges deliver. It is a [Run], or the [Values] that a host keeps beside a [machine.State].
type source interface {
	graph() *Plan
	deliveryTo(to machine.Ref, i int32, substituted bool) (d machine.Delivery, output any) // output is the source node's output, if d delivers it
	failureOf(machine.Ref) error
	input(name string) (any, bool)
	eachInput(f func(name string)) // may call f several times with the same name
	clone(any) any
}

// deliver returns the value that an in-edge delivers to a node that is being checked or is running. If the edge delivers an output, the source node
// is terminal, and its output no longer changes.
func deliver(of source, to machine.Ref, substituted bool, i int32) (value any, ok bool) {
	p := of.graph()
	d, output := of.deliveryTo(to, i, substituted)
	switch d {
	case machine.DeliverOutput:
		t := p.termsOf(i)
		label := t.Label
		if label != "" && p.net.Edge(i).Flags&machine.EdgeLabelled == 0 {
			label = "" // the edge leads into the end node, so its label does not name a branch
		}
		return portOf(output, t.Key, label)
	case machine.DeliverError:
		return of.failureOf(p.net.Source(i)), true
	case machine.DeliverDefault:
		return p.defaultOf(p.termsOf(i), to), true
	}
	return nil, false
}

// defaultOf returns the value that an edge delivers instead of a missing value.
func (p *Plan) defaultOf(t *terms, to machine.Ref) any {
	if t.Default != nil {
		return t.Default
	}
	if n := p.node(to); n.Default != nil {
		return n.Default
	}
	return ""
}

// The function `assembled` returns the value of a parameter. It tries edges, static values, root inputs and the port's default, in this order.
func assembled(of source, ref machine.Ref, substituted bool, name string, merged map[string]any) (any, bool) {
	if v, ok := merged[name]; ok {
		return v, true
	}
	if in := of.graph().inputsOf(ref); in != nil {
		if p, _ := in.param(name); p != nil && p.strategy == MergeLast { // under any other strategy, the map `merged` contains the value
			for j := len(p.edges) - 1; j >= 0; j-- {
				if v, ok := deliver(of, ref, substituted, p.edges[j]); ok {
					return v, true
				}
			}
		}
	}
	return unfed(of, ref, name)
}

// The function `unfed` returns the value of a parameter to which no edge has delivered a value. For the order see assembled.
func unfed(of source, ref machine.Ref, name string) (any, bool) {
	p := of.graph()
	n := p.node(ref)
	var port *Port
	if in := p.inputsOf(ref); in != nil {
		port = in.ports[name]
	}
	if v, ok := n.Params[name]; ok {
		return v, true
	}
	if port != nil || len(n.Ports) == 0 && len(p.net.In(ref)) == 0 {
		if v, ok := of.input(name); ok {
			return v, true
		}
	}
	if port != nil && port.Default != nil {
		return port.Default, true
	}
	return nil, false
}

// With at most fewEdges in-edges, to compare the names of their sources is faster than to look up the node.
const fewEdges = 8

// deliveredFrom returns the value that the node named id delivers to node ref. If several edges from that node deliver a value, the last one counts.
func deliveredFrom(of source, ref machine.Ref, substituted bool, id string) (value any, ok bool) {
	p := of.graph()
	row := p.net.In(ref)
	if len(row) > fewEdges {
		from, known := p.find(id)
		if !known {
			return nil, false
		}
		row = p.net.EdgesFrom(ref, from)
	}
	for j := len(row) - 1; j >= 0; j-- {
		if p.names[p.net.Source(row[j])] != id {
			continue
		}
		if v, ok := deliver(of, ref, substituted, row[j]); ok {
			return v, true
		}
	}
	return nil, false
}

// eachOwnParam calls f with the names of the parameters that a node declares by its edges, Params or Ports. It may repeat a name. The result `inputs`
// reports whether the node also gets the root inputs.
func (p *Plan) eachOwnParam(ref machine.Ref, f func(name string)) (inputs bool) {
	n, in := p.node(ref), p.inputsOf(ref)
	if in != nil {
		for i := range in.params {
			f(in.params[i].name)
		}
	}
	for name := range n.Params {
		f(name)
	}
	for i := range n.Ports {
		f(n.Ports[i].Name)
	}
	return len(n.Ports) == 0 && len(p.net.In(ref)) == 0
}

// The methods graph, deliveryTo, failureOf, input, eachInput and clone make Run a source.
func (r *Run) graph() *Plan { return r.plan }

// deliveryTo takes the run's lock if the node may run before its predecessors have ended. It also takes the lock in a durable run: the store of
// this run may refuse the end of a predecessor while a guard or a merge function is running.
func (r *Run) deliveryTo(to machine.Ref, i int32, substituted bool) (d machine.Delivery, output any) {
	if r.durable != nil || r.plan.net.Is(to, machine.FlagEarly) {
		r.st.Lock()
		defer r.st.Unlock()
	}
	if d = r.st.Delivery(to, i, substituted); d == machine.DeliverOutput {
		output = r.records[r.plan.net.Source(i)].value
	}
	return d, output
}

func (r *Run) failureOf(ref machine.Ref) error {
	r.st.Lock() // needed because the search for the origins of an aborted source may visit running nodes
	defer r.st.Unlock()
	return r.nodeError(ref)
}

func (r *Run) delivered(to machine.Ref, flags stepFlags, i int32) (value any, ok bool) {
	return deliver(r, to, flags&stepSubstituted != 0, i)
}

// param returns one parameter of a node. If the node has a check, param may be called only after the check has passed.
func (r *Run) param(ref machine.Ref, flags stepFlags, name string) (any, bool) {
	if r.items != nil {
		if v, ok := r.items.input(ref, name); ok {
			return v, true
		}
		r, ref, flags = r.home(ref, flags)
	}
	return r.assembled(ref, flags, name, r.mergedOf(ref))
}

// mergedOf returns the merged parameters of a node. If the node has a check, mergedOf may be called only after the check has passed. It takes the
// run's lock.
func (r *Run) mergedOf(ref machine.Ref) (merged map[string]any) {
	if !r.plan.net.Is(ref, machine.FlagCheck) {
		return nil
	}
	r.st.Lock()
	defer r.st.Unlock()
	if x := r.extras[ref]; x != nil {
		merged = x.merged // the engine no longer writes to this map
	}
	return merged
}

func (r *Run) assembled(ref machine.Ref, flags stepFlags, name string, merged map[string]any) (any, bool) {
	return assembled(r, ref, flags&stepSubstituted != 0, name, merged)
}

// The method `params` returns all parameters of a node in a new map.
func (r *Run) params(ref machine.Ref, flags stepFlags, clone bool) map[string]any {
	m := map[string]any{}
	in, at, with := r.home(ref, flags)
	merged := in.mergedOf(at)
	r.eachParam(ref, func(name string) {
		if _, done := m[name]; done {
			return
		}
		v, ok := any(nil), false
		if r.items != nil {
			v, ok = r.items.input(ref, name)
		}
		if !ok {
			v, ok = in.assembled(at, with, name, merged)
		}
		if ok {
			if clone {
				v = r.clone(v)
			}
			m[name] = v
		}
	})
	return m
}

// eachParam calls f with the names of the parameters that a node may have. It may repeat a name.
func (r *Run) eachParam(ref machine.Ref, f func(name string)) {
	if r.items != nil {
		f(inputItem)
		f(inputIndex)
		r, ref, _ = r.home(ref, 0)
	}
	if r.plan.eachOwnParam(ref, f) {
		r.eachInput(f)
	}
}

// The method `upstream` returns the value that the node named id delivers to node ref, see deliveredFrom.
func (r *Run) upstream(ref machine.Ref, flags stepFlags, id string) (value any, ok bool) {
	r, ref, flags = r.home(ref, flags)
	return deliveredFrom(r, ref, flags&stepSubstituted != 0, id)
}

func (r *Run) clone(v any) any {
	if r.cfg.cloneInputs == nil || v == nil {
		return v
	}
	return r.cfg.cloneInputs(v)
}

// checkInputs merges the parameters of a node and checks its required ports. It calls merge functions through protect.
func checkInputs(of source, ref machine.Ref, substituted bool, protect func(func() error) error, res *checkResult) {
	p := of.graph()
	n, in := p.node(ref), p.inputsOf(ref)
	for i := range in.params {
		group := &in.params[i]
		if group.strategy == MergeLast {
			continue
		}
		value, ok, err := merge(of, ref, substituted, group, protect)
		if err != nil {
			res.verdict.Fail, res.err = CauseMergeError, fmt.Errorf("parameter %s: %w", quoteID(group.name), err)
			return
		}
		if ok {
			if res.merged == nil {
				res.merged = map[string]any{}
			}
			res.merged[group.name] = value
		}
	}
	for i := range n.Ports {
		if port := &n.Ports[i]; port.Required {
			if v, ok := assembled(of, ref, substituted, port.Name, res.merged); !ok || isNull(v) {
				res.verdict = machine.CheckVerdict{Skip: SkipNullPropagation, Port: i}
				return
			}
		}
	}
}

// The function `merge` merges the values that the edges deliver for one parameter. ok is false if no edge delivers a value.
func merge(of source, ref machine.Ref, substituted bool, group *param, protect func(func() error) error) (value any, ok bool, err error) {
	p := of.graph()
	var in []Contribution
	var keys []string
	for i, e := range group.edges {
		if v, ok := deliver(of, ref, substituted, e); ok {
			source := p.node(p.net.Source(e))
			in = append(in, Contribution{From: source.ID, Label: source.Label, Value: v})
			keys = append(keys, group.keys[i])
		}
	}
	if len(in) == 0 {
		return nil, false, nil
	}
	err = protect(func() (err error) {
		if group.fn != nil {
			for i := range in {
				in[i].Value = of.clone(in[i].Value)
			}
			value, err = group.fn(in)
		} else {
			value, err = mergeValues(group.strategy, p.node(ref).MergeJSON, in, keys)
		}
		return err
	})
	return value, true, bounded(err)
}

// The function `typed` returns v as a T. The function `missing` returns the error that explains a missing value.
func typed[T any](v any, ok bool, what, name string, missing func() error) (T, error) {
	if t, is := v.(T); is && ok {
		return t, nil
	}
	return typedOther[T](v, ok, what, name, missing)
}

// typedOther does the work of the function `typed` for a value that is missing or is not a T. It is a function of its own because its variable of the
// type T escapes, so that each call allocates.
func typedOther[T any](v any, ok bool, what, name string, missing func() error) (t T, err error) {
	switch {
	case !ok:
		return t, fmt.Errorf("%s %s: %w", what, quoteID(name), missing())
	case v == nil:
		return t, fmt.Errorf("%s %s: %w: it is null", what, quoteID(name), ErrNoValue)
	}
	if ok, err := convert(v, reflect.ValueOf(&t).Elem()); err != nil {
		return *new(T), fmt.Errorf("%s %s: %w", what, quoteID(name), err)
	} else if ok {
		return t, nil
	}
	var end string
	if _, failed := v.(*NodeError); failed {
		end = ": the node has failed, and the edge delivers its error, see UpstreamErr"
	}
	return *new(T), fmt.Errorf("%s %s: %w: %T instead of %T%s", what, quoteID(name), ErrType, v, *new(T), end)
}

// The function `convert` converts v to the type of `to`, and stores the result in `to`. It converts numbers that package json has decoded, and lists
// that package json or a map node has made. If `to` is an integer, convert accepts a float64 or json.Number without a fraction that fits the type. If
// `to` is a float64, it accepts a json.Number. If `to` is a list, it accepts an []any, and converts the elements if necessary. In all other cases it
// returns false. It also returns false if `to` has a named type such as time.Duration, since numbers of this type may be in another unit.
func convert(v any, to reflect.Value) (ok bool, err error) {
	if to.Type().PkgPath() != "" {
		return false, nil
	}
	number, isNumber := v.(json.Number)
	f, isFloat := v.(float64)
	switch kind := to.Kind(); {
	case kind == reflect.Slice:
		list, is := v.([]any)
		if !is {
			return false, nil
		}
		return convertList(list, to)
	case isNumber && kind == reflect.Float64:
		f, err := number.Float64()
		to.SetFloat(f)
		return err == nil, nil
	case !isNumber && !isFloat:
		return false, nil
	case isNumber && to.CanInt():
		if i, err := number.Int64(); err == nil {
			to.SetInt(i)
			return to.Int() == i, nil
		}
	case isNumber && to.CanUint():
		if u, err := strconv.ParseUint(string(number), 10, 64); err == nil {
			to.SetUint(u)
			return to.Uint() == u, nil
		}
	}
	if isNumber {
		if f, err = number.Float64(); err != nil {
			return false, nil
		}
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 { // beyond 1<<53, neighbouring integers have the same float64
		return false, nil
	}
	switch {
	case to.CanInt():
		to.SetInt(int64(f))
		return to.Int() == int64(f), nil
	case to.CanUint() && f >= 0:
		to.SetUint(uint64(f))
		return to.Uint() == uint64(f), nil
	}
	return false, nil
}

// convertList converts a list as described at convert. It returns an error if an element is null or cannot be converted.
func convertList(list []any, to reflect.Value) (ok bool, err error) {
	items := reflect.MakeSlice(to.Type(), len(list), len(list))
	for i, v := range list {
		item := items.Index(i)
		switch from := reflect.ValueOf(v); {
		case from.IsValid() && from.Type().AssignableTo(item.Type()):
			item.Set(from)
		case v == nil:
			return false, fmt.Errorf("%w: item %d is null: UpstreamItems reports which items of a map have no value, and why", ErrType, i)
		default:
			if ok, err := convert(v, item); err != nil || !ok {
				return false, cmp.Or(err, fmt.Errorf("%w: item %d is %T instead of %v", ErrType, i, v, item.Type()))
			}
		}
	}
	to.Set(items)
	return true, nil
}

// maxKey is the greatest length, in bytes, of a key that KeyFrom takes from a value. See Node.KeyFrom.
const maxKey = 1000

// findKey finds the key of a node with a KeyFrom. If KeyFrom names "item" or "index", each item of a map has its own key. Then findKey does
// nothing, since itemsOf finds these keys.
func findKey(of source, ref machine.Ref, substituted bool, res *checkResult) {
	p := of.graph()
	x, is := p.keySources[ref]
	if !is || x.item || p.net.Is(ref, machine.FlagMocked) {
		return
	}
	var value any
	var found bool
	if x.root {
		value, found = of.input(x.name)
	} else {
		value, found = assembled(of, ref, substituted, x.name, res.merged)
	}
	if res.key, res.err = x.key(value, found); res.err != nil {
		if res.verdict.Fail = CauseContractInput; x.root && !found {
			var names []string
			of.eachInput(func(name string) { names = append(names, name) })
			slices.Sort(names)
			res.err = fmt.Errorf("%w: the run has no such input%s", res.err, instead(x.name, slices.Compact(names)))
		}
	}
}

// The method `key` returns the concurrency key for a value.
func (x *keySource) key(value any, found bool) (string, error) {
	name, whole, reached := strings.TrimSuffix(x.name+"."+x.path, "."), value, found
	if found && x.path != "" {
		value, reached = follow(value, x.path)
	}
	switch {
	case reached && !isNull(value):
	case x.optional:
		return "", nil
	case found && !reached:
		return "", fmt.Errorf("the key from %s: %w: %s has no %s%s", quoteID(name), ErrNoValue, quoteID(x.name), quoteID(x.path), instead(x.path, memberNames(whole, x.path)))
	default:
		return "", fmt.Errorf("the key from %s: %w", quoteID(name), ErrNoValue)
	}
	text, ok := keyText(value)
	switch {
	case !ok:
		return "", fmt.Errorf("the key from %s: %w: a %T is neither a text, nor a number, nor a boolean", quoteID(name), ErrType, value)
	case len(text) > maxKey:
		return "", fmt.Errorf("the key from %s: %w: %s is longer than %d bytes", quoteID(name), ErrBadValue, quoteID(text), maxKey)
	}
	return text, nil
}

// keyText returns a scalar as text. If JSON turns an integer up to 1<<53 into a float64, its text stays the same.
func keyText(value any) (string, bool) {
	switch v := indirect(reflect.ValueOf(value)); v.Kind() {
	case reflect.String:
		return v.String(), true
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return strconv.FormatUint(v.Uint(), 10), true
	case reflect.Float32, reflect.Float64:
		f := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return "", false
		}
		return strconv.FormatFloat(f, 'f', -1, v.Type().Bits()), true
	}
	return "", false
}
