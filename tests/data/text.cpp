// SPDX-License-Identifier: MIT
/// \file
/// Files and folders as one corpus, and the error messages for them.
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include <halftone/data/text.hpp>

#include "support/temporary_folder.hpp"

namespace data_text_tests {

namespace ht = halftone;
namespace fs = std::filesystem;

std::string message(const std::vector<fs::path>& paths, const ht::text_options& options = {}) {
    try {
        ht::read_text(paths, options);
    } catch (const ht::data_error& e) {
        return e.what();
    }
    return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("bytes come as they are, zeros and all") {
    const support::temporary_folder folder;
    std::string every;
    for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
    every += "\r\n\n";
    CHECK(ht::read_text({folder.write("a", every)}) == every);
}

TEST_CASE("files come in the order given, those of a folder sorted, whatever begins with a dot left out") {
    const support::temporary_folder folder;
    folder.write("in/b.txt", "2");
    folder.write("in/a/z.txt", "1");
    folder.write("in/c.md", "3");
    folder.write("in/.git/config", "x");
    folder.write("in/.hidden", "x");
    folder.write("in/empty.txt", "");
    const fs::path first = folder.write("first", "0");
    CHECK(ht::read_text({first, folder.path() / "in"}) == "0123");
    CHECK(ht::read_text({folder.path() / "in", first}) == "1230");
    CHECK(ht::read_text({folder.path() / "in"}, {.extensions = {".md"}}) == "3");
    CHECK_MESSAGE(ht::read_text({first}, {.extensions = {".md"}}) == "0",
                  "a file given by name is read whatever its name");
    CHECK(ht::text_files({folder.path() / "in"}).size() == 4);
}

TEST_CASE("a file larger than one read comes whole") {
    const support::temporary_folder folder;
    std::string large;
    for (int i = 0; i < 300000; ++i) large += static_cast<char>('a' + i % 26);
    CHECK(ht::read_text({folder.write("a", large)}) == large);
    CHECK(contains(message({folder.path() / "a"}, {.limit = 1000}), "more than 1000 bytes"));
}

TEST_CASE("each wrong source has its sentence") {
    const support::temporary_folder folder;
    const fs::path missing = folder.path() / "nothing", empty = folder.write("empty", "");
    CHECK(message({missing}) == "text: there is no " + missing.string());
    CHECK(message({empty}) == "text: " + empty.string() + " is empty");
    CHECK(contains(message({empty, empty}), "are empty"));
    CHECK(message({}) == "text: no path was given");
    fs::create_directories(folder.path() / "bare/below");
    CHECK(message({folder.path() / "bare"}) ==
          "text: the folder " + (folder.path() / "bare").string() + " holds no files");
    folder.write("bare/a.txt", "a");
    CHECK(contains(message({folder.path() / "bare"}, {.extensions = {".md", ".hpp"}}),
                   "holds no files that end in .md, .hpp"));
    CHECK_MESSAGE(contains(message({folder.write("file", "x") / "below"}), "text: "), "a path below a file");
#if defined(__linux__)
    CHECK(contains(message({"/dev/zero"}), "neither a file nor a folder"));
    // A regular file whose first page cannot be read, not even by root.
    CHECK(message({"/proc/self/mem"}) == "text: cannot read /proc/self/mem");
#endif
}

#if defined(__linux__)
TEST_CASE("what may not be read says so") {
    std::error_code denied;
    fs::directory_iterator(fs::path("/root"), denied);
    if (!denied) {
        MESSAGE("skipped: root may read everything");
        return;
    }
    const support::temporary_folder folder;
    const fs::path file = folder.write("secret", "x");
    fs::permissions(file, fs::perms::none);
    CHECK(message({file}) == "text: cannot open " + file.string());
    fs::create_directories(folder.path() / "closed");
    fs::permissions(folder.path() / "closed", fs::perms::none);
    CHECK(contains(message({folder.path() / "closed"}), "cannot list the folder"));
    fs::permissions(folder.path() / "closed", fs::perms::owner_all);
}
#endif

}  // namespace data_text_tests
