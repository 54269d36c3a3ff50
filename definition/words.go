package definition

import (
	"regexp"
	"strings"

	"github.com/seed-c794f7ef/kahn/internal/nearest"
)

// A word says what to write instead of another engine's name for a field.
type word struct {
	fields string // the fields to write instead; the message suggests the first of them that the object can have
	note   string // how to write the field, if its name does not say enough
}

const (
	inConfig   = "the settings of a step stand in the config of its kind"
	asDuration = `a duration has a unit, such as "30s"`
	asHandling = `it flipped a default: write "handles" or "observes"`
	asImport   = "package definition/import converts documents of this format"
	asCatch    = `an edge in the after of the node that handles the failure has the outcome "failure"`
)

// The map `words` has other engines' names for fields, and names of Go fields that have another name in documents. The keys of the map
// have the form that the function `fold` returns, so case and the separators "_", "-" and "." do not matter.
var words = map[string]word{
	"dependson": {"after", ""}, "depends": {"after", ""}, "dependencies": {"after", ""}, "upstream": {"after", ""}, "requires": {"after", ""},
	"runafter": {"after", ""}, "previous": {"after", ""}, "parents": {"after", ""}, "downstream": {"next", ""}, "then": {"next", ""}, "goto": {"next", ""},
	"source": {"from", ""}, "target": {"to", ""},
	"steps": {"nodes", asImport}, "spec": {"nodes", asImport}, "apiversion": {"version", asImport}, "workflow": {"graph nodes", asImport},
	"sourcenodeid": {"from", asImport}, "targetnodeid": {"to", asImport}, "lensid": {"kind", asImport}, "versionid": {"config", asImport},
	"required": {"optional", "it is the opposite: an input that is not optional is required"},
	"jobs":     {"nodes", ""}, "tasks": {"nodes", ""}, "stages": {"nodes", ""}, "states": {"nodes", ""}, "activities": {"nodes", ""},
	"links": {"edges", ""}, "connections": {"edges", ""}, "transitions": {"edges", ""},
	"if": {"when", ""}, "onlyif": {"when", ""}, "runif": {"when", ""}, "guard": {"when", ""}, "whenexpr": {"when", ""}, "testexpr": {"test", ""},
	"condition": {"test outcome", ""}, "assign": {"expression", ""}, "compute": {"expression", ""}, "value": {"expression", ""}, "untilexpr": {"until", ""}, "while": {"until loop", ""}, "on": {"outcome", ""},
	"switch": {"branches", ""}, "cases": {"branches", ""}, "choice": {"branches", ""}, "triggerrule": {"join", ""},
	"run": {"config", inConfig}, "uses": {"kind", inConfig}, "command": {"config", inConfig}, "cmd": {"config", inConfig}, "script": {"config", inConfig},
	"shell": {"config", inConfig}, "image": {"config", inConfig}, "container": {"config", inConfig}, "url": {"config", inConfig}, "env": {"config", inConfig},
	"environment": {"config", inConfig}, "workingdirectory": {"config", inConfig}, "settings": {"config", inConfig}, "options": {"config", inConfig},
	"with": {"params config", ""}, "args": {"params config", ""}, "arguments": {"params", ""}, "parameters": {"params inputs", ""},
	"input": {"params inputs", ""}, "inputs": {"params", ""}, "variables": {"inputs params", ""}, "vars": {"inputs params", ""},
	"type": {"kind", ""}, "action": {"kind", ""}, "operator": {"kind", ""}, "handler": {"kind", ""}, "name": {"id", ""}, "taskid": {"id", ""}, "stepid": {"id", ""},
	"title": {"label name", ""}, "displayname": {"label name", ""}, "description": {"label name", ""},
	"timeoutms": {"timeout", asDuration}, "timeoutseconds": {"timeout", asDuration}, "timeoutminutes": {"timeout", asDuration},
	"executiontimeout": {"timeout", asDuration}, "deadline": {"timeout", asDuration},
	"retries": {"retry", `the number of attempts is the max_attempts of retry`}, "maxretries": {"max_attempts retry", "the first attempt counts"},
	"attempts": {"max_attempts retry", "the first attempt counts"}, "retrypolicy": {"retry", ""}, "retrystrategy": {"retry", ""},
	"backoff": {"multiplier retry", ""}, "backoffms": {"initial_delay", asDuration}, "maxbackoffms": {"max_delay", asDuration},
	"initialdelayms": {"initial_delay", asDuration}, "initialinterval": {"initial_delay", ""}, "retrydelay": {"retry", "the delay is its initial_delay"},
	"maxdelayms": {"max_delay", asDuration}, "maxinterval": {"max_delay", ""}, "factor": {"multiplier", ""}, "backoffcoefficient": {"multiplier", ""},
	"strategy": {"map", ""}, "matrix": {"map", ""}, "foreach": {"map", ""}, "withitems": {"map", ""}, "withparam": {"map", ""}, "items": {"over map", ""},
	"itemspath": {"over", ""}, "maxconcurrency": {"limit groups", ""}, "maxparallel": {"limit groups", ""}, "parallelism": {"limit groups", ""},
	"maxiterations": {"max_iterations", ""}, "times": {"max_iterations", ""}, "pool": {"groups", ""}, "semaphore": {"groups", ""}, "mutex": {"key", ""},
	"concurrency": {"limit key groups", ""}, "concurrencygroup": {"key", ""}, "priorityweight": {"priority", ""}, "weight": {"priority estimate", ""},
	"handlesfailure": {"handling", asHandling}, "onfailure": {"after", asCatch}, "onerror": {"after", asCatch}, "catch": {"after", asCatch}, "fallback": {"after", "a fallback is a Go function; " + asCatch}, "onexit": {"cleanup", ""}, "finally": {"cleanup", ""},
	"allowfailure": {"continue_on_fail", ""}, "continueonerror": {"continue_on_fail", ""}, "ignoreerrors": {"continue_on_fail", ""},
	"skip": {"disabled", ""}, "enabled": {"disabled", "it is the opposite"}, "cache": {"memo", ""}, "wait": {"gate", ""}, "approval": {"gate", ""},
	"sub": {"graph", ""}, "subgraph": {"graph", ""}, "subworkflow": {"graph", ""}, "template": {"graph", ""}, "dag": {"graph nodes", ""},
	"mergestrategy": {"merge", ""}, "sourceoutputkey": {"key", ""}, "targetparamlabel": {"param", ""}, "onparentfailure": {"on_upstream_failure", ""},
	"triggers":  {"nodes", `a trigger is a node of kind "trigger"`},
	"schedules": {"schedule", "a document has one"}, "timetable": {"schedule", ""}, "cron": {"schedule", `the expression is its "cron"`}, "cronexpression": {"cron schedule", ""},
	"crontab": {"cron schedule", ""}, "timezone": {"zone", ""}, "tz": {"zone", ""}, "interval": {"every", ""}, "period": {"every", ""}, "catchup": {"missed", `it is "latest", "none" or "all"`},
	"misfire": {"missed", `it is "latest", "none" or "all"`}, "concurrencypolicy": {"overlap", `it is "skip" or "allow"`}, "startingdeadlineseconds": {"starting_deadline", asDuration},
}

