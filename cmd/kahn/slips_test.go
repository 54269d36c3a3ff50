package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// slip is a mistake in one of this project's definitions: the text `was` is replaced by the text `is`. `mend` is the expected
// advice.
type slip struct{ file, was, is, mend string }

// unanswered maps the numbers of slips that vet need not report to the reasons: these slips result in another valid definition.
var unanswered = map[int]string{
	61: "a graph without this edge is one as well",
}

const (
	approvalFile = "definitions/approval.yaml"
	releaseFile  = "definitions/release.yaml"
	surveyFile   = "definitions/survey.json"
)

// Each slip is reported with file, line, column and advice, or is listed in unanswered.
func TestSlipsInDefinitions(t *testing.T) {
	t.Parallel()
	slips := allSlips()
	require.GreaterOrEqual(t, len(slips), 60)
	for i, s := range slips {
		data, err := os.ReadFile(s.file)
		require.NoError(t, err)
		require.Contains(t, string(data), s.was, "slip %d", i)
		text := strings.Replace(string(data), s.was, s.is, 1)
		path := file(t, fmt.Sprintf("slip%d%s", i, filepath.Ext(s.file)), text)
		_, found := performer{}.vet(path, []byte(text))
		if unanswered[i] != "" {
			require.Empty(t, found, "slip %d is answered now", i)
			continue
		}
		require.NotEmpty(t, found, "slip %d: %q for %q in %s", i, s.is, s.was, s.file)
		for _, p := range found {
			require.Equal(t, path, p.File)
			require.Positive(t, p.Line, "slip %d: %v", i, p)
			require.Positive(t, p.Column, "slip %d: %v", i, p)
		}
		require.NotEmpty(t, s.mend, "slip %d", i)
		require.True(t, slices.ContainsFunc(found, func(p problem) bool { return strings.Contains(p.Message, s.mend) }), "slip %d: no problem says %q:\n%v", i, s.mend, found)
	}
}

