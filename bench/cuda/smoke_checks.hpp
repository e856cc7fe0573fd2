// SPDX-License-Identifier: MIT
/// \file
/// Runs each kernel once, on integers for which every result is exact whatever the order of sums, so that results are
/// compared for equality. It works on any device, so that the numbers themselves are tested without a GPU.
///
///     bench::smoke_checks<ht::cuda>{gpu, 2048}.run([](const bench::smoke_result& r) { ... });
///
/// Operands are made on the host and copied; results are initialised with NaN. The file is long because it has a check
/// of each kernel.
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <halftone/kernel/dropout/reference.hpp>
#include <halftone/number.hpp>
#include <halftone/policy.hpp>
#include <halftone/tensor/tensor.hpp>

namespace bench {

namespace ht = halftone;

struct smoke_result {
    std::string kernel{};
    std::int64_t wrong = 0, of = 0;  ///< number of wrong elements, and of all
    std::string what{};              ///< the first wrong element, or the exception's message
};

template <class Device>
class smoke_checks {
  public:
    using extent = ht::extent;
    using bf16 = ht::bfloat16;

    /// large: the rows and columns of the largest product; 512 columns are summed.
    smoke_checks(Device& device, extent large) : device_(device), large_(large) {}

    /// Calls report(smoke_result) after each kernel; an exception that a kernel throws becomes its result.
    template <class Report>
    void run(const Report& report) {
        const auto each = [&](const char* kernel, const auto& check) {
            result_ = {kernel};
            try {
                check();
                if (result_.of == 0) result_.what = "nothing was compared";
            } catch (const std::exception& e) {
                result_.what = e.what();
            }
            report(result_);
        };
        each("map", [&] { map(); });
        each("convert", [&] { convert(); });
        each("matmul, amp_bf16", [&] { products<ht::amp_bf16, bf16>(); });
        each("matmul, amp_fp16", [&] { products<ht::amp_fp16, ht::float16>(); });
        each("matmul, tf32", [&] { products<ht::tf32, float>(); });
        each("matmul, full_fp32", [&] { products<ht::full_fp32, float>(); });
        for (const extent size : {64, 128}) {
            each(size == 64 ? "attention, heads of 64" : "attention, heads of 128", [&] { attention(size); });
        }
        each("layer_norm", [&] { layer_norm(); });
        each("rms_norm", [&] { rms_norm(); });
        each("softmax", [&] { softmax(); });
        each("cross_entropy", [&] { cross_entropy(); });
        each("embedding", [&] { embedding(); });
        each("dropout", [&] { dropout(); });
        each("column_sum", [&] { column_sum(); });
        each("sum", [&] { sum(); });
        each("gradient_norm", [&] { gradient_norm(); });
        each("adamw", [&] { adamw(); });
        each("sgd", [&] { sgd(); });
    }

  private:
    // ---- operands and results

    template <class T, int Rank, class F>
    ht::tensor<T, Rank> make(const ht::shape<Rank>& shape, const F& value) {
        std::vector<T> host(static_cast<std::size_t>(shape.size()));
        for (std::size_t i = 0; i < host.size(); ++i) host[i] = T(static_cast<float>(value(static_cast<extent>(i))));
        ht::tensor<T, Rank> t(device_.memory(), shape);
        device_.memory().write(t.data(), host.data(), host.size() * sizeof(T));
        return t;
    }
    template <class T, int Rank>
    ht::tensor<T, Rank> unwritten(const ht::shape<Rank>& shape) {
        return make<T, Rank>(shape, [](extent) { return std::numeric_limits<float>::quiet_NaN(); });
    }
    template <class T>
    ht::tensor<T, 1> record(const T& value) {
        ht::tensor<T, 1> t(device_.memory(), {1});
        device_.memory().write(t.data(), &value, sizeof value);
        return t;
    }
    template <class T, int Rank>
    std::vector<T> read(const ht::tensor<T, Rank>& t) {
        if constexpr (requires { device_.synchronize(); }) device_.synchronize();
        std::vector<T> host(static_cast<std::size_t>(t.size()));
        device_.memory().read(host.data(), t.data(), host.size() * sizeof(T));
        return host;
    }

