#!/bin/sh
# Runs tests under the sanitizers that come with Rust, on a machine that has them: AddressSanitizer over the kernels, where all
# `unsafe` is, and ThreadSanitizer over what several threads do: the pool and the products on it, the schedule with its
# matchers beside it, shared pasts, and the server. Any report fails. Give it `address` or `thread` to run one of the two.
#
# The flags are not stable, so the compiler is told that it may have them. ThreadSanitizer must see the standard library too,
# which is then built from its source (`rustup component add rust-src`). Both build with little optimisation, which takes
# minutes where the whole takes an hour.
set -eu
cd "$(dirname "$0")/.."
[ "$(uname -sm)" = 'Linux x86_64' ] || { echo 'skipped: the sanitizers (they are used on Linux on x86-64)'; exit 0; }
target=x86_64-unknown-linux-gnu
root=$(rustc --print sysroot)
places=${CARGO_TARGET_DIR:-target}
export RUSTC_BOOTSTRAP=1 CARGO_PROFILE_RELEASE_OPT_LEVEL=1

has() {
    ls "$root/lib/rustlib/$target/lib/" | grep -q "_rt\.$1\.a\$" && return
    echo "skipped: $2 (the toolchain has no runtime of it)"
    return 1
}

address() {
    has asan AddressSanitizer || return 0
    echo 'AddressSanitizer: the kernels on every instruction set of this machine'
    # Memory that nobody has is to be refused, as the system does: tests ask for it.
    CARGO_TARGET_DIR=$places/address RUSTFLAGS='-Zsanitizer=address' ASAN_OPTIONS=allocator_may_return_null=1 \
        cargo test --release --target "$target" -p attend-kernels --lib --tests
}

thread() {
    has tsan ThreadSanitizer || return 0
    if [ ! -e "$root/lib/rustlib/src/rust/library/std/Cargo.toml" ]; then
        echo 'skipped: ThreadSanitizer (rustup component add rust-src)'
        return 0
    fi
    echo 'ThreadSanitizer: the pool, products and attention on it, the schedule, shared pasts, the server'
    export CARGO_TARGET_DIR="$places/thread" RUSTFLAGS='-Zsanitizer=thread' TSAN_OPTIONS=halt_on_error=1
    run() { cargo test --release -Zbuild-std --target "$target" "$@"; }
    run -p attend-kernels --lib -- pool:: matrix:: attention::
    run -p attend-engine --lib --test batch -- schedule:: constrain:: prefix
    run -p attend-server --lib --test http -- host:: company:: seats:: adapters:: states:: prefix::
}

case ${1:-both} in
    address) address ;;
    thread) thread ;;
    *) address; thread ;;
esac
