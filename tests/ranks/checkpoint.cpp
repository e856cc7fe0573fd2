// SPDX-License-Identifier: MIT
/// \file
/// Checkpoints of several ranks: saved on some, loaded on others, with the same bits; artificial ranges and those of divided
/// models; missing, foreign and damaged files; ranks that fail.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/ranks/checkpoint.hpp>
#include <halftone/ranks/shard.hpp>
#include <halftone/ranks/threads.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/small_model.hpp"
#include "support/own_numbers.hpp"

namespace ranks_checkpoint_tests {

namespace fs = std::filesystem;
namespace ht = halftone;

struct folder {
    fs::path path = fs::temp_directory_path() / ("halftone_sharded_" + std::to_string(::getpid()));
    folder() { fs::remove_all(path); }
    ~folder() { fs::remove_all(path); }
};

using policy = ht::amp_bf16;
using model = small::model<policy>;
constexpr ht::extent width = 700;

/// A number that each rank counts for itself.
struct counter_state {
    std::int64_t n = 0;
    static void visit_fields(auto& self, auto&& f) { f("n", self.n); }
};
struct counter {
    counter_state now;
    counter_state state() const { return now; }
    void load(const counter_state& s) { now = s; }
};

/// A step whose gradients are whole numbers that depend on it.
template <class Accumulator, class Optimizer, class Loss>
void take_step(model& m, Accumulator& acc, Optimizer& optimizer, int step, const Loss& loss) {
    small::tape tape;
    tape.gradients = [step](std::size_t entry, std::size_t i) { return static_cast<float>((5 * step + 3 * static_cast<int>(entry) + static_cast<int>(i)) % 13 - 6); };
    tape.backward(loss, acc, m.parameters());
    auto grads = acc.take();
    optimizer.step(grads);
}

/// All of a run's numbers as a checkpoint without ranks has them, by name.
using contents = std::map<std::string, std::vector<std::byte>>;
contents contents_of(const fs::path& checkpoint) {
    contents all;
    for (const char* const part : {"model", "optimizer"}) {
        const auto joined = ht::detail::join_shards(checkpoint, ht::detail::read_manifest(checkpoint), part);
        for (const ht::tensor_info& t : joined.header.tensors)
            all[std::string(part) + "/" + t.name + ht::detail::shape_text(t.shape)] = {joined.at(t), joined.at(t) + t.bytes};
    }
    return all;
}

/// What a run without ranks has after `steps` steps, and, from a checkpoint, some more.
template <class Make>
contents alone(const folder& at, const Make& make, int steps, const std::optional<fs::path>& from = {}) {
    ht::cpu device{{.threads = 1}};
    model m{device, width};
    ht::accumulator acc{m, ht::unscaled};
    auto optimizer = make(device, m);
    int step = 0;
    if (from) step = static_cast<int>(ht::load_checkpoint(*from, {}, m, *optimizer).step);
    for (; step < steps; ++step) take_step(m, acc, *optimizer, step, small::loss{});
    return contents_of(ht::save_checkpoint(at.path / "alone", {.step = steps}, m, *optimizer));
}

/// Ranks that take steps from a checkpoint, if there is one, to `steps`, and save. Stage -1: data parallel.
template <class Make>
fs::path ranks_train(const folder& at, const Make& make, int ranks, int stage, int steps, const std::optional<fs::path>& from = {}, const char* into = "run") {
    ht::run_ranks(ranks, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model m{device, width};
        std::optional<ht::shard<ht::cpu, model, ht::zero>> over;
        if (stage >= 0) over.emplace(device, m, comm, ht::zero(stage));
        ht::accumulator acc{m, ht::unscaled};
        auto optimizer = make(device, m);
        int step = 0;
        if (from) step = static_cast<int>(ht::load_checkpoint(comm, *from, {}, m, *optimizer).step);
        // Gradients of all ranks are added: rank 0 has them, the others zeros.
        for (; step < steps; ++step) {
            small::tape tape;
            tape.gradients = [&](std::size_t entry, std::size_t i) {
                return comm.rank() != 0 && stage >= 0 ? 0.0f : static_cast<float>((5 * step + 3 * static_cast<int>(entry) + static_cast<int>(i)) % 13 - 6);
            };
            if (stage >= 0) {
                tape.backward(ht::rank_loss<small::loss>{{1.0f}, comm.size()}, acc, m.parameters());
            } else {
                tape.backward(small::loss{}, acc, m.parameters());
            }
            auto grads = acc.take();
            optimizer->step(grads);
        }
        ht::save_checkpoint(comm, at.path / into, {.step = steps}, m, *optimizer);
    });
    return at.path / into / ("checkpoint-" + std::to_string(steps));
}

