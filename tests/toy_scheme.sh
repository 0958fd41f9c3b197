#!/usr/bin/env bash
# A further kind of block scheme takes a folder of its own and few lines elsewhere: in a copy of the
# sources, tests/toy_scheme adds one, and suite, command line and volumes know it.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

FILES_MAX=3
LINES_MAX=10
patch=$root/tests/toy_scheme/elsewhere.patch

section "the lines elsewhere"
files=$(grep -c '^+++ ' "$patch")
lines=$(grep -c '^+[^+]' "$patch")
check "files that change" [ "$files" -le "$FILES_MAX" ]
check "lines that change" [ "$lines" -le "$LINES_MAX" ]

section "a copy with the toy"
mkdir copy
(cd "$root" && git ls-files -z --cached --others --exclude-standard) |
    (cd "$root" && tar --create --null --files-from=- --ignore-failed-read) | tar --extract -C copy
cp -r "$root/tests/toy_scheme/twice" copy/crates/traceless-block/src/
(cd copy && git apply --unsafe-paths -p1 "$patch")

section "it is built, and conforms"
# With the features and the profile of tests/lib/build, packages from elsewhere are not compiled
# again. Our own code need not be fast here, least of all what the suite does not run.
flags=(--profile bench --workspace --all-features --locked)
for package in "$root"/crates/*; do
    package=$(basename "$package")
    level=0
    [[ ! $package =~ -(sys|core)$ ]] || level=1
    flags+=(--config "profile.bench.package.$package.opt-level=$level")
    flags+=(--config "profile.bench.package.$package.codegen-units=16")
done
# Under its own name it does not overwrite the program that other tests use.
sed -i '/^\[\[bin\]\]/,/^path/s/"traceless"/"traceless-toy"/' copy/crates/traceless-cli/Cargo.toml
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
(cd copy && cargo build "${flags[@]}" --bin traceless-toy 2>"$scratch/build.err") ||
    fail "$(tail build.err)"
(cd copy && TRACELESS_KIND=twice cargo test "${flags[@]}" --test suite every_kind_conforms \
    -- --nocapture >"$scratch/suite.out" 2>&1) || fail "$(tail -n 20 suite.out)"
check "a test has run" grep -q "1 passed" suite.out
check "of the toy" grep -q "^twice " suite.out
traceless=$CARGO_TARGET_DIR/release/traceless-toy

section "a volume of it"
expect 0 volume create image --size 4M --scheme twice --key-file key --json
expect_json traceless.volume.create.v1 scheme blocks
expect 2 volume create other --size 4M --scheme twice --refresh 3 --key-file key
check "the option is named" grep -q -- "--refresh goes with --scheme detwo or sq" err
serve image
check "it is written" nbd fill 16 7
stop_server
check "its name" [ "$(status_of image scheme)" = twice ]
serve image
check "it is written again" nbd fill 16 8
nbd flush
kill_server
serve image
check "it holds the last write" nbd verify 0 8
stop_server
expect 0 volume check image --key-file key
