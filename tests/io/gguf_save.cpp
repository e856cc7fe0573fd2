// SPDX-License-Identifier: MIT
/// \file
/// GGUF files that halftone writes: blocks have the bytes of the gguf package's quantiser (golden/gguf_blocks.txt), models loaded from its
/// files (golden/gguf_files) are saved as the same tensors, byte for byte, and with the tokenizer of a folder they are read back as
/// what they were. What cannot be written is refused in a sentence, and leaves the earlier file.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <halftone/amp.hpp>
#include <halftone/data/tokenizer.hpp>
#include <halftone/io/adapters.hpp>
#include <halftone/io/crc32.hpp>
#include <halftone/io/pretrained.hpp>
#include <halftone/io/pretrained/save_gguf.hpp>
#include <halftone/policy/lora.hpp>

#include "io/gguf_writer.hpp"
#include "io/pretrained_checks.hpp"
#include "nn/llama_checks.hpp"
#include "support/temporary_folder.hpp"

namespace io_gguf_save_tests {

namespace ht = halftone;
namespace fs = std::filesystem;
using json = nlohmann::json;
using pretrained_checks::message_of, pretrained_checks::text_of, pretrained_checks::values_of;
using type = ht::ggml_type;

const fs::path golden = HALFTONE_TEST_DATA;
constexpr type written_types[]{type::f32, type::f16, type::bf16, type::q8_0, type::q4_0};

type type_named(const std::string& name) {
    return *std::find_if(std::begin(written_types), std::end(written_types),
                         [&](type t) { return ht::name(t) == name; });
}

TEST_CASE("gguf: blocks have the bytes of the gguf package's quantiser") {
    const auto bytes_of = [](const std::string& digits) {
        std::vector<std::byte> bytes;
        for (std::size_t i = 0; i < digits.size(); i += 2)
            bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
        return bytes;
    };
    int blocks = 0, sums = 0;
    for (const support::golden_line& line : support::read_golden("gguf_blocks.txt")) {
        const type of = type_named(line.words[0]);
        const std::size_t each = ht::detail::entry_of(of).bytes;
        if (line.kind == "block") {
            CAPTURE(blocks);
            float numbers[32];
            std::memcpy(numbers, bytes_of(line.words[1]).data(), sizeof numbers);
            std::vector<std::byte> block(each);
            ht::detail::quantise(of, numbers, 32, block.data());
            CHECK(block == bytes_of(line.words[2]));
            ++blocks;
        } else {
            const std::size_t count = std::stoul(line.words[1]);
            std::vector<float> numbers(32 * count);
            std::uint32_t state = 1;
            for (std::size_t i = 0; i < numbers.size(); ++i) {
                state = state * 1664525u + 1013904223u;
                numbers[i] =
                    std::ldexp(static_cast<float>(state >> 8) - 8388608.0f, static_cast<int>(i / 32 % 24) - 32);
            }
            std::vector<std::byte> made(each * count);
            ht::detail::quantise(of, numbers.data(), numbers.size(), made.data());
            ht::detail::crc32 sum;
            sum.add(made.data(), made.size());
            CHECK(sum.value() == std::stoul(line.words[2]));
            ++sums;
        }
    }
    CHECK(blocks == 42);
    CHECK(sums == 2);
}

TEST_CASE("gguf: numbers too small for a block's scale are 0, and zeros are as llama.cpp has them") {
    for (const float x : {0.0f, 1e-40f, std::numeric_limits<float>::denorm_min(), 3e-39f, 1e-30f}) {
        CAPTURE(x);
        std::vector<float> numbers(32, x), back(32);
        numbers[3] = -x;
        std::byte block[34];
        for (const type of : {type::q8_0, type::q4_0}) {
            ht::detail::quantise(of, numbers.data(), 32, block);
            ht::detail::dequantise(of, block, 32, back.data());
            CHECK(std::all_of(back.begin(), back.end(), [](float y) { return y == 0; }));
            // No number is multiplied by infinity, which 1 / d would be.
            if (x < 1e-38f) CHECK(block[2] == (of == type::q8_0 ? std::byte{0} : std::byte{0x88}));
        }
    }
    const std::vector<float> zeros(32, -0.0f);
    std::byte block[18];
    ht::detail::quantise(type::q4_0, zeros.data(), 32, block);
    CHECK(block[1] == std::byte{0x80});  // 0 / -8
    CHECK(block[2] == std::byte{0x88});
}

TEST_CASE("gguf: keys and tensors of every type are read as they were written") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "some.gguf";
    std::vector<float> numbers(64);
    for (std::size_t i = 0; i < 64; ++i) numbers[i] = static_cast<float>(i) / 8 - 3;
    const ht::gguf_keys keys{{"u8", ht::gguf_value_of(std::uint8_t{200})},
                             {"i8", ht::gguf_value_of(std::int8_t{-3})},
                             {"u16", ht::gguf_value_of(std::uint16_t{60000})},
                             {"i16", ht::gguf_value_of(std::int16_t{-4})},
                             {"u32", ht::gguf_value_of(std::uint32_t{4000000000})},
                             {"i32", ht::gguf_value_of(-5)},
                             {"u64", ht::gguf_value_of(std::uint64_t{1} << 62)},
                             {"i64", ht::gguf_value_of(std::int64_t{-6})},
                             {"f32", ht::gguf_value_of(0.5f)},
                             {"f64", ht::gguf_value_of(0.25)},
                             {"flag", ht::gguf_value_of(true)},
                             {"text", ht::gguf_value_of("llama")},
                             {"u16s", ht::gguf_value_of(std::vector<std::uint16_t>{7, 8})},
                             {"texts", ht::gguf_value_of(std::vector<std::string>{"a", "", "b c"})},
                             {"none", ht::gguf_value_of(std::vector<std::string>{})},
                             {"general.alignment", ht::gguf_value_of(std::uint32_t{64})}};
    std::vector<ht::gguf_source> tensors;
    for (const type t : written_types) tensors.push_back(ht::gguf_source::of(ht::name(t), t, {2, 32}, numbers));
    tensors.push_back(ht::gguf_source::of("empty", type::q8_0, {0, 32}, {}));
    tensors.push_back(ht::gguf_source::of("number", type::f32, {}, std::span(numbers).first(1)));
    ht::write_gguf(path, keys, tensors);
    const ht::gguf_file file(path);
    CHECK(file.version() == 3);
    CHECK(file.size() % 64 == 0);
    REQUIRE(file.metadata().values().size() == keys.size());
    for (const auto& [key, value] : keys) {
        const std::string& shown = key;
        CAPTURE(shown);
        const ht::gguf_value& there = file.metadata().values().at(key);
        CHECK(there.type == value.type);
        CHECK(there.is_array == value.is_array);
        CHECK(there.count == value.count);
        CHECK(there.bytes == value.bytes);
        CHECK(there.texts == value.texts);
    }
    CHECK(file.metadata().integer("u32") == 4000000000);
    CHECK(file.metadata().number("f64") == 0.25);
    CHECK(file.metadata().flag("flag"));
    for (const type t : written_types) {
        CAPTURE(ht::name(t));
        REQUIRE(file.find(ht::name(t)) != nullptr);
        CHECK(file.find(ht::name(t))->type == t);
        CHECK(file.find(ht::name(t))->shape == std::vector<ht::extent>{2, 32});
        const auto back = file.read<float>(ht::name(t));
        for (std::size_t i = 0; i < 64; ++i)
            CHECK(std::abs(back[i] - numbers[i]) <= (t == type::q4_0 ? 0.35f : t == type::q8_0 ? 0.03f : 0.0f));
    }
    CHECK(file.read<float>("number") == std::vector<float>{-3});
    CHECK(file.read<float>("empty").empty());
    // The same file, byte for byte, as that of the tests' own writer.
    support::gguf_writer other = support::copy_of(file);
    other.alignment = 64;
    const std::string bytes = text_of(path);
    CHECK(other.bytes() == bytes.substr(0, other.bytes().size()));
}