const auto adamw = [](auto& device, auto& m) {
    return std::make_unique<ht::adamw<ht::cpu, std::remove_reference_t<decltype(m)>>>(device, m, ht::adamw_options{.lr = 0.01, .ema_decay = 0.5});
};
const auto eight_bit = [](auto& device, auto& m) {
    return std::make_unique<ht::adamw_8bit<ht::cpu, std::remove_reference_t<decltype(m)>>>(device, m, ht::adamw_8bit_options{.lr = 0.01, .min_8bit_size = 64});
};

/// Rank r tells a range of a table that is no part of the model.
struct teller {
    ht::communicator* comm;
    std::vector<float>* values;
    bool leaves_a_gap = false;
    void visit_ranges(auto&& f) {
        const std::size_t each = 700 / static_cast<std::size_t>(comm->size()), first = each * static_cast<std::size_t>(comm->rank());
        const std::size_t count = each - (leaves_a_gap ? 1 : 0);
        float* const at = values->data() + first;
        f("model", ht::shard_range{"table", ht::dtype::f32, {7, 100}, first, count,
                                   [at](std::byte* to, std::size_t begin, std::size_t bytes) { std::memcpy(to, reinterpret_cast<std::byte*>(at) + begin, bytes); },
                                   [at, count](const std::byte* from) { std::memcpy(at, from, count * sizeof(float)); }});
    }
};

std::string message_of(const auto& f) {
    try {
        f();
    } catch (const ht::error& e) {
        return e.what();
    }
    return "";
}

void flip_a_byte(const fs::path& file) {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(-1, std::ios::end);
    const char c = static_cast<char>(f.get() ^ 1);
    f.seekp(-1, std::ios::end);
    f.put(c);
}

/// Ranks, and the stage of ZeRO; -1: data parallel.
using group = std::pair<int, int>;

/// Saves on each of these, and goes on from it on others: on `each` of them, or on one.
template <class Make>
void check_all(const Make& make, const std::vector<group>& savers, bool each) {
    const folder at;
    const contents three = alone(at, make, 3), five = alone(at, make, 5);
    const fs::path plain = at.path / "alone" / "checkpoint-3";
    const std::vector<group> loaders{{2, 3}, {1, -1}, {3, 2}, {4, 1}};
    for (std::size_t i = 0; i < savers.size(); ++i) {
        const int ranks = savers[i].first, stage = savers[i].second;
        CAPTURE(ranks);
        CAPTURE(stage);
        const fs::path saved = ranks_train(at, make, ranks, stage, 3);
        CHECK(contents_of(saved) == three);
        CHECK(alone(at, make, 5, saved) == five);
        for (std::size_t k = 0; k < loaders.size(); ++k) {
            if (!each && k != i % loaders.size()) continue;
            CAPTURE(k);
            CHECK(contents_of(ranks_train(at, make, loaders[k].first, loaders[k].second, 5, saved, "next")) == five);
        }
        // And from a checkpoint without ranks.
        if (each || i == 0) CHECK(contents_of(ranks_train(at, make, ranks, stage, 5, plain, "next")) == five);
    }
}

TEST_CASE("checkpoint of ranks: any number of ranks, divided or not, goes on from that of any other with the same bits") {
    check_all(adamw, {{4, 3}, {4, -1}, {2, 1}, {3, 2}}, false);
    check_all(eight_bit, {{3, 3}}, false);
}
TEST_CASE("checkpoint of ranks: all from all" * doctest::skip()) {
    const std::vector<group> all{{1, -1}, {4, -1}, {4, 0}, {2, 1}, {4, 2}, {3, 3}, {4, 3}};
    check_all(adamw, all, true);
    check_all(eight_bit, all, true);
}

