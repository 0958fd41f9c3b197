/* Reads a file into memory past the C library: by io_uring, into buffers that are registered and
 * into others, and by direct I/O. Between asking and reading, other memory is touched, so that the
 * buffers leave where memory is paged. Prints for each way whether what arrived is right, or that
 * it is refused; and ends with 1 if anything was wrong.
 *
 *   pinned FILE      FILE holds 256 KiB, byte n of page p is p * 7 + n */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, OTHERS = 512 };

static unsigned char *area, *others;
static int is_wrong;

struct ring {
    int fd;
    char *sq, *cq;
    struct io_uring_sqe *entries;
    struct io_uring_params params;
};

static unsigned char *map(size_t pages) {
    return mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void touch_others(void) {
    for (int page = 0; page < OTHERS; page++)
        ((volatile unsigned char *)others)[page * PAGE]++;
}

static int set_up(struct ring *ring) {
    memset(&ring->params, 0, sizeof ring->params);
    ring->fd = syscall(SYS_io_uring_setup, 8, &ring->params);
    if (ring->fd < 0)
        return -1;
    struct io_uring_params *p = &ring->params;
    size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    int access = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_POPULATE;
    ring->sq = mmap(NULL, sq, access, how, ring->fd, IORING_OFF_SQ_RING);
    ring->cq = mmap(NULL, cq, access, how, ring->fd, IORING_OFF_CQ_RING);
    ring->entries = mmap(NULL, p->sq_entries * sizeof(struct io_uring_sqe), access, how, ring->fd,
                         IORING_OFF_SQES);
    return ring->sq == MAP_FAILED || ring->cq == MAP_FAILED || ring->entries == MAP_FAILED ? -1 : 0;
}

/* One read of a page, and what it returned. */
static int read_page(struct ring *ring, int file, int page, int is_fixed) {
    struct io_uring_params *p = &ring->params;
    unsigned *tail = (unsigned *)(ring->sq + p->sq_off.tail);
    unsigned mask = *(unsigned *)(ring->sq + p->sq_off.ring_mask), at = *tail & mask;
    struct io_uring_sqe *entry = &ring->entries[at];
    memset(entry, 0, sizeof *entry);
    entry->opcode = is_fixed ? IORING_OP_READ_FIXED : IORING_OP_READ;
    entry->fd = file;
    entry->off = (unsigned long)page * PAGE;
    entry->addr = (unsigned long)(area + page * PAGE);
    entry->len = PAGE;
    ((unsigned *)(ring->sq + p->sq_off.array))[at] = at;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
        return -errno;
    unsigned *head = (unsigned *)(ring->cq + p->cq_off.head);
    unsigned cq_mask = *(unsigned *)(ring->cq + p->cq_off.ring_mask);
    struct io_uring_cqe *all = (struct io_uring_cqe *)(ring->cq + p->cq_off.cqes);
    int done = all[*head & cq_mask].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return done;
}

static int wrong_bytes(void) {
    int wrong = 0;
    for (int page = 0; page < PAGES; page++)
        for (int at = 0; at < PAGE; at++)
            wrong += area[page * PAGE + at] != (unsigned char)(page * 7 + at);
    return wrong;
}

static void say(const char *what, int wrong) {
    printf("%s: %s\n", what, wrong ? "WRONG" : "right");
    is_wrong |= wrong != 0;
}

static void by_ring(int file, int is_fixed) {
    const char *what = is_fixed ? "registered" : "ring";
    struct ring ring;
    struct iovec buffer = {area, PAGES * PAGE};
    memset(area, 0, PAGES * PAGE);
    int order = IORING_REGISTER_BUFFERS, failed = set_up(&ring);
    if (!failed && is_fixed)
        failed = syscall(SYS_io_uring_register, ring.fd, order, &buffer, 1);
    if (failed) {
        printf("%s: refused, %s\n", what, strerror(errno));
        return;
    }
    touch_others();
    for (int page = 0; page < PAGES; page++) {
        if (read_page(&ring, file, page, is_fixed) != PAGE) {
            printf("%s: refused, %s\n", what, strerror(errno));
            return;
        }
        touch_others();
    }
    say(what, wrong_bytes());
    close(ring.fd);
}

static void directly(const char *path) {
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECT);
    if (file < 0) {
        printf("direct: refused, %s\n", strerror(errno));
        file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
        printf("set later: %s\n",
               syscall(SYS_fcntl, file, F_SETFL, O_DIRECT) ? "refused" : "done");
        close(file);
        return;
    }
    memset(area, 0, PAGES * PAGE);
    int failed = 0;
    for (int page = 0; page < PAGES; page++) {
        touch_others();
        failed |= pread(file, area + page * PAGE, PAGE, (off_t)page * PAGE) != PAGE;
    }
    say("direct", failed || wrong_bytes());
    close(file);
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    area = map(PAGES);
    others = map(OTHERS);
    int file = open(arguments[1], O_RDONLY);
    by_ring(file, 0);
    by_ring(file, 1);
    directly(arguments[1]);
    return is_wrong;
}
