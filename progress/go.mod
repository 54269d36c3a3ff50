module github.com/seed-c794f7ef/kahn/progress

go 1.25.0

require (
	github.com/creack/pty v1.1.24
	github.com/rivo/uniseg v0.4.7
	github.com/seed-c794f7ef/kahn v0.0.0
	golang.org/x/term v0.44.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
)

replace github.com/seed-c794f7ef/kahn => ../
