# Runs a PostgreSQL of its own in a new folder, on a socket in that folder, until standard input ends; then takes
# everything away. Prints the folder when it is ready. $1: the folder of PostgreSQL's programs. $2, if it is there: the port, on a
# socket in the same folder, of a standby that follows it.
set -eu
bin=$1
standby_port=${2:-}
folder=$(mktemp -d /tmp/isobar-postgres.XXXXXX)
servers=
stop() {
    for server in $servers; do
        kill -INT "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap stop EXIT
# A language's own order of letters, so that a column without an order of its own would be noticed.
initialize() { "$bin/initdb" --pgdata "$folder/data" --username isobar --auth trust --encoding UTF8 --no-sync "$@" >"$folder/log" 2>&1; }
initialize --locale C.UTF-8 --locale-provider icu --icu-locale en || { rm -rf "$folder/data"; initialize --locale C.UTF-8; } || { cat "$folder/log" >&2; exit 1; }
# Starts the server of a folder of data on a port, and waits until it answers.
serve() {
    "$bin/postgres" -D "$1" -p "$2" -k "$folder" -c listen_addresses= -c fsync=off -c max_connections=400 \
        -c max_prepared_transactions=10 \
        >>"$folder/log" 2>&1 </dev/null &
    servers="$! $servers"
    waited=0
    until "$bin/pg_isready" --quiet --host "$folder" --port "$2" --username isobar --dbname postgres; do
        waited=$((waited + 1))
        if [ "$waited" -gt 600 ] || ! kill -0 "$!" 2>/dev/null; then cat "$folder/log" >&2; exit 1; fi
        sleep 0.1
    done
}
serve "$folder/data" 5432
if [ -n "$standby_port" ]; then
    "$bin/pg_basebackup" --pgdata "$folder/standby" --host "$folder" --port 5432 --username isobar --checkpoint fast --no-sync \
        --write-recovery-conf >>"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
    serve "$folder/standby" "$standby_port"
fi
echo "$folder"
cat >/dev/null