// The map `values` has other engines' names for values of enums. For each name, it has the values to write instead.
// The message suggests the first of these values that the field can have.
var values = map[string]string{
	"any": "any_succeeded always", "all": "all_succeeded both", "allsuccess": "all_succeeded", "onesuccess": "any_succeeded", "always": "all_done",
	"nonefailedminonesuccess": "none_failed", "first": "any_succeeded one_done", "race": "one_done", "none": "none_failed",
	"succeeded": "success", "completed": "success", "ok": "success", "passed": "success", "failed": "failure", "error": "failure step_error",
	"done": "always all_done", "finished": "always all_done", "providererror": "step_error", "contractviolated": "contract_violated_output",
	"ratelimited": "rate_limit", "ignore": "allow skip", "continue": "allow", "default": "substitute_default", "break": "stop",
	"forbid": "skip", "latestonly": "latest", "last": "latest", "once": "latest", "one": "latest", "never": "none", "catchup": "all",
}

// fold returns a text in lower case, without separators. Words are compared in this form.
func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "", " ", "").Replace(s))
}

// The function `first` returns the first word of the text `of` that is among the choices, or "" if there is none.
func first(of string, choices []string) string {
	for name := range strings.FieldsSeq(of) {
		for _, choice := range choices {
			if name == choice {
				return name
			}
		}
	}
	return ""
}

// meantField returns the name of the field that the author probably meant, and a note on how to write the field. Both may be "".
func meantField(written string, fields []string) (name, note string) {
	known := words[fold(written)]
	if name = first(known.fields, fields); name != "" {
		return name, known.note
	}
	name, _ = nearest.Name(written, fields)
	return name, ""
}

var atLeast = regexp.MustCompile(`^(?i:at[_ -]?least)[^0-9]*([1-9][0-9]{0,7})[^0-9]*$`)

// meantValue returns the enum value that the author probably meant, or "".
func meantValue(written string, choices []string) string {
	if number := atLeast.FindStringSubmatch(written); number != nil && first("at_least(k)", choices) != "" {
		return "at_least(" + number[1] + ")"
	}
	if name := first(values[fold(written)], choices); name != "" {
		return name
	}
	name, _ := nearest.Name(written, choices)
	return name
}
