// SPDX-License-Identifier: MIT
/// \file
/// GGUF files (golden/gguf_files, golden/gguf_files.py): their numbers have the bits of the gguf package's dequantiser, models transformers'
/// logits, and every lie of a header, and every model that is not computed, is refused in a sentence.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>

#include <doctest/doctest.h>

#include <halftone/io/crc32.hpp>
#include <halftone/io/pretrained.hpp>

#include "io/gguf_writer.hpp"
#include "io/pretrained_checks.hpp"
#include "nn/llama_checks.hpp"
#include "support/temporary_folder.hpp"

namespace io_gguf_tests {

namespace ht = halftone;
using pretrained_checks::message_of, pretrained_checks::text_of;
using support::gguf_writer;
using value = ht::gguf_value_type;

const std::filesystem::path files = std::filesystem::path(HALFTONE_TEST_DATA) / "gguf_files";

std::uint32_t sum_of(const void* bytes, std::size_t count) {
    ht::detail::crc32 sum;
    sum.add(bytes, count);
    return sum.value();
}

TEST_CASE("gguf: numbers have the bits of the gguf package's dequantiser, in every type") {
    std::size_t tensors = 0, scales = 0;
    std::string file;
    for (const support::golden_line& line : support::read_golden("gguf_files.txt")) {
        if (line.kind == "case") file = line.words[0] + '-' + line.words[1] + ".gguf";
        if (line.kind == "tensor") {
            CAPTURE(file);
            CAPTURE(line.words[0]);
            const ht::gguf_file opened(files / file);
            const ht::gguf_tensor* const t = opened.find(line.words[0]);
            REQUIRE(t != nullptr);
            CHECK(ht::name(t->type) == line.words[1]);
            const std::vector<float> all = opened.read<float>(line.words[0]);
            CHECK(sum_of(all.data(), all.size() * sizeof(float)) == std::stoul(line.words[2]));
            // A slice of rows has the numbers of the whole.
            if (t->shape.size() == 2 && ht::converted_type(t->type) == ht::dtype::f32) {
                const auto width = static_cast<std::size_t>(t->shape[1]);
                std::vector<float> rows(2 * width);
                opened.read(*t, 3 * width, 2 * width, rows.data());
                CHECK(std::equal(rows.begin(), rows.end(), all.begin() + static_cast<std::ptrdiff_t>(3 * width)));
            }
            ++tensors;
        }
        if (line.kind == "scale") {
            std::array<std::byte, 17> block{};
            block[0] = static_cast<std::byte>(std::stoi(line.words[0]));
            for (int c = 0; c < 16; ++c) block[static_cast<std::size_t>(c + 1)] = static_cast<std::byte>(c | c << 4);
            float of_block[32];
            ht::detail::dequantise(ht::ggml_type::mxfp4, block.data(), 32, of_block);
            CHECK(sum_of(of_block, sizeof of_block) == std::stoul(line.words[1]));
            ++scales;
        }
    }
    CHECK(tensors == 6 * (21 + 20 + 26 + 24));
    CHECK(scales == 255);
}

TEST_CASE("gguf: MXFP4 has OCP's numbers for all codes") {
    constexpr double numbers[8]{0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (int scale = 0; scale < 256; ++scale) {
        for (int low = 0; low < 16; ++low) {
            const int high = 15 - low;
            std::array<std::byte, 17> block;
            block.fill(static_cast<std::byte>(low | high << 4));
            block[0] = static_cast<std::byte>(scale);
            float of_block[32];
            ht::detail::dequantise(ht::ggml_type::mxfp4, block.data(), 32, of_block);
            for (int i = 0; i < 32; ++i) {
                const int code = i < 16 ? low : high;
                const double expected = std::ldexp(code < 8 ? numbers[code] : -numbers[code - 8], scale - 127);
                if (scale == 255) {
                    CHECK(std::isnan(of_block[i]));
                } else if (std::abs(expected) >= std::ldexp(1.0, 128)) {
                    CHECK(of_block[i] ==
                          std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(expected)));
                } else {
                    CHECK(static_cast<double>(of_block[i]) == expected);
                }
            }
        }
    }
}

ht::nn::llama_config config_of(const std::string& name) {
    ht::nn::llama_config c{.vocab_size = 32,
                           .hidden_size = 32,
                           .intermediate_size = 32,
                           .num_hidden_layers = 2,
                           .num_attention_heads = 4,
                           .num_key_value_heads = 2,
                           .head_dim = 8,
                           .max_position_embeddings = 64};
    c.rms_norm_eps = name.starts_with("qwen") ? 1e-6f : 1e-5f;
    c.rope_theta = name == "llama" ? 20000 : name == "llama3" ? 500000 : 1000000;
    if (name == "llama3" || name == "qwen3") c.head_dim = 16;
    if (name == "llama3")
        c.rope_scaling = {.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_context = 128};
    c.tie_word_embeddings = name != "llama";
    c.attention_bias = name == "qwen2";
    return c;
}

template <class P, ht::nn::qk_norm Norm>
std::vector<double> logits_of(const std::filesystem::path& path, const ht::nn::llama_config& c,
                              std::vector<std::int32_t> tokens) {
    ht::cpu device{{.threads = 1}};
    ht::nn::llama<P, Norm> model{device, c};
    ht::load_pretrained(model, path);
    ht::inference eval{device};
    const ht::const_view<std::int32_t, 2> row{tokens.data(), {1, static_cast<ht::extent>(tokens.size())}};
    return support::doubles(model.logits(eval, row).view());
}

TEST_CASE("gguf: models have transformers' logits, and the configuration that they were made with") {
    std::string name, type;
    std::vector<std::int32_t> tokens;
    int models = 0;
    for (const support::golden_line& line : support::read_golden("gguf_files.txt")) {
        if (line.kind == "case") name = line.words[0], type = line.words[1];
        if (line.kind == "tokens") {
            tokens.clear();
            for (const std::string& word : line.words) tokens.push_back(std::stoi(word));
        }
        if (line.kind != "logits") continue;
        CAPTURE(name);
        CAPTURE(type);
        const std::filesystem::path path = files / (name + '-' + type + ".gguf");
        std::vector<double> expected;
        for (std::size_t i = 0; i < line.words.size(); ++i) expected.push_back(line.number(i));
        CHECK(ht::read_model_type(path) == (name == "llama3" ? "llama" : name));
        const ht::nn::llama_config c = ht::read_llama_config(path);
        ht::detail::check_llama_sizes("file", {config_of(name), ht::read_model_type(path)}, c, name == "qwen3", 0);
        CHECK(c.max_position_embeddings == 64);
        const auto of = [&]<class P>() {
            return name == "qwen3" ? logits_of<P, ht::nn::qk_norm::rms>(path, c, tokens)
                                   : logits_of<P, ht::nn::qk_norm::none>(path, c, tokens);
        };
        CHECK(golden_model::off(of.operator()<ht::full_fp32>(), expected) <= 1e-5);
        // The same masters, used in bfloat16.
        CHECK(golden_model::off(of.operator()<ht::amp_bf16>(), expected) <= 0.02);
        ++models;
    }
    CHECK(models == 24);
}

std::vector<float> values_of(const ht::store& parameters, const std::string& path) {
    for (const ht::store::entry& e : parameters.entries()) {
        if (e.path != path) continue;
        std::vector<float> values(e.count);
        std::vector<std::byte> own(e.count * sizeof(float));
        ht::detail::read_values(parameters, e, 0, e.count, own.data());
        ht::detail::convert_from(ht::detail::saved_type(parameters.groups()[e.group], e), own.data(), ht::dtype::f32,
                                 reinterpret_cast<std::byte*>(values.data()), e.count);
        return values;
    }
    FAIL("no parameter " << path);
    return {};
}

TEST_CASE("gguf: numbers become those of a policy's masters, each rounded once") {
    ht::cpu device{{.threads = 1}};
    for (const char* const type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "MXFP4"}) {
        CAPTURE(type);
        const auto path = files / (std::string("qwen2-") + type + ".gguf");
        ht::nn::llama<ht::full_fp32> wide{device, ht::read_llama_config(path)};
        ht::nn::llama<ht::pure_bf16> narrow{device, wide.config()};
        ht::load_pretrained(wide, path);
        ht::load_pretrained(narrow, path);
        const ht::gguf_file opened(path);
        const auto exact = opened.read<float>("blk.1.ffn_down.weight");
        CHECK(values_of(wide.parameters(), "h.1.mlp.down.weight") == exact);
        const auto rounded = values_of(narrow.parameters(), "h.1.mlp.down.weight");
        const auto by_file = opened.read<ht::bfloat16>("blk.1.ffn_down.weight");
        for (std::size_t i = 0; i < exact.size(); ++i) {
            CHECK(rounded[i] == static_cast<float>(ht::bfloat16(exact[i])));
            CHECK(static_cast<float>(by_file[i]) == rounded[i]);
        }
    }
}

