package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/eventproof/eventproof/targets"
	"github.com/eventproof/eventproof/targets/postgres/internal/pgtest"
)

// A plan is made while the tables are empty and kept while they grow: one that scans or sorts the whole table
// would turn every poll of a long run into a measurement of that mistake.
func TestEveryStatementOfTheHotPathsUsesAnIndexOnAnEmptyTable(t *testing.T) {
	for _, target := range Targets() {
		t.Run(target.Variant, func(t *testing.T) {
			opened, err := target.Open(t.Context(), targets.Site{AdminURL: pgtest.URL(t), Trial: pgtest.Trial()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := opened.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			i := opened.(*instance)
			cfg, err := connConfig(i.configs[i.place.writer].URL, roleParams(i.place.schema))
			if err != nil {
				t.Fatal(err)
			}
			c, err := pgx.ConnectConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(t.Context()) }()
			behind := map[Order]string{BySequence: selectBehindPosition, ByTransaction: selectBelowHorizon}[i.parts.Reader.Order()]
			for _, sql := range []string{selectHead, selectStream, selectRequest, selectSnapshot, behind} {
				plan := explain(t, c, sql)
				if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Sort") {
					t.Errorf("%s\n%s", sql, plan)
				}
			}
		})
	}
}

// explain shows the generic plan of a statement.
func explain(t *testing.T, c *pgx.Conn, sql string) string {
	t.Helper()
	if _, err := c.Exec(t.Context(), "set plan_cache_mode = force_generic_plan; deallocate all; prepare p as "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	n := 0
	for n < 9 && strings.Contains(sql, "$"+string(rune('1'+n))) {
		n++
	}
	args := strings.TrimSuffix(strings.Repeat("null,", n), ",")
	rows, err := c.Query(t.Context(), "explain execute p ("+args+")", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
