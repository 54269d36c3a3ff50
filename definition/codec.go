package definition

import (
	"encoding"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/machine"
)

// field describes one field of an object in a document: how the decoder reads it into a T, and how the encoder writes it. Both
// directions are defined together, so that they always match.
type field[T any] struct {
	name string
	// The field `takes` is Bool if the value must be a boolean, Number if it must be a number, and Null for any other field.
	takes Type
	// read reads the value into the target, and reports the problems of the value. If a part of a list or an object has a problem, read may
	// still read the other parts into the target.
	read func(d *decoder, v *Value, to *T)
	// show returns the value, or false if the encoder must leave out the field. show is nil if the encoder never writes the field.
	show func(e *encoder, from *T) (Value, bool)
}

// record describes an object of the document.
type record[T any] struct {
	fields   []field[T]
	required []string
	code     []string // the Go fields that hold code: Encode reports them if they are set
	alone    string   // the field that the author probably means by a text or a number in place of the object, such as "over" for a map; or ""
}

// read reads an object.
func (r *record[T]) read(d *decoder, v *Value, to *T) {
	if r.alone != "" && (v.Type == Text || v.Type == Number) {
		d.add(v.At, ErrType, `expected an object such as {"%s": %.60s}, got %s`, r.alone, appendLine(nil, v), v.describe())
		return
	}
	if !d.expect(v, Object) {
		return
	}
	seen := make([]bool, len(r.fields))
	var meant []string // for unknown fields: the fields that the author probably meant
	for i := range v.Items {
		item := &v.Items[i]
		f := r.find(item.Key)
		if f < 0 && item.Key != badKey && item.Problem != nil && item.Problem.Kind == ErrAmbiguous {
			d.push(item.Key, -1)
			meant = append(meant, r.unknown(d, item))
			d.pop()
			continue
		}
		if f >= 0 && item.Problem != nil {
			item = r.fields[f].explain(item)
		}
		if !d.enter(item, item.Key, -1) {
			if f >= 0 {
				seen[f] = true // the field is present, although its value is bad
			}
			continue
		}
		switch {
		case f < 0:
			meant = append(meant, r.unknown(d, item))
			d.mayBelong(v.Items, i)
		case seen[f]:
			d.add(item.KeyAt, ErrDuplicate, "the field occurs twice")
		default:
			seen[f] = true
			before := len(d.err.Problems)
			if r.fields[f].read(d, item, to); len(d.err.Problems) > before {
				d.mayBelong(v.Items, i)
			}
		}
		d.pop()
	}
	for _, name := range r.required {
		if !seen[r.find(name)] && !d.stopped && !slices.Contains(meant, name) {
			d.missing(v, name)
		}
	}
}

// mayBelong adds a hint to the last problem, which is about items[i], if the preceding member has no value. Then the author may have meant
// items[i] as a part of that member's value, and may have forgotten the indentation.
func (d *decoder) mayBelong(items []Value, i int) {
	if i > 0 && items[i-1].Type == Null && items[i-1].Problem == nil {
		d.addToLast("; indent it, if it belongs to " + quote(items[i-1].Key))
	}
}

// The method `missing` reports a required field that an object lacks.
func (d *decoder) missing(v *Value, name string) {
	if name == "version" {
		d.add(v.At, ErrVersion, `the document does not say its version; expected "version": %d`, Version)
		return
	}
	d.add(v.At, ErrMissing, "the field %q is missing", name)
}

func (r *record[T]) find(name string) int {
	for i := range r.fields {
		if r.fields[i].name == name {
			return i
		}
	}
	return -1
}

// The method `unknown` reports an unknown field of an object. It returns the field that the author probably meant, or "".
func (r *record[T]) unknown(d *decoder, item *Value) string {
	p := d.add(item.KeyAt, ErrUnknownField, "unknown field %s", quote(item.Key))
	if p == nil {
		return ""
	}
	names := make([]string, len(r.fields))
	for i := range r.fields {
		names[i] = r.fields[i].name
	}
	meant, note := meantField(item.Key, names)
	if p.suggest(meant); note != "" {
		p.Message += " (" + note + ")"
	}
	return meant
}

