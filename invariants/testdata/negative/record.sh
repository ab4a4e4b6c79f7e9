#!/usr/bin/env bash
# Records the negative controls again (needs Postgres, Java and a built bin/eventproof); see negative_test.go for what each
# of them has to show. Run from the top of the repository.
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
record() { # name scenario target duration
  local dir="$out/$1"
  bin/eventproof run -s "$2" -t "$3" --seed 1 ${4:+--for "$4"} --out "$dir" --progress none -q >/dev/null || true
  cp "$dir"/latest/history/*.hist.zst "invariants/testdata/negative/$1.hist.zst"
}
record postgres-hot hot-account postgres/xid-horizon 2s
record postgres-soak soak-bank postgres/advisory-lock
record postgres-crash store-crash postgres/advisory-lock
record postgres-auction soak-auction postgres/xid-horizon
record dynamodb-throttled throttled dynamodb/conditional-put
record dynamodb-soak soak-bank dynamodb/conditional-put
record kafka-aborted det-cv-ka-17 kafka/fenced-writer
