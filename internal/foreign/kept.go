package foreign

import (
	"encoding/json"
	"maps"
	"slices"
)

// KeptError converts errors of one type, which belongs to another package, to a JSON form and back. A stored error has this form in addition to its
// text.
type KeptError struct {
	// Write returns the form of err. If err itself is not of this type, Write returns nil, even if err wraps an error of this type.
	Write func(err error) json.RawMessage
	// Read is the reverse of Write. It returns nil if it cannot read the form.
	Read func(data json.RawMessage) error
}

// kept maps the name of each form to its type of errors. It does not change after the initialization of packages.
var kept = map[string]KeptError{}

// KeepErrors registers a type of errors, so that stored errors of this type have a form. The parameter `name` is the name of the form. KeepErrors
// must be called while packages are initialized.
func KeepErrors(name string, k KeptError) { kept[name] = k }

// WriteKept searches err and the errors that err wraps, depth first. For each registered type it returns the form of the first error of this type, by
// name. It returns nil if no error has a registered type.
func WriteKept(err error) (forms map[string]json.RawMessage) {
	if len(kept) == 0 {
		return nil
	}
	Walk(err, func(e error) Next {
		for name, k := range kept {
			if forms[name] != nil {
				continue
			}
			_ = Contain(func() error {
				if data := k.Write(e); data != nil {
					if forms == nil {
						forms = map[string]json.RawMessage{}
					}
					forms[name] = data
				}
				return nil
			}, func(any) error { return nil }) // if Write panics, the stored error has no form, but it has its text
		}
		return Descend
	})
	return forms
}

// ReadKept reads errors from forms, in the order of the forms' names. It skips damaged forms, and forms of types that this program has not
// registered.
func ReadKept(forms map[string]json.RawMessage) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(forms)) {
		if k, known := kept[name]; known {
			if err := k.Read(forms[name]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}