TEST_CASE("gguf: what a file cannot have is refused, and an earlier file stays") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "some.gguf";
    std::vector<float> numbers(64, 1.0f);
    const auto tensor = [&](const std::string& name, type t = type::f32, std::vector<ht::extent> shape = {2, 32}) {
        return ht::gguf_source::of(name, t, std::move(shape), numbers);
    };
    ht::write_gguf(path, {}, {tensor("x")});
    const std::string before = text_of(path);
    const auto said = [&](const ht::gguf_keys& keys, const std::vector<ht::gguf_source>& tensors) {
        return message_of([&] { ht::write_gguf(path, keys, tensors); });
    };
    CHECK(said({}, {tensor("x"), tensor("x")}) == "write_gguf: has the tensor 'x' twice");
    CHECK(said({}, {tensor(std::string(64, 'n'))}).ends_with("' of 64 bytes; expected 1 to 63, none of them 0"));
    CHECK(said({}, {tensor("x", type::f32, {2, 2, 2, 2, 4})}) == "write_gguf: 'x' has 5 axes; expected at most 4");
    CHECK(said({}, {tensor("x", type::q8_0, {4, 16})}) ==
          "write_gguf: 'x' has rows of 16 elements; expected a multiple of the 32 of Q8_0");
    CHECK(said({}, {tensor("x", static_cast<type>(4))}) ==
          "write_gguf: 'x' is of type 4, which ggml 0.12 does not have");
    CHECK(said({}, {tensor("x", type::mxfp4)}) == "write_gguf: x of type MXFP4; expected F32, F16, BF16, Q8_0 or Q4_0");
    CHECK(said({{"", ht::gguf_value_of(1)}}, {}) == "write_gguf: a key of 0 bytes; expected 1 to 65535");
    CHECK(said({{"general.alignment", ht::gguf_value_of(24)}}, {}) ==
          "write_gguf: general.alignment is 24; expected a power of 2, at most 2^30");
    CHECK(said({{"general.alignment", ht::gguf_value_of("x")}}, {}) ==
          "write_gguf: general.alignment is text; expected an integer below 2^63");
    for (const auto& [t, x] : {std::pair{type::q8_0, 8321100.0f}, std::pair{type::q4_0, -524200.0f},
                               std::pair{type::f16, 65520.0f}, std::pair{type::bf16, std::numeric_limits<float>::max()},
                               std::pair{type::q8_0, std::numeric_limits<float>::infinity()},
                               std::pair{type::q4_0, std::numeric_limits<float>::quiet_NaN()}}) {
        numbers[40] = x;
        CHECK(said({}, {tensor("x", t)}).find(std::string(", which ") + ht::name(t) + " does not hold") !=
              std::string::npos);
    }
    for (const auto& [t, x] : {std::pair{type::q8_0, 8321000.0f}, std::pair{type::q4_0, -524000.0f}}) {
        numbers[40] = x;
        std::byte blocks[68];
        ht::detail::ggml_bytes_of("it", t, numbers.data(), 64, blocks);
        float back[64];
        ht::detail::dequantise(t, blocks, 64, back);
        CHECK(std::isfinite(back[40]));
    }
    numbers[40] = 1;
    CHECK(message_of([&] { tensor("x", type::f32, {3, 32}); }) == "gguf_source: 64 values for x, which is (3, 32)");
    ht::gguf_source failing = tensor("x");
    failing.read = [](std::byte*, std::size_t, std::size_t) { throw ht::io_error("stop"); };
    CHECK(said({}, {failing}) == "stop");
    CHECK(text_of(path) == before);
    CHECK(!fs::exists(folder.path() / "some.gguf.part"));
    if (fs::exists("/dev/full")) {
        fs::create_symlink("/dev/full", folder.path() / "some.gguf.part");
        CHECK(said({}, {tensor("x")}).starts_with("io: cannot write "));
        CHECK(text_of(path) == before);
    } else {
        MESSAGE("not checked: a full disk (there is no /dev/full)");
    }
}