// explain is called with a value v that the reader of the format has rejected. If the reason is that YAML readers disagree about v, and
// the field expects a boolean or a number, explain returns a copy of v. The message of the copy says what to write. Otherwise explain returns v.
func (f *field[T]) explain(v *Value) *Value {
	if v.Problem.Kind != ErrAmbiguous || f.takes == Null {
		return v
	}
	p := *v.Problem
	if meant := plainBool[strings.ToLower(v.Text)]; f.takes == Bool && meant != "" {
		p.Message, p.Suggestion = "write "+meant+" instead of a plain "+v.Text, meant
	} else {
		p.Message = "expected " + f.takes.String() + " as JSON writes it, got a plain " + v.Text
	}
	explained := *v
	explained.Problem = &p
	return &explained
}

// plainBool maps words to the booleans that authors mean by them. Without quotes, some YAML readers read such a word as a boolean.
var plainBool = map[string]string{
	"y": "true", "yes": "true", "on": "true", "true": "true", "n": "false", "no": "false", "off": "false", "false": "false",
}

// numberBool maps numbers to the booleans that authors mean by them.
var numberBool = map[string]string{"1": "true", "0": "false"}

// show returns the Value that represents `from` in a document. Its type is Object.
func (r *record[T]) show(e *encoder, from *T) Value {
	v := Value{Type: Object}
	e.notData(from, r.code)
	for i := range r.fields {
		f := &r.fields[i]
		if f.show == nil || e.stopped {
			continue
		}
		e.push(f.name, -1)
		if item, ok := f.show(e, from); ok {
			item.Key = f.name
			v.Items = append(v.Items, item)
		}
		e.pop()
	}
	for _, name := range r.required {
		if len(members(&v, name)) == 0 && !e.stopped {
			e.add(Position{}, ErrMissing, "the field %q is missing", name)
		}
	}
	return v
}

// The method `without` returns a copy of the record without the named fields.
func (r *record[T]) without(names ...string) *record[T] {
	has := func(name string) bool {
		for _, n := range names {
			if n == name {
				return true
			}
		}
		return false
	}
	var less record[T]
	for _, f := range r.fields {
		if !has(f.name) {
			less.fields = append(less.fields, f)
		}
	}
	for _, name := range r.required {
		if !has(name) {
			less.required = append(less.required, name)
		}
	}
	return &less
}

// name returns a field that holds a name.
func name[T any](key string, at func(*T) *string) field[T] { return checked(key, at, checkName) }

// id returns a field that holds the id of a node.
func id[T any](key string, at func(*T) *string) field[T] { return checked(key, at, checkID) }

func checked[T any](key string, at func(*T) *string, check func(string, Limits) (ErrorKind, string)) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			if !d.expect(v, Text) {
				return
			}
			if kind, problem := check(v.Text, d.limits); problem != "" {
				d.add(v.At, kind, "%s %s", quote(v.Text), problem)
				return
			}
			*at(to) = v.Text
		},
		show: func(e *encoder, from *T) (Value, bool) {
			s := *at(from)
			if s == "" {
				return Value{}, false
			}
			if kind, problem := check(s, e.limits); problem != "" {
				e.add(Position{}, kind, "%s %s", quote(s), problem)
			}
			return Value{Type: Text, Text: s}, true
		},
	}
}

// The function `names` returns a field that holds a list of names.
func names[T any](key string, at func(*T) *[]string) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			if v.Type == Object && len(v.Items) > 0 {
				d.add(v.At, ErrType, "expected a list of names, got an object; write the names alone: [%s, ...]", quote(v.Items[0].Key))
				return
			}
			d.list(v, func(item *Value) {
				if !d.expect(item, Text) {
					return
				}
				if kind, problem := checkName(item.Text, d.limits); problem != "" {
					d.add(item.At, kind, "%s %s", quote(item.Text), problem)
					return
				}
				*at(to) = append(*at(to), item.Text)
			})
		},
		show: func(e *encoder, from *T) (Value, bool) {
			v := Value{Type: List}
			for i, s := range *at(from) {
				if kind, problem := checkName(s, e.limits); problem != "" {
					e.add(Position{}, kind, "item %d: %s %s", i, quote(s), problem)
				}
				v.Items = append(v.Items, Value{Type: Text, Text: s})
			}
			return v, len(v.Items) > 0
		},
	}
}