TEST_CASE("checkpoint of ranks: each writes its share; files have their names; one rank writes as a run without ranks does") {
    const folder at;
    const fs::path four = ranks_train(at, adamw, 4, -1, 1), one = ranks_train(at, adamw, 1, -1, 1, {}, "one");
    std::size_t least = 1 << 30, most = 0;
    for (int rank = 0; rank < 4; ++rank) {
        const std::size_t bytes = fs::file_size(four / ht::detail::shard_file_name("model", rank, 4));
        least = std::min(least, bytes), most = std::max(most, bytes);
    }
    CHECK(most - least < 600);  // their headers
    CHECK(fs::exists(four / "optimizer-00004-of-00004.safetensors"));
    CHECK(!fs::exists(four / "model.safetensors"));
    CHECK(fs::exists(one / "model.safetensors"));
    CHECK(!fs::exists(at.path / "run" / "checkpoint-1.part"));
    CHECK_NOTHROW(ht::verify_checkpoint(four));
}

TEST_CASE("checkpoint of ranks: a range that somebody tells takes the place of a tensor") {
    const folder at;
    ht::run_ranks(4, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model m{device, 8};
        std::vector<float> values(700);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
        teller t{&comm, &values};
        ht::save_checkpoint(comm, at.path, {.step = 1}, t, m);
    });
    ht::run_ranks(2, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model m{device, 8};
        std::vector<float> values(700, -1.0f);
        teller t{&comm, &values};
        ht::load_checkpoint(comm, at.path / "checkpoint-1", {}, t, m);
        const std::size_t first = 350 * static_cast<std::size_t>(comm.rank());
        for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == (i >= first && i < first + 350 ? static_cast<float>(i) : -1.0f));
        // Elements that nobody has are missed when the checkpoint is read.
        t.leaves_a_gap = true;
        ht::save_checkpoint(comm, at.path, {.step = 2}, t, m);
        CHECK(message_of([&] { ht::load_checkpoint(comm, at.path / "checkpoint-2", {}, t, m); }).find("elements of table from 349 on are in no file") != std::string::npos);
    });
}

TEST_CASE("checkpoint of ranks: states that differ are each rank's own") {
    const folder at;
    ht::run_ranks(4, [&](ht::communicator& comm) {
        counter mine{{10 + comm.rank()}};
        ht::save_checkpoint(comm, at.path, {.step = 1}, mine);
    });
    ht::run_ranks(4, [&](ht::communicator& comm) {
        counter mine;
        ht::load_checkpoint(comm, at.path / "checkpoint-1", {}, mine);
        CHECK(mine.now.n == 10 + comm.rank());
    });
    ht::run_ranks(2, [&](ht::communicator& comm) {
        counter mine;
        const std::string why = message_of([&] { ht::load_checkpoint(comm, at.path / "checkpoint-1", {}, mine); });
        CHECK(why.find("each of its 4 ranks has its own state, and here are 2") != std::string::npos);
        CHECK(mine.now.n == 0);
        const auto info = ht::load_checkpoint(comm, at.path / "checkpoint-1", {.policy = ht::policy_change::convert}, mine);
        CHECK(mine.now.n == 10);
        CHECK(info.notes == std::vector<std::string>{"the state is that of rank 0"});
    });
}

