/*
 * A plugin of QEMU's user mode: what a program's memory operations leave behind a first cache.
 *
 * Arguments: out=FILE, sets=N, ways=N, skip=N and misses=N (0: all). The file gets numbers of 64
 * bits: first the instructions before what is recorded, then two for each record: instructions so
 * far, and the number of the line, doubled, and one more if it is written back. It ends with
 * BY_ITSELF once the program has ended, or with WITH_ENOUGH, which ends the program.
 *
 * Debian's QEMU has no header for plugins, so what is used of its interface stands here.
 */

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t plugin_id;
typedef uint32_t mem_info;
struct block;
struct instruction;
struct system;

enum { NO_REGISTERS = 0 };
enum { READS_AND_WRITES = 3 };
enum { ADD_U64 = 0 };

size_t qemu_plugin_tb_n_insns(const struct block *);
struct instruction *qemu_plugin_tb_get_insn(const struct block *, size_t);
unsigned int qemu_plugin_mem_size_shift(mem_info);
bool qemu_plugin_mem_is_store(mem_info);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct block *));
void qemu_plugin_register_vcpu_insn_exec_inline(struct instruction *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_mem_cb(struct instruction *,
                                      void (*)(unsigned int, mem_info, uint64_t, void *), int, int,
                                      void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

#define BY_ITSELF UINT64_MAX
#define WITH_ENOUGH (UINT64_MAX - 1)

enum { LINE_SHIFT = 6, BUFFER_NUMBERS = 1 << 16 };

static const char *out;
static pid_t owner;
static uint64_t sets, ways, skip, misses;

/* Set by set, the most recently used line first: one more than its number, doubled, and one more
 * if it was written. */
static uint64_t *lines;

static uint64_t instructions, reads, first;
static bool recording;
static uint64_t buffer[BUFFER_NUMBERS];
static size_t buffered;
static volatile char busy;

/* The file is opened anew each time: programs close whatever is open. */
static void hand_over(void)
{
    int file = open(out, O_WRONLY | O_APPEND | O_CLOEXEC);
    const char *bytes = (const char *)buffer;
    size_t left = buffered * sizeof *buffer;
    buffered = 0;
    while (file >= 0 && left > 0) {
        ssize_t written = write(file, bytes, left);
        if (written <= 0)
            break;
        bytes += written;
        left -= written;
    }
    if (file < 0 || left > 0)
        _exit(127);
    close(file);
}

static void append(uint64_t number)
{
    buffer[buffered++] = number;
    if (buffered == BUFFER_NUMBERS)
        hand_over();
}

static void end(uint64_t how)
{
    if (!recording)
        append(first);
    append(how);
    hand_over();
}

static void pass(uint64_t line, bool written_back)
{
    /* What is recorded begins with a read. */
    if (reads < skip || (reads == skip && written_back)) {
        reads += !written_back;
        first = instructions;
        return;
    }
    if (!recording)
        append(first);
    recording = true;
    reads += !written_back;
    append(instructions);
    append(line << 1 | written_back);
}

static void access_line(uint64_t line, bool written)
{
    uint64_t *set = lines + (line & (sets - 1)) * ways;
    uint64_t nth = 0;
    while (nth < ways - 1 && set[nth] >> 1 != line + 1)
        nth++;
    uint64_t was = set[nth];
    bool here = was >> 1 == line + 1;
    memmove(set + 1, set, nth * sizeof *set);
    set[0] = (line + 1) << 1 | (written || (here && (was & 1)));
    if (here)
        return;
    pass(line, false);
    if (was & 1)
        pass((was >> 1) - 1, true);
}

static void on_access(unsigned int cpu, mem_info info, uint64_t addr, void *unused)
{
    (void)cpu;
    (void)unused;
    /* Threads of the program take turns. */
    while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE))
        ;
    uint64_t last = (addr + (1u << qemu_plugin_mem_size_shift(info)) - 1) >> LINE_SHIFT;
    for (uint64_t line = addr >> LINE_SHIFT; line <= last; line++)
        access_line(line, qemu_plugin_mem_is_store(info));
    if (misses > 0 && reads >= skip + misses && getpid() == owner) {
        end(WITH_ENOUGH);
        _exit(0);
    }
    __atomic_clear(&busy, __ATOMIC_RELEASE);
}

static void on_translation(plugin_id id, struct block *block)
{
    (void)id;
    for (size_t nth = 0; nth < qemu_plugin_tb_n_insns(block); nth++) {
        struct instruction *instruction = qemu_plugin_tb_get_insn(block, nth);
        qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD_U64, &instructions, 1);
        qemu_plugin_register_vcpu_mem_cb(instruction, on_access, NO_REGISTERS, READS_AND_WRITES,
                                         NULL);
    }
}

static void on_exit_of_program(plugin_id id, void *unused)
{
    (void)id;
    (void)unused;
    if (getpid() == owner)
        end(BY_ITSELF);
}

__attribute__((visibility("default"))) int
qemu_plugin_install(plugin_id id, const struct system *system, int count, char **arguments)
{
    (void)system;
    for (int nth = 0; nth < count; nth++) {
        char *value = strchr(arguments[nth], '=');
        if (!value)
            return 1;
        *value++ = 0;
        uint64_t number = strtoull(value, NULL, 10);
        if (!strcmp(arguments[nth], "out"))
            out = strdup(value);
        else if (!strcmp(arguments[nth], "sets"))
            sets = number;
        else if (!strcmp(arguments[nth], "ways"))
            ways = number;
        else if (!strcmp(arguments[nth], "skip"))
            skip = number;
        else if (!strcmp(arguments[nth], "misses"))
            misses = number;
        else
            return 1;
    }
    if (!out || !sets || !ways)
        return 1;
    owner = getpid();
    lines = calloc(sets * ways, sizeof *lines);
    if (!lines)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit_of_program, NULL);
    return 0;
}
