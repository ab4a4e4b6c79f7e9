#!/usr/bin/env bash
# Gives the commands after it a Docker engine: the one that answers already, else a private one below a folder of its own,
# which is ended after them. Exit 75 where none can be had.
set -uo pipefail
if docker version >/dev/null 2>&1; then
  exec "$@"
fi
command -v dockerd >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends docker.io; } >/dev/null 2>&1
command -v dockerd >/dev/null && [ "$(id -u)" = 0 ] || exit 75
dir=$(mktemp -d)
export DOCKER_HOST="unix://$dir/docker.sock" DOCKER_CONFIG="$dir/config"
# A proxy that is none: what would be pulled fails at once instead of asking the outside.
HTTP_PROXY=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9 setsid dockerd --iptables=false --ip 127.0.0.1 \
  --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" -H "$DOCKER_HOST" >"$dir/log" 2>&1 &
engine=$!
trap 'kill "$engine" 2>/dev/null; wait "$engine" 2>/dev/null; umount -l "$dir"/exec/netns/* 2>/dev/null; rm -rf "$dir"' EXIT
for _ in $(seq 100); do
  docker version >/dev/null 2>&1 && break
  kill -0 "$engine" 2>/dev/null || break
  sleep 0.2
done
docker version >/dev/null 2>&1 || { tail -3 "$dir/log" >&2; exit 75; }
"$@"
