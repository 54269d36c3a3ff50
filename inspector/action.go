package inspector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/internal/foreign"
	"github.com/seed-c794f7ef/kahn/store"
)

// These are the bodies of requests.
type (
	emptyBody  struct{}
	reasonBody struct {
		Reason string `json:"reason,omitempty"`
	}
	signalBody struct {
		// Value is the answer. It may be any JSON.
		Value json.RawMessage `json:"value"`
		// Comment is stored with the answer.
		Comment string `json:"comment,omitempty"`
	}
	redriveBody struct {
		// Nodes are the nodes at which the redrive begins; empty means all nodes that failed, were aborted or were cancelled.
		Nodes  []string `json:"nodes,omitempty"`
		Reason string   `json:"reason,omitempty"`
		// If DespiteHandlers is set, the redrive also repeats nodes whose failures other nodes have handled, for example by a refund.
		DespiteHandlers bool `json:"despite_handlers,omitempty"`
		// If Compensations is set, no node runs again: "repeat" repeats failed compensations, and "by_hand" says that an operator has
		// undone the nodes' effects by hand. In this case each of the Nodes must have a failed compensation; empty
		// means all nodes whose compensations have failed.
		Compensations undoMode `json:"compensations,omitempty"`
	}
	startBody struct {
		// Inputs are passed to the function that starts the run. They may be any JSON.
		Inputs json.RawMessage `json:"inputs,omitempty"`
	}
)

// undoMode says how a redrive resolves failed compensations.
type undoMode string

const (
	undoAgain  undoMode = "repeat"
	undoByHand undoMode = "by_hand"
)

// The method `option` returns the mode as an option of a redrive.
func (m undoMode) option() kahn.RedriveMode {
	if m == undoByHand {
		return kahn.CompensatedByHand
	}
	return kahn.RepeatCompensations
}

// doneReply confirms an action.
type doneReply struct {
	Status string `json:"status"` // "accepted", or "requested" if a request waits for the process that performs the run
}

// runReply names the run that an action has started.
type runReply struct {
	Run string `json:"run"`
}

// redriveReply names the run that is redriven.
type redriveReply struct {
	Run    string `json:"run"`
	At     string `json:"at"`     // when the service took the request
	Status string `json:"status"` // "accepted", or "requested" if a request waits for the process that performs the run
}

var accepted, requested = doneReply{Status: "accepted"}, doneReply{Status: "requested"}

// reasonBytes is the maximum length of a reason, a comment or the name of an actor; longer texts are cut.
const reasonBytes = 1_000

// The method `write` performs an action and writes an audit record of the action. If the request repeats an idempotency key whose response is kept,
// write does neither, and responds with the kept response.
func (c *call) write() error {
	key, kept, first, err := c.accept()
	if err != nil {
		c.audit(nil, err)
		return err
	}
	if !first {
		select {
		case <-kept.done:
			c.w.Header().Set("Idempotent-Replay", "true")
			return c.answer(kept)
		case <-c.r.Context().Done():
			return c.r.Context().Err()
		}
	}
	kept.fault = &fault{Status: http.StatusInternalServerError, Code: "failed", Message: "the action did not return"}
	defer func() { // deferred, since a function of the host may end this goroutine
		if kept.fault.passes() {
			c.h.replies.drop(key)
		}
		close(kept.done)
		if kept.fault != nil {
			c.audit(nil, kept.fault)
		} else {
			c.audit(kept.answer, nil)
		}
	}()
	answer, err := c.perform()
	if kept.answer, kept.fault = answer, nil; err != nil {
		kept.fault = c.faultOf(err)
	}
	return c.answer(kept)
}

