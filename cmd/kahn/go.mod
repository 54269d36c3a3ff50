module github.com/seed-c794f7ef/kahn/cmd/kahn

go 1.25.0

require (
	github.com/itchyny/gojq v0.12.20
	github.com/seed-c794f7ef/kahn v0.0.0
	github.com/seed-c794f7ef/kahn/definition/yaml v0.0.0
	github.com/seed-c794f7ef/kahn/expression v0.0.0
	github.com/seed-c794f7ef/kahn/progress v0.0.0
	github.com/seed-c794f7ef/kahn/schema v0.0.0
	go.yaml.in/yaml/v4 v4.0.0
	golang.org/x/term v0.44.0
)

require (
	github.com/expr-lang/expr v1.17.8 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/itchyny/timefmt-go v0.1.9 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)

replace (
	github.com/seed-c794f7ef/kahn => ../../
	github.com/seed-c794f7ef/kahn/definition/yaml => ../../definition/yaml
	github.com/seed-c794f7ef/kahn/expression => ../../expression
	github.com/seed-c794f7ef/kahn/inspector => ../../inspector
	github.com/seed-c794f7ef/kahn/progress => ../../progress
	github.com/seed-c794f7ef/kahn/schema => ../../schema
	github.com/seed-c794f7ef/kahn/store/sqlite => ../../store/sqlite
)