// inputList returns the field that holds a graph's root inputs. Each input is a name or an object.
func inputList(key string) field[graph] {
	at := func(g *graph) *[]kahn.Input { return &g.Inputs }
	f := many(key, &inputRecord, at)
	f.read = func(d *decoder, v *Value, to *graph) {
		records(d, v, &inputRecord, func(item *Value) {
			var in kahn.Input
			switch item.Type {
			case Text:
				inputRecord.fields[inputRecord.find("name")].read(d, item, &in)
			case Object:
				inputRecord.read(d, item, &in)
			default:
				d.add(item.At, ErrType, "expected the name of an input or an object, got %s", item.describe())
			}
			*at(to) = append(*at(to), in)
		})
	}
	show := f.show
	f.show = func(e *encoder, from *graph) (Value, bool) {
		v, ok := show(e, from)
		for i := range v.Items {
			if object := &v.Items[i]; len(object.Items) == 1 { // the object has only a name
				*object = Value{Type: Text, Text: object.Items[0].Text}
			}
		}
		return v, ok
	}
	return f
}

// prose returns a field that holds any text except the empty text.
func prose[T any](key string, at func(*T) *string) field[T] {
	return checked(key, at, func(s string, _ Limits) (ErrorKind, string) {
		switch {
		case s == "":
			return ErrValue, "must not be empty; leave it out instead"
		case !utf8.ValidString(s):
			return ErrEncoding, "is not valid UTF-8"
		}
		return "", ""
	})
}

// flag returns a field for a boolean. Encode leaves out the field if the boolean is false.
func flag[T any](key string, at func(*T) *bool) field[T] {
	return field[T]{
		name:  key,
		takes: Bool,
		read: func(d *decoder, v *Value, to *T) {
			if d.expect(v, Bool) {
				*at(to) = v.Text == "true"
			}
		},
		show: func(_ *encoder, from *T) (Value, bool) { return Value{Type: Bool, Text: "true"}, *at(from) },
	}
}

// count returns a field for an integer of at least 0, and integer returns a field for any integer.
func count[T any](key string, at func(*T) *int) field[T]   { return whole(key, 0, at) }
func integer[T any](key string, at func(*T) *int) field[T] { return whole(key, math.MinInt, at) }

func whole[T any](key string, least int, at func(*T) *int) field[T] {
	return field[T]{
		name:  key,
		takes: Number,
		read: func(d *decoder, v *Value, to *T) {
			if !d.expect(v, Number) {
				return
			}
			n, err := strconv.Atoi(v.Text)
			switch {
			case err != nil:
				d.add(v.At, ErrValue, "expected an integer, got %.60s", v.Text)
			case n < least:
				d.add(v.At, ErrValue, "%s must not be negative", key)
			default:
				*at(to) = n
			}
		},
		show: func(e *encoder, from *T) (Value, bool) {
			n := *at(from)
			if n < least {
				e.add(Position{}, ErrValue, "%d: must not be negative", n)
			}
			return Value{Type: Number, Text: strconv.Itoa(n)}, n != 0
		},
	}
}

// factor returns a field for a finite number of at least 0.
func factor[T any](key string, at func(*T) *float64) field[T] {
	return field[T]{
		name:  key,
		takes: Number,
		read: func(d *decoder, v *Value, to *T) {
			if !d.expect(v, Number) {
				return
			}
			f, err := strconv.ParseFloat(v.Text, 64)
			if err != nil || f < 0 {
				d.add(v.At, ErrValue, "expected a number that is not negative, got %.60s", v.Text)
				return
			}
			*at(to) = f
		},
		show: func(e *encoder, from *T) (Value, bool) {
			f := *at(from)
			if !(f >= 0 && f <= math.MaxFloat64) {
				e.add(Position{}, ErrValue, "%v is not a number of at least 0", f)
			}
			return Value{Type: Number, Text: strconv.FormatFloat(f, 'g', -1, 64)}, f != 0
		},
	}
}

