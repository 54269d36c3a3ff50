package kahn

import (
	"context"
	"fmt"
)

// askCaller asks the caller's context whether it may end, and why it has ended if it has. It is user code, and so is called
// without the lock.
func askCaller(ctx context.Context) (mayEnd bool, ended *stopCause, err error) {
	err = contain(func() error {
		if mayEnd = ctx.Done() != nil; ctx.Err() != nil {
			ended = callerCause(ctx)
		}
		return nil
	})
	if err != nil {
		return false, nil, fmt.Errorf("the context: %w", err)
	}
	return mayEnd, ended, nil
}

// followCaller arranges that the end of the caller's context stops the run. The run stops following that context before it
// ends. Both may call methods of the context, so neither happens under the lock.
func (r *Run) followCaller() {
	s := &r.st
	s.Lock()
	if r.followed || r.concluded() {
		s.Unlock()
		return
	}
	r.followed = true
	r.timers++
	s.Unlock()
	var unfollow func() bool
	cause := callerGone
	defer func() {
		if unfollow == nil {
			r.endFollow(func(int64) { r.stopForContext(cause) })
			return
		}
		s.Lock()
		r.unfollow = unfollow
		r.release(r.now()) // it may have ended meanwhile
	}()
	err := contain(func() error {
		unfollow = context.AfterFunc(r.ctx, r.callerEnded)
		return nil
	})
	if err != nil {
		cause = &stopCause{err, context.Canceled}
	}
}

// callerEnded is called, on a goroutine of its own, when the caller's context has ended.
func (r *Run) callerEnded() {
	cause := callerGone
	defer func() { r.endFollow(func(int64) { r.stopForContext(cause) }) }()
	if err := contain(func() error { cause = callerCause(r.ctx); return nil }); err != nil {
		cause = &stopCause{err, context.Canceled}
	}
}

// endFollow is the last action of a run that follows its caller's context. It acts once.
func (r *Run) endFollow(f func(now int64)) {
	if r.unfollowed.CompareAndSwap(false, true) {
		r.callback(f)
	}
}

// leaveCaller stops following the caller's context. If that has ended, callerEnded is on its way.
func (r *Run) leaveCaller(unfollow func() bool) {
	left := true // also if it panics or ends the goroutine
	defer func() {
		if left {
			r.endFollow(func(int64) {})
		}
	}()
	_ = contain(func() error { // a panic cannot affect a run that has ended
		left = unfollow()
		return nil
	})
}
