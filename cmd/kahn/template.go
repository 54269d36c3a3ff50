package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/template"

	"github.com/seed-c794f7ef/kahn"
)

// The function `expand` expands the templates in a value. Every text in the value is a text/template with the following functions and no data.
//
//	input "name"            a root input of the run; the input "here" is the directory of the definition
//	input "name" "default"  the root input, or the default if the run has no such input
//	param "name"            a parameter of the step
//	status "node"           the status of an ancestor
//	error "node"            the text of the ancestor's error, or nothing
//	tempdir                 the directory for temporary files
//	json value              a value as JSON
//	get value "name"        a field of a value, or null if the value lacks the field; value.name is an error then
//	output                  only in a compensation: the output of the node that is undone, or nothing if the node did not complete
//	certain                 only in a compensation: whether the node has certainly had its effect
//
// The error names the place of the template in the config. It matches errBound if the template exceeds a limit. A template that would write null fails.
func expand(s *kahn.Step, v any) (any, error) {
	return mapTexts("config", v, func(at, text string) (any, error) { return expandText(s, at, text) })
}

// mapTexts returns a copy of a config in which f has replaced each text. The arguments of f are the place of the text and the text. mapTexts stops at
// the first error of f.
func mapTexts(at string, v any, f func(at, text string) (any, error)) (_ any, err error) {
	switch v := v.(type) {
	case string:
		return f(at, v)
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			if list[i], err = mapTexts(fmt.Sprintf("%s[%d]", at, i), item, f); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		object := make(map[string]any, len(v))
		for key, item := range v {
			if object[key], err = mapTexts(at+"."+key, item, f); err != nil {
				return nil, err
			}
		}
		return object, nil
	}
	return v, nil
}

func expandText(s *kahn.Step, at, text string) (string, error) {
	view, b := s.View(), &bounded{ctx: s}
	t, err := template.New(at).Funcs(b.functions()).Funcs(template.FuncMap{
		"input": func(name string, otherwise ...any) (any, error) {
			if value, ok := s.Root(name); ok {
				return value, nil
			}
			if value, ok := rootsOf(s)[name]; ok { // in a composite, s.Root reads the composite's parameters, and rootsOf returns the run's inputs
				return value, nil
			}
			if len(otherwise) > 0 {
				return otherwise[0], nil
			}
			return nil, fmt.Errorf("there is no input %q; give it with -input %s=value", name, name)
		},
		"param": func(name string) (any, error) {
			if value, ok := s.Param(name); ok {
				return value, nil
			}
			_, err := kahn.Param[any](s, name)
			return nil, err
		},
		"status": ofAncestor(view, func(id string) string { return view.Status(id).String() }),
		"error": ofAncestor(view, func(id string) string {
			if err := view.Err(id); err != nil {
				return err.Error()
			}
			return ""
		}),
		"tempdir": os.TempDir,
		"get":     getOf, "index": indexOf,
		"field": fieldOf, "text": notNull, // see refuseMissing
		"output": func() (any, error) {
			output, _ := s.Compensated()
			return output, notUndoing(s)
		},
		"certain": func() (bool, error) {
			_, certain := s.Compensated()
			return certain, notUndoing(s)
		},
		"json": func(v any) (string, error) {
			text, err := json.Marshal(v)
			if err != nil {
				return "", err
			}
			return b.made(string(text))
		},
	}).Parse(text)
	if err != nil {
		return "", kahn.Permanent(err)
	}
	for _, t := range t.Templates() {
		if t.Tree != nil {
			refuseMissing(t.Root)
		}
	}
	countTurns(t)
	if err := t.Execute(b, nil); err != nil {
		if s.Err() != nil {
			return "", context.Cause(s)
		}
		return "", kahn.Permanent(shortened(err))
	}
	return b.String(), nil
}

// shortened removes the text of the call from the error of a template function. The place of the call stays.
func shortened(err error) error {
	var failed template.ExecError
	if errors.As(err, &failed) {
		if cause := errors.Unwrap(failed.Err); cause != nil {
			place, _, _ := strings.Cut(err.Error(), ": executing ")
			return fmt.Errorf("%s: %w", place, cause)
		}
	}
	return err
}

// notUndoing returns an error if the step is not a compensation.
func notUndoing(s *kahn.Step) error {
	if s.Compensating() {
		return nil
	}
	return errors.New("only the config of a compensate has it")
}

// ofAncestor returns a template function. This function returns f(id) if the view has the node `id`, and an error otherwise.
func ofAncestor(view kahn.View, f func(id string) string) func(id string) (string, error) {
	return func(id string) (string, error) {
		if !view.Has(id) {
			return "", fmt.Errorf("%q is not an ancestor of this step", id)
		}
		return f(id), nil
	}
}

// configured expands the templates in the config of a step, and decodes the result into a C. It returns an error for a field that C lacks.
func configured[C any](s *kahn.Step) (c C, err error) {
	expanded, err := expand(s, s.Config())
	if err != nil {
		return c, err
	}
	text, err := json.Marshal(expanded)
	if err != nil {
		return c, kahn.Permanent(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, kahn.Permanent(fmt.Errorf("config: %w", err))
	}
	return c, nil
}
