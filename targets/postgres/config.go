package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	connectTimeout = 3 * time.Second
	// maxConns bounds the connections of one role; requests beyond it wait.
	maxConns = 16
)

// config is what a role in any process needs to connect. It holds the role's own password, never the admin's.
type config struct {
	URL      string `json:"url"`
	Schema   string `json:"schema"`
	MaxConns int    `json:"maxConns"`
}

var errURL = errors.New("postgres: need a URL of the form postgres://user@host:port/database")

// parseURL reads a URL and pins what the environment (PGUSER, PGSSLMODE, a password file, …) would otherwise decide.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's message repeats the URL, with its password.
		return nil, errURL
	}
	if (u.Scheme != "postgres" && u.Scheme != "postgresql") || u.Hostname() == "" || u.User.Username() == "" || len(u.Path) < 2 {
		return nil, errURL
	}
	if u.Port() == "" {
		u.Host += ":5432"
	}
	q := u.Query()
	for key, value := range map[string]string{"sslmode": "prefer", "target_session_attrs": "any"} {
		if q.Get(key) == "" {
			q.Set(key, value)
		}
	}
	u.RawQuery = q.Encode()
	return u, nil
}

// asUser returns the URL for another user of the same database.
func asUser(raw, user, password string) (string, error) {
	u, err := parseURL(raw)
	if err != nil {
		return "", err
	}
	u.User = url.UserPassword(user, password)
	return u.String(), nil
}

// connConfig makes the driver's configuration: nothing of it comes from the environment.
func connConfig(raw string, params map[string]string) (*pgx.ConnConfig, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, err
	}
	cfg, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	cfg.Password, _ = u.User.Password()
	cfg.ConnectTimeout = connectTimeout
	cfg.RuntimeParams = params
	return cfg, nil
}

// roleParams are the settings of a role's connections.
func roleParams(schema string) map[string]string {
	return map[string]string{
		"search_path": schema,
		// A backend whose client is gone would otherwise wait for its locks to the end.
		"client_connection_check_interval": "250ms",
		// A plan made while the tables were empty is kept when they have grown; only index scans stay right.
		"enable_seqscan":    "off",
		"enable_bitmapscan": "off",
	}
}

// parseConfig reads what Instance.Config wrote.
func parseConfig(raw json.RawMessage) (config, error) {
	var c config
	if err := json.Unmarshal(raw, &c); err != nil {
		return config{}, fmt.Errorf("postgres: reading the role's configuration: %w", err)
	}
	return c, nil
}

// asAdmin runs f on a connection of its own with the rights of the URL's user.
func asAdmin(ctx context.Context, adminURL string, f func(*pgx.Conn) error) error {
	cfg, err := connConfig(adminURL, map[string]string{"application_name": "eventproof"})
	if err != nil {
		return err
	}
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("postgres: connecting as admin: %w", err)
	}
	defer func() { _ = c.Close(ctx) }()
	return f(c)
}
