package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tables makes everything of one trial. The sequence hands out one number at a time (CACHE 1): a session that
// caches numbers draws old positions late, also under the allocator lock. The transaction id is kept in a column: the
// system column xmin is 32 bits wide and that of a subtransaction.
const tables = `
create sequence positions as bigint cache 1;
create table events (
	id uuid constraint ` + UniqueEvent + ` primary key,
	stream text not null,
	version bigint not null check (version > 0),
	position bigint not null default nextval('positions'),
	xid xid8 not null default pg_current_xact_id(),
	type text not null,
	data bytea not null,
	metadata json not null,
	created_at timestamptz not null default clock_timestamp(),
	constraint ` + UniqueVersion + ` unique (stream, version)
);
create table requests (
	request text constraint ` + uniqueRequest + ` primary key,
	stream text not null,
	events uuid[] not null,
	created_at timestamptz not null default clock_timestamp()
);
create table snapshots (
	stream text primary key,
	version bigint not null,
	state bytea not null
);
create table views (
	projection text not null,
	generation bigint not null,
	key text not null,
	version bigint not null default 0,
	effects bigint not null default 0,
	state bytea,
	primary key (projection, generation, key)
);
create table checkpoints (
	projection text primary key,
	generation bigint not null default 1,
	seq bigint not null default 0,
	epoch bigint not null default 0,
	cursor text not null default ''
);
create table checkpoint_history (
	projection text not null,
	generation bigint not null,
	seq bigint not null,
	epoch bigint not null,
	cursor text not null,
	xid xid8 not null default pg_current_xact_id()
);
create table projection_ledger (
	projection text not null,
	generation bigint not null,
	event uuid not null,
	stream text not null,
	version bigint not null,
	key text not null,
	how text not null,
	row_version bigint not null,
	row_order bigint not null,
	seq bigint not null,
	epoch bigint not null,
	xid xid8 not null default pg_current_xact_id()
);
`

// biddingTables make auctions in their native form. Every statement that changes an auction's row counts in changes, and
// an accepted bid keeps the count that it made: the row's lock makes that the order of acceptance. What is counted is kept
// apart from what is accepted, so that one can be held against the other.
const biddingTables = `
create table auctions (
	auction text primary key,
	status text not null default 'open' check (status in ('open', 'closed')),
	opening bigint not null,
	high bigint not null,
	bidder text not null default '',
	accepted bigint not null default 0,
	changes bigint not null default 1,
	opened_event uuid not null,
	opened_request text not null,
	opened_at bigint not null,
	closed_event uuid,
	closed_request text,
	closed_at bigint,
	closed_changes bigint
);
create table bids (
	auction text not null,
	id text not null,
	event uuid not null,
	bidder text not null,
	amount bigint not null,
	accepted_at bigint not null,
	changes bigint not null,
	constraint ` + uniqueBid + ` primary key (auction, id)
);
`

// biddingRights: the ledger of bids is append-only.
const biddingRights = `
grant select, insert, update on auctions to %[1]s;
grant select, insert on bids to %[1]s;
`

// indexes are the indexes of the table of events by the names of the constraints that make them unique: at the stream that
// is compare-and-swap.
var indexes = map[string]string{UniqueVersion: "stream, version", UniqueEvent: "id"}

// without returns the statements that leave the index of a constraint and drop the constraint.
func without(constraint string) string {
	return fmt.Sprintf("alter table events drop constraint %s; create index on events (%s);", constraint, indexes[constraint])
}

// tabled is implemented by appenders that keep tables of their own.
type tabled interface {
	// Tables returns the statements that make them and grant the writer what it needs.
	Tables(writer string) string
}

// rights: the log, the ledger and the history of checkpoints are append-only for the roles, and a role never
// reads the ledger that it writes.
const rights = `
grant usage on schema %[1]s to %[2]s, %[3]s;
grant usage on sequence positions to %[2]s;
grant select, insert on events, requests to %[2]s;
grant select, insert, update on snapshots to %[2]s;
grant select on events, requests to %[3]s;
grant select on views, checkpoints to %[2]s;
grant select, insert, update on views to %[3]s;
grant select, update on checkpoints to %[3]s;
grant insert on checkpoint_history, projection_ledger to %[3]s;
`

// index returns the statement for the index that an order needs.
func (o Order) index() string {
	if o == ByTransaction {
		return `create unique index on events (xid, position);`
	}
	return `create unique index on events (position);`
}

const (
	oldestServer  = 140000 // client_connection_check_interval
	dropPatience  = 10 * time.Second
	passwordBytes = 18
)

var trialName = regexp.MustCompile(`^[a-z0-9]{1,40}$`)

