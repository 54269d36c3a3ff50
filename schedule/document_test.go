package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/definition"
	"github.com/seed-c794f7ef/kahn/schedule"
)

// FromDocument copies the fields and the name of a document's schedule; the runs have the document's inputs and the time of the tick. Load
// reports bad fields with their places.
func TestFromDocument(t *testing.T) {
	t.Parallel()
	load := func(text string) (*definition.Document, error) {
		return definition.Loader{CheckSchedule: schedule.Check}.Load([]byte(text))
	}
	doc, err := load(`{"version": 1, "name": "report", "inputs": ["tick", "region", {"name": "format", "default": "pdf"}], "nodes": [{"id": "a"}], "schedule": {
		"cron": "30 2 * * *", "zone": "Europe/Berlin", "missed": "none", "starting_deadline": "5m", "overlap": "allow", "jitter": "30s", "key": "acme", "priority": -10,
		"labels": {"team": "data"}, "inputs": {"region": "eu"}}}`)
	require.NoError(t, err)
	s, err := schedule.FromDocument(doc)
	require.NoError(t, err)
	inputs, err := s.Inputs(time.Date(2026, 10, 25, 2, 30, 0, 0, time.FixedZone("", 2*60*60)))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"tick": "2026-10-25T00:30:00Z", "region": "eu"}, inputs)
	s.Inputs = nil
	require.Equal(t, schedule.Schedule{
		Name: "report", Workflow: "report", Cron: "30 2 * * *", Zone: "Europe/Berlin", Missed: schedule.None, StartingDeadline: 5 * time.Minute,
		Overlap: schedule.Allow, Jitter: 30 * time.Second, Labels: map[string]string{"team": "data"}, Key: "acme", Priority: -10,
	}, s)

	doc, err = load(`{"version": 1, "name": "report", "nodes": [{"id": "a"}], "schedule": {"name": "nightly", "every": "90s"}}`)
	require.NoError(t, err)
	s, err = schedule.FromDocument(doc)
	require.NoError(t, err)
	require.Equal(t, schedule.Schedule{Name: "nightly", Workflow: "report", Every: 90 * time.Second}, s)

	doc, err = load(`{"version": 1, "name": "report", "nodes": [{"id": "a"}]}`)
	require.NoError(t, err)
	_, err = schedule.FromDocument(doc)
	require.ErrorIs(t, err, schedule.ErrBadSchedule)

	for text, want := range map[string][]string{
		`{"cron": "30 2 * * 8"}`:                                     {`$.schedule.cron: bad schedule: cron "30 2 * * 8": day of week "8": end of range (8) above maximum (6): 8`},
		`{"cron": "61 * * * *", "zone": "Europe/Bärlin"}`:            {`$.schedule.cron: bad schedule: cron "61 * * * *": minute "61": end of range (61) above maximum (59): 61`, `$.schedule.zone: bad schedule: zone "Europe/Bärlin" is not in the IANA database`},
		`{"every": "1500ms"}`:                                        {`$.schedule.every: bad schedule: interval 1.5s is not a positive number of seconds`},
		`{"every": "1s", "labels": {"schedule.tick": "now"}}`:        {`$.schedule.labels: bad schedule "name": the label "schedule.tick": labels that begin with "schedule" are reserved for package schedule`},
		`{"every": "1s", "priority": 101}`:                           {`$.schedule.priority: bad schedule: bad value: the priority 101 is not from -100 to 100`},
		`{"every": "1s", "key": "` + strings.Repeat("k", 201) + `"}`: {`$.schedule.key: bad schedule: bad value: the key "` + strings.Repeat("k", 60) + `" has 201 bytes; a key has up to 200`},
	} {
		_, err := load(`{"version": 1, "name": "report", "nodes": [{"id": "a"}], "schedule": ` + text + `}`)
		require.ErrorIs(t, err, schedule.ErrBadSchedule)
		var all *definition.Error
		require.ErrorAs(t, err, &all)
		var got []string
		for _, p := range all.Problems {
			got = append(got, p.Path+": "+p.Message)
		}
		require.Equal(t, want, got)
	}
	problem := schedule.Check(&definition.Schedule{Cron: "x"})
	var p *kahn.Problem
	require.ErrorAs(t, problem, &p)
	require.Equal(t, "Cron", p.Field)
}
