// SPDX-License-Identifier: MIT
/// \file
/// Data parallel training with scripted gradients: sums over ranks and their bits, when buckets are exchanged, what is
/// refused, and PyTorch's traces of the loss scale whichever ranks overflow.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "ranks/scripted.hpp"
#include "optim/golden.hpp"
#include "support/median.hpp"
#include "support/random.hpp"

namespace ranks_data_parallel_tests {

namespace ht = halftone;
using numbers = std::vector<float>;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
/// 67 + 5 + 70 + 3 elements, in slabs of whole granules.
constexpr std::size_t count = 145;

using bf16_wire = ht::with_reduce<ht::full_fp32, ht::bfloat16>;
using fp16_wire = ht::with_reduce<ht::full_fp32, ht::float16>;

float whole(int rank, int micro, std::size_t entry, std::size_t i) {
    return static_cast<float>((7 * rank + 3 * micro + 5 * static_cast<int>(entry) + static_cast<int>(i)) % 23 - 11);
}

/// The sums of all ranks, rank 0's first, after `windows` windows; each rank's gradients are gradient(rank, window, micro,
/// entry, i).
template <class P, class Gradient>
std::vector<numbers> sums_of(int ranks, const Gradient& gradient, const ht::data_parallel_options& options = {},
                             const ht::thread_options& threads = {}, int windows = 2) {
    std::vector<numbers> all(static_cast<std::size_t>(ranks));
    ht::run_ranks(
        ranks,
        [&](ht::communicator& comm) {
            scripted::rank<P> r{comm, options};
            for (int window = 0; window < windows; ++window) {
                for (int micro = 0; micro < std::max(options.micro_batches, 1); ++micro) {
                    r.tape.gradients = [&](std::size_t entry, std::size_t i) {
                        return gradient(comm.rank(), window, micro, entry, i);
                    };
                    r.backward();
                }
                all[static_cast<std::size_t>(comm.rank())] = r.sums();
            }
        },
        threads);
    return all;
}

bool same_bits(const numbers& a, const numbers& b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
        return ht::bit_cast<std::uint32_t>(x) == ht::bit_cast<std::uint32_t>(y);
    });
}

template <class P>
void check_whole_numbers() {
    for (const int ranks : {1, 2, 3, 4}) {
        for (const int micro_batches : {1, 4, 0}) {
            for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{25} << 20}) {
                CAPTURE(ranks);
                CAPTURE(micro_batches);
                CAPTURE(bucket_bytes);
                const auto gradient = [](int rank, int, int micro, std::size_t entry, std::size_t i) {
                    return whole(rank, micro, entry, i);
                };
                const auto got = sums_of<P>(ranks, gradient, {.micro_batches = micro_batches, .bucket_bytes = bucket_bytes});
                numbers want;
                const std::size_t widths[] = {67, 5, 70, 3};
                for (std::size_t entry = 0; entry < 4; ++entry) {
                    for (std::size_t i = 0; i < widths[entry]; ++i) {
                        float sum = 0;
                        for (int rank = 0; rank < ranks; ++rank) {
                            for (int micro = 0; micro < std::max(micro_batches, 1); ++micro) sum += whole(rank, micro, entry, i);
                        }
                        want.push_back(sum);
                    }
                }
                for (const numbers& of_rank : got) CHECK(of_rank == want);
            }
        }
    }
}

TEST_CASE("data_parallel: whole-number gradients have the sums of one rank, exactly") {
    check_whole_numbers<ht::full_fp32>();
    check_whole_numbers<bf16_wire>();
    check_whole_numbers<fp16_wire>();
    check_whole_numbers<ht::amp_bf16>();
}

/// Any numbers; the same ones in each run.
float any(int rank, int window, int micro, std::size_t entry, std::size_t i) {
    const auto at = static_cast<std::uint64_t>(1000 * rank + 100 * window + 10 * micro) + entry;
    const auto r = ht::random_block(9, static_cast<std::uint32_t>(at), 1, i);
    return (static_cast<float>(r[0]) - 0x1p31f) * 0x1p-31f * std::ldexp(1.0f, static_cast<int>(r[1] % 12));
}