TEST_CASE("gguf: the folder that a file's model is saved as has the numbers of its configuration, not their float32") {
    ht::cpu device{{.threads = 1}};
    const auto path = files / "qwen2-Q8_0.gguf";
    ht::nn::llama<ht::pure_bf16> model{device, ht::read_llama_config(path)};
    ht::load_pretrained(model, path);
    const support::temporary_folder folder;
    ht::save_pretrained(model, folder.path());
    const auto config = nlohmann::json::parse(text_of(folder.path() / "config.json"));
    CHECK(config["rms_norm_eps"] == 1e-6);
    CHECK(config["rope_parameters"]["rope_theta"] == 1e6);
    CHECK(config["model_type"] == "qwen2");
    ht::nn::llama<ht::pure_bf16> again{device, ht::read_llama_config(folder.path()), 3};
    ht::load_pretrained(again, folder.path());
    CHECK(values_of(again.parameters(), "h.1.mlp.down.weight") == values_of(model.parameters(), "h.1.mlp.down.weight"));
}

TEST_CASE("gguf: a part of a tensor's numbers are those of the whole, wherever it begins and ends") {
    for (const char* const type : {"F32", "BF16", "Q8_0", "MXFP4"}) {
        CAPTURE(type);
        const ht::detail::llama_gguf_tensors model(files / (std::string("llama3-") + type + ".gguf"));
        for (const char* const name :
             {"blk.0.attn_q.weight", "blk.1.attn_k.weight", "blk.0.attn_v.weight", "output_norm.weight"}) {
            CAPTURE(name);
            const ht::tensor_info& t = *model.find(name);
            const std::size_t each = ht::size_of(t.type);
            std::vector<std::byte> whole(static_cast<std::size_t>(t.bytes));
            model.read(t, whole.data());
            for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>{0, 1},
                                               {5, 20},
                                               {31, 1},
                                               {7, 25},
                                               {0, t.count()},
                                               {t.count(), 0},
                                               {3, t.count() - 4},
                                               {t.count() / 2 + 1, t.count() / 2 - 1}}) {
                std::vector<std::byte> part(count * each);
                model.read(t, first * each, part.size(), part.data());
                CHECK(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first * each)));
            }
        }
    }
}

