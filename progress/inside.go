package progress

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-c794f7ef/kahn"
	"github.com/seed-c794f7ef/kahn/event"
)

// The type `inside` contains the counts of the nodes directly inside a composite that has begun: of the items of a map, or of the nodes of a
// graph. In a loop only the nodes of the current iteration count.
type inside struct {
	items        bool
	iteration    int // the current iteration of a loop; 0 for other composites
	total        int // the number of nodes; 0 if unknown: it comes from the Run, since events do not contain it
	seen         int // how many nodes have had events
	done, failed int
	running      int
	before       map[string]kahn.Status // the statuses of nodes that ended before the first event, by path
	mean         time.Duration          // the expected duration of an item; 0 if unknown
	life         int                    // the life of the run that `pace` measures
	pace         pace
}

// The method `count` updates the counts of the composite directly around the node of an event. If the node was live before the event, `known` is
// true and `was` is its status before the event.
func (s *state) count(e event.Event, status kahn.Status, was kahn.Status, known bool) {
	at, iteration, item := s.compositeAround(e)
	c := s.live[at]
	if c == nil {
		return
	}
	in := s.insideOf(c, iteration, item)
	id := path(e)
	if ended, is := in.before[id]; is {
		delete(in.before, id)
		in.add(ended, -1)
		known = true
	}
	if !known {
		in.seen++
	}
	if in.life != s.life || in.pace == nil {
		in.life = s.life
		in.pace = pace{{e.Time, in.done}}
	}
	if known {
		in.add(was, -1)
	}
	in.add(status, 1)
	if status.Terminal() {
		in.pace.note(e.Time, in.done)
	}
}

// add adds n to the counts of the nodes in the given status. The number n may be negative.
func (in *inside) add(status kahn.Status, n int) {
	switch {
	case status == kahn.Running:
		in.running += n
	case status.Terminal():
		in.done += n
		if status == kahn.Failed {
			in.failed += n
		}
	}
}

// insideOf returns the counts of a composite. If the composite is a loop, they are the counts of the given iteration; otherwise iteration is 0. If
// there are no counts yet, insideOf creates them.
func (s *state) insideOf(c *live, iteration int, items bool) *inside {
	if c.inside != nil && c.inside.iteration == iteration {
		return c.inside
	}
	c.inside = &inside{items: items, iteration: iteration}
	if !items {
		return c.inside
	}
	if s.plan != nil {
		if n, ok := s.plan.At(c.path); ok {
			c.inside.mean = n.Estimate
		}
	}
	nested := false
	for at := range enclosing(c.path) {
		n := s.live[at]
		nested = nested || n != nil && n.inside != nil && n.inside.items
	}
	if !nested {
		s.maps = append(s.maps, c)
	}
	return c.inside
}

// forgetInside drops the counts of a composite.
func (s *state) forgetInside(n *live) {
	n.inside = nil
	s.maps = slices.DeleteFunc(s.maps, func(m *live) bool { return m == n })
}

// compositeAround returns the path of the composite directly around the node of an event, or "" if the node belongs to the outermost graph. If
// this composite is a loop, compositeAround also returns the node's iteration. The result `item` reports whether the node is an item of a map.
func (s *state) compositeAround(e event.Event) (at string, iteration int, item bool) {
	prefix := strings.TrimSuffix(path(e), e.Node)
	if of, is := itemOf(e.Node); is && s.live[prefix+of] != nil {
		return prefix + of, 0, true
	}
	at = strings.TrimSuffix(prefix, "/")
	if i := strings.LastIndexByte(at, '#'); i >= 0 && s.live[at] == nil {
		if n, err := strconv.Atoi(at[i+1:]); err == nil {
			return at[:i], n, false
		}
	}
	return at, 0, false
}

// If e is the first event inside a composite or inside an iteration of a loop, unmeasured returns the path of this composite. Otherwise it returns
// "".
func (s *state) unmeasured(e event.Event) string {
	if s.outermost(e) {
		return ""
	}
	if _, is := nodeStatus[e.Type]; is {
		s.around(e) // may put the composite back
	}
	at, iteration, _ := s.compositeAround(e)
	if c := s.live[at]; c == nil || c.inside != nil && c.inside.iteration == iteration {
		return ""
	}
	return at
}

// The method `measure` finds the composite directly around the node of an event, and sets the number of nodes inside this composite. If the composite
// had ended when the display read the run's past, earlier events inside it are missing: measure then also counts the nodes that have ended.
func (s *state) measure(e event.Event, in kahn.Inside) {
	at, iteration, item := s.compositeAround(e)
	c := s.live[at]
	if c == nil {
		return
	}
	x := s.insideOf(c, iteration, item)
	if x.total = len(in.Nodes); c.back && in.Iteration == iteration {
		x.inherit(in.Nodes)
	}
}

// inheritInside sets the counts of a composite that began before the display got its first event.
func (s *state) inheritInside(of composite) {
	id := of.NodeResult.ID
	c := s.live[id]
	if c == nil {
		c = s.become(id, of.Status, of.Attempts, of.Start, false)
	}
	items := strings.HasPrefix(of.Nodes[0].ID, id+"[")
	x := s.insideOf(c, of.Iteration, items)
	x.total = len(of.Nodes)
	x.inherit(of.Nodes)
}

// The method `inherit` counts the nodes that have ended. Later events may repeat their ends.
func (in *inside) inherit(nodes []kahn.NodeResult) {
	for _, n := range nodes {
		if n.Status.Terminal() {
			if in.before == nil {
				in.before = map[string]kahn.Status{}
			}
			in.before[n.ID] = n.Status
			in.add(n.Status, 1)
		}
	}
}

