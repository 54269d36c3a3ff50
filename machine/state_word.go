package machine

import (
	"iter"
	"math"
)

// Word is the number in which a State stores the state of a node.
type Word uint64

// Word returns the word of a node.
func (s *Locked) Word(r Ref) Word { return Word(s.words[r]) }

// Words yields the Ref and the word of each node, in the order of the Refs.
func (s *Locked) Words() iter.Seq2[Ref, Word] {
	return func(yield func(Ref, Word) bool) {
		for r, w := range s.words {
			if !yield(Ref(r), Word(w)) {
				return
			}
		}
	}
}

// CopyWords returns the words of all nodes, by Ref.
func (s *Locked) CopyWords() []Word {
	words := make([]Word, len(s.words))
	for r, w := range s.words {
		words[r] = Word(w)
	}
	return words
}

// Is reports whether at least one of the flags is set.
func (w Word) Is(flags Word) bool { return w&flags != 0 }

// Status returns the status that the coordinator sees. For a node that is Waiting this is Idle.
func (w Word) Status() Status { return statusOf(uint64(w)) }

// Kind returns why a node ended or is being stopped. For a skipped node, the number that it returns is a SkipKind.
func (w Word) Kind() CauseKind { return kindOf(uint64(w)) }

// attempts returns the Token.Attempt of the last attempt that has begun, or 0. Call it only if the join has decided and the node has not ended.
func (w Word) attempts() int32 { return int32(w & wordCount) }

// By returns the node that caused the end of this node: the origin of a stop, or the successor that superseded this node. If no node caused the
// end, By returns NoRef.
func (w Word) By() Ref { return Ref(int32(uint32(w))) }

// Started reports whether a node runs, has run, or will never run. If so, its undecided successors are Waiting.
func (w Word) Started() bool { return started(uint64(w)) }

// Shown returns the status that everyone but the coordinator sees. For a node that is Waiting this is Idle.
func (w Word) Shown() Status { return viewOf(uint64(w)).status }

// The state of a node is one word, which is written only under the State's mu. After the node has become terminal, the word is written only if a
// store refuses or loses the node's end: see Overrule and SetBack. If code has found under mu that a node is terminal, it may later read the node's
// word without mu, unless the run has a store.
//
//	bits  0-31  undecided: the in-edges still unresolved
//	            decided:   the number of attempts begun
//	            terminal: the deciding in-edge of a skip, the origin of a stop
//	bits 32-35  status
//	bits 36-39  classes of the resolved control edges: S, N, X, F
//	bits 40-    flags
//	bits 56-62  terminal or stopping: CauseKind, for a skipped node SkipKind
//	bit  63     a flag
const (
	wordCount       = 1<<32 - 1
	statusShift     = 32
	seenShift       = 36
	WordBypass      = 1 << 40 // the node, or a source of its in-edges, was skipped for a reason other than a branch not taken
	wordSpecial     = 1 << 41 // the join must be judged even when all edges seen so far are S
	WordDecided     = 1 << 42 // the join has decided; edges that resolve later do not change the decision
	WordChecking    = 1 << 43 // the join is satisfied, and the node waits for the verdict of its check
	WordReached     = 1 << 44 // the node was Ready at some time, or it failed only because its inputs were rejected
	WordStopping    = 1 << 45 // running, and asked to stop
	WordSubstituted = 1 << 46 // the node runs, or ran, with defaults for missing values
	WordPropagated  = 1 << 47 // the node failed because of its predecessors, without running
	WordTolerated   = 1 << 48 // the node failed by itself under ContinueOnFail, or completed despite failures inside
	WordDraining    = 1 << 49 // running: the attempt may finish, but is not retried
	WordAdmitting   = 1 << 50 // running: the node holds a slot while its inputs are judged (Shown returns Ready); ready: the judging was interrupted
	wordPlain       = 1 << 51 // the node has FlagPlain; cleared when the node ends
	WordBlocked     = 1 << 52 // the join was blocked
	wordObserved    = 1 << 53 // the node has signals
	wordFeeds       = 1 << 54 // the start of the node makes an observed successor Waiting
	WordDormant     = 1 << 55 // a composite that can only wait: everyone but the coordinator sees Suspended
	WordExpanded    = 1 << 63 // running: nested runs perform the graph that its step returned, or the node waits without slots for a memoized output
	kindShift       = 56
	wordKind        = 127 << kindShift

	wordS       = uint64(seenS) << seenShift
	wordSeen    = uint64(seenS|seenN|seenX|seenF) << seenShift
	wordNotOK   = uint64(seenN|seenX|seenF) << seenShift
	wordStatus  = 15 << statusShift
	wordReady   = uint64(Ready) << statusShift
	wordRunning = uint64(Running) << statusShift
	wordDone    = uint64(Completed) << statusShift

	noEdge = math.MaxUint32 // in the low bits of a skipped node: no edge decided the skip
)

func statusOf(w uint64) Status  { return Status(w >> statusShift & 15) }
func kindOf(w uint64) CauseKind { return CauseKind(w & wordKind >> kindShift) }
