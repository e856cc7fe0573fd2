// SPDX-License-Identifier: MIT
/// \file
/// Weights by names, both ways: every policy's masters come back with their bits, also from several files; a file of
/// another model is refused with all names in one sentence, and the model is untouched.
#include <atomic>
#include <cfenv>
#include <chrono>
#include <limits>
#include <thread>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/io/weights.hpp>
#include <halftone/policy.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "support/temporary_folder.hpp"

namespace io_weights_tests {

namespace ht = halftone;

/// A model of two parameters and a state; Width is the second extent.
template <class P, int Width = 5>
struct model {
    ht::cpu device{{.threads = 1}};
    ht::store store{device.memory()};
    ht::parameter<ht::storage_signature<ht::at<P, "fc">, ht::op::linear>, 2> weight;
    ht::parameter<ht::storage_signature<ht::at<P, "norm">, ht::op::layer_norm>, 1> gain;
    ht::parameter<ht::state_signature<ht::at<P, "norm">>, 1> mean;

    explicit model(std::uint64_t seed)
        : weight(store.add<ht::at<P, "fc">, ht::op::linear>("weight", ht::shape<2>{70, Width}, {.deviation = 0.5f})),
          gain(store.add<ht::at<P, "norm">, ht::op::layer_norm>("weight", ht::shape<1>{3}, {.deviation = 0.1f})),
          mean(store.add_state<ht::at<P, "norm">>("running_mean", ht::shape<1>{4}, {.deviation = 1})) {
        store.commit(seed);
    }
    ht::store& parameters() { return store; }
    const ht::store& parameters() const { return store; }

