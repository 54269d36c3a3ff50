package riverkahn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/seed-c794f7ef/kahn/machine"
	"github.com/seed-c794f7ef/kahn/store"
)

const (
	announced     = 30 * time.Second // how long an announcement is valid
	announceEvery = announced / 3
	announceTime  = 10 * time.Second // how long storing an announcement may take
)

// Start starts the client of River. Until the client has stopped, this process announces to the store that it performs the runs of the Workflows. So
// [store.Unclaimable], the inspector and [kahn.Runner.Serve] know which queues have a live process. If a program calls client.Start itself, the
// client performs runs, but the queues count as unclaimable. Start stores the first announcement before it returns. If this announcement fails,
// Start stops the client and returns the error. If a later announcement fails, the failure is logged, and the announcement is repeated after 10 s.
// The error that Start returns matches [machine.ErrBadValue] if the client is nil or the Performer is not registered. It matches
// [store.ErrOwnerInUse] if another running Performer of this process has the same lease owner, see [kahn.Lease].
func (p *Performer) Start(ctx context.Context, client *river.Client[pgx.Tx]) error {
	switch {
	case client == nil:
		return fmt.Errorf("%w: riverkahn: the client of River is nil", machine.ErrBadValue)
	case p.byQueue == nil:
		return fmt.Errorf("%w: riverkahn: the Performer is not registered", machine.ErrBadValue)
	}
	release, err := p.claimOwner()
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil || len(p.plans) == 0 {
		release()
		return err
	}
	a := store.Announcement{Process: "river/" + uuid.NewString(), Queues: p.plans, TTL: announced}
	if err := p.announce(ctx, a); err != nil {
		defer release()
		return errors.Join(err, client.Stop(context.WithoutCancel(ctx)))
	}
	p.silent = make(chan struct{})
	go func() {
		defer close(p.silent)
		defer release()
		p.keepAnnouncing(context.WithoutCancel(ctx), a, client.Stopped())
	}()
	return nil
}

// The type `owner` is an owner of leases in a schema of a database.
type owner struct {
	host             string
	port             uint16
	database, schema string
	name             string
}

// The variable owners holds the lease owners of this process's Performers that have started and have not stopped yet.
var owners = struct {
	sync.Mutex
	of map[owner]bool
}{of: map[owner]bool{}}

// claimOwner claims the lease owner that an option of the Workflows sets, see [kahn.Lease]. The function `release` ends the claim. Two Performers
// with the same owner would acquire each other's runs.
func (p *Performer) claimOwner() (release func(), err error) {
	if p.owner == "" {
		return func() {}, nil
	}
	c := p.Store.Pool().Config().ConnConfig
	o := owner{c.Host, c.Port, c.Database, p.Store.Schema(), p.owner}
	owners.Lock()
	defer owners.Unlock()
	if owners.of[o] {
		return nil, fmt.Errorf("riverkahn: another Performer of this process has not stopped: %w", store.OwnerInUse(p.owner))
	}
	owners.of[o] = true
	return func() {
		owners.Lock()
		defer owners.Unlock()
		delete(owners.of, o)
	}, nil
}

func (p *Performer) announce(ctx context.Context, a store.Announcement) error {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	return p.Store.Announce(ctx, a)
}

// keepAnnouncing repeats an announcement until the client has stopped, and then withdraws it.
func (p *Performer) keepAnnouncing(ctx context.Context, a store.Announcement, stopped <-chan struct{}) {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-stopped:
			over, a.Queues = true, nil
		case <-tick.C:
		}
		if err := p.announce(ctx, a); err != nil {
			slog.ErrorContext(ctx, "riverkahn: announce the queues of the process", "error", err)
		}
	}
}
