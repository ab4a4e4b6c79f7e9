package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/provision"
)

// CheckURL says what is wrong with the URL of an external server as far as that can be told without connecting: its
// form, and an address that is not loopback and needs allowRemote. Passwords appear in no error.
func CheckURL(rawURL string, allowRemote bool) error {
	_, _, err := parseExternal(rawURL, allowRemote)
	return err
}

const externalTimeout, probeTimeout = 10 * time.Second, 2 * time.Second

func parseExternal(rawURL string, allowRemote bool) (*url.URL, *pgx.ConnConfig, error) {
	u, err := url.Parse(rawURL)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") || u.Hostname() == "" {
		// The parser's own message may hold the password.
		return nil, nil, errors.New("provision: the external server's URL must have the form postgres://user:password@host:port/database")
	}
	cfg, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return nil, nil, fmt.Errorf("provision: external server %s: its parameters can't be used", masked(u))
	}
	hosts := []string{cfg.Host}
	for _, f := range cfg.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, h := range hosts {
		if !provision.Loopback(h) && !allowRemote {
			return nil, nil, fmt.Errorf("provision: external server %s: %s is not a loopback address; "+
				"eventproof puts load on it, so allow that with --allow-remote", masked(u), h)
		}
	}
	return u, cfg, nil
}

// OpenExternal checks that a server which somebody else runs can be reached. An address that is not loopback needs
// allowRemote. Passwords appear in no error.
func OpenExternal(ctx context.Context, rawURL string, allowRemote bool) (*provision.Server, error) {
	u, cfg, err := parseExternal(rawURL, allowRemote)
	if err != nil {
		return nil, err
	}
	version, err := probe(ctx, rawURL, externalTimeout)
	if err != nil {
		return nil, fmt.Errorf("provision: external server %s can't be used: %w", masked(u), err)
	}
	return provision.NewServer(provision.Info{
		Store: Name, Title: title, Kind: provision.External, Fidelity: provision.Real, Version: version, URL: rawURL, Shown: masked(u),
		Addr: net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))),
	}, nil), nil
}

// masked renders a URL without what may be secret.
func masked(u *url.URL) string {
	return provision.Masked(u, "sslmode", "application_name", "connect_timeout")
}

// probe asks the server for its version, by protocol.
func probe(ctx context.Context, rawURL string, timeout time.Duration) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, rawURL)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the question was answered
	err = conn.QueryRow(ctx, "SHOW server_version").Scan(&version)
	return version, err
}
