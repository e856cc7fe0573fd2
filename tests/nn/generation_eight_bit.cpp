// SPDX-License-Identifier: MIT
/// \file
/// Attention with a key-value cache in eight bits on the CPU: the bits of attention over the rounded keys and values, whatever
/// the division into steps; the error of logits within a bound computed from the scales. generation.cpp has models with it.
#include <cmath>
#include <vector>

#include <halftone/kernel.hpp>
#include <halftone/kernel/cache_heads/eight_bit/reference.hpp>

#include "nn/generation_checks.hpp"

namespace nn_generation_eight_bit_tests {

namespace ht = halftone;
using namespace generation_test;

/// Rows of queries, keys and values, (1, tokens, (heads + 2 kv_heads) size).
template <class T>
struct projected {
    extent tokens, heads, kv_heads, size;
    std::vector<T> values;

    projected(extent n, extent of_queries, extent of_keys, extent head_size)
        : tokens(n), heads(of_queries), kv_heads(of_keys), size(head_size),
          values(support::random(9).normals<T>(n * (of_queries + 2 * of_keys) * head_size)) {}
    extent width() const { return (heads + 2 * kv_heads) * size; }
    ht::const_view<T, 3> view() const { return {values.data(), {1, tokens, width()}}; }
    /// Element d of vector number `head` of a token: queries, then keys, then values.
    T& at(extent token, extent head, extent d) {
        return values[static_cast<std::size_t>(token * width() + head * size + d)];
    }
    T at(extent token, extent head, extent d) const { return const_cast<projected&>(*this).at(token, head, d); }

    /// The same with keys and values rounded by the definition.
    projected rounded() const {
        projected r = *this;
        const ht::shape<3> s{2 * kv_heads, tokens, size};
        std::vector<std::int8_t> codes(static_cast<std::size_t>(s.size()));
        std::vector<float> scales(static_cast<std::size_t>(s[0] * s[1]));
        std::vector<T> read(codes.size());
        std::vector<std::int32_t> slots;
        for (extent t = 0; t < tokens; ++t) slots.push_back(static_cast<std::int32_t>(t));
        const auto last = static_cast<std::int32_t>(tokens);
        const std::vector<std::int32_t> offsets{0, last, last};
        const ht::view<std::int8_t, 3> of_codes(codes.data(), s);
        const ht::view<float, 2> of_scales(scales.data(), {s[0], s[1]});
        const ht::const_view<std::int32_t, 1> of_offsets(offsets.data(), {3});
        ht::reference::quantize_heads(ht::kernel::quantize_heads_arguments<T>{
            {values.data(), {tokens, width()}}, heads * size, {slots.data(), {tokens}}, of_codes, of_scales});
        ht::reference::dequantize_heads(ht::kernel::dequantize_heads_arguments<T>{
            of_codes, of_scales, of_offsets, of_offsets, tokens, {read.data(), s}});
        for (extent t = 0; t < tokens; ++t) {
            for (extent h = 0; h < 2 * kv_heads; ++h) {
                for (extent d = 0; d < size; ++d)
                    r.at(t, heads + h, d) = read[static_cast<std::size_t>((h * tokens + t) * size + d)];
            }
        }
        return r;
    }
};

constexpr ht::attention_options causal{.mask = ht::attention_mask::causal};

/// o of all tokens, at once and without a cache.
template <class T>
std::vector<T> attended(ht::cpu& device, const projected<T>& x) {
    ht::inference eval{device};
    const auto o = ht::to_host(
        device, ht::self_attention<ht::roles<T, T, T>>(eval, eval.to_device(x.view()), {x.heads, x.kv_heads}, causal));
    return {o.begin(), o.end()};
}
/// By steps of `each` tokens with a cache in eight bits.
template <class T>
std::vector<T> attended_in_steps(ht::cpu& device, const projected<T>& x, extent each) {
    ht::inference eval{device};
    std::vector<T> all;
    ht::key_value_cache cache{device, 1, x.tokens, ht::cache_type::int8};
    for (extent t = 0, count; t < x.tokens; t += count) {
        count = std::min(each, x.tokens - t);
        const ht::const_view<T, 3> rows(x.values.data() + t * x.width(), {1, count, x.width()});
        const ids offsets{0, static_cast<std::int32_t>(count)};
        const auto at = ht::documents_to_device(eval, ht::packed{{offsets.data(), {2}}, &cache}, ht::shape<2>{1, count}, x.tokens);
        const auto o = ht::to_host(device, ht::self_attention<ht::roles<T, T, T>>(eval, eval.to_device(rows),
                                                                                  {x.heads, x.kv_heads}, causal, at.sequences));
        all.insert(all.end(), o.begin(), o.end());
    }
    return all;
}

template <class T>
void attends_to_rounded(extent tokens, extent heads, extent kv_heads, extent size) {
    ht::cpu device{{.threads = 2}};
    const projected<T> x(tokens, heads, kv_heads, size);
    const auto want = attended(device, x.rounded());
    CHECK(!same_bits(attended(device, x), want));
    for (const extent each : {extent{1}, extent{7}, tokens}) CHECK(same_bits(attended_in_steps(device, x, each), want));
}

TEST_CASE("key_value_cache in eight bits: the bits of attention over the rounded keys and values, without a cache") {
    attends_to_rounded<ht::bfloat16>(40, 4, 2, 16);
    attends_to_rounded<ht::float16>(23, 3, 3, 7);
    attends_to_rounded<float>(30, 6, 2, 33);
    attends_to_rounded<double>(12, 2, 1, 5);
}

/// Attention of one query in double, and how far eight bits may move its result: with keys off by e_j each, scores are off by
/// at most D = max_j |q| e_j / sqrt(size), weights by a factor of exp(2 D), and values by half a scale each.
struct bounded_result {
    std::vector<double> o, bound;  // (size)