// The method `accept` reads the request for an action. It returns the key under which the response is kept, and the entry for the response. The
// result `first` is true if the key is new.
func (c *call) accept() (key string, k *kept, first bool, err error) {
	if err := c.prepare(); err != nil {
		return "", nil, false, err
	}
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || kind != jsonType {
		return "", nil, false, errNotJSON
	}
	key = c.r.Header.Get("Idempotency-Key")
	if key == "" || len(key) > maxKey {
		return "", nil, false, &fault{Status: http.StatusBadRequest, Code: "no_key", Message: fmt.Sprintf("the header Idempotency-Key must have 1 to %d bytes", maxKey)}
	}
	data, err := c.readBody()
	if err != nil {
		return "", nil, false, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", c.route.path, c.r.URL.RawQuery, data))
	// A repeated request gets the kept response even if the run is unknown by now.
	if key = c.actor() + "\n" + key; !c.h.replies.has(key) {
		if err := c.findRun(); err != nil {
			return "", nil, false, err
		}
	}
	k, first, err = c.h.replies.of(key, sum)
	return key, k, first, err
}

var errNotJSON = &fault{Status: http.StatusUnsupportedMediaType, Code: "not_json", Message: "the Content-Type must be " + jsonType}

// readBody reads the request's body, decodes it, and returns its text.
func (c *call) readBody() ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &fault{Status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: fmt.Sprintf("a body has at most %d bytes", maxBody)}
	} else if err != nil {
		return nil, badBody("the body was cut off")
	}
	c.body = c.route.body()
	return data, parseBody(data, c.body)
}

// The method `perform` calls the action. It returns a panic of a host's function as an error.
func (c *call) perform() (answer any, err error) {
	err = c.h.contain(c.r, c.route.path, func() (err error) {
		answer, err = c.route.serve(c)
		return err
	})
	return answer, err
}

// faultOf returns what the client sees of an action's error.
func (c *call) faultOf(err error) *fault {
	switch {
	case errors.Is(err, store.ErrLeased):
		return &fault{Status: http.StatusConflict, Code: "leased", Message: "another process performs the run"}
	case errors.Is(err, kahn.ErrStore):
		return faultOf(c.h.storeFault(c.r.Context(), err))
	}
	if panicked := (*foreign.PanicError)(nil); errors.As(err, &panicked) {
		return &fault{Status: http.StatusInternalServerError, Code: "failed", Message: "a function of the service has panicked"}
	}
	f := faultOf(err)
	// A function of the host may have written the text of err, even if err wraps an error of package kahn. So clients that may not ViewData get
	// a fixed text instead.
	if own := (*fault)(nil); !errors.As(err, &own) {
		if f.Message = c.shownError("", err); f.Message == "" {
			f.Message = text(refusalOf(err).match)
		}
	}
	return f
}

func (c *call) answer(kept *kept) error {
	if kept.fault != nil {
		return kept.fault
	}
	return c.reply(http.StatusAccepted, kept.answer)
}

// The method `audit` writes an audit record of an action to the log, with the outcome of the action.
func (c *call) audit(answer any, err error) {
	attrs := []slog.Attr{
		slog.String("action", strings.TrimPrefix(c.route.path, "api/v1/")), slog.String("actor", c.actor()), slog.String("remote", c.r.RemoteAddr),
		slog.String("key", clip(c.r.Header.Get("Idempotency-Key"), maxKey)),
	}
	for _, name := range []string{"run", "path", "workflow"} {
		if text := c.r.URL.Query().Get(name); text != "" {
			attrs = append(attrs, slog.String(name, clip(text, reasonBytes)))
		}
	}
	switch body := c.body.(type) {
	case *reasonBody:
		attrs = append(attrs, slog.String("reason", clip(body.Reason, reasonBytes)))
	case *forkBody:
		attrs = append(attrs, slog.String("reason", clip(body.Reason, reasonBytes)))
	case *redriveBody:
		if attrs = append(attrs, slog.String("reason", clip(body.Reason, reasonBytes))); body.Compensations != "" {
			attrs = append(attrs, slog.String("compensations", clip(string(body.Compensations), reasonBytes)))
		}
	case *signalBody:
		attrs = append(attrs, slog.String("comment", clip(body.Comment, reasonBytes)))
	}
	level, outcome := slog.LevelInfo, "done"
	switch {
	case err != nil:
		level, outcome = slog.LevelWarn, faultOf(err).Code
	case answer == requested:
		outcome = requested.Status
	default:
		if r, ok := answer.(redriveReply); ok && r.Status == requested.Status {
			outcome = r.Status
		}
	}
	c.h.log().LogAttrs(c.r.Context(), level, "inspector", append(attrs, slog.String("outcome", outcome))...)
}

