// SPDX-License-Identifier: MIT
/// \file
/// Texts to a file of token ids, with the tokenizer of somebody's model. `tokenize --help` lists the options.
///
///     tokenize --tokenizer Llama-3.2-1B --out train.bin --behind-each "<|end_of_text|>" texts/
///     train_gpt --tokens train.bin --vocabulary 128256
///
/// Each file is one text; with --lines each line is. Prints how many tokens there are. Exit codes: 0; 2 for invalid arguments and
/// bad data, with one line and nothing left behind; 1 for everything else.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <halftone/data/text.hpp>
#include <halftone/data/tokenize.hpp>

#include "../command_line.hpp"
#include "../parse.hpp"

namespace ht = halftone;

namespace {

struct options {
    std::string tokenizer, out, behind_each;
    std::vector<std::string> texts;
    bool lines = false, nano_gpt = false, allow_special = false;
    int workers = 1;
};

/// The files, each read when it is asked for.
struct files {
    std::vector<std::filesystem::path> paths;
    std::size_t size() const { return paths.size(); }
    std::string operator[](ht::extent i) const {
        std::string text;
        ht::detail::append_file("text", paths[static_cast<std::size_t>(i)], ht::text_options{}.limit, text);
        return text;
    }
};

std::vector<std::string> lines_of(const files& texts) {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        const std::string text = texts[static_cast<ht::extent>(i)];
        for (std::size_t first = 0; first < text.size();) {
            const std::size_t last = std::min(text.find('\n', first), text.size());
            if (last != first) lines.push_back(text.substr(first, last - first));
            first = last + 1;
        }
    }
    return lines;
}

int run(const options& o) {
    check_range("--workers", o.workers, 0, 256);
    const auto tokenizer = ht::tokenizer::from_file(o.tokenizer);
    const files texts{ht::text_files({o.texts.begin(), o.texts.end()})};
    for (const auto& path : texts.paths) {
        for (const char* const written : {"", ".part"}) {  // what an interrupted run left
            std::error_code failed;
            if (std::filesystem::equivalent(path, o.out + written, failed))
                refuse("--out: ", path.string(), " is one of the texts");
        }
    }
    ht::tokenize_options how{.behind_each = o.behind_each, .num_workers = o.workers};
    how.encode.allow_special = o.allow_special;
    if (o.nano_gpt) how.format = ht::token_format::nano_gpt;
    const auto write = [&](const auto& all) {
        if (isatty(STDERR_FILENO)) {
            how.progress = [&all](ht::extent done) {
                std::cerr << "\r" << done << " of " << all.size() << " texts" << std::flush;
            };
        }
        const auto began = std::chrono::steady_clock::now();
        const ht::extent tokens = ht::tokenize(tokenizer, all, o.out, how);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        if (how.progress) std::cerr << '\n';
        std::cout << o.out << ": " << tokens << " tokens of " << all.size() << " texts, ids below " << tokenizer.size()
                  << ", in " << seconds << " s\n";
    };
    if (o.lines)
        write(lines_of(texts));
    else
        write(texts);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    return run_main("tokenize", "these texts", [&] {
        options o;
        CLI::App app{"Texts to a file of token ids"};
        app.add_option("texts", o.texts, "files of text, or folders of them")->required();
        app.add_option("--tokenizer", o.tokenizer,
                       "a tokenizer.json of Hugging Face's tokenizers, a folder that has one, or a GGUF file")
            ->required();
        app.add_option("--out", o.out, "the file to write: llm.c's format, which train_gpt --tokens reads")->required();
        app.add_option("--behind-each", o.behind_each, "a token to put behind each text, such as <|endoftext|>");
        app.add_flag("--lines", o.lines, "each line is a text, not each file");
        app.add_flag("--nanogpt", o.nano_gpt, "ids of 16 bits without a header, as nanoGPT has them");
        app.add_flag("--allow-special", o.allow_special, "special tokens that the texts spell become these tokens");
        app.add_option("--workers", o.workers, "threads beside the first")->capture_default_str();
        return parse(app, argc, argv) ? run(o) : 0;
    });
}