// The function `duration` returns a field for a duration of at least 0, such as "1m30s".
func duration[T any](key string, at func(*T) *time.Duration) field[T] {
	return timeField(key, times{}, at)
}

// The function `delay` returns a field for a duration of at least 0, or "none", which is read as minus one nanosecond. In Go every negative duration
// means no delay, so Encode writes "none" for it.
func delay[T any](key string, at func(*T) *time.Duration) field[T] {
	return timeField(key, times{none: true, negative: true}, at)
}

// The function `bound` returns a field for a duration of at least 0, or "none".
func bound[T any](key string, at func(*T) *time.Duration) field[T] {
	return timeField(key, times{none: true}, at)
}

// The type `times` says what a field accepts in addition to durations of at least 0: the word "none" and, only in Go, negative durations.
type times struct{ none, negative bool }

const (
	noDelay     = time.Duration(-1)
	noDelayText = "none"
)

func timeField[T any](key string, takes times, at func(*T) *time.Duration) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			if v.Type == Number {
				if p := d.add(v.At, ErrType, `expected a duration with a unit, such as "30s", got %.60s`, v.Text); p != nil {
					p.Suggestion = v.Text + "s"
				}
				return
			}
			if !d.expect(v, Text) {
				return
			}
			if takes.none && v.Text == noDelayText {
				*at(to) = noDelay
				return
			}
			t, err := time.ParseDuration(v.Text)
			switch {
			case err != nil:
				d.add(v.At, ErrValue, `expected a duration such as "30s" or "1h15m", got %s`, quote(v.Text))
			case strings.HasPrefix(v.Text, "-") && takes.none:
				d.add(v.At, ErrValue, `%s must not be negative; "none" turns it off`, key)
			case strings.HasPrefix(v.Text, "-"):
				d.add(v.At, ErrValue, "%s must not be negative", key)
			default:
				*at(to) = t
			}
		},
		show: func(e *encoder, from *T) (Value, bool) {
			t := *at(from)
			if t < 0 && takes.negative {
				t = noDelay
			}
			if t < 0 && (!takes.none || t != noDelay) {
				e.add(Position{}, ErrValue, "%v: must not be negative", t)
			}
			return Value{Type: Text, Text: durationText(t)}, t != 0
		},
	}
}

// durationText renders a duration without trailing zero units: "1h" instead of the "1h0m0s" of Duration.String. It renders noDelay as "none".
func durationText(t time.Duration) string {
	if t == noDelay {
		return noDelayText
	}
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// A `textual` is an enum that is written as its name.
type textual interface {
	~uint8 | ~uint32
	encoding.TextMarshaler
}

// A `parsed` is a pointer to an enum that is read from its name.
type parsed[E any] interface {
	*E
	encoding.TextUnmarshaler
}

// enum returns a field that holds the name of an E. Encode leaves out the field if the E is zero.
func enum[T any, E textual, P parsed[E]](key string, at func(*T) *E) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) { readEnum[E, P](d, v, at(to), nil) },
		show: func(e *encoder, from *T) (Value, bool) {
			var zero E
			x := *at(from)
			return showEnum(e, x), x != zero
		},
	}
}

// The function `enums` returns a field that holds a list of names of Es. The parameter `keepEmpty` is true for a field in
// which an empty list is allowed, because it has another meaning than no list.
func enums[T any, E textual, P parsed[E]](key string, keepEmpty bool, at func(*T) *[]E) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			readEnums[E, P](d, v, keepEmpty, at(to), nil, func(*Value) []E { return nil })
		},
		show: func(e *encoder, from *T) (Value, bool) {
			v := Value{Type: List}
			var zero E
			for _, x := range *at(from) {
				if x == zero {
					e.add(Position{}, ErrValue, "the list holds the zero value, which has no name")
				}
				v.Items = append(v.Items, showEnum(e, x))
			}
			return v, len(v.Items) > 0 || keepEmpty && *at(from) != nil
		},
	}
}

