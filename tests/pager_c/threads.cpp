// Eager and parallel at once, from C++: threads refresh while pages come and go.
#include "traceless_pager.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace {

constexpr uint64_t pages = 64;
constexpr uint32_t helpers = 3;
using Page = std::array<uint8_t, TRACELESS_PAGER_PAGE_LEN>;

int read_bytes(void *context, uint64_t at, uint8_t *into, size_t len) {
    auto *bytes = static_cast<std::vector<uint8_t> *>(context);
    std::memcpy(into, bytes->data() + at, len);
    return 0;
}

int write_bytes(void *context, uint64_t at, const uint8_t *from, size_t len) {
    auto *bytes = static_cast<std::vector<uint8_t> *>(context);
    std::memcpy(bytes->data() + at, from, len);
    return 0;
}

int random_bytes(void *, uint8_t *into, size_t len) {
    std::random_device device;
    for (size_t i = 0; i < len; i++)
        into[i] = static_cast<uint8_t>(device());
    return 0;
}

int failed(const char *what, int code) {
    std::printf("%s: %d\n", what, code);
    return 1;
}

} // namespace

int main() {
    traceless_pager_config config = {pages, TRACELESS_PAGER_EAGER, TRACELESS_PAGER_AEGIS,
                                     7,     helpers,               0,
                                     0};
    size_t len = 0;
    uint64_t store_len = 0;
    traceless_pager_state_size(&config, &len);
    traceless_pager_store_size(&config, &store_len);
    std::vector<std::max_align_t> memory(len / sizeof(std::max_align_t) + 1);
    std::vector<uint8_t> bytes(store_len);
    traceless_pager_store store = {&bytes, read_bytes, write_bytes, random_bytes, nullptr};
    int code = traceless_pager_init(memory.data(), len, &config, &store);
    if (code != TRACELESS_PAGER_OK)
        return failed("init", code);

    std::atomic<bool> over{false};
    std::atomic<uint64_t> refreshed{0};
    std::atomic<int> refused{0};
    std::vector<std::thread> threads;
    for (uint32_t helper = 0; helper < helpers; helper++)
        threads.emplace_back([&, helper] {
            while (!over) {
                int did = traceless_pager_refresh_one(memory.data(), helper);
                if (did < 0)
                    refused = did;
                if (did > 0)
                    refreshed++;
                else
                    std::this_thread::yield();
            }
        });
    std::vector<uint8_t> truth(pages, 0);
    int outcome = 0;
    for (uint64_t step = 0; step < 5000 && outcome == 0; step++) {
        uint64_t out = step * 7 % pages, wanted = (step * 5 + 1) % pages;
        if (out == wanted)
            wanted = (wanted + 1) % pages;
        Page frame;
        frame.fill(static_cast<uint8_t>(step));
        truth[out] = static_cast<uint8_t>(step);
        code = traceless_pager_swap(memory.data(), out, wanted, frame.data());
        if (code != TRACELESS_PAGER_OK)
            outcome = failed("swap", code);
        Page wants;
        wants.fill(truth[wanted]);
        if (outcome == 0 && frame != wants)
            outcome = failed("another page came", static_cast<int>(step));
    }
    over = true;
    for (auto &thread : threads)
        thread.join();
    if (refused != 0)
        return failed("refresh_one", refused);
    if (outcome == 0 && refreshed == 0)
        return failed("nobody helped", 0);
    std::printf("%lu refreshes by helpers\n", static_cast<unsigned long>(refreshed));
    code = traceless_pager_destroy(memory.data());
    return outcome != 0 ? outcome : code != TRACELESS_PAGER_OK;
}