TEST_CASE("checkpoint of ranks: numbers of a type of a user's own are converted, on any number of ranks") {
    const folder at;
    const fs::path path = at.path / "checkpoint-1";
    const ht::load_checkpoint_options told{.policy = ht::policy_change::convert,
                                           .own_numbers = {&ht::value_traits_of<support::float16_e6m9>}};
    // The model's parameters as floats, by their entries.
    const auto values_of = [](auto& m) {
        std::vector<std::vector<float>> all;
        for (const ht::store_entry& e : m.parameters().entries()) {
            const ht::store_group& g = m.parameters().groups()[e.group];
            std::vector<float>& values = all.emplace_back(e.count);
            g.param_type->widen(g.master.data() + e.master * g.param_bytes, e.count, values.data());
        }
        return all;
    };
    const auto save = [&]<class P>(std::type_identity<P>, int ranks) {
        fs::remove_all(path);
        ht::run_ranks(ranks, [&](ht::communicator& comm) {
            ht::cpu device{{.threads = 1}};
            small::model<P> m{device, width};
            ht::shard over{device, m, comm, ht::zero3{}};
            ht::save_checkpoint(comm, at.path, {.step = 1}, m);
        });
    };
    const auto load = [&]<class P>(std::type_identity<P>, int ranks) {
        ht::run_ranks(ranks, [&](ht::communicator& comm) {
            ht::cpu device{{.threads = 1}};
            small::model<P> m{device, width};
            for (std::size_t i = 0; i < m.parameters().entries().size(); ++i) {
                const std::vector<std::byte> nothing(
                    m.parameters().entries()[i].count *
                    m.parameters().groups()[m.parameters().entries()[i].group].param_bytes);
                m.parameters().write(i, 0, nothing.data(), m.parameters().entries()[i].count);
            }
            ht::shard over{device, m, comm, ht::zero3{}};
            ht::load_checkpoint(comm, path, told, m);
            ht::save_checkpoint(comm, at.path / "again", {.step = 1}, m);
        });
        ht::cpu device{{.threads = 1}};
        small::model<P> m{device, width};
        ht::load_checkpoint(at.path / "again" / "checkpoint-1", {}, m);
        fs::remove_all(at.path / "again");
        return values_of(m);
    };
    const std::type_identity<support::pure_e6m9> own;
    const std::type_identity<ht::full_fp32> plain;
    ht::cpu device{{.threads = 1}};
    small::model<support::pure_e6m9> narrow{device, width};
    small::model<ht::full_fp32> wide{device, width};
    auto rounded = values_of(wide);
    for (auto& values : rounded)
        for (float& x : values) x = static_cast<float>(support::float16_e6m9(x));
    for (const int there : {1, 3}) {
        for (const int here : {1, 2, 4}) {
            CAPTURE(there);
            CAPTURE(here);
            save(own, there);
            CHECK(load(plain, here) == values_of(narrow));
            save(plain, there);
            CHECK(load(own, here) == rounded);
        }
    }
}

TEST_CASE("checkpoint of ranks: a missing, foreign or damaged file is named, and the one before is loaded") {
    const folder at;
    const auto make = adamw;
    ranks_train(at, make, 4, 3, 2);
    const fs::path newest = ranks_train(at, make, 4, 3, 3), file = newest / "model-00003-of-00004.safetensors";
    const fs::path other = ranks_train(at, make, 4, 3, 4, {}, "other");
    const std::string good = (at.path / "kept").string();
    fs::copy_file(file, good);
    const auto why_on = [&](int ranks) {
        std::string why;
        ht::run_ranks(ranks, [&](ht::communicator& comm) {
            ht::cpu device{{.threads = 1}};
            model m{device, width};
            ht::shard over{device, m, comm, ht::zero3{}};
            auto optimizer = make(device, m);
            const std::string mine = message_of([&] { ht::load_checkpoint(comm, newest, {}, m, *optimizer); });
            CHECK(!mine.empty());
            std::vector<std::string> skipped;
            const auto from = ht::load_newest_checkpoint(comm, at.path / "run", {.on_skipped = [&](const std::string& line) { skipped.push_back(line); }}, m, *optimizer);
            CHECK(from.has_value());
            CHECK(from->step == 2);
            CHECK(skipped.size() == 1);
            if (comm.rank() == 0) why = mine;
        });
        return why;
    };
    fs::remove(file);
    for (const int ranks : {1, 2, 4}) CHECK(why_on(ranks).find("there is no " + file.string()) != std::string::npos);
    fs::copy_file(other / file.filename(), file);
    CHECK(why_on(4).find(file.filename().string() + " is damaged: its checksum differs (it is of step 4)") != std::string::npos);
    fs::remove(file), fs::copy_file(good, file);
    flip_a_byte(file);
    CHECK(why_on(2).find(file.filename().string() + " is damaged: its checksum differs") != std::string::npos);
    ht::cpu device{{.threads = 1}};
    model m{device, width};
    CHECK(message_of([&] { ht::load_checkpoint(newest, {}, m); }).find(file.filename().string()) != std::string::npos);
}

