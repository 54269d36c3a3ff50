package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// formats lists the ways to print problems. The first is the default.
var formats = []string{"text", "json", "github", "sarif"}

// writeAs writes the problems in one of the formats.
func (ps problems) writeAs(w io.Writer, format string) {
	switch format {
	case "json":
		writeJSON(w, ps)
	case "github":
		for _, p := range ps {
			_, _ = fmt.Fprintln(w, p.annotation()) // the command reports the error when it ends
		}
	case "sarif":
		writeJSON(w, ps.sarif())
	default:
		ps.write(w)
	}
}

func writeJSON(w io.Writer, v any) {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // the command reports the error when it ends
}

// annotationText escapes the message of a GitHub Actions workflow command. annotationValue escapes the value of a property of this command.
var (
	annotationText  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	annotationValue = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// annotation returns the problem as a workflow command of GitHub Actions. In a pull request, GitHub shows the problem at its line.
func (p problem) annotation() string {
	var b strings.Builder
	fmt.Fprintf(&b, "::%s file=%s", p.Severity, annotationValue.Replace(filepath.ToSlash(p.File)))
	if p.Line > 0 {
		fmt.Fprintf(&b, ",line=%d,col=%d", p.Line, p.Column)
	}
	b.WriteString(",title=kahn::")
	b.WriteString(annotationText.Replace(p.said()))
	return b.String()
}

// These types are the part of SARIF 2.1.0 that the report needs.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Columns string        `json:"columnKind"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		URI     string      `json:"informationUri"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID          string    `json:"id"`
		Description sarifText `json:"shortDescription"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		Rule      string          `json:"ruleId"`
		Index     int             `json:"ruleIndex"`
		Level     severity        `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
	}
)

// sarifRules has one rule for each severity. The severities have the same names as SARIF's levels.
var sarifRules = []sarifRule{
	{string(isError), sarifText{"The definition cannot be run as it is."}},
	{string(isWarning), sarifText{"The definition is valid, and probably not what is meant."}},
}

// sarif returns the problems as a report for tools that read SARIF, such as GitHub's code scanning.
func (ps problems) sarif() sarifLog {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
	}
	run := sarifRun{
		Tool:    sarifTool{sarifDriver{Name: "kahn", URI: "https://" + library, Version: version, Rules: sarifRules}},
		Columns: "unicodeCodePoints",
		Results: make([]sarifResult, len(ps)),
	}
	for i, p := range ps {
		at := sarifLocation{Physical: sarifPhysical{Artifact: sarifArtifact{fileURI(p.File)}}}
		if p.Line > 0 {
			at.Physical.Region = &sarifRegion{p.Line, p.Column}
		}
		if p.Path != "" {
			at.Logical = []sarifLogical{{p.Path}}
		}
		result := sarifResult{Rule: string(p.Severity), Level: p.Severity, Message: sarifText{p.said()}, Locations: []sarifLocation{at}}
		if p.Severity == isWarning {
			result.Index = 1
		}
		run.Results[i] = result
	}
	return sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

// fileURI returns the name of a file as a URI reference. The reference is absolute if the name is absolute; otherwise it is relative.
func fileURI(name string) string {
	u := url.URL{Path: filepath.ToSlash(name)}
	if filepath.IsAbs(name) {
		u.Scheme = "file"
		if !strings.HasPrefix(u.Path, "/") { // C:/flows
			u.Path = "/" + u.Path
		}
	}
	return u.String()
}
