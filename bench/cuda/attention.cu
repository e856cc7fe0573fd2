// SPDX-License-Identifier: MIT
/// \file
/// Attention for 16,384 tokens of 2,048 channels at several lengths, and packed sequences of various lengths.
/// Operations are counted as usual: two products of queries x keys x head size forward, five backward, half of that
/// under a causal mask.
// compile: with --full, at most 60 kernels.
#include "measure.cuh"

namespace bench {

namespace {

using bf16 = ht::bfloat16;

/// The same as in bench/peers/torch_gpu.py.
constexpr std::int32_t packed_lengths[] = {4096, 1024, 2048, 512, 3072, 256, 1536, 3840};

struct attention_case {
    ht::shape<4> shape;  ///< of all operands
    ht::attention_mask mask;
    double pairs;                ///< of queries and keys, over all heads
    std::string name;            ///< "16 x 1024", "8 packed of 256 to 4096"
    ht::packed_sequences packs;  ///< or empty

    std::string text() const {
        return name + ", " + std::to_string(shape[2]) + " heads of " + std::to_string(shape[3]) +
               (mask == ht::attention_mask::causal ? ", causal" : ", full");
    }
};

void bench_case(ht::cuda& gpu, const settings& s, const peaks& p, listener& to, const attention_case& c) {
    using attention = ht::kernel::attention<ht::cuda>;
    const auto tensor = [&](std::uint32_t seed) { return random_tensor<bf16, 4>(gpu, c.shape, seed); };
    const auto q = tensor(1), k = tensor(2), v = tensor(3), o = tensor(4), d_o = tensor(5), dq = tensor(6),
               dk = tensor(7), dv = tensor(8);
    const ht::tensor<float, 4> logsumexp(gpu.memory(), {c.shape[0], c.shape[2], c.shape[1], 2});
    const double products = c.pairs * static_cast<double>(c.shape[3]) / (c.mask == ht::attention_mask::causal ? 2 : 1);
    const ht::kernel::attention_forward<bf16> forward{q.const_view(),   k.const_view(),   v.const_view(), o.view(),
                                                      logsumexp.view(), {.mask = c.mask}, c.packs};
    const ht::kernel::attention_backward<bf16> backward{
        q.const_view(),   k.const_view(), v.const_view(), o.const_view(), logsumexp.const_view(),
        d_o.const_view(), dq.view(),      dk.view(),      dv.view(),      {.mask = c.mask},
        c.packs};
    timing t = measure(gpu, s, 1, [&](int) { attention::forward<bf16>(gpu, forward); });
    to.on_row(make_row("attention forward", c.text(), "bf16", t, 4 * products, p.bf16_flops, true));
    t = measure(gpu, s, 1, [&](int) { attention::backward<bf16>(gpu, backward); });
    to.on_row(make_row("attention backward", c.text(), "bf16", t, 10 * products, p.bf16_flops, true));
}

void bench_length(const settings& s, const peaks& p, listener& to, ht::extent length, ht::extent head_size,
                  ht::attention_mask mask) {
    ht::cuda gpu;
    const ht::extent tokens = s.pick(16384, 2048, 128), batch = tokens / length,
                     heads = s.pick(2048, 512, 256) / head_size;
    const double pairs = static_cast<double>(batch * heads) * static_cast<double>(length) * static_cast<double>(length);
    bench_case(
        gpu, s, p, to,
        {{batch, length, heads, head_size}, mask, pairs, std::to_string(batch) + " x " + std::to_string(length), {}});
}

void bench_packed(const settings& s, const peaks& p, listener& to, ht::extent head_size) {
    ht::cuda gpu;
    constexpr ht::extent count = static_cast<ht::extent>(std::size(packed_lengths));
    const ht::extent heads = s.pick(2048, 512, 256) / head_size, shorter = s.pick(1, 1, 64);
    std::int32_t offsets[count + 1] = {};
    double pairs = 0;
    for (ht::extent i = 0; i < count; ++i) {
        const std::int32_t length = packed_lengths[i] / static_cast<std::int32_t>(shorter);
        offsets[i + 1] = offsets[i] + length;
        pairs += static_cast<double>(heads) * length * length;
    }
    const ht::tensor<std::int32_t, 1> on_device(gpu.memory(), {count + 1});
    gpu.memory().write(on_device.data(), offsets, sizeof offsets);
    const ht::extent longest = *std::max_element(std::begin(packed_lengths), std::end(packed_lengths)) / shorter;
    const ht::extent shortest = *std::min_element(std::begin(packed_lengths), std::end(packed_lengths)) / shorter;
    bench_case(gpu, s, p, to,
               {{1, offsets[count], heads, head_size}, ht::attention_mask::causal, pairs,
                std::to_string(count) + " packed of " + std::to_string(shortest) + " to " + std::to_string(longest),
                {on_device.const_view(), on_device.const_view(), longest, longest}});
}

}  // namespace

void bench_attention(const settings& s, const peaks& p, listener& to) {
    if (!is_wanted(s, "attention")) return;
    if (s.is_once()) return bench_length(s, p, to, 4096, 128, ht::attention_mask::causal);
    if (s.is_thin()) {
        for (const ht::extent head_size : {64, 128}) {
            for (const ht::extent length : {1024, 16384}) {
                bench_length(s, p, to, length, head_size, ht::attention_mask::causal);
                if (length == 16384) bench_length(s, p, to, length, head_size, ht::attention_mask::full);
            }
            bench_packed(s, p, to, head_size);
        }
        return;
    }
    for (const ht::extent head_size : {64, 96, 128, 256}) {
        const bool usual = head_size == 64 || head_size == 128;
        for (const auto mask : {ht::attention_mask::causal, ht::attention_mask::full}) {
            if (!s.is_all()) {
                bench_length(s, p, to, s.is_tiny() ? 64 : 1024, head_size, mask);
                continue;
            }
            for (const ht::extent length : {1024, 2048, 4096, 8192, 16384}) {
                if (usual || length == 1024 || length == 4096 || length == 16384)
                    bench_length(s, p, to, length, head_size, mask);
            }
        }
        if (usual) bench_packed(s, p, to, head_size);
    }
}

}  // namespace bench
