# Runs a PostgreSQL of its own in a new folder, on a socket in that folder, until standard input ends; then takes
# everything away. Prints the folder when it is ready. $1: the folder of PostgreSQL's programs.
set -eu
bin=$1
folder=$(mktemp -d /tmp/isobar-postgres.XXXXXX)
server=
stop() {
    if [ -n "$server" ]; then
        kill -INT "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$folder"
}
trap stop EXIT
# A language's own order of letters, so that a column without an order of its own would be noticed.
initialize() { "$bin/initdb" --pgdata "$folder/data" --username isobar --auth trust --encoding UTF8 --no-sync "$@" >"$folder/log" 2>&1; }
initialize --locale C.UTF-8 --locale-provider icu --icu-locale en || { rm -rf "$folder/data"; initialize --locale C.UTF-8; } || { cat "$folder/log" >&2; exit 1; }
"$bin/postgres" -D "$folder/data" -k "$folder" -c listen_addresses= -c fsync=off -c max_connections=400 \
    >>"$folder/log" 2>&1 </dev/null &
server=$!
waited=0
until "$bin/pg_isready" --quiet --host "$folder" --username isobar --dbname postgres; do
    waited=$((waited + 1))
    if [ "$waited" -gt 600 ] || ! kill -0 "$server" 2>/dev/null; then cat "$folder/log" >&2; exit 1; fi
    sleep 0.1
done
echo "$folder"
cat >/dev/null
