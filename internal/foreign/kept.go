package foreign

import (
	"encoding/json"
	"maps"
	"slices"
)

// KeptError is a type of errors of another package that files keep in addition to the texts of errors.
type KeptError struct {
	// Write returns the form of an error. It returns nil if err itself, without the errors that it wraps, does not have the type.
	Write func(err error) json.RawMessage
	// Read is the reverse of Write. It returns nil if it cannot read the form.
	Read func(data json.RawMessage) error
}

// kept has the types of errors by the name of their form. It does not change after the initialization of packages.
var kept = map[string]KeptError{}

// KeepErrors makes files keep a type of errors. It must be called while packages are initialized.
func KeepErrors(name string, k KeptError) { kept[name] = k }

// WriteKept returns the forms of the errors that err is or wraps, by name: of each type the first error, depth first. It returns nil if there is none.
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
			}, func(any) error { return nil }) // without the form, the error keeps its text
		}
		return Descend
	})
	return forms
}

// ReadKept returns the errors of forms, in the order of the forms' names. It skips forms that this program does not know, and damaged forms.
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