// The method `actor` returns the name of the client that makes the request. Events and results contain the name. For each request, the method calls
// the option Actor once. If Actor panics, the name is "".
func (c *call) actor() string {
	if c.who == nil {
		name := ""
		if c.h.Actor != nil {
			_ = c.h.contain(c.r, "Actor", func() error { name = c.h.Actor(c.r); return nil })
		}
		name = clip(name, reasonBytes)
		c.who = &name
	}
	return *c.who
}

func (c *call) request(reason string) kahn.Request {
	return kahn.Request{Actor: c.actor(), Reason: clip(reason, reasonBytes)}
}

// maxKey is the maximum length of an idempotency key in bytes, and maxReplies is the number of responses that are kept for repeated requests.
const (
	maxKey     = 200
	maxReplies = 1_000
)

// replies keeps the responses of the latest actions by their idempotency keys.
type replies struct {
	mu    sync.Mutex
	byKey map[string]*kept
	order []string // the keys, the oldest first
}

// The type `kept` is the response of an action. The fields answer and fault are valid after done is closed.
type kept struct {
	sum    [sha256.Size]byte // of the request
	done   chan struct{}
	answer any
	fault  *fault
}

// The method `has` reports whether there is, or will be, a response for a key.
func (x *replies) has(key string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byKey[key] != nil
}

// The method `drop` forgets the response for a key, so that a request with this key is performed again.
func (x *replies) drop(key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.byKey, key)
	x.order = slices.DeleteFunc(x.order, func(other string) bool { return other == key })
}

func (k *kept) isDone() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// The method `of` returns the response for a key. If the result `first` is true, the key is new, and the caller must perform the action.
func (x *replies) of(key string, sum [sha256.Size]byte) (k *kept, first bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k = x.byKey[key]; k != nil {
		if k.sum != sum {
			return nil, false, errKeyReused
		}
		return k, false, nil
	}
	if x.byKey == nil {
		x.byKey = map[string]*kept{}
	}
	k = &kept{sum: sum, done: make(chan struct{})}
	x.byKey[key] = k
	x.order = append(x.order, key)
	for len(x.order) > maxReplies {
		oldest := slices.IndexFunc(x.order, func(key string) bool { return x.byKey[key].isDone() })
		if oldest < 0 { // all kept actions are in flight: if one of them were dropped, a repeated request would perform it again
			break
		}
		delete(x.byKey, x.order[oldest])
		x.order = slices.Delete(x.order, oldest, oldest+1)
	}
	return k, true, nil
}

func (c *call) signal() (any, error) {
	body, path := c.body.(*signalBody), c.query.text("path")
	if len(body.Value) == 0 {
		return nil, badBody("the value is missing")
	}
	answer, err := parseValue(body.Value)
	if err != nil {
		return nil, err
	}
	if run := c.live(); run != nil && run.Status() == kahn.RunPending {
		return nil, errNotBegun
	}
	before, err := c.target.Node(path)
	if err != nil {
		return nil, err
	}
	d := kahn.Decision{Value: answer, Actor: c.actor(), Comment: clip(body.Comment, reasonBytes), ID: c.decisionID()}
	if before.Decision == nil || before.Decision.ID == d.ID {
		var done any
		switch done, err = c.answerNode(path, d); {
		case err == nil:
			return done, nil
		case errors.Is(err, errHere):
			return c.signal()
		case errors.Is(err, errSlow):
			return nil, err
		}
	}
	// Another client may have answered since findRun read the run.
	if c.stored() != nil && err != nil {
		if !errors.Is(err, kahn.ErrAnswered) {
			return nil, err
		}
		c.h.changed(c.target.ID())
		if lookErr := c.findRun(); lookErr != nil {
			return nil, lookErr
		}
	}
	if res, lookErr := c.target.Node(path); lookErr == nil && res.Decision != nil {
		if res.Decision.ID == d.ID {
			return accepted, nil // the node's answer came from an earlier copy of this request
		}
		return nil, c.wasAnswered(path, res.Decision)
	}
	return nil, err
}

// wasAnswered returns the error for a client whose answer is too late, because the answer d of another client came first.
func (c *call) wasAnswered(path string, d *kahn.Decision) error {
	f := &fault{Status: http.StatusConflict, Code: "answered", Message: "another answer came first", Answered: c.decision(path, d)}
	if d.Actor != "" {
		f.Message = fmt.Sprintf("%s has answered", clip(d.Actor, 100))
	}
	return f
}