TEST_CASE("data_parallel: the bits are the same on all ranks, in buckets of any size, however bytes arrive") {
    for (const int ranks : {2, 3, 4}) {
        CAPTURE(ranks);
        const auto prompt = sums_of<bf16_wire>(ranks, any, {.micro_batches = 2, .bucket_bytes = 256});
        for (const numbers& of_rank : prompt) CHECK(same_bits(of_rank, prompt[0]));
        CHECK(same_bits(sums_of<bf16_wire>(ranks, any, {.micro_batches = 2})[0], prompt[0]));
        for (const ht::delivery d : {ht::delivery::late, ht::delivery::halves, ht::delivery::shuffled}) {
            for (const numbers& of_rank :
                 sums_of<bf16_wire>(ranks, any, {.micro_batches = 2, .bucket_bytes = 256}, {.delivery = d, .seed = 3}))
                CHECK(same_bits(of_rank, prompt[0]));
        }
        for (const ht::delivery d : {ht::delivery::late, ht::delivery::halves}) {
            const auto late = sums_of<ht::full_fp32>(ranks, any, {.bucket_bytes = 256}, {.delivery = d});
            const auto soon = sums_of<ht::full_fp32>(ranks, any, {.bucket_bytes = 512});
            for (const numbers& of_rank : late) CHECK(same_bits(of_rank, soon[0]));
        }
    }
}

TEST_CASE("data_parallel: sums are within the bounds of the wire type and the ranks' tree") {
    const auto check = [](const std::vector<numbers>& got, double wire_roundoff) {
        const std::size_t widths[] = {67, 5, 70, 3};
        const int ranks = static_cast<int>(got.size());
        std::size_t at = 0;
        for (std::size_t entry = 0; entry < 4; ++entry) {
            for (std::size_t i = 0; i < widths[entry]; ++i, ++at) {
                double sum = 0, magnitudes = 0;
                for (int rank = 0; rank < ranks; ++rank) {
                    sum += static_cast<double>(any(rank, 1, 0, entry, i));
                    magnitudes += std::fabs(static_cast<double>(any(rank, 1, 0, entry, i)));
                }
                // Each term is rounded to the wire type; at most two additions in float for four ranks; the sum is rounded to the
                // wire type.
                const double bound = magnitudes * ((1 + wire_roundoff) * (1 + wire_roundoff) * (1 + 2 * 0x1p-24) * (1 + 0x1p-24) - 1);
                CHECK(std::fabs(static_cast<double>(got[0][at]) - sum) <= bound);
            }
        }
    };
    for (const int ranks : {1, 2, 3, 4}) {
        check(sums_of<ht::full_fp32>(ranks, any), 0);
        check(sums_of<bf16_wire>(ranks, any), 0x1p-8);
        check(sums_of<fp16_wire>(ranks, any), 0x1p-11);
    }
}

TEST_CASE("data_parallel: buckets are exchanged while the last pass of a window goes on, but not in the first window") {
    ht::run_ranks(2, [](ht::communicator& comm) {
        scripted::rank<ht::full_fp32> r{comm, {.micro_batches = 2, .bucket_bytes = 256}};
        r.tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
        const auto window = [&] {
            r.backward();
            const auto begun = r.ranks.counts().overlapped;
            r.backward();
            const auto overlapped = r.ranks.counts().overlapped;
            CHECK(r.sums() == numbers(count, 4.0f));
            return overlapped - begun;
        };
        // All four parameters are of one group: slabs of 2, 1, 2 and 1 granules in 6 buckets of 64 elements.
        CHECK(window() == 0);
        CHECK(r.ranks.counts().buckets == 6);
        CHECK(window() == 6);
        CHECK(window() == 6);
        CHECK(r.ranks.counts().windows == 3);
        CHECK(r.ranks.counts().buckets == 18);
        // Half of each bucket of 256 bytes to the other rank, and the sums of the other half.
        CHECK(r.ranks.counts().sent_bytes == 18 * 2 * 128);
        // Fewer parameters are reached than in the window before: the rest is exchanged in take(), and is zero.
        r.tape.operations = {{3}, {0}};
        r.backward(), r.backward();
        CHECK(r.ranks.counts().overlapped == 12 + 1);  // the head's; fc2's is next, and never complete
        const numbers sums = r.sums();
        CHECK(sums[0] == 4);
        CHECK(sums[67] == 0);
    });
}

TEST_CASE("data_parallel: a parameter that two operations read is exchanged when the second one has ended") {
    ht::run_ranks(3, [](ht::communicator& comm) {
        scripted::rank<ht::full_fp32> r{comm, {.bucket_bytes = 256}};
        r.tape.gradients = [](std::size_t entry, std::size_t) { return entry == 0 ? 1.0f : 2.0f; };
        r.tape.operations = {{3, 0}, {2}, {1}, {0}};  // the first one claims two, before it writes either
        for (int window = 0; window < 3; ++window) {
            r.backward();
            const numbers sums = r.sums();
            CHECK(sums[0] == 6);
            CHECK(sums[66] == 6);
            CHECK(sums[67] == 6);
        }
        CHECK(r.ranks.counts().overlapped == 2 * 6);
    });
}

