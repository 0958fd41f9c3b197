#!/usr/bin/env bash
# A real kernel on top of volumes and below them: boots Debian's under QEMU, without KVM, and runs
# tests/guest/cases/*.sh in it, one after the other. Called by ./test --guest.
#
# CASES names the cases to run, SCHEMES and SWAP_SCHEMES the schemes that each is run with where
# that matters. The case swap gets a machine of its own, with little memory. The kernel is unpacked
# in target/guest and stays there.
set -Eeuo pipefail

PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin:/usr/sbin:/sbin
export PATH LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$root/target/guest
CASES=${CASES:-nbd power_cut log_writes ublk dm_crypt swap}
SCHEMES=${SCHEMES:-detwo sq}
SWAP_SCHEMES=${SWAP_SCHEMES:-detwo ring}
# Seconds that the swap is under load with each scheme.
SECONDS_OF_LOAD=${SECONDS_OF_LOAD:-30}
# Seconds after which the guest is ended, whatever it does.
TIMEOUT=${TIMEOUT:-$((600 + 4 * SECONDS_OF_LOAD))}

# Without one of these a kernel is of no use here.
MODULES=(virtio_pci virtio_blk ext4 nbd ublk_drv dm-mod dm-flakey dm-log-writes dm-crypt xts
    aesni-intel)
PROGRAMS=(bash busybox dd sha256sum sync mkfs.ext4 e2fsck nbd-client dmsetup mkswap swapon swapoff)
# Kernels that are looked at, from the newest on, before giving up.
KERNELS_MAX=4
# MiB of the two disks. The first holds images; the second is a log of writes.
DISK_MIB=1024
# The same for swaps, and MiB of the memory with and without them.
SWAP_DISK_MIB=4096
MEMORY_MIB=2048
SWAP_MEMORY_MIB=640

fail() {
    echo "guest: $*" >&2
    exit 1
}

# Whether the kernel unpacked in the folder $1 has every module.
has_modules() {
    local module release
    release=$(release_of "$1")
    for module in "${MODULES[@]}"; do
        modprobe --dirname "$1" --set-version "$release" --show-depends "$module" \
            >/dev/null 2>&1 || return 1
    done
}

