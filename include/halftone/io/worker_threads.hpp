// SPDX-License-Identifier: MIT
/// \file
/// Numbered pieces of a file, which several threads read at once.
///
///     const std::size_t threads = detail::reading_threads(bytes, 4);
///     detail::on_worker_threads(pieces, threads, [&](std::size_t worker, std::size_t piece) { ... });
///
/// The threads are begun for one call, and have the floating-point mode of the thread that calls. What fails is told as by one thread that
/// does the pieces in order: the exception of the first piece that fails.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

#include <halftone/exec/cpu/float_control.hpp>
#include <halftone/exec/cpu/processors.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// How many threads read so many bytes: one for each processor that this process may use, at most `most`, and each has 8 MB at least.
inline std::size_t reading_threads(std::size_t bytes, std::size_t most) {
    constexpr std::size_t least = std::size_t{8} << 20;
    if (bytes < 2 * least) return 1;
    return std::clamp<std::size_t>(bytes / least, 1, std::min(most, static_cast<std::size_t>(usable_processors())));
}

/// Calls f(worker, piece) for every piece in [0, count), on the calling thread, which is worker 0, and on others, at most `threads` in
/// all. Pieces begin in order. When a call throws, those of earlier pieces are still completed, no more begin, and the exception of the
/// first piece that failed is thrown.
template <class F>
void on_worker_threads(std::size_t count, std::size_t threads, const F& f) {
    struct failure {
        std::size_t piece;
        std::exception_ptr what{};
    };
    threads = std::clamp<std::size_t>(count, 1, threads);
    std::vector<failure> failures(threads, failure{count});
    std::atomic<std::size_t> next{0};
    const float_control mode = float_control::of_this_thread();
    const auto work = [&](std::size_t worker) noexcept {
        const float_control_scope same(mode);
        std::size_t piece = 0;
        try {
            while ((piece = next.fetch_add(1)) < count) f(worker, piece);
        } catch (...) {
            failures[worker] = {piece, std::current_exception()};
            next = count;
        }
    };
    std::vector<std::thread> others;
    others.reserve(threads);
    try {
        for (std::size_t worker = 1; worker < threads; ++worker) others.emplace_back(work, worker);
    } catch (const std::exception&) {  // no more threads, or no memory for one: those that there are do all
    }
    work(0);
    for (std::thread& other : others) other.join();
    const auto before = [](const failure& a, const failure& b) { return a.piece < b.piece; };
    const failure& first = *std::min_element(failures.begin(), failures.end(), before);
    if (first.what != nullptr) std::rethrow_exception(first.what);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
