/* Programs of the paging paper that need nothing but memory: random_writes, sha_256, avl_tree. */
#include "programs.h"

#include <stddef.h>

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Writes to random pages, each of which is read again in the end. */
uint64_t random_writes(uint8_t *memory, uint64_t pages, uint64_t writes) {
    uint64_t state = 88172645463325252u, sum = 0;
    for (uint64_t i = 0; i < writes; i++) {
        uint64_t at = next(&state) % (pages * 4096);
        memory[at] = (uint8_t)(memory[at] + i);
    }
    for (uint64_t page = 0; page < pages; page++)
        for (uint64_t i = 0; i < 4096; i += 256)
            sum = sum * 31 + memory[page * 4096 + i];
    return sum;
}

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t x, int by) {
    return x >> by | x << (32 - by);
}

static void compress(uint32_t h[8], const uint8_t *block) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[i - 7] +
               (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    for (int i = 0; i < 8; i++)
        v[i] = h[i];
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25);
        uint32_t s0 = turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + rounds[i] + w[i];
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        for (int j = 7; j > 0; j--)
            v[j] = v[j - 1];
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

/* A hash of so many pages, which are written first; without the padding, whose place is no page. */
uint64_t sha_256(uint8_t *memory, uint64_t pages, uint64_t times) {
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    for (uint64_t i = 0; i < pages * 4096; i += 64)
        memory[i] = (uint8_t)(i / 64 * 7);
    for (uint64_t time = 0; time < times; time++)
        for (uint64_t i = 0; i < pages * 4096; i += 64)
            compress(h, memory + i);
    return (uint64_t)h[0] << 32 | h[1];
}

/* A balanced tree whose nodes lie all over the memory. Number 0 is no node. */
struct node {
    uint64_t key;
    uint32_t child[2];
    uint32_t height;
    uint8_t rest[236];
};

static uint32_t height(const struct node *nodes, uint32_t node) {
    return node ? nodes[node].height : 0;
}

static void measure(struct node *nodes, uint32_t node) {
    uint32_t left = height(nodes, nodes[node].child[0]);
    uint32_t right = height(nodes, nodes[node].child[1]);
    nodes[node].height = (left > right ? left : right) + 1;
}

/* The child on that side comes up. */
static uint32_t rotate(struct node *nodes, uint32_t node, int side) {
    uint32_t up = nodes[node].child[side];
    nodes[node].child[side] = nodes[up].child[!side];
    nodes[up].child[!side] = node;
    measure(nodes, node);
    measure(nodes, up);
    return up;
}

static uint32_t balance(struct node *nodes, uint32_t node) {
    measure(nodes, node);
    for (int side = 0; side < 2; side++) {
        uint32_t high = nodes[node].child[side];
        if (height(nodes, high) > height(nodes, nodes[node].child[!side]) + 1) {
            if (height(nodes, nodes[high].child[!side]) > height(nodes, nodes[high].child[side]))
                nodes[node].child[side] = rotate(nodes, high, !side);
            return rotate(nodes, node, side);
        }
    }
    return node;
}

static uint32_t insert(struct node *nodes, uint32_t root, uint32_t fresh) {
    if (!root)
        return fresh;
    int side = nodes[fresh].key > nodes[root].key;
    nodes[root].child[side] = insert(nodes, nodes[root].child[side], fresh);
    return balance(nodes, root);
}

/* Inserts keys in no order, and looks for as many. */
uint64_t avl_tree(uint8_t *memory, uint64_t pages, uint64_t keys) {
    struct node *nodes = (struct node *)memory;
    uint64_t state = 88172645463325252u, sum = 0;
    uint32_t root = 0, most = (uint32_t)(pages * 4096 / sizeof *nodes);
    for (uint32_t node = 1; node < most && node <= keys; node++) {
        nodes[node] = (struct node){.key = next(&state), .height = 1};
        root = insert(nodes, root, node);
    }
    for (uint64_t i = 0; i < keys; i++) {
        uint64_t key = next(&state), depth = 0;
        for (uint32_t node = root; node; node = nodes[node].child[key > nodes[node].key])
            depth++;
        sum = sum * 31 + depth;
    }
    return sum;
}
