// SPDX-License-Identifier: MIT
/// \file
/// The data loader: each sample once per epoch in one order for any number of workers and ranks, continued in the middle
/// of an epoch with others; errors at their places; stops at any moment.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>
#include <halftone/number/philox.hpp>

#include "data/loader_stops.hpp"
#include "support/median.hpp"

namespace data_data_loader_tests {

namespace ht = halftone;

using data_test::collate;
using data_test::id_batch;
using data_test::numbers;
using ids = std::vector<ht::extent>;

/// The same as a stream, another in each epoch.
struct counter {
    ht::extent count;
    ht::extent next_ = 0;
    std::uint32_t epoch = 99;
    void start(std::uint32_t e) { epoch = e, next_ = 0; }
    std::optional<ht::extent> next() {
        if (next_ == count) return std::nullopt;
        return next_++ + 1000 * ht::extent{epoch};
    }
};

ids ids_of(const id_batch& b) { return {b.values.data(), b.values.data() + b.values.size()}; }

template <class Source>
using loader_of = ht::data_loader<Source, ht::no_transform, decltype(&collate)>;

/// The remaining samples of the loaders' epoch, one loader for each rank: the parts of a batch in the order of the
/// ranks, batch by batch.
template <class Source>
ids rest_of_epoch(std::vector<std::unique_ptr<loader_of<Source>>>& ranks) {
    ids all;
    for (;;) {
        bool is_over = false;
        for (auto& rank : ranks) {
            const id_batch* batch = rank->next();
            if (batch == nullptr) {
                is_over = true;
            } else {
                const ids part = ids_of(*batch);
                all.insert(all.end(), part.begin(), part.end());
            }
        }
        if (is_over) return all;
    }
}

/// A loader for each rank; a stream is read by each rank on its own.
template <class Source>
struct job {
    std::vector<Source> sources;
    std::vector<std::unique_ptr<loader_of<Source>>> ranks;

