package reactive

// Source is a [Scope] some of whose values come from elsewhere: from a machine that has a lock of its own, changes while it
// holds that, and must not wait for callbacks. The values are of type [Value]: everybody can read and observe them, and the
// machine alone sets them.
//
// The machine calls Announce, under its lock, when there is something new; when it has released the lock it calls Deliver. The
// holder of the scope's lock then calls publish, which takes the machine's lock and sets all values that have changed. So the
// order of locks is: scope, then machine. Callbacks may call the machine, and who drives the machine waits for no callback.
type Source struct {
	scope   Scope
	changed []*node // values that publish has set; guarded by the scope's lock
}

// Init makes publish the function that brings in what is new. It is called once, before the Source is used. publish is called
// with the scope's lock held, after an announcement and when the scope has been disposed of.
func (s *Source) Init(publish func(*Publication)) {
	s.scope.feed = func() {
		s.scope.commit() // what callbacks have written: not while publish holds a lock, since an equality may be user code
		publish((*Publication)(s))
		// The values are committed. Dependents are notified without the machine's lock: there may be many.
		for _, n := range s.changed {
			s.scope.notify(n)
		}
		clear(s.changed)
		s.changed = s.changed[:0]
	}
}

// Scope returns the scope.
func (s *Source) Scope() *Scope { return &s.scope }

// Announce notes that there is something to publish. It takes no lock, and calls nothing.
func (s *Source) Announce() { s.scope.asked.Store(true) }

// Deliver publishes what was announced and lets effects run. If a callback of the scope is running, or somebody else holds the
// scope's lock, it returns at once, and whoever holds the lock does it before releasing that. It is not called with the
// machine's lock held.
func (s *Source) Deliver() { s.scope.serve() }

// DeliverAll is Deliver, but it waits for the scope's lock. Afterwards what was announced before the call has been published.
func (s *Source) DeliverAll() {
	s.scope.mu.Lock()
	s.scope.answer()
}

// Publication is how publish sets the values of its [Source].
type Publication Source

// Disposed reports whether the scope was disposed of: nothing needs to be published any more.
func (p *Publication) Disposed() bool { return p.scope.disposed.Load() }

// Commit shows what was set to everybody who loads a value. publish calls it after its last Publish, with the machine's lock held:
// a value that is made under that lock then shows either the same point of the machine as the others or the one after it.
func (p *Publication) Commit() { p.scope.commit() }

// NewValue returns a value of the source.
func NewValue[T comparable](s *Source, x T) *Value[T] {
	v := &Value[T]{}
	v.init(&s.scope, x, func(a, b T) bool { return a == b })
	return v
}

// Publish sets a value of the publication's source. A nil value is one that nobody has asked for.
func Publish[T any](p *Publication, v *Value[T], x T) {
	if v != nil && v.write(x) {
		p.changed = append(p.changed, &v.node)
	}
}
