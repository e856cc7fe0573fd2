#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests together.py and the marks of cuda/compile.py, with the compiler that CXX names, if there is one, and with messages of others.

    tests/tools/together_test.py
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "cuda")]
import compile as cuda
import together

HEADER = """#pragma once
template <class T> void check() { static_assert(sizeof(T) == 1, "sentence of the header"); }
"""
# Errors in the header, of types of their own and of one that both have, about which compilers speak once; one in a source.
FIRST = """#include <cstddef>
#include "header.hpp"
struct own { int x; };
void use() { check<own>(); check<int>(); }
int wrong() { return unknown_to_first; }
"""
SECOND = """#include <cstddef>
#if defined(NOWHERE)
#include <nowhere>
#elif !defined(RIGHT)
#include "header.hpp"
#endif
struct own { long x; };
void use() { check<own>(); check<int>(); }
"""
CLANG = """In file included from /w/unit.cpp:4:
/w/header.hpp:2:35: error: static_assert failed due to requirement 'sizeof(own) == 1' "sentence one"
template <class T> void check() { static_assert(sizeof(T) == 1, "sentence one"); }
                                  ^             ~~~~~~~~~~~~~~
/w/first.cpp:4:14: note: in instantiation of function template specialization 'check<own>' requested here
void use() { check<own>(); }
             ^
/w/header.hpp:2:35: error: static_assert failed due to requirement 'sizeof(own) == 1' "sentence two"
template <class T> void check() { static_assert(sizeof(T) == 1, "sentence two"); }
                                  ^             ~~~~~~~~~~~~~~
/w/second.cpp:7:14: note: in instantiation of function template specialization 'check<own>' requested here
2 errors generated.
"""
GCC = """/w/header.hpp: In instantiation of 'void check() [with T = own]':
/w/second.cpp:7:25:   required from here
/w/header.hpp:2:47: error: static assertion failed: sentence one
/w/header.hpp:2:47: note: the comparison reduces to '(8 == 1)'
/w/header.hpp:3:47: error: static assertion failed: in the same context
/w/other.cpp: In function 'void f()':
/w/other.cpp:1:2: error: of a source that is not asked for
"""


NVCC = """/w/header.hpp(2): error: static assertion failed with "sentence one"
      static_assert(sizeof(T) == 1, "sentence one")
      ^
          detected during:
            instantiation of "void check<T>() [with T=own]" at line 80 of /w/header.hpp
            instantiation of "void check<T>() [with T=own]" at line 4 of /w/first.cpp

/w/header.hpp(2): error: static assertion failed with "sentence two"
          detected during instantiation of "void check<T>() [with T=own]" at line 7 of /w/second.cpp

/w/second.cpp(9): warning #177-D: variable "sentence three" was declared but never referenced
"""


