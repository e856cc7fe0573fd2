// SPDX-License-Identifier: MIT
/// \file
/// What is fuzzed: readers of files that may come from anybody. Each takes any bytes and throws nothing but ht::error.
///
///     fuzz::all                 // {"safetensors", function}, ...
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <unistd.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <halftone/data/chat.hpp>
#include <halftone/data/chat_data.hpp>
#include <halftone/data/idx.hpp>
#include <halftone/data/token_file.hpp>
#include <halftone/data/tokenizer.hpp>
#include <halftone/io/checkpoint/manifest.hpp>
#include <halftone/io/checkpoint/policy_stamp.hpp>
#include <halftone/io/fields.hpp>
#include <halftone/io/gguf.hpp>
#include <halftone/io/npy.hpp>
#include <halftone/io/peft/config.hpp>
#include <halftone/io/pretrained.hpp>
#include <halftone/io/pretrained/generation_options.hpp>
#include <halftone/io/tensor_files.hpp>
#include <halftone/optim/optimizer.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/outlier_guard.hpp>

namespace fuzz {

namespace ht = halftone;

/// Copies from bytes in memory, and ends the program where a reader asks for others.
struct reader {
    const std::uint8_t* bytes;
    std::size_t size;
    void operator()(void* to, std::uint64_t first, std::size_t count) const {
        if (first > size || count > size - first) __builtin_trap();
        if (count != 0) std::memcpy(to, bytes + first, count);
    }
};

inline void safetensors(const std::uint8_t* bytes, std::size_t size) {
    const auto header = ht::detail::read_safetensors("file", size, reader{bytes, size});
    std::uint64_t sum = 0;
    for (const ht::tensor_info& t : header.tensors) {
        if (t.first > size || t.bytes > size - t.first) __builtin_trap();
        if (t.count() * ht::bits_of(t.type) != t.bytes * 8) __builtin_trap();
        for (std::uint64_t i = 0; i < t.bytes; ++i) sum += bytes[t.first + i];
    }
    if (sum == ~std::uint64_t{0}) __builtin_trap();  // so that the bytes are read
}

/// A file that is written again and again, in memory where the system has such files.
class file_in_memory {
  public:
    file_in_memory() {
#if defined(__linux__)
        handle_ = memfd_create("halftone", 0);
#else
        char name[] = "/tmp/halftone_fuzz_XXXXXX";
        handle_ = mkstemp(name);
        path_ = name;
#endif
        if (handle_ < 0) __builtin_trap();
        if (path_.empty()) path_ = "/proc/self/fd/" + std::to_string(handle_);
    }
    void write(const std::uint8_t* bytes, std::size_t size) const {
        if (ftruncate(handle_, 0) != 0 || pwrite(handle_, bytes, size, 0) != static_cast<ssize_t>(size)) __builtin_trap();
    }
    const std::string& path() const { return path_; }

