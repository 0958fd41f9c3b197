"""Mappings, threads and copies of a process, in a program that is paged or not."""

import hashlib
import mmap
import subprocess
import threading

FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
PAGE = mmap.PAGESIZE


def pattern(page):
    return hashlib.sha256(str(page).encode()).digest() * (PAGE // 32)


def main():
    area = mmap.mmap(-1, 300 * PAGE, flags=FLAGS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    assert area[:] == bytes(300 * PAGE), "fresh memory is zeros"
    for page in range(300):
        area[page * PAGE : (page + 1) * PAGE] = pattern(page)
    area.resize(500 * PAGE)
    for page in range(300):
        assert area[page * PAGE : (page + 1) * PAGE] == pattern(page), page
    assert area[300 * PAGE :] == bytes(200 * PAGE), "what is new is zeros"
    area.madvise(mmap.MADV_DONTNEED, 10 * PAGE, 20 * PAGE)
    assert area[10 * PAGE : 30 * PAGE] == bytes(20 * PAGE), "what is dropped is zeros"
    assert area[30 * PAGE : 31 * PAGE] == pattern(30)
    area.resize(40 * PAGE)
    assert area[39 * PAGE :] == pattern(39)
    area.close()

    with open("/dev/urandom", "rb") as source, open("big", "w+b") as file:
        block = source.read(1 << 20)
        file.write(block)
        file.seek(0)
        into = bytearray(1 << 20)
        assert file.readinto(into) == 1 << 20 and into == block

    found = {}

    def work(n):
        found[n] = hashlib.sha256(bytes(range(n, n + 9)) * 99999).hexdigest()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(sorted(found.items()))

    # Another program is no copy of this one.
    print(subprocess.run(["sort"], input=b"b\na\n", stdout=subprocess.PIPE, check=True).stdout)


main()
