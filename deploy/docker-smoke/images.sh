#!/usr/bin/env bash
# Builds the images of the smoke test where none can be pulled: Postgres of this machine's own files, which is the product,
# and the emulator of this program in the place of DynamoDB Local, which is a stand-in and says so. Needs Go, an engine, and Debian's Postgres and busybox-static.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# root makes a folder with a shell in it; libraries copies what programs are linked with to where they look for it.
root() {
  mkdir -p "$1/bin" "$1/tmp" "$1/etc" "$1/data"
  chmod 1777 "$1/tmp"
  cp "$(command -v busybox)" "$1/bin/busybox"
  for tool in sh chown mkdir su id env grep sed tr cat; do ln -s busybox "$1/bin/$tool"; done
  printf 'root:x:0:0::/:/bin/sh\npostgres:x:70:70::/data:/bin/sh\n' >"$1/etc/passwd"
  printf 'root:x:0:\npostgres:x:70:\n' >"$1/etc/group"
}
libraries() {
  local into=$1
  shift
  ldd "$@" 2>/dev/null | grep -o '/[^ ]*' | grep -v ':$' | sort -u | while read -r lib; do
    if [ -f "$lib" ]; then mkdir -p "$into$(dirname "$lib")" && cp -nL "$lib" "$into$lib"; fi
  done
}
image() { # folder, name
  chmod +x "$1/start"
  tar -C "$1" -c . | docker import --change 'ENTRYPOINT ["/start"]' --change 'ENV PATH=/bin' - "eventproof-smoke/$2:1" >/dev/null
}

root "$work/dynamodb"
CGO_ENABLED=0 go build -o "$work/dynamodb/standin" ./deploy/docker-smoke/standin
printf '#!/bin/sh\nexec /standin\n' >"$work/dynamodb/start"
image "$work/dynamodb" dynamodb

pg=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
root=$work/postgres
version=$(basename "$(dirname "$pg")")
root "$root"
mkdir -p "$root/dev/shm" "$root$(dirname "$pg")" "$root/usr/share/postgresql" "$root/usr/share/zoneinfo"
cp -a "$pg" "$(dirname "$pg")/lib" "$root$(dirname "$pg")/"
rm -rf "$root$(dirname "$pg")"/lib/bitcode "$root$(dirname "$pg")"/lib/llvmjit*
cp -a "/usr/share/postgresql/$version" "$root/usr/share/postgresql/"
cp -aL /usr/share/zoneinfo/. "$root/usr/share/zoneinfo/"
libraries "$root" "$pg/postgres" "$pg/initdb" "$(dirname "$pg")"/lib/*.so
cat >"$root/start" <<S
#!/bin/sh
set -e
if [ "\$(id -u)" = 0 ]; then
  chown -R postgres /data
  exec su postgres -c "/start \$*"
fi
if [ ! -f /data/PG_VERSION ]; then
  $pg/initdb -D /data -U postgres --auth=trust --encoding=UTF8 --locale=C >/dev/null
  echo 'host all all all trust' >>/data/pg_hba.conf
fi
shift
exec $pg/postgres -D /data -c listen_addresses='*' -c unix_socket_directories=/tmp "\$@"
S
image "$root" postgres

docker images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep eventproof-smoke
