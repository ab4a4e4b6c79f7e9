package wire

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// NotReadyError says that a server answered a probe, but not as one that serves clients.
type NotReadyError struct{ Answer string }

func (e *NotReadyError) Error() string { return "the server is not ready: " + e.Answer }

// ProbePostgres asks over an open connection whether a Postgres server serves clients: it begins a log-in and
// is content with any answer that only a serving server gives, a refusal of the user included.
// The deadline of ctx bounds it.
func ProbePostgres(ctx context.Context, conn net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(startup("eventproof", "eventproof probe")); err != nil {
		return err
	}
	var head [5]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > pgMaxStartup {
		return &NotReadyError{Answer: "no Postgres message"}
	}
	switch head[0] {
	case 'R', 'v':
		return nil
	case 'E':
		body := make([]byte, n-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return err
		}
		if code := sqlState(body); len(code) == 5 && (code[:2] == "28" || code[:2] == "3D") {
			return nil
		} else {
			return &NotReadyError{Answer: "SQLSTATE " + code}
		}
	}
	return &NotReadyError{Answer: fmt.Sprintf("message %q", head[0])}
}

// startup is a start-up packet.
func startup(user, application string) []byte {
	b := []byte{0, 0, 0, 0, 0, 3, 0, 0}
	for _, s := range []string{"user", user, "application_name", application} {
		b = append(append(b, s...), 0)
	}
	b = append(b, 0)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}
