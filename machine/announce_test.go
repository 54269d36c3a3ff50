package machine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-c794f7ef/kahn/machine"
)

// announced is a host that counts announcements.
type announced struct{ times int }

func (h *announced) Reverses() bool { return false }

func (h *announced) RunStatus() machine.RunStatus { return machine.RunRunning }
func (h *announced) Hurries() bool                { return false }
func (h *announced) BeganToWait(machine.Ref)      {}
func (h *announced) EndedWait()                   {}
func (h *announced) Keeps(machine.Ref) bool       { return false }
func (h *announced) Contends()                    {}
func (h *announced) Grants() bool                 { return true }
func (h *announced) Announced()                   { h.times++ }

// randomNet returns a net of plain nodes, gates and nodes with checks, with random edges.
func randomNet(t *testing.T, rng *rand.Rand) *machine.Net {
	n := 1 + rng.IntN(12)
	ids, nodes := numbered(n, machine.NodeSpec{})
	var edges []machine.Edge
	for to := range n {
		switch rng.IntN(6) {
		case 0:
			nodes[to].Flags = machine.FlagGate | machine.FlagInline
		case 1:
			nodes[to].Flags = machine.FlagCheck
		}
		for from := range to {
			if rng.IntN(4) == 0 {
				edges = append(edges, edge(machine.Ref(from), machine.Ref(to)))
			}
		}
	}
	return build(t, ids, nodes, edges...)
}

// mover makes random moves with a State whose lock it holds. Each move is what a coordinator does in one critical section.
type mover struct {
	rng                  *rand.Rand
	s                    *machine.Locked
	open, backs, asleeps []machine.Token
	checks               []machine.Token
}

func (m *mover) take(from *[]machine.Token) (t machine.Token, ok bool) {
	if len(*from) == 0 {
		return t, false
	}
	i := m.rng.IntN(len(*from))
	t = (*from)[i]
	*from = append((*from)[:i:i], (*from)[i+1:]...)
	return t, true
}

// move makes one move. A move that the State rejects changes nothing.
func (m *mover) move() {
	s := m.s
	switch m.rng.IntN(9) {
	case 0, 1, 2:
		t, ok := s.Next()
		switch {
		case !ok:
		case t.Check:
			m.checks = append(m.checks, t.Token)
		default:
			m.open = append(m.open, t.Token)
		}
	case 3, 4:
		if t, ok := m.take(&m.open); ok {
			_ = s.Settle(t, machine.Outcome{Status: machine.Completed})
		}
	case 5:
		if t, ok := m.take(&m.checks); ok {
			_ = s.Checked(t, machine.CheckVerdict{})
		}
	case 6:
		if t, ok := m.take(&m.open); ok {
			if s.Retry(t) == nil {
				m.backs = append(m.backs, t)
			} else if s.Suspend(t) == nil {
				m.asleeps = append(m.asleeps, t)
			}
		}
	case 7:
		if t, ok := m.take(&m.backs); ok {
			_ = s.Requeue(t, machine.Retrying)
		} else if t, ok := m.take(&m.asleeps); ok {
			_ = s.Settle(t, machine.Outcome{Status: machine.Completed})
		}
	case 8:
		if m.rng.IntN(10) == 0 {
			_ = s.StopNode(machine.Ref(m.rng.IntN(3)), machine.CauseCancelNode, machine.NoRef, machine.StopAsking)
		}
	}
}

// disagreement makes random moves with a State, calls announce after each, and compares the announcements to the host with HasNext. A task must
// be announced if and only if no announcement is open. disagreement returns the number of announcements.
func disagreement(t *testing.T, seed uint64, announce func(*machine.Locked)) (made int, err error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	h := &announced{}
	s := (*machine.Locked)(machine.New(randomNet(t, rng), &machine.Setup{Limit: rng.IntN(3)}))
	s.DrivenBy(h, nil)
	m := &mover{rng: rng, s: s}
	open := false
	for i := range 60 {
		if open && rng.IntN(3) == 0 { // a worker answers the open announcement
			s.Answer()
			open = false
		}
		m.move()
		want := h.times
		if s.HasNext() && !open {
			want, open = want+1, true
		}
		if announce(s); h.times != want {
			return h.times, fmt.Errorf("seed %d, move %d: %d announcements instead of %d", seed, i, h.times, want)
		}
	}
	return h.times, nil
}

