// SPDX-License-Identifier: MIT
/// \file
/// The partition of rows: every row is in one piece, which depends on the shape alone, and pieces are of bounded size.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/common/rows/rows.hpp>

#include "support/each_set.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace kernel_rows_tests {

namespace ht = halftone;
using ht::extent;
using ht::kernel::row_partition;

bool covers(const row_partition& cut) {
    extent next = 0;
    for (extent piece = 0; piece < cut.count; ++piece) {
        if (cut.begin(piece) != next || cut.rows_of(piece) < 1 || cut.rows_of(piece) > cut.each) return false;
        next += cut.rows_of(piece);
    }
    return next == cut.rows;
}

TEST_CASE("partition_rows: every row is in one piece") {
    for (const extent rows : {0, 1, 2, 15, 16, 17, 63, 64, 65, 1000, 8192}) {
        for (const extent width : {0, 1, 64, 768, 50257, 1'000'000}) {
            CAPTURE(rows);
            CAPTURE(width);
            const row_partition cut = ht::kernel::partition_rows(rows, width);
            CHECK(covers(cut));
            CHECK((cut.each == 1 || cut.each * width <= ht::kernel::piece_elements));

            const row_partition sums = ht::kernel::partition_rows_for_sums(rows, width);
            CHECK(covers(sums));
            CHECK(sums.count <= 64);
            CHECK(sums.each >= 16);
        }
    }
}

TEST_CASE("partial_stride: no two partial sums share a cache line") {
    for (const extent width : {1, 15, 16, 17, 768}) {
        const extent stride = ht::kernel::partial_stride(width);
        CHECK(stride >= width);
        CHECK(stride % 16 == 0);
        CHECK(stride < width + 16);
    }
}

TEST_CASE("add_partials: sums in the order of the pieces, into any element type") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        support::random data(1);
        for (const extent width : {1, 7, 33, 600, 1100}) {
            CAPTURE(width);
            constexpr extent pieces = 5;
            const extent stride = ht::kernel::partial_stride(width);
            const auto partials = data.normals<float>(pieces * stride);
            const support::guarded<float> out(width), added(data.normals<float>(width));
            const support::guarded<ht::bfloat16> narrow(width);
            const std::vector<float> before(added.data(), added.data() + width);
            ht::kernel::add_partials(device, pieces, partials.data(), stride, width, out.data(),
                                     ht::write_mode::overwrite);
            ht::kernel::add_partials(device, pieces, partials.data(), stride, width, added.data(), ht::write_mode::add);
            ht::kernel::add_partials(device, pieces, partials.data(), stride, width, narrow.data(),
                                     ht::write_mode::overwrite);
            int wrong = 0;
            for (extent j = 0; j < width; ++j) {
                float sum = 0;
                for (extent piece = 0; piece < pieces; ++piece)
                    sum += partials[static_cast<std::size_t>(piece * stride + j)];
                wrong += out[j] == sum ? 0 : 1;
                wrong += added[j] == before[static_cast<std::size_t>(j)] + sum ? 0 : 1;
                wrong += narrow[j] == ht::bfloat16(sum) ? 0 : 1;
            }
            CHECK(wrong == 0);
            CHECK(out.intact());
            CHECK(added.intact());
            CHECK(narrow.intact());
        }
    });
}

}  // namespace kernel_rows_tests
