/* What kernel/radix and kernel/lu_nc do, as a program: to compare what both ask of memory.
 * Usage: kernel radix|lu SIZE RUN; without RUN it only prepares. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16, DIGIT_BITS = 12, DIGITS = 1 << DIGIT_BITS, KEY_BITS = 19 };

static void *array(size_t count, size_t size)
{
    size_t len = (count * size + 4095) / 4096 * 4096;
    void *array = aligned_alloc(4096, len);
    if (!array)
        exit(1);
    return array;
}

static uint32_t draw(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static void radix(size_t size, int run)
{
    uint32_t *from = array(size, 4), *to = array(size, 4);
    uint32_t *counts = array(DIGITS, 4), *ranks = array(DIGITS, 4);
    if (!run)
        return;
    for (size_t nth = 0; nth < size; nth++)
        from[nth] = draw() % (1 << KEY_BITS);
    for (int shift = 0; shift < KEY_BITS; shift += DIGIT_BITS) {
        for (size_t digit = 0; digit < DIGITS; digit++)
            counts[digit] = 0;
        for (size_t nth = 0; nth < size; nth++)
            counts[from[nth] >> shift & (DIGITS - 1)]++;
        uint32_t before = 0;
        for (size_t digit = 0; digit < DIGITS; digit++) {
            ranks[digit] = before;
            before += counts[digit];
        }
        for (size_t nth = 0; nth < size; nth++) {
            uint32_t key = from[nth];
            to[ranks[key >> shift & (DIGITS - 1)]++] = key;
        }
        uint32_t *other = from;
        from = to;
        to = other;
    }
    volatile uint32_t last = from[size - 1];
    (void)last;
}

/* Whatever is in a first cache of up to 64 KiB leaves it. */
static void forget(void)
{
    volatile char *other = array(1 << 16, 1);
    for (size_t at = 0; at < 1 << 16; at += 64)
        (void)other[at];
}

static void subtract(double *target, const double *source, double factor, size_t from)
{
    for (size_t row = from; row < BLOCK; row++)
        target[row] -= factor * source[row];
}

/* Rows of a block of the upper triangle, from one that is done. */
static void eliminate(double *block, const double *diagonal, size_t n, size_t k, size_t first)
{
    for (size_t column = first; column < BLOCK; column++) {
        block[column * n + k] /= diagonal[k * n + k];
        subtract(block + column * n, diagonal + k * n, block[column * n + k], k + 1);
    }
}

static void lu(size_t n, int run)
{
    double *matrix = array(n * n, 8);
    for (size_t place = 0; place < n * n; place++)
        matrix[place] = draw() % 1000 / 1000.0 + (place / n == place % n ? n : 0);
    forget();
    if (!run)
        return;
    for (size_t nth = 0; nth < n; nth += BLOCK) {
        double *diagonal = matrix + nth * n + nth;
        for (size_t k = 0; k < BLOCK; k++)
            eliminate(diagonal, diagonal, n, k, k + 1);
        for (size_t row = nth + BLOCK; row < n; row += BLOCK) {
            double *below = matrix + nth * n + row;
            for (size_t k = 0; k < BLOCK; k++)
                for (size_t column = k + 1; column < BLOCK; column++)
                    subtract(below + column * n, below + k * n, diagonal[column * n + k], 0);
        }
        for (size_t column = nth + BLOCK; column < n; column += BLOCK)
            for (size_t k = 0; k < BLOCK; k++)
                eliminate(matrix + column * n + nth, diagonal, n, k, 0);
        for (size_t row = nth + BLOCK; row < n; row += BLOCK)
            for (size_t column = nth + BLOCK; column < n; column += BLOCK)
                for (size_t k = 0; k < BLOCK; k++)
                    for (size_t c = column; c < column + BLOCK; c++)
                        subtract(matrix + c * n + row, matrix + (nth + k) * n + row,
                                 matrix[c * n + nth + k], 0);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    size_t size = strtoul(argv[2], NULL, 10);
    int run = argc > 3;
    if (!strcmp(argv[1], "radix"))
        radix(size, run);
    else
        lu(size, run);
    return 0;
}
