package wire

import "sync/atomic"

// Traffic is what a proxy has carried since it was made, probes left out.
type Traffic struct {
	Connections uint64 // accepted and joined to the server
	Failed      uint64 // accepted, but the server could not be reached
	Unreadable  uint64 // connections that the protocol could not be followed on
	UpBytes     uint64 // client to server
	UpChunks    uint64
	DownBytes   uint64 // server to client
	DownChunks  uint64
	Open        int // connections whose client is there now
	Orphans     int // connections kept for the server's side only: a parked commit whose client has left
}

type meter struct {
	connections, failed, unreadable          atomic.Uint64
	upBytes, upChunks, downBytes, downChunks atomic.Uint64
}

func (m *meter) count(dir Directions, n int, probe bool) {
	switch {
	case probe:
	case dir == Up:
		m.upBytes.Add(uint64(n))
		m.upChunks.Add(1)
	default:
		m.downBytes.Add(uint64(n))
		m.downChunks.Add(1)
	}
}