class test_of_together(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.realpath(folder.name)
        for name, text in (("header.hpp", HEADER), ("first.cpp", FIRST), ("second.cpp", SECOND)):
            self.write(name, text)
        self.sources = [self.path("first.cpp"), self.path("second.cpp")]

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def test_includes_come_first_once_and_under_their_conditions(self):
        header = f'#include "{self.path("header.hpp")}"'
        expected = ["#include <cstddef>", "#if defined(NOWHERE)", "#include <nowhere>", "#endif", header, "#if defined(NOWHERE)",
                    "#elif !defined(RIGHT)", header, "#endif", "namespace of_first {", f'#include "{self.sources[0]}"', "}",
                    "namespace of_second {", f'#include "{self.sources[1]}"', "}"]
        self.assertEqual(together.joined(self.sources).splitlines(), expected)
        with self.assertRaisesRegex(SystemExit, "one name"):
            together.joined(self.sources * 2)

    def test_what_cannot_be_in_a_namespace_is_left_out(self):
        for text, is_joined in (("int x;", True), ("#define X 1\n", False), ("#define X 1\n#undef X\n", True), ("  #  define X\n", False),
                                ("#if !defined(X)\n#define X 1\n#endif\n", True), ("namespace halftone {\n}\n", False),
                                ("template <>\nstruct halftone::a<int> {};\n", False), ("template <>\nstruct a<int> {};\n", True)):
            self.assertEqual(together.can_be_joined(self.write("third.cpp", text)), is_joined, text)
        unit, tool = self.path("unit.cpp"), [sys.executable, "-B", os.path.join(HERE, "together.py")]
        left = self.write("third.cpp", "#define X 1\n")
        run = lambda *arguments: subprocess.run([*tool, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertEqual(run("join", unit, *self.sources, left), left + "\n")
        self.assertEqual(run("sources", unit).split(), self.sources)
        self.assertNotEqual(subprocess.run([*tool, "join"], stderr=subprocess.DEVNULL).returncode, 0)

    def test_messages_are_of_the_source_that_they_speak_of(self):
        said = together.attribute(CLANG, ["/w/first.cpp", "/w/second.cpp"])
        self.assertEqual({path: re.findall("sentence (one|two)\"\n", text) for path, text in said.items()},
                         {"/w/first.cpp": ["one"], "/w/second.cpp": ["two"]})
        said = together.attribute(NVCC, ["/w/first.cpp", "/w/second.cpp"])
        self.assertEqual({path: re.findall("sentence (\\w+)\"", text) for path, text in said.items()},
                         {"/w/first.cpp": ["one", "one"], "/w/second.cpp": ["two", "three"]})
        said = together.attribute(GCC, ["/w/first.cpp", "/w/second.cpp"])
        self.assertEqual(list(said), ["/w/second.cpp"])
        self.assertIn("sentence one", said["/w/second.cpp"])
        self.assertIn("in the same context", said["/w/second.cpp"])
        self.assertNotIn("not asked for", said["/w/second.cpp"])

    def test_messages_of_this_compiler(self):
        compiler = shutil.which(os.environ.get("CXX", "c++"))
        if not compiler:
            self.skipTest("there is no compiler")
        unit = self.write("unit.cpp", together.joined(self.sources))
        messages = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", unit], stderr=subprocess.PIPE, text=True).stderr
        said = together.attribute(messages, self.sources)
        self.assertEqual(sorted(said), self.sources, messages)
        first, second = said[self.sources[0]], said[self.sources[1]]
        self.assertIn("unknown_to_first", first)
        self.assertNotIn("unknown_to_first", second)
        self.assertEqual([text.count("error: static") for text in (first, second)], [2, 1], messages)  # of check<int> once

    def test_marks(self):
        mark = lambda line: cuda.mark_in(f"// SPDX\n// compile: {line}\n", "a.cu")
        self.assertEqual(mark("at most 7 kernels."), ("", "", 7))
        self.assertEqual(mark("read alone, at most 70 kernels. So, at most."), ("read alone", "", 70))
        self.assertEqual(mark("with --full, sm_89 too, at most 20 kernels"), ("with --full", "sm_89 too", 20))
        for line in ("red, at most 7 kernels", "read", "read at most 7 kernels", "joined, read, at most 7 kernels"):
            with self.assertRaisesRegex(SystemExit, "a.cu: needs a line like", msg=line):
                mark(line)

    def test_units_are_of_one_way_of_compiling(self):
        first, second = self.sources
        marks = {first: cuda.mark("joined", "", 3), second: cuda.mark("joined", "", 4), "a.cu": cuda.mark("", "each architecture", 10),
                 "b.cu": cuda.mark("with --full", "", 5)}
        alone, both = cuda.units(marks, self.folder)
        self.assertEqual((alone.name, both.name, both.mark.most), ("a.cu", "tests/cuda/joined.cu", 7))
        self.assertEqual(together.sources_of(both.file), [first, second])
        code = lambda way, of, architectures=("80", "90"), keeps=False: cuda.code_of(cuda.mark(way, of, 1), list(architectures), keeps)
        self.assertEqual(code("", ""), ["-gencode=arch=compute_80,code=[sm_90]"])
        self.assertEqual(code("joined", "", keeps=True), ["-gencode=arch=compute_80,code=[compute_80]"])
        self.assertEqual(code("", "each architecture", keeps=True),
                         ["-gencode=arch=compute_80,code=[sm_80,compute_80]", "-gencode=arch=compute_90,code=[sm_90]"])
        self.assertEqual(len(code("", "sm_89 too", ("80", "90", "100", "120"))), 5)

    @unittest.skipUnless(shutil.which("c++filt"), "there is no c++filt")
    def test_kernels_have_the_local_memory_that_they_may_have(self):
        entry = ("ptxas info    : Compiling entry function '_Z5plainIiEvv' for 'sm_90'\n"
                 "ptxas info    : Function properties for _Z5plainIiEvv\n    {} bytes stack frame, {} bytes spill stores, {} bytes spill loads\n"
                 "ptxas info    : Used {} registers, 400 bytes cmem[0]\n")
        faults = lambda *figures, most=1: cuda.judge(entry.format(*figures), most, {"void plain<*": (16, 8, 8)})[1]
        self.assertEqual(cuda.judge(entry.format(0, 0, 0, 99), 1, {})[0], "1 kernels, at most 99 registers")
        self.assertEqual(faults(0, 0, 0, 9), [])
        self.assertEqual(faults(16, 8, 8, 9), [])
        for figures in ((17, 0, 0), (0, 9, 0), (0, 0, 9)):
            self.assertEqual(len(faults(*figures, 9)), 1, figures)
        self.assertEqual(len(cuda.judge(entry.format(8, 0, 0, 9), 1, {"void other<*": (16, 8, 8)})[1]), 1)
        self.assertEqual(faults(0, 0, 0, 9, most=0), ["more kernels than the 0 allowed"])
        os.chdir(cuda.ROOT)
        allowed = cuda.allowed_local_memory()
        self.assertEqual(allowed["plain_attention_*kernel<*"], (16, 16, 64))
        self.assertEqual(allowed["warpgroup_attention_kernel<*, warpgroup_attention_tiling<64, 3, *"], (48, 96, 120))  # in two lines
        self.assertTrue(all(any(limit) for limit in allowed.values()), allowed)


if __name__ == "__main__":
    unittest.main()