    /// Masters and copies of all groups.
    std::vector<std::byte> bytes() const {
        std::vector<std::byte> all;
        for (const ht::store::group& g : store.groups()) {
            all.insert(all.end(), g.master.data(), g.master.data() + g.master.bytes());
            all.insert(all.end(), g.copy.data(), g.copy.data() + g.copy.bytes());
        }
        return all;
    }
};

template <class P>
void round_trip() {
    const support::temporary_folder folder;
    const auto file = folder.path() / "m.safetensors";
    const model<P> first(1);
    model<P> second(2);
    CHECK(first.bytes() != second.bytes());
    ht::save_weights(first, file);
    ht::load_weights(second, file);
    CHECK(first.bytes() == second.bytes());
    const ht::safetensors_file saved(file);
    CHECK(saved.tensors().size() == 3);
    CHECK(saved.find("fc.weight")->shape == std::vector<ht::extent>{70, 5});
    CHECK(saved.find("norm.running_mean")->shape == std::vector<ht::extent>{4});
    CHECK(saved.metadata().at("format") == "pt");
    // Several files with an index, over one file, over several files.
    for (const std::uint64_t most : {600u, 1u << 20, 20u, 600u}) {
        model<P> third(3);
        ht::save_weights(first, folder.path() / "m", {.max_shard_bytes = most});
        ht::load_weights(third, folder.path() / "m");
        CHECK(first.bytes() == third.bytes());
        CHECK(ht::tensor_files(folder.path() / "m").files() == (most > 2000 ? 1 : most == 20 ? 3 : 2));
        std::size_t files = 0;
        for (const auto& each : std::filesystem::directory_iterator(folder.path() / "m")) files += each.exists() ? 1 : 0;
        CHECK(files == (most > 2000 ? 1 : most == 20 ? 4 : 3));  // no file of an earlier save is left
    }
}

TEST_CASE("weights: masters come back with their bits under every policy") {
    round_trip<ht::full_fp32>(), round_trip<ht::full_fp64>(), round_trip<ht::amp_bf16>(), round_trip<ht::amp_fp16>();
    round_trip<ht::pure_bf16>(), round_trip<ht::fp8_hybrid>(), round_trip<ht::with_split_master<ht::amp_bf16>>();
}

TEST_CASE("weights: a parameter that kept only its copy is saved and loaded as that") {
    const support::temporary_folder folder;
    model<ht::amp_bf16> first(1), second(2), whole(3);
    first.store.freeze("fc"), second.store.freeze("fc");
    ht::save_weights(first, folder.path() / "m.safetensors");
    CHECK(ht::safetensors_file(folder.path() / "m.safetensors").find("fc.weight")->type == ht::dtype::bf16);
    ht::load_weights(second, folder.path() / "m.safetensors");
    CHECK(first.bytes() == second.bytes());
    ht::load_weights(whole, folder.path() / "m.safetensors");
    CHECK(static_cast<float>(whole.weight.values()(69, 4)) == static_cast<float>(first.weight.values()(69, 4)));
}

TEST_CASE("weights: numbers are converted, each rounded once") {
    const support::temporary_folder folder;
    const model<ht::amp_bf16> first(1);
    for (const ht::dtype type : {ht::dtype::bf16, ht::dtype::f16, ht::dtype::f64, ht::dtype::f8_e4m3}) {
        ht::save_weights(first, folder.path() / "m.safetensors", {.type = type});
        model<ht::full_fp32> second(2);
        ht::load_weights(second, folder.path() / "m.safetensors");
        const float x = first.weight.master()(3, 2);
        const float expected = type == ht::dtype::bf16   ? static_cast<float>(ht::bfloat16(x))
                               : type == ht::dtype::f16  ? static_cast<float>(ht::float16(x))
                               : type == ht::dtype::f64 ? x
                                                         : static_cast<float>(ht::float8_e4m3(x));
        CHECK(second.weight.master()(3, 2) == expected);
    }
    CHECK_THROWS_WITH_AS(ht::save_weights(first, folder.path() / "m.safetensors", {.type = ht::dtype::i8}),
                         "save_weights: type is I8; expected a floating-point type", ht::argument_error);
}

TEST_CASE("weights: a number that the type of the files does not hold is refused, and earlier files stay") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "m.safetensors";
    model<ht::full_fp32> first(1);
    ht::save_weights(first, file);
    const auto before = std::filesystem::file_size(file);
    const auto said = [&](float x, ht::dtype type, bool transposed = false) {
        first.store.write(0, 1, reinterpret_cast<const std::byte*>(&x), 1);
        ht::save_weights_options options{.type = type};
        if (transposed) options.transposed = [](const std::string& path) { return path == "fc.weight"; };
        try {
            ht::save_weights(first, file, options);
        } catch (const ht::argument_error& e) {
            CHECK(std::filesystem::file_size(file) == before);
            return std::string(e.what());
        }
        ht::save_weights(model<ht::full_fp32>(1), file);
        return std::string("no error");
    };
    CHECK(said(1e5f, ht::dtype::f16) == "save_weights: fc.weight has 100000, which F16 does not hold");
    CHECK(said(-1e5f, ht::dtype::f16, true) == "save_weights: fc.weight has -100000, which F16 does not hold");
    CHECK(said(1e5f, ht::dtype::bf16) == "no error");
    CHECK(said(65519.0f, ht::dtype::f16) == "no error");  // which rounds to the largest
    CHECK(said(3.4028235e38f, ht::dtype::bf16) == "save_weights: fc.weight has 3.40282e+38, which BF16 does not hold");
    CHECK(said(-std::numeric_limits<float>::infinity(), ht::dtype::f16) == "no error");
    CHECK(said(std::numeric_limits<float>::quiet_NaN(), ht::dtype::f16) == "no error");
}

TEST_CASE("weights: other names, and what a file may lack") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "m.safetensors";
    const model<ht::amp_bf16> first(1);
    const ht::weight_names longer = [](const std::string& path) { return "model." + path; };
    ht::save_weights(first, file, {.names = longer});
    model<ht::amp_bf16> second(2);
    ht::load_weights(second, file, {.names = longer});
    CHECK(first.bytes() == second.bytes());

    const ht::weight_names some = [](const std::string& path) { return path == "norm.weight" ? std::string() : path; };
    ht::save_weights(first, file, {.names = some});
    model<ht::amp_bf16> third(3);
    const auto before = third.bytes();
    CHECK_THROWS_WITH_AS(ht::load_weights(third, file),
                         ("load_weights: " + file.string() + " is of another model: missing: norm.weight").c_str(),
                         ht::safetensors_error);
    CHECK(third.bytes() == before);
    ht::load_weights(third, file, {.matching = ht::name_matching::any});
    CHECK(third.weight.master()(5, 1) == first.weight.master()(5, 1));
    CHECK(third.gain.master()(0) != first.gain.master()(0));
}

