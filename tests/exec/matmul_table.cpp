// SPDX-License-Identifier: MIT
/// \file
/// The matmul table that a benchmark writes: its choices, reading it from a file, and errors.
#include <cstdio>
#include <fstream>

#include <doctest/doctest.h>

#include <halftone/exec/matmul_table.hpp>

namespace exec_matmul_table_tests {

namespace ht = halftone;
using ht::element_type, ht::product_end, ht::matrix_order;

ht::matmul_table two_sizes() {
    return {
        "h200",
        90,
        {{element_type::bfloat16, product_end::result, matrix_order::rows, matrix_order::columns, 512, 512, 512, 0.8},
         {element_type::bfloat16, product_end::result, matrix_order::rows, matrix_order::columns, 4096, 4096, 4096,
          1.4},
         {element_type::bfloat16, product_end::result, matrix_order::rows, matrix_order::rows, 4096, 4096, 4096, 0.9},
         {element_type::float16, product_end::kernel, matrix_order::rows, matrix_order::columns, 64, 64, 64, 1}}};
}

ht::product_description product(ht::extent m, ht::extent n, ht::extent k, matrix_order b = matrix_order::columns) {
    return {.m = m, .n = n, .k = k, .a = nullptr, .b = nullptr, .a_leading = k, .b_leading = k, .a_order = matrix_order::rows, .b_order = b,
            .operands = element_type::bfloat16, .c = nullptr, .c_leading = n, .result = element_type::bfloat16, .beta = 0, .end = product_end::result};
}

std::string why_not(const std::string& text) {
    try {
        ht::matmul_table::parse(text);
    } catch (const ht::argument_error& e) {
        return e.what();
    }
    return "";
}

TEST_CASE("matmul table: the nearest measured product decides") {
    const ht::matmul_table table = two_sizes();
    CHECK(table.prefers_engine(product(512, 512, 512)) == false);
    CHECK(table.prefers_engine(product(4096, 4096, 4096)) == true);
    // The measured sizes are three doublings apart: the middle is 1448.
    CHECK(table.prefers_engine(product(1400, 1400, 1400)) == false);
    CHECK(table.prefers_engine(product(1500, 1500, 1500)) == true);
    CHECK(table.prefers_engine(product(64, 64, 1 << 20)) == false);
    CHECK(table.prefers_engine(product(1, 1 << 20, 4096)) == true);
    CHECK(table.prefers_engine(product(4096, 4096, 4096, matrix_order::rows)) == false);
    CHECK(table.prefers_engine(product(512, 512, 512, matrix_order::rows)) == false);
}

TEST_CASE("matmul table: entries of other types and other epilogues do not count") {
    const ht::matmul_table table = two_sizes();
    auto p = product(4096, 4096, 4096);
    p.end = product_end::kernel;
    CHECK(!table.prefers_engine(p).has_value());
    p.operands = element_type::float16;
    CHECK(table.prefers_engine(p) == false);  // no faster is not faster
    p.operands = element_type::tfloat32;
    CHECK(!table.prefers_engine(p).has_value());
    CHECK(!ht::matmul_table().prefers_engine(product(1, 1, 1)).has_value());
}

TEST_CASE("matmul table: it comes back from its file") {
    const ht::matmul_table table = two_sizes();
    CHECK(table.text() ==
          "halftone-matmul-table h200 90\n"
          "bfloat16 result rows columns 512 512 512 0.8\n"
          "bfloat16 result rows columns 4096 4096 4096 1.4\n"
          "bfloat16 result rows rows 4096 4096 4096 0.9\n"
          "float16 kernel rows columns 64 64 64 1\n");
    const char* const path = "matmul_table.txt";
    std::ofstream(path) << table.text();
    const ht::matmul_table again = ht::matmul_table::read(path);
    std::remove(path);
    CHECK(again.name() == "h200");
    CHECK(again.architecture() == 90);
    CHECK(again.text() == table.text());
    CHECK(ht::matmul_table::parse("halftone-matmul-table none 80").products().empty());
    const std::string bytes =
        "halftone-matmul-table b 90\nfloat8_e4m3 result rows columns 64 64 64 2\n"
        "float8_e5m2 kernel rows columns 64 64 64 1\n";
    CHECK(ht::matmul_table::parse(bytes).text() == bytes);
}

TEST_CASE("matmul table: a file that is not a table is refused, with the line") {
    const std::string head = "halftone-matmul-table h200 90\n", good = "bfloat16 result rows columns 512 512 512 0.8\n";
    CHECK(why_not(head + good).empty());
    CHECK(why_not("") == "matmul table: it is empty");
    CHECK(why_not("matmul h200 90\n") ==
          "matmul table: line 1 is \"matmul h200 90\"; expected \"halftone-matmul-table NAME ARCHITECTURE\"");
    CHECK(why_not("halftone-matmul-table h200\n").find("line 1") != std::string::npos);
    CHECK(why_not("halftone-matmul-table h200 90 more\n").find("line 1") != std::string::npos);
    for (const char* bad : {"bfloat17 result rows columns 5 5 5 1", "bfloat16 end rows columns 5 5 5 1",
                            "bfloat16 result rows diagonals 5 5 5 1", "bfloat16 result rows columns 5 5 1",
                            "bfloat16 result rows columns 5 5 5 1 1", "bfloat16 result rows columns 5 5 x 1", ""}) {
        CHECK_MESSAGE(why_not(head + good + bad + "\n").find("matmul table: line 3 is \"") == 0, bad);
    }
    CHECK(why_not(head + "bfloat16 result rows columns 5 0 5 1\n") ==
          "matmul table h200: a product of 5 x 0 x 5 with ratio 1; expected positive numbers");
    CHECK(why_not(head + "bfloat16 result rows columns 5 5 5 -1\n").find("ratio -1") != std::string::npos);
    CHECK_THROWS_WITH_AS(ht::matmul_table::read("there/is/no/such/table.txt"),
                         "matmul table: cannot read there/is/no/such/table.txt", ht::argument_error);
    CHECK_THROWS_AS(ht::matmul_table("two words", 90, {}), ht::argument_error);
}

}  // namespace exec_matmul_table_tests