    /// want(i): the expected element i of `got`, before it is rounded to T.
    template <class T, int Rank, class F>
    void compare(const char* name, const ht::tensor<T, Rank>& got, const F& want) {
        const std::vector<T> values = read(got);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const double expected = static_cast<double>(want(static_cast<extent>(i)));
            equal(name, static_cast<extent>(i), static_cast<double>(static_cast<float>(values[i])),
                  static_cast<double>(static_cast<float>(T(static_cast<float>(expected)))));
        }
    }
    void equal(const char* name, extent at, double got, double want) {
        ++result_.of;
        if (got == want) return;
        if (result_.wrong++ == 0) {
            result_.what = std::string(name) + "[" + std::to_string(at) + "] is " + std::to_string(got) +
                           "; expected " + std::to_string(want);
        }
    }

    // ---- pointwise

    void map() {
        constexpr extent n = 100'003;
        const auto x = make<bf16, 1>({n}, [](extent i) { return i % 7 - 3; });
        const auto y = make<bf16, 1>({n}, [](extent i) { return i % 5; });
        const auto z = unwritten<float, 1>({n});
        ht::map(
            device_, [](auto a, auto b) { return a * b + 3.0f; }, x, y, z);
        compare("x y + 3", z, [](extent i) { return (i % 7 - 3) * (i % 5) + 3; });
    }
    void convert() {
        constexpr extent n = 10'001;
        const auto x = make<float, 1>({n}, [](extent i) { return i - 5000; });
        const auto y = unwritten<bf16, 1>({n});
        ht::kernel::convert<Device>::run(device_, x.const_view(), y.view());
        compare("bf16", y, [](extent i) { return i - 5000; });
    }
    void dropout() {
        constexpr extent n = 10'001;
        const auto x = make<float, 1>({n}, [](extent i) { return i % 9 + 1; });
        const auto y = unwritten<float, 1>({n});
        const auto drawn = record(ht::kernel::random_record{42, 3});
        ht::kernel::dropout<Device>::run(device_, x.const_view(), ht::const_view<float, 1>{}, y.view(),
                                         ht::kernel::dropout_draw::of(drawn.data(), 5, 0.5f));
        compare("half of x, twice", y,
                [](extent i) { return ht::reference::is_dropped(42, 3, 5, i, 0.5) ? 0 : 2 * (i % 9 + 1); });
    }
    void embedding() {
        constexpr extent rows = 512, vocabulary = 40, width = 96;
        std::vector<std::int32_t> host(static_cast<std::size_t>(rows));
        const auto token = [](extent i) { return i * i % vocabulary; };
        for (extent i = 0; i < rows; ++i) host[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(token(i));
        const ht::tensor<std::int32_t, 1> tokens(device_.memory(), {rows});
        device_.memory().write(tokens.data(), host.data(), host.size() * sizeof host[0]);
        const auto table = make<bf16, 2>({vocabulary, width}, [](extent i) { return i % 101; });
        const auto out = unwritten<bf16, 2>({rows, width});
        ht::kernel::embedding<Device>::template forward<bf16, bf16>(
            device_, {.tokens = tokens.const_view(), .table = table.const_view(), .out = out.view()});
        compare("out", out, [&](extent i) { return (token(i / width) * width + i % width) % 101; });

        const auto dy = make<bf16, 2>({rows, width}, [](extent i) { return i % 11 - 5; });
        const auto dtable = unwritten<float, 2>({vocabulary, width});
        ht::kernel::embedding<Device>::template backward<bf16, float>(device_, {.tokens = tokens.const_view(),
                                                                                .dy = dy.const_view(),
                                                                                .dtable = dtable.view(),
                                                                                .mode = ht::write_mode::overwrite});
        std::vector<double> want(static_cast<std::size_t>(vocabulary * width));
        for (extent i = 0; i < rows * width; ++i)
            want[static_cast<std::size_t>(token(i / width) * width + i % width)] += static_cast<double>(i % 11 - 5);
        compare("dtable", dtable, [&](extent i) { return want[static_cast<std::size_t>(i)]; });
    }

    // ---- products

    enum class layout { nt, nn, tn };

    /// Sums of k terms of -1, 0 and 1; of a large product only some rows are compared.
    template <class Policy, class T>
    void product(layout way, extent m, extent n, extent k, extent apart, extent off) {
        const auto of_a = [](extent i, extent p) { return (i * 5 + p * 3 + i * p) % 3 - 1; };
        const auto of_b = [](extent p, extent j) { return (p * 7 + j * 2 + p * j) % 3 - 1; };
        const auto a = make<T, 1>({m * k + off}, [&](extent e) {
            const extent at = e < off ? 0 : e - off;
            return way == layout::tn ? of_a(at % m, at / m) : of_a(at / k, at % k);
        });
        const auto b = make<T, 1>({k * n + off}, [&](extent e) {
            const extent at = e < off ? 0 : e - off;
            return way == layout::nt ? of_b(at % k, at / k) : of_b(at / n, at % n);
        });
        const auto c = unwritten<T, 1>({m * n + off});
        const auto va = way == layout::tn ? ht::transpose(ht::view<T, 2>(a.data() + off, {k, m}))
                                          : ht::view<T, 2>(a.data() + off, {m, k});
        const auto vb = way == layout::nt ? ht::transpose(ht::view<T, 2>(b.data() + off, {n, k}))
                                          : ht::view<T, 2>(b.data() + off, {k, n});
        ht::matmul<Policy>(device_, va, vb, ht::view<T, 2>(c.data() + off, {m, n}));
        const std::vector<T> got = read(c);
        for (extent i = 0; i < m; i += i + apart >= m && i != m - 1 ? m - 1 - i : apart) {
            for (extent j = 0; j < n; ++j) {
                extent sum = 0;
                for (extent p = 0; p < k; ++p) sum += of_a(i, p) * of_b(p, j);
                equal("c", i * n + j,
                      static_cast<double>(static_cast<float>(got[static_cast<std::size_t>(off + i * n + j)])),
                      static_cast<double>(static_cast<float>(T(static_cast<float>(sum)))));
            }
        }
    }
    template <class Policy, class T>
    void products() {
        for (const layout way : {layout::nt, layout::nn, layout::tn}) product<Policy, T>(way, 160, 136, 96, 1, 0);
        product<Policy, T>(layout::nt, 33, 65, 37, 1, 0);
        product<Policy, T>(layout::nn, 130, 129, 97, 1, 1);
        product<Policy, T>(layout::nt, large_, large_, 512, large_ / 8, 0);
    }

    // ---- attention

    /// Equal scores, so that each of `length` keys, a power of two, has the same weight: outputs are means.
    void attention(extent head_size) {
        constexpr extent length = 128, heads = 2;
        const ht::shape<4> shape{1, length, heads, head_size};
        const extent all = shape.size(), stride = heads * head_size;
        const auto time = [&](extent e) { return e / stride; };
        const auto column = [&](extent e) { return e % head_size; };
        const auto of_key = [&](extent e) { return static_cast<double>(time(e) % 4); };
        const auto zero = [](extent) { return 0.0; };
        const auto one_of_eight = [&](extent e) { return column(e) == time(e) % 8 ? 1.0 : 0.0; };
        using operation = ht::kernel::attention<Device>;
        const ht::tensor<float, 4> sums(device_.memory(), {1, heads, length, 2});
        const ht::attention_options full{.scale = 0.125f};
        struct operands {
            ht::tensor<bf16, 4> q, k, v, d_o, o, dq, dk, dv;
        };
        const auto differentiate = [&](const auto& q, const auto& k) {
            operands x{make<bf16, 4>(shape, q),      make<bf16, 4>(shape, k),
                       make<bf16, 4>(shape, of_key), make<bf16, 4>(shape, one_of_eight),
                       unwritten<bf16, 4>(shape),    unwritten<bf16, 4>(shape),
                       unwritten<bf16, 4>(shape),    unwritten<bf16, 4>(shape)};
            operation::template forward<bf16>(
                device_, ht::kernel::attention_forward<bf16>{
                             x.q.const_view(), x.k.const_view(), x.v.const_view(), x.o.view(), sums.view(), full, {}});
            operation::template backward<bf16>(device_, ht::kernel::attention_backward<bf16>{x.q.const_view(),
                                                                                             x.k.const_view(),
                                                                                             x.v.const_view(),
                                                                                             x.o.const_view(),
                                                                                             sums.const_view(),
                                                                                             x.d_o.const_view(),
                                                                                             x.dq.view(),
                                                                                             x.dk.view(),
                                                                                             x.dv.view(),
                                                                                             full,
                                                                                             {}});
            compare("o", x.o, [](extent) { return 1.5; });
            // An eighth of the queries has a gradient in each of the first eight columns.
            compare("dv", x.dv, [&](extent e) { return column(e) < 8 ? 0.125 : 0.0; });
            return x;
        };
        // Queries of 0 give scores of 0. Gradients of scores are (v - its mean) / 128, of integers 0 to 3 as the keys
        // are.
        operands x = differentiate(zero, of_key);
        compare("dq", x.dq, [](extent) { return 0.125 / 4 * (0 * -1.5 + 1 * -0.5 + 2 * 0.5 + 3 * 1.5); });
        compare("dk", x.dk, zero);
        // Equal keys: every second query has scores of head_size / 8.
        x = differentiate([&](extent e) { return static_cast<double>(time(e) % 2); }, [](extent) { return 1.0; });
        compare("dk, of equal keys", x.dk, [&](extent e) { return 0.125 * 0.5 * (of_key(e) - 1.5); });
        compare("dq, of equal keys", x.dq, zero);
        // Under a causal mask the mean of values that are the same at all times.
        const auto v = make<bf16, 4>(shape, [&](extent e) { return static_cast<double>(e % stride - 100); });
        const auto q = make<bf16, 4>(shape, zero), o = unwritten<bf16, 4>(shape);
        operation::template forward<bf16>(
            device_, ht::kernel::attention_forward<bf16>{x.q.const_view(),
                                                         x.k.const_view(),
                                                         v.const_view(),
                                                         o.view(),
                                                         sums.view(),
                                                         {.mask = ht::attention_mask::causal, .scale = 0.125f},
                                                         {}});
        compare("o, causal", o, [&](extent e) { return static_cast<double>(e % stride - 100); });
        static_cast<void>(all);
    }

    // ---- rows

    static constexpr extent rows = 8, width = 1024;

    /// Whether i is in the first 16 of 32 lanes with 8 columns each; makes exchanges between lanes matter.
    static bool is_first(extent i) { return i / 8 % 32 < 16; }
    static double sign(extent i) { return is_first(i) ? 1 : -1; }
    /// Gradients of rows of +1 and -1: their means are 2 where the sign is +1, and 0 elsewhere.
    static double of_dy(extent i) { return is_first(i) ? 4.0 - 4 * (i % 2) : 1.0 - 2 * (i % 2); }

    /// Rows of 1 and -1: mean 0, variance 1.
    void layer_norm() {
        using operation = ht::kernel::layer_norm<Device>;
        const auto x = make<bf16, 2>({rows, width}, sign);
        const auto gain = make<float, 1>({width}, [](extent) { return 2; });
        const auto bias = make<float, 1>({width}, [](extent j) { return j % 16; });
        const auto y = unwritten<bf16, 2>({rows, width}), dx = unwritten<bf16, 2>({rows, width});
        const auto mean = unwritten<float, 1>({rows}), rstd = unwritten<float, 1>({rows});
        operation::template forward<bf16, float, bf16>(device_, {.x = x.const_view(),
                                                                 .gain = gain.const_view(),
                                                                 .bias = bias.const_view(),
                                                                 .y = y.view(),
                                                                 .mean = mean.view(),
                                                                 .rstd = rstd.view(),
                                                                 .epsilon = 0});
        compare("y", y, [](extent i) { return 2 * sign(i) + static_cast<double>(i % width % 16); });
        compare("mean", mean, [](extent) { return 0; });
        compare("rstd", rstd, [](extent) { return 1; });
        // The mean of gain dy is 2, and so is that of its products with x.
        const auto dy = make<bf16, 2>({rows, width}, of_dy);
        const auto dgain = unwritten<float, 1>({width}), dbias = unwritten<float, 1>({width});
        operation::template backward<bf16, float, bf16, float>(device_, {.x = x.const_view(),
                                                                         .gain = gain.const_view(),
                                                                         .dy = dy.const_view(),
                                                                         .mean = mean.const_view(),
                                                                         .rstd = rstd.const_view(),
                                                                         .dx = dx.view(),
                                                                         .dgain = dgain.view(),
                                                                         .dbias = dbias.view(),
                                                                         .parameter_mode = ht::write_mode::overwrite});
        compare("dx", dx, [](extent i) { return 2 * of_dy(i) - 2 - 2 * sign(i); });
        compare("dgain", dgain, [](extent j) { return rows * of_dy(j) * sign(j); });
        compare("dbias", dbias, [](extent j) { return rows * of_dy(j); });
    }
    /// Rows of 8 and -8.
    void rms_norm() {
        using operation = ht::kernel::rms_norm<Device>;
        const auto x = make<bf16, 2>({rows, width}, [](extent i) { return 8 * sign(i); });
        const auto gain = make<float, 1>({width}, [](extent) { return 2; });
        const auto y = unwritten<bf16, 2>({rows, width}), dx = unwritten<bf16, 2>({rows, width});
        const auto rstd = unwritten<float, 1>({rows}), dgain = unwritten<float, 1>({width});
        operation::template forward<bf16, float, bf16>(
            device_,
            {.x = x.const_view(), .gain = gain.const_view(), .y = y.view(), .rstd = rstd.view(), .epsilon = 0});
        compare("y", y, [](extent i) { return 2 * sign(i); });
        compare("rstd", rstd, [](extent) { return 0.125; });
        const auto dy = make<bf16, 2>({rows, width}, of_dy);
        operation::template backward<bf16, float, bf16, float>(device_, {.x = x.const_view(),
                                                                         .gain = gain.const_view(),
                                                                         .dy = dy.const_view(),
                                                                         .rstd = rstd.const_view(),
                                                                         .dx = dx.view(),
                                                                         .dgain = dgain.view(),
                                                                         .parameter_mode = ht::write_mode::overwrite});
        compare("dx", dx, [](extent i) { return (2 * of_dy(i) - 2 * sign(i)) / 8; });
        compare("dgain", dgain, [](extent j) { return rows * of_dy(j) * sign(j); });
    }
    /// Half of the numbers are equal, the others negligible compared with them.
    static double half(extent i) { return is_first(i) ? 5 : -10000; }
    void softmax() {
        using operation = ht::kernel::softmax<Device>;
        const auto x = make<bf16, 2>({rows, width}, half);
        const auto y = unwritten<bf16, 2>({rows, width}), dx = unwritten<bf16, 2>({rows, width});
        operation::template forward<bf16, bf16>(device_, {.x = x.const_view(), .y = y.view()});
        compare("y", y, [](extent i) { return is_first(i) ? 2.0 / width : 0.0; });
        // Gradients of the numbers that are not negligible; 1 in the mean.
        const auto of_dy = [](extent i) { return i / 8 % 16 < 8 ? 2.0 : 0.0; };
        const auto dy = make<bf16, 2>({rows, width}, of_dy);
        operation::template backward<bf16, bf16>(device_,
                                                 {.y = y.const_view(), .dy = dy.const_view(), .dx = dx.view()});
        compare("dx", dx, [&](extent i) { return is_first(i) ? (of_dy(i) - 1) * 2 / width : 0.0; });
    }
    void cross_entropy() {
        using operation = ht::kernel::cross_entropy<Device>;
        const auto logits = make<bf16, 2>({rows, width}, half);
        const ht::tensor<std::int32_t, 1> targets(device_.memory(), {rows});
        std::vector<std::int32_t> host;
        for (extent i = 0; i < rows; ++i) host.push_back(static_cast<std::int32_t>(i * 128));
        device_.memory().write(targets.data(), host.data(), host.size() * sizeof host[0]);
        const auto losses = unwritten<float, 1>({rows}), maximum = unwritten<float, 1>({rows}),
                   sum = unwritten<float, 1>({rows});
        const auto loss = unwritten<float, 1>({1}), count = unwritten<float, 1>({1});
        operation::template forward<bf16>(device_, {.logits = logits.const_view(),
                                                    .targets = targets.const_view(),
                                                    .losses = losses.view(),
                                                    .maximum = maximum.view(),
                                                    .sum = sum.view(),
                                                    .loss = loss.view(),
                                                    .count = count.view()});
        compare("maximum", maximum, [](extent) { return 5; });
        compare("sum", sum, [](extent) { return width / 2; });
        compare("count", count, [](extent) { return rows; });
        const auto gradient = make<float, 1>({1}, [](extent) { return rows; });
        const auto dlogits = unwritten<bf16, 2>({rows, width});
        operation::template backward<bf16, bf16>(device_, {.logits = logits.const_view(),
                                                           .targets = targets.const_view(),
                                                           .maximum = maximum.const_view(),
                                                           .sum = sum.const_view(),
                                                           .gradient = gradient.const_view(),
                                                           .count = count.const_view(),
                                                           .dlogits = dlogits.view()});
        compare("dlogits", dlogits, [](extent i) {
            return (is_first(i) ? 2.0 / width : 0.0) - (i % width == i / width * 128 ? 1.0 : 0.0);
        });
    }

    // ---- sums and steps

    void column_sum() {
        const auto x = make<bf16, 2>({300, 70}, [](extent i) { return i % 13 - 6; });
        const auto out = unwritten<float, 1>({70});
        ht::kernel::column_sum<Device>::run(device_, x.const_view(), out.view());
        compare("out", out, [](extent j) {
            extent sum = 0;
            for (extent i = 0; i < 300; ++i) sum += (i * 70 + j) % 13 - 6;
            return sum;
        });
    }
    void sum() {
        constexpr extent n = 100'003;
        const auto x = make<bf16, 1>({n}, [](extent i) { return i % 13; });
        const auto out = unwritten<float, 1>({1});
        ht::kernel::sum<Device>::run(device_, ht::trace<1>([](auto a) { return a + 1.0f; }),
                                     ht::make_pack(x.const_view()), 1.0,
                                     ht::view<float, 0>(out.data(), ht::shape<0>{}));
        compare("out", out, [](extent) {
            extent sum = 0;
            for (extent i = 0; i < n; ++i) sum += i % 13 + 1;
            return sum;
        });
    }
    void gradient_norm() {
        constexpr extent n = 100'003;
        const auto gradient = make<float, 1>({n}, [](extent i) { return i % 5 - 2; });
        const auto kept = record(ht::kernel::gradient_record{});
        const auto found = record(std::int32_t{0});
        ht::kernel::gradient_norm<Device>::add(device_, gradient.const_view(), kept.data(), found.data());
        extent sum = 0;
        for (extent i = 0; i < n; ++i) sum += (i % 5 - 2) * (i % 5 - 2);
        equal("sum of squares", 0, read(kept)[0].squares, static_cast<double>(sum));
        equal("found_inf", 0, read(found)[0], 0);
    }
    /// Without gradients: weight decay leaves three quarters of a parameter.
    void adamw() {
        constexpr extent n = 10'001;
        const auto master = make<float, 1>({n}, [](extent i) { return 4 * (i % 99); });
        const auto copy = unwritten<bf16, 1>({n});
        const auto gradient = make<float, 1>({n}, [](extent) { return 0; }),
                   first = make<float, 1>({n}, [](extent) { return 0; }),
                   second = make<float, 1>({n}, [](extent) { return 0; });
        const auto step = record(ht::kernel::step_record{.steps = 3, .lr = 0.5});
        const auto kept = record(ht::kernel::gradient_record{});
        ht::kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even>(
            device_, ht::kernel::optimizer_step_arguments<ht::kernel::adamw_rule, float, bf16, float, float>{
                         .master = master.view(),
                         .copy = copy.view(),
                         .gradient = gradient.const_view(),
                         .moments = {first.view(), second.view()},
                         .rates = {.weight_decay = 0.5},
                         .factors = &kept.data()->factors,
                         .step = step.data()});
        compare("master", master, [](extent i) { return 3 * (i % 99); });
        compare("copy", copy, [](extent i) { return 3 * (i % 99); });
        compare("second", second, [](extent) { return 0; });
    }
    void sgd() {
        constexpr extent n = 10'001;
        const auto master = make<float, 1>({n}, [](extent i) { return i % 99; });
        const auto copy = unwritten<bf16, 1>({n});
        const auto gradient = make<float, 1>({n}, [](extent i) { return i % 8; });
        const auto step = record(ht::kernel::step_record{.steps = 3, .lr = 0.5});
        const auto kept = record(ht::kernel::gradient_record{});
        ht::kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even>(
            device_, ht::kernel::optimizer_step_arguments<ht::kernel::sgd_rule, float, bf16, float, float>{
                         .master = master.view(),
                         .copy = copy.view(),
                         .gradient = gradient.const_view(),
                         .factors = &kept.data()->factors,
                         .step = step.data()});
        const auto want = [](extent i) { return static_cast<double>(i % 99) - 0.5 * static_cast<double>(i % 8); };
        compare("master", master, want);
        compare("copy", copy, want);
    }

    Device& device_;
    extent large_;
    smoke_result result_{};
};

}  // namespace bench
