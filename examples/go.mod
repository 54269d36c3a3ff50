module github.com/seed-c794f7ef/kahn/examples

go 1.25.0

require (
	github.com/seed-c794f7ef/kahn v0.0.0
	github.com/seed-c794f7ef/kahn/progress v0.0.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/term v0.44.0 // indirect
)

replace (
	github.com/seed-c794f7ef/kahn => ../
	github.com/seed-c794f7ef/kahn/progress => ../progress
)
