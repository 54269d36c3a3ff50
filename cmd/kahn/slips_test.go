package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// slip is a mistake in one of the definitions of this project: the text was is written as is.
type slip struct{ file, was, is string }

// unanswered are slips that make another valid definition, by their numbers, with the reason.
var unanswered = map[int]string{
	54: "a node without edges may take the root inputs as its parameters, and the definition takes any",
	56: "what an expression can answer is not known before it is evaluated",
	61: "a graph without this edge is one as well",
	65: "a node without edges may take the root inputs as its parameters, and the definition takes any",
}

const (
	approvalFile = "definitions/approval.yaml"
	releaseFile  = "definitions/release.yaml"
	surveyFile   = "definitions/survey.json"
)

// Each slip is answered with file, line and column, or is listed with the reason.
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
	}
}

// allSlips are the slips.
func allSlips() []slip {
	return []slip{
		// indent
		{file: approvalFile, was: "  - id: draft\n    kind: template", is: "  - id: draft\n   kind: template"},
		{file: approvalFile, was: "    next: approve\n", is: "   next: approve\n"},
		{file: approvalFile, was: "    branches:\n      approved: publish", is: "    branches:\n    approved: publish"},
		{file: approvalFile, was: "      approved: publish\n      default: shelve", is: "      approved: publish\n       default: shelve"},
		{file: approvalFile, was: "    config:\n      path:", is: "    config:\n    path:"},
		{file: approvalFile, was: "      text: '{{param \"text\"}}'", is: "     text: '{{param \"text\"}}'"},
		{file: approvalFile, was: "    label: May this", is: "\tlabel: May this"},
		{file: releaseFile, was: "  retry: {max_attempts", is: "retry: {max_attempts"},
		{file: releaseFile, was: "  - {name: compilers, limit: 3}", is: "  {name: compilers, limit: 3}"},
		{file: releaseFile, was: "  - id: vet\n    kind: exec", is: "  - id: vet\n  kind: exec"},
		{file: releaseFile, was: "    config:\n      command: [go, vet, ./...]\n", is: "    config:\n  command: [go, vet, ./...]\n"},
		{file: releaseFile, was: "    branches:\n      \"true\": sums", is: "    branches:\n    \"true\": sums"},
		{file: releaseFile, was: "        The release failed.\n", is: "      The release failed.\n"},
		{file: releaseFile, was: "  - id: failed\n", is: "   - id: failed\n"},
		{file: releaseFile, was: "      files: '{{input", is: "    files: '{{input"},
		{file: approvalFile, was: "nodes:\n  - id: draft", is: "nodes:\n  id: draft"},
		// type
		{file: approvalFile, was: "gate: {timeout: 72h,", is: "gate: {timeout: 72,"},
		{file: approvalFile, was: "strict_guards: true", is: "strict_guards: 'true'"},
		{file: approvalFile, was: "version: 1", is: "version: '1'"},
		{file: approvalFile, was: "data_only: true}]\n    config:", is: "data_only: 1}]\n    config:"},
		{file: approvalFile, was: "    kind: gate", is: "    kind: 3"},
		{file: approvalFile, was: "label: May this be published?", is: "label: [May this be published?]"},
		{file: approvalFile, was: "    branches:\n      approved: publish\n      default: shelve", is: "    branches: [publish, shelve]"},
		{file: releaseFile, was: "limit: 3}", is: "limit: three}"},
		{file: releaseFile, was: "retry_on: [timeout]", is: "retry_on: timeout"},
		{file: releaseFile, was: "max_attempts: 2,", is: "max_attempts: 2.5,"},
		{file: releaseFile, was: "timeout: 10m", is: "timeout: 10 minutes"},
		{file: releaseFile, was: "command: [go, test, -count=1, ./...]", is: "command: go test ./..."},
		{file: releaseFile, was: "files: '{{input \"out\" (print tempdir \"/hello-release\")}}/release-*'", is: "files: [1, 2]"},
		{file: surveyFile, was: "\"continue_on_fail\": true", is: "\"continue_on_fail\": \"yes\""},
		{file: surveyFile, was: "\"merge\": \"json_object\"", is: "\"merge\": true"},
		{file: surveyFile, was: "\"required\": [\"files\", \"lines\"]", is: "\"required\": \"files\""},
		// words
		{file: approvalFile, was: "    kind: write\n", is: "    kind: wirte\n"},
		{file: approvalFile, was: "on_timeout: label", is: "on_timeout: lable"},
		{file: approvalFile, was: "      default: shelve", is: "      default: shelf"},
		{file: approvalFile, was: "after: [{from: approve, param: answer", is: "after: [{form: approve, param: answer"},
		{file: approvalFile, was: "'Not published: {{param \"answer\"}}'", is: "'Not published: {{param \"anwser\"}}'"},
		{file: approvalFile, was: "{{input \"reader\" \"reader\"}}", is: "{{inptu \"reader\" \"reader\"}}"},
		{file: approvalFile, was: "      approved: publish", is: "      publish: approved"},
		{file: releaseFile, was: "groups: [compilers]\n    estimate: 10s\n    config:\n      command: [go, build, -trimpath, -o, '{{input \"out\" (print tempdir \"/hello-release\")}}/release-linux", is: "groups: [compiler]\n    estimate: 10s\n    config:\n      command: [go, build, -trimpath, -o, '{{input \"out\" (print tempdir \"/hello-release\")}}/release-linux"},
		{file: releaseFile, was: "after: [linux, mac, windows]", is: "after: [linux, mac, window]"},
		{file: releaseFile, was: "test: $nodes.checksum.status == \"completed\"", is: "test: $nodes.checksum.status = \"completed\""},
		{file: releaseFile, was: "$nodes.checksum.status == \"completed\"", is: "$nodes.checksum.status == \"complete\""},
		{file: releaseFile, was: "$nodes.checksum.status", is: "$nodes.cheksum.status"},
		{file: releaseFile, was: "{{error \"mac\"}}", is: "{{error \"macos\"}}"},
		{file: releaseFile, was: "dir: &module", is: "dri: &module"},
		{file: releaseFile, was: "strict_guards: true", is: "strict_gaurds: true"},
		{file: releaseFile, was: "retry: {max_attempts: 2", is: "retry: {attempts: 2"},
		{file: surveyFile, was: "\"output_schema\": {\"type\": \"object\"", is: "\"output_schema\": {\"type\": \"objekt\""},
		{file: surveyFile, was: "\"next\": {\"to\": \"summary\"", is: "\"next\": {\"to\": \"sumary\""},
		{file: surveyFile, was: "\"query\": \"map_values", is: "\"qeury\": \"map_values"},
		// edges
		{file: releaseFile, was: "    after: checksum\n", is: ""},
		{file: releaseFile, was: "  - id: sums\n    kind: write\n    after: [{from: checksum, param: sums, data_only: true}]\n", is: "  - id: sums\n    kind: write\n"},
		{file: releaseFile, was: "after: [{from: report, param: report}]", is: "after: report"},
		{file: releaseFile, was: "after: [{from: report, param: report}]", is: "after: []"},
		{file: releaseFile, was: "after: [linux, mac, windows]", is: "after: [linux, windows]"},
		{file: releaseFile, was: "      \"false\": report", is: "      \"flase\": report"},
		{file: releaseFile, was: "      \"true\": sums\n      \"false\": report", is: "      \"true\": sums"},
		{file: approvalFile, was: "    after: [{from: approve, param: answer, data_only: true}]\n", is: ""},
		{file: approvalFile, was: "after: [{from: draft, param: text, data_only: true}]", is: "after: [{from: draft, data_only: true}]"},
		{file: approvalFile, was: "after: [{from: draft, param: text, data_only: true}]", is: "after: [{from: draft, param: txt, data_only: true}]"},
		{file: approvalFile, was: "    next: approve\n", is: ""},
		{file: approvalFile, was: "      default: shelve\n", is: ""},
		{file: surveyFile, was: "\"next\": {\"to\": \"count\", \"param\": \"input\"}},\n    {\"id\": \"changes\"", is: "\"next\": {\"param\": \"input\"}},\n    {\"id\": \"changes\""},
		{file: surveyFile, was: "\"next\": {\"to\": \"summary\", \"param\": \"count\"}", is: "\"next\": \"summary\""},
		{file: surveyFile, was: "      \"next\": {\"to\": \"summary\", \"param\": \"count\"}\n", is: "      \"next\": []\n"},
		{file: surveyFile, was: "      \"output_schema\": {\"type\": \"object\", \"required\": [\"files\", \"lines\"], \"properties\": {\"lines\": {\"type\": \"integer\"}}},\n      \"next\": {\"to\": \"summary\", \"param\": \"count\"}", is: "      \"next\": {\"to\": \"count\", \"param\": \"count\"}"},
	}
}