release_of() {
    basename "$1"/lib/modules/*
}

# The names of kernel packages, the newest first.
kernel_packages() {
    apt-cache search --names-only '^linux-image-[0-9].*-amd64$' | cut -d ' ' -f 1 |
        grep -v -e cloud -e -rt- | sort --version-sort --reverse
}

# Leaves a kernel with every module in $work/kernel.
get_kernel() {
    local package tried=0
    if [ -d "$work/kernel" ]; then
        return
    fi
    for package in $(kernel_packages); do
        tried=$((tried + 1))
        if [ "$tried" -gt "$KERNELS_MAX" ]; then
            break
        fi
        rm -rf "$work/unpacked" "$work"/linux-image-*.deb
        echo "downloading $package"
        (cd "$work" && timeout 300 apt-get --quiet=2 download "$package") || continue
        dpkg -x "$work"/linux-image-*.deb "$work/unpacked"
        rm -f "$work"/linux-image-*.deb
        # An empty package that only depends on another has no modules.
        if [ ! -d "$work/unpacked/lib/modules" ]; then
            continue
        fi
        depmod --basedir "$work/unpacked" "$(release_of "$work/unpacked")"
        if has_modules "$work/unpacked"; then
            mv "$work/unpacked" "$work/kernel"
            return
        fi
    done
    fail "apt offers no kernel with the modules ${MODULES[*]}"
}

# Copies a program to bin, with the libraries that it loads.
add_program() {
    local library
    cp --dereference "$1" "$tree/bin/"
    # A static program has none.
    for library in $(ldd "$1" 2>/dev/null | grep --only-matching '/[^ ]*' || true); do
        cp --dereference --parents --update "$library" "$tree/"
    done
}

# Copies the modules, numbered in the order in which they must be loaded.
add_modules() {
    local module file number=100
    for module in "${MODULES[@]}"; do
        modprobe --dirname "$work/kernel" --set-version "$(release_of "$work/kernel")" \
            --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' >"$work/modules"
    while read -r file; do
        number=$((number + 1))
        case $file in
            *.xz) xz --decompress --stdout "$file" >"$tree/modules/$number.ko" ;;
            *.zst) zstd --decompress --stdout --quiet "$file" >"$tree/modules/$number.ko" ;;
            *) cp "$file" "$tree/modules/$number.ko" ;;
        esac
    done <"$work/modules"
}

# The first file system of the guest: everything that the cases $1 need.
make_initramfs() {
    local program
    tree=$work/tree
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,modules,dev,proc,sys,tmp,run,mnt,etc}
    for program in "${PROGRAMS[@]}"; do
        add_program "$(command -v "$program")"
    done
    for program in traceless xtask; do
        add_program "$binaries/$program"
    done
    add_modules
    cp -r "$here/cases" "$here/lib.sh" "$tree/"
    cp "$here/init.sh" "$tree/init"
    chmod +x "$tree/init"
    {
        printf 'export CASES="%s" SCHEMES="%s"\n' "$1" "$SCHEMES"
        printf 'export SWAP_SCHEMES="%s" SECONDS_OF_LOAD="%s"\n' "$SWAP_SCHEMES" "$SECONDS_OF_LOAD"
    } >"$tree/settings"
    (cd "$tree" && find . -print0 | cpio --null --create --format newc --quiet) >"$work/initramfs"
}

# Boots with $1 MiB of memory and disks of $2 MiB. What the kernel says goes to one serial line,
# what the cases say to another: it must be whole.
boot() {
    local disk
    for disk in images log; do
        rm -f "$work/$disk"
        truncate --size "$2M" "$work/$disk"
    done
    # What the guest writes is thrown away, so the host need not keep it safe.
    timeout --foreground --kill-after 5 "$TIMEOUT" qemu-system-x86_64 -pidfile "$work/pid" \
        -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m "$1" \
        -nographic -no-reboot -nodefaults -serial "file:$work/console" -serial stdio \
        -kernel "$work"/kernel/boot/vmlinuz-* -initrd "$work/initramfs" \
        -append "console=ttyS0 panic=-1 quiet" \
        -drive "file=$work/images,format=raw,if=virtio,cache=unsafe" \
        -drive "file=$work/log,format=raw,if=virtio,cache=unsafe" \
        </dev/null 2>&1 | sed --unbuffered 's/\r\+$//; s/^/        /' | tee "$work/results" &
    # A shell that waits for a job can be interrupted.
    wait "$!"
}

clean() {
    # QEMU removes the file when it ends.
    if [ -s "$work/pid" ]; then
        kill -KILL "$(cat "$work/pid")" 2>/dev/null || true
    fi
    rm -f "$work/pid" "$work/images" "$work/log"
}

# Each of the cases $1 must have said that it passed.
judge() {
    local case missing=()
    for case in $1; do
        grep -q "^ *$case: passed" "$work/results" || missing+=("$case")
    done
    if [ "${#missing[@]}" -gt 0 ]; then
        tail -n 60 "$work/console" >&2
        fail "did not pass: ${missing[*]}; the whole console is in $work/console"
    fi
}

[ "$(uname -m)" = x86_64 ] || fail "the guest is an x86-64 machine, this is $(uname -m)"
mkdir -p "$work"
# Of a machine that is long gone.
rm -f "$work/pid"
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
get_kernel
(cd "$root" && cargo build --release --locked -p traceless-cli --features ublk &&
    cargo build --release --locked -p xtask)
binaries=$(cd "$root" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/release
# Runs the cases $3 in a machine with $1 MiB of memory and disks of $2 MiB.
run_cases() {
    make_initramfs "$3"
    echo "booting $(release_of "$work/kernel") with $1 MiB for $3"
    boot "$1" "$2"
    judge "$3"
}

others=$(tr ' ' '\n' <<<"$CASES" | grep --invert-match --line-regexp swap | xargs || true)
[ -z "$others" ] || run_cases "$MEMORY_MIB" "$DISK_MIB" "$others"
if grep --quiet --word-regexp swap <<<"$CASES"; then
    run_cases "$SWAP_MEMORY_MIB" "$SWAP_DISK_MIB" swap
fi
echo "guest: $(wc -w <<<"$CASES") cases passed in $SECONDS s"
