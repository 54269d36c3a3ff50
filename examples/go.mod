module github.com/seed-c794f7ef/kahn/examples

go 1.25.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/seed-c794f7ef/kahn v0.0.0
	github.com/seed-c794f7ef/kahn/definition/yaml v0.0.0
	github.com/seed-c794f7ef/kahn/inspector v0.0.0
	github.com/seed-c794f7ef/kahn/progress v0.0.0
	github.com/seed-c794f7ef/kahn/schedule v0.0.0
	github.com/seed-c794f7ef/kahn/store/postgres v0.0.0
	github.com/seed-c794f7ef/kahn/store/sqlite v0.0.0
	golang.org/x/tools v0.49.0
)

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/term v0.44.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	modernc.org/libc v1.75.7 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
	modernc.org/sqlite v1.59.0 // indirect
)

replace (
	github.com/seed-c794f7ef/kahn => ../
	github.com/seed-c794f7ef/kahn/definition/yaml => ../definition/yaml
	github.com/seed-c794f7ef/kahn/expression => ../expression
	github.com/seed-c794f7ef/kahn/inspector => ../inspector
	github.com/seed-c794f7ef/kahn/progress => ../progress
	github.com/seed-c794f7ef/kahn/schedule => ../schedule
	github.com/seed-c794f7ef/kahn/schema => ../schema
	github.com/seed-c794f7ef/kahn/store/postgres => ../store/postgres
	github.com/seed-c794f7ef/kahn/store/sqlite => ../store/sqlite
)
