"""Copies of the process, in a program that is paged or not: each has memory of its own."""

import ctypes
import hashlib
import multiprocessing
import os
import pty
import subprocess
import sys
import threading

PAGE = 4096
PAGES = 200


def fill(area, who):
    for page in range(PAGES):
        area[page * PAGE : page * PAGE + 32] = hashlib.sha256(b"%d %d" % (who, page)).digest()


def is_of(area, who):
    return all(
        area[page * PAGE : page * PAGE + 32] == hashlib.sha256(b"%d %d" % (who, page)).digest()
        for page in range(PAGES)
    )


def in_copy(work):
    """Runs it in a copy of the process, and tells whether it was as it should be."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return child


def ended_well(child):
    return os.waitpid(child, 0)[1] == 0


def generations(area, depth):
    """A copy of a copy of a copy, each of which has written all of it."""
    if not is_of(area, depth):
        return False
    fill(area, depth + 1)
    if depth == 3:
        return True
    child = in_copy(lambda: generations(area, depth + 1))
    fill(area, 77)
    return ended_well(child) and is_of(area, 77)


def siblings(area):
    """Copies that live at the same time, and the process that made them."""
    fill(area, 50)
    children = []
    for who in range(4):

        def work(who=who):
            right = is_of(area, 50)
            fill(area, 60 + who)
            return right and is_of(area, 60 + who)

        children.append(in_copy(work))
    right = is_of(area, 50)
    fill(area, 51)
    return all([ended_well(child) for child in children]) and right and is_of(area, 51)


def beside_threads(area):
    """Copies that are made while other threads write: none of their writes may be lost."""
    stop, counted = threading.Event(), []
    numbers = (ctypes.c_uint64 * (4 * 512)).from_buffer(bytearray(4 * PAGE))

    def count(nth):
        done = 0
        while not stop.is_set():
            numbers[nth * 512] += 1
            done += 1
        counted.append((nth, done))

    threads = [threading.Thread(target=count, args=(nth,)) for nth in range(2)]
    [thread.start() for thread in threads]
    fill(area, 5)
    right = all([ended_well(in_copy(lambda: is_of(area, 5))) for _ in range(10)])
    stop.set()
    [thread.join() for thread in threads]
    return right and all(numbers[nth * 512] == done for nth, done in counted)


def square(number):
    return number * number


def terminal():
    child, end = pty.fork()
    if child == 0:
        os.write(1, b"from a terminal")
        os._exit(0)
    text = os.read(end, 100)
    return text == b"from a terminal" and ended_well(child)


def main():
    area = bytearray(PAGES * PAGE)
    fill(area, 0)
    print("generations", generations(area, 0))
    print("siblings", siblings(area))
    print("threads", beside_threads(area))
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print("pool", sum(pool.map(square, range(2000))))
    print("shell", os.popen("echo $((6 * 7))").read())
    closed = subprocess.run(["sort"], input=b"b\na\n", stdout=-1, preexec_fn=os.getpid, check=True)
    print("closed files", closed.stdout)
    print("terminal", terminal())
    sys.stdout.flush()
    if os.fork() == 0:
        print("the copy ends as any program does", is_of(area, 5))
        sys.exit(0)
    os.wait()


main()