  private:
    int handle_ = -1;
    std::string path_;
};

inline std::string_view text_of(const std::uint8_t* bytes, std::size_t size) {
    return {reinterpret_cast<const char*>(bytes), size};
}
inline void index(const std::uint8_t* bytes, std::size_t size) {
    for (const auto& [name, file] : ht::detail::parse_index("index", text_of(bytes, size))) {
        if (file.find('/') != std::string::npos || file == "..") __builtin_trap();
    }
}
inline void npy(const std::uint8_t* bytes, std::size_t size) {
    const ht::npy_array a = ht::detail::read_npy_from("file", size, reader{bytes, size});
    std::size_t count = ht::size_of(a.type);
    for (const ht::extent e : a.shape) count *= static_cast<std::size_t>(e);
    if (count != a.bytes.size()) __builtin_trap();
}

template <class State>
void read_state(const nlohmann::json& j) {
    try {
        State s{};
        ht::detail::from_json(j, s, "state");
        static_cast<void>(ht::detail::to_json(s).dump());
    } catch (const ht::error&) {
    }
}
/// A manifest, whose checksum is made right, so that what follows is reached.
inline void manifest(const std::uint8_t* bytes, std::size_t size) {
    std::string text(text_of(bytes, size));
    nlohmann::json j = ht::detail::parse_json<ht::checkpoint_error>("manifest", text, 32);
    if (j.is_object()) {
        j.erase("crc32");
        j["crc32"] = ht::detail::sum_of(j);
        text = j.dump();
    }
    const nlohmann::json checked = ht::detail::parse_manifest("manifest", text);
    for (const auto& [name, part] : checked["parts"].items()) {
        read_state<ht::optimizer_state>(part), read_state<ht::scaler_state>(part), read_state<ht::outlier_state>(part);
        read_state<ht::random_state>(part);
        if (!part.is_object() || !part.contains("policy")) continue;
        try {
            const auto stamp = ht::detail::read_stamp(part["policy"], "policy");
            if (!ht::detail::stamp_difference(stamp, stamp).empty()) __builtin_trap();
        } catch (const ht::error&) {
        }
    }
}

/// IDX images, and the same bytes as labels.
inline void idx(const std::uint8_t* bytes, std::size_t size) {
    const ht::idx_array a = ht::parse_idx(std::string(text_of(bytes, size)), "file");
    std::size_t count = 1;
    for (const ht::extent e : a.extents) count *= static_cast<std::size_t>(e);
    if (count != a.bytes.size() || count == 0) __builtin_trap();
    if (a.extents.size() < 3) return;
    ht::idx_array labels{{a.extents[0]}, std::string(static_cast<std::size_t>(a.extents[0]), '\1'), "labels"};
    const ht::labelled_images images{a, labels, 10};
    std::size_t sum = 0;
    for (ht::extent i = 0; i < images.size(); ++i) {
        for (const std::uint8_t pixel : images[i].pixels) sum += pixel;
    }
    [[maybe_unused]] static volatile std::size_t used;
    used = sum;
}
/// A token file, which is opened by a name.
inline void tokens(const std::uint8_t* bytes, std::size_t size) {
    static const file_in_memory file;
    file.write(bytes, size);
    const ht::token_file opened{file.path(), {.vocabulary = 1000}};
    const auto ids = opened.read();
    if (ids.empty()) __builtin_trap();
    for (const std::int32_t id : ids) {
        if (id < 0 || id >= 1000) __builtin_trap();
    }
    if (opened.size() > 4) {
        const ht::token_windows windows{opened, 4};
        if (windows[windows.size() - 1][4] != ids[static_cast<std::size_t>(windows.size() * 4)]) __builtin_trap();
    }
}

/// A config.json of transformers.
inline void config(const std::uint8_t* bytes, std::size_t size) {
    const ht::detail::config_reader keys("config.json", text_of(bytes, size));
    try {
        static_cast<void>(ht::detail::generation_options_in(keys));
    } catch (const ht::safetensors_error&) {
    }
    if (keys.has("model_type") && keys["model_type"] == "gpt2") {
        static_cast<void>(ht::detail::gpt2_config_in(keys));
    } else if (keys.has("model_type") && keys["model_type"] == "bert") {
        static_cast<void>(ht::detail::bert_config_in(keys));
    } else {
        static_cast<void>(ht::detail::read_llama_folder(keys));
    }
}

/// An adapter_config.json of PEFT, for a Qwen3 and for a GPT-2: what it chooses is there.
inline void adapter(const std::uint8_t* bytes, std::size_t size) {
    const std::string_view text = text_of(bytes, size);
    const ht::detail::config_reader keys("adapter_config.json", text);
    const auto in_order = nlohmann::ordered_json::parse(text);
    const ht::nn::llama_config llama{.num_hidden_layers = 2};
    const ht::detail::peft_layout models[]{ht::detail::peft_layout_of(llama, true),
                                           ht::detail::peft_layout_of(ht::nn::gpt_config{.layers = 2})};
    const bool is_gpt = keys.has("fan_in_fan_out") && keys["fan_in_fan_out"] == true;
    const ht::detail::peft_layout& model = models[is_gpt ? 1 : 0];
    const ht::adapter_options o = ht::detail::peft_options_in(keys, in_order, model);
    ht::detail::check_adapter_options(o);
    for (const std::string& target : o.targets) {
        bool is_there = false;
        for (const auto& m : model.modules) is_there = is_there || m.adapter == target;
        if (!is_there) __builtin_trap();
    }
}

/// A tokenizer.json, and what it makes of a text: its decoded ids are the text where it is no more than bytes and pairs.
inline void tokenizer(const std::uint8_t* bytes, std::size_t size) {
    const auto tokenizer = ht::tokenizer::from_json("tokenizer.json", text_of(bytes, size));
    const std::string text =
        "a  b<s>\n\xC3\xA9 1's ab\xE4\xB8\xAD\xFF" + std::string(text_of(bytes, std::min<std::size_t>(size, 200)));
    for (const bool special : {false, true}) {
        const auto ids = tokenizer.encode(text, {.allow_special = special});
        for (const std::int32_t id : ids) {
            if (id < 0 || id >= tokenizer.size()) __builtin_trap();
        }
        const std::string back = tokenizer.decode(ids);
        if (ht::detail::unicode::first_invalid(back.data(), back.data() + back.size()) != back.data() + back.size())
            __builtin_trap();
    }
}

/// A GGUF file: its tensors, its tokenizer, and the model that it may be.
inline void gguf(const std::uint8_t* bytes, std::size_t size) {
    static const file_in_memory file;
    file.write(bytes, size);
    const ht::gguf_file opened{file.path()};
    for (const ht::gguf_tensor& t : opened.tensors()) {
        if (t.first > size || t.bytes > size - t.first) __builtin_trap();
        std::vector<std::byte> raw(static_cast<std::size_t>(t.bytes));
        opened.read(t, raw.data());
    }
    const auto attempt = [](const auto& f) {
        try {
            f();
        } catch (const ht::error&) {
        }
    };
    for (const ht::gguf_tensor& t : opened.tensors()) {
        attempt([&] {
            if (opened.read<ht::bfloat16>(t.name).size() != t.count()) __builtin_trap();
        });
    }
    attempt([&] {
        static_cast<void>(ht::tokenizer::from_gguf("file", ht::read_gguf_tokenizer(opened.metadata())).encode("a b"));
    });
    attempt([&] {
        const ht::detail::llama_gguf_tensors model(file.path());
        for (const ht::tensor_info& t : model.tensors()) {
            std::vector<std::byte> values(static_cast<std::size_t>(t.bytes));
            model.read(t, values.data());
        }
    });
}

/// A line of conversations, rendered by every template.
inline void chat(const std::uint8_t* bytes, std::size_t size) {
    const ht::chat_line line = ht::parse_chat_line("line", text_of(bytes, size));
    if (line.messages.empty()) return;
    for (const auto& [name, of] : ht::chat_templates) {
        try {
            const ht::chat_text rendered = ht::render_chat(of, line.messages, {.add_generation_prompt = true});
            if (rendered.text().empty()) __builtin_trap();
        } catch (const ht::data_error&) {
        }
    }
}

struct target {
    const char* name;
    void (*run)(const std::uint8_t*, std::size_t);
};
inline constexpr target all[]{
    {"safetensors", safetensors}, {"index", index},   {"npy", npy},   {"manifest", manifest},   {"idx", idx},
    {"tokens", tokens},           {"config", config}, {"gguf", gguf}, {"tokenizer", tokenizer}, {"chat", chat},
    {"adapter", adapter}};

/// Runs a target; an exception that is no ht::error ends the program.
inline void run(const target& t, const std::uint8_t* bytes, std::size_t size) {
    try {
        t.run(bytes, size);
    } catch (const ht::error&) {
    }
}

}  // namespace fuzz
