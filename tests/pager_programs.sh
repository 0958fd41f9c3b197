#!/usr/bin/env bash
# Programs of many languages, and servers, as an ordinary user and in the mode by default: each does
# what it does without paging.
# shellcheck source-path=SCRIPTDIR source=lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
# shellcheck source=lib/paged.sh
source "$lib/paged.sh"

if [ "$(id -u)" -ne 0 ] || ! command -v setpriv >/dev/null || [ ! -w "$allowed" ]; then
    leave_out "an ordinary user: it takes root and setpriv"
    exit 0
fi
take_setting
allow_ordinary_users

# What is equal, out of all, and what is not.
equal=0
all=0
different=()
languages=()

as_user() {
    setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all --inh-caps=-all \
        env HOME="$PWD" GOCACHE="$PWD/go-cache" GO111MODULE=off CGO_ENABLED=0 \
        PATH="$PATH:/usr/sbin:/usr/lib/postgresql/$postgres/bin" LC_ALL=C "$@"
}

# Runs a shell's command natively and paged, each in a folder of its own, and compares what it
# prints and how it ends. The first argument is its language, the second a program that it needs.
program() {
    local language=$1 needed=$2 command=$3 codes=()
    if ! command -v "$needed" >/dev/null && ! [ -x "/usr/lib/postgresql/$postgres/bin/$needed" ]
    then
        leave_out "$needed: it is not installed"
        return
    fi
    all=$((all + 1))
    languages+=("$language")
    for way in native paged; do
        rm -rf folder
        cp -r files folder
        chown -R 65534:65534 folder
        local run=()
        [ "$way" = native ] ||
            run=("$traceless" run --lock off --resident "${resident:-1024}" --memory 1G --)
        local code=0
        (cd folder && as_user timeout 240 "${run[@]}" bash -c "$command") \
            >"$way" 2>"$way.err" </dev/null || code=$?
        codes+=("$code")
    done
    if [ "${codes[0]}" = "${codes[1]}" ] && cmp -s native paged; then
        equal=$((equal + 1))
    else
        different+=("$needed: $command")
        echo "differs (${codes[*]}): $needed: $command"
        diff native paged | head -n 5 || true
        tail -n 3 paged.err
    fi
}

# A port that a server listens at, when it does.
waits='await() { for n in $(seq 200); do "$@" >/dev/null 2>&1 && return; sleep 0.05; done; false; }'

postgres=$(ls /usr/lib/postgresql | sort -n | tail -n 1)
chmod 755 .
mkdir files
"$python" - <<END
import random
random.seed(5)
words = [f"word{n * 7919 % 3001}" for n in range(20000)]
open("files/words", "w").write("\n".join(words) + "\n")
numbers = [str(random.randrange(10**6)) for _ in range(20000)]
open("files/numbers", "w").write("\n".join(numbers) + "\n")
open("files/data.json", "w").write(
    "[" + ",".join(f'{{"n": {n}, "word": "{words[n]}"}}' for n in range(3000)) + "]")
END
cp "$lib/words.go" files
if command -v go >/dev/null; then
    GO111MODULE=off CGO_ENABLED=0 go build -o files/go-words "$lib/words.go"
fi
cat >files/words.cpp <<END
#include <algorithm>
#include <fstream>
#include <future>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main() {
    std::ifstream file("words");
    std::map<std::string, int> counts;
    for (std::string word; file >> word;) counts[word]++;
    std::vector<std::future<int>> all;
    for (int nth = 0; nth < 4; nth++)
        all.push_back(std::async(std::launch::async, [&counts, nth] {
            int sum = 0;
            for (auto &[word, count] : counts)
                if (std::regex_search(word, std::regex(std::to_string(nth)))) sum += count;
            return sum;
        }));
    for (auto &one : all) std::cout << one.get() << ' ';
    try {
        std::cout << std::vector<int>(3).at(7);
    } catch (const std::out_of_range &) {
        std::cout << counts.size() << '\n';
    }
}
END
cat >files/Words.java <<END
import java.nio.file.*;
import java.util.*;
import java.util.stream.*;
public class Words {
    public static void main(String[] arguments) throws Exception {
        var words = Files.readAllLines(Path.of("words"));
        var counts = words.parallelStream().collect(Collectors.groupingBy(w -> w, TreeMap::new,
            Collectors.counting()));
        System.out.println(counts.size() + " " + counts.firstKey() + " " + counts.get("word7"));
        var child = new ProcessBuilder("sort", "-n", "numbers").start();
        System.out.println(child.inputReader().lines().limit(3).toList());
    }
}
END

