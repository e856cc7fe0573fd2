// SPDX-License-Identifier: MIT
/// \file
/// Arguments and errors of attention, and its scratch memory; the definition's gradients compared with differences.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/kernel/attention/reference.hpp>
#include <halftone/policy/presets.hpp>
#include <halftone/tensor/tensor.hpp>

#include "support/gradient_check.hpp"
#include "support/random.hpp"

namespace kernel_attention_interface_tests {

namespace ht = halftone;
using ht::attention_mask;
using ht::bfloat16;
using ht::extent;
using attention = ht::kernel::attention<ht::cpu>;
using doubles = std::vector<double>;

/// The gradients of sum(o * d_o), with two query heads to a key head.
void check_definition(const ht::attention_options& options, extent queries, extent keys) {
    const ht::shape<4> of_q{2, queries, 4, 3}, of_k{2, keys, 2, 3};
    support::random data(3);
    const doubles q = data.normals<double>(of_q.size()), k = data.normals<double>(of_k.size()),
                  v = data.normals<double>(of_k.size()), d_o = data.normals<double>(of_q.size());
    doubles dq(q.size()), dk(k.size()), dv(k.size());
    const auto loss = [&](const doubles& some_q, const doubles& some_k, const doubles& some_v) {
        doubles o(q.size()), logsumexp(static_cast<std::size_t>(8 * queries));
        ht::reference::attention(ht::view(some_q.data(), of_q), ht::view(some_k.data(), of_k),
                                 ht::view(some_v.data(), of_k), ht::view(o.data(), of_q),
                                 ht::view<double, 3>(logsumexp.data(), {2, 4, queries}), options);
        double sum = 0;
        for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * d_o[i];
        return sum;
    };
    ht::reference::attention_gradients(ht::view(q.data(), of_q), ht::view(k.data(), of_k), ht::view(v.data(), of_k),
                                       ht::view(d_o.data(), of_q), ht::view(dq.data(), of_q), ht::view(dk.data(), of_k),
                                       ht::view(dv.data(), of_k), options);
    support::check_gradient([&](const doubles& x) { return loss(x, k, v); }, q, dq);
    support::check_gradient([&](const doubles& x) { return loss(q, x, v); }, k, dk);
    support::check_gradient([&](const doubles& x) { return loss(q, k, x); }, v, dv);
}

TEST_CASE("the definition's gradients are its slopes") {
    check_definition({.mask = attention_mask::full}, 3, 5);
    check_definition({.mask = attention_mask::causal}, 4, 4);
    check_definition({.mask = attention_mask::causal, .scale = 0.3f}, 3, 5);
}

TEST_CASE("the definition of packed sequences: sequences are independent, and the gradients are the slopes") {
    // Four sequences: as many keys as queries, more, fewer (so that a causal mask leaves queries without a key), none.
    const std::vector<std::int32_t> of_queries{0, 2, 3, 6, 8}, of_keys{0, 2, 6, 7, 7};
    const ht::packed_sequences sequences{{of_queries.data(), {5}}, {of_keys.data(), {5}}, 3, 4};
    const ht::shape<4> of_q{1, 8, 2, 3}, of_k{1, 7, 1, 3};
    support::random data(4);
    const doubles q = data.normals<double>(of_q.size()), k = data.normals<double>(of_k.size()),
                  v = data.normals<double>(of_k.size()), d_o = data.normals<double>(of_q.size());
    for (const attention_mask mask : {attention_mask::full, attention_mask::causal}) {
        const ht::attention_options options{.mask = mask};
        doubles dq(q.size()), dk(k.size()), dv(k.size()), logsumexp(16);
        const auto outputs = [&](const doubles& some_q, const doubles& some_k, const doubles& some_v) {
            doubles o(q.size());
            ht::reference::attention(ht::view(some_q.data(), of_q), ht::view(some_k.data(), of_k),
                                     ht::view(some_v.data(), of_k), ht::view(o.data(), of_q),
                                     ht::view<double, 3>(logsumexp.data(), {1, 2, 8}), options, sequences);
            return o;
        };
        const auto loss = [&](const doubles& some_q, const doubles& some_k, const doubles& some_v) {
            const doubles o = outputs(some_q, some_k, some_v);
            double sum = 0;
            for (std::size_t i = 0; i < o.size(); ++i) sum += o[i] * d_o[i];
            return sum;
        };
        ht::reference::attention_gradients(ht::view(q.data(), of_q), ht::view(k.data(), of_k), ht::view(v.data(), of_k),
                                           ht::view(d_o.data(), of_q), ht::view(dq.data(), of_q),
                                           ht::view(dk.data(), of_k), ht::view(dv.data(), of_k), options, sequences);
        support::check_gradient([&](const doubles& x) { return loss(x, k, v); }, q, dq);
        support::check_gradient([&](const doubles& x) { return loss(q, x, v); }, k, dk);
        support::check_gradient([&](const doubles& x) { return loss(q, k, x); }, v, dv);

        // Other sequences have no effect: a query's o depends only on the keys of its sequence.
        const doubles before = outputs(q, k, v);
        doubles other = v;
        for (std::size_t i = 6 * 3; i < 7 * 3; ++i) other[i] += 1;  // the third sequence's key
        const doubles after = outputs(q, k, other);
        for (std::size_t i = 0; i < before.size(); ++i) {
            const std::size_t time = i / 6;
            const bool sees = time >= (mask == attention_mask::causal ? 5 : 3) && time < 6;
            CHECK((before[i] != after[i]) == sees);
            const bool seeing = time < 3 || sees;
            CHECK((before[i] != 0) == seeing);
            CHECK((logsumexp[i / 3 % 2 * 8 + time] > -1e30) == seeing);
        }
    }
}

TEST_CASE("the definition, by hand: one query between two keys") {
    // Scores 0 and log 3, so the weights are 1/4 and 3/4.
    const doubles q{1}, k{0, std::log(3.0)}, v{10, 20};
    doubles o(1), logsumexp(1);
    ht::reference::attention(ht::view(q.data(), ht::shape<4>{1, 1, 1, 1}), ht::view(k.data(), ht::shape<4>{1, 2, 1, 1}),
                             ht::view(v.data(), ht::shape<4>{1, 2, 1, 1}), ht::view(o.data(), ht::shape<4>{1, 1, 1, 1}),
                             ht::view<double, 3>(logsumexp.data(), {1, 1, 1}), {.mask = attention_mask::causal});
    CHECK(o[0] == doctest::Approx(17.5));
    CHECK(logsumexp[0] == doctest::Approx(std::log(4.0)));
}

/// Tensors of one problem, all ones.
struct tensors {
    ht::shape<4> of_q, of_k;
    ht::tensor<float, 4> q, k, v, o, d_o, dq, dk, dv;
    ht::tensor<float, 4> logsumexp;

