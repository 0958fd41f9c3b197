#!/usr/bin/env bash
# The pager's core for C and C++, without an operating system: built for this machine and, where its
# target can be had, for riscv64.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

sources=$root/tests/pager_c
include=$root/crates/traceless-pager/include
warnings=(-Wall -Wextra -Werror -pedantic)

# Builds the library for the target $1, as docs/paging.md has it, and tells where it lies. With
# `false` as $2 it is linked in parts: sooner, and larger.
library() {
    # It must not unwind into C. Most of the library is for others than pagers: what these need is
    # optimised when all is linked, and nothing else is.
    cargo rustc --quiet --release --locked --manifest-path "$root/Cargo.toml" --lib \
        --package traceless-pager --no-default-features --features c --crate-type staticlib \
        --target "$1" --config 'profile.release.panic="abort"' --config "profile.release.lto=$2" \
        --config 'profile.release.package.traceless.opt-level=1' \
        --config 'profile.release.package.traceless.codegen-units=16' &&
        echo "${CARGO_TARGET_DIR:-$root/target}/$1/release/libtraceless_pager.a"
}

section "from C and C++, on this machine"
archive=$(library "$(rustc -vV | sed -n 's/^host: //p')" false)
expect 0 gcc -std=c11 -O1 "${warnings[@]}" -I "$include" "$sources/pager.c" "$archive" -o pager
expect 0 ./pager 400
check "all was tried" grep -q "all is well" out
expect 0 g++ -std=c++17 -O1 "${warnings[@]}" -I "$include" "$sources/threads.cpp" "$archive" \
    -pthread -o threads
expect 0 ./threads

# Whether the compiler builds for a target: its core library is there, or can be fetched.
has_target() {
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1" ] ||
        { command -v rustup >/dev/null && timeout 300 rustup target add "$1" 2>/dev/null; }
}

section "on riscv64"
riscv=riscv64gc-unknown-none-elf
cross=riscv64-linux-gnu-gcc
if ! has_target "$riscv"; then
    leave_out "riscv64: the core library for $riscv cannot be had here"
    exit 0
fi
# Without an operating system gcc finds its headers all the same: those of the C library.
needs="$cross:gcc-riscv64-linux-gnu qemu-riscv64:qemu-user qemu-system-riscv64:qemu-system-misc"
for need in $needs; do
    if ! command -v "${need%%:*}" >/dev/null; then
        leave_out "riscv64: ${need%%:*} is missing (Debian's ${need#*:}; ./test e2e installs it)"
        exit 0
    fi
done
if [ ! -e /usr/riscv64-linux-gnu/include/stdio.h ] &&
    ! echo '#include <stdio.h>' | "$cross" -E - >/dev/null 2>&1; then
    leave_out "riscv64: its C library is missing (Debian's libc6-dev-riscv64-cross; ./test e2e" \
        "installs it)"
    exit 0
fi
# Without it no machine begins. It is a package of its own.
has_firmware() {
    local folder
    while read -r folder; do
        [ ! -e "$folder/opensbi-riscv64-generic-fw_dynamic.bin" ] || return 0
    done < <(qemu-system-riscv64 -L help)
    return 1
}
if ! has_firmware; then
    leave_out "riscv64: the firmware of qemu-system-riscv64 is missing (Debian's opensbi; ./test" \
        "e2e installs it)"
    exit 0
fi
archive=$(library "$riscv" true)
cpu=(-march=rv64gc -mabi=lp64d -mcmodel=medany)
expect 0 "$cross" -std=c11 -O2 "${warnings[@]}" "${cpu[@]}" -static -I "$include" \
    "$sources/pager.c" "$archive" -o pager.riscv64
expect 0 qemu-riscv64 ./pager.riscv64 16
check "all was tried" grep -q "all is well" out

section "in the place of Eyrie's page_swap.c"
# As Eyrie is compiled, but for warnings; its own side is played by eyrie.c.
expect 0 "$cross" -std=c11 -O2 "${warnings[@]}" "${cpu[@]}" -fno-builtin -ffreestanding -fPIE \
    -I "$include" -c "$sources/keystone/page_swap.c" -o page_swap.o
eyrie=("$cross" -std=c11 -O2 "${warnings[@]}" "${cpu[@]}" -static -I "$include"
    -Wl,--wrap=sbi_query_multimem,--wrap=sbi_query_multimem_addr)
expect 0 "${eyrie[@]}" "$sources/keystone/eyrie.c" page_swap.o "$archive" -o eyrie
expect 0 qemu-riscv64 ./eyrie
check "all was tried" grep -q "all is well" out
# A planted fault: names of pages do not go from one to the other.
sed 's/page_of\[name\] = spare;/(void)spare;/' "$sources/keystone/page_swap.c" >forgetful.c
check "a fault is planted" grep -q "(void)spare" forgetful.c
expect 0 "${eyrie[@]}" -I "$sources/keystone" "$sources/keystone/eyrie.c" forgetful.c "$archive" \
    -o forgetful
expect 1 qemu-riscv64 ./forgetful
check "and it is found" grep -q "holds something else" out

section "on riscv64 without an operating system"
# Small programs: each instruction is emulated. PAGES=1024 RANDOM_WRITES=10000 AVL_KEYS=10000 are
# the paper's, which take hours; what TIMES names then holds the table of docs/keystone.md.
sizes=(-DPAGES="${PAGES:-64}" -DRANDOM_WRITES="${RANDOM_WRITES:-40}" -DAVL_KEYS="${AVL_KEYS:-250}")
expect 0 "$cross" -std=gnu11 -O2 -Wall -Wextra -Werror "${cpu[@]}" "${sizes[@]}" -static \
    -ffreestanding -nostdlib -Wl,--no-warn-rwx-segments,--build-id=none \
    -I "$include" -T "$sources/supervisor/memory.ld" "$sources"/supervisor/*.[cS] "$archive" \
    -o supervisor
# One nanosecond an instruction, whatever else this machine does.
expect 0 timeout "${QEMU_SECONDS:-300}" qemu-system-riscv64 -machine virt -m 256M -icount shift=0 \
    -display none -serial stdio -monitor none -no-reboot -kernel supervisor
check "all was tried" grep -q "all is well" out
tr -d '\r' <out | sed -n 's/^\([a-z_0-9]* [a-z0-9-]* [0-9]* [0-9]* [0-9]*\)$/\1/p' >times
[ -z "${TIMES:-}" ] || cp times "$TIMES"
check "each program ran under each scheme" [ "$(wc -l <times)" = 21 ]
# Faults are the program's alone: first in, first out, whatever the scheme.
check "the same faults" awk '
    { if ($1 in faults && faults[$1] != $3) exit 1; faults[$1] = $3; if ($3 < 17) exit 1 }' times
check "K refreshes cost more" awk '
    { cost[$1, $2] = $5 }
    END { for (key in cost) { split(key, of, SUBSEP); program[of[1]] = 1 }
          for (each in program)
              if (!(cost[each, "detwo-k3"] < cost[each, "detwo-k7"] &&
                    cost[each, "detwo-k7"] < cost[each, "detwo-k15"] &&
                    cost[each, "detwo-k15"] < cost[each, "path"])) exit 1 }' times