    bounded_result(const projected<float>& x, extent query, extent head) {
        const extent key_head = x.heads + head / (x.heads / x.kv_heads), value_head = key_head + x.kv_heads;
        const double factor = 1 / std::sqrt(static_cast<double>(x.size));
        const auto half_scale = [&](extent t, extent h) {
            double amax = 0;
            for (extent d = 0; d < x.size; ++d) amax = std::max(amax, std::fabs(double{x.at(t, h, d)}));
            return amax / 127 * (0.5 + 256 * 0x1p-24);
        };
        std::vector<double> scores;
        double largest = 0, moved = 0, value_error = 0, total = 0, magnitude = 0;
        for (extent d = 0; d < x.size; ++d) magnitude += std::fabs(double{x.at(query, head, d)});
        for (extent j = 0; j <= query; ++j) {
            double s = 0;
            for (extent d = 0; d < x.size; ++d) s += double{x.at(query, head, d)} * double{x.at(j, key_head, d)};
            scores.push_back(s * factor);
            largest = std::max(largest, std::fabs(s * factor));
            moved = std::max(moved, magnitude * half_scale(j, key_head) * factor);
            value_error = std::max(value_error, half_scale(j, value_head));
        }
        for (double& s : scores) total += s = std::exp(s);
        // Roundings of floats: of the scores, of their exponentials, and of the sums.
        const double roundings = (static_cast<double>(query + x.size) * (1 + largest) + 16) * 0x1p-23;
        for (extent d = 0; d < x.size; ++d) {
            double sum = 0, absolute = 0;
            for (extent j = 0; j <= query; ++j) {
                const double weight = scores[static_cast<std::size_t>(j)] / total, v = x.at(j, value_head, d);
                sum += weight * v, absolute += weight * std::fabs(v);
            }
            o.push_back(sum);
            bound.push_back((std::exp(2 * moved) - 1 + roundings) * absolute + value_error);
        }
    }
};

TEST_CASE("key_value_cache in eight bits: the error of logits is within the bound that follows from the scales") {
    ht::cpu device{{.threads = 2}};
    const projected<float> x(60, 4, 2, 32);
    const extent width = x.heads * x.size, classes = 50;
    const auto head = support::random(4).normals<double>(classes * width, 0.2);
    const auto got = attended_in_steps(device, x, 1);
    double largest_share = 0;
    int beyond = 0;
    for (extent t = 0; t < x.tokens; ++t) {
        std::vector<double> o, bounds;
        for (extent h = 0; h < x.heads; ++h) {
            const bounded_result one(x, t, h);
            o.insert(o.end(), one.o.begin(), one.o.end());
            bounds.insert(bounds.end(), one.bound.begin(), one.bound.end());
        }
        for (extent c = 0; c < classes; ++c) {
            double error = 0, bound = 0;
            for (extent d = 0; d < width; ++d) {
                const double w = head[static_cast<std::size_t>(c * width + d)];
                error += w * (double{got[static_cast<std::size_t>(t * width + d)]} - o[static_cast<std::size_t>(d)]);
                bound += std::fabs(w) * bounds[static_cast<std::size_t>(d)];
            }
            beyond += std::fabs(error) > bound ? 1 : 0;
            largest_share = std::max(largest_share, std::fabs(error) / bound);
        }
    }
    CHECK(beyond == 0);
    CHECK(largest_share > 0.02);  // errors of eight bits, and not only of floats: those are 10^-5 of them
}

}  // namespace nn_generation_eight_bit_tests
