package verify

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const matrixFile = "../conformance/testdata/matrix.txt"

// matrixFiles returns the conformance matrix, and files in its format from the environment variable KAHN_MATRIX: a list separated by
// colons, relative to the root of the repository.
func matrixFiles() []string {
	files := []string{matrixFile}
	for _, file := range filepath.SplitList(os.Getenv("KAHN_MATRIX")) {
		if !filepath.IsAbs(file) {
			file = filepath.Join("..", file)
		}
		files = append(files, file)
	}
	return files
}

// The model must agree with the conformance matrix, which was written before the model and before kahn.
func TestModelAgreesWithMatrix(t *testing.T) {
	for _, file := range matrixFiles() {
		rows, err := matrix(file)
		require.NoError(t, err)
		require.NotEmpty(t, rows)
		for _, r := range rows {
			t.Run(fmt.Sprintf("%s:%d", file, r.line), func(t *testing.T) {
				p := predict(r.g)
				got := map[string]string{}
				for id, f := range p.fates {
					got[id] = f.short()
				}
				assert.Equal(t, r.statuses, got, "%v", r.g)
				assert.Equal(t, r.run, p.status["escaped"], "%v", r.g)
				assert.Equal(t, r.degraded, p.degraded["escaped"], "degraded of %v", r.g)
				for rule, want := range r.others {
					assert.Equal(t, want, p.status[rule], "%s status of %v", rule, r.g)
				}
			})
		}
	}
}

// The parser must accept the graph that a failing test prints.
func TestNotationSurvivesARoundTrip(t *testing.T) {
	rows, err := matrix(matrixFile)
	require.NoError(t, err)
	for _, r := range rows {
		requireRoundTrip(t, r.g)
	}
}

// short renders a fate in the notation of the matrix.
func (f *fate) short() string {
	if f.status == "S" {
		return "S/" + f.reason
	}
	return f.status
}