/// Calls f(model) with a model of a file's, or folder's, sizes, loaded from it.
template <class P = ht::full_fp32, class F>
void with_model(const fs::path& from, const F& f) {
    ht::cpu device{{.threads = 1}};
    const auto call = [&]<ht::nn::qk_norm Norm>() {
        ht::nn::llama<P, Norm> model{device, ht::read_llama_config(from)};
        ht::load_pretrained(model, from);
        f(model);
    };
    ht::read_model_type(from) == "qwen3" ? call.template operator()<ht::nn::qk_norm::rms>()
                                         : call.template operator()<ht::nn::qk_norm::none>();
}

TEST_CASE("gguf: models of the gguf package's files are saved with the same bytes") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "saved.gguf";
    int tensors = 0;
    for (const char* const name : {"llama", "llama3", "qwen2", "qwen3"}) {
        for (const type t : written_types) {
            const fs::path from = golden / "gguf_files" / (std::string(name) + '-' + ht::name(t) + ".gguf");
            CAPTURE(from.string());
            with_model(from, [&](const auto& model) { ht::save_gguf(model, path, {.like = from, .type = t}); });
            const ht::gguf_file saved(path), first(from);
            REQUIRE(saved.tensors().size() == first.tensors().size());
            for (const ht::gguf_tensor& expected : first.tensors()) {
                CAPTURE(expected.name);
                const ht::gguf_tensor* const found = saved.find(expected.name);
                REQUIRE(found != nullptr);
                CHECK(found->type == expected.type);
                CHECK(found->shape == expected.shape);
                REQUIRE(found->bytes == expected.bytes);
                if (expected.name == "rope_freqs.weight") {
                    const auto ours = saved.read<float>(expected.name), theirs = first.read<float>(expected.name);
                    for (std::size_t i = 0; i < ours.size(); ++i)
                        CHECK(std::abs(ours[i] - theirs[i]) <= 1e-6f * theirs[i]);
                    continue;
                }
                std::vector<std::byte> ours(static_cast<std::size_t>(found->bytes)), theirs(ours.size());
                saved.read(*found, ours.data());
                first.read(expected, theirs.data());
                CHECK(ours == theirs);
                ++tensors;
            }
            // Keys that both have are equal, and llama.cpp's that the package was not told are there.
            for (const auto& [key, value] : first.metadata().values()) {
                if (const auto& all = saved.metadata().values(); all.count(key) != 0) {
                    const std::string& shown = key;
                    CAPTURE(shown);
                    CHECK(all.at(key).bytes == value.bytes);
                    CHECK(all.at(key).texts == value.texts);
                } else {
                    CHECK((key.ends_with("attention.key_length") || key.ends_with("attention.value_length")));
                    CHECK(first.metadata().integer(key) * first.metadata().integer("llama.attention.head_count") ==
                          first.metadata().integer("llama.embedding_length"));
                }
            }
            CHECK(saved.metadata().integer("general.file_type") == (t == type::f32    ? 0
                                                                    : t == type::f16  ? 1
                                                                    : t == type::bf16 ? 32
                                                                    : t == type::q8_0 ? 7
                                                                                      : 2));
            CHECK(saved.metadata().integer("general.quantization_version") == 2);
        }
    }
    CHECK(tensors == 5 * (21 + 20 + 26 + 24));
}

