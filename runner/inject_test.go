package runner

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/eventproof/eventproof/emulators/dynamodb"
)

func TestTheEmulatorRefusesWhileToldTo(t *testing.T) {
	server, err := dynamodb.Open(dynamodb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	web := httptest.NewServer(server)
	defer web.Close()
	list := func() string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.Status
	}
	stop, err := emulator{web.URL}.Inject(t.Context(), "throttle", 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"400", "400", "200"} {
		if got := list(); !strings.HasPrefix(got, want) {
			t.Errorf("request %d: %s, want %s", i+1, got, want)
		}
	}
	if hits, err := stop(t.Context()); err != nil || hits != 2 {
		t.Errorf("%d hits, %v", hits, err)
	}
	if _, err := (emulator{web.URL}).Inject(t.Context(), "nonsense", 1, 0); err == nil {
		t.Error("a kind that the emulator does not have was accepted")
	}
}
