# Sourced by the Makefile's recipes and the other scripts: where the build keeps what is slow to make.
# Everything lives in one folder of the user's cache, so that a fresh clone does not pay again for what an older one built.

ISOBAR_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/isobar"
ROCKSDB_VERSION=0.25.0

# rustup puts cargo here; a shell that is no login shell may not know.
case ":$PATH:" in
*":$HOME/.cargo/bin:"*) ;;
*) [ -d "$HOME/.cargo/bin" ] && PATH="$HOME/.cargo/bin:$PATH" ;;
esac

# ISOBAR_CACHE is no setting of the program, which would refuse to start with it: it stays in this shell.
export PATH ROCKSDB_VERSION
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$ISOBAR_CACHE/target}"
export ROCKSDB_LIB_DIR="$ISOBAR_CACHE/rocksdb-$ROCKSDB_VERSION"
export ROCKSDB_STATIC=1
export CXXSTDLIB=stdc++