TEST_CASE("data_parallel: ranks whose passes complete gradients in different orders exchange them in that of the first rank") {
    ht::run_ranks(3, [](ht::communicator& comm) {
        scripted::rank<ht::full_fp32> r{comm, {.bucket_bytes = 256}};
        r.tape.gradients = [](std::size_t entry, std::size_t) { return static_cast<float>(entry + 1); };
        if (comm.rank() == 1) r.tape.operations = {{0}, {1}, {2}, {3}};
        for (int window = 0; window < 3; ++window) {
            r.backward();
            const numbers sums = r.sums();
            CHECK(sums.front() == 3);
            CHECK(sums.back() == 12);
        }
        CHECK(r.ranks.counts().overlapped == 2 * 6);
    });
}

TEST_CASE("data_parallel: what would give wrong sums is refused") {
    const auto message = [](int ranks, const auto& f) {
        std::atomic<int> thrown{0};
        std::string text;
        ht::run_ranks(ranks, [&](ht::communicator& comm) {
            try {
                f(comm);
            } catch (const ht::state_error& e) {
                if (comm.rank() == 0) text = e.what();
                ++thrown;
            }
        });
        CHECK(thrown == ranks);
        return text;
    };
    const auto ones = [](std::size_t, std::size_t) { return 1.0f; };
    CHECK(message(2, [&](ht::communicator& comm) {
              scripted::rank<ht::full_fp32> r{comm};
              r.tape.gradients = ones;
              r.tape.backward(small::loss{}, r.acc, r.model.parameters());
          }).find("added over 2 ranks, and this loss is that of 1") != std::string::npos);
    CHECK(message(2, [&](ht::communicator& comm) {
              scripted::rank<ht::full_fp32> r{comm, {.micro_batches = 2}};
              r.tape.gradients = ones;
              for (int i = 0; i < 3; ++i) r.backward();
          }).find("micro-batch 3 of a window of 2") != std::string::npos);
    CHECK(message(2, [&](ht::communicator& comm) {
              scripted::rank<ht::full_fp32> r{comm};
              r.tape.gradients = ones;
              r.backward(), r.sums();
              r.tape.operations = {{3}, {2}, {1}, {0}, {3}};
              r.backward();
          }).find("gradient of head.weight has been sent") != std::string::npos);
}

TEST_CASE("data_parallel: a discarded window is as if it had not been") {
    ht::run_ranks(2, [](ht::communicator& comm) {
        scripted::rank<ht::full_fp32> r{comm, {.bucket_bytes = 256}};
        r.tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
        for (int window = 0; window < 3; ++window) {
            r.backward();
            CHECK(r.sums() == numbers(count, 2.0f));
            r.backward();
            r.acc.discard();
        }
        CHECK(r.ranks.counts().windows == 3);
    });
}

TEST_CASE("data_parallel: all optimizers update what any rank's pass reached; frozen parameters are not exchanged") {
    ht::run_ranks(3, [](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        small::model<ht::full_fp32> model{device};
        model.parameters().freeze("fc2");
        ht::accumulator acc{model, ht::unscaled};
        ht::data_parallel ranks{device, comm, acc, {.bucket_bytes = 256}};
        ht::sgd optimizer{device, model, {.lr = 1, .weight_decay = 0.5}};
        scripted::tape tape;
        tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
        for (int window = 0; window < 2; ++window) {
            tape.operations = comm.rank() == 1 ? std::vector<std::vector<std::size_t>>{{3}, {2}, {0}}
                                               : std::vector<std::vector<std::size_t>>{{2}, {0}};
            tape.backward(small::loss{1} / ranks, acc, model.parameters());
            auto grads = acc.take();
            CHECK(optimizer.step(grads).result() == ht::step_result::taken);
            ht::check_equal(comm, model);
        }
        std::vector<bool> reached;
        for (std::size_t entry = 0; entry < 4; ++entry) reached.push_back(acc.find(model.parameters())->is_reached(entry));
        CHECK(reached == std::vector<bool>{true, false, false, true});
        // fc1 and norm and head: 2 + 1 + 1 granules of 64 floats, of which each rank sends two pieces of 22, twice.
        CHECK(ranks.counts().buckets == 2 * 4);
        CHECK(ranks.counts().sent_bytes == 2 * 4 * (2 * 2 * 22 * sizeof(float)));
    });
}