TEST_CASE("gguf: the keys of the tokenizer are plain data") {
    const ht::gguf_file file(files / "llama-Q8_0.gguf");
    CHECK(file.version() == 3);
    const ht::gguf_tokenizer t = ht::read_gguf_tokenizer(file.metadata());
    CHECK(t.model == "gpt2");
    CHECK(t.pre == "gpt-2");
    REQUIRE(t.tokens.size() == 32);
    CHECK(t.tokens[0] == "a");
    CHECK(t.tokens[26] == "\xc4\xa0");
    CHECK(t.token_type[30] == 3);
    CHECK(t.merges == std::vector<std::string>{"t h", "th e"});
    CHECK(t.scores.empty());
    CHECK(t.bos == 30);
    CHECK(t.eos == 31);
    CHECK(t.add_bos == false);
    CHECK(!t.eot);
    CHECK(!t.add_eos);
    CHECK(t.chat_template.empty());
    CHECK(message_of([&] {
              file.metadata().integer("tokenizer.ggml.model");
          }).ends_with("llama-Q8_0.gguf: tokenizer.ggml.model is text; expected an integer below 2^63"));
    CHECK(message_of([&] {
              file.metadata().texts("tokenizer.ggml.token_type");
          }).ends_with(": tokenizer.ggml.token_type is an array of 32 I32; expected an array of texts"));

    gguf_writer bare;
    bare.add("tokenizer.ggml.model", std::string("llama"));
    bare.add_texts("tokenizer.ggml.tokens", {"<unk>", "a"});
    bare.add_array("tokenizer.ggml.scores", value::f32, std::vector<float>{0, -1.5f});
    CHECK(ht::read_gguf_tokenizer(bare.header().metadata).scores == std::vector<double>{0, -1.5});
    CHECK(!ht::read_gguf_tokenizer(bare.header().metadata).bos);
    bare.add("tokenizer.ggml.bos_token_id", value::u32, std::uint32_t{2});
    CHECK(message_of([&] { ht::read_gguf_tokenizer(bare.header().metadata); }) ==
          "file: tokenizer.ggml.bos_token_id is 2; there are 2 tokens");
    bare.add("tokenizer.ggml.bos_token_id", value::u32, std::uint32_t{1});
    bare.add_array("tokenizer.ggml.token_type", value::i32, std::vector<std::int32_t>{1, 1, 1});
    CHECK(message_of([&] { ht::read_gguf_tokenizer(bare.header().metadata); }) ==
          "file: tokenizer.ggml.token_type has 3 elements, tokenizer.ggml.tokens 2");
}

/// A file with two keys and two tensors.
gguf_writer small() {
    gguf_writer w;
    w.add("general.architecture", std::string("llama"));
    w.add("a.flag", value::boolean, std::uint8_t{1});
    w.add_tensor("x", ht::ggml_type::f32, {2, 3}, std::string(24, '\1'));
    w.add_tensor("y", ht::ggml_type::q8_0, {1, 32}, std::string(34, '\2'));
    return w;
}
std::string said(const std::string& bytes) {
    return message_of<ht::gguf_error>([&] { support::parsed_gguf(bytes); });
}

