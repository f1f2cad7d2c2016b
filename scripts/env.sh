# Sourced by the Makefile's recipes and the other scripts: where the build keeps what is slow to make.
# Everything lives in one folder of the user's cache, so that a fresh clone does not pay again for what an older one built.

BUILD_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/isobar"
ROCKSDB_VERSION=0.25.0

# rustup puts cargo here; a shell that is no login shell may not know.
case ":$PATH:" in
*":$HOME/.cargo/bin:"*) ;;
*) [ -d "$HOME/.cargo/bin" ] && PATH="$HOME/.cargo/bin:$PATH" ;;
esac

export PATH BUILD_CACHE ROCKSDB_VERSION
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$BUILD_CACHE/target}"
export ROCKSDB_LIB_DIR="$BUILD_CACHE/rocksdb-$ROCKSDB_VERSION"
export ROCKSDB_STATIC=1
export CXXSTDLIB=stdc++
