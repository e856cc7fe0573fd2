// SPDX-License-Identifier: MIT
/// \file
/// The times of kernels in a trace, and ranges of NVTX.
// compile: read, at most 10 kernels.
#include <string>

#include <doctest/doctest.h>

#include <halftone/exec/cuda/cuda.cuh>
#include <halftone/observe/trace/chrome.hpp>
#include <halftone/observe/trace/kernels.cuh>
#include <halftone/observe/trace/listeners.hpp>
#include <halftone/observe/trace/nvtx.hpp>

namespace {

namespace ht = halftone;

/// One thread that counts for a while.
struct trace_counting {
    static constexpr int threads = 32;
    static constexpr ht::simt::word shared_bytes = 0;
    ht::simt::global_span<float> x;

    ht::simt::grid_shape grid() const { return {1, 1, 1}; }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        if (simt.thread() != 0) return;
        for (int i = 0; i < 1000; ++i) simt.store(x, 0, simt.load(x, 0) + 1);
    }
};

TEST_CASE("cuda: kernels of recorded steps have a row of a trace, in the order of the stream") {
    ht::cuda gpu;
    ht::buffer memory(gpu.memory(), 4, ht::memory_kind::other);
    auto* const x = reinterpret_cast<float*>(memory.data());
    gpu.fill(x, 1, 0.0f);
    ht::trace_recorder trace{gpu, {.schedule = {.wait = 1, .active = 2, .repeat = 1}}};
    ht::cuda_kernel_times kernels{gpu, trace};
    ht::listener_list all{{&trace, &kernels}};
#if defined(NVTX_VERSION)
    ht::nvtx_listener marks;
    all.add(marks);
#endif
    for (int step = 1; step <= 4; ++step) {
        all.begin_step(step);
        for (const char* name : {"first", "second"}) {
            const ht::range here(&all, name, ht::pass::forward);
            gpu.launch(trace_counting{ht::simt::global_span<float>{x, 1}});
        }
        all.end_step();
    }
    bool found = false;
    for (const ht::trace_row& row : trace.rows()) {
        if (row.title != "GPU kernels") continue;
        found = true;
        REQUIRE(row.events.size() == 4);
        for (std::size_t i = 0; i < 4; ++i) {
            CHECK(std::string(row.events[i].name) == (i % 2 == 0 ? "first" : "second"));
            CHECK(row.events[i].step == 2 + static_cast<std::int64_t>(i) / 2);
            CHECK(row.events[i].duration() > 0);
            if (i != 0) CHECK(row.events[i].begin >= row.events[i - 1].end - 1000);
        }
    }
    CHECK(found);
}

}  // namespace
