// SPDX-License-Identifier: MIT
/// \file
/// Sums of several ranks: the bits are those of the pairwise tree of the ranks' numbers, for every type that travels and every
/// type of the values, however the bytes are delivered; sums of whole numbers do not depend on the number of ranks.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/number.hpp>
#include <halftone/ranks/reduce.hpp>
#include <halftone/ranks/threads.hpp>

namespace ranks_reduce_tests {

namespace ht = halftone;

constexpr ht::delivery every_delivery[] = {ht::delivery::prompt, ht::delivery::late, ht::delivery::halves,
                                           ht::delivery::shuffled};

/// Values of very different magnitudes, so that another order of a sum has other bits.
template <class T>
T value_of(int rank, int i) {
    const std::uint32_t h = static_cast<std::uint32_t>(rank * 7919 + i * 104'729 + 12'345) * 2'654'435'761u;
    const double sign = (h & 1) != 0 ? -1 : 1, scale = std::ldexp(1.0, static_cast<int>(h >> 4 & 7) - 3);
    const double x = sign * scale * (1 + static_cast<double>(h >> 8) / 16'777'216.0);
    return static_cast<T>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(x));
}
/// The definition: the sum of the first half of the ranks and of the others, the first half being the largest power of two.
template <class Wide>
Wide tree(const std::vector<Wide>& x, std::size_t begin, std::size_t end) {
    if (end - begin == 1) return x[begin];
    std::size_t half = 1;
    while (2 * half < end - begin) half *= 2;
    return tree(x, begin, begin + half) + tree(x, begin + half, end);
}
template <class Wire, class T>
T expected(int ranks, int i) {
    using wide = std::conditional_t<std::is_same_v<Wire, double> || std::is_same_v<T, double>, double, float>;
    std::vector<wide> all;
    for (int rank = 0; rank < ranks; ++rank)
        all.push_back(static_cast<wide>(static_cast<Wire>(static_cast<wide>(value_of<T>(rank, i)))));
    return static_cast<T>(static_cast<wide>(static_cast<Wire>(tree(all, 0, all.size()))));
}
template <class T>
bool same_bits(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class Wire, class T>
void is_the_tree(int n, ht::delivery delivery, int piece) {
    std::mutex mutex;
    int wrong = 0;
    ht::run_ranks(
        n,
        [&](ht::communicator& comm) {
            ht::cpu device{{.threads = 1}};
            if ((comm.rank() + piece) % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
            const int count = piece * n, rest = n > 1 ? 1 : 0;  // all_reduce: a number that is no multiple
            std::vector<T> values(static_cast<std::size_t>(count)), mine(static_cast<std::size_t>(piece));
            for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = value_of<T>(comm.rank(), i);
            std::vector<T> all(values.begin(), values.end() - rest), even = values;
            ht::reduce_scatter<Wire>(device, comm, "scattered", std::span(values), std::span(mine));
            ht::all_reduce<Wire>(device, comm, "all", std::span(all));
            ht::all_reduce<Wire>(device, comm, "even", std::span(even));
            const std::lock_guard lock(mutex);
            for (int i = 0; i < piece; ++i)
                wrong +=
                    same_bits(mine[static_cast<std::size_t>(i)], expected<Wire, T>(n, comm.rank() * piece + i)) ? 0 : 1;
            for (int i = 0; i < count; ++i) {
                wrong += same_bits(even[static_cast<std::size_t>(i)], expected<Wire, T>(n, i)) ? 0 : 1;
                if (i < count - rest)
                    wrong += same_bits(all[static_cast<std::size_t>(i)], expected<Wire, T>(n, i)) ? 0 : 1;
                // What was given is as it was.
                wrong += same_bits(values[static_cast<std::size_t>(i)], value_of<T>(comm.rank(), i)) ? 0 : 1;
            }
        },
        {.delivery = delivery, .seed = static_cast<std::uint64_t>(piece)});
    CHECK(wrong == 0);
}

TEST_CASE("reduce_scatter, all_reduce: the pairwise tree to the bit, however the bytes are delivered") {
    for (const ht::delivery delivery : every_delivery) {
        for (const int n : {1, 2, 3, 4, 7}) {
            CAPTURE(n);
            CAPTURE(static_cast<int>(delivery));
            is_the_tree<float, float>(n, delivery, 37);
            is_the_tree<ht::bfloat16, float>(n, delivery, 37);
            is_the_tree<ht::bfloat16, ht::bfloat16>(n, delivery, 1);
        }
    }
    is_the_tree<float, float>(13, ht::delivery::shuffled, 3);
    is_the_tree<float, float>(4, ht::delivery::prompt, 20'000);
}

TEST_CASE("reduce_scatter, all_reduce: types of the values, and types that travel") {
    for (const int n : {1, 3, 4}) {
        CAPTURE(n);
        const auto of = [n]<class Wire, class T>(Wire, T) { is_the_tree<Wire, T>(n, ht::delivery::late, 19); };
        of(ht::float16{}, float{}), of(ht::float8_e5m2{}, float{}), of(double{}, float{});
        of(double{}, double{}), of(float{}, double{}), of(ht::bfloat16{}, double{});
        of(float{}, ht::float16{}), of(ht::float16{}, ht::float16{}), of(float{}, ht::bfloat16{}),
            of(ht::float16{}, ht::bfloat16{});
    }
}

TEST_CASE("reduce_scatter: values whose tree differs from the sum in order") {
    // In order: ((1 + 2^-24) + 2^-24) + 2^-24 = 1 in float; the tree has 2^-23 of the last two.
    std::vector<float> sums(4, -1);
    ht::run_ranks(4, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        const float small = std::ldexp(1.0f, -24);
        std::vector<float> values(4, comm.rank() == 0 ? 1.0f : small), mine(1);
        ht::reduce_scatter<float>(device, comm, "values", std::span(values), std::span(mine));
        sums[static_cast<std::size_t>(comm.rank())] = mine[0];
    });
    for (const float sum : sums) CHECK(sum == 1 + std::ldexp(1.0f, -23));
}

TEST_CASE("all_reduce: whole numbers have one sum, whatever the number of ranks and the type that travels") {
    // 12 shards of gradients, divided among the ranks: 1, 2, 3, 4, 6 and 12 of them.
    constexpr int shards = 12, count = 101;
    const auto shard = [](int s, int i) { return static_cast<float>((s * 31 + i * 17) % 9 - 4); };
    std::vector<std::vector<float>> results;
    for (const int n : {1, 2, 3, 4, 6, 12}) {
        const auto run = [&]<class Wire>(Wire) {
            std::vector<std::vector<float>> of(static_cast<std::size_t>(n));
            ht::run_ranks(n, [&](ht::communicator& comm) {
                ht::cpu device{{.threads = 1}};
                std::vector<float> sum(count);
                for (int s = comm.rank(); s < shards; s += n)
                    for (int i = 0; i < count; ++i) sum[static_cast<std::size_t>(i)] += shard(s, i);
                ht::all_reduce<Wire>(device, comm, "gradients", std::span(sum));
                of[static_cast<std::size_t>(comm.rank())] = sum;
            });
            for (const auto& each : of) CHECK(each == of[0]);
            results.push_back(of[0]);
        };
        run(float{}), run(ht::bfloat16{}), run(ht::float16{});
    }
    for (const auto& each : results) CHECK(each == results[0]);
}

TEST_CASE("begin_reduce_scatter: several at once, in memory that is given; a wait that is missing reads NaN") {
    int wrong = 0;
    bool is_nan = false;
    ht::run_ranks(3,
                  [&](ht::communicator& comm) {
                      ht::cpu device{{.threads = 1}};
                      constexpr int piece = 8, buckets = 4;
                      std::vector<std::vector<float>> values(buckets, std::vector<float>(3 * piece)),
                          mine(buckets, std::vector<float>(piece));
                      const std::size_t bytes = ht::reduction_bytes<ht::bfloat16>(comm, 3 * piece);
                      std::vector<std::byte> memory(buckets * bytes);
                      const std::size_t before = device.memory().usage().held();
                      {
                          std::vector<ht::pending_sum<ht::bfloat16, float, ht::cpu>> sums;
                          for (std::size_t b = 0; b < buckets; ++b) {
                              std::fill(values[b].begin(), values[b].end(),
                                        static_cast<float>(comm.rank() + 1) * static_cast<float>(b + 1));
                              sums.push_back(ht::begin_reduce_scatter<ht::bfloat16>(
                                  device, comm, "bucket", std::span(values[b]), std::span(mine[b]),
                                  std::span(memory).subspan(b * bytes, bytes)));
                              // Rounded values travel, so these may be written.
                              std::fill(values[b].begin(), values[b].end(), -7.0f);
                          }
                          for (std::size_t b = buckets; b-- > 0;) sums[b].wait();
                          sums[0].wait();  // nothing more
                      }
                      int here = device.memory().usage().held() == before ? 0 : 1;
                      for (std::size_t b = 0; b < buckets; ++b)
                          for (const float x : mine[b]) here += x == 6.0f * static_cast<float>(b + 1) ? 0 : 1;
                      if (comm.rank() != 0) return comm.barrier("counted");
                      wrong = here;
                      comm.barrier("counted");
                  },
                  {.delivery = ht::delivery::late});
    CHECK(wrong == 0);
    ht::run_ranks(2,
                  [&](ht::communicator& comm) {
                      std::vector<float> values{1, 2}, received(2);
                      ht::pending later = comm.begin_exchange("values", values.data(), received.data(), sizeof(float));
                      comm.barrier("all have begun");
                      if (comm.rank() == 0) is_nan = std::isnan(received[0] + received[1]);  // its wait is missing
                      later.wait();
                  },
                  {.delivery = ht::delivery::late});
    CHECK(is_nan);
}

TEST_CASE("all_reduce: infinities and NaNs stay; a sum beyond the type that travels is infinite on all ranks") {
    ht::run_ranks(2, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        constexpr float inf = std::numeric_limits<float>::infinity();
        std::vector<float> x{comm.rank() == 0 ? inf : 1, comm.rank() == 0 ? inf : -inf, 40'000, 40'000, 0, -0.0f};
        ht::all_reduce<ht::float16>(device, comm, "x", std::span(x).first(3));
        ht::all_reduce<float>(device, comm, "x", std::span(x).last(3));
        if (x[0] != inf || !std::isnan(x[1]) || x[2] != inf || x[3] != 80'000 || x[4] != 0 || !std::signbit(x[5]))
            throw std::runtime_error("all_reduce");
    });
}

TEST_CASE("all_reduce_sum, all_reduce_max: one value of each rank") {
    for (int n = 1; n <= 5; ++n) {
        ht::run_ranks(n, [&](ht::communicator& comm) {
            const double sum = ht::all_reduce_sum(comm, "sum", std::ldexp(1.0, comm.rank()));
            const int largest = ht::all_reduce_max(comm, "largest", comm.rank() * (comm.rank() % 2 == 0 ? 1 : -1));
            const double nan = ht::all_reduce_max(comm, "nan", comm.rank() == 0 ? std::nan("") : 1.0);
            const std::vector<char> all = ht::gather_values(comm, "letters", static_cast<char>('a' + comm.rank()));
            std::vector<float> x;
            for (int rank = 0; rank < n; ++rank) x.push_back(value_of<float>(rank, 0));
            const bool is_tree =
                same_bits(ht::all_reduce_sum(comm, "x", value_of<float>(comm.rank(), 0)), tree(x, 0, x.size()));
            if (sum != std::ldexp(1.0, n) - 1 || largest != (n - 1) / 2 * 2 || !std::isnan(nan) ||
                std::string(all.begin(), all.end()) != std::string("abcde").substr(0, static_cast<std::size_t>(n)) ||
                !is_tree)
                throw std::runtime_error("one value");
        });
    }
}

TEST_CASE("reduce_scatter: shapes and memory that do not fit are refused") {
    ht::run_ranks(1, [](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        std::vector<float> values(6), mine(5);
        std::byte memory[64];
        CHECK_THROWS_WITH_AS(ht::reduce_scatter<float>(device, comm, "h.0", std::span(values), std::span(mine)),
                             "reduce_scatter: h.0: values are (6), the piece is (5); expected 1 contiguous pieces",
                             ht::shape_error);
        CHECK_THROWS_WITH_AS(ht::all_reduce<float>(device, comm, "h.0", std::span(values), memory),
                             "reduce_scatter: 64 bytes of memory are given; expected 128", ht::argument_error);
    });
}

}  // namespace ranks_reduce_tests