// answerNode answers a gate, or a step that waits.
func (c *call) answerNode(path string, d kahn.Decision) (any, error) {
	name := path
	if wait, ok := waitOf(c.target, path); ok && wait.Token != "" {
		name = wait.Token
	}
	if s := c.stored(); s != nil {
		return c.ask(s, demand{
			judge: func() error {
				if err := s.judgeAnswer(path, d.Value); err != nil {
					return err
				}
				return c.judgePosted(s, path, d.ID)
			},
			control: func(ctx context.Context, x Controller) error { return x.Signal(ctx, s.ID(), name, d) },
			perform: func() error { return c.signalStored(s, name, d) },
			request: func() (store.Request, error) { return kahn.PrepareSignal(name, d, kahn.Encoding(c.h.Codec)) },
		})
	}
	return accepted, c.confirmed(c.live(), name, d)
}

// The method `confirmed` answers a node of a run that the Runner performs. If the run has a store, the method waits until the answer is stored, but
// at most for loadTime.
func (c *call) confirmed(run *kahn.Run, name string, d kahn.Decision) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), loadTime)
	defer cancel()
	err := run.Signal(ctx, name, d)
	if errors.Is(err, context.DeadlineExceeded) {
		return errSlow
	}
	return err
}

var errSlow error = &fault{Status: http.StatusGatewayTimeout, Code: "slow", Message: "the store has not confirmed the answer yet: repeat the request with its Idempotency-Key"}

// decisionID returns the id of an answer or of a posted request. A repeated request with the same Idempotency-Key gets the same id, so the action
// is performed once, even if the run has continued in another process meanwhile.
func (c *call) decisionID() string {
	sum := sha256.Sum256([]byte(c.actor() + "\n" + c.r.Header.Get("Idempotency-Key")))
	return "inspector-" + hex.EncodeToString(sum[:16])
}

var (
	errEnded     = &fault{Status: http.StatusConflict, Code: "finished", Message: "the run has ended"}
	errKeyReused = &fault{Status: http.StatusUnprocessableEntity, Code: "key_reused", Message: "this Idempotency-Key was used for another request"}
)

// The method `going` returns an error if the run has ended. It is called for actions that are impossible after the end.
func (c *call) going() error {
	if over(c.target) {
		return errEnded
	}
	return nil
}

func (c *call) cancel() (any, error) {
	if err := c.going(); err != nil {
		return nil, err
	}
	q := c.request(c.body.(*reasonBody).Reason)
	if s := c.stored(); s != nil {
		done, err := c.ask(s, demand{
			control: func(ctx context.Context, x Controller) error { return x.Cancel(ctx, s.ID(), q) },
			perform: func() error { return c.cancelStored(s, q) },
			request: func() (store.Request, error) {
				return store.Request{ID: c.decisionID(), Kind: store.KindCancel, Actor: q.Actor, Comment: q.Reason}, nil
			},
		})
		if errors.Is(err, errHere) {
			return c.cancel()
		}
		return done, err
	}
	return accepted, c.live().Cancel(q)
}

func (c *call) abort() (any, error) {
	if err := c.going(); err != nil {
		return nil, err
	}
	q := c.request(c.body.(*reasonBody).Reason)
	if s := c.stored(); s != nil {
		if _, ok := c.h.Store.(Controller); !ok {
			return nil, errNotHere
		}
		return c.ask(s, demand{control: func(ctx context.Context, x Controller) error { return x.Abort(ctx, s.ID(), nil, q) }})
	}
	return accepted, c.live().AbortAll(nil, q)
}

func (c *call) leave() (any, error) {
	if err := c.going(); err != nil {
		return nil, err
	}
	c.live().Leave()
	return accepted, nil
}