    job(const Source& source, ht::loader_options options, int workers, int world_size)
        : sources(static_cast<std::size_t>(world_size), source) {
        options.num_workers = workers, options.world_size = world_size;
        for (int rank = 0; rank < world_size; ++rank) {
            options.rank = rank;
            ranks.push_back(
                std::make_unique<loader_of<Source>>(sources[static_cast<std::size_t>(rank)], options, &collate));
        }
    }
    ids epoch() { return rest_of_epoch(ranks); }
    ids batches(int count) {
        ids all;
        for (int i = 0; i < count; ++i) {
            for (auto& rank : ranks) {
                const ids part = ids_of(*rank->next());
                all.insert(all.end(), part.begin(), part.end());
            }
        }
        return all;
    }
    void resume(const ht::loader_position& at) {
        for (auto& rank : ranks) rank->resume(at);
    }
    ht::loader_position position() const {
        for (const auto& rank : ranks) REQUIRE(rank->position() == ranks[0]->position());
        return ranks[0]->position();
    }
};

ids sorted(ids values) {
    std::sort(values.begin(), values.end());
    return values;
}

constexpr int worker_counts[] = {0, 1, 2, 7};

template <class Function>
std::string message(const Function& f) {
    try {
        f();
    } catch (const ht::error& e) {
        return e.what();
    }
    return "no error";
}

/// Every epoch of `expected`, and its rest after some batches, for all numbers of workers and ranks.
template <class Source>
void check_orders(const Source& source, const ht::loader_options& options, const std::vector<ids>& expected) {
    for (const int workers : worker_counts) {
        for (const int world : {1, 2, 3}) {
            CAPTURE(workers);
            CAPTURE(world);
            job<Source> whole(source, options, workers, world);
            for (const ids& epoch : expected) CHECK(whole.epoch() == epoch);

            // Stopped in the middle of the second epoch, and continued by others.
            job<Source> first(source, options, workers, world);
            CHECK(first.epoch() == expected[0]);
            const ids begin = first.batches(3);
            const ht::loader_position at = first.position();
            CHECK(at.epoch == 1);
            CHECK(at.rows == 3 * options.batch_size);
            job<Source> other(source, options, worker_counts[(workers + 1) % 4], world % 3 + 1);
            other.batches(world);  // it has begun something else
            other.resume(at);
            const ids rest = other.epoch();
            CHECK(begin == ids(expected[1].begin(), expected[1].begin() + static_cast<ht::extent>(begin.size())));
            CHECK(rest == ids(expected[1].begin() + static_cast<ht::extent>(begin.size()), expected[1].end()));
            CHECK(other.epoch() == expected[2]);
        }
    }
}

TEST_CASE("each sample comes once per epoch, in one order for any number of workers and ranks") {
    const numbers source{103};
    for (const ht::last_batch last : {ht::last_batch::keep, ht::last_batch::drop}) {
        const ht::loader_options options{.batch_size = 12, .last = last, .seed = 5};
        job<numbers> plain(source, options, 0, 1);
        const std::vector<ids> epochs{plain.epoch(), plain.epoch(), plain.epoch()};
        for (const ids& epoch : epochs) {
            const ids all = sorted(epoch);
            CHECK(all.size() == (last == ht::last_batch::keep ? 103 : 96));
            CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
        }
        CHECK(epochs[0] != epochs[1]);
        CHECK(plain.position() == ht::loader_position{5, 3, 0, 103});
        check_orders(source, options, epochs);
    }
    job<numbers> in_order(source, {.batch_size = 10, .order = ht::row_order::in_order}, 2, 1);
    CHECK(in_order.epoch() == sorted(in_order.epoch()));
    CHECK(job<numbers>(source, {.seed = 1}, 0, 1).epoch() != job<numbers>(source, {.seed = 2}, 0, 1).epoch());
}

TEST_CASE("batches of samples sorted by length have the same order, too, and need little padding") {
    const numbers source{259};
    const ht::loader_options options{.batch_size = 6, .bucket_batches = 8, .seed = 3};
    job<numbers> plain(source, options, 0, 1);
    const std::vector<ids> epochs{plain.epoch(), plain.epoch(), plain.epoch()};
    for (const ids& epoch : epochs) {
        CHECK(sorted(epoch) == sorted(epochs[0]));
        CHECK(sorted(epoch).back() == 258);
    }
    check_orders(source, options, epochs);

    const auto padding = [&](const ids& epoch) {
        ht::extent sum = 0;
        for (std::size_t first = 0; first < epoch.size(); first += 6) {
            ht::extent longest = 0;
            for (std::size_t i = first; i < std::min(first + 6, epoch.size()); ++i)
                longest = std::max(longest, source.length(epoch[i]));
            for (std::size_t i = first; i < std::min(first + 6, epoch.size()); ++i)
                sum += longest - source.length(epoch[i]);
        }
        return sum;
    };
    ht::loader_options without = options;
    without.bucket_batches = 0;
    CHECK(4 * padding(epochs[0]) < padding(job<numbers>(source, without, 0, 1).epoch()));
    // The batches themselves are shuffled: lengths do not ascend.
    bool ascends = true;
    for (std::size_t i = 6; i < 48; i += 6)
        ascends = ascends && source.length(epochs[0][i]) >= source.length(epochs[0][i - 6]);
    CHECK_FALSE(ascends);

    loader_of<const numbers> loader(source, options, &collate);
    loader.next();
    ht::loader_position at = loader.position();
    at.rows = 7;
    CHECK(message([&] { loader.resume(at); }) ==
          "data_loader: a position after 7 samples, with batches of 6 that are sorted by length; expected a multiple of these");
}

TEST_CASE("a loader that goes on within an epoch gives each sample once, or refuses") {
    const numbers source{32};
    const std::vector<ht::loader_options> all{
        {.batch_size = 4, .bucket_batches = 4}, {.batch_size = 8, .bucket_batches = 4}, {.batch_size = 2, .bucket_batches = 4},
        {.batch_size = 4, .bucket_batches = 2}, {.batch_size = 4}, {.batch_size = 8}, {.batch_size = 5},
        {.batch_size = 4, .order = ht::row_order::in_order}, {.batch_size = 4, .order = ht::row_order::in_order, .bucket_batches = 4}};
    int refused = 0;
    for (const ht::loader_options& a : all) {
        for (const ht::loader_options& b : all) {
            for (const int batches : {0, 1, 2, 3}) {
                CAPTURE(batches);
                job<numbers> first(source, a, 0, 1), other(source, b, 0, 1);
                ids given = first.batches(batches);
                const bool is_same = a.order == b.order && a.bucket_batches == b.bucket_batches &&
                                     (a.bucket_batches == 0 || a.batch_size == b.batch_size);
                const std::string why = message([&] { other.resume(first.position()); });
                CHECK((why == "no error") == (is_same || batches == 0));
                if (why != "no error") {
                    CHECK(why.find("data_loader: a position after ") == 0);
                    ++refused;
                    continue;
                }
                const ids rest = other.epoch();
                given.insert(given.end(), rest.begin(), rest.end());
                CHECK(sorted(given).size() == 32);
                CHECK(sorted(given) == sorted(other.epoch()));
            }
        }
    }
    CHECK(refused == 3 * (9 * 9 - 9 - 6));
    // An epoch that is done is followed by one in any order.
    job<numbers> done(source, all[0], 0, 1), next(source, all[1], 0, 1);
    done.batches(8);
    next.resume(done.position());
    CHECK(next.ranks[0]->next() == nullptr);
    CHECK(next.epoch().size() == 32);
    CHECK(next.position().batch_size == 8);
    next.ranks[0]->next();
    CHECK(message([&] { done.resume(next.position()); }) ==
          "data_loader: a position after 8 samples of an epoch that is shuffled, sorted by length in 4 batches of 8; this loader's is "
          "shuffled, sorted by length in 4 batches of 4, and would give some of them twice");
}

TEST_CASE("a stream keeps its order, and each rank takes its part of every batch") {
    for (const ht::last_batch last : {ht::last_batch::keep, ht::last_batch::drop}) {
        std::vector<ids> epochs(3);
        for (ht::extent e = 0; e < 3; ++e) {
            for (ht::extent i = 0; i < (last == ht::last_batch::keep ? 64 : 60); ++i)
                epochs[static_cast<std::size_t>(e)].push_back(i + 1000 * e);
        }
        check_orders(counter{64}, {.batch_size = 12, .last = last}, epochs);
    }
    counter none{0};
    loader_of<counter> empty(none, {.batch_size = 4, .num_workers = 2}, &collate);
    CHECK(empty.next() == nullptr);
    CHECK(message([&] { empty.next(); }) ==
          "data_loader: sample 0 of epoch 1: the stream has no samples in epoch 1");
}

/// A stream that begins again behind its end, or throws there.
struct one_way_stream {
    bool throws;
    ht::extent next_ = 0;
    void start(std::uint32_t) { next_ = 0; }
    std::optional<ht::extent> next() {
        if (next_ == 11 && throws) throw std::runtime_error("asked behind its end");
        if (next_ == 11) next_ = 0;
        if (next_++ == 10) return std::nullopt;
        return next_ - 1;
    }
};

TEST_CASE("a stream is not asked again behind its end") {
    for (const bool throws : {false, true}) {
        for (const int workers : {0, 1, 3}) {
            for (const ht::extent batch : {4, 5, 20}) {
                CAPTURE(workers);
                CAPTURE(batch);
                one_way_stream source{throws};
                loader_of<one_way_stream> loader(source, {.batch_size = batch, .num_workers = workers}, &collate);
                for (int epoch = 0; epoch < 3; ++epoch) {
                    ids all;
                    while (const id_batch* b = loader.next()) {
                        const ids some = ids_of(*b);
                        all.insert(all.end(), some.begin(), some.end());
                        REQUIRE(all.size() <= 10);
                    }
                    CHECK(all == ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
                }
                // A loader that continues behind the last sample of an epoch.
                ht::loader_position at = loader.position();
                at.rows = 10;
                one_way_stream again{throws};
                loader_of<one_way_stream> other(again, {.batch_size = batch, .num_workers = workers}, &collate);
                other.resume(at);
                CHECK(other.next() == nullptr);
                CHECK(ids_of(*other.next()).front() == 0);
            }
        }
    }
}

TEST_CASE("a range-for takes the rest of an epoch, the next one the next epoch") {
    const numbers source{10};
    loader_of<const numbers> loader(source, {.batch_size = 4, .num_workers = 1}, &collate);
    int batches = 0;
    for (const id_batch& batch : loader) {
        ++batches;
        if (batch.size() == 4) break;
    }
    for (const id_batch& batch : loader) batches += batch.size() > 0;
    CHECK(batches == 3);
    for (int epoch = 1; epoch < 3; ++epoch) {
        CHECK(loader.position().epoch == static_cast<std::uint32_t>(epoch));
        for (const id_batch& batch : loader) batches += batch.size() > 0;
    }
    CHECK(batches == 9);
    CHECK(loader.batches() == 3);
    CHECK(loader.waited() > 0);
}

TEST_CASE("the batches of a trainer's steps are those of the epochs, and a step can be repeated") {
    const numbers source{30};
    for (const int workers : {0, 2}) {
        const ht::loader_options options{.batch_size = 8, .last = ht::last_batch::drop, .num_workers = workers};
        loader_of<const numbers> plain(source, options, &collate), stepped(source, options, &collate);
        std::vector<ids> steps;
        for (int epoch = 0; epoch < 3; ++epoch) {
            for (const id_batch& batch : plain) steps.push_back(ids_of(batch));
        }
        REQUIRE(steps.size() == 9);
        for (const std::uint32_t step : {0u, 1u, 2u, 3u, 3u, 4u, 5u, 8u, 0u, 7u, 7u, 8u})
            CHECK(ids_of(stepped.sample(step, 8)) == steps[step]);
        CHECK_THROWS_AS(stepped.sample(0, 4), ht::argument_error);
    }
}

TEST_CASE("a transform gets the sample's place, whatever worker calls it") {
    const numbers source{40};
    const auto draw = [](ht::extent, const ht::sample_place& p) {
        return static_cast<ht::extent>(ht::random_bits(p.seed, p.epoch, 77, static_cast<std::uint64_t>(p.index)));
    };
    std::vector<ids> results;
    for (const int workers : worker_counts) {
        ht::data_loader loader{source, {.batch_size = 6, .num_workers = workers, .seed = 9}, draw, &collate};
        ids all;
        for (int epoch = 0; epoch < 2; ++epoch) {
            for (const id_batch& batch : loader) {
                const ids part = ids_of(batch);
                all.insert(all.end(), part.begin(), part.end());
            }
        }
        results.push_back(all);
    }
    for (const ids& r : results) CHECK(r == results[0]);
    CHECK(std::set<ht::extent>(results[0].begin(), results[0].end()).size() == 80);
}

TEST_CASE("an exception comes in place of its batch, with the sample's number") {
    const numbers source{40};
    for (const int workers : worker_counts) {
        CAPTURE(workers);
        const auto fails = [](ht::extent i) {
            if (i == 17) throw std::runtime_error("not an image");
            if (i == 33) throw 5;
            return i;
        };
        ht::data_loader loader{
            source, {.batch_size = 4, .order = ht::row_order::in_order, .num_workers = workers}, fails, &collate};
        for (int i = 0; i < 4; ++i) CHECK(ids_of(*loader.next())[0] == 4 * i);
        for (int again = 0; again < 2; ++again) {
            try {
                loader.next();
                FAIL("no error");
            } catch (const ht::sample_error& e) {
                CHECK(e.index == 17);
                CHECK(e.epoch == 0);
                CHECK(std::string(e.what()) == "data_loader: sample 17 of epoch 0: not an image");
                CHECK_THROWS_AS(std::rethrow_exception(e.cause), std::runtime_error);
            }
            CHECK(loader.position().rows == 16);
        }
        ht::loader_position behind = loader.position();
        behind.rows += 4;
        loader.resume(behind);
        for (int i = 5; i < 8; ++i) CHECK(ids_of(*loader.next())[0] == 4 * i);
        CHECK(message([&] { loader.next(); }) ==
              "data_loader: sample 33 of epoch 0: an exception that is not a std::exception");

        const auto bad_collate = [](std::span<const ht::extent> samples, ht::batch_memory& memory) {
            if (samples[0] == 8) throw std::runtime_error("unequal sizes");
            return collate(samples, memory);
        };
        ht::data_loader other{
            source, {.batch_size = 4, .order = ht::row_order::in_order, .num_workers = workers}, bad_collate};
        other.next(), other.next();
        CHECK(message([&] { other.next(); }) == "data_loader: sample 8 of epoch 0: unequal sizes");
    }
}

struct breaking_stream {
    ht::extent next_ = 0;
    void start(std::uint32_t) { next_ = 0; }
    std::optional<ht::extent> next() {
        if (next_ == 10) throw std::runtime_error("the connection is lost");
        return next_++;
    }
};

TEST_CASE("a stream's exception comes in its place, too") {
    for (const int workers : {0, 2}) {
        breaking_stream source;
        loader_of<breaking_stream> loader(source, {.batch_size = 4, .num_workers = workers}, &collate);
        CHECK(ids_of(*loader.next()) == ids{0, 1, 2, 3});
        CHECK(ids_of(*loader.next()) == ids{4, 5, 6, 7});
        for (int again = 0; again < 2; ++again)
            CHECK(message([&] { loader.next(); }) == "data_loader: sample 10 of epoch 0: the connection is lost");
    }
}

TEST_CASE("a batch stays as it is until the next one, and memory is reused") {
    const numbers source{400};
    std::set<const std::int64_t*> places;
    ht::data_loader loader{source, {.batch_size = 4, .order = ht::row_order::in_order, .num_workers = 3},
                           [](ht::extent i) { return i; }, &collate};
    ht::extent expected = 0;
    for (int epoch = 0; epoch < 2; ++epoch, expected = 0) {
        for (const id_batch& batch : loader) {
            if (expected % 40 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // workers run ahead
            for (ht::extent i = 0; i < 4; ++i) CHECK(batch.values(i) == expected++);
            places.insert(batch.values.data());
        }
    }
    CHECK(places.size() <= 7);  // 3 workers x 2 batches, and the one in use
}

TEST_CASE("options and positions outside their range") {
    const numbers source{10}, none{0};
    const auto text = [&](const ht::loader_options& o) {
        return message([&] { loader_of<const numbers>(source, o, &collate); });
    };
    CHECK(text({.batch_size = 0}) == "loader_options: batch_size is 0; expected 1 or more");
    CHECK(text({.num_workers = -1}) == "loader_options: num_workers is -1; expected 0 or more");
    CHECK(text({.prefetch_factor = 0}) == "loader_options: prefetch_factor is 0; expected 1 or more");
    CHECK(text({.num_workers = 5000}) ==
          "loader_options: 5000 workers with 2 batches each; expected 1024 at most");
    CHECK(text({.rank = 2, .world_size = 2}) == "loader_options: rank is 2; expected 0 to world_size - 1, which is 1");
    CHECK(text({.batch_size = 3, .world_size = 2}) ==
          "loader_options: batch_size is 3, of all ranks together; expected a multiple of world_size, which is 2");
    CHECK(text({.batch_size = 11, .last = ht::last_batch::drop}) ==
          "data_loader: 10 samples make no batch of 11, and smaller ones are dropped");
    CHECK(message([&] { loader_of<const numbers>(none, {}, &collate); }) == "data_loader: the source has no samples");
    const std::vector<ht::extent> lengthless(4);
    CHECK(message([&] { ht::data_loader{lengthless, {.bucket_batches = 2}, &collate}; }) ==
          "loader_options: bucket_batches is 2 for a source without length(index); expected 0");

    loader_of<const numbers> loader(source, {.batch_size = 4}, &collate);
    CHECK(message([&] { loader.resume({.rows = 4, .size = 11}); }) ==
          "data_loader: a position in a data set of 11 samples; this one has 10");
    CHECK(message([&] { loader.resume({.rows = 11, .size = 10}); }) ==
          "data_loader: a position after 11 samples of 10");
    loader.resume({.seed = 8, .epoch = 2, .rows = 10, .size = 10});
    CHECK(loader.next() == nullptr);
    CHECK(loader.position() == ht::loader_position{8, 3, 0, 10});
    loader.resume({.rows = 3, .size = 10});  // another size of batches
    CHECK(loader.next()->size() == 4);
    CHECK(loader.next()->size() == 3);
}

TEST_CASE("a loader ends at any moment, with all its threads") {
    data_test::stop_abruptly(60);
}

TEST_CASE("a loader ends at any moment, 1000 times" * doctest::skip()) {
    data_test::stop_abruptly(1000);
}

TEST_CASE("a transform that takes half a step is hidden behind the steps" * doctest::test_suite("times") * doctest::skip()) {
    const numbers source{8 * 200};
    constexpr auto step = std::chrono::microseconds(8000);
    const auto transform = [&](ht::extent i) {
        std::this_thread::sleep_for(step / 2 / 8);
        return i;
    };
    // The median of the steps' waits for their batch, as a share of a step: what else the machine does delays single ones.
    const auto share = [&](int workers) {
        ht::data_loader loader{source, {.batch_size = 8, .num_workers = workers}, transform, &collate};
        loader.next();  // the first batch is not ahead
        std::vector<double> waits;
        for (double before = loader.waited(); loader.next() != nullptr; before = loader.waited()) {
            waits.push_back(loader.waited() - before);
            std::this_thread::sleep_for(step);
        }
        return support::median(waits) / std::chrono::duration<double>(step).count();
    };
    const double waits = share(2), none = share(0);
    MESSAGE("a step waits " << 100 * waits << "% of its time with 2 workers, " << 100 * none << "% without");
    CHECK(waits < 0.02);
    CHECK(none > 0.25);
}

}  // namespace data_data_loader_tests
