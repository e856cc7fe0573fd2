// SPDX-License-Identifier: MIT
/// \file
/// Every operation of kernel/, once, on any device: tests that the scratch memory that it takes is known in advance, and compares
/// its bits.
///
///     operation_checks::is_told<ht::cpu>({.rows = 37, .width = 24, .classes = 50}, [](std::span<std::byte> scratch) {
///         return std::make_unique<ht::cpu>(ht::cpu_options{.workspace = scratch});
///     });
///
/// Sizes are asked for arguments in memory that must not be accessed; the operation then runs on other arguments, which hold
/// numbers. Both are at the same distance from the beginning of a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include <doctest/doctest.h>
#if !defined(_WIN32)
#include <sys/mman.h>
#endif

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/attention/attention.hpp>
#include <halftone/kernel/column_sum/column_sum.hpp>
#include <halftone/kernel/convert/convert.hpp>
#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/kernel/gradient_norm/gradient_norm.hpp>
#include <halftone/kernel/linear_cross_entropy/linear_cross_entropy.hpp>
#include <halftone/kernel/map/map.hpp>
#include <halftone/kernel/norm/layer_norm.hpp>
#include <halftone/kernel/norm/rms_norm.hpp>
#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>
#include <halftone/kernel/softmax/softmax.hpp>
#include <halftone/kernel/sum/sum.hpp>

#if defined(_WIN32)
extern "C" {  // as <windows.h> declares them; that header would define its macros, too
__declspec(dllimport) void* __stdcall VirtualAlloc(void*, std::size_t, unsigned long, unsigned long);
__declspec(dllimport) int __stdcall VirtualFree(void*, std::size_t, unsigned long);
}
#endif

namespace operation_checks {

namespace ht = halftone;
using ht::bfloat16, ht::extent, ht::write_mode;

enum class access { closed, open };

/// Arguments one after the other: all of them `apart` elements off a vector's boundary.
class arguments {
  public:
    explicit arguments(access a, extent apart = 0) : apart_(apart) {
#if defined(_WIN32)
        constexpr unsigned long reserve = 0x2000, commit = 0x1000, no_access = 1, read_write = 4;
        void* const pages = a == access::closed ? VirtualAlloc(nullptr, bytes, reserve, no_access)
                                                : VirtualAlloc(nullptr, bytes, reserve | commit, read_write);
        if (pages == nullptr) throw std::bad_alloc();
#else
        void* const pages = mmap(nullptr, bytes, a == access::closed ? PROT_NONE : PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED) throw std::bad_alloc();
#endif
        first_ = static_cast<std::byte*>(pages);
        is_open_ = a == access::open;
    }
    arguments(const arguments&) = delete;
    arguments& operator=(const arguments&) = delete;
    ~arguments() {
#if defined(_WIN32)
        constexpr unsigned long release = 0x8000;
        VirtualFree(first_, 0, release);
#else
        munmap(first_, bytes);
#endif
    }

    /// Numbers between 0.5 and 1.5, if the memory may be accessed.
    template <class T, class... Extents>
    ht::view<T, static_cast<int>(sizeof...(Extents))> take(Extents... extents) {
        const ht::shape<static_cast<int>(sizeof...(Extents))> shape{extents...};
        T* const data = place<T>(shape.size());
        for (extent i = 0; is_open_ && i < shape.size(); ++i) data[i] = T(0.5f + static_cast<float>(next()) * 0x1p-16f);
        return {data, shape};
    }
    /// Numbers from 0 to classes - 1.
    ht::view<std::int32_t, 1> take_classes(extent count, extent classes) {
        auto* const data = place<std::int32_t>(count);
        for (extent i = 0; is_open_ && i < count; ++i) data[i] = static_cast<std::int32_t>(next() % classes);
        return {data, {count}};
    }
    /// One record with its initial values, aligned.
    template <class T>
    T* take_record(const T& value) {
        T* const data = place<T>(1) - apart_;
        if (is_open_) *data = value;
        return data;
    }

