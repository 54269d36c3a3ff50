package kahn

// runHost is a Run as its State sees it. Its methods are called with the lock held.
type runHost Run

func (h *runHost) RunStatus() RunStatus { return (*Run)(h).status() }
func (h *runHost) Hurries() bool        { return (*Run)(h).hurries() }
func (h *runHost) BeganToWait(r Ref)    { (*Run)(h).beganToWait(r) }
func (h *runHost) EndedWait()           { (*Run)(h).endedWait() }
func (h *runHost) Keeps(r Ref) bool     { return (*Run)(h).keeps(r) }
func (h *runHost) Contends()            { (*Run)(h).contends() }
func (h *runHost) Grants() bool         { return (*Run)(h).grants() }