section "tools of the system"
program C sort 'sort -n numbers | uniq -c | sort -rn | head -n 20'
program C sha256sum 'sha256sum words numbers; md5sum words; cksum numbers'
program C factor 'head -n 300 numbers | factor'
program C join 'join <(sort -u words) <(sort -u words | nl -w1 | sort -k2,2 -k1 |
    awk "{print \$2, \$1}") | tail -n 5'
program C tsort 'paste -d " " <(seq 1000) <(seq 2 1001) | tsort | tail -n 3'
program C od 'od -A x -t x1z words | tail -n 5; base64 numbers | tail -n 2; tac words | tail -n 2'
program C grep 'grep -cE "word[0-9]*7(1|2)+$" words; grep -vc 5 numbers'
program C sed 'sed -E "s/word([0-9]+)/<\1>/; /[13579]>/d" words | tail -n 4'
program C find 'find / -maxdepth 1 -name "[a-l]*" | sort'
program C tar 'tar -cf - words numbers | gzip -9 | tar -xzOf - words | sha256sum'
program C bzip2 'bzip2 -k words; bzip2 -dc words.bz2 | cmp - words; wc -c <words.bz2'
program C xz 'xz -k -T2 --block-size=32KiB words; xz -dc words.xz | sha256sum'
program C zstd 'zstd -q -T2 words; zstd -dc words.zst | sha256sum'
program C diff 'sed 100,200d words >less; diff words less | tail -n 3'
program C git 'git init -q -b main; git add words; git -c user.name=a -c user.email=b \
    commit -qm one --date=@1; git fsck --strict; git cat-file -p HEAD^{tree}; git gc -q
    git status -s'
program C openssl 'openssl enc -aes-256-ctr -K 00 -iv 00 -in words 2>/dev/null |
    openssl dgst -sha256
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key -subj /CN=a -out cert 2>/dev/null
    openssl x509 -in cert -noout -subject'
program C jq 'jq -c "[.[] | select(.n % 500 == 0)] | map(.word)" data.json'
program C sqlite3 'sqlite3 base "create table t(n, w); create index i on t(w);
    with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000)
    insert into t select x, x * 7919 % 997 from c;
    select count(*), sum(a.n * b.n) from t a join t b on a.w = b.w where a.n < 300;"'
program C picosat 'printf "p cnf 3 3\n1 2 0\n-1 3 0\n-2 -3 0\n" | picosat'
program C qemu-img 'qemu-img create -q -f qcow2 disk 64M; qemu-img convert -O raw disk raw
    qemu-img check disk; cksum raw'
program C curl 'curl -s file://$PWD/words | sha256sum'

section "compilers, and what they make"
resident=16384 program C gcc '
    printf "#include <stdio.h>\nint main(void) { puts(__VERSION__); return 7; }" >a.c
    gcc -O2 a.c -o a && ./a; code=$?; gcc -static a.c -o b && ./b; nm a | grep -c " T "; exit $code'
resident=16384 program C++ g++ 'g++ -O1 -std=c++17 -pthread words.cpp -o cpp && ./cpp'
program C make 'printf "all: %s\n%%.o: data.json\n\t@sha256sum words >\$@; cat \$@\n" \
    "$(seq -s " " -f "%g.o" 12)" >Makefile; make -j4 | sort -u'
resident=16384 program C++ cmake 'printf "cmake_minimum_required(VERSION 3.18)\nproject(a CXX)\n\
add_executable(words words.cpp)\nfind_package(Threads)\n\
target_link_libraries(words Threads::Threads)\n" >CMakeLists.txt
    cmake -S . -B built >/dev/null && cmake --build built >/dev/null && built/words'
