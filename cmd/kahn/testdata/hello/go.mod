module example.com/hello

go 1.25.0
