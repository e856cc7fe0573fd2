// SPDX-License-Identifier: MIT
/// \file
/// Data loaders that end in the middle of everything.
///
///     data_test::stop_abruptly(60);
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>

namespace data_test {

namespace ht = halftone;

/// The samples of a map are their own numbers.
struct numbers {
    ht::extent count;
    ht::extent size() const { return count; }
    ht::extent operator[](ht::extent i) const { return i; }
    /// For bucketing: lengths from 1 to 50.
    ht::extent length(ht::extent i) const { return 1 + i * 37 % 50; }
};

struct id_batch {
    ht::const_view<std::int64_t, 1> values;
    template <class Function>
    id_batch with_views(const Function& f) const {
        return {f(values)};
    }
    std::vector<id_batch> split(ht::extent) const { return {*this}; }
    ht::extent size() const { return values.size(); }
};

inline id_batch collate(std::span<const ht::extent> samples, ht::batch_memory& memory) {
    const auto values = memory.make<std::int64_t>(ht::shape<1>{static_cast<ht::extent>(samples.size())});
    std::copy(samples.begin(), samples.end(), values.data());
    return {values};
}

#if defined(__linux__)
inline int threads_of_this_process() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
    }
    return -1;
}
#else
inline int threads_of_this_process() { return 0; }
#endif

/// Makes loaders and ends each at another moment: at once, while workers are busy, after some batches, in a resume, after
/// an error.
inline void stop_abruptly(int times) {
    std::thread([] {}).join();  // with the first one, a sanitizer starts its own
    const int threads = threads_of_this_process();
    const numbers source{64};
    for (int i = 0; i < times; ++i) {
        const auto transform = [i](ht::extent sample) {
            if (i % 7 == 3 && sample == 20) throw std::runtime_error("bad");
            if (sample % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 5 * 50));
            return sample;
        };
        ht::data_loader loader{source,
                               {.batch_size = 4, .num_workers = 1 + i % 4, .prefetch_factor = 1 + i % 3,
                                .seed = static_cast<std::uint64_t>(i)},
                               transform, &collate};
        try {
            for (int batch = 0; batch < i % 23; ++batch) loader.next();
            if (i % 5 == 1) {
                loader.resume({.seed = 3, .epoch = 1, .rows = 8, .size = 64});
                if (i % 2 == 0) loader.next();
            }
        } catch (const ht::sample_error& e) {
            CHECK(e.index == 20);
        }
        if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 11 * 30));
    }
    CHECK(threads_of_this_process() == threads);
}

}  // namespace data_test