// allSlips returns all slips, grouped by the kind of mistake.
func allSlips() []slip {
	return []slip{
		// indent
		{file: approvalFile, was: "  - id: draft\n    kind: template", is: "  - id: draft\n   kind: template", mend: `indent it by 4 spaces`},
		{file: approvalFile, was: "    next: approve\n", is: "   next: approve\n", mend: `indent it by 4 spaces`},
		{file: approvalFile, was: "    branches:\n      approved: publish", is: "    branches:\n    approved: publish", mend: `indent the line as the key in the line before it`},
		{file: approvalFile, was: "      approved: publish\n      default: shelve", is: "      approved: publish\n       default: shelve", mend: `indent the line as the key in the line before it`},
		{file: approvalFile, was: "    config:\n      path:", is: "    config:\n    path:", mend: `by 4 spaces`},
		{file: approvalFile, was: "      text: '{{param \"text\"}}'", is: "     text: '{{param \"text\"}}'", mend: `by 4 spaces`},
		{file: approvalFile, was: "    label: May this", is: "\tlabel: May this", mend: `indented by spaces`},
		{file: releaseFile, was: "  retry: {max_attempts", is: "retry: {max_attempts", mend: `indent it, if it belongs to "defaults"`},
		{file: releaseFile, was: "  - {name: compilers, limit: 3}", is: "  {name: compilers, limit: 3}", mend: `write it as the only item of a list`},
		{file: releaseFile, was: "  - id: vet\n    kind: exec", is: "  - id: vet\n  kind: exec", mend: `indent it by 4 spaces`},
		{file: releaseFile, was: "    config:\n      command: [go, vet, ./...]\n", is: "    config:\n  command: [go, vet, ./...]\n", mend: `indent it by 4 spaces`},
		{file: releaseFile, was: "    branches:\n      \"true\": sums", is: "    branches:\n    \"true\": sums", mend: `indent the line as the key in the line before it`},
		{file: releaseFile, was: "        The release failed.\n", is: "      The release failed.\n", mend: `indent it deeper than the key there`},
		{file: releaseFile, was: "  - id: failed\n", is: "   - id: failed\n", mend: `2 spaces, as in line 17`},
		{file: releaseFile, was: "      files: '{{input", is: "    files: '{{input", mend: `indent it, if it belongs to "config"`},
		{file: approvalFile, was: "nodes:\n  - id: draft", is: "nodes:\n  id: draft", mend: `begin that line with a dash`},
		// type
		{file: approvalFile, was: "gate: {timeout: 72h,", is: "gate: {timeout: 72,", mend: `with a unit, such as "30s"`},
		{file: approvalFile, was: "strict_guards: true", is: "strict_guards: 'true'", mend: `write it without quotes`},
		{file: approvalFile, was: "version: 1", is: "version: '1'", mend: `write it without quotes`},
		{file: approvalFile, was: "data_only: true}]\n    config:", is: "data_only: 1}]\n    config:", mend: `did you mean "true"?`},
		{file: approvalFile, was: "    kind: gate", is: "    kind: 3", mend: `write it in quotes`},
		{file: approvalFile, was: "label: May this be published?", is: "label: [May this be published?]", mend: `write it without brackets`},
		{file: approvalFile, was: "    branches:\n      approved: publish\n      default: shelve", is: "    branches: [publish, shelve]", mend: `as in {approved: publish}`},
		{file: releaseFile, was: "limit: 3}", is: "limit: three}", mend: `write it in digits`},
		{file: releaseFile, was: "retry_on: [timeout]", is: "retry_on: timeout", mend: `write it as the only item of a list`},
		{file: releaseFile, was: "max_attempts: 2,", is: "max_attempts: 2.5,", mend: `expected an integer`},
		{file: releaseFile, was: "timeout: 10m", is: "timeout: 10 minutes", mend: `such as "30s"`},
		{file: releaseFile, was: "command: [go, test, -count=1, ./...]", is: "command: go test ./...", mend: `write it as [item, item]`},
		{file: releaseFile, was: "files: '{{input \"out\" (print tempdir \"/hello-release\")}}/release-*'", is: "files: [1, 2]", mend: `expected text`},
		{file: surveyFile, was: "\"continue_on_fail\": true", is: "\"continue_on_fail\": \"yes\"", mend: `did you mean "true"?`},
		{file: surveyFile, was: "\"merge\": \"json_object\"", is: "\"merge\": true", mend: `write it in quotes`},
		{file: surveyFile, was: "\"required\": [\"files\", \"lines\"]", is: "\"required\": \"files\"", mend: `write it as [item, item]`},
		// words
		{file: approvalFile, was: "    kind: write\n", is: "    kind: wirte\n", mend: `did you mean "write"?`},
		{file: approvalFile, was: "on_timeout: label", is: "on_timeout: lable", mend: `did you mean "label"?`},
		{file: approvalFile, was: "      default: shelve", is: "      default: shelf", mend: `did you mean "shelve"?`},
		{file: approvalFile, was: "after: [{from: approve, param: answer", is: "after: [{form: approve, param: answer", mend: `did you mean "from"?`},
		{file: approvalFile, was: "'Not published: {{param \"answer\"}}'", is: "'Not published: {{param \"anwser\"}}'", mend: `did you mean "answer"?`},
		{file: approvalFile, was: "{{input \"reader\" \"reader\"}}", is: "{{inptu \"reader\" \"reader\"}}", mend: `did you mean "input"?`},
		{file: approvalFile, was: "      approved: publish", is: "      publish: approved", mend: `did you mean "approve"?`},
		{file: releaseFile, was: "groups: [compilers]\n    estimate: 10s\n    config:\n      command: [go, build, -trimpath, -o, '{{input \"out\" (print tempdir \"/hello-release\")}}/release-linux", is: "groups: [compiler]\n    estimate: 10s\n    config:\n      command: [go, build, -trimpath, -o, '{{input \"out\" (print tempdir \"/hello-release\")}}/release-linux", mend: `did you mean "compilers"?`},
		{file: releaseFile, was: "after: [linux, mac, windows]", is: "after: [linux, mac, window]", mend: `did you mean "windows"?`},
		{file: releaseFile, was: "test: $nodes.checksum.status == \"completed\"", is: "test: $nodes.checksum.status = \"completed\"", mend: `did you mean "=="?`},
		{file: releaseFile, was: "$nodes.checksum.status == \"completed\"", is: "$nodes.checksum.status == \"complete\"", mend: `did you mean "completed"?`},
		{file: releaseFile, was: "$nodes.checksum.status", is: "$nodes.cheksum.status", mend: `did you mean "checksum"?`},
		{file: releaseFile, was: "{{error \"mac\"}}", is: "{{error \"macos\"}}", mend: `choose from vet, test, linux, mac`},
		{file: releaseFile, was: "dir: &module", is: "dri: &module", mend: `did you mean "dir"?`},
		{file: releaseFile, was: "strict_guards: true", is: "strict_gaurds: true", mend: `did you mean "strict_guards"?`},
		{file: releaseFile, was: "retry: {max_attempts: 2", is: "retry: {attempts: 2", mend: `did you mean "max_attempts"?`},
		{file: surveyFile, was: "\"output_schema\": {\"type\": \"object\"", is: "\"output_schema\": {\"type\": \"objekt\"", mend: `did you mean "object"?`},
		{file: surveyFile, was: "\"next\": {\"to\": \"summary\"", is: "\"next\": {\"to\": \"sumary\"", mend: `did you mean "summary"?`},
		{file: surveyFile, was: "\"query\": \"map_values", is: "\"qeury\": \"map_values", mend: `did you mean "query"?`},
		// edges
		{file: releaseFile, was: "    after: checksum\n", is: "", mend: `no edge leads from it to this node`},
		{file: releaseFile, was: "  - id: sums\n    kind: write\n    after: [{from: checksum, param: sums, data_only: true}]\n", is: "  - id: sums\n    kind: write\n", mend: `let an edge to this node have it as its param`},
		{file: releaseFile, was: "after: [{from: report, param: report}]", is: "after: report", mend: `let an edge to this node have it as its param`},
		{file: releaseFile, was: "after: [{from: report, param: report}]", is: "after: []", mend: `or an edge with this param`},
		{file: releaseFile, was: "after: [linux, mac, windows]", is: "after: [linux, windows]", mend: `name it in the after of this node`},
		{file: releaseFile, was: "      \"false\": report", is: "      \"flase\": report", mend: `did you mean "false"?`},
		{file: releaseFile, was: "      \"true\": sums\n      \"false\": report", is: "      \"true\": sums", mend: `name it in the after of this node`},
		{file: approvalFile, was: "    after: [{from: approve, param: answer, data_only: true}]\n", is: "", mend: `let an edge to this node have it as its param`},
		{file: approvalFile, was: "after: [{from: draft, param: text, data_only: true}]", is: "after: [{from: draft, data_only: true}]", mend: `let an edge to this node have it as its param`},
		{file: approvalFile, was: "after: [{from: draft, param: text, data_only: true}]", is: "after: [{from: draft, param: txt, data_only: true}]", mend: `did you mean "txt"?`},
		{file: approvalFile, was: "    next: approve\n", is: ""},
		{file: approvalFile, was: "      default: shelve\n", is: "", mend: `no edge has this label, nor "default"`},
		{file: surveyFile, was: "\"next\": {\"to\": \"count\", \"param\": \"input\"}},\n    {\"id\": \"changes\"", is: "\"next\": {\"param\": \"input\"}},\n    {\"id\": \"changes\"", mend: `the field "to" is missing`},
		{file: surveyFile, was: "\"next\": {\"to\": \"summary\", \"param\": \"count\"}", is: "\"next\": \"summary\"", mend: `let an edge to this node have it as its param`},
		{file: surveyFile, was: "      \"next\": {\"to\": \"summary\", \"param\": \"count\"}\n", is: "      \"next\": []\n", mend: `or an edge with this param`},
		{file: surveyFile, was: "      \"output_schema\": {\"type\": \"object\", \"required\": [\"files\", \"lines\"], \"properties\": {\"lines\": {\"type\": \"integer\"}}},\n      \"next\": {\"to\": \"summary\", \"param\": \"count\"}", is: "      \"next\": {\"to\": \"count\", \"param\": \"count\"}", mend: `take one of these edges out`},
		// compensations
		{file: releaseFile, was: "  - id: vet\n    kind: exec\n", is: "  - id: vet\n    kind: exec\n    compensate: {kind: exce, config: {command: [\"true\"]}}\n", mend: `did you mean "exec"?`},
		{file: releaseFile, was: "  - id: vet\n    kind: exec\n", is: "  - id: vet\n    kind: exec\n    compensate: exec\n", mend: `such as {"kind": "exec"}`},
		{file: releaseFile, was: "  - id: vet\n    kind: exec\n", is: "  - id: vet\n    kind: exec\n    compensate: {kind: exec, config: {comand: [\"true\"]}}\n", mend: `did you mean "command"?`},
		{file: releaseFile, was: "  - id: vet\n    kind: exec\n", is: "  - id: vet\n    kind: exec\n    compensate: {kind: exec}\n", mend: `command: the field is missing`},
		{file: releaseFile, was: "  - id: vet\n    kind: exec\n", is: "  - id: vet\n    kind: exec\n    compensat: {kind: exec, config: {command: [\"true\"]}}\n", mend: `did you mean "compensate"?`},
		{file: releaseFile, was: "  - id: vet\n    kind: exec\n", is: "  - id: vet\n    kind: exec\n    compensate: {kind: exec, config: {command: [echo, '{{outptu}}']}}\n", mend: `did you mean "output"?`},
		{file: releaseFile, was: "  - id: vet\n    kind: exec\n", is: "  - id: vet\n    kind: exec\n    compensate: {kind: gate, config: {command: [\"true\"]}}\n", mend: `unknown kind "gate"; there are`},
		{file: releaseFile, was: "  - id: vet\n    kind: exec\n", is: "  - id: vet\n    kind: exec\n    compensate_retry: {max_attempts: 3}\n", mend: `compensate_retry needs a compensation, and the node has none`},
		{file: releaseFile, was: "  - id: vet\n    kind: exec\n", is: "  - id: vet\n    kind: exec\n    compensate_timeout: 3s\n", mend: `compensate_timeout needs a compensation, and the node has none`},
		{file: releaseFile, was: "command: [go, vet, ./...]", is: "command: [echo, '{{output}}']", mend: `only the config of a compensate has {{output}}`},
		{file: releaseFile, was: "    test: $nodes.checksum.status", is: "    compensate: {kind: exec, config: {command: [\"true\"]}}\n    test: $nodes.checksum.status", mend: `a condition is never undone`},
		{file: approvalFile, was: "    kind: gate", is: "    kind: gate\n    compensate: {kind: write, config: {path: x, text: x}}", mend: `a gate is never undone`},
	}
}