// A State announces once that there is a task, and again only after the announcement was answered: see Announce. As a control, the test must find
// three faults: only the first task is announced, open announcements are repeated, or no task is announced while nodes hold slots.
func TestAnnouncesWhatThereIsToDo(t *testing.T) {
	t.Parallel()
	made := 0
	faults := map[string]int{}
	for seed := range uint64(400) {
		n, err := disagreement(t, seed, (*machine.Locked).Announce)
		require.NoError(t, err)
		made += n
		first := true
		for name, faulty := range map[string]func(*machine.Locked){
			"once": func(s *machine.Locked) {
				if first && s.HasNext() {
					s.Announce()
					first = false
				}
			},
			"again": func(s *machine.Locked) { s.Answer(); s.Announce() },
			"idle": func(s *machine.Locked) {
				if len(s.HeldSlots()) == 0 {
					s.Announce()
				}
			},
		} {
			if _, err := disagreement(t, seed, faulty); err != nil {
				faults[name]++
			}
		}
	}
	require.Greater(t, made, 2000)
	for _, name := range []string{"once", "again", "idle"} {
		require.Greater(t, faults[name], 100, name)
	}
}

// WorkSignal changes exactly when HasNext becomes true or a running node is asked to stop.
func TestWorkSignalIsWhatIsAnnounced(t *testing.T) {
	t.Parallel()
	turned, asked := 0, 0
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 2))
		st := machine.New(randomNet(t, rng), &machine.Setup{Limit: rng.IntN(3)})
		work := st.WorkSignal()
		var open []machine.Token
		stopped := map[machine.Ref]bool{}
		call := func(f func() (asks bool)) {
			has := (*machine.Locked)(st).HasNext
			had, before := has(), work.Load()
			asks := f()
			turns := has() && !had
			require.Equal(t, turns || asks, work.Load() != before, "seed %d", seed)
			if turns {
				turned++
			}
			if asks {
				asked++
			}
		}
		for range 40 {
			switch k := rng.IntN(len(open) + 2); {
			case k < len(open) && rng.IntN(8) > 0:
				call(func() bool { _ = st.Settle(open[k], machine.Outcome{Status: machine.Completed}); return false })
				open = append(open[:k:k], open[k+1:]...)
			case k < len(open):
				call(func() bool {
					ref := open[k].Ref
					first := st.Status(ref) == machine.Running && !stopped[ref]
					stopped[ref] = true
					return st.StopNode(ref, machine.CauseCancelNode) == nil && first
				})
			default:
				var task machine.Task
				var ok bool
				call(func() bool { task, ok = st.Next(); return false })
				switch {
				case ok && task.Check:
					call(func() bool { require.NoError(t, st.Checked(task.Token, machine.CheckVerdict{})); return false })
				case ok:
					open = append(open, task.Token)
				}
			}
		}
	}
	require.Greater(t, turned, 500)
	require.Greater(t, asked, 50)
}

// Drive calls abort once for each call whose node was stopped before it ended, with the token of the last attempt. Drive does the same for a
// restored State. It calls abort neither for a node that has not begun nor for a node that has completed. The calls of abort are in the order of
// the stops.
func TestDriveAborts(t *testing.T) {
	t.Parallel()
	net := build(t, "runs retries waits asked done idle", nil, edge(0, 5))
	st := machine.New(net, &machine.Setup{})
	var tokens [6]machine.Token
	var aborted []string
	drive := func(st *machine.State) {
		require.NoError(t, st.Drive(func(task machine.Task) { tokens[task.Ref] = task.Token }, func(t machine.Token) {
			aborted = append(aborted, fmt.Sprint(net.ID(t.Ref), t.Attempt))
		}))
	}
	drive(st)
	require.NoError(t, st.Retry(tokens[1]))
	require.NoError(t, st.Requeue(tokens[1]))
	require.NoError(t, st.Retry(tokens[1]))
	require.NoError(t, st.Suspend(tokens[2]))
	require.NoError(t, st.Settle(tokens[4], machine.Outcome{Status: machine.Completed}))
	require.Empty(t, aborted)
	x := st.Snapshot()
	stop := func(st *machine.State) {
		aborted = nil
		require.NoError(t, st.StopNode(3, machine.CauseCancelNode))
		require.NoError(t, st.Stop(machine.CauseCancelRun))
		require.NoError(t, st.Settle(tokens[0], machine.Outcome{Status: machine.Cancelled, Cause: machine.CauseCancelRun}))
	}
	stop(st)
	want := []string{"asked1", "retries2", "waits1", "runs1", "runs1"} // runs1 is listed twice: it was asked to stop, and was then ended
	require.Equal(t, want, aborted)

	again, err := machine.RestoreState(net, &machine.Setup{}, &x)
	require.NoError(t, err)
	drive(again)
	stop(again)
	require.Equal(t, want, aborted)

	disposed, err := machine.RestoreState(net, &machine.Setup{}, &x)
	require.NoError(t, err)
	drive(disposed)
	disposed.Dispose()
	stop(disposed)
	require.Empty(t, aborted)
}