TEST_CASE("gguf: what a header may say, and how") {
    gguf_writer w = small();
    w.version = 2;
    w.add("general.alignment", value::u32, std::uint32_t{64});
    const ht::detail::gguf_header h = w.header();
    CHECK(h.version == 2);
    CHECK(h.alignment == 64);
    REQUIRE(h.tensors.size() == 2);
    CHECK(h.tensors[0].shape == std::vector<ht::extent>{2, 3});
    CHECK(h.tensors[0].first % 64 == 0);
    CHECK(h.tensors[1].first == h.tensors[0].first + 64);
    CHECK(h.tensors[1].count() == 32);
    CHECK(h.metadata.flag("a.flag"));
    // The padding behind the last tensor may be absent, and what is behind it is nobody's.
    CHECK(said(w.bytes() + "more") == "no error");

    gguf_writer all;
    all.add("u8", value::u8, std::uint8_t{200});
    all.add("i8", value::i8, std::int8_t{-3});
    all.add("u16", value::u16, std::uint16_t{60000});
    all.add("i16", value::i16, std::int16_t{-4});
    all.add("i32", value::i32, std::int32_t{-5});
    all.add("u64", value::u64, std::uint64_t{1} << 62);
    all.add("i64", value::i64, std::int64_t{-6});
    all.add("f32", value::f32, 0.5f);
    all.add("f64", value::f64, 0.25);
    all.add("too large", value::u64, ~std::uint64_t{0});
    all.add("nan", value::f32, std::numeric_limits<float>::quiet_NaN());
    all.add_array("u16s", value::u16, std::vector<std::uint16_t>{7, 8});
    const ht::gguf_metadata keys = all.header().metadata;
    CHECK(keys.integer("u8") == 200);
    CHECK(keys.integer("i8") == -3);
    CHECK(keys.integer("u16") == 60000);
    CHECK(keys.integer("i16") == -4);
    CHECK(keys.integer("i32") == -5);
    CHECK(keys.integer("u64") == std::int64_t{1} << 62);
    CHECK(keys.integer("i64") == -6);
    CHECK(keys.number("f32") == 0.5);
    CHECK(keys.number("f64") == 0.25);
    CHECK(keys.number("i8") == -3);
    CHECK(keys.integer("absent", 9) == 9);
    CHECK(keys.integers("u16s") == std::vector<std::int64_t>{7, 8});
    CHECK(keys.numbers("absent").empty());
    CHECK(message_of([&] { keys.integer("absent"); }) == "file: absent is missing");
    CHECK(message_of([&] { keys.integer("too large"); }) == "file: too large is U64; expected an integer below 2^63");
    CHECK(message_of([&] { keys.number("nan"); }) == "file: nan is F32; expected a finite number");
    CHECK(message_of([&] { keys.flag("u8"); }) == "file: u8 is U8; expected a bool");
    CHECK(message_of([&] { keys.integer("u16s"); }) ==
          "file: u16s is an array of 2 U16; expected an integer below 2^63");
}

