#!/bin/sh
# Runs the kernels' tests on an emulated processor with AVX-512 (VNNI, BF16), on an x86-64 machine with Debian's package
# servers in reach: Bochs, a small Linux, and the test programs as its only content. An hour or so; give it a part of a
# test's name to run less.
#
# The kernel, the boot loader and busybox come from Debian packages, unpacked under target/avx512: nothing is installed
# and no privileges are needed. Bochs is built from its sources, because packaged versions know no processor with
# BF16; BOCHS_SOURCE names a folder with its sources (or an earlier build there), else they are cloned.
set -eu
cd "$(dirname "$0")/.."
project=$PWD
work=$project/target/avx512
root=$work/root

. tools/debian-packages.sh
unpack_packages "$work" amd64 linux-image-cloud-amd64 busybox-static isolinux syslinux-common xorriso

source=${BOCHS_SOURCE:-$work/bochs-source/bochs}
if [ ! -x "$source/bochs" ]; then
    [ -d "$source" ] || git clone --quiet --depth 1 https://github.com/bochs-emu/Bochs "$work/bochs-source"
    (cd "$source" && ./configure --enable-x86-64 --enable-cpu-level=6 --enable-avx --enable-evex --enable-amx \
        --enable-repeat-speedups --enable-fast-function-calls --enable-handlers-chaining --with-nogui \
        --disable-docbook --enable-pci && make -j "${CARGO_BUILD_JOBS:-2}") > "$work/bochs.log" 2>&1 ||
        { tail -n 5 "$work/bochs.log"; exit 1; }
fi

# Programs without shared libraries: the guest has none.
export CARGO_TARGET_DIR="$work/build" RUSTFLAGS='-C target-feature=+crt-static'
cargo test --release -p attend-kernels --target x86_64-unknown-linux-gnu --lib --tests --no-run 2> "$work/build.log" ||
    { cat "$work/build.log"; exit 1; }
guest=$work/guest
rm -rf "$guest" && mkdir -p "$guest/bin" "$guest/tests" "$guest$project/crates/kernels" "$guest$project/goldens"
sed -n 's/.*(\(.*\))$/\1/p' "$work/build.log" | xargs -I {} cp {} "$guest/tests/"
cp -r crates/kernels/tests "$guest$project/crates/kernels/"
cp -r goldens/modules "$guest$project/goldens/"
busybox=$(find "$root" -name busybox -type f | head -n 1)
cp "$busybox" "$guest/bin/busybox"
cat > "$guest/init" <<END
#!/bin/busybox sh
/bin/busybox mkdir -p /proc /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
cd "$project/crates/kernels"
/bin/busybox grep -m1 -o 'avx512_bf16' /proc/cpuinfo || echo 'FAILED: the guest has no AVX-512'
for program in /tests/*; do
    "\$program" --test-threads 1 $*
done
echo 'guest: done'
/bin/busybox poweroff -f
END
chmod +x "$guest/init"

# The kernel's own support of the matrix tiles stumbles over the emulator's: those features are hidden from it.
iso=$work/iso
rm -rf "$iso" && mkdir -p "$iso/isolinux"
cp "$root"/boot/vmlinuz-* "$iso/vmlinuz"
cp "$root/usr/lib/ISOLINUX/isolinux.bin" "$root/usr/lib/syslinux/modules/bios/ldlinux.c32" "$iso/isolinux/"
cat > "$iso/isolinux/isolinux.cfg" <<END
default l
prompt 0
timeout 1
label l
  kernel /vmlinuz
  append initrd=/initrd console=ttyS0,115200 quiet nokaslr mitigations=off init_on_alloc=0 panic=-1 clearcpuid=580,598,600,601
END
(cd "$guest" && find . | "$busybox" cpio -o -H newc 2>/dev/null) > "$iso/initrd"
LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu "$root/usr/bin/xorriso" -as mkisofs -quiet -o "$work/guest.iso" \
    -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$iso"

cat > "$work/bochsrc" <<END
cpu: model=sapphire_rapids, count=1, ips=40000000, reset_on_triple_fault=0
memory: guest=1024, host=1024
romimage: file=$source/bios/BIOS-bochs-latest
vgaromimage: file=$source/bios/VGABIOS-lgpl-latest
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$work/guest.iso, status=inserted
boot: cdrom
clock: sync=none, time0=utc
com1: enabled=1, mode=file, dev=$work/serial.txt
display_library: nogui
log: $work/bochs-run.log
panic: action=fatal
error: action=report
info: action=ignore
debug: action=ignore
END
: > "$work/serial.txt"
"$source/bochs" -q -f "$work/bochsrc" > "$work/bochs-out.log" 2>&1 < /dev/null &
emulator=$!
trap 'kill "$emulator" 2>/dev/null || true' EXIT
tail -f --pid="$emulator" "$work/serial.txt"
grep -q 'guest: done' "$work/serial.txt" && ! grep -q FAILED "$work/serial.txt"