// readEnums reads a list of names. It calls the function `alias` for each item. If `alias` returns values, readEnums adds these values instead of
// the item, unless the list already contains them.
func readEnums[E textual, P parsed[E]](d *decoder, v *Value, keepEmpty bool, to *[]E, choices []string, alias func(item *Value) []E) {
	list := []E{}
	d.list(v, func(item *Value) {
		if meant := alias(item); meant != nil {
			for _, x := range meant {
				if !slices.Contains(list, x) {
					list = append(list, x)
				}
			}
			return
		}
		var x E
		readEnum[E, P](d, item, &x, choices)
		list = append(list, x)
	})
	if len(list) == 0 && !keepEmpty {
		d.add(v.At, ErrValue, "an empty list means the default here; leave the field out")
		return
	}
	*to = list
}

// The keys of causeAliases are names of causes in other engines. In a retry, a name means the causes in the field `retry`. In an edge, it means
// the causes in the field `edge`.
var causeAliases = map[string]struct{ retry, edge []kahn.CauseKind }{
	"provider_error": {[]kahn.CauseKind{kahn.CauseStepError}, []kahn.CauseKind{kahn.CauseStepError}},
	// A retry does not get CauseContractInput, because parameters that violate their schema would violate it in each
	// attempt.
	"contract_violated": {[]kahn.CauseKind{kahn.CauseContractOutput}, []kahn.CauseKind{kahn.CauseContractInput, kahn.CauseContractOutput}},
}

// The function `causes` returns a field for a list of causes. An item is the name of a cause, or an alias: the name of a cause in another engine. The
// function `meaning` returns the causes that an alias stands for, and nil for any other text.
func causes[T any](key string, keepEmpty bool, choices []string, meaning func(alias string) []kahn.CauseKind, at func(*T) *[]kahn.CauseKind) field[T] {
	f := enums(key, keepEmpty, at)
	f.read = func(d *decoder, v *Value, to *T) {
		readEnums(d, v, keepEmpty, at(to), choices, func(item *Value) (meant []kahn.CauseKind) {
			if item.Type == Text {
				meant = meaning(item.Text)
			}
			if meant != nil {
				d.alias(item, meant)
			}
			return meant
		})
	}
	return f
}

// retryCauses are the causes that a retry policy may list.
var retryCauses = []string{"step_error", "timeout", "rate_limit", "contract_violated_output", "panic"}

func causesOfRetry(alias string) []kahn.CauseKind { return causeAliases[alias].retry }
func causesOfEdge(alias string) []kahn.CauseKind  { return causeAliases[alias].edge }

// The method `alias` records that the document uses an alias. The parameter `meant` lists the causes that the alias stands for.
func (d *decoder) alias(v *Value, meant []kahn.CauseKind) {
	if len(d.aliases) == maxProblems {
		return
	}
	words := make([]string, len(meant))
	for i, cause := range meant {
		words[i] = cause.String()
	}
	p := &Problem{Kind: ErrValue, Path: d.where(), Node: strings.Join(d.node, "/"), Position: v.At, Suggestion: strings.Join(words, ", ")}
	p.Message = quote(v.Text) + " is read as " + p.Suggestion
	d.aliases = append(d.aliases, p)
}

// readEnum accepts only the spelling that showEnum writes. The error for another text lists the choices; nil means all values of the enum.
func readEnum[E textual, P parsed[E]](d *decoder, v *Value, to *E, choices []string) {
	if !d.expect(v, Text) {
		return
	}
	var x E
	err := P(&x).UnmarshalText([]byte(v.Text))
	if err == nil && v.Text != "" {
		if text, err := x.MarshalText(); err == nil && string(text) == v.Text {
			*to = x
			return
		}
	}
	if p := d.add(v.At, ErrValue, "%s is none of ", quote(v.Text)); p != nil {
		if choices == nil {
			choices = spellings[E]()
		}
		p.Message += strings.Join(choices, ", ")
		p.suggest(meantValue(v.Text, choices))
		p.Err = err
	}
}