TEST_CASE("gguf: a model of a folder is read back with its numbers, its tokenizer, its ends and its template") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "saved.gguf", again = folder.path() / "again.gguf";
    const auto texts = json::parse(text_of(golden / "tokenizers" / "texts.json")).get<std::vector<std::string>>();
    for (const char* const name : {"llama3", "qwen2", "qwen3"}) {
        CAPTURE(name);
        const fs::path from = golden / "chat_models" / name;
        with_model(from, [&](const auto& model) {
            ht::save_gguf(model, path, {.like = from, .type = type::f32});
            const std::vector<float> expected = values_of(model.parameters());
            with_model(path, [&](const auto& back) { CHECK(values_of(back.parameters()) == expected); });
            ht::save_gguf(model, path, {.like = from / "config.json", .type = type::bf16, .name = "it"});
            // The numbers of this folder are bfloat16, which such a file holds.
            if (std::string(name) == "llama3")
                with_model(path, [&](const auto& back) { CHECK(values_of(back.parameters()) == expected); });
        });
        const ht::gguf_file file(path);
        const ht::gguf_tokenizer keys = ht::read_gguf_tokenizer(file.metadata());
        CHECK(file.metadata().text("general.name") == "it");
        CHECK(file.metadata().integer(ht::read_model_type(path) + ".context_length") == 512);
        CHECK(keys.tokens.size() == 384);
        CHECK(keys.tokens.back() == "[PAD383]");
        CHECK(keys.token_type.back() == 5);
        CHECK(keys.add_bos == (std::string(name) == "llama3"));
        CHECK(keys.add_eos == false);
        CHECK(keys.padding.has_value());
        CHECK(ht::read_chat_template(path) == ht::read_chat_template(from));
        CHECK(keys.chat_template == ht::detail::chat_program_of_folder(from));
        const auto ends = [](const fs::path& of) {
            const auto all = ht::read_generation_options(of).eos;
            return std::set<std::int32_t>(all.begin(), all.end());
        };
        CHECK(ends(path) == ends(from));
        const auto ours = ht::tokenizer::from_file(path), theirs = ht::tokenizer::from_file(from);
        for (const std::string& text : texts) {
            CAPTURE(text);
            CHECK(ours.encode(text) == theirs.encode(text));
            CHECK(ours.encode(text, {.allow_special = true}) == theirs.encode(text, {.allow_special = true}));
        }
        // The keys of the tokenizer and the name go on from file to file.
        with_model(path, [&](const auto& model) { ht::save_gguf(model, again, {.like = path, .type = type::bf16}); });
        CHECK(text_of(again) == text_of(path));
    }
    const ht::gguf_tokenizer llama3 = [&] {
        with_model(golden / "chat_models" / "llama3",
                   [&](const auto& model) { ht::save_gguf(model, path, {.like = golden / "chat_models" / "llama3"}); });
        return ht::read_gguf_tokenizer(ht::gguf_file(path).metadata());
    }();
    CHECK(ht::gguf_file(path).metadata().text("general.name") == "llama3");
    CHECK(llama3.pre == "llama-bpe");
    CHECK(llama3.bos == 368);
    CHECK(llama3.eos == 373);
    CHECK(llama3.eot == 369);
    CHECK(llama3.eom == 372);
    CHECK(llama3.padding == 369);
    CHECK(llama3.token_type[373] == 3);
}

