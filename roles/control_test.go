package roles

import (
	"encoding/json"
	"errors"
	"io/fs"
	"syscall"
	"testing"
)

func TestTheReasonOfAnErrorSurvivesTheWayToTheRunner(t *testing.T) {
	for _, c := range []struct {
		m    Message
		is   error
		text string
	}{
		{Message{Kind: MsgDone}, nil, ""},
		{Message{Kind: MsgDone, Error: "write a.seg: no space left on device", Errno: syscall.ENOSPC}, syscall.ENOSPC, "write a.seg: no space left on device"},
		{Message{Kind: MsgDone, Error: "something else"}, nil, "something else"},
	} {
		b, err := json.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		var m Message
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		err = m.Failure()
		if (err == nil) != (c.text == "") || err != nil && err.Error() != c.text || c.is != nil && !errors.Is(err, c.is) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s became %v", b, err)
		}
	}
}
