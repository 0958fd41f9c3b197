#!/usr/bin/env bash
# What users install: makes the packages, and installs and uses each where nothing else of this
# machine is. Called by ./test dist.
#
# DIST_FLAGS are arguments of `cargo xtask dist`, by default --target with this machine's processor;
# SUITES the releases of Debian to try, the first that can be had. Their files are kept in
# target/dist-test.
# shellcheck source-path=SCRIPTDIR source=../lib/common.sh
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:${CARGO_HOME:-${HOME:-}/.cargo}/bin
read -r -a flags <<<"${DIST_FLAGS:---target $(uname -m)}"
read -r -a suites <<<"${SUITES:-bullseye bookworm stable}"
(cd "$here/../.." && cargo xtask dist "${flags[@]}")
# What is tested comes out of the packages, never from where cargo has left it.
TRACELESS=/bin/false
source "$here/../lib/common.sh"
name=dist
packages=$root/target/dist
cache=$root/target/dist-test
machine=$(uname -m)

# The only file of a name.
one() {
    [ "$#" -eq 1 ] && [ -f "$1" ] || fail "not one file: $*"
    echo "$1"
}

# Runs a command with the folder $1 as its root, and with the kernel's files in it meanwhile.
inside() {
    (become_inside "$@")
}

# The same in place of this shell, so that signals to it reach the command.
become_inside() {
    exec unshare --mount --propagation private sh -c '
        folder=$1
        shift
        mount -t proc proc "$folder/proc" && mount --rbind /dev "$folder/dev" &&
            exec chroot "$folder" "$@"' sh "$@"
}

# Serves the volume /data/image of a root, the folder $1, with its program $2. Sets `server`.
serve_inside() {
    rm -f "$1/data/socket"
    become_inside "$1" "$2" volume serve /data/image --key-file /data/key --socket /data/socket \
        2>server.err &
    server=$!
    ln -sf "$1/data/socket" socket
    until [ -S "$1/data/socket" ] && nbd probe 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || fail "the server in $1 has ended: $(cat server.err)"
        sleep 0.02
    done
}

# Creates, writes, reads and checks a volume in a root, the folder $1, with its program $2.
lives() {
    mkdir -p "$1/data" "$1/proc" "$1/dev"
    cp key "$1/data/key"
    expect 0 inside "$1" "$2" volume create /data/image --size 16M --key-file /data/key
    serve_inside "$1" "$2"
    nbd fill 500 7
    nbd flush
    stop_server
    serve_inside "$1" "$2"
    expect 0 nbd verify 0 7
    expect 1 nbd verify 0 8
    stop_server
    expect 0 inside "$1" "$2" volume check /data/image --key-file /data/key
    dd if=/dev/urandom of="$1/data/image" bs=4096 seek=100 count=2000 conv=notrunc status=none
    expect 1 inside "$1" "$2" volume check /data/image --key-file /data/key
    rm -r "$1/data"
}

# Unpacks a small Debian with the packages $2 in the folder $1: the first release of $3... that can
# be had. Sets `suite`.
unpack_debian() {
    local site kept
    # Where this machine takes its own packages from; else debootstrap knows a place.
    site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' |
        head -n 1)
    mkdir -p "$cache"
    for suite in "${@:3}"; do
        kept=$cache/$suite-${2//,/-}.tar
        if [ ! -e "$kept" ]; then
            rm -rf debian-new
            if ! debootstrap --variant=minbase --include="$2" "$suite" debian-new \
                ${site:+"$site"} >debootstrap.log 2>&1; then
                echo "        $suite cannot be had: $(tail -n 1 debootstrap.log)"
                continue
            fi
            tar --one-file-system -C debian-new -cf "$kept.part" .
            mv "$kept.part" "$kept"
            rm -rf debian-new
        fi
        mkdir "$1"
        tar -C "$1" -xpf "$kept"
        return
    done
    fail "no release of Debian can be had: ${*:3}"
}

# Whether the pattern $1 is in none of the files.
lacks() {
    ! grep --quiet --text --regexp "$1" "${@:2}"
}

# All files of a root, but for what dpkg, useradd and man note down.
files_of() {
    (cd "$1" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/cache -o -path ./var/log \
        -o -path './etc/*-' \) -prune -o -print | sort)
}