// spellings returns the names of an enum's values.
func spellings[E textual]() (names []string) {
	for x := E(0); ; x++ {
		text, err := x.MarshalText()
		if join, ok := any(x).(kahn.Join); ok && join.Rule() == machine.RuleAtLeast {
			text, err = []byte("at_least(k)"), nil // this rule has a number k, without which MarshalText returns an error
		}
		if err != nil {
			return names
		}
		if len(text) > 0 {
			names = append(names, string(text))
		}
	}
}

func showEnum[E textual](e *encoder, x E) Value {
	text, err := x.MarshalText()
	if err != nil {
		if p := e.add(Position{}, ErrValue, "%v", err); p != nil {
			p.Err = err
		}
	}
	return Value{Type: Text, Text: string(text)}
}

// The function `data` returns a field that holds any JSON except null. In Go, null would be the same as no value.
func data[T any](key string, at func(*T) *any) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			if v.Type == Null {
				d.add(v.At, ErrType, "null is the same as nothing here; leave the field out, or indent what belongs to it")
				return
			}
			*at(to) = d.data(v)
		},
		show: func(e *encoder, from *T) (Value, bool) {
			if *at(from) == nil {
				return Value{}, false
			}
			return e.data(*at(from)), true
		},
	}
}

// The function `contract` returns a field that holds a JSON Schema as data.
func contract[T any](key string, at func(*T) *any) field[T] {
	f := data(key, at)
	read, show := f.read, f.show
	f.read = func(d *decoder, v *Value, to *T) {
		if v.Type != Object && v.Type != Bool {
			d.add(v.At, ErrType, "expected a JSON Schema, which is an object or a boolean, got %s", v.describe())
			return
		}
		read(d, v, to)
	}
	f.show = func(e *encoder, from *T) (Value, bool) {
		if _, code := (*at(from)).(kahn.Contract); code {
			e.add(Position{}, ErrNotData, "a contract that is code, which a document cannot hold")
			return Value{}, false
		}
		v, ok := show(e, from)
		if ok && v.Type != Object && v.Type != Bool && len(e.err.Problems) == 0 {
			e.add(Position{}, ErrType, "a JSON Schema is an object or a boolean, not %s", v.describe())
		}
		return v, ok
	}
	return f
}

// dataMap returns a field that holds an object with any JSON values.
func dataMap[T any](key string, at func(*T) *map[string]any) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			if d.expect(v, Object) && len(v.Items) > 0 {
				*at(to) = d.data(v).(map[string]any)
			}
		},
		show: func(e *encoder, from *T) (Value, bool) { return e.data(*at(from)), len(*at(from)) > 0 },
	}
}

// The function `inner` returns a field that holds an object. Encode leaves out the field if the S is zero.
func inner[T, S any](key string, r *record[S], at func(*T) *S) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) { r.read(d, v, at(to)) },
		show: func(e *encoder, from *T) (Value, bool) {
			if reflect.ValueOf(at(from)).Elem().IsZero() {
				return Value{}, false
			}
			return r.show(e, at(from)), true
		},
	}
}

// The function `optional` returns a field that holds an object. Encode leaves out the field if the pointer to the S is nil.
func optional[T, S any](key string, r *record[S], at func(*T) **S) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			var s S
			r.read(d, v, &s)
			*at(to) = &s
		},
		show: func(e *encoder, from *T) (Value, bool) {
			s := *at(from)
			if s == nil {
				return Value{}, false
			}
			return r.show(e, s), true
		},
	}
}

// The function `many` returns a field that holds a list of objects.
func many[T, S any](key string, r *record[S], at func(*T) *[]S) field[T] {
	return field[T]{
		name: key,
		read: func(d *decoder, v *Value, to *T) {
			records(d, v, r, func(item *Value) {
				var s S
				r.read(d, item, &s)
				*at(to) = append(*at(to), s)
			})
		},
		show: func(e *encoder, from *T) (Value, bool) {
			v := Value{Type: List}
			list := *at(from)
			for i := range list {
				e.push("", i)
				v.Items = append(v.Items, r.show(e, &list[i]))
				e.pop()
			}
			return v, len(v.Items) > 0
		},
	}
}
