#!/bin/sh
# Builds the kernels for AArch64 and runs their tests under emulation, on an x86-64 machine with Debian's package
# servers in reach: once on a processor with the dot-product extension and once on one without.
#
# Everything is taken from Debian packages (a Rust compiler with the standard library for AArch64, a cross linker,
# QEMU), downloaded with apt and unpacked under target/neon: nothing is installed and no privileges are needed. About
# 360 MB are downloaded the first time. Arguments go to the test programs, for example a part of a test's name.
set -eu
cd "$(dirname "$0")/.."
work=$PWD/target/neon
root=$work/root

. tools/debian-packages.sh
unpack_packages "$work" 'amd64 arm64' rustc-web libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu \
    libc6-dev-arm64-cross qemu-user-static

# The compiler looks for its own libraries; the cross linker for its libraries under the unpacked root.
cat > "$work/rustc" <<EOF
#!/bin/sh
LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu exec $root/usr/bin/rustc "\$@"
EOF
cat > "$work/linker" <<EOF
#!/bin/sh
PATH=$root/usr/bin:\$PATH LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu exec $root/usr/bin/aarch64-linux-gnu-gcc \\
    --sysroot=$root -B$root/usr/aarch64-linux-gnu/lib -L$root/usr/aarch64-linux-gnu/lib "\$@"
EOF
chmod +x "$work/rustc" "$work/linker"

export RUSTC="$work/rustc" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$work/build}"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$work/linker"
# The first processor has the dot products, the second does not.
for processor in max cortex-a53; do
    echo "AArch64, processor $processor"
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$root/usr/bin/qemu-aarch64-static -cpu $processor -L $root/usr/aarch64-linux-gnu" \
        cargo test --release -p attend-kernels --target aarch64-unknown-linux-gnu --lib --tests -- "$@"
done
