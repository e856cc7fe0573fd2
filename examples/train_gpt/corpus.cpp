// SPDX-License-Identifier: MIT
#include <halftone/data/batches.hpp>
#include <halftone/data/text.hpp>
#include <halftone/data/token_file.hpp>

#include "options.hpp"

// The build defines the repository's path; a program compiled by hand looks in the current folder.
#if !defined(HALFTONE_SOURCE_DIR)
#define HALFTONE_SOURCE_DIR "."
#endif

namespace ht = halftone;
namespace fs = std::filesystem;

namespace {

/// This repository's headers and documents.
std::string read_own_text() {
    const fs::path root = HALFTONE_SOURCE_DIR;
    std::vector<fs::path> paths;
    for (const char* part : {"include", "docs", "examples", "CHANGELOG.md", "README.md"}) {
        if (fs::exists(root / part)) paths.push_back(root / part);
    }
    if (!fs::exists(root / "include" / "halftone")) {
        throw exit_with(2, "the repository is no longer in " + root.string() + "; name a text with --text");
    }
    return ht::read_text(paths, {.extensions = {".hpp", ".cuh", ".cpp", ".cu", ".md"}});
}

}  // namespace

training_text read_corpus(const options& o) try {
    training_text corpus;
    if (!o.tokens.empty()) {
        corpus.ids = ht::token_file{o.tokens, {.vocabulary = o.vocabulary}}.read();
        corpus.has_ids = true;
    } else {
        corpus.bytes = o.text.empty() ? read_own_text() : ht::read_text(o.text);
    }
    const ht::language_data data{corpus.view(), {.context = o.context, .vocabulary = o.vocabulary}};
    return corpus;
} catch (const ht::error& e) {
    throw exit_with(2, e.what());
}
