// SPDX-License-Identifier: MIT
#include <algorithm>
#include <iostream>

#include <halftone/io/file.hpp>
#include <halftone/io/gguf.hpp>

#include "../write_file.hpp"
#include "results.hpp"

namespace {

ids without_end(ids text, const ids& ends) {
    while (!text.empty() && std::find(ends.begin(), ends.end(), text.back()) != ends.end()) text.pop_back();
    return text;
}

}  // namespace

bool is_exact(const ids& said, const ids& expected, const ids& ends) {
    return without_end(said, ends) == without_end(expected, ends);
}

void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
    for (const char* const name :
         {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
          "chat_template.jinja", "vocab.json", "merges.txt", "tokenizer.model"}) {
        if (ht::detail::is_there(from / name))
            write_file(to / name, ht::detail::read_small_file(from / name, std::uint64_t{1} << 28));
    }
}

void try_gguf(const std::filesystem::path& file, const std::function<void()>& write) {
    try {
        write();
    } catch (const ht::io_error&) {
        throw;
    } catch (const ht::error& e) {
        told(file.filename().string() + " is not written: " + e.what());
    }
}

void told(const std::string& line) { std::cerr << "finetune: " << line << std::endl; }