    /// A hash (FNV-1a) of all arguments so far.
    std::uint64_t hash() const {
        std::uint64_t h = 0xcbf29ce484222325u;
        for (std::size_t i = 0; i < used_; ++i) h = (h ^ std::to_integer<std::uint64_t>(first_[i])) * 0x100000001b3u;
        return h;
    }

  private:
    template <class T>
    T* place(extent count) {
        auto* const data = reinterpret_cast<T*>(first_ + used_) + apart_;
        used_ += ht::round_up(static_cast<std::size_t>(count + apart_) * sizeof(T), ht::block_alignment);
        if (used_ > bytes) throw std::bad_alloc();
        return data;
    }
    extent next() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<extent>(state_ >> 48);
    }

    static constexpr std::size_t bytes = std::size_t{64} << 20;
    extent apart_;
    std::byte* first_;
    bool is_open_;
    std::size_t used_ = 0;
    std::uint64_t state_ = 1;
};

struct sizes {
    extent rows = 1, width = 8, classes = 16, apart = 0;
};

/// Calls test(name, call) for every operation; call(device) is that operation on arguments of `m`.
template <class Test>
void each_operation(arguments& m, const sizes& s, const Test& test) {
    namespace kernel = ht::kernel;
    using ht::rounding;
    const extent rows = s.rows, width = s.width, classes = s.classes;
    const auto x = m.take<bfloat16>(rows, width), y = m.take<bfloat16>(rows, width), dx = m.take<bfloat16>(rows, width);
    const auto gain = m.take<float>(width), bias = m.take<float>(width), dgain = m.take<float>(width),
               dbias = m.take<float>(width);
    const auto mean = m.take<float>(rows), rstd = m.take<float>(rows), of_rows = m.take<float>(rows);
    const auto scalar = m.take<float>(), dscalar = m.take<float>();

    {
        const auto w = m.take<bfloat16>(classes, width), c = m.take<bfloat16>(rows, classes);
        const auto of_classes = m.take<float>(classes);
        const auto dw = m.take<float>(classes, width);
        test("matmul",
             [&](auto& d) { ht::matmul<ht::amp_bf16>(d, x, ht::transpose(w), c, ht::bias_gelu{of_classes}); });
        test("matmul that adds",
             [&](auto& d) { ht::detail::product<bfloat16>(d, ht::transpose(c), x, dw, write_mode::add); });
        test("matmul in fp32", [&](auto& d) { ht::matmul<ht::full_fp32>(d, x, ht::transpose(w), c); });
        const auto one = m.take<bfloat16>(2, rows, width), other = m.take<bfloat16>(2, width, rows),
                   both = m.take<bfloat16>(2, rows, rows);
        test("batched_matmul", [&](auto& d) { ht::batched_matmul<ht::amp_bf16>(d, one, other, both); });

        const auto targets = m.take_classes(rows, classes);
        const auto loss = m.take<float>(1), count = m.take<float>(1), gradient = m.take<float>(1);
        test("cross_entropy", [&]<class D>(D& d) {
            kernel::cross_entropy<D>::template forward<bfloat16>(d, {.logits = c,
                                                                     .targets = targets,
                                                                     .losses = of_rows,
                                                                     .maximum = mean,
                                                                     .sum = rstd,
                                                                     .loss = loss,
                                                                     .count = count});
        });
        test("cross_entropy backward", [&]<class D>(D& d) {
            kernel::cross_entropy<D>::template backward<bfloat16, bfloat16>(d, {.logits = c,
                                                                                .targets = targets,
                                                                                .maximum = mean,
                                                                                .sum = rstd,
                                                                                .gradient = gradient,
                                                                                .count = count,
                                                                                .dlogits = c});
        });
        const kernel::linear_cross_entropy_rows rows_of{targets, of_rows, mean, rstd, loss, count};
        // The smallest chunk of rows, and all rows at once.
        const auto head = [&]<class D, std::size_t Bytes>(D& d, std::integral_constant<std::size_t, Bytes>) {
            using both_ways = kernel::linear_cross_entropy<D, Bytes>;
            both_ways::template forward<bfloat16, bfloat16, bfloat16, bfloat16>(d, x, w, rows_of);
            both_ways::template backward<bfloat16, bfloat16, bfloat16, bfloat16, bfloat16, bfloat16, float>(
                d, x, w, rows_of, gradient, {.to = dx}, {.to = dw});
        };
        test("linear_cross_entropy",
             [&](auto& d) { head(d, std::integral_constant<std::size_t, std::size_t{8} << 20>{}); });
        test("linear_cross_entropy in chunks", [&](auto& d) { head(d, std::integral_constant<std::size_t, 1>{}); });

        const auto dtable = m.take<float>(classes, width), dpositions = m.take<float>(extent{3}, width);
        test("embedding", [&]<class D>(D& d) {
            kernel::embedding<D>::template forward<bfloat16, bfloat16>(d, {.tokens = targets, .table = w, .out = y});
        });
        test("embedding backward", [&]<class D>(D& d) {
            kernel::embedding<D>::template backward<bfloat16, float>(d, {.tokens = targets,
                                                                         .dy = y,
                                                                         .dtable = dtable,
                                                                         .dpositions = dpositions,
                                                                         .mode = write_mode::overwrite});
        });
    }
    {
        const extent one = 1, two = 2, heads = 2, head_size = 8;
        const auto of_queries = [&] { return m.take<bfloat16>(one, rows, heads, head_size); };
        const auto of_keys = [&] { return m.take<bfloat16>(one, rows + 1, one, head_size); };
        const auto of_both = [&] { return m.take<bfloat16>(one, 2 * rows, one, head_size); };
        const auto q = of_queries(), o = of_queries(), dq = of_queries();
        const auto k = of_keys(), v = of_keys(), dk = of_keys(), dv = of_keys();
        const auto packed_x = of_both(), packed_o = of_both(), packed_dq = of_both(), packed_dk = of_both(),
                   packed_dv = of_both();
        const auto sums = m.take<float>(one, heads, rows, two), packed_sums = m.take<float>(one, one, 2 * rows, two);
        struct sequence_offsets {
            std::int32_t value[3];
        };
        const auto length = static_cast<std::int32_t>(rows);
        const ht::const_view<std::int32_t, 1> offsets(
            reinterpret_cast<std::int32_t*>(m.take_record(sequence_offsets{{0, length, 2 * length}})), {3});
        const auto sequences = ht::packed_sequences::of(offsets, rows);

        const ht::attention_options flash{.mask = ht::attention_mask::causal};
        const ht::attention_options stored{.mask = ht::attention_mask::causal,
                                           .strategy = ht::attention_strategy::math};
        test("attention", [&](auto& d) { ht::attention<ht::amp_bf16>(d, q, k, v, o, sums, flash); });
        test("attention by stored scores", [&](auto& d) { ht::attention<ht::amp_bf16>(d, q, k, v, o, sums, stored); });
        test("attention over packed sequences", [&](auto& d) {
            ht::attention<ht::amp_bf16>(d, packed_x, packed_x, packed_x, packed_o, packed_sums, flash, sequences);
        });
        const auto backward = [&](auto& d, const ht::attention_options& options) {
            ht::attention_gradients<ht::amp_bf16>(d, kernel::attention_backward<bfloat16>{.q = q,
                                                                                          .k = k,
                                                                                          .v = v,
                                                                                          .o = o,
                                                                                          .logsumexp = sums,
                                                                                          .d_o = o,
                                                                                          .dq = dq,
                                                                                          .dk = dk,
                                                                                          .dv = dv,
                                                                                          .options = options});
        };
        test("attention backward", [&](auto& d) { backward(d, flash); });
        test("attention backward by stored scores", [&](auto& d) { backward(d, stored); });
        test("attention backward over packed sequences", [&](auto& d) {
            const auto& x = packed_x;
            const auto& o = packed_o;
            ht::attention_gradients<ht::amp_bf16>(
                d, kernel::attention_backward<bfloat16>{x, x, x, o, packed_sums, o, packed_dq, packed_dk, packed_dv,
                                                        flash, sequences});
        });
    }
    {
        const auto mixture = [](auto a, auto b, auto c) { return a * b + c; };
        test("map", [&](auto& d) { ht::map(d, mixture, x, gain, scalar, y); });
        test("map backward", [&]<class D>(D& d) {
            const auto e = ht::make_pack(ht::trace<3>(mixture));
            kernel::map<D>::backward(
                d, e, ht::make_pack(ht::const_view<bfloat16, 2>(y)),
                ht::make_pack(ht::const_view<bfloat16, 2>(x), ht::const_view<float, 1>(gain),
                              ht::const_view<float, 0>(scalar)),
                ht::make_pack(kernel::gradient{dx, write_mode::overwrite}, kernel::gradient{dgain, write_mode::add},
                              kernel::gradient{dscalar, write_mode::overwrite}));
        });
        const ht::const_view<float, 1> flat(rstd);
        test("sum", [&]<class D>(D& d) {
            kernel::sum<D>::run(d, ht::trace<1>([](auto a) { return a * a; }), ht::make_pack(flat), 0.5, scalar);
        });
        test("column_sum", [&]<class D>(D& d) { kernel::column_sum<D>::run(d, x, dbias, write_mode::add); });
        test("convert", [&]<class D>(D& d) { kernel::convert<D>::run(d, x, y, 0.5f); });
    }
    {
        test("layer_norm", [&]<class D>(D& d) {
            kernel::layer_norm<D>::template forward<bfloat16, float, bfloat16>(
                d, {.x = x, .gain = gain, .bias = bias, .y = y, .mean = mean, .rstd = rstd});
        });
        test("layer_norm backward", [&]<class D>(D& d) {
            kernel::layer_norm<D>::template backward<bfloat16, float, bfloat16, float>(
                d,
                {.x = x, .gain = gain, .dy = y, .mean = mean, .rstd = rstd, .dx = dx, .dgain = dgain, .dbias = dbias});
        });
        test("layer_norm backward, of a bias alone", [&]<class D>(D& d) {
            kernel::layer_norm<D>::template backward<bfloat16, float, bfloat16, float>(
                d, {.x = x, .gain = gain, .dy = y, .mean = mean, .rstd = rstd, .dx = dx, .dbias = dbias});
        });
        test("rms_norm", [&]<class D>(D& d) {
            kernel::rms_norm<D>::template forward<bfloat16, float, bfloat16>(
                d, {.x = x, .gain = gain, .y = y, .rstd = rstd});
        });
        test("rms_norm backward", [&]<class D>(D& d) {
            kernel::rms_norm<D>::template backward<bfloat16, float, bfloat16, float>(
                d, {.x = x, .gain = gain, .dy = y, .rstd = rstd, .dx = dx, .dgain = dgain});
        });
        test("softmax",
             [&]<class D>(D& d) { kernel::softmax<D>::template forward<bfloat16, bfloat16>(d, {.x = x, .y = y}); });
        test("softmax backward", [&]<class D>(D& d) {
            kernel::softmax<D>::template backward<bfloat16, bfloat16>(d, {.y = y, .dy = y, .dx = dx});
        });
        test("log_softmax",
             [&]<class D>(D& d) { kernel::log_softmax<D>::template forward<bfloat16, bfloat16>(d, {.x = x, .y = y}); });
        test("log_softmax backward", [&]<class D>(D& d) {
            kernel::log_softmax<D>::template backward<bfloat16, bfloat16>(d, {.y = y, .dy = y, .dx = dx});
        });
    }
    {
        const extent n = rows * width;
        const auto w = m.take<float>(n), g = m.take<float>(n), first = m.take<float>(n), second = m.take<float>(n);
        const auto copy = m.take<bfloat16>(n);
        // Constants, because the padding bytes between their members are zeros and are hashed, too.
        static constexpr kernel::gradient_record nothing_yet{};
        static constexpr kernel::step_record after_three{.steps = 3, .lr = 0.01};
        auto* const record = m.take_record(nothing_yet);
        auto* const step = m.take_record(after_three);
        auto* const found_inf = m.take_record(std::int32_t{0});
        test("gradient_norm",
             [&]<class D>(D& d) { kernel::gradient_norm<D>::add(d, ht::const_view<float, 1>(g), record, found_inf); });
        test("adamw", [&]<class D>(D& d) {
            kernel::optimizer_step<D>::template run<rounding::nearest_even, kernel::adamw_rule, float, bfloat16, float, float>(
                d, {.master = w,
                    .copy = copy,
                    .gradient = g,
                    .moments = {first, second},
                    .factors = &record->factors,
                    .step = step});
        });
        test("lion", [&]<class D>(D& d) {
            kernel::optimizer_step<D>::template run<rounding::nearest_even, kernel::lion_rule, float, bfloat16, float, float>(
                d, {.master = w,
                    .copy = copy,
                    .gradient = g,
                    .moments = {first},
                    .factors = &record->factors,
                    .step = step});
        });
        test("sgd", [&]<class D>(D& d) {
            kernel::optimizer_step<D>::template run<rounding::nearest_even, kernel::sgd_rule, float, bfloat16, float, float>(
                d, {.master = w,
                    .copy = copy,
                    .gradient = g,
                    .moments = {first},
                    .rule = {.momentum = 0.9},
                    .factors = &record->factors,
                    .step = step});
        });
    }
}