    tensors(ht::cpu& device, extent batch, extent queries, extent keys, extent heads, extent width)
        : of_q{batch, queries, heads, width},
          of_k{batch, keys, heads, width},
          q(device.memory(), of_q),
          k(device.memory(), of_k),
          v(device.memory(), of_k),
          o(device.memory(), of_q),
          d_o(device.memory(), of_q),
          dq(device.memory(), of_q),
          dk(device.memory(), of_k),
          dv(device.memory(), of_k),
          logsumexp(device.memory(), {batch, heads, queries, 2}) {
        for (const auto* t : {&q, &k, &v, &o, &d_o, &dq, &dk, &dv}) std::fill_n(t->data(), t->size(), 1.0f);
    }
    ht::kernel::attention_forward<float> forward(const ht::attention_options& options = {}) const {
        return {q.view(), k.view(), v.view(), o.view(), logsumexp.view(), options};
    }
    ht::kernel::attention_backward<float> backward(const ht::attention_options& options = {}) const {
        return {q.view(),   k.view(),  v.view(),  o.view(),  logsumexp.view(),
                d_o.view(), dq.view(), dk.view(), dv.view(), options};
    }
};

TEST_CASE("the operation by policy gives the kernel's results") {
    ht::cpu device{{.threads = 1}};
    const tensors t(device, 1, 9, 9, 2, 8);
    support::random data(5);
    for (const auto* x : {&t.q, &t.k, &t.v, &t.d_o}) {
        const std::vector<float> values = data.normals<float>(x->size());
        std::copy(values.begin(), values.end(), x->data());
    }
    const ht::attention_options options{.mask = attention_mask::causal, .scale = 0.25f};
    attention::forward<bfloat16>(device, t.forward(options));
    attention::backward<bfloat16>(device, t.backward(options));
    const tensors u(device, 1, 9, 9, 2, 8);
    ht::attention<ht::amp_bf16>(device, t.q, t.k, t.v, u.o, u.logsumexp, options);
    ht::attention_gradients<ht::amp_bf16>(
        device,
        ht::kernel::attention_backward<float>{t.q, t.k, t.v, u.o, u.logsumexp, t.d_o, u.dq, u.dk, u.dv, options});
    const auto same = [](const auto& x, const auto& y) { return std::equal(x.data(), x.data() + x.size(), y.data()); };
    CHECK(same(t.o, u.o));
    CHECK(same(t.logsumexp, u.logsumexp));
    CHECK(same(t.dq, u.dq));
    CHECK(same(t.dk, u.dk));
    CHECK(same(t.dv, u.dv));

    // Without logsumexp, and o the same.
    std::fill_n(u.o.data(), u.o.size(), 0.0f);
    ht::attention<ht::amp_bf16>(device, t.q, t.k, t.v, u.o, {}, options);
    CHECK(same(t.o, u.o));
}

TEST_CASE("the default scale is 1 / sqrt(head_size)") {
    ht::cpu device{{.threads = 1}};
    const tensors t(device, 1, 2, 7, 1, 16), u(device, 1, 2, 7, 1, 16);
    attention::forward<float>(device, t.forward());
    attention::forward<float>(device, u.forward({.scale = 0.25f}));
    for (const int i : {0, 1}) CHECK(t.logsumexp(0, 0, 1, i) == u.logsumexp(0, 0, 1, i));
    // Every score is 16 / 4.
    CHECK(t.logsumexp(0, 0, 1, 0) == 16);
    CHECK(static_cast<double>(t.logsumexp(0, 0, 1, 1)) == doctest::Approx(std::log(7.0)));
}

TEST_CASE("attention refuses shapes that do not fit") {
    ht::cpu device{{.threads = 1}};
    const tensors t(device, 2, 4, 6, 2, 8);
    auto a = t.forward();
    SUBCASE("keys of another width") { a.k = ht::const_view<float, 4>(t.k.data(), {2, 6, 2, 4}); }
    SUBCASE("values at other times") { a.v = ht::const_view<float, 4>(t.v.data(), {2, 5, 2, 8}); }
    SUBCASE("another batch") { a.k = a.v = ht::const_view<float, 4>(t.k.data(), {1, 6, 2, 8}); }
    SUBCASE("an output of another shape") { a.o = ht::view<float, 4>(t.o.data(), {2, 3, 2, 8}); }
    SUBCASE("a head with gaps") { a.q = ht::const_view<float, 4>(t.q.data(), {2, 4, 2, 4}, {64, 16, 8, 2}); }
    SUBCASE("three key heads for two query heads") { a.k = a.v = ht::const_view<float, 4>(t.k.data(), {2, 4, 3, 8}); }
    SUBCASE("no key") { a.k = a.v = ht::const_view<float, 4>(t.k.data(), {2, 0, 2, 8}); }
    SUBCASE("a causal mask over fewer keys than queries") {
        a.k = a.v = ht::const_view<float, 4>(t.k.data(), {2, 3, 2, 8});
        a.options.mask = attention_mask::causal;
    }
    SUBCASE("a head of 257") { a.q = a.k = a.v = ht::const_view<float, 4>(t.q.data(), {1, 1, 1, 257}); }
    SUBCASE("a logsumexp of another shape") { a.logsumexp = ht::view<float, 4>(t.logsumexp.data(), {2, 4, 2, 2}); }
    CHECK_THROWS_AS(attention::forward<float>(device, a), ht::shape_error);
}

TEST_CASE("attention refuses packed sequences that do not fit") {
    ht::cpu device{{.threads = 1}};
    const tensors t(device, 1, 6, 8, 2, 8);
    std::vector<std::int32_t> of_queries{0, 4, 6}, of_keys{0, 5, 8};
    extent longest_queries = 4, longest_keys = 5, sequences = 2;
    ht::const_view<float, 4> k = t.k.view();
    const auto run = [&] {
        auto forward = t.forward();
        auto backward = t.backward();
        const ht::packed_sequences packed{
            {of_queries.data(), {sequences + 1}}, {of_keys.data(), {3}}, longest_queries, longest_keys};
        forward.sequences = backward.sequences = packed;
        forward.k = k;
        CHECK_THROWS_AS(attention::forward<float>(device, forward), ht::shape_error);
        CHECK_THROWS_AS(ht::kernel::attention_math<ht::cpu>::forward<float>(device, forward), ht::shape_error);
        backward.k = k;
        CHECK_THROWS_AS(attention::backward<float>(device, backward), ht::shape_error);
        CHECK_THROWS_AS(ht::kernel::attention_math<ht::cpu>::backward<float>(device, backward), ht::shape_error);
    };
    SUBCASE("offsets that begin after the first row") { of_queries[0] = 1; }
    SUBCASE("offsets that end before the last row") { of_keys[2] = 7; }
    SUBCASE("offsets that end beyond the last row") { of_keys[2] = 9; }
    SUBCASE("descending offsets") { of_queries[1] = 7; }
    SUBCASE("a negative offset") { of_keys[1] = -1; }
    SUBCASE("more queries than the longest") { longest_queries = 3; }
    SUBCASE("more keys than the longest") { longest_keys = 4; }
    SUBCASE("a longest below zero") { longest_keys = -1; }
    SUBCASE("fewer offsets of keys than of queries") { sequences = 1; }
    SUBCASE("no offset") { sequences = -1; }
    SUBCASE("keys of another batch") { k = ht::const_view<float, 4>(t.k.data(), {2, 4, 2, 8}); }
    run();
}

TEST_CASE("packed sequences without rows, or no sequence at all") {
    ht::cpu device{{.threads = 2}};
    const std::vector<std::int32_t> zeros{0, 0, 0}, fives{0, 5, 5};
    const auto run = [&](const tensors& t, const std::vector<std::int32_t>& of_queries,
                         const std::vector<std::int32_t>& of_keys) {
        auto forward = t.forward();
        auto backward = t.backward();
        forward.sequences = backward.sequences = {{of_queries.data(), {3}}, {of_keys.data(), {3}}, 5, 5};
        attention::forward<float>(device, forward);
        attention::backward<float>(device, backward);
    };
    const auto all = [](const auto& tensor, float value) {
        return std::all_of(tensor.data(), tensor.data() + tensor.size(), [&](float x) { return x == value; });
    };
    run(tensors(device, 1, 0, 0, 2, 8), zeros, zeros);
    run(tensors(device, 1, 5, 5, 0, 8), fives, fives);
    const tensors no_query(device, 1, 0, 5, 2, 8), no_key(device, 1, 5, 0, 2, 8);
    run(no_query, zeros, fives);
    CHECK((all(no_query.dk, 0) && all(no_query.dv, 0)));
    run(no_key, fives, zeros);
    CHECK((all(no_key.o, 0) && all(no_key.dq, 0)));
    for (extent i = 0; i < no_key.logsumexp.size(); ++i)
        CHECK(no_key.logsumexp.data()[i] == (i % 2 == 0 ? -3.0e38f : 0.0f));

    // No sequence at all.
    const tensors nobody(device, 1, 0, 0, 2, 8);
    auto forward = nobody.forward();
    forward.sequences = {{zeros.data(), {1}}, {zeros.data(), {1}}, 0, 0};
    CHECK_NOTHROW(attention::forward<float>(device, forward));
}

TEST_CASE("attention refuses an invalid scale") {
    ht::cpu device{{.threads = 1}};
    const tensors t(device, 1, 2, 2, 1, 8);
    for (const float scale : {-1.0f, HUGE_VALF, std::nanf("")}) {
        CHECK_THROWS_AS(attention::forward<float>(device, t.forward({.scale = scale})), ht::argument_error);
        CHECK_THROWS_AS(attention::backward<float>(device, t.backward({.scale = scale})), ht::argument_error);
    }
    auto b = t.backward();
    b.dk = ht::view<float, 4>(t.dk.data(), {1, 1, 1, 8});
    CHECK_THROWS_AS(attention::backward<float>(device, b), ht::shape_error);
}

TEST_CASE("attention of empty tensors") {
    ht::cpu device{{.threads = 1}};
    for (const tensors& t :
         {tensors(device, 0, 3, 3, 2, 8), tensors(device, 2, 0, 0, 2, 8), tensors(device, 2, 3, 3, 0, 8)}) {
        CHECK_NOTHROW(attention::forward<float>(device, t.forward()));
        CHECK_NOTHROW(attention::backward<float>(device, t.backward()));
    }
    // No query: the gradients of the keys are zero.
    const tensors t(device, 1, 0, 5, 2, 8);
    attention::forward<float>(device, t.forward());
    attention::backward<float>(device, t.backward());
    CHECK(std::all_of(t.dk.data(), t.dk.data() + t.dk.size(), [](float x) { return x == 0; }));
    CHECK(std::all_of(t.dv.data(), t.dv.data() + t.dv.size(), [](float x) { return x == 0; }));
}

std::size_t told(ht::cpu& device, const ht::kernel::attention_forward<float>& a) {
    return ht::workspace_bytes(device, [&](ht::cpu& d) { attention::forward<bfloat16>(d, a); });
}
std::size_t told(ht::cpu& device, const ht::kernel::attention_backward<float>& a) {
    return ht::workspace_bytes(device, [&](ht::cpu& d) { attention::backward<bfloat16>(d, a); });
}

TEST_CASE("scratch memory is as stated, and allocated once") {
    for (const extent heads : {1, 9}) {
        ht::cpu device{{.threads = 2}};
        const tensors t(device, 1, 300, 300, heads, 24);
        ht::memory_usage& usage = device.memory().usage();
        const auto forward = t.forward({.mask = attention_mask::causal});
        const auto backward = t.backward({.mask = attention_mask::causal});
        attention::forward<bfloat16>(device, forward);
        CHECK(usage.peak(ht::memory_kind::workspace) == told(device, forward));
        // Blocks of scratch memory that were too small for the first backward pass are replaced by a larger one.
        for (int warm_up = 0; warm_up < 2; ++warm_up) attention::backward<bfloat16>(device, backward);
        usage.reset_peaks();
        const auto allocations = usage.allocations();
        attention::forward<bfloat16>(device, forward);
        attention::backward<bfloat16>(device, backward);
        CHECK(usage.allocations() == allocations);
        CHECK(usage.peak(ht::memory_kind::workspace) == told(device, backward));
    }
}

TEST_CASE("scratch memory for packed sequences is as stated, and follows the longest") {
    // Sequences in several parts, and one in one part: all have separate partial sums of dq.
    const std::vector<std::int32_t> offsets{0, 20, 320, 600};
    const auto pack = [&](auto a, extent longest) {
        a.sequences = ht::packed_sequences::of({offsets.data(), {4}}, longest);
        return a;
    };
    for (const extent heads : {1, 9}) {
        ht::cpu device{{.threads = 2}};
        const tensors t(device, 1, 600, 600, heads, 24);
        ht::memory_usage& usage = device.memory().usage();
        const auto forward = pack(t.forward({.mask = attention_mask::causal}), 300);
        const auto backward = pack(t.backward({.mask = attention_mask::causal}), 300);
        attention::forward<bfloat16>(device, forward);
        CHECK(usage.peak(ht::memory_kind::workspace) == told(device, forward));
        for (int warm_up = 0; warm_up < 2; ++warm_up) attention::backward<bfloat16>(device, backward);
        usage.reset_peaks();
        attention::backward<bfloat16>(device, backward);
        CHECK(usage.peak(ht::memory_kind::workspace) == told(device, backward));
        CHECK(told(device, forward) <
              told(device, pack(forward, 600)));
        CHECK(told(device, pack(forward, extent{1} << 40)) ==
              told(device, pack(forward, 600)));
    }
}

TEST_CASE("scratch memory is linear in time, whatever the size of the score matrix") {
    ht::cpu device{{.threads = 2}};
    for (const extent heads : {1, 3, 16}) {
        const auto bytes = [&](extent time) {
            // Nothing reads these.
            float* const nowhere = reinterpret_cast<float*>(64);
            const ht::view<float, 4> x(nowhere, {1, time, heads, 64});
            const ht::view<float, 4> sums(nowhere, {1, heads, time, 2});
            return told(device, ht::kernel::attention_forward<float>{x, x, x, x, sums, {}}) +
                   told(device, ht::kernel::attention_backward<float>{x, x, x, x, sums, x, x, x, x, {}});
        };
        const std::size_t steps[] = {bytes(1 << 14) - bytes(1 << 13), bytes(1 << 15) - bytes(1 << 14),
                                     bytes(1 << 20) - bytes(1 << 19)};
        CHECK(steps[1] <= 2 * steps[0] + 4096);
        CHECK(steps[2] <= 64 * steps[0] + 65536);
    }
}

}  // namespace kernel_attention_interface_tests
