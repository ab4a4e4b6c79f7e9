package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
)

// NotReadyError says that a server answered a probe, but not as one that serves clients.
type NotReadyError struct{ Answer string }

func (e *NotReadyError) Error() string { return "the server is not ready: " + e.Answer }

// ProbePostgres asks over an open connection whether a Postgres server serves clients: it begins a log-in and
// is content with any answer that only a serving server gives, a refusal of the user included.
// The deadline of ctx bounds it.
func ProbePostgres(ctx context.Context, conn net.Conn) error {
	done, err := ask(ctx, conn, startup("eventproof", probeName))
	if err != nil {
		return err
	}
	defer done()
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

// ProbeHTTP asks for / and is content with every answer but one of 500 and above: whoever refuses, serves.
// The deadline of ctx bounds it.
func ProbeHTTP(ctx context.Context, conn net.Conn) error {
	done, err := ask(ctx, conn, []byte("GET / HTTP/1.1\r\nHost: "+conn.RemoteAddr().String()+"\r\nConnection: close\r\n"+
		SessionHeader+": "+probeName+"\r\n\r\n"))
	if err != nil {
		return err
	}
	defer done()
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	if reply.StatusCode >= 500 {
		return &NotReadyError{Answer: reply.Status}
	}
	return reply.Body.Close()
}

// ProbeKafka asks for the versions that the server knows, in the oldest form, which every server answers.
// The deadline of ctx bounds it.
func ProbeKafka(ctx context.Context, conn net.Conn) error {
	const number = 0x65766e74
	b := binary.BigEndian.AppendUint32(nil, uint32(10+len(probeName)))
	b = binary.BigEndian.AppendUint16(b, kafkaAPIVersions)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, number)
	b = binary.BigEndian.AppendUint16(b, uint16(len(probeName)))
	done, err := ask(ctx, conn, append(b, probeName...))
	if err != nil {
		return err
	}
	defer done()
	var head [10]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	switch code := binary.BigEndian.Uint16(head[8:]); {
	case binary.BigEndian.Uint32(head[4:]) != number:
		return &NotReadyError{Answer: "no Kafka message"}
	case code != 0:
		return &NotReadyError{Answer: fmt.Sprintf("error code %d", code)}
	}
	return nil
}

// probeName is how probes call themselves.
const probeName = "eventproof probe"

// ask sends a question under the deadline of ctx. done releases what waits for the end of ctx.
func ask(ctx context.Context, conn net.Conn, question []byte) (done func() bool, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	done = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if _, err := conn.Write(question); err != nil {
		done()
		return nil, err
	}
	return done, nil
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
