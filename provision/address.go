package provision

import (
	"net"
	"net/url"
)

// Loopback reports whether a host is this machine by its form; no name but localhost is looked up.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Masked renders a URL without what may be secret: the password, and every parameter that is not named harmless.
func Masked(u *url.URL, harmless ...string) string {
	m := *u
	q := u.Query()
	for key := range q {
		secret := true
		for _, h := range harmless {
			secret = secret && key != h
		}
		if secret {
			q.Set(key, "xxxxx")
		}
	}
	m.RawQuery = q.Encode()
	return m.Redacted()
}
