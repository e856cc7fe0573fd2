// SPDX-License-Identifier: MIT
/// \file
/// What the families of bench_memory_bound share: several sets of operands, used in turn, and a case compared with PyTorch.
///
///     b.run("layer_norm", "forward", {8192, 768}, bytes, [&](int copies) { ... return [=](int copy) { ... }; }, {{"op", ...}});
#pragma once

#include <random>

#include <halftone/number.hpp>
#include <halftone/policy.hpp>

#include <support/peaks.hpp>
#include <support/protocol.hpp>
#include <support/torch.hpp>

namespace bench {

using halftone::extent;

/// `copies` arrays of n normally distributed random numbers each, contiguous in the device's memory.
template <class T>
class operands {
  public:
    operands(halftone::cpu& device, int copies, extent n)
        : each_((n + 63) / 64 * 64), memory_(device.memory(), static_cast<std::size_t>(copies * each_) * sizeof(T), halftone::memory_kind::other) {
        std::mt19937 engine(static_cast<unsigned>(n));
        std::normal_distribution<float> normal;
        std::vector<T> some(8192);
        for (T& x : some) {
            if constexpr (std::is_same_v<T, std::byte>) {
                x = static_cast<std::byte>(engine());
            } else {
                x = T(normal(engine));
            }
        }
        T* const all = (*this)(0);
        // Initialised by all threads, as a program that fills its own tensors would do it (first touch).
        const extent count = copies * each_, pieces = (count + 65535) / 65536;
        device.parallel_for(pieces, [&](extent piece) {
            const extent end = std::min(count, (piece + 1) * 65536);
            for (extent i = piece * 65536; i < end; ++i) all[i] = some[static_cast<std::size_t>((i * 40503 + (i >> 13)) % 8192)];
        });
    }
    T* operator()(int copy) const { return reinterpret_cast<T*>(memory_.data()) + copy * each_; }

  private:
    extent each_;
    halftone::buffer memory_;
};

/// A copy by all threads; with non-temporal stores if requested and available.
inline void copy_bytes(halftone::cpu& device, std::byte* to, const std::byte* from, extent n, bool past_caches) {
    constexpr extent piece = 262144;
    device.parallel_for((n + piece - 1) / piece, [&](extent i) {
        const auto size = static_cast<std::size_t>(std::min(piece, n - i * piece));
#if HALFTONE_AVX512_BF16
        if (past_caches && device.instruction_set() >= halftone::isa::avx512_bf16)
            return halftone::avx512_bf16::stream_copy(to + i * piece, from + i * piece, size);
#endif
        static_cast<void>(past_caches);
        std::memcpy(to + i * piece, from + i * piece, size);
    });
}

struct memory_bound {
    halftone::cpu& device;
    const bench::options& o;
    bench::report& report;
    bench::torch_peer* torch;
    const bench::peaks& peaks;
    const char *policy, *dtype;

    /// One case: a run reads and writes `bytes`; make(copies) prepares that many sets of operands and returns a
    /// function of a set's number. PyTorch gets `work` with the same number of copies.
    template <class Make>
    void run(const char* kernel, const std::string& shape, double bytes, const Make& make, json work) const {
        const case_name name{kernel, shape, policy};
        if (!report.wants(name)) return;
        const bool cached = shape.find("cached") != std::string::npos;
        const int copies = cached ? 1 : std::max(2, static_cast<int>(static_cast<double>(192 << 20) / bytes) + 1);
        const auto body = make(copies);
        int next = 0;
        std::vector<contender> all;
        all.push_back(local("halftone", [&] {
            body(next);
            next = (next + 1) % copies;
        }));
        // A copy of the same number of bytes, by the fastest method at that size. The machine's speed drifts, so the
        // copy takes its turns in each case.
        const auto half = static_cast<extent>(bytes / 2) / 4096 * 4096;
        const operands<std::byte> from(device, copies, half), to(device, copies, half);
        int turn = 0;
        all.push_back(local("copy", [&] {
            copy_bytes(device, to(turn), from(turn), half, !cached);
            turn = (turn + 1) % copies;
        }));
        if (torch != nullptr && !work.is_null()) {
            work["copies"] = copies;
            if (!work.contains("dtype")) work["dtype"] = dtype;
            all.push_back(torch->contender("torch", work));
        }
        const auto timings = compare(all, o);
        report.add(name, timings, bytes, "GB/s", bytes / timings[1].seconds, "copy of as many bytes, in turn");
        if (torch != nullptr) torch->clear();
    }
};

struct matrix_case {
    extent rows, width;
    bool cached = false;

    std::string text(const char* pass) const {
        return std::to_string(rows) + "x" + std::to_string(width) + " " + pass + (cached ? " cached" : "");
    }
    double size() const { return static_cast<double>(rows) * static_cast<double>(width); }
};

}  // namespace bench
