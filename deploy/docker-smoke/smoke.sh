#!/usr/bin/env bash
# Runs the Docker provider against an engine: its tests, and a killed and paused store of each kind. Needs bin/eventproof.
set -euo pipefail
cd "$(dirname "$0")/../.."
deploy/docker-smoke/images.sh
export EVENTPROOF_POSTGRES_IMAGE=eventproof-smoke/postgres:1 EVENTPROOF_DYNAMODB_IMAGE=eventproof-smoke/dynamodb:1
EVENTPROOF_DOCKER_TEST=1 go test -count 1 ./provision/docker
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bin/eventproof run -s store-crash -t postgres/advisory-lock -t dynamodb/transact-head --provider docker --require-real=postgres \
  --out "$out" --progress none
left=$(docker ps -aq --filter label=eventproof.owner)
[ -z "$left" ] || { echo "containers are left: $left"; exit 1; }
