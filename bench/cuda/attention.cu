// SPDX-License-Identifier: MIT
/// \file
/// Attention, 16,384 tokens of 2,048 channels at every length. Operations as they are counted everywhere: two products of
/// queries x keys x head size forward, five backward, half of it under a causal mask.
#include "measure.cuh"

namespace bench {

namespace {

using bf16 = ht::bfloat16;

void bench_case(const settings& s, const peaks& p, listener& to, ht::extent length, ht::extent head_size, ht::attention_mask mask) {
    ht::cuda gpu;
    using attention = ht::kernel::attention<ht::cuda>;
    const ht::extent tokens = s.quick ? 2048 : 16384, channels = s.quick ? 512 : 2048, batch = tokens / length, heads = channels / head_size;
    const ht::shape<4> shape{batch, length, heads, head_size};
    const auto tensor = [&](std::uint32_t seed) { return random_tensor<bf16, 4>(gpu, shape, seed); };
    const auto q = tensor(1), k = tensor(2), v = tensor(3), o = tensor(4), d_o = tensor(5), dq = tensor(6), dk = tensor(7), dv = tensor(8);
    const ht::tensor<float, 3> logsumexp(gpu.memory(), {batch, heads, length});
    const double pairs = static_cast<double>(batch * heads) * static_cast<double>(length) * static_cast<double>(length) / (mask == ht::attention_mask::causal ? 2 : 1);
    const std::string text = std::to_string(batch) + " x " + std::to_string(length) + ", " + std::to_string(heads) + " heads of " + std::to_string(head_size) +
                             (mask == ht::attention_mask::causal ? ", causal" : ", full");
    const ht::attention_options options{.mask = mask};
    timing t = measure(gpu, s, 1, [&](int) {
        attention::forward<bf16>(gpu, ht::kernel::attention_forward<bf16>{q.const_view(), k.const_view(), v.const_view(), o.view(), logsumexp.view(), options});
    });
    to.on_row(make_row("attention forward", text, "bf16", t, 4 * pairs * static_cast<double>(head_size), p.bf16_flops, true));
    t = measure(gpu, s, 1, [&](int) {
        attention::backward<bf16>(gpu, ht::kernel::attention_backward<bf16>{q.const_view(), k.const_view(), v.const_view(), o.const_view(), logsumexp.const_view(), d_o.const_view(), dq.view(), dk.view(),
                                                                            dv.view(), options});
    });
    to.on_row(make_row("attention backward", text, "bf16", t, 10 * pairs * static_cast<double>(head_size), p.bf16_flops, true));
}

}  // namespace

void bench_attention(const settings& s, const peaks& p, listener& to) {
    if (!is_wanted(s, "attention")) return;
    for (const ht::extent head_size : {64, 128}) {
        for (const auto mask : {ht::attention_mask::causal, ht::attention_mask::full}) {
            if (s.quick) {
                bench_case(s, p, to, 1024, head_size, mask);
                continue;
            }
            for (const ht::extent length : {1024, 4096, 16384}) bench_case(s, p, to, length, head_size, mask);
        }
    }
}

}  // namespace bench