TEST_CASE("weights: a parameter may be several tensors of a file, rows behind rows, at once or one at a time") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "m.safetensors";
    const auto of_rows = [](std::vector<ht::extent> rows) {
        return [rows](const std::string& path) {
            std::vector<ht::weight_piece> pieces;
            if (path == "fc.weight") {
                for (const ht::extent n : rows) pieces.push_back({"fc." + std::to_string(pieces.size()), n});
            }
            return pieces;
        };
    };
    const auto round = [&]<class P>() {
        const model<P> first(1);
        ht::save_weights(first, file, {.pieces = of_rows({13, 1, 56})});
        const ht::safetensors_file saved(file);
        CHECK(saved.tensors().size() == 5);
        CHECK(saved.find("fc.1")->shape == std::vector<ht::extent>{1, 5});
        for (const bool is_one : {false, true}) {
            model<P> second(2);
            ht::load_weights(second, file, {.pieces = of_rows({13, 1, 56}), .one_at_a_time = is_one});
            CHECK(first.bytes() == second.bytes());
        }
    };
    round.operator()<ht::amp_bf16>();
    round.operator()<ht::with_split_master<ht::amp_bf16>>();
    model<ht::amp_bf16> third(3);
    const auto before = third.bytes();
    CHECK_THROWS_WITH_AS(ht::load_weights(third, file, {.pieces = of_rows({13, 2, 56})}),
                         "weights: the pieces of fc.weight have 71 rows of 70", ht::argument_error);
    for (const bool is_one : {false, true}) {
        CHECK_THROWS_AS(ht::load_weights(third, file, {.pieces = of_rows({14, 56}), .one_at_a_time = is_one}),
                        ht::safetensors_error);
        CHECK(third.bytes() == before);
    }
}

TEST_CASE("weights: a tensor of a type that halftone lacks is refused if a parameter needs it, and ignored otherwise") {
    const support::temporary_folder folder;
    const model<ht::amp_bf16> first(1);
    model<ht::amp_bf16> second(2);
    const auto file = folder.path() / "m.safetensors";
    const auto codes = [](std::byte* to, std::size_t, std::size_t bytes) { std::fill_n(to, bytes, std::byte{0x22}); };
    auto tensors = ht::detail::weight_sources(first.parameters(), {});
    tensors.push_back({"scales", ht::dtype::f8_e8m0, {3}, codes});
    ht::write_safetensors(file, tensors);
    const std::string begin = "load_weights: " + file.string() + " is of another model: ";
    CHECK_THROWS_WITH_AS(ht::load_weights(second, file), (begin + "unexpected: scales").c_str(), ht::safetensors_error);
    ht::load_weights(second, file, {.matching = ht::name_matching::parameters});
    CHECK(first.bytes() == second.bytes());
    // The same by an index: the other shard is read.
    ht::write_tensor_files(folder.path() / "several", tensors, {.max_shard_bytes = 20});
    model<ht::amp_bf16> third(3);
    ht::load_weights(third, folder.path() / "several", {.matching = ht::name_matching::parameters});
    CHECK(first.bytes() == third.bytes());

    tensors.back() = tensors.front();
    tensors.front().type = ht::dtype::f4, tensors.front().read = codes;
    tensors.pop_back();
    ht::write_safetensors(file, tensors);
    CHECK_THROWS_WITH_AS(ht::load_weights(second, file),
                         (begin + "of another shape or type: fc.weight, which is F4 there").c_str(),
                         ht::safetensors_error);
    for (const ht::dtype type : {ht::dtype::f4, ht::dtype::c64})
        CHECK_THROWS_AS(ht::save_weights(first, file, {.type = type}), ht::argument_error);
}

