package reactive

// Source is a [Scope] whose values show the state of a machine. The machine has its own lock, changes its state under this lock, and must not wait
// for callbacks. The values are of type [Value]: any code can read and observe them, but only the machine sets them.
//
// The machine calls Announce, under its lock, after its state has changed. It calls Deliver after it has released the lock. The holder of the
// scope's lock then calls `publish`, the function that was passed to Init. This function takes the machine's lock and sets all values that have
// changed. So the scope's lock is always taken before the machine's lock. Therefore callbacks may call the machine, and callers of the machine never
// wait for a callback.
type Source struct {
	scope   Scope
	changed []*node // values that Publish has set; guarded by the scope's lock
}

// Init sets the function `publish`, which publishes changes. Call Init once, before the Source is used. The Source calls `publish` after an
// announcement and after the scope's disposal. The caller of `publish` holds the scope's lock.
func (s *Source) Init(publish func(*Publication)) {
	s.scope.feed = func() {
		// Commit the writes of callbacks now, before `publish` takes the machine's lock: a commit may call equality functions, which may be user code.
		s.scope.commit()
		publish((*Publication)(s))
		// The values are committed now. Dependents are notified without the machine's lock, since there may be many.
		for _, n := range s.changed {
			s.scope.notify(n)
		}
		clear(s.changed)
		s.changed = s.changed[:0]
	}
}

// Scope returns the scope.
func (s *Source) Scope() *Scope { return &s.scope }

// Announce records that there are changes to publish. It takes no lock and calls no user code.
func (s *Source) Announce() { s.scope.asked.Store(true) }

// Deliver publishes the announced changes and runs effects. If a callback of the scope is running, or another goroutine holds the scope's lock,
// Deliver returns at once, and the holder of the lock publishes instead. The caller must not hold the machine's lock.
func (s *Source) Deliver() { s.scope.serve() }

// DeliverAll is like Deliver, but waits for the scope's lock. Every change that was announced before the call is published when DeliverAll returns.
func (s *Source) DeliverAll() {
	s.scope.mu.Lock()
	s.scope.answer()
	s.scope.serve() // a Deliver that found the lock taken has returned, and relies on the holder of the lock to publish
}

// Publication is the tracker with which the function `publish` sets the values of its [Source].
type Publication Source

// Disposed reports whether the scope was disposed of. If it was, the function `publish` need not set values.
func (p *Publication) Disposed() bool { return p.scope.disposed.Load() }

// Commit makes the values that Publish has set visible to Load. The function `publish` calls Commit after its last Publish, while it holds the
// machine's lock. The machine may call NewValue under its lock. Since it also calls Commit under this lock, a new value never shows an older state
// than Load of the other values.
func (p *Publication) Commit() { p.scope.commit() }

// NewValue returns a value of the source.
func NewValue[T comparable](s *Source, x T) *Value[T] {
	v := &Value[T]{}
	v.init(&s.scope, x, func(a, b T) bool { return a == b })
	return v
}

// Publish sets a value of the publication's source. If v is nil, the machine has not created the value yet, and Publish does nothing.
func Publish[T any](p *Publication, v *Value[T], x T) {
	if v != nil && v.write(x) {
		p.changed = append(p.changed, &v.node)
	}
}