TEST_CASE("gguf: types of tensors: vectors are F32, rows that are no blocks F16, a head has its own") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "model.gguf";
    ht::cpu device{{.threads = 1}};
    ht::nn::llama_config c{.vocab_size = 40,
                           .hidden_size = 64,
                           .intermediate_size = 48,
                           .num_hidden_layers = 1,
                           .num_attention_heads = 2,
                           .head_dim = 24,
                           .max_position_embeddings = 16};
    const auto saved = [&](const ht::save_gguf_options& options) {
        const ht::nn::llama<ht::full_fp32> model{device, c, 5};
        ht::save_gguf(model, path, options);
        with_model(path, [](const auto&) {});
        return ht::gguf_file(path);
    };
    const ht::gguf_file q = saved({.type = type::q4_0, .head_type = type::q8_0});
    CHECK(q.find("blk.0.attn_q.weight")->type == type::q4_0);
    CHECK(q.find("blk.0.attn_output.weight")->type == type::f16);  // rows of 48
    CHECK(q.find("blk.0.ffn_down.weight")->type == type::f16);
    CHECK(q.find("blk.0.attn_norm.weight")->type == type::f32);
    CHECK(q.find("token_embd.weight")->type == type::q4_0);
    CHECK(q.find("output.weight")->type == type::q8_0);
    CHECK(q.metadata().integer("llama.attention.key_length") == 24);
    CHECK(q.metadata().integer("llama.attention.value_length") == 24);
    CHECK(q.metadata().integer("llama.context_length") == 16);
    CHECK(q.metadata().text("tokenizer.ggml.model") == "no_vocab");
    CHECK(!q.metadata().has("general.name"));
    c.tie_word_embeddings = true;
    const ht::gguf_file tied = saved({.type = type::bf16, .head_type = type::f32, .name = "it"});
    CHECK(tied.find("token_embd.weight")->type == type::f32);
    CHECK(tied.find("output.weight") == nullptr);
    CHECK(tied.metadata().text("general.name") == "it");
    // Of masters of 16 bits F32 and their own type hold all.
    const ht::nn::llama<ht::pure_bf16> narrow{device, c, 5};
    for (const type t : {type::f32, type::bf16}) {
        ht::save_gguf(narrow, path, {.type = t});
        ht::nn::llama<ht::pure_bf16> back{device, ht::read_llama_config(path), 6};
        ht::load_pretrained(back, path);
        const auto bytes_of = [](const auto& model) {
            const ht::store& s = model.parameters();
            ht::detail::value_reader read(s);
            std::vector<std::byte> all;
            for (std::size_t i = 0; i < s.entries().size(); ++i) {
                const std::size_t bytes =
                    s.entries()[i].count *
                    ht::detail::saved_type(s.groups()[s.entries()[i].group], s.entries()[i]).bytes;
                all.resize(all.size() + bytes);
                read(i, 0, s.entries()[i].count, all.data() + all.size() - bytes);
            }
            return all;
        };
        CHECK(bytes_of(back) == bytes_of(narrow));
    }
}