TEST_CASE("weights: a folder whose weights have another name is refused with that name, by which they are read") {
    const support::temporary_folder folder;
    const model<ht::amp_bf16> first(1);
    model<ht::amp_bf16> second(2);
    std::filesystem::create_directories(folder.path() / "m");
    const std::string begin =
        "io: there is no model.safetensors and no model.safetensors.index.json in " + (folder.path() / "m").string();
    CHECK_THROWS_WITH_AS(ht::load_weights(second, folder.path() / "m"), begin.c_str(), ht::io_error);
    const auto is_named = [&](const char* name) {
        CHECK_THROWS_WITH_AS(ht::load_weights(second, folder.path() / "m"),
                             (begin + "; it has " + name + ": name that file").c_str(), ht::io_error);
        second.store.write(0, 0, std::vector<std::byte>(70 * 5 * 4).data(), 70 * 5);
        ht::load_weights(second, folder.path() / "m" / name);
        CHECK(first.bytes() == second.bytes());
    };
    // transformers' save_pretrained(..., variant="fp16"): one file, or several.
    ht::save_weights(first, folder.path() / "m" / "model.fp16.safetensors");
    is_named("model.fp16.safetensors");
    ht::save_weights(first, folder.path() / "m", {.max_shard_bytes = 20});
    std::filesystem::rename(folder.path() / "m" / "model.safetensors.index.json",
                            folder.path() / "m" / "model.safetensors.index.fp16.json");
    is_named("model.safetensors.index.fp16.json");
}

TEST_CASE("weights: all names that do not fit are listed, and the model is untouched") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "m.safetensors";
    model<ht::amp_bf16> here(1);
    const auto before = here.bytes();
    const std::string begin = "load_weights: " + file.string() + " is of another model: ";
    ht::save_weights(model<ht::amp_bf16, 6>(2), file);
    CHECK_THROWS_WITH_AS(ht::load_weights(here, file),
                         (begin + "of another shape or type: fc.weight (70, 6), which is (70, 5)").c_str(), ht::safetensors_error);
    const float one = 1;
    const int integer = 1;
    ht::write_safetensors(file, {ht::tensor_source::of<float>("a", {}, std::span<const float>(&one, 1)),
                                 ht::tensor_source::of<float>("b", {}, std::span<const float>(&one, 1)),
                                 ht::tensor_source::of<int>("norm.weight", {1}, std::span<const int>(&integer, 1))});
    CHECK_THROWS_WITH_AS(ht::load_weights(here, file),
                         (begin + "missing: fc.weight, norm.running_mean; unexpected: a, b; of another shape or type: "
                                  "norm.weight (1), which is (3)").c_str(),
                         ht::safetensors_error);
    CHECK_THROWS_WITH_AS(ht::load_weights(here, file, {.names = [](const std::string& path) { return path + "x"; },
                                                       .matching = ht::name_matching::any}),
                         (begin + "no tensor has the name of a parameter").c_str(), ht::safetensors_error);
    // A damaged file, and one that is cut.
    ht::save_weights(model<ht::amp_bf16>(2), file);
    const std::string whole = support::temporary_folder::read(file);
    folder.write("m.safetensors", whole.substr(0, whole.size() - 1));
    CHECK_THROWS_AS(ht::load_weights(here, file), ht::safetensors_error);
    CHECK_THROWS_AS(ht::load_weights(here, folder.path() / "missing"), ht::io_error);
    CHECK(here.bytes() == before);
}

/// What several threads do, where a load of so few numbers would have one.
constexpr ht::detail::loading_plan several{.threads = 4, .piece = 16, .rows = 2, .chunk = 4};