# Paged programs do what they do without, and their pages went out.
pages_programs() {
    seq 1 20000 | sort --random-sort --random-source=key >"$1/numbers"
    inside "$1" sort -n /numbers >wanted
    if ! inside "$1" traceless run --resident 64 --memory 16M --lock off --stats /stats \
        -- sort -n /numbers >out 2>err; then
        grep -q "may not use userfaultfd" err || fail "traceless run: $(cat err)"
        leave_out "traceless run: $(cat err)"
        return
    fi
    check "the same as without paging" cmp out wanted
    expect 0 inside "$1" traceless run --mode process --resident 64 --memory 16M --lock off \
        -- sort -n /numbers
    check "the same with a process that pages it" cmp out wanted
    python3 -c '
import json, sys
assert any(one["evictions"] > 0 for one in json.load(open(sys.argv[1]))), "no page went out"' \
        "$1/stats" || fail "nothing was paged: $(cat "$1/stats")"
    rm "$1/numbers" "$1/stats"
}

# Sends commands of the Redis protocol to the port $1, and prints the first lines of the answers.
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf '*3\r\n$3\r\nSET\r\n$4\r\nname\r\n$5\r\nvalue\r\n*2\r\n$3\r\nGET\r\n$4\r\nname\r\n' >&3
    timeout 20 head -n 3 <&3 | tr -d '\r' | paste -s -d ' '
    exec 3>&-
}

# The gateway of a root, the folder $1, runs as its user, whose state it keeps.
serves_values() {
    local port home=/var/lib/traceless-gateway
    port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1])')
    expect 0 inside "$1" install -d -m 700 -o traceless-gateway -g traceless-gateway "$home"
    become_inside "$1" setpriv --reuid traceless-gateway --regid traceless-gateway --clear-groups \
        --no-new-privs --inh-caps=-all traceless gateway --local "$home" --blocks 6000 \
        --block-len 256 --allow-simulated-tee --resp "127.0.0.1:$port" >gateway.out 2>gateway.err &
    server=$!
    until ask "$port" >answers 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || fail "the gateway has ended: $(cat gateway.err)"
        sleep 0.1
    done
    check "a value comes back: $(cat answers)" [ "$(cat answers)" = '+OK $5 value' ]
    kill -TERM "$server"
    wait "$server" || fail "the gateway ended with $?: $(cat gateway.err)"
}

section "checksums"
(cd "$packages" && sha256sum --check --quiet --strict SHA256SUMS) || fail "checksums"
listed=$(wc -l <"$packages/SHA256SUMS")
check "each file has one" [ "$(find "$packages" -type f ! -name SHA256SUMS | wc -l)" = "$listed" ]

section "the archive, in an empty folder"
archive=$(one "$packages"/traceless-*-"$machine"-linux.tar.gz)
mkdir archive
tar -C archive --strip-components=1 -xzf "$archive"
for file in bin/traceless bin/traceless-attest share/man/man1/traceless-attest-verify.1.gz \
    share/bash-completion/completions/traceless-attest share/zsh/site-functions/_traceless-attest \
    lib/traceless/libtraceless_preload.so LICENSE-MIT LICENSE-APACHE \
    README.md THIRD-PARTY.txt lib/systemd/system/traceless-host.service \
    lib/sysusers.d/traceless.conf share/man/man1/traceless-volume-create.1.gz \
    share/bash-completion/completions/traceless share/zsh/site-functions/_traceless \
    share/fish/vendor_completions.d/traceless.fish; do
    check "$file" [ -s "archive/$file" ]
done
check "no path of this machine" \
    lacks "${CARGO_HOME:-$HOME/.cargo}" archive/bin/traceless archive/bin/traceless-attest \
    archive/lib/traceless/libtraceless_preload.so
check "nor of the sources" lacks "$root" archive/bin/traceless archive/bin/traceless-attest \
    archive/lib/traceless/libtraceless_preload.so
mkdir empty
cp archive/bin/traceless archive/bin/traceless-attest empty
check "the verifier runs alone" grep -qx "traceless-attest $(chroot empty /traceless --version |
    cut -d ' ' -f 2)" <(chroot empty /traceless-attest --version)
