package riverkahn

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-c794f7ef/kahn/store"
)

// Post stores a request for a run, see [store.Inbox]. If the run waits, the same transaction inserts the job with which the run continues. The
// request is a signal from kahn.PrepareSignal, or a cancel. If the run has ended, the request is a redrive from kahn.PrepareRedrive. If the same
// request was posted before, Post changes nothing.
func (c Client) Post(ctx context.Context, run string, q store.Request) (posted bool, err error) {
	err = pgx.BeginFunc(ctx, c.Store.Pool(), func(tx pgx.Tx) error {
		posted, err = c.PostTx(ctx, tx, run, q)
		return err
	})
	return posted && err == nil, err // the request is not posted if the transaction was not committed
}

// PostTx does the same as Post, but in the program's own transaction. The transaction must be short: see [postgres.Store.PostTx].
func (c Client) PostTx(ctx context.Context, tx pgx.Tx, run string, q store.Request) (posted bool, err error) {
	if posted, err = c.Store.PostTx(ctx, tx, run, q); err != nil || !posted {
		return false, err
	}
	err = c.goOn(ctx, tx, run)
	return err == nil, err
}
