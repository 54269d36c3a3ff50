package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"

	"github.com/itchyny/gojq"

	"github.com/seed-c794f7ef/kahn"
)

// jq runs a jq program. If the program yields one value, this value is the output. If the program yields several values, the output
// is a list of them. If it yields none, the output is null.
func jq(ctx context.Context, s *kahn.Step) (any, error) {
	c, ok := s.Config().(map[string]any) // the program is not expanded as a template, since braces are part of jq's syntax
	query, isText := c["query"].(string)
	if !ok || !isText || len(c) != 1 {
		return nil, kahn.Permanent(errors.New("config: expected {query}"))
	}
	code, err := compileQuery(query)
	if err != nil {
		message, _ := programError(query, err)
		return nil, kahn.Permanent(fmt.Errorf("query: %s", message))
	}
	input, _ := s.Param("input")
	if input, err = jqValue(input); err != nil {
		return nil, kahn.Permanent(err)
	}
	var values []any
	for it := code.RunWithContext(ctx, input); ; {
		v, ok := it.Next()
		if !ok {
			break
		}
		if err, ok := v.(error); ok {
			var halt *gojq.HaltError
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case !errors.As(err, &halt) || halt.Value() != nil || halt.ExitCode() != 0:
				return nil, kahn.Permanent(err)
			}
			break // the program has called halt
		}
		values = append(values, v)
	}
	var output any = values
	switch len(values) {
	case 0:
		return nil, nil
	case 1:
		output = values[0]
	}
	if _, err := json.Marshal(output); err != nil { // NaN and infinity have no JSON form
		return nil, kahn.Permanent(fmt.Errorf("jq: the output is not JSON: %w", err))
	}
	return output, nil
}

// maxProgram is the maximum length of a program in bytes. The compiler recurses into nested parts, so in a longer program the recursion could be too
// deep for the stack.
const maxProgram = 1 << 16

var errLongProgram = fmt.Errorf("the program is longer than %d bytes; take it apart into several nodes", maxProgram)

// compileQuery compiles a program. It returns the errors of gojq unchanged, and errLongProgram if the program is too long.
func compileQuery(query string) (*gojq.Code, error) {
	if len(query) > maxProgram {
		return nil, errLongProgram
	}
	program, err := gojq.Parse(query)
	if err != nil {
		return nil, err
	}
	return gojq.Compile(program)
}

// checkQuery returns the first defect that the compiler finds in a program.
func checkQuery(config any) (field string, offset int, message string) {
	object, _ := config.(map[string]any)
	query, ok := object["query"].(string)
	if !ok {
		return "", 0, "" // the schema refuses a config without a query
	}
	if _, err := compileQuery(query); err != nil {
		message, offset = programError(query, err)
	}
	return "query", offset, message
}

// jqValue converts a value to the form that gojq needs. Integers keep all their digits.
func jqValue(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return withNumbers(v, func(n json.Number) any {
		if i, err := strconv.Atoi(n.String()); err == nil {
			return i
		}
		if i, ok := new(big.Int).SetString(n.String(), 10); ok {
			return i
		}
		f, _ := n.Float64()
		return f
	}), nil
}
