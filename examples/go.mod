module github.com/seed-c794f7ef/kahn/examples

go 1.25.0

require github.com/seed-c794f7ef/kahn v0.0.0

require github.com/google/uuid v1.6.0 // indirect

replace github.com/seed-c794f7ef/kahn => ../