var (
	errTrialName = errors.New("postgres: a trial id is 1 to 40 lower-case letters and digits")
	errOldServer = errors.New("postgres: the server is older than version 14")
)

// place is what one trial owns on a server.
type place struct {
	schema, writer, projector string
}

func placeOf(trial string) (place, error) {
	if !trialName.MatchString(trial) {
		return place{}, fmt.Errorf("%w: %q", errTrialName, trial)
	}
	schema := "ep_" + trial
	return place{schema: schema, writer: schema + "_writer", projector: schema + "_projector"}, nil
}

func (p place) roles() []string { return []string{p.writer, p.projector} }

// create makes schema, tables and role users in one transaction and returns the users' passwords.
func (p place) create(ctx context.Context, admin *pgx.Conn, parts Parts, views []string) (passwords map[string]string, err error) {
	var version int
	var super bool
	err = admin.QueryRow(ctx, `select current_setting('server_version_num')::int,
		(select rolsuper from pg_roles where rolname = current_user)`).Scan(&version, &super)
	if err != nil {
		return nil, fmt.Errorf("asking the server's version: %w", err)
	}
	if version < oldestServer {
		return nil, errOldServer
	}
	passwords = map[string]string{}
	var ddl strings.Builder
	fmt.Fprintf(&ddl, "create schema %[1]s; set local search_path to %[1]s;", p.schema)
	ddl.WriteString(tables)
	for _, constraint := range parts.Append.Without() {
		ddl.WriteString(without(constraint))
	}
	ddl.WriteString(parts.Reader.Order().index())
	if parts.Bidding != nil {
		ddl.WriteString(biddingTables)
	}
	for _, role := range p.roles() {
		secret := make([]byte, passwordBytes)
		if _, err := rand.Read(secret); err != nil {
			return nil, fmt.Errorf("making a password: %w", err)
		}
		passwords[role] = hex.EncodeToString(secret)
		fmt.Fprintf(&ddl, "create role %s login password '%s';", role, passwords[role])
		if !super {
			// To end the backends of a role one has to be a member of it.
			fmt.Fprintf(&ddl, "grant %s to current_user;", role)
		}
	}
	fmt.Fprintf(&ddl, rights, p.schema, p.writer, p.projector)
	if parts.Bidding != nil {
		fmt.Fprintf(&ddl, biddingRights, p.writer)
	}
	if t, ok := parts.Append.(tabled); ok {
		ddl.WriteString(t.Tables(p.writer))
	}
	tx, err := admin.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening the set-up transaction: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Conn().PgConn().Exec(ctx, ddl.String()).ReadAll(); err != nil {
		return nil, fmt.Errorf("creating schema %s: %w", p.schema, err)
	}
	if _, err := tx.Exec(ctx, `insert into checkpoints (projection) select unnest($1::text[])`, views); err != nil {
		return nil, fmt.Errorf("creating checkpoints: %w", err)
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, fmt.Errorf("creating schema %s: %w", p.schema, err)
	}
	return passwords, p.showHolders(ctx, admin)
}

// showHolders lets the readers see who holds the horizon. Where that may not be granted, they name the
// transaction only.
func (p place) showHolders(ctx context.Context, admin *pgx.Conn) error {
	_, err := admin.Exec(ctx, fmt.Sprintf("grant pg_read_all_stats to %s, %s", p.writer, p.projector))
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// drop removes what create made; what does not exist is passed over.
func (p place) drop(ctx context.Context, admin *pgx.Conn) error {
	// A backend of a dead role may still hold locks on the tables.
	_, err := admin.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where usename = any ($1)`, p.roles())
	if err != nil {
		return fmt.Errorf("ending the backends of %s: %w", p.schema, err)
	}
	drop := fmt.Sprintf("set lock_timeout to %d; drop schema if exists %s cascade", dropPatience.Milliseconds(), p.schema)
	if _, err := admin.PgConn().Exec(ctx, drop).ReadAll(); err != nil {
		return fmt.Errorf("dropping schema %s: %w", p.schema, err)
	}
	for _, role := range p.roles() {
		if _, err := admin.Exec(ctx, "drop role if exists "+role); err != nil {
			return fmt.Errorf("dropping role %s: %w", role, err)
		}
	}
	return nil
}

// Remove drops what a trial left on a server, for cleaning up after a runner that was killed. What does not
// exist is passed over.
func Remove(ctx context.Context, adminURL, trial string) error {
	p, err := placeOf(trial)
	if err != nil {
		return err
	}
	return asAdmin(ctx, adminURL, func(c *pgx.Conn) error { return p.drop(ctx, c) })
}