/// The predicted size is exact: memory of that size is enough, memory of one cache line less is not. `make` returns a device with
/// that scratch memory.
template <class Device, class Make>
void is_told(const sizes& s, const Make& make) {
    CAPTURE(s.rows);
    CAPTURE(s.width);
    CAPTURE(s.classes);
    CAPTURE(s.apart);
    std::vector<std::size_t> told;
    {
        arguments closed(access::closed, s.apart);
        const std::unique_ptr<Device> device = make(std::span<std::byte>{});
        each_operation(closed, s,
                       [&](const char*, const auto& call) { told.push_back(ht::workspace_bytes(*device, call)); });
        CHECK(device->scratch().peak() == 0);
        CHECK(device->memory().usage().allocations() == 0);
    }
    arguments open(access::open, s.apart);
    std::size_t number = 0;
    each_operation(open, s, [&](const char* operation, const auto& call) {
        CAPTURE(operation);
        const std::size_t bytes = told[number++];
        CHECK(bytes % ht::block_alignment == 0);
        std::vector<std::byte> memory(bytes + ht::block_alignment);
        std::byte* const first = memory.data() + -reinterpret_cast<std::uintptr_t>(memory.data()) % ht::block_alignment;
        {
            const std::unique_ptr<Device> device = make({first, bytes});
            CHECK_NOTHROW(call(*device));
            CHECK(device->scratch().peak() == bytes);
            CHECK(device->memory().usage().allocations() == 0);
        }
        if (bytes > ht::block_alignment) {
            const std::unique_ptr<Device> device = make({first, bytes - ht::block_alignment});
            CHECK_THROWS_AS(call(*device), ht::out_of_memory);
        }
    });
    CHECK(number == told.size());
}

/// The arguments' bits after each operation.
template <class Device>
std::vector<std::uint64_t> bits_of_all(Device& device, const sizes& s) {
    arguments m(access::open, s.apart);
    std::vector<std::uint64_t> bits;
    each_operation(m, s, [&](const char*, const auto& call) {
        call(device);
        bits.push_back(m.hash());
    });
    return bits;
}

}  // namespace operation_checks