version=$(chroot empty /traceless --version | cut -d ' ' -f 2)
check "the version $version" [ "$archive" = "$packages/traceless-$version-$machine-linux.tar.gz" ]
lives empty /traceless

section "the library: the C library of 2012 is enough"
objdump -T archive/lib/traceless/libtraceless_preload.so >symbols
newest=$(grep -o 'GLIBC_[0-9.]*' symbols | sort --version-sort | tail -n 1)
check "$newest" [ "$(printf '%s\nGLIBC_2.17\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.17 ]

section "the wheel"
for wheel in "$packages"/traceless-*.whl; do
    rm -rf wheel
    mkdir wheel
    python3 -m zipfile -e "$wheel" wheel
    objdump -T wheel/traceless/_traceless*.so >symbols
    newest=$(grep -o 'GLIBC_[0-9.]*' symbols | sort --version-sort | tail -n 1)
    check "$(basename "$wheel"): $newest" \
        [ "$(printf '%s\nGLIBC_2.17\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.17 ]
    check "no path of this machine" \
        lacks "${CARGO_HOME:-$HOME/.cargo}" wheel/traceless/_traceless*.so
    check "nor of the sources" lacks "$root" wheel/traceless/_traceless*.so
    for text in LICENSE-MIT LICENSE-APACHE THIRD-PARTY; do
        check "$text" compgen -G "wheel/traceless-*.dist-info/licenses/$text*"
    done
done
wheel=$(one "$packages"/traceless-*-cp39-abi3-manylinux*2014*_"$machine".whl)
python3 -m venv venv
expect 0 venv/bin/pip install --quiet --no-compile --disable-pip-version-check "$wheel"
cat >use_wheel.py <<'END'
import traceless

array = traceless.Array(1000, 64)
array[7] = bytes([1]) * 64
assert bytes(array[7]) == bytes([1]) * 64
print(traceless.__version__)
END
expect 0 venv/bin/python use_wheel.py
check "the version" grep -qx "$version" out

# The tests of the Python package, in the Debian that is unpacked in the folder $1, with its Python.
tests_the_wheel() {
    local version crate=crates/traceless-py
    version=$(inside "$1" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "        Python $version of $suite"
    mkdir -p "$1/src/$crate" "$1/wheels"
    cp -r "$root"/{dist,experiments} "$1/src"
    cp -r "$root/$crate/"{README.md,notebooks,tests} "$1/src/$crate"
    cp archive/bin/traceless "$1/usr/bin"
    cp "$wheel" "$1/wheels"
    expect 0 venv/bin/pip download --quiet --disable-pip-version-check --only-binary=:all: \
        --python-version "$version" --platform "manylinux2014_$machine" \
        --platform "manylinux_2_28_$machine" --dest "$1/wheels" "$wheel" pytest nanoarrow \
        typing_extensions tomli exceptiongroup
    expect 0 inside "$1" python3 -m venv /venv
    expect 0 inside "$1" /venv/bin/pip install --quiet --no-index --find-links /wheels \
        traceless pytest nanoarrow typing_extensions
    expect 0 inside "$1" env TRACELESS=/usr/bin/traceless TRACELESS_ROOT=/src \
        /venv/bin/python -m pytest --quiet -p no:cacheprovider "/src/$crate/tests"
    check "no test was left out: $(tail -n 1 out)" grep -q '^[0-9]* passed in' out
}

section "the wheel in the oldest Python that it takes, and in the newest of Debian"
unpack_debian oldest python3,python3-venv bullseye
tests_the_wheel oldest
unpack_debian newest python3,python3-venv sid testing stable
tests_the_wheel newest
rm -r oldest newest

section "the package for Debian"
deb=$(one "$packages"/traceless_*_"$(dpkg --print-architecture)".deb)
unpack_debian debian man-db "${suites[@]}"
echo "        in $suite"
files_of debian >before
cp "$deb" debian/tmp/traceless.deb
began=$SECONDS
expect 0 inside debian dpkg --install /tmp/traceless.deb
rm debian/tmp/traceless.deb
expect 0 inside debian dpkg --verify traceless
check "nothing is reported: $(cat out)" [ ! -s out ]
expect 0 inside debian traceless --version
check "the version" grep -qx "traceless $version" out
for user in traceless-gateway traceless-host; do
    check "$user" grep -q "^$user:.*:/var/lib/$user:.*nologin$" debian/etc/passwd
done
for page in traceless traceless-volume-create traceless-gateway traceless-attest; do
    expect 0 inside debian man -w "$page"
    check "its place" grep -qx "/usr/share/man/man1/$page.1.gz" out
done
for helper in mount.traceless mount.fuse.traceless umount.traceless; do
    check "mount(8) and umount(8) run $helper" [ -x "debian/usr/sbin/$helper" ]
    expect 1 inside debian "/usr/sbin/$helper" --help
    check "with the command" grep -q "mount(8) gives no such option" err
done
expect 0 inside debian bash -c '. /usr/share/bash-completion/completions/traceless &&
    complete -p traceless'
lives debian /usr/bin/traceless
check "from the package to hidden writes in a minute" [ "$((SECONDS - began))" -le 60 ]
pages_programs debian
serves_values debian

section "its units"
if command -v systemd-analyze >/dev/null; then
    mkdir units
    cp debian/usr/lib/systemd/system/traceless-* units
    sed -i "s|/usr/bin/traceless|$PWD/archive/bin/traceless|" units/*.service
    expect 0 systemd-analyze verify --man=no units/traceless-gateway.service \
        units/traceless-host.service units/traceless-volume@.service \
        units/traceless-volume@.socket units/traceless-mount@.service
    check "no warnings: $(cat err)" [ ! -s err ]
    # What mounts needs the machine's mounts, and root.
    for unit in units/traceless-[!m]*.service; do
        expect 0 systemd-analyze security --offline=true --threshold=20 "$unit"
    done
    mkdir -p users/etc
    cp debian/usr/lib/sysusers.d/traceless.conf users
    expect 0 systemd-sysusers --root="$PWD/users" "$PWD/users/traceless.conf"
    check "systemd makes the same users" \
        [ "$(grep -c '^traceless-.*:/var/lib/traceless-' users/etc/passwd)" = 2 ]
else
    leave_out "the units: systemd-analyze is not installed"
fi

section "it is removed, and data stays"
echo OPTIONS= >debian/etc/traceless/gateway.env
mkdir -p debian/etc/systemd/system/multi-user.target.wants
ln -s /usr/lib/systemd/system/traceless-gateway.service \
    debian/etc/systemd/system/multi-user.target.wants
(cd debian && find var/lib/traceless-gateway | sort) >data
expect 0 inside debian dpkg --purge traceless
check "the options" [ -e debian/etc/traceless/gateway.env ]
check "the state" cmp data <(cd debian && find var/lib/traceless-gateway | sort)
check "the user that owns it" grep -q ^traceless-gateway: debian/etc/passwd
check "not the other" lacks ^traceless-host: debian/etc/passwd
rm -r debian/etc/traceless debian/var/lib/traceless-gateway
rmdir debian/etc/systemd/system/multi-user.target.wants 2>/dev/null || true
files_of debian >after
expect 0 diff before after

section "the package of RPM"
rpm=$(one "$packages"/traceless-*."$machine".rpm)
rpm2cpio "$rpm" | cpio --list --quiet >listed
sed 's|^\.||; s|/zsh/site-functions/|/zsh/vendor-completions/|' listed | grep -v /doc/ |
    sort >of-rpm
dpkg-deb --contents "$deb" | awk '{ print $6 }' | sed 's|^\.||' | grep -v -e /doc/ -e '/$' >of-deb
echo /etc/traceless >>of-deb
echo /usr/lib/traceless >>of-deb
expect 0 diff <(sort of-deb) of-rpm
unpack_debian fedora man-db "${suites[@]}"
rpm_in() {
    rpm --root "$PWD/fedora" --force-debian --nodeps "$@"
}
expect 0 rpm_in --install "$rpm"
expect 0 rpm_in --verify traceless
expect 0 inside fedora traceless --version
check "the version" grep -qx "traceless $version" out
check "its users" grep -q '^traceless-gateway:' fedora/etc/passwd
pages_programs fedora
expect 0 rpm_in --erase traceless
check "it is gone" [ ! -e fedora/usr/bin/traceless ]
check "with its folder" [ ! -e fedora/usr/lib/traceless ]
check "and its users" lacks '^traceless-' fedora/etc/passwd

section "the image"
image=$(one "$packages"/traceless-*.oci.tar)
expect 0 skopeo --insecure-policy copy --quiet "oci-archive:$image" dir:image
python3 - <<'END' >layer
import json
manifest = json.load(open("image/manifest.json"))
config = json.load(open("image/" + manifest["config"]["digest"].split(":")[1]))
assert config["config"]["Entrypoint"] == ["/usr/bin/traceless"], config
assert config["config"]["User"] == "65532:65532", config
assert len(manifest["layers"]) == 1 == len(config["rootfs"]["diff_ids"])
print(manifest["layers"][0]["digest"].split(":")[1], config["rootfs"]["diff_ids"][0])
END
read -r layer diff <layer
check "its layer" [ "sha256:$(gzip -dc "image/$layer" | sha256sum | cut -d ' ' -f 1)" = "$diff" ]
mkdir container
tar -C container -xpzf "image/$layer"
check "the folder of its user" [ "$(stat --format %u container/var/lib/traceless)" = 65532 ]
expect 0 chroot --userspec=65532:65532 container /usr/bin/traceless --version
check "the version" grep -qx "traceless $version" out
install -o 65532 -g 65532 -m 600 key container/var/lib/traceless/key
expect 0 chroot --userspec=65532:65532 container /usr/bin/traceless volume create \
    /var/lib/traceless/image --size 16M --key-file /var/lib/traceless/key

section "the bill of materials"
bill=$(one "$packages"/traceless-"$version"-"$machine"-linux.cdx.json)
python3 - "$bill" "$root/Cargo.lock" <<'END'
import json, re, sys
bill = json.load(open(sys.argv[1]))
lock = open(sys.argv[2]).read()
known = {part["bom-ref"] for part in bill["components"]}
known.add(bill["metadata"]["component"]["bom-ref"])
for name in ("aws-lc-sys", "traceless-core", "traceless-preload", "libc", "pyo3"):
    assert any(part["name"] == name for part in bill["components"]), name
for name in ("xtask", "traceless-lab", "proptest"):
    assert not any(part["name"] == name for part in bill["components"]), name
for part in bill["components"]:
    for sum in part.get("hashes", []):
        assert sum["content"] in lock, part
    assert "hashes" in part or part["name"].startswith("traceless"), part
for edge in bill["dependencies"]:
    assert {edge["ref"], *edge["dependsOn"]} <= known, edge
END
checks=$((checks + 1))
if "$root/target/tools/bin/python3" -m pip install --quiet --disable-pip-version-check \
    'cyclonedx-python-lib[json-validation]==11.12.0' 2>err; then
    "$root/target/tools/bin/python3" - "$bill" <<'END' || fail "the bill is not CycloneDX 1.5"
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read())
sys.exit(str(fault) if fault else 0)
END
    checks=$((checks + 1))
else
    leave_out "the schema of CycloneDX: $(tail -n 1 err)"
fi

section "the recipes"
if [ -e "$packages/traceless.rb" ]; then
    expect 0 ruby -c "$packages/traceless.rb"
    expect 0 nix-instantiate --parse "$packages/traceless.nix"
    for recipe in traceless.rb traceless.nix; do
        check "$recipe has the archive's digest" grep -q "$(sha256_of "$archive")" \
            "$packages/$recipe"
    done
else
    leave_out "the recipes: they need both processors (DIST_FLAGS=' ')"
fi

section "the other processor"
other=$(find "$packages" -name 'traceless-*-linux.tar.gz' ! -name "*-$machine-*")
if [ -n "$other" ]; then
    emulator=qemu-$(basename "$other" | sed 's/.*-\(.*\)-linux.tar.gz/\1/')
    mkdir other
    tar -C other --strip-components=1 -xzf "$other"
    expect 0 "$emulator" other/bin/traceless --version
    expect 0 "$emulator" other/bin/traceless volume create volume --size 16M --key-file key
    expect 0 "$emulator" other/bin/traceless volume check volume --key-file key
    expect 0 archive/bin/traceless volume check volume --key-file key
    leave_out "traceless run for it: the emulator has no userfaultfd"
else
    leave_out "it was not built (DIST_FLAGS=' ')"
fi
