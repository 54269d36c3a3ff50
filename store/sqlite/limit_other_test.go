//go:build !unix

package sqlite_test

import "testing"

func limitFiles(t *testing.T, _ uint64) { t.Fatal("this system has no limit of file sizes") }

func becomeNobody(*testing.T) {}