/// Sets all values of a parameter.
void set_all(ht::store& parameters, const std::string& path, float x) {
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        if (parameters.entries()[i].path != path) continue;
        const std::vector<float> values(parameters.entries()[i].count, x);
        parameters.write(i, 0, reinterpret_cast<const std::byte*>(values.data()), values.size());
    }
    parameters.refresh();
}

TEST_CASE("gguf: models that cannot be saved are refused, and an earlier file stays") {
    const support::temporary_folder folder;
    const auto path = folder.write("model.gguf", "before");
    ht::cpu device{{.threads = 1}};
    const ht::nn::llama_config c{.vocab_size = 40,
                                 .hidden_size = 32,
                                 .intermediate_size = 32,
                                 .num_hidden_layers = 1,
                                 .num_attention_heads = 2,
                                 .max_position_embeddings = 16};
    ht::nn::llama<ht::full_fp32> model{device, c, 5};
    const auto said = [&](const auto& of, const ht::save_gguf_options& options) {
        const std::string message = message_of([&] { ht::save_gguf(of, path, options); });
        CHECK(text_of(path) == "before");
        CHECK(!fs::exists(folder.path() / "model.gguf.part"));
        return message;
    };
    CHECK(said(model, {.type = type::mxfp4}) ==
          "save_gguf: token_embd.weight of type MXFP4; expected F32, F16, BF16, Q8_0 or Q4_0");
    CHECK(said(model, {.head_type = type::q4_1}) ==
          "save_gguf: output.weight of type Q4_1; expected F32, F16, BF16, Q8_0 or Q4_0");
    set_all(model.parameters(), "h.0.mlp.down.weight", 1e6f);
    CHECK(said(model, {}) == "save_gguf: blk.0.ffn_down.weight has 1e+06, which F16 does not hold");
    CHECK(said(model, {.type = type::q4_0}) == "save_gguf: blk.0.ffn_down.weight has 1e+06, which Q4_0 does not hold");
    // Others of another model, or of another architecture.
    const auto of_another = [&](const fs::path& like) { return said(model, {.like = like}); };
    CHECK(of_another(golden / "chat_models" / "llama3")
              .find("config.json is of another model: vocab_size is 384, not 40; ") != std::string::npos);
    CHECK(of_another(golden / "gguf_files" / "llama-F32.gguf").find("llama-F32.gguf is of another model: ") !=
          std::string::npos);
    CHECK(of_another(golden / "chat_models" / "qwen2").ends_with("config.json is a qwen2, the model a llama"));
    CHECK(
        of_another(golden / "gguf_files" / "qwen3-F32.gguf").ends_with("qwen3-F32.gguf is a qwen3, the model a llama"));
    CHECK(of_another(folder.path() / "none").starts_with("io: there is no "));
    ht::nn::llama_config odd = c;
    odd.attention_bias = true;
    CHECK(said(ht::nn::qwen3<ht::full_fp32>{device, odd}, {}) ==
          "save_gguf: norms of queries and keys together with biases are no model of llama.cpp");
    odd.rope_scaling.factor = 8;
    CHECK(said(ht::nn::llama<ht::full_fp32>{device, odd}, {}) ==
          "save_gguf: Llama 3's scaling of the angles in a qwen2, which llama.cpp computes for the architecture llama "
          "alone");
    // Adapters, until they are merged.
    const ht::add_adapters added{device, {.rank = 2}};
    ht::nn::llama<ht::lora<ht::full_fp32, ht::full_fp32>> adapted{device, c, 5};
    CHECK(said(adapted, {}).starts_with("save_gguf: the model has adapters, which are no part of its file: "));
    ht::merge_adapters(adapted);
    ht::save_gguf(adapted, path, {.type = type::f32});
    CHECK(ht::gguf_file(path).tensors().size() == 12);
}

}  // namespace io_gguf_save_tests