/// Loads with one thread and with several, and compares all bytes.
template <class P>
void several_threads_as_one(const std::filesystem::path& file, const ht::load_weights_options& o) {
    model<P> one(2), many(3);
    const ht::tensor_files files(file);
    ht::detail::load_weights_of(one.store, files, file.string(), o, ht::detail::loading_plan{});
    ht::detail::load_weights_of(many.store, files, file.string(), o, several);
    CHECK(one.bytes() == many.bytes());
}

TEST_CASE("weights: several threads load the bits of one") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "m.safetensors";
    const auto is_matrix = [](const std::string& path) { return path == "fc.weight"; };
    const auto in_pieces = [](const std::string& path) {
        return path == "fc.weight" ? std::vector<ht::weight_piece>{{"a", 13}, {"b", 57}}
                                   : std::vector<ht::weight_piece>{};
    };
    const auto check = [&]<class P>() {
        const model<P> first(1);
        for (const bool is_one : {false, true}) {
            for (const auto type :
                 {std::optional<ht::dtype>{}, std::optional(ht::dtype::bf16), std::optional(ht::dtype::f64)}) {
                ht::save_weights(first, file, {.type = type});
                several_threads_as_one<P>(file, {.one_at_a_time = is_one});
                ht::save_weights(first, file, {.type = type, .transposed = is_matrix});
                several_threads_as_one<P>(file, {.transposed = is_matrix, .one_at_a_time = is_one});
                ht::save_weights(first, file, {.type = type, .pieces = in_pieces});
                several_threads_as_one<P>(file, {.pieces = in_pieces, .one_at_a_time = is_one});
            }
        }
    };
    check.operator()<ht::full_fp32>(), check.operator()<ht::amp_bf16>(), check.operator()<ht::pure_bf16>();
    check.operator()<ht::fp8_hybrid>(), check.operator()<ht::with_split_master<ht::amp_bf16>>();
}

/// Files whose reading fails from some byte of a tensor on.
struct failing_files : ht::tensor_files {
    using ht::tensor_files::tensor_files;
    std::string tensor{};
    std::uint64_t byte = 0;

    void read(const ht::tensor_info& t, std::uint64_t first, std::size_t bytes, void* to) const {
        if (t.name == tensor && first + bytes > byte)
            ht::fail<ht::io_error>("a byte of ", t.name, " cannot be read, of ", bytes, " from ", first, " on");
        ht::tensor_files::read(t, first, bytes, to);
    }
};

TEST_CASE("weights: what several threads cannot load is told as by one") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "m.safetensors";
    ht::save_weights(model<ht::full_fp32>(1), file);
    failing_files files{file};
    files.tensor = "fc.weight", files.byte = 4 * 133;
    for (int i = 0; i < 20; ++i) {
        model<ht::amp_bf16> here(2);
        const auto before = here.bytes();
        CHECK_THROWS_WITH_AS(ht::detail::load_weights_of(here.store, files, "m", {}, several),
                             "a byte of fc.weight cannot be read, of 16 from 528 on", ht::io_error);
        CHECK(here.bytes() == before);
    }
    // Of each tensor the first number that is lost, in the order of the file.
    model<ht::full_fp64> wide(1);
    wide.weight.master()(40, 4) = 1e300, wide.weight.master()(69, 2) = 1e301, wide.gain.master()(1) = -1e302;
    for (const bool is_transposed : {false, true}) {
        const auto is_matrix = [&](const std::string& path) { return is_transposed && path == "fc.weight"; };
        ht::save_weights(wide, file, {.transposed = is_matrix});
        for (int i = 0; i < 20; ++i) {
            for (const bool is_one : {false, true}) {
                model<ht::amp_bf16> here(2);
                const auto before = here.bytes();
                const auto& plan = i == 0 ? ht::detail::loading_plan{} : several;
                const std::string sentence =
                    "load_weights: m has numbers that the types of parameters do not hold: fc.weight, 1e+30" +
                    std::string(is_transposed ? "1" : "0") + " for a float, norm.weight, -1e+302 for a float";
                CHECK_THROWS_WITH_AS(
                    ht::detail::load_weights_of(here.store, ht::tensor_files(file), "m",
                                                {.transposed = is_matrix, .one_at_a_time = is_one}, plan),
                    sentence.c_str(), ht::safetensors_error);
                CHECK(here.bytes() == before);
            }
        }
    }
}