TEST_CASE("data_parallel: models begin equal, and a check names the first parameter that differs, and the rank") {
    ht::run_ranks(3, [](ht::communicator& comm) {
        scripted::rank<ht::amp_bf16> r{comm};
        ht::check_equal(comm, r.model);
        if (comm.rank() == 2) {
            numbers values = small::master_of(r.model.fc2.weight);
            values[40] = std::nextafter(values[40], 9.0f);
            r.model.fc2.weight.assign(values);
        }
        try {
            ht::check_equal(comm, r.model);
            FAIL("no exception");
        } catch (const ht::state_error& e) {
            CHECK(std::string(e.what()).find("fc2.weight differs on rank 2 from that of rank 0") != std::string::npos);
        }
        ht::broadcast_parameters(comm, r.model);
        ht::check_equal(comm, r.model);
    });
    ht::run_ranks(2, [](ht::communicator& comm) {
        CHECK_THROWS_AS((scripted::rank<ht::full_fp32>{comm, {}, comm.rank() == 0 ? 67 : 68}), ht::argument_error);
        CHECK_THROWS_AS((scripted::rank<ht::full_fp32>{comm, {.micro_batches = 1 + comm.rank()}}), ht::argument_error);
        CHECK_THROWS_AS((scripted::rank<ht::full_fp32>{comm, {.micro_batches = -1}}), ht::argument_error);
        CHECK_THROWS_AS((scripted::rank<ht::full_fp32>{comm, {.bucket_bytes = 0}}), ht::argument_error);
    });
}

/// The gradients of rank `which` hold `value` in one place.
template <class P>
numbers with_one(int ranks, float value, int which) {
    const auto got = sums_of<P>(ranks, [=](int rank, int, int, std::size_t entry, std::size_t i) {
        return rank == which && entry == 2 && i == 4 ? value : 1.0f;
    });
    for (const numbers& of_rank : got) CHECK(same_bits(of_rank, got[0]));
    return got[0];
}

TEST_CASE_TEMPLATE("data_parallel: infinity and NaN of one rank reach all, in every wire type", P, ht::full_fp32, bf16_wire,
                   fp16_wire) {
    constexpr std::size_t at = 67 + 5 + 4;
    for (int which = 0; which < 3; ++which) {
        CHECK(with_one<P>(3, infinity, which)[at] == infinity);
        CHECK(with_one<P>(3, -infinity, which)[at] == -infinity);
        CHECK(std::isnan(with_one<P>(3, nan, which)[at]));
    }
}

TEST_CASE("data_parallel: what overflows the wire type is infinite on all ranks, be it a term or only the sum") {
    constexpr std::size_t at = 67 + 5 + 4;
    CHECK(with_one<fp16_wire>(2, 65504, 1)[at] == 65504);  // + 1 is rounded to fp16 again
    CHECK(with_one<fp16_wire>(2, 70000, 1)[at] == infinity);
    const auto half = [](int, int, int, std::size_t entry, std::size_t i) { return entry == 2 && i == 4 ? 40000.0f : 1.0f; };
    for (const numbers& of_rank : sums_of<fp16_wire>(2, half)) CHECK(of_rank[at] == infinity);
    const auto large = [](int, int, int, std::size_t entry, std::size_t i) { return entry == 2 && i == 4 ? 3e38f : 1.0f; };
    for (const numbers& of_rank : sums_of<ht::full_fp32>(2, large)) CHECK(of_rank[at] == infinity);
}

/// One layer with many parameters of equal size.
template <class P>
struct many {
    using policy = P;
    using operation = ht::op::linear;
    static constexpr bool owns_parameters = true;
    static constexpr int count = 20;
    static constexpr ht::extent width = 4096;
    std::vector<ht::parameter<ht::storage_signature<P, operation>, 1>> weights;
    explicit many(ht::store& s) {
        for (int i = 0; i < count; ++i)
            weights.push_back(s.add<P, operation>(("weight_" + std::to_string(i)).c_str(), ht::shape<1>{width}, {}));
    }
};
template <class P>
struct many_model : ht::nn::model {
    using policy = P;
    many<ht::at<P, "body">> body;
    explicit many_model(ht::cpu& device) : ht::nn::model(device), body(parameters()) { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.body); }
};

