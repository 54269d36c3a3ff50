package kahn

func init() { panicOnBug = true }

// EdgeVisits counts the edges that a run has visited.
func (s *State) EdgeVisits() int64 { return s.visits }

// EdgeVisits counts the edges that the run visited.
func (r *Result) EdgeVisits() int64 { return r.run.st.visits }
