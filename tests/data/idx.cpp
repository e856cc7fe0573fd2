// SPDX-License-Identifier: MIT
/// \file
/// IDX files of images and labels, and the error messages for what is wrong with them.
#include <cstdint>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include <halftone/data/idx.hpp>

#include "support/temporary_folder.hpp"

namespace data_idx_tests {

namespace ht = halftone;
namespace fs = std::filesystem;

/// An IDX file of these extents; elements count up.
std::string idx_file(const std::vector<std::uint32_t>& extents, std::size_t elements, char type = 8) {
    std::string s{0, 0, type, static_cast<char>(extents.size())};
    for (const std::uint32_t e : extents) {
        for (int shift = 24; shift >= 0; shift -= 8) s += static_cast<char>(e >> shift);
    }
    for (std::size_t i = 0; i < elements; ++i) s += static_cast<char>(i);
    return s;
}
std::string idx_message(const std::string& bytes) {
    try {
        ht::parse_idx(bytes, "x");
    } catch (const ht::data_error& e) {
        return e.what();
    }
    return "no error";
}
template <class Function>
std::string text_of_error(const Function& f) {
    try {
        f();
    } catch (const ht::data_error& e) {
        return e.what();
    }
    return "no error";
}

TEST_CASE("images and labels of IDX files") {
    const support::temporary_folder folder;
    const auto images = folder.write("images", idx_file({3, 2, 4}, 24)), labels = folder.write("labels", idx_file({3}, 3));
    const ht::labelled_images all{ht::read_idx(images), ht::read_idx(labels), 3};
    CHECK(all.size() == 3);
    CHECK(all.height() == 2);
    CHECK(all.width() == 4);
    CHECK(all.channels() == 1);
    REQUIRE(all[2].pixels.size() == 8);
    CHECK(all[2].pixels[0] == 16);
    CHECK(all[2].pixels[7] == 23);
    CHECK(all[2].label == 2);
    const ht::labelled_images coloured{ht::parse_idx(idx_file({2, 2, 2, 3}, 24), "c"), ht::parse_idx(idx_file({2}, 2), "l"), 2};
    CHECK(coloured.channels() == 3);
    CHECK(coloured[1].pixels[0] == 12);
}

TEST_CASE("each wrong IDX file has its sentence") {
    CHECK(idx_message("") == "idx: x is empty");
    CHECK(idx_message(std::string("\0\0", 2)) == "idx: x has 2 bytes; expected a header of 8 or more");
    CHECK(idx_message(idx_file({5}, 5).substr(0, 7)) == "idx: x has 7 bytes; expected a header of 8");
    CHECK(idx_message("text") == "idx: x begins with the bytes 116 101 120 116; expected 0 0 8 and 1 to 4, the beginning "
                                 "of an IDX file of unsigned bytes");
    CHECK(idx_message(idx_file({5}, 5, 13)).find("begins with the bytes 0 0 13 1") != std::string::npos);
    CHECK(idx_message(idx_file({}, 5)).find("begins with the bytes 0 0 8 0") != std::string::npos);
    CHECK(idx_message(idx_file({1, 1, 1, 1, 1}, 1)).find("begins with the bytes 0 0 8 5") != std::string::npos);
    CHECK(idx_message("\x1f\x8b\x08 and more").find("idx: x is compressed") == 0);
    CHECK(idx_message(idx_file({3, 2}, 5)) == "idx: x says 3 x 2 elements, which take 18 bytes with the header; it has 17");
    CHECK(idx_message(idx_file({3, 2}, 7)) == "idx: x says 3 x 2 elements, which take 18 bytes with the header; it has 19");
    CHECK(idx_message(idx_file({3, 0}, 0)) == "idx: x says 3 x 0 elements: it is empty");
    // Extents whose product wraps to a small number.
    CHECK(idx_message(idx_file({0x80000000, 0x80000000, 4}, 0)).find("says 2147483648 x 2147483648 x 4 elements and more") !=
          std::string::npos);
    CHECK(idx_message(idx_file({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 3)).find("and more") != std::string::npos);
    const support::temporary_folder folder;
    const fs::path missing = folder.path() / "none";
    CHECK(text_of_error([&] { ht::read_idx(missing); }) == "idx: there is no " + missing.string());
    CHECK(text_of_error([&] { ht::read_idx(folder.path()); }) == "idx: " + folder.path().string() + " is not a file");
    const fs::path file = folder.write("x", idx_file({100}, 100));
    CHECK(text_of_error([&] { ht::read_idx(file, 50); }) == "idx: more than 50 bytes up to " + file.string());
}

TEST_CASE("images and labels that do not fit together") {
    const auto array = [](const std::vector<std::uint32_t>& extents, std::size_t elements) {
        return ht::parse_idx(idx_file(extents, elements), extents.size() == 1 ? "labels" : "images");
    };
    const auto text = [](ht::idx_array images, ht::idx_array labels, ht::extent classes) {
        return text_of_error([&] { ht::labelled_images{images, labels, classes}; });
    };
    CHECK(text(array({3, 2, 2}, 12), array({3}, 3), 3) == "no error");
    CHECK(text(array({3, 2, 2}, 12), array({2}, 2), 3) == "idx: images has 3 images, labels has 2 labels");
    CHECK(text(array({3, 2, 2}, 12), array({3}, 3), 2) == "idx: labels: label number 2 is 2; expected 0 to 1");
    CHECK(text(array({3, 2}, 6), array({3}, 3), 3) == "idx: images has 3 x 2 elements; expected number x height x width");
    CHECK(text(array({3, 2, 2}, 12), array({3, 2, 2}, 12), 3) ==
          "idx: images has 3 x 2 x 2 elements; expected one for each image");
}

}  // namespace data_idx_tests