TEST_CASE("data_parallel: four fifths of the reduction are hidden behind a backward pass of twice its length" *
          doctest::test_suite("times") * doctest::skip()) {
    // Operations that sleep leave the processor to the other ranks. Each rank sends 3/4 of its bytes twice.
    constexpr int ranks = 4, windows = 7;
    constexpr double reduction = 0.2, pass = 0.4;
    constexpr std::size_t each = static_cast<std::size_t>(many<ht::full_fp32>::width) * sizeof(float);
    const double bytes = 2 * 0.75 * static_cast<double>(each) * many<ht::full_fp32>::count;
    using clock = std::chrono::steady_clock;
    const auto seconds_of = [&](int micro_batches) {
        std::vector<double> seconds;  // of each window
        ht::run_ranks(
            ranks,
            [&](ht::communicator& comm) {
                ht::cpu device{{.threads = 1}};
                many_model<ht::full_fp32> model{device};
                ht::accumulator acc{model, ht::unscaled};
                ht::data_parallel parallel{device, comm, acc, {.micro_batches = micro_batches, .bucket_bytes = each}};
                scripted::tape tape;
                tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
                tape.pause = std::chrono::duration<double>(pass / many<ht::full_fp32>::count);
                for (int window = 0; window <= windows; ++window) {
                    comm.barrier("begin");
                    const auto begin = clock::now();
                    tape.backward(small::loss{} / parallel, acc, model.parameters());
                    static_cast<void>(acc.take());
                    if (comm.rank() != 0 || window == 0) continue;  // the first one's order is not known
                    seconds.push_back(std::chrono::duration<double>(clock::now() - begin).count());
                }
            },
            {.bytes_per_second = bytes / reduction});
        return support::median(seconds);
    };
    const double apart = seconds_of(0), together = seconds_of(1);
    const double hidden = (apart - together) / reduction;
    MESSAGE("a window takes ", apart, " s with the reduction after the pass, ", together, " s with it inside: ", 100 * hidden,
            " % of the reduction of ", reduction, " s are hidden");
    CHECK(hidden >= 0.8);
}

/// Whether a rank overflows in an update: no rank, one, some or all, in turn.
bool overflows_on(int rank, int ranks, int update) {
    switch (update % 3) {
        case 0: return rank == update / 3 % ranks;
        case 1: return rank != update / 3 % ranks || ranks == 1;
        default: return true;
    }
}

TEST_CASE("data_parallel: the loss scale has PyTorch's trace on all ranks, whichever of them overflow") {
    const std::vector<support::golden_line> lines = support::read_golden("scaler.txt");
    for (const int ranks : {1, 3}) {
        std::atomic<int> updates{0};
        ht::run_ranks(ranks, [&](ht::communicator& comm) {
            using model_type = small::model<ht::with_reduce<ht::amp_fp16, ht::float16>>;
            for (std::size_t at = 0; at < lines.size();) {
                const support::golden_line& head = lines[at++];
                if (head.number(6) != 1 || head.number(5) == 0) {  // two models, or a scaler that is disabled
                    while (at < lines.size() && lines[at].kind == "update") ++at;
                    continue;
                }
                ht::cpu device{{.threads = 1}};
                ht::grad_scaler scaler{device,
                                       {.init_scale = static_cast<float>(head.number(1)),
                                        .growth_factor = head.number(2),
                                        .backoff_factor = head.number(3),
                                        .growth_interval = static_cast<int>(head.number(4)),
                                        .min_scale = 0}};
                model_type model{device, 3};
                ht::sgd optimizer{device, model, {.lr = 1}};
                ht::accumulator acc{model};
                ht::data_parallel parallel{device, comm, acc};
                scripted::tape tape;
                for (; at < lines.size() && lines[at].kind == "update"; ++at) {
                    const char letter = lines[at].words[0][0];
                    const bool overflows = overflows_on(comm.rank(), comm.size(), static_cast<int>(at));
                    tape.gradients = [&](std::size_t entry, std::size_t i) {
                        if (entry != 2 || i != 4 || letter == '.' || !overflows) return 0.0f;
                        return letter == 'i' ? -infinity : nan;
                    };
                    const float scale = scaler.get_scale();
                    tape.backward(scaler.scale(small::loss{} / parallel), acc, model.parameters());
                    auto grads = scaler.unscale(acc.take());
                    const float norm = ht::clip_grad_norm(grads, 1.0f).value();
                    CHECK(std::isfinite(norm) == (letter == '.'));
                    if (scale >= 0x1p-126f) CHECK(std::isnan(norm) == (letter == 'n'));  // times 0, an infinity is NaN
                    CHECK(optimizer.step(grads).skipped() == (letter != '.'));
                    scaler.update();
                    CHECK(static_cast<double>(scaler.get_scale()) == lines[at].number(1));
                    CHECK(scaler.state().growth_tracker == lines[at].number(2));
                    CHECK(optimizer.steps() == lines[at].number(3));
                    ++updates;
                }
                ht::check_equal(comm, model);
            }
        });
        CHECK(updates >= 50 * ranks);
    }
}

}  // namespace ranks_data_parallel_tests
