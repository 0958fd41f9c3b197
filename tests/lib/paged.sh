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

# The kernel's setting of who may page, and what it was while it is another one.
allowed=/proc/sys/vm/unprivileged_userfaultfd
was_allowed=
put_back() {
    [ -z "$was_allowed" ] || echo "$was_allowed" >"$allowed" || true
}

# Keeps the setting for this script: the ones that run beside it change it, too.
take_setting() {
    exec {setting}<"$allowed"
    flock "$setting"
}

# Lets an ordinary user page, until `put_back`.
allow_ordinary_users() {
    was_allowed=$(cat "$allowed")
    echo 1 >"$allowed"
}

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

# Programs that fork: each copy has memory of its own.
copies_of_the_process() {
    same --resident 512 --scheme eager -- "$python" "$lib/forks.py"
    evictions=0 same --resident 512 --memory 64M --scheme path-fused -- "$python" "$lib/forks.py"
    expect 0 run --backing pages -- sh -c '(echo inside); true'
    check "a copy has a store of its own" [ "$(find . -name 'pages.*-1' | wc -l)" = 1 ]
    rm pages*
    # Who has no room for a copy is told so, and lives on.
    expect 0 run --backing pages -- "$python" -c "
import os
os.mkdir(f'pages.{os.getpid()}-1')
try:
    os.fork()
except BlockingIOError:
    print('refused')"
    check "a copy without room is refused" grep -q refused out
    check "and it is said why" grep -q "fork is refused: the backing file" err
    rm -r pages*
}

# Shells and tools that fork.
shells_and_tools() {
    for shell in dash bash; do
        evictions=0 same --resident 64 -- "$shell" -c '
            a=$(ls / | wc -l); echo "$a"
            (a=inside; echo "$a"); echo "$a"
            for n in 1 2 3; do (exit $n) || echo $?; done
            seq 1000 | sort -rn | while read -r n; do echo "$n"; done | tail -n 3
            sleep 0.1 & wait $!; echo $?'
    done
    printf 'all: %s\n' "$(seq -s ' ' -f 't%g' 20)" >Makefile
    # shellcheck disable=SC2016
    printf 't%%: numbers\n\t@x=$$(sort -n $< | sed -n $*p); echo "$$x" >$@\n' >>Makefile
    evictions=0 same --resident 128 -- make --always-make --jobs 4
    check "make made all" cmp <(cat t1 t2 t20) <(sort -n numbers | sed -n '1p;2p;20p')
    expect 0 run --resident 128 -- git -c init.defaultBranch=main init --quiet repository
    cp numbers repository
    expect 0 run --resident 128 -- git -C repository add numbers
    expect 0 run --resident 128 -- git -C repository -c user.name=a -c user.email=b commit -qm one
    evictions=0 same --resident 128 -- git -C repository fsck --strict
}

# A copy of a program goes on when the program has ended.
programs_that_outlive_the_first() {
    # shellcheck disable=SC2016
    expect 0 run --resident 16 -- \
        bash -c '(sleep 0.5; for n in $(seq 2000); do :; done; echo late >late) &'
    for _ in $(seq 200); do
        [ ! -s late ] || break
        sleep 0.05
    done
    check "what goes on is served on" [ "$(cat late)" = late ]
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
    check "the same errors" diff native.err \
        <(sed -E "/^traceless: (not paged were|the server of the export)/d" paged.err)
    check "pages moved" "$python" -c "
import json
first = json.load(open('stats'))[0]
assert first['evictions'] >= ${evictions:-100}, first
assert first['pinned'] or first['resident_max'] <= ${most:-4096}, first"
}
