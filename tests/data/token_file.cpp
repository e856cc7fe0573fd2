// SPDX-License-Identifier: MIT
/// \file
/// Token files of llm.c and nanoGPT, and the error messages for what is wrong with them.
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/data_loader.hpp>
#include <halftone/data/token_file.hpp>
#include <halftone/train/training_data.hpp>

#include "support/temporary_folder.hpp"

namespace data_token_file_tests {

namespace ht = halftone;
namespace fs = std::filesystem;

std::string little(std::uint64_t value, int bytes) {
    std::string s;
    for (int i = 0; i < bytes; ++i) s += static_cast<char>(value >> 8 * i);
    return s;
}
std::string ids(int count, int width, int factor = 1) {
    std::string s;
    for (int i = 0; i < count; ++i) s += little(static_cast<std::uint64_t>(i * factor), width);
    return s;
}
std::string llm_c(std::uint32_t magic, std::uint32_t version, std::uint32_t count, const std::string& tokens) {
    std::string s = little(magic, 4) + little(version, 4) + little(count, 4);
    s.resize(1024, '\0');
    return s + tokens;
}

std::string message_of(const fs::path& path, const ht::token_file_options& options = {}) {
    try {
        ht::token_file{path, options};
    } catch (const ht::data_error& e) {
        return e.what();
    }
    return "no error";
}

TEST_CASE("tokens of both programs come out as they went in") {
    const support::temporary_folder folder;
    const ht::token_file nano{folder.write("train.bin", ids(40000, 2))};
    CHECK(nano.format() == ht::token_format::nano_gpt);
    CHECK(nano.size() == 40000);
    CHECK(nano.width() == 2);
    const auto all = nano.read();
    for (int i = 0; i < 40000; ++i) REQUIRE(all[static_cast<std::size_t>(i)] == i);
    std::int32_t some[3];
    nano.copy(39997, 3, some);
    CHECK(some[2] == 39999);

    const ht::token_file gpt2{folder.write("a.bin", llm_c(20240520, 1, 300, ids(300, 2, 167)))};
    CHECK(gpt2.format() == ht::token_format::llm_c);
    CHECK(gpt2.size() == 300);
    CHECK(gpt2.read()[299] == 299 * 167);
    const ht::token_file llama{folder.write("b.bin", llm_c(20240801, 7, 300, ids(300, 4, 400))), {.vocabulary = 128256}};
    CHECK(llama.width() == 4);
    CHECK(llama.read()[299] == 299 * 400);
    // Forced to be nanoGPT's, a header is tokens, too.
    CHECK(ht::token_file{folder.path() / "a.bin", {.vocabulary = 0, .format = ht::token_format::nano_gpt}}.size() == 812);
}

TEST_CASE("each wrong token file has its sentence") {
    const support::temporary_folder folder;
    const auto text = [&](const std::string& bytes, const ht::token_file_options& options = {}) {
        const fs::path file = folder.write("x.bin", bytes);
        std::string m = message_of(file, options);
        const auto at = m.find(file.string());
        return at == std::string::npos ? m : m.replace(at, file.string().size(), "x.bin");
    };
    CHECK(text("") == "token_file: x.bin is empty");
    CHECK(text("abc") == "token_file: x.bin has 3 bytes; expected an even number, two for each token");
    const std::string good = llm_c(20240520, 1, 300, ids(300, 2));
    CHECK(text(good) == "no error");
    CHECK(text(good.substr(0, 1623)) ==
          "token_file: x.bin says 300 tokens, which take 1624 bytes with the header; it has 1623");
    CHECK(text(good + "x") == "token_file: x.bin says 300 tokens, which take 1624 bytes with the header; it has 1625");
    CHECK(text(good.substr(0, 1000)) == "token_file: x.bin has 1000 bytes; expected a header of 1024");
    CHECK(text(llm_c(20240520, 2, 300, ids(300, 2))) == "token_file: x.bin is of version 2; expected 1");
    CHECK(text(llm_c(20240801, 1, 300, ids(300, 4))) == "token_file: x.bin is of version 1; expected 7");
    CHECK(text(llm_c(20240520, 1, 0, "")) == "token_file: x.bin says 0 tokens; expected 1 or more");
    CHECK(text(llm_c(20240520, 1, 0xffffffff, "")) == "token_file: x.bin says -1 tokens; expected 1 or more");
    CHECK(text(llm_c(20240326, 3, 300, ids(300, 2))) ==
          "token_file: x.bin begins with the number 20240326; expected 20240520 or 20240801, those of llm.c's token files");
    CHECK(text(ids(10, 2), {.format = ht::token_format::llm_c}) ==
          "token_file: x.bin has 20 bytes; expected a header of 1024");
    CHECK(text(ids(600, 2), {.format = ht::token_format::llm_c}) ==
          "token_file: x.bin begins with the number 65536; expected 20240520 or 20240801, those of llm.c's token files");
    CHECK(text(ids(70, 2), {.vocabulary = 65}) ==
          "token_file: x.bin: token number 65 is 65; the vocabulary has 0 to 64");
    CHECK(text(llm_c(20240801, 7, 2, ids(1, 4) + "\xff\xff\xff\xff")) ==
          "token_file: x.bin: token number 1 is 4294967295; the vocabulary has 0 to 50256");
    // Behind the first piece that is read.
    std::string late = ids(200000, 2, 0);
    late[2 * 150000] = 1;
    CHECK(text(late, {.vocabulary = 1}) == "token_file: x.bin: token number 150000 is 1; the vocabulary has 0 to 0");
    CHECK(message_of(folder.path() / "none") == "token_file: there is no " + (folder.path() / "none").string());
    CHECK(message_of(folder.path()) == "token_file: " + folder.path().string() + " is not a file");
    CHECK_THROWS_AS((ht::token_file{folder.path() / "x.bin", {.vocabulary = -1}}), ht::argument_error);
}

TEST_CASE("a file that becomes shorter while it is read is an exception") {
    const support::temporary_folder folder;
    const fs::path path = folder.write("x.bin", ids(1000, 2));
    const ht::token_file file{path};
    fs::resize_file(path, 100);
    CHECK_THROWS_WITH_AS(file.read(), ("token_file: " + path.string() + " ends at byte 100; it had 2000 when it was opened").c_str(),
                         ht::data_error);
}

TEST_CASE("windows of a file are each read once per epoch") {
    const support::temporary_folder folder;
    const ht::token_file file{folder.write("x.bin", ids(1003, 2))};
    const ht::token_windows windows{file, 10};
    REQUIRE(windows.size() == 100);
    CHECK(windows[99].back() == 1000);
    ht::data_loader loader{windows, {.batch_size = 8, .last = ht::last_batch::drop, .num_workers = 2},
                           ht::collate_windows};
    static_assert(ht::training_data<decltype(loader)>);
    std::set<std::int32_t> first_ids;
    for (const ht::language_batch& batch : loader) {
        REQUIRE(batch.rows() == 8);
        for (ht::extent row = 0; row < 8; ++row) {
            first_ids.insert(batch.tokens(row, 0));
            for (ht::extent i = 0; i < 10; ++i) {
                CHECK(batch.tokens(row, i) == batch.tokens(row, 0) + i);
                CHECK(batch.targets(row, i) == batch.tokens(row, i) + 1);
            }
        }
    }
    CHECK(first_ids.size() == 96);
    CHECK_THROWS_AS((ht::token_windows{file, 0}), ht::argument_error);
    CHECK_THROWS_WITH_AS((ht::token_windows{file, 1003}),
                         "token_windows: the file has 1003 tokens; a context of 1003 needs 1004 or more", ht::data_error);
    CHECK(ht::token_windows{file, 1002}.size() == 1);
}

}  // namespace data_token_file_tests