TEST_CASE("checkpoint of ranks: if one rank fails, the call throws on all, and everything is as before") {
    struct failing {
        counter_state now;
        bool fails = false;
        counter_state state() const { return now; }
        void load(const counter_state& s) {
            if (fails) ht::fail<ht::argument_error>("this rank will not");
            now = s;
        }
    };
    const folder at;
    ht::run_ranks(3, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model m{device, 8};
        ht::accumulator acc{m, ht::unscaled};
        failing part{{7}, comm.rank() == 1};
        ht::save_checkpoint(comm, at.path, {.step = 1}, m, acc, part);
        part.now.n = 1;
        const std::string why = message_of([&] { ht::load_checkpoint(comm, at.path / "checkpoint-1", {}, m, part); });
        CHECK(why.find("this rank will not") != std::string::npos);
        CHECK((comm.rank() == 1 || why.find("rank 1") != std::string::npos));
        CHECK(part.now.n == 1);
        // Within a window of rank 2.
        small::tape tape;
        tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
        if (comm.rank() == 2) tape.backward(small::loss{}, acc, m.parameters());
        const std::string window = message_of([&] { ht::save_checkpoint(comm, at.path, {.step = 2}, m, acc, part); });
        CHECK(window.find("within a window of 1 micro-batches") != std::string::npos);
        comm.barrier("all have tried");
        CHECK(!fs::exists(at.path / "checkpoint-2"));
        CHECK(!fs::exists(at.path / "checkpoint-2.part"));
        CHECK(fs::exists(at.path / "checkpoint-1"));
        // A folder that cannot be made: a file has its name.
        if (comm.rank() == 0) std::ofstream(at.path / "file") << "x";
        comm.barrier("the file is there");
        CHECK_THROWS_AS(ht::save_checkpoint(comm, at.path / "file", {.step = 1}, part), ht::io_error);
    });
}

TEST_CASE("checkpoint of ranks: names of ranges, both ways") {
    using ht::detail::describe_range;
    const auto info = [](std::string name, std::vector<ht::extent> shape) {
        ht::tensor_info t{std::move(name), ht::dtype::f32, std::move(shape), 0, 0};
        t.bytes = 4;
        for (const ht::extent e : t.shape) t.bytes *= static_cast<std::uint64_t>(e);
        return t;
    };
    const auto d = describe_range("f", info(ht::detail::range_name("h.0.w", {4, 5}, 3, 9), {6}), true);
    CHECK(d.name == "h.0.w");
    CHECK(d.shape == std::vector<ht::extent>{4, 5});
    CHECK(d.first == 3);
    CHECK(d.count == 6);
    CHECK(describe_range("f", info("w[1]", {2}), false).name == "w[1]");
    CHECK(describe_range("f", info(ht::detail::range_name("s", {}, 0, 1), {1}), true).shape.empty());
    for (const char* const wrong : {"w[]", "w[0:6]", "w[0:6 of 4,5,]", "w[0:6 of 2,2]", "w[6:0 of 4,5]", "w[0:5 of 4,5]", "w[-1:5 of 4,5]", "w[0:6 of 4,-5]", "w[0:6 of 99999999999999999999]", "w[0:6 of 4,5 ]"})
        CHECK_THROWS_AS(describe_range("f", info(wrong, {6}), true), ht::checkpoint_error);
    ht::tensor_info packed = info("w", {6});
    packed.type = ht::dtype::f4;
    for (const bool is_sharded : {false, true})
        CHECK_THROWS_WITH_AS(describe_range("f", packed, is_sharded), "f: w is F4, which no checkpoint has",
                             ht::checkpoint_error);
}

}  // namespace ranks_checkpoint_tests