program Go go 'go env GOOS; gofmt -l words.go; go version; ./go-words /bin/true'
resident=16384 program Java javac 'javac Words.java && java -Xmx128M Words'
program assembler as '
    printf ".globl _start\n_start: mov \$60, %%eax\n mov \$9, %%edi\n syscall\n" >a.s
    as a.s -o a.o && ld a.o -o a; ./a; echo $?'

section "interpreters"
program shell bash '
    declare -A count; while read -r word; do count[$word]=$((${count[$word]:-0} + 1))
    done < <(head -n 3000 words); echo ${#count[@]}; for n in 1 2 3; do (exit $n) || echo $?; done
    coproc cat; echo through >&${COPROC[1]}; read -r line <&${COPROC[0]}; echo "$line"
    trap "echo trapped" USR1; kill -USR1 $$
    printf "%s\n" {a..c}{1..3} | xargs -P 3 -n 2 echo | sort'
program shell dash '
    dash -c "i=0; while [ \$i -lt 200 ]; do i=\$((i + 1)); (exit 3) || :; done; echo \$i
    echo one | (read -r x; echo \"\$x\"); ls / | wc -l"'
program shell busybox 'busybox sh -c "seq 300 | sort -rn | tail -n 2; (busybox sha256sum words)
    busybox tar -cf - words | busybox gzip | busybox wc -c"'
program awk awk '
    awk "{c[\$1]++} END {for (w in c) s += c[w] * length(w); print length(c), s}" words'
program Python python3 '/usr/bin/python3 -c "
import collections, json, re, zlib, decimal
words = open(\"words\").read().split()
print(collections.Counter(words).most_common(3), zlib.crc32(repr(sorted(words)).encode()))
print(len(json.loads(open(\"data.json\").read())), decimal.Decimal(2).sqrt())
print(len(re.findall(\"7\", str(words))))"'
program Python python3 '/usr/bin/python3 -c "
import multiprocessing, subprocess, threading
with multiprocessing.Pool(3) as pool: print(sum(pool.map(abs, range(-5000, 0))))
print(subprocess.run([\"wc\", \"-l\", \"words\"], capture_output=True).stdout)
all = [threading.Thread(target=print, args=(n,)) for n in range(4)]
[(t.start(), t.join()) for t in all]"'
program Python python3 '/usr/bin/python3 -c "
import numpy; a = numpy.arange(250000.).reshape(500, 500)
print((a @ a.T).sum(), numpy.linalg.norm(a), numpy.sort(a % 97, axis=None)[::50000])"'
program Python python3 '/usr/bin/python3 -c "
import ctypes, mmap, sqlite3, tempfile
base = sqlite3.connect(\":memory:\"); base.execute(\"create table t(a)\")
base.executemany(\"insert into t values (?)\", ((n,) for n in range(9999)))
print(base.execute(\"select sum(a) from t\").fetchall())
area = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); area[:4] = b\"abcd\"
libc = ctypes.CDLL(None); print(libc.strlen(b\"twelve chars\"), area[:5])"'
program Perl perl '
    perl -e "open F, q(words); %c = (); \$c{\$_}++ while <F>; print scalar(keys %c), qq(\n);
    print join(q( ), (sort { \$a <=> \$b } map { \$_ * 7919 % 10007 } 1..5000)[0..5]), qq(\n);
    for (1..3) { if (!fork) { exit \$_ } wait; print \$? >> 8, qq(\n) }"'
program JavaScript node 'node -e "
const words = require(\"fs\").readFileSync(\"words\", \"utf8\").split(\"\n\"), counts = new Map();
for (const word of words) counts.set(word, (counts.get(word) || 0) + 1);
console.log(counts.size, [...counts].sort()[5], Buffer.alloc(1 << 22, 3)[9]);
console.log(require(\"child_process\").execSync(\"wc -l words\").toString());"'
program JavaScript node 'node -e "
const { Worker, isMainThread, parentPort } = require(\"worker_threads\");
const worker = new Worker(\"require(\\\"worker_threads\\\").parentPort.postMessage([4, 9])\",
    { eval: true });
worker.on(\"message\", m => console.log(m));"'
program Tcl tclsh 'echo "puts [lsort [list 3 1 2]]" | tclsh'
program C patch 'sed s/word7/seven/ words >other; diff -u words other >a.patch || true
    patch -s words a.patch; cmp words other && echo patched'
program C bc 'echo "scale=200; 4 * a(1)" | bc -l | tail -n 2'
program C gpg 'mkdir -m 700 keys; echo secret | gpg --homedir keys --batch --passphrase a \
    --symmetric -o sealed; gpg --homedir keys --batch --passphrase a -d sealed'
program Ruby ruby '
    ruby -e "puts File.readlines(%q(words)).tally.size; p fork { exit 3 }.is_a?(Integer)"'
resident=16384 program Java jshell 'echo "System.out.println(6 * 7)" | jshell -s - | head -n 2'

section "programs of Go"
program Go restic '
    export RESTIC_PASSWORD=a; restic -q init -r store && restic -q backup -r store words \
    numbers && restic -q check -r store && restic -q restore -r store latest --target back &&
    cmp words back/words && echo restored'
program Go rclone '
    rclone copy words copied/ && rclone check --one-way . copied/ --include words 2>&1 |
    grep -c "0 differences"; rclone size --json copied'

section "servers"
program C redis-server "$waits"'
    redis-server --port 0 --unixsocket socket --save "" >log & await redis-cli -s socket ping
    redis-cli -s socket eval "for n = 1, 3000 do redis.call(\"set\", n, n * n) end" 0
    redis-cli -s socket mget 7 3000; redis-cli -s socket bgrewriteaof; redis-cli -s socket save
    redis-cli -s socket dbsize; redis-cli -s socket shutdown nosave; wait; echo $?'
program SQL initdb "$waits"'
    initdb -D base -A trust --no-sync >/dev/null && postgres -D base -k $PWD -h "" -F >log 2>&1 &
    await psql -h $PWD postgres -c "select 1"
    psql -h $PWD postgres -Atc "
        create table t as select n, md5(n::text) from generate_series(1, 20000) n;
        select count(*), max(md5) from t; create index on t (md5);
        select n from t order by md5 limit 3;
        do \$\$ begin perform count(*) from t a join t b using (n); end \$\$"
    kill -INT $(head -n 1 base/postmaster.pid); wait; echo ended'
program C apache2 "$waits"'
    printf "ServerName a\nListen 127.0.0.1:28480\nPidFile %s/pid\nErrorLog %s/log\n\
DocumentRoot %s\n\
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n" $PWD $PWD $PWD >conf
    apache2 -f $PWD/conf && await curl -s http://127.0.0.1:28480/words
    for n in 1 2 3 4; do curl -s http://127.0.0.1:28480/words | sha256sum; done
    apache2 -f $PWD/conf -k stop
    await test ! -e pid'
program Python python3 "$waits"'
    /usr/bin/python3 -m http.server 28481 --bind 127.0.0.1 >log 2>&1 &
    await curl -s http://127.0.0.1:28481/
    curl -s http://127.0.0.1:28481/words | sha256sum; kill $!; wait $!; echo $?'
program C prometheus "$waits"'
    printf "global: {}\n" >config
    prometheus --config.file=config --storage.tsdb.path=data \
        --web.listen-address=127.0.0.1:28482 >log 2>&1 &
    await curl -s http://127.0.0.1:28482/-/ready
    curl -s "http://127.0.0.1:28482/api/v1/query?query=1%2B1" | jq -r .data.resultType
    kill $!; wait $!; echo $?'

number=$(printf '%s\n' "${languages[@]}" | sort -u | wc -l)
echo "$equal of $all programs in $number languages do the same"
check "95 % of them" [ $((equal * 100)) -ge $((all * 95)) ]
