package wire

import (
	"sync"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// toxicType is the name under which toxiproxy knows our toxic.
const toxicType = "eventproof"

// toxic stands permanently in both chains of a proxy. Toxiproxy builds it from JSON, so that it can name its
// proxy by a number only; the state of a connection is made by NewState when a link starts.
type toxic struct {
	Proxy    uint64 `json:"proxy"`
	Requests bool   `json:"requests"` // in the upstream chain
}

var (
	_ toxics.Toxic         = (*toxic)(nil)
	_ toxics.StatefulToxic = (*toxic)(nil)
)

// NewState implements toxics.StatefulToxic. It runs inside StartLink, which the proxy calls for one connection
// at a time.
func (t *toxic) NewState() any {
	p := proxies.find(t.Proxy)
	if p == nil || p.starting == nil {
		return nil
	}
	if t.Requests {
		return p.starting.up
	}
	return p.starting.down
}

// Pipe implements toxics.Toxic.
func (t *toxic) Pipe(stub *toxics.ToxicStub) {
	if l, ok := stub.State.(*link); ok {
		l.pipe(stub)
		return
	}
	new(toxics.NoopToxic).Pipe(stub)
}

// directory finds the proxies that toxics name by number. Toxiproxy's registry of toxic types is global, so
// this is too; entries live from NewProxy to Close.
type directory struct {
	once sync.Once
	mu   sync.Mutex
	last uint64
	open map[uint64]*Proxy
}

var proxies directory

func (d *directory) add(p *Proxy) uint64 {
	d.once.Do(func() { toxics.Register(toxicType, new(toxic)) })
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[uint64]*Proxy{}
	}
	d.last++
	d.open[d.last] = p
	return d.last
}

func (d *directory) find(id uint64) *Proxy {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[id]
}

func (d *directory) remove(id uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, id)
}
