// SPDX-License-Identifier: MIT
/// \file
/// Parts of checkpoints one by one: what a file may lack or have too much, several parts of one kind, manifests, what a save
/// copies when, and what it leaves behind.
#include <atomic>
#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/io/checkpoint.hpp>
#include <halftone/policy.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "support/store_bytes.hpp"
#include "support/temporary_folder.hpp"

namespace io_checkpoint_parts_tests {

namespace ht = halftone;
namespace fs = std::filesystem;

/// A matrix, a vector and a state.
struct parts_model {
    using policy = ht::amp_bf16;
    ht::cpu device{{.threads = 1}};
    ht::store store{device.memory()};
    ht::parameter<ht::state_signature<ht::at<policy, "norm">>, 1> mean;

    explicit parts_model(std::uint64_t seed, ht::extent width = 5, const char* name = "weight")
        : mean((add(width, name), store.add_state<ht::at<policy, "norm">>("running_mean", ht::shape<1>{4}, {.deviation = 1}))) {
        store.commit(seed);
    }
    ht::store& parameters() { return store; }
    const ht::store& parameters() const { return store; }
    static auto visit(auto&&, auto&& f) { return f(); }

    std::vector<std::byte> bytes() const { return support::bytes_of(store); }

  private:
    void add(ht::extent width, const char* name) {
        store.add<ht::at<policy, "fc">, ht::op::linear>("weight", ht::shape<2>{70, width}, {.deviation = 0.5f});
        store.add<ht::at<policy, "norm">, ht::op::layer_norm>(name, ht::shape<1>{3}, {.deviation = 0.1f});
    }
};

template <class F>
std::string refused(const F& f) {
    try {
        f();
    } catch (const ht::checkpoint_error& e) {
        return e.what();
    }
    return "nothing was thrown";
}
bool has(const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
    return text.find(part) != std::string::npos;
}

TEST_CASE("checkpoint: names and shapes that do not fit are listed, and nothing changes") {
    const support::temporary_folder folder;
    parts_model saved(1, 6, "gain");
    ht::save_checkpoint(folder.path(), {.step = 1}, saved);
    const auto path = folder.path() / "checkpoint-1";
    parts_model here(2);
    const auto before = here.bytes();
    has(refused([&] { ht::load_checkpoint(path, {}, here); }),
        "model.safetensors is of another model: missing: norm.weight; unexpected: norm.gain; of another shape or type: fc.weight, which is "
        "F32 (70, 6) there, F32 (70, 5) here");
    has(refused([&] { ht::load_checkpoint(path, {.policy = ht::policy_change::convert}, here); }), "unexpected: norm.gain");
    CHECK(here.bytes() == before);
    // Nothing is missing, and one is too much: a checkpoint of a larger model.
    parts_model larger(3, 5);
    ht::save_checkpoint(folder.path(), {.step = 2}, larger);
    ht::safetensors_file file(folder.path() / "checkpoint-2" / "model.safetensors");
    CHECK(file.tensors().size() == 3);
    // A manifest that does not name the file of a part with tensors.
    nlohmann::json manifest = ht::detail::read_manifest(folder.path() / "checkpoint-2");
    manifest["files"].clear();
    ht::detail::write_manifest(folder.path() / "checkpoint-2", manifest);
    has(refused([&] { ht::load_checkpoint(folder.path() / "checkpoint-2", {}, here); }), "checkpoint-2 has no model.safetensors");
    CHECK(here.bytes() == before);
}

TEST_CASE("checkpoint: a tensor that no parameter has is refused") {
    const support::temporary_folder folder;
    parts_model saved(1), here(2);
    const auto all = ht::detail::parts_of(saved);
    auto contents = ht::detail::contents_of(all);
    const float one = 1;
    contents[0].tensors.push_back(ht::tensor_source::of<float>("more", {}, std::span<const float>(&one, 1)));
    ht::detail::write_checkpoint(folder.path(), {.step = 1}, contents);
    has(refused([&] { ht::load_checkpoint(folder.path() / "checkpoint-1", {}, here); }), "unexpected: more");
    // Of a type that halftone does not convert, as a tensor too many and in a parameter's place.
    const auto codes = [](std::byte* to, std::size_t, std::size_t bytes) { std::fill_n(to, bytes, std::byte{0x22}); };
    contents[0].tensors.back() = {"more", ht::dtype::f4, {2, 2}, codes};
    ht::detail::write_checkpoint(folder.path(), {.step = 2}, contents);
    has(refused([&] { ht::load_checkpoint(folder.path() / "checkpoint-2", {}, here); }), "unexpected: more");
    contents[0].tensors.pop_back();
    ht::tensor_source& first = contents[0].tensors.front();
    first.type = ht::dtype::f8_e8m0, first.read = codes;
    ht::detail::write_checkpoint(folder.path(), {.step = 3}, contents);
    has(refused(
            [&] { ht::load_checkpoint(folder.path() / "checkpoint-3", {.policy = ht::policy_change::convert}, here); }),
        "which is F8_E8M0 (");
}

TEST_CASE("checkpoint: several models have names of their own, in the order in which they are given") {
    const support::temporary_folder folder;
    parts_model first(1), second(2), third(3);
    ht::save_checkpoint(folder.path(), {.step = 1}, first, second, third);
    const auto path = folder.path() / "checkpoint-1";
    CHECK((fs::exists(path / "model.safetensors") && fs::exists(path / "model_2.safetensors") && fs::exists(path / "model_3.safetensors")));
    parts_model a(4), b(5), c(6);
    ht::load_checkpoint(path, {}, a, b, c);
    CHECK(a.bytes() == first.bytes());
    CHECK(b.bytes() == second.bytes());
    CHECK(c.bytes() == third.bytes());
}

TEST_CASE("checkpoint: roles and layers of which one side alone has some are differences, too") {
    using ht::detail::stamp_difference;
    using stamp = ht::detail::policy_stamp;
    CHECK(stamp_difference(stamp{{"a", {{"compute", "x"}}}}, stamp{{"a", {{"compute", "x"}}}}).empty());
    CHECK(stamp_difference(stamp{{"a", {{"compute", "x"}}}}, stamp{{"a", {{"compute", "x"}, {"scaling", "y"}}}}) ==
          "scaling is not set there, y here: a");
    CHECK(stamp_difference(stamp{{"a", {{"compute", "x"}, {"scaling", "y"}}}}, stamp{{"a", {{"compute", "x"}}}}) ==
          "scaling is y there, not set here: a");
    CHECK(stamp_difference(stamp{{"a", {}}}, stamp{{"a", {}}, {"b", {}}}) == "layers only here: b");
    CHECK(stamp_difference(stamp{{"a", {}}, {"", {}}}, stamp{{"a", {}}}) == "layers only there: the model");
}

TEST_CASE("checkpoint: a layer that states no `stream` has its `output` there") {
    using ht::detail::stamp_difference, ht::detail::stream_notes;
    using stamp = ht::detail::policy_stamp;
    const stamp silent{{"a", {{"output", "x"}}}}, same{{"a", {{"output", "x"}, {"stream", "x"}}}},
        other{{"a", {{"output", "x"}, {"stream", "y"}}}};
    for (const stamp& here : {silent, same, other}) CHECK(stamp_difference(silent, here).empty());
    CHECK(stamp_difference(same, silent).empty());
    CHECK(stamp_difference(same, other) == "stream is x there, y here: a");
    CHECK(stamp_difference(other, silent) == "stream is y there, x (its `output`) here: a");
    CHECK(stream_notes(silent, same, {}).size() == 1);
    CHECK(stream_notes(silent, silent, {}).empty());
    CHECK(stream_notes(same, silent, {}).empty());
    CHECK(stream_notes(same, other, {}).empty());
    // Each change by itself, with the layers that it is in.
    const stamp two{{"a", {{"output", "bfloat16"}}}, {"b", {{"output", "float16"}}}, {"c", {{"output", "float"}}}},
        wide{{"a", {{"output", "x"}, {"stream", "float"}}},
             {"b", {{"output", "x"}, {"stream", "float"}}},
             {"c", {{"output", "x"}, {"stream", "float"}}}};
    const std::string begin =
        "it was saved without the role `stream`: that run kept the sums of its residual stream in its `output`, ";
    const std::string a = begin + "bfloat16, and this program keeps them in float",
                      b = begin + "float16, and this program keeps them in float";
    CHECK(stream_notes(two, wide, {}) ==
          std::vector<std::string>{a + " (a); ht::with_stream<P, ht::bfloat16> goes on as before",
                                   b + " (b); ht::with_stream<P, ht::float16> goes on as before"});
    CHECK(stream_notes(two, wide, {"b"}) ==
          std::vector<std::string>{b + "; ht::with_stream<P, ht::float16> goes on as before"});
    CHECK(stream_notes(two, wide, {"c"}).size() == 1);
}

TEST_CASE("checkpoint: a manifest of another form is refused, even if its checksum is right") {
    const auto text = [](const auto& change) {
        nlohmann::json j{{"format", "halftone checkpoint"}, {"version", 1}, {"step", 3}, {"parts", nlohmann::json::object()},
                         {"files", {{"model.safetensors", {{"bytes", 8}, {"crc32", "00000000"}}}}}, {"metrics", nlohmann::json::object()}};
        change(j);
        j["crc32"] = ht::detail::sum_of(j);
        return j.dump();
    };
    const auto why = [&](const auto& change) { return refused([&] { ht::detail::parse_manifest("m", text(change)); }); };
    using json = nlohmann::json;
    CHECK(why([](json&) {}) == "nothing was thrown");
    CHECK(why([](json& j) { j["format"] = "other"; }) == "m is not the manifest of a checkpoint");
    CHECK(why([](json& j) { j["version"] = 2; }) == "m is of version 2; expected 1");
    CHECK(why([](json& j) { j["step"] = -1; }) == "m: step is missing or of another kind");
    CHECK(why([](json& j) { j["step"] = std::uint64_t{1} << 63; }) == "m: step is missing or of another kind");
    CHECK(why([](json& j) { j.erase("parts"); }) == "m: parts is missing or of another kind");
    for (const char* const name : {"../model.safetensors", "a/b", "a\\b", "c:d", ".hidden", ""}) {
        CAPTURE(name);
        CHECK(why([&](json& j) { j["files"][name] = j["files"]["model.safetensors"]; }) == "m: a file is missing or of another kind");
    }
    CHECK(why([](json& j) { j["files"]["model.safetensors"].erase("bytes"); }) == "m: a file is missing or of another kind");
    CHECK(why([](json& j) { j["files"]["model.safetensors"]["crc32"] = 5; }) == "m: a file is missing or of another kind");
}

TEST_CASE("checkpoint: what a save leaves in the folder is one checkpoint, and nothing if it fails") {
    const support::temporary_folder folder;
    parts_model m(1);
    const auto names = [&] {
        std::vector<std::string> all;
        for (const auto& e : fs::directory_iterator(folder.path())) all.push_back(e.path().filename().string());
        std::sort(all.begin(), all.end());
        return all;
    };
    ht::save_checkpoint(folder.path(), {.step = 1}, m);
    ht::save_checkpoint(folder.path(), {.step = 1}, m);  // replaced
    CHECK(names() == std::vector<std::string>{"checkpoint-1"});
    auto contents = ht::detail::contents_of(ht::detail::parts_of(m));
    contents[0].tensors[1].read = [](std::byte*, std::size_t, std::size_t) { throw ht::io_error("stop"); };
    CHECK_THROWS_AS(ht::detail::write_checkpoint(folder.path(), {.step = 2}, contents), ht::io_error);
    CHECK_THROWS_AS(ht::detail::write_checkpoint(folder.path(), {.step = 1}, contents), ht::io_error);
    CHECK(names() == std::vector<std::string>{"checkpoint-1"});
    // An .old one is removed where that which replaced it is there.
    fs::copy(folder.path() / "checkpoint-1", folder.path() / "checkpoint-1.old", fs::copy_options::recursive);
    ht::save_checkpoint(folder.path(), {.step = 3}, m);
    CHECK(names() == std::vector<std::string>{"checkpoint-1", "checkpoint-3"});
}

TEST_CASE("checkpoint: a save has the bits of its moment, whatever a forward pass and an assignment change meanwhile") {
    const support::temporary_folder folder;
    parts_model m(1, 60000);  // 17 MB, whose copy takes a while
    const auto before = m.bytes();
    ht::checkpoint_saver saver(folder.path());
    for (int i = 1; i <= 3; ++i) {
        const auto now = m.bytes();
        saver.save({.step = i, .save_total_limit = 1}, m);
        // As a forward pass does: at once, without waiting.
        const auto state = m.mean.master();
        for (ht::extent k = 0; k < 4; ++k) state.data()[k] = static_cast<float>(10 * i + k);
        // As an assignment does: behind the copy.
        const std::vector<float> values{1.0f * static_cast<float>(i), 2, 3};
        m.store.write(1, 0, reinterpret_cast<const std::byte*>(values.data()), 3);
        m.store.refresh();
        saver.wait();
        parts_model back(9, 60000);
        ht::load_checkpoint(folder.path() / ("checkpoint-" + std::to_string(i)), {}, back);
        CHECK((back.bytes() == now));
    }
    CHECK((m.bytes() != before));
    // The memory of the copy grows with what is saved.
    parts_model small(1, 3), large(2, 300), back(3, 300);
    ht::checkpoint_saver other(folder.path() / "other");
    other.save({.step = 1}, small);
    other.save({.step = 2}, large);
    other.wait();
    ht::load_checkpoint(folder.path() / "other" / "checkpoint-2", {}, back);
    CHECK(back.bytes() == large.bytes());
}

TEST_CASE("checkpoint: a load waits for those who copy what it changes") {
    const support::temporary_folder folder;
    parts_model m(1), other(2);
    ht::save_checkpoint(folder.path(), {.step = 1}, other);
    auto parts = ht::detail::parts_of(m);
    std::atomic<bool> has_written{false};
    for (ht::detail::part_tensor& t : parts[0].tensors) {
        t.write = [&, write = t.write](const std::byte* from) {
            has_written = true;
            write(from);
        };
    }
    m.parameters().readers().begin();
    std::thread loader([&] { ht::detail::read_checkpoint(folder.path() / "checkpoint-1", parts, {}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(!has_written);
    m.parameters().readers().end();
    loader.join();
    CHECK(has_written);
    CHECK(m.bytes() == other.bytes());
}

}  // namespace io_checkpoint_parts_tests