TEST_CASE("gguf: a header that lies is refused in one sentence") {
    const std::string good = small().bytes();
    REQUIRE(said(good) == "no error");
    // Cut at any byte.
    for (std::size_t n = 0; n < good.size(); ++n) {
        const std::string message = said(good.substr(0, n));
        CAPTURE(n);
        CHECK((n < 24 ? message.ends_with("; expected 24 or more, a GGUF file's header")
                      : message.ends_with("it is truncated")));
    }
    CHECK(said("GGML" + good.substr(4)) == "file: does not begin as a GGUF file does");
    CHECK(said("GGUF" + std::string("\1\0\0\0", 4) + good.substr(8)) == "file: version 1; expected 2 or 3");
    CHECK(said("GGUF" + std::string("\0\0\0\3", 4) + good.substr(8)) ==
          "file: a big-endian file; expected a little-endian one");
    // Counts and lengths beyond the file, before anything is allocated.
    const std::string ends =
        "file: ends at byte " + std::to_string(good.size()) + ", within its header: it is truncated";
    const auto with = [&](std::size_t at, std::uint64_t number) {
        std::string bytes = good;
        std::memcpy(bytes.data() + at, &number, sizeof number);
        return said(bytes);
    };
    for (const std::uint64_t count : {std::uint64_t{1} << 20, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
        CHECK(with(8, count) == ends);   // tensors
        CHECK(with(16, count) == ends);  // keys
        CHECK(with(24, count) == ends);  // the first key's length
    }
    CHECK(with(24, 0) == "file: a key of 0 bytes; expected 1 to 65535");

    const auto changed = [](const auto& change) {
        gguf_writer w = small();
        change(w);
        return said(w.bytes());
    };
    CHECK(changed([](gguf_writer& w) { w.keys.push_back(w.keys.front()); }) ==
          "file: has the key 'general.architecture' twice");
    CHECK(changed([](gguf_writer& w) { w.add("a.flag", value::boolean, std::uint8_t{2}); }) ==
          "file: a.flag has a bool that is neither 0 nor 1");
    CHECK(changed([](gguf_writer& w) { w.add("odd", static_cast<value>(13), 0); }) ==
          "file: odd has a value of type 13; expected 0 to 12");
    CHECK(changed([](gguf_writer& w) {
              w.add_array("odd", value::array, std::vector<std::uint64_t>{1, 2, 3});
          }) == "file: odd is an array of arrays");
    CHECK(changed([](gguf_writer& w) { w.add("general.alignment", value::u32, std::uint32_t{24}); }) ==
          "file: general.alignment is 24; expected a power of 2, at most 2^30");
    CHECK(changed([](gguf_writer& w) {
              w.add("general.alignment", value::u32, std::uint32_t{0});
          }).starts_with("file: general.alignment is 0; "));
    CHECK(changed([](gguf_writer& w) { w.tensors[1].name = "x"; }) == "file: has the tensor 'x' twice");
    CHECK(changed([](gguf_writer& w) { w.tensors[1].name = ""; }) ==
          "file: a tensor's name is '' of 0 bytes; expected 1 to 63, none of them 0");
    CHECK(changed([](gguf_writer& w) {
              w.tensors[1].name = std::string(64, 'n');
          }).ends_with("' of 64 bytes; expected 1 to 63, none of them 0"));
    CHECK(changed([](gguf_writer& w) {
              w.tensors[1].extents = {1, 1, 1, 1, 1};
          }) == "file: 'y' has 5 axes; expected at most 4");
    CHECK(changed([](gguf_writer& w) {
              w.tensors[1].extents = {33, 1};
          }) == "file: 'y' has rows of 33 elements; expected a multiple of the 32 of Q8_0");
    CHECK(changed([](gguf_writer& w) { w.tensors[1].extents = {}; }) ==
          "file: 'y' has rows of 1 elements; expected a multiple of the 32 of Q8_0");
    CHECK(changed([](gguf_writer& w) { w.tensors[0].extents = {~std::uint64_t{0}}; }) ==
          "file: 'x' has an extent of 18446744073709551615; expected less than 2^63");
    CHECK(changed([](gguf_writer& w) {
              w.tensors[0].extents = {std::uint64_t{1} << 40, std::uint64_t{1} << 40};
          }) == "file: 'x': (1099511627776, 1099511627776) has more elements than fit in memory");
    CHECK(changed([](gguf_writer& w) { w.tensors[1].type = 4; }) ==
          "file: 'y' is of type 4, which ggml 0.12 does not have");
    CHECK(changed([](gguf_writer& w) { w.tensors[1].first = 33; }) ==
          "file: 'y' begins at 33, which is no multiple of the alignment, 32");
    CHECK(changed([](gguf_writer& w) { w.tensors[1].first = 0; }) ==
          "file: 'y' begins at 0, inside of another tensor, which ends at 24");
    CHECK(changed([](gguf_writer& w) { w.tensors[1].first = 64; }) == "file: 'y' begins at 64, behind a gap from 24");
    CHECK(changed([](gguf_writer& w) { w.tensors[1].extents = {32, 2}; }).ends_with(" bytes: it is truncated"));
    CHECK(changed([](gguf_writer& w) {
              w.tensors[1].extents = {std::uint64_t{1} << 55};
          }).ends_with(" bytes: it is truncated"));
}

TEST_CASE("gguf: a tensor of another type does not keep the others from being read") {
    const support::temporary_folder folder;
    gguf_writer w = small();
    w.add_tensor("z", ht::ggml_type::q4_k, {1, 256}, std::string(144, '\3'));
    w.add_tensor("m", ht::ggml_type::mxfp4, {1, 32}, std::string(17, '\xff'));
    const ht::gguf_file file(folder.write("some.gguf", w.bytes()));
    CHECK(file.read<float>("x").size() == 6);
    CHECK(file.find("z")->count() == 256);
    float numbers[32];
    CHECK(message_of([&] { file.read(*file.find("y"), 0, 16, numbers); }) ==
          "gguf_file: 16 numbers from 0 on of 32; expected multiples of 32 within them");
    CHECK(message_of([&] {
              file.read(*file.find("x"), 4, 3, numbers);
          }).starts_with("gguf_file: 3 numbers from 4 on of 6; "));
    file.read(*file.find("x"), 4, 2, numbers);
    CHECK(numbers[1] == file.read<float>("x")[5]);
    CHECK(
        message_of([&] { file.read<float>("z"); })
            .ends_with(
                "some.gguf: 'z' is Q4_K, which halftone does not read; expected F32, F16, BF16, Q8_0, Q4_0 or MXFP4"));
    CHECK(message_of([&] {
              file.read<float>("m");
          }).ends_with("some.gguf: 'm' has scales with numbers beyond float's largest, or NaN"));
    CHECK(message_of([&] { file.read<float>("none"); }).ends_with("some.gguf: there is no 'none'"));
    CHECK(message_of([&] { ht::gguf_file(folder.path() / "none.gguf"); }).starts_with("io: there is no "));
    CHECK(message_of([&] { ht::read_llama_config(folder.path() / "none.gguf"); }).starts_with("io: there is no "));
}

/// A llama of one layer without most of its tensors, of which keys are changed.
struct changed_model {
    std::shared_ptr<support::temporary_folder> folder = std::make_shared<support::temporary_folder>();
    gguf_writer writer;

    explicit changed_model(const std::string& architecture = "llama") {
        writer.add("general.architecture", architecture);
        for (const auto& [key, number] : {std::pair<const char*, std::uint32_t>{"block_count", 1},
                                          {"context_length", 64},
                                          {"embedding_length", 32},
                                          {"feed_forward_length", 32},
                                          {"attention.head_count", 4}})
            writer.add(architecture + '.' + key, value::u32, number);
        writer.add(architecture + ".attention.layer_norm_rms_epsilon", value::f32, 1e-5f);
        writer.add_tensor("token_embd.weight", ht::ggml_type::f32, {4, 32}, std::string(4 * 32 * 4, '\0'));
    }
    /// What reading its configuration throws, behind the file's name.
    std::string said(const ht::read_llama_options& options = {}) {
        const auto file = folder->write("model.gguf", writer.bytes());
        const std::string message = message_of<ht::gguf_error>([&] { ht::read_llama_config(file, options); });
        const auto at = message.find("model.gguf: ");
        return at == std::string::npos ? message : message.substr(at + 12);
    }
    template <class T>
    std::string said(const std::string& key, value type, T x) const {
        changed_model other = *this;
        other.writer.add(key, type, x);
        return other.said();
    }
    std::string said(const std::string& key, const std::string& text) const {
        changed_model other = *this;
        other.writer.add(key, text);
        return other.said();
    }
    std::string without(const std::string& key) const {
        changed_model other = *this;
        other.writer.remove(key);
        return other.said();
    }
};

TEST_CASE("gguf: what halftone does not compute is refused by the name of the key") {
    changed_model m;
    CHECK(m.said() == "no error");
    const ht::nn::llama_config c = ht::read_llama_config(m.folder->path() / "model.gguf", {.context = 16});
    CHECK(c.num_key_value_heads == 4);
    CHECK(c.head_dim == 8);
    CHECK(c.rope_theta == 10000);
    CHECK(c.max_position_embeddings == 16);
    CHECK(c.vocab_size == 4);
    CHECK(m.said("general.architecture", "gemma3") ==
          R"(general.architecture is "gemma3"; expected "llama", "qwen2" or "qwen3")");
    CHECK(m.without("general.architecture") == "general.architecture is missing");
    CHECK(m.said("general.type", "adapter") == R"(general.type is "adapter"; expected "model")");
    CHECK(m.said("split.count", value::u16, std::uint16_t{3}) == "split.count is 3; expected a model in one file");
    CHECK(m.said("split.count", value::u16, std::uint16_t{1}) == "no error");
    for (const char* const key : {"block_count", "context_length", "embedding_length", "feed_forward_length",
                                  "attention.head_count", "attention.layer_norm_rms_epsilon"})
        CHECK(m.without(std::string("llama.") + key) == std::string("llama.") + key + " is missing");
    CHECK(m.said("llama.block_count", value::u32, std::uint32_t{0}) == "llama.block_count is 0; expected 1 to 65536");
    CHECK(m.said("llama.embedding_length", value::i64, std::int64_t{-32}) ==
          "llama.embedding_length is -32; expected 1 to 16777216");
    CHECK(m.said("llama.block_count", value::f32, 1.0f) == "llama.block_count is F32; expected an integer below 2^63");
    CHECK(m.said("llama.vocab_size", value::u32, std::uint32_t{5}) ==
          "llama.vocab_size is 5, token_embd.weight is (4, 32)");
    CHECK(m.said("llama.attention.value_length", value::u32, std::uint32_t{16}) ==
          "llama.attention.value_length is 16; expected 8");
    CHECK(m.said("llama.attention.key_length", value::u32, std::uint32_t{7}) ==
          "llama.attention.key_length is 7; expected an even number");
    CHECK(m.said("llama.attention.layer_norm_rms_epsilon", value::f32, 0.0f) ==
          "llama.attention.layer_norm_rms_epsilon is 0; expected a number above 0");
    CHECK(m.said("llama.rope.freq_base", value::f32, -1.0f) == "llama.rope.freq_base is -1; expected a number above 0");
    CHECK(m.said("llama.rope.dimension_count", value::u32, std::uint32_t{4}) ==
          "llama.rope.dimension_count is 4; expected 8");
    CHECK(m.said("llama.rope.scaling.type", "yarn") ==
          R"(llama.rope.scaling.type is "yarn", with a factor of 0; expected "none")");
    CHECK(m.said("llama.rope.scaling.factor", value::f32, 4.0f) ==
          R"(llama.rope.scaling.type is "linear", with a factor of 4; expected "none")");
    CHECK(m.said("llama.rope.scale_linear", value::f32, 4.0f).ends_with(R"(with a factor of 4; expected "none")"));
    CHECK(m.said("llama.rope.scaling.type", "none") == "no error");
    CHECK(m.said("llama.rope.scaling.attn_factor", value::f32, 2.0f) ==
          "llama.rope.scaling.attn_factor is there; halftone does not compute such a model");
    CHECK(m.said("llama.expert_count", value::u32, std::uint32_t{8}) ==
          "llama.expert_count is there; halftone does not compute such a model");
    CHECK(m.said("llama.expert_count", value::u32, std::uint32_t{0}) == "no error");
    CHECK(m.said("llama.attention.causal", value::boolean, std::uint8_t{0}) ==
          "llama.attention.causal is there; halftone does not compute such a model");
    CHECK(m.said("llama.logit_scale", value::f32, 2.0f) ==
          "llama.logit_scale is there; halftone does not compute such a model");
    CHECK(m.said("qwen2.logit_scale", value::f32, 2.0f) == "no error");  // of an architecture that the file is not of
    // A window is for the calls.
    m.writer.add("llama.attention.sliding_window", value::u32, std::uint32_t{5});
    CHECK(m.said().starts_with("sliding_window is 5, which ht::nn::llama does not apply by itself: "));
    CHECK(m.said({.context = 5}) == "no error");
    CHECK(m.said({.sliding_window = 5}) == "no error");

    changed_model bare;
    bare.writer.tensors.clear();
    CHECK(bare.said() == "there is no 'token_embd.weight'");
    bare.writer.add_tensor("token_embd.weight", ht::ggml_type::f32, {32}, std::string(128, '\0'));
    CHECK(bare.said() == "'token_embd.weight' is no matrix");
}

std::string factors_said(const std::vector<float>& factors, const std::string& architecture = "llama") {
    changed_model m(architecture);
    m.writer.add(architecture + ".rope.freq_base", value::f32, 500000.0f);
    m.writer.add(architecture + ".attention.key_length", value::u32, std::uint32_t{16});
    m.writer.add_tensor("rope_freqs.weight", ht::ggml_type::f32, {static_cast<ht::extent>(factors.size())},
                        std::string(reinterpret_cast<const char*>(factors.data()), factors.size() * sizeof(float)));
    const std::string message = m.said();
    if (message != "no error") return message;
    const ht::rotary_scaling s = ht::read_llama_config(m.folder->path() / "model.gguf").rope_scaling;
    return std::to_string(s.factor) + ' ' + std::to_string(s.original_context);
}
std::vector<float> factors_of(const ht::rotary_scaling& s, ht::extent n = 8) {
    std::vector<float> factors;
    for (ht::extent i = 0; i < n; ++i)
        factors.push_back(static_cast<float>(ht::detail::rotary_frequency({.theta = 500000}, i, n) /
                                             ht::detail::rotary_frequency({.theta = 500000, .scaling = s}, i, n)));
    return factors;
}

TEST_CASE("gguf: factors of frequencies are Llama 3's scaling, or refused") {
    for (const double factor : {8.0, 32.0}) {
        for (const double context : {128.0, 1024.0, 8192.0}) {
            const auto factors =
                factors_of({.factor = factor, .low_frequency = 1, .high_frequency = 4, .original_context = context});
            CAPTURE(context);
            CHECK(factors_said(factors) == std::to_string(factor) + ' ' + std::to_string(context));
        }
    }
    CHECK(factors_said(std::vector<float>(8, 1)) == "1.000000 8192.000000");
    auto wrong = factors_of({.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_context = 8192});
    wrong[2] = 1.01f;
    CHECK(factors_said(wrong).starts_with("rope_freqs.weight has "));
    CHECK(factors_said({1, 2, 3, 4, 5, 6, 7, 8}).find("; expected the factors of Llama 3's scaling, ") !=
          std::string::npos);
    CHECK(factors_said(std::vector<float>(8, 0)) == "rope_freqs.weight has 0; expected positive numbers");
    // No factor is between, and Llama 3's context would not do: a context is found that gives these.
    CHECK(factors_said(std::vector<float>(8, 4)) == "4.000000 6.000000");
    CHECK(factors_said({1, 1, 8, 8, 8, 8, 8, 8}) == "8.000000 167.000000");
    CHECK(factors_said({1, 1, 1, 1, 1, 1, 1, 8}) == "8.000000 472572.000000");
    CHECK(factors_said({1, 8, 1, 8, 8, 8, 8, 8}).starts_with("rope_freqs.weight has "));
    CHECK(factors_said(factors_of({.factor = 8, .low_frequency = 1, .high_frequency = 2, .original_context = 200}))
              .starts_with("rope_freqs.weight has "));
    CHECK(factors_said({1, 1}) == "rope_freqs.weight is F32 (2); expected F32 (8), of the architecture llama");
    CHECK(factors_said(std::vector<float>(8, 1), "qwen2") ==
          "rope_freqs.weight is F32 (8); expected F32 (8), of the architecture llama");
}

TEST_CASE("gguf: a file of another model is refused, and the model stays as it was") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    const auto path = files / "llama3-F16.gguf";
    const auto said = [&](ht::nn::llama_config c, const std::filesystem::path& file) {
        ht::nn::llama<ht::full_fp32> model{device, c, 3};
        const auto before = values_of(model.parameters(), "h.0.attn.qkv.weight");
        const std::string message = message_of<ht::gguf_error>([&] { ht::load_pretrained(model, file); });
        CHECK((values_of(model.parameters(), "h.0.attn.qkv.weight") == before) == (message != "no error"));
        const auto at = message.find(" is of another model: ");
        return at == std::string::npos ? message : message.substr(at + 22);
    };
    ht::nn::llama_config c = ht::read_llama_config(path);
    CHECK(said(c, path) == "no error");
    c.rope_scaling.factor = 4, c.rope_theta = 10000;
    CHECK(said(c, path) == "rope_theta is 500000, not 10000; rope factor is 8, not 4");
    c = ht::read_llama_config(path);
    c.tie_word_embeddings = false;
    CHECK(said(c, path) == "tie_word_embeddings is 1, not 0");
    CHECK(said(ht::read_llama_config(files / "qwen3-F16.gguf"), files / "qwen3-F16.gguf")
              .ends_with("model_type is qwen3, which is an ht::nn::qwen3, not an ht::nn::llama"));
    // The same file with a tensor less, one more, one of another type; a head in a tied model's file is used.
    c = ht::read_llama_config(path);
    const auto copied = [&](const auto& change) {
        gguf_writer w = support::copy_of(ht::gguf_file(path));
        change(w);
        return folder.write("model.gguf", w.bytes());
    };
    CHECK(said(c, copied([](gguf_writer&) {})) == "no error");
    CHECK(said(c, copied([](gguf_writer& w) { w.remove_tensor("blk.1.attn_k.weight"); })) ==
          "missing: blk.1.attn_k.weight");
    CHECK(said(c, copied([](gguf_writer& w) {
                   w.add_tensor("blk.0.attn_q.bias", ht::ggml_type::f32, {64}, std::string(256, '\0'));
               })) == "unexpected: blk.0.attn_q.bias");
    CHECK(said(c, copied([](gguf_writer& w) {
                   w.remove_tensor("blk.0.ffn_up.weight");
                   w.add_tensor("blk.0.ffn_up.weight", ht::ggml_type::f16, {32, 16}, std::string(1024, '\0'));
               })) == "of another shape or type: blk.0.ffn_up.weight (32, 16), which is (32, 32)");
    CHECK(said(c, copied([](gguf_writer& w) {
                   w.remove_tensor("blk.0.ffn_up.weight");
                   w.add_tensor("blk.0.ffn_up.weight", ht::ggml_type::q4_1, {32, 32}, std::string(640, '\0'));
               }))
              .ends_with("has tensors of types that halftone does not read: blk.0.ffn_up.weight, Q4_1; expected F32, "
                         "F16, BF16, Q8_0, Q4_0 or MXFP4"));
    const auto with_head = copied([](gguf_writer& w) {
        w.add_tensor("output.weight", ht::ggml_type::f32, {32, 32}, std::string(4096, '\0'));
    });
    CHECK(!ht::read_llama_config(with_head).tie_word_embeddings);
    CHECK(said(c, with_head) == "tie_word_embeddings is 0, not 1");
    CHECK(said(ht::read_llama_config(with_head), with_head) == "no error");
    // A number that a parameter's type does not hold.
    gguf_writer large = support::copy_of(ht::gguf_file(path));
    large.remove_tensor("output_norm.weight");
    const std::vector<float> numbers(32, 1e30f);
    large.add_tensor("output_norm.weight", ht::ggml_type::f32, {32},
                     std::string(reinterpret_cast<const char*>(numbers.data()), 128));
    ht::nn::llama<ht::with_param<ht::amp_fp16, ht::float16>> narrow{device, c};
    CHECK(message_of<ht::gguf_error>([&] {
              ht::load_pretrained(narrow, folder.write("large.gguf", large.bytes()));
          }).ends_with("output_norm.weight, 1e+30 for a float16"));
    // It is no folder whose configuration a saved model, or a GPT-2, takes over.
    ht::nn::llama<ht::full_fp32> model{device, c};
    const std::string ending = "llama3-F16.gguf: is a GGUF file; expected a folder of transformers, or its config.json";
    CHECK(message_of<ht::gguf_error>([&] {
              ht::save_pretrained(model, folder.path() / "saved", {.like = path});
          }).ends_with(ending));
    CHECK(message_of<ht::gguf_error>([&] { ht::read_gpt2_config(path); }).ends_with(ending));
    // Without its extension it is known by its first bytes.
    std::filesystem::copy_file(path, folder.path() / "blob");
    CHECK(said(c, folder.path() / "blob") == "no error");
}

}  // namespace io_gguf_tests