TEST_CASE("weights: threads that read take every piece once, in the caller's mode, and tell the first failure") {
    std::vector<std::atomic<int>> taken(1000);
    std::atomic<bool> has_mode{true};
    std::fesetround(FE_TOWARDZERO);
    ht::detail::on_worker_threads(taken.size(), 4, [&](std::size_t worker, std::size_t piece) {
        ++taken[piece];
        if (worker >= 4 || std::fegetround() != FE_TOWARDZERO) has_mode = false;
        if (piece == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that others begin
    });
    std::fesetround(FE_TONEAREST);
    CHECK(has_mode);
    CHECK(std::all_of(taken.begin(), taken.end(), [](const auto& n) { return n == 1; }));
    ht::detail::on_worker_threads(0, 4, [](std::size_t, std::size_t) { FAIL("there is no piece"); });
    for (int i = 0; i < 20; ++i) {
        const auto fails = [](std::size_t, std::size_t piece) {
            if (piece == 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // later ones fail before
            if (piece >= 3) throw piece;
        };
        try {
            ht::detail::on_worker_threads(100, 4, fails);
            FAIL("nothing was thrown");
        } catch (const std::size_t first) {
            CHECK(first == 3);
        }
    }
    CHECK(ht::detail::reading_threads((16u << 20) - 1, 16) == 1);
    CHECK(ht::detail::reading_threads(std::size_t{1} << 40, 2) <= 2);
}

TEST_CASE("weights: an index is checked") {
    const support::temporary_folder folder;
    const model<ht::amp_bf16> first(1);
    ht::save_weights(first, folder.path() / "m", {.max_shard_bytes = 1000});
    const auto index = folder.path() / "m" / "model.safetensors.index.json";
    const std::string good = support::temporary_folder::read(index);
    const auto refused = [&](const std::string& text, const char* sentence) {
        folder.write("m/model.safetensors.index.json", text);
        CHECK_THROWS_WITH_AS(ht::tensor_files(folder.path() / "m"), (index.string() + sentence).c_str(), ht::safetensors_error);
    };
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        return text.replace(text.find(from), from.size(), to);
    };
    refused("[]", ": an index is an object with a weight_map");
    refused("{\"weight_map\": {}}", ": the index names no tensor");
    refused(good + std::string("\0x", 2), (" is not valid JSON: a byte of 0 at " + std::to_string(good.size()) + " of " +
                                            std::to_string(good.size() + 2) + " bytes").c_str());
    refused("{\"weight_map\": {\"a\": 1}}", ": 'a' is not mapped to a file's name");
    refused("{\"weight_map\": {\"a\": \"../m.safetensors\"}}", ": '../m.safetensors' is not the name of a file beside the index");
    refused("{\"weight_map\": {\"a\": \"m\", \"a\": \"m\"}}", " has the name 'a' twice");
    refused(changed("model-00001", "model-00009"), ": there is no model-00009-of-00002.safetensors");
    refused(changed("\"norm.running_mean\"", "\"other\""),
            ": model-00002-of-00002.safetensors holds 'norm.running_mean', which the index does not map to it");
    refused(changed("{\n    \"fc.weight\"", "{\"more\": \"model-00002-of-00002.safetensors\", \"fc.weight\""),
            ": model-00002-of-00002.safetensors does not hold 'more'");
    // Names that the system cannot look up.
    const std::string long_name(300, 'x');
    folder.write("m/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"" + long_name + "\"}}");
    CHECK_THROWS_AS(ht::tensor_files(folder.path() / "m"), ht::io_error);
    CHECK_THROWS_AS(ht::tensor_files{long_name}, ht::io_error);
    CHECK_THROWS_AS(ht::tensor_files(folder.path()), ht::io_error);
}

}  // namespace io_weights_tests