func (c *call) cancelNode() (any, error) {
	path := c.query.text("path")
	s := c.stored()
	if s == nil {
		return accepted, c.live().CancelNode(path)
	}
	if err := c.going(); err != nil {
		return nil, err
	}
	judge := func() error { return s.judgeCancel(path) }
	if err := judge(); err != nil && s.Status() != kahn.RunPending { // this process must not continue the run for nothing
		return nil, err
	}
	done, err := c.ask(s, demand{
		judge:   judge,
		control: func(ctx context.Context, x Controller) error { return x.CancelNode(ctx, s.ID(), path) },
		perform: func() error { return c.cancelNodeStored(s, path) },
		request: func() (store.Request, error) {
			return store.Request{ID: c.decisionID(), Kind: store.KindCancelNode, Node: path, Actor: c.actor()}, nil
		},
	})
	if errors.Is(err, errHere) {
		return c.cancelNode()
	}
	return done, err
}

func (c *call) retry() (any, error) {
	return accepted, c.live().RetryNow(c.query.text("path"))
}

// The function `despite` returns the option kahn.DespiteHandlers if the parameter is true, and no options otherwise.
func despite(handlers bool) []kahn.Option {
	if handlers {
		return []kahn.Option{kahn.DespiteHandlers}
	}
	return nil
}

func (c *call) redrive() (any, error) {
	body := c.body.(*redriveBody)
	q := c.request(body.Reason)
	modes := despite(body.DespiteHandlers)
	if m := body.Compensations; m != "" {
		if m != undoAgain && m != undoByHand {
			return nil, badBody("compensations cannot be %.60q: choose %s or %s", m, undoAgain, undoByHand)
		}
		if body.DespiteHandlers {
			return nil, badBody("despite_handlers and compensations cannot be combined: with compensations no node runs again")
		}
		modes = []kahn.Option{m.option()}
	}
	reply := redriveReply{Run: c.target.ID(), At: stamp(time.Now()), Status: accepted.Status}
	var err error
	if s := c.stored(); s == nil {
		_, err = c.h.Runner.Redrive(context.WithoutCancel(c.r.Context()), reply.Run, body.Nodes, q, modes...)
	} else if s.Status().Terminal() {
		reply.Status, err = c.redriveStored(s, body.Nodes, q, modes)
	} else if s.due() && len(body.Nodes) == 0 && body.Compensations == "" {
		_, err = c.goOn(s)
	} else {
		err = errNotEnded
	}
	switch {
	case errors.Is(err, errHere):
		return c.redrive()
	case err != nil:
		return nil, err
	}
	return reply, nil
}

// redriveStored redrives an ended run of the store. It redrives the run itself if the store is a Controller, or if this process can perform the run.
// Otherwise it posts a request to the store.
func (c *call) redriveStored(s *storedRun, nodes []string, q kahn.Request, modes []kahn.Option) (status string, err error) {
	perform := func() error {
		_, err := c.goOn(s, append(slices.Clip(modes), kahn.Redrive(nil, nodes, q))...)
		return err
	}
	if _, controls := c.h.Store.(Controller); controls {
		return accepted.Status, perform()
	}
	done, err := c.ask(s, demand{
		judge:   func() error { return c.judgeRedrive(nodes, modes) },
		perform: perform,
		request: func() (store.Request, error) {
			asked, err := kahn.PrepareRedrive(nodes, q, modes...)
			asked.ID = c.decisionID()
			return asked, err
		},
	})
	if err != nil {
		return "", err
	}
	return done.(doneReply).Status, nil
}

// judgeRedrive returns the error with which the run would refuse a redrive.
func (c *call) judgeRedrive(nodes []string, modes []kahn.Option) error {
	plan := c.target.Plan()
	if plan == nil {
		return errNoPlan
	}
	from, err := c.snapshot()
	if err != nil {
		return err
	}
	_, err = kahn.RedrivePreview(plan, from, nodes, modes...)
	return err
}

func (c *call) start() (any, error) {
	name := c.query.text("workflow")
	begin := c.h.Start[name]
	if begin == nil {
		return nil, &fault{Status: http.StatusNotFound, Code: "unknown_workflow", Message: fmt.Sprintf("there is no workflow %.60q to start", name)}
	}
	run, err := begin(context.WithoutCancel(c.r.Context()), c.body.(*startBody).Inputs)
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, &fault{Status: http.StatusInternalServerError, Code: "failed", Message: "the workflow was not started"}
	}
	return runReply{Run: run.ID()}, nil
}
