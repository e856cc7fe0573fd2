// SPDX-License-Identifier: MIT
/// \file
/// Short rows, four of which are processed together: a row has the same bits whichever rows are in its group.
#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/norm/cpu.hpp>
#include <halftone/kernel/softmax/cpu.hpp>
#include <halftone/number.hpp>

#include "support/each_set.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace kernel_rows_side_by_side_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using support::guarded;

constexpr extent rows = 23;

template <class T>
struct short_rows {
    extent width;
    support::random data{3};
    guarded<T> x{data.normals<T>(rows * width)};
    guarded<float> gain{data.normals<float>(width)}, bias{data.normals<float>(width)};
    std::vector<std::int32_t> targets = data.indices(rows, static_cast<int>(width));

    struct results {
        explicit results(extent width) : softmax(rows * width), layer_norm(rows * width), rms_norm(rows * width) {}
        guarded<T> softmax, layer_norm, rms_norm;
        guarded<float> mean{rows}, rstd{rows}, rms{rows}, losses{rows}, maximum{rows}, sum{rows};

        bool same_bits(const results& o) const {
            return softmax.same_bits(o.softmax) && layer_norm.same_bits(o.layer_norm) && rms_norm.same_bits(o.rms_norm) &&
                   mean.same_bits(o.mean) && rstd.same_bits(o.rstd) && rms.same_bits(o.rms) &&
                   losses.same_bits(o.losses) && maximum.same_bits(o.maximum) && sum.same_bits(o.sum);
        }
        bool intact() const {
            return softmax.intact() && layer_norm.intact() && rms_norm.intact() && mean.intact() && rstd.intact() &&
                   rms.intact() && losses.intact() && maximum.intact() && sum.intact();
        }
    };

    void run(ht::cpu& device, extent first, extent count, const results& r) const {
        const ht::shape<1> here{count};
        const ht::const_view<T, 2> from(x.data() + first * width, {count, width});
        const auto to = [&](const guarded<T>& all) {
            return ht::view<T, 2>(all.data() + first * width, {count, width});
        };
        const auto numbers = [&](const guarded<float>& all) { return ht::view<float, 1>(all.data() + first, here); };
        ht::kernel::softmax<ht::cpu>::forward<T, T>(device, {.x = from, .y = to(r.softmax), .scale = -0.7f});
        ht::kernel::layer_norm<ht::cpu>::forward<T, float, T>(
            device, {.x = from, .gain = gain.const_view(), .bias = bias.const_view(), .y = to(r.layer_norm),
                     .mean = numbers(r.mean), .rstd = numbers(r.rstd)});
        ht::kernel::rms_norm<ht::cpu>::forward<T, float, T>(
            device, {.x = from, .gain = gain.const_view(), .y = to(r.rms_norm), .rstd = numbers(r.rms)});
        ht::kernel::cross_entropy<ht::cpu>::forward<T>(
            device, {.logits = from, .targets = {targets.data() + first, here}, .losses = numbers(r.losses),
                     .maximum = numbers(r.maximum), .sum = numbers(r.sum)});
    }
};

TEST_CASE_TEMPLATE("row groups: the bits of a row do not depend on the others", T, float, bfloat16, ht::float16) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const extent width : {1, 3, 10, 16, 17, 63, 64, 100, 250, 256, 257}) {
            CAPTURE(width);
            short_rows<T> some{width};
            some.targets[2] = some.targets[21] = -100;
            const typename short_rows<T>::results whole(width), in_parts(width);
            some.run(device, 0, rows, whole);
            for (extent first = 0, count = 1; first < rows; first += count++)
                some.run(device, first, std::min(count, rows - first), in_parts);
            CHECK(whole.same_bits(in_parts));
            CHECK(whole.intact());
            CHECK(whole.losses[2] == 0.0f);
            CHECK(whole.losses[21] == 0.0f);
            CHECK(whole.maximum[20] != 0.0f);
            CHECK(whole.sum[20] >= 1.0f);
        }
    });
}

TEST_CASE("row groups: in place, for any number of rows") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        support::random data(5);
        for (const extent count : {1, 2, 3, 4, 5, 7, 8, 30, 31}) {
            const ht::shape<2> shape{count, 50};
            const guarded<bfloat16> x(data.normals<bfloat16>(count * 50)), y(count * 50);
            for (const guarded<bfloat16>* to : {&y, &x}) {
                ht::kernel::softmax<ht::cpu>::forward<bfloat16, bfloat16>(
                    device, {.x = x.const_view(shape), .y = to->view(shape)});
            }
            CHECK(x.same_bits(y));
            CHECK(x.intact());
        }
    });
}

}  // namespace kernel_rows_side_by_side_tests