// The method `text` describes the counts, as in "4200/10000 items (12 failed, 812/s, 7s left)".
func (in *inside) text(now time.Time, life int) string {
	perSecond := in.perSecond(now, life)
	return in.describe(perSecond, in.left(perSecond, life))
}

// describe is like the method `text`, but its caller passes the rate and the remaining time. If one of them is 0, describe omits it.
func (in *inside) describe(perSecond float64, left time.Duration) string {
	what := "node"
	if in.items {
		what = "item"
	}
	text := ""
	if in.iteration > 0 {
		text = fmt.Sprintf("iteration %d, ", in.iteration)
	}
	if in.total > 0 {
		text += fmt.Sprintf("%d/%s", min(in.done, in.total), plural(in.total, what))
	} else {
		text += plural(in.done, what) + " done"
	}
	var more []string
	if in.failed > 0 {
		more = append(more, fmt.Sprintf("%d failed", in.failed))
	}
	if perSecond > 0 {
		more = append(more, rate(perSecond))
	}
	if left > 0 {
		more = append(more, remaining(left)+" left")
	}
	if len(more) > 0 {
		text += " (" + strings.Join(more, ", ") + ")"
	}
	return text
}

// perSecond returns how many items end per second in the given life of the run. It returns 0 if the rate is unknown, if all items have ended, or
// if the composite is not a map.
func (in *inside) perSecond(now time.Time, life int) float64 {
	if !in.items || in.life != life || in.total > 0 && in.done >= in.total {
		return 0
	}
	return in.pace.of(now, in.done)
}

// The method `left` estimates how long the remaining items take. It uses the rate or, while the rate is 0, the expected duration of an item. It
// returns 0 if both are 0, if the number of items is unknown, or if the composite is not a map. It also returns 0 while the run rests: see the
// constant `resting`.
func (in *inside) left(perSecond float64, life int) time.Duration {
	open := in.total - in.done
	switch {
	case !in.items || open <= 0 || in.total == 0 || life == resting:
		return 0
	case perSecond == 0:
		return saturated(float64(open) * float64(in.mean) / float64(max(in.running, 1)))
	}
	return saturated(float64(open) / perSecond * float64(time.Second))
}

func saturated(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// itemsText returns one description for the items of all live maps together, or "" if no map is live. Maps inside other maps do not count. The
// remaining time in the description is the longest remaining time of a map.
func (s *state) itemsText(now time.Time) string {
	sum := inside{items: true}
	perSecond, left, known := 0.0, time.Duration(0), true
	for _, m := range s.maps {
		in := m.inside
		known = known && in.total > 0
		sum.total, sum.done, sum.failed = sum.total+in.total, sum.done+in.done, sum.failed+in.failed
		each := in.perSecond(now, s.pacing())
		perSecond, left = perSecond+each, max(left, in.left(each, s.pacing()))
	}
	switch {
	case len(s.maps) == 0:
		return ""
	case !known:
		sum.total, left = 0, 0
	}
	return sum.describe(perSecond, left)
}

// pacing returns the number of the run's current life, or the constant `resting` if the run rests. Only rates that were measured in this life are
// shown.
func (s *state) pacing() int {
	if s.rests || !s.gone.IsZero() {
		return resting
	}
	return s.life
}

// The constant `resting` means that the whole run waits, or that no process performs the run.
const resting = -1

// pace is a list of moments from which a rate is computed. A moment contains a time, and the number of nodes that had ended by then. The times of
// two moments are at least a second apart. Until the list has its maximum length, its first moment is the beginning of the measurement.
type pace []moment

type moment struct {
	at   time.Time
	done int
}

// mostMoments is the maximum length of a pace. If nodes end at least once a second, the rate covers about the last 30 seconds. If nodes end less
// often, the rate covers about the last 30 nodes that ended.
const mostMoments = 30

// The method `note` records that `done` nodes have ended by the given time. It records nothing if the last moment is less than a second earlier.
func (p *pace) note(at time.Time, done int) {
	if at.Sub((*p)[len(*p)-1].at) < time.Second {
		return
	}
	if len(*p) == mostMoments {
		*p = slices.Delete(*p, 0, 1)
	}
	*p = append(*p, moment{at, done})
}

// The method `of` returns how many nodes end per second, or 0 while the rate is unknown.
func (p pace) of(now time.Time, done int) float64 {
	if len(p) == 0 || now.Sub(p[0].at) < time.Second || done <= p[0].done {
		return 0
	}
	return float64(done-p[0].done) / now.Sub(p[0].at).Seconds()
}

// The function `rate` renders a number of nodes per second: "812/s", "3.4/s", "12/min", "5/h".
func rate(perSecond float64) string {
	switch {
	case perSecond >= 9.95:
		return fmt.Sprintf("%.0f/s", perSecond)
	case perSecond >= 1:
		return fmt.Sprintf("%.1f/s", perSecond)
	case perSecond*60 >= 0.95:
		return fmt.Sprintf("%.0f/min", perSecond*60)
	}
	return fmt.Sprintf("%.0f/h", math.Ceil(perSecond*3600))
}

// The function `remaining` renders a remaining time, rounded up: "7s", "3m20s", "2h10m", "5d3h".
func remaining(d time.Duration) string {
	switch s := int64(math.Ceil(d.Seconds())); {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 48*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%dd%dh", s/86400, s/3600%24)
	}
}
