# Sourced by scripts/with-patroni and scripts/with-machines: finds what they start, and keeps it running. Functions use $folder.
# shellcheck shell=bash disable=SC2034,SC2154

PATH=$PATH:/usr/sbin
OLDEST_PATRONI=3.0.3

require() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || { echo "$program is missing: scripts/prepare patroni" >&2; exit 1; }
    done
}

# shellcheck disable=SC2012
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5 -n | tail -1)
[ -n "$bin" ] || bin=$(dirname "$(readlink -f "$(command -v initdb)")")

# PostgreSQL refuses to run as root.
user=$(id -un)
as_user=()
if [ "$(id -u)" -eq 0 ]; then
    user=nobody
    id postgres >/dev/null 2>&1 && user=postgres
    as_user=(setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups env HOME=/tmp)
fi

# Succeeds if a version of Patroni is new enough.
is_patroni_new_enough() { printf '%s\n%s\n' "$OLDEST_PATRONI" "$1" | sort --version-sort --check=quiet; }

fails() {
    tail -n 20 "$folder"/*.log >&2
    echo "$(basename "$0"): $1" >&2
    exit 1
}

# Runs a program in the background, anew whenever it ends, with its name on its pid file and its log, but not while NAME.down is there.
keepers=()
keep() {
    local name=$1
    shift
    (
        trap - EXIT HUP INT TERM
        cd /tmp || exit
        while :; do
            setsid "$@" >>"$folder/$name.log" 2>&1 </dev/null &
            echo $! >"$folder/$name.pid"
            wait $! 2>/dev/null || true
            rm -f "$folder/$name.pid"
            sleep 1
            while [ -e "$folder/$name.down" ]; do sleep 0.2; done
        done
    ) &
    keepers+=($!)
    disown
}

wait_for() {
    local what=$1 waited=0
    shift
    until "$@" >/dev/null 2>&1; do
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || fails "$what: waited in vain"
        sleep 0.1
    done
}

asks() { curl --silent --fail --max-time 2 --output /dev/null "$1"; }

# Asks the primary of a pair as its superuser, at HAProxy's address.
tell() { PGPASSWORD=change-superuser "$bin/psql" "postgres://postgres@$1/postgres" --no-psqlrc --quiet --set ON_ERROR_STOP=1 --command "$2"; }

# Makes Isobar's role and database in a pair.
make_database() {
    tell "$1" "CREATE ROLE isobar LOGIN CREATEDB PASSWORD 'test'"
    tell "$1" "CREATE DATABASE isobar OWNER isobar"
}
