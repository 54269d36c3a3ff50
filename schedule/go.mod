module github.com/seed-c794f7ef/kahn/schedule

go 1.25.0

require (
	github.com/robfig/cron/v3 v3.0.1
	github.com/seed-c794f7ef/kahn v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/google/uuid v1.6.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.22.0 // indirect
)

replace github.com/seed-c794f7ef/kahn => ../
