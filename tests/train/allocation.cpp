// SPDX-License-Identifier: MIT
/// \file
/// After the first steps a step allocates nothing: neither device memory nor heap memory, on any thread.
#include <atomic>
#include <cstdlib>
#include <new>

#include <doctest/doctest.h>

#include "train/small_gpt.hpp"

namespace ht = halftone;

namespace {

std::atomic<long> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    if (alignment == 1) return std::malloc(bytes == 0 ? 1 : bytes);
    bytes = (bytes + alignment - 1) / alignment * alignment;
#if defined(_WIN32)
    return _aligned_malloc(bytes, alignment);
#else
    return std::aligned_alloc(alignment, bytes);
#endif
}

/// Frees memory that was allocated with an explicit alignment.
void free_aligned(void* p) {
#if defined(_WIN32)
    _aligned_free(p);
#else
    std::free(p);
#endif
}

}  // namespace

// Replaces the operators in this whole test executable. Not inlined, because g++ would warn of pairs of which it inlines one.
#define OWN __attribute__((noinline))
OWN void* operator new(std::size_t bytes) {
    if (void* p = counted(bytes, 1)) return p;
    throw std::bad_alloc();
}
OWN void* operator new(std::size_t bytes, std::align_val_t alignment) {
    if (void* p = counted(bytes, static_cast<std::size_t>(alignment))) return p;
    throw std::bad_alloc();
}
OWN void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 1); }
OWN void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return counted(bytes, static_cast<std::size_t>(alignment));
}
OWN void operator delete(void* p) noexcept { std::free(p); }
OWN void operator delete(void* p, std::size_t) noexcept { std::free(p); }
OWN void operator delete(void* p, std::align_val_t) noexcept { free_aligned(p); }
OWN void operator delete(void* p, std::size_t, std::align_val_t) noexcept { free_aligned(p); }

TEST_CASE("the counter counts") {
    const long before = allocations;
    // Through a volatile pointer; otherwise the compiler removes the pair.
    int* volatile p = new int(1);
    delete p;
    CHECK(allocations == before + 1);
}

TEST_CASE_TEMPLATE("after the first steps a step allocates nothing", Policy, ht::full_fp32, ht::amp_bf16, ht::amp_fp16) {
    struct watcher : ht::trainer_callback {
        ht::cpu* device = nullptr;
        long heap_at_10 = 0, heap_at_39 = 0;
        std::uint64_t blocks_at_10 = 0, blocks_at_39 = 0;
        void on_step(const ht::trainer_state& s) override {
            if (s.step == 10) heap_at_10 = allocations, blocks_at_10 = device->memory().usage().allocations();
            if (s.step == 39) heap_at_39 = allocations, blocks_at_39 = device->memory().usage().allocations();
        }
    } watch;
    const std::string corpus = small::text();
    for (const int threads : {1, 2}) {
        CAPTURE(threads);
        ht::cpu device{{.threads = threads}};
        ht::nn::gpt<Policy> model{device, small::config, 1};
        ht::language_data data{ht::token_view{corpus}, small::options};
        ht::trainer trainer{device, model,
                            {.per_device_train_batch_size = 4, .gradient_accumulation_steps = 2, .max_steps = 40, .learning_rate = 1e-3, .logging_steps = 3}};
        watch.device = &device;
        trainer.add_callback(watch);
        trainer.train(data);
        CHECK(watch.heap_at_39 == watch.heap_at_10);
        CHECK(watch.blocks_at_39 == watch.blocks_at_10);
    }
}
