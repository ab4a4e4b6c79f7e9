package postgres_test

import (
	"os"
	"testing"

	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
