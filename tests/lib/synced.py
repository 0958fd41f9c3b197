"""Whether a program has made durable what its answers rest on, by its system calls.

usage: synced.py gateway|command TRACE [--without CALL PATTERN]

TRACE is what `strace -f -yy -s 0` printed. Of a command, or a server that was killed after an
answer: at the end, every file that was written is durable, and so are the names of new ones. Of a
gateway with --local:

* a file is durable before it is renamed, and its folder after that, before the next answer;
* so is the folder of each file of nodes and of each folder that is made;
* an entry of a log is durable before the mark that says so; of the state's log also before the next
  answer;
* nodes are durable before the entry of the host's log that makes them the newest, and this entry
  before the next nodes, which may take the places of replaced ones;
* an entry of the state's log is durable before the anchor knows of it, and the anchor before the
  next answer.

The program must have been given absolute paths.

--without leaves out the calls that match CALL for files whose names match PATTERN: what the trace
of a program without them would be. Of a gateway the first breach ends it with 1; otherwise it
prints how often each rule was looked at.
"""

import collections
import fnmatch
import re
import sys

# Where entries begin in a log: behind its head and two marks, a page each.
ENTRIES_AT = 12288
CALL = re.compile(r"^(\d+) +(\w+)\((.*)$")
RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>")
# What a call writes to standard output or error.
PRINTED = re.compile(r"^[12]<")
FILE = re.compile(r"^\d+<([^>]*)>")


def calls(path, without):
    """Each call as it begins, and each that makes something durable as it ends."""
    waiting = {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            resumed, begun = RESUMED.match(line), CALL.match(line)
            if resumed and resumed[1] in waiting:
                yield waiting.pop(resumed[1])
            if not begun:
                continue
            process, name, rest = begun.groups()
            file = FILE.match(rest)
            call = (name, file[1] if file else "", rest)
            pairs = zip((name, base_of(call[1])), without or ())
            if without and all(fnmatch.fnmatch(*pair) for pair in pairs):
                continue
            if name in ("fsync", "fdatasync") and "unfinished" in rest:
                waiting[process] = call
            else:
                yield call


def offset_of(rest):
    """Where a pwrite64 writes."""
    numbers = re.findall(r", (\d+)(?=[,) <]|$)", rest)
    return int(numbers[1])


class Files:
    """Files with bytes that are not durable, and folders with names that are not."""

    def __init__(self):
        self.unsynced, self.named_in = set(), set()
        self.seen = collections.Counter()

    def take(self, name, file, rest):
        """Notes a call; what rule it breaks, if any."""
        base = base_of(file)
        if name in ("fsync", "fdatasync"):
            self.unsynced.discard(file)
            self.named_in.discard(file)
        elif name.startswith("rename"):
            return self.rename(*paths(rest))
        elif name.startswith("mkdir"):
            self.name_at(paths(rest)[0], "folders")
        elif name == "openat" and "O_CREAT" in rest and ".nodes" in rest:
            self.name_at(paths(rest)[0], "files of nodes")
        elif name == "openat" and "O_CREAT" in rest and '.anchor"' in rest:
            self.name_at(paths(rest)[0], "anchors")
        elif name in ("sendto", "sendmsg", "write") and file.startswith("TCP"):
            self.seen["answers"] += 1
            files = [one for one in self.unsynced if is_state(one)]
            if files or self.named_in:
                return f"an answer before {files or sorted(self.named_in)} was durable"
        elif name == "write" and base.endswith(".new"):
            self.unsynced.add(file)
        elif name == "pwrite64" and base.endswith(".nodes"):
            self.unsynced.add(file)
            logs = [one for one in self.unsynced if base_of(one) == "places.log"]
            return f"nodes before {logs}" if logs else None
        elif name == "pwrite64" and base.endswith(".anchor"):
            self.seen["anchors"] += 1
            logs = [one for one in self.unsynced if is_state_log(one)]
            self.unsynced.add(file)
            return f"an anchor before {logs}" if logs else None
        elif name == "pwrite64" and is_log(file):
            if offset_of(rest) < ENTRIES_AT:
                self.seen["marks"] += 1
                return f"a mark before the entry of {base}" if file in self.unsynced else None
            nodes = [one for one in self.unsynced if one.endswith(".nodes")]
            self.seen["commits"] += base == "places.log"
            self.unsynced.add(file)
            if nodes and base == "places.log":
                return f"an entry of the host's log before {nodes}"
        return None

    def rename(self, old, new):
        self.name_at(new, "renames")
        return f"{old} was renamed before it was durable" if old in self.unsynced else None

    def name_at(self, path, what):
        self.seen[what] += 1
        self.named_in.add(path.rsplit("/", 1)[0])


def ends_durable(all_calls):
    """What was written and is not durable at the end."""
    unsynced, opened, written = set(), set(), 0
    for name, file, rest in all_calls:
        if name in ("fsync", "fdatasync"):
            unsynced.discard(file)
        elif name in ("write", "pwrite64") and file.startswith("/") and not PRINTED.match(rest):
            unsynced.add(file)
            written += 1
        elif name == "openat" and "O_CREAT" in rest and " = -1" not in rest:
            # The file may be new, and then so is its name.
            opened.add(paths(rest)[0])
            unsynced.add(paths(rest)[0].rsplit("/", 1)[0])
        elif name.startswith("rename") and paths(rest)[0] in opened:
            unsynced.add(paths(rest)[1].rsplit("/", 1)[0])
    return unsynced, written


def base_of(path):
    return path.rsplit("/", 1)[-1]


def paths(rest):
    return re.findall(r'"([^"]*)"', rest)


def is_state_log(file):
    return bool(re.fullmatch(r"state\.\d+", base_of(file)))


def is_log(file):
    return base_of(file) == "places.log" or is_state_log(file)


def is_state(file):
    """Whether answers rest on the file. A round is committed beside answers."""
    return is_state_log(file) or file.endswith(".anchor")


def main():
    what, path, *rest = sys.argv[1:]
    without = tuple(rest[1:]) if rest else None
    if what == "command":
        unsynced, written = ends_durable(calls(path, without))
        print(f"{written} writes, and at the end not durable: {sorted(unsynced)}")
        return 2 if not written else int(bool(unsynced))
    files = Files()
    for name, file, words in calls(path, without):
        breach = files.take(name, file, words)
        if breach:
            print(breach)
            return 1
    for what in ("answers", "marks", "commits", "renames", "folders", "files of nodes", "anchors"):
        if files.seen[what] < 2:
            print(f"only {files.seen[what]} {what}: too few to tell")
            return 2
    print(dict(files.seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
