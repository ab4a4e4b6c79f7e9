package provision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// CheckURL says what is wrong with the URL of an external server as far as that can be told without connecting: its
// form, and an address that is not loopback and needs allowRemote. Passwords appear in no error.
func CheckURL(rawURL string, allowRemote bool) error {
	_, _, err := parseExternal(rawURL, allowRemote)
	return err
}

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
		if !loopback(h) && !allowRemote {
			return nil, nil, fmt.Errorf("provision: external server %s: %s is not a loopback address; "+
				"eventproof puts load on it, so allow that with --allow-remote", masked(u), h)
		}
	}
	return u, cfg, nil
}

// OpenExternal checks that a server which somebody else runs can be reached. An address that is not loopback needs
// allowRemote. Passwords appear in no error.
func OpenExternal(ctx context.Context, rawURL string, allowRemote bool) (*Server, error) {
	u, cfg, err := parseExternal(rawURL, allowRemote)
	if err != nil {
		return nil, err
	}
	version, err := probe(ctx, rawURL, 10*time.Second)
	if err != nil {
		return nil, fmt.Errorf("provision: external server %s can't be used: %w", masked(u), err)
	}
	return &Server{
		kind: External, version: version, url: rawURL, shown: masked(u),
		addr: net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))),
	}, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// masked renders a URL without what may be secret: the password, and every parameter but the harmless ones.
func masked(u *url.URL) string {
	m := *u
	q := u.Query()
	for key := range q {
		if key != "sslmode" && key != "application_name" && key != "connect_timeout" {
			q.Set(key, "xxxxx")
		}
	}
	m.RawQuery = q.Encode()
	return m.Redacted()
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
