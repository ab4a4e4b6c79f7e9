package dynamodb

import "sync"

// maxRemembered bounds what a session remembers; beyond it everything is forgotten, which costs a look-up only.
const maxRemembered = 1 << 15

// seen remembers, for each stream, a version that was seen to exist. Events are never deleted, so it stays true.
type seen struct {
	mu       sync.Mutex
	versions map[string]uint64
}

func (s *seen) upTo(stream string, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version <= s.versions[stream] {
		return
	}
	if s.versions == nil || len(s.versions) >= maxRemembered {
		s.versions = map[string]uint64{}
	}
	s.versions[stream] = version
}

func (s *seen) has(stream string, version uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return version <= s.versions[stream]
}

// acked remembers the client tokens that were acknowledged. The server answers a repeated token like the first time, so
// only the session can tell that an answer is a repeated one.
type acked struct {
	mu     sync.Mutex
	tokens map[string]struct{}
}

// add remembers a token and reports whether it had been acknowledged before.
func (a *acked) add(token string) (before bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, before = a.tokens[token]; before {
		return true
	}
	if a.tokens == nil || len(a.tokens) >= maxRemembered {
		a.tokens = map[string]struct{}{}
	}
	a.tokens[token] = struct{}{}
	return false
}
