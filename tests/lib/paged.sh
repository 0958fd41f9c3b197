# What tests of paging share: whether it is allowed here, and programs that do the same with it.
# shellcheck shell=bash

run() {
    "$traceless" run "$@"
}

# Ends the test if nothing can be run here, for a reason that the program has to name.
only_where_allowed() {
    if ! run -- true 2>err; then
        if grep -q "$1" err; then
            leave_out "paging: $(cat err)"
            exit 0
        fi
        cat err >&2
        fail "nothing can be run"
    fi
}
only_where_allowed "may not use userfaultfd"

# Where pages may not be locked in memory that is said, which programs do not say without paging.
lock=()
run --lock strict -- true 2>/dev/null || lock=(--lock off)

# The system's own: what stands before it in PATH may be a script that forks.
python=/usr/bin/python3

# Programs and what they start run where they may without paging, though one that faults often is
# held on a processor meanwhile. Takes an argument of `places.py`.
same_places() {
    # What is counted is what it becomes in the end.
    local evictions=0
    same --resident 64 -- "$python" "$lib/places.py" "$@"
    same --resident 64 -- "$python" "$lib/places.py" stay "$@"
    if [ "$(nproc)" -gt 1 ] && [ "$(uname -m)" = x86_64 ]; then
        check "it is held while it faults" [ "$(cat held)" -gt 0 ]
    fi
    gcc -O1 "$lib/places.c" -o places -pthread
    same --resident 16 --memory 8M -- ./places
}

# Programs that close all files, and that load libraries. Takes options of the pager.
same_files_and_libraries() {
    gcc -O1 "$lib/files.c" -o files
    same "$@" --resident 16 --memory 16M -- ./files
    gcc -O1 -shared -fPIC -DLIBRARY "$lib/deeply.c" -o libdeeply.so
    # Its folder follows from who asks for it.
    # shellcheck disable=SC2016
    gcc -O1 "$lib/deeply.c" -o deeply '-Wl,-rpath,$ORIGIN'
    same "$@" --resident 16 --memory 16M -- ./deeply
}

# Runs a command natively and paged: both print the same. The pager's options come first.
same() {
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    "$@" >native 2>native.err <"${input:-/dev/null}" || fail "it does not run natively: $*"
    options+=("${lock[@]}" --stats stats)
    run "${options[@]}" -- "$@" >paged 2>paged.err <"${input:-/dev/null}" ||
        fail "it does not run paged: $* $(cat paged.err)"
    check "the same output" cmp native paged
    check "the same errors" diff native.err <(sed "/^traceless: not paged were/d" paged.err)
    check "pages moved" "$python" -c "
import json
first = json.load(open('stats'))[0]
assert first['evictions'] >= ${evictions:-100}, first
assert first['pinned'] or first['resident_max'] <= ${most:-4096}, first"
}
