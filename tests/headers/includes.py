# SPDX-License-Identifier: MIT
"""The check of includes.sh: each header includes, itself or by what it includes, a header that declares each name that it uses.

Names are those that headers of halftone declare in a namespace, their macros, and the common ones of the standard library. What a compiler sees of a
header alone, headers.alone (tests/run.sh --full) shows; this reads words, in seconds.

    tests/headers/includes.py             all headers
    tests/headers/includes.py FILE...     programs: the names that they write as ht::name
"""
import collections
import os
import re
import sys

sys.dont_write_bytecode = True
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
sys.path.insert(0, 'tests/headers')
import api

# Words that are also names of members, functions of devices or of each instruction set, or that a template finds where it is used.
SEVERAL_MEANINGS = set("""
absent adafactor as_variable_operation attention_math attention_rows axis_reduction binary cache_heads category cell channel_norm
choose composition conv2d curve difference double_backward_application eight_bit_heads element_range exp2 flat float_control
found_squares gate generation gradient_norm handle inclusive_sum_bytes is_inside is_short is_wide is_zero larger ledger less lion
log10 log2 matmul measured modified_attention_math most_classes muon normal of_all operation_of optimizer_step own_bounds passes
paths pooling processor quotient row_sums rows_from some_rows sort_bytes sort_pairs sqrt strided_copy strip sum_columns trainer
trace unfold unscaled upper_halves usual_bounds usual_lines weighted where
""".split())
STANDARD = {
    'algorithm': 'all_of any_of clamp copy copy_n count_if fill fill_n find_if lower_bound max max_element min min_element nth_element '
                 'reverse rotate sort stable_sort transform unique upper_bound',
    'array': 'array', 'atomic': 'atomic', 'bit': 'bit_cast bit_ceil bit_width countl_zero countr_zero has_single_bit popcount',
    'chrono': 'chrono', 'cmath': 'ceil exp fabs floor fma frexp isfinite ldexp log log1p lround pow sqrt tanh',
    'concepts': 'convertible_to derived_from floating_point integral invocable same_as', 'condition_variable': 'condition_variable',
    'cstdio': 'fclose FILE fopen fprintf snprintf', 'cstring': 'memchr memcmp memcpy memmove memset strcmp strlen', 'deque': 'deque',
    'exception': 'current_exception exception_ptr rethrow_exception uncaught_exceptions', 'filesystem': 'filesystem',
    'fstream': 'ifstream ofstream', 'functional': 'function', 'iterator': 'back_inserter input_iterator_tag istreambuf_iterator',
    'limits': 'numeric_limits', 'map': 'map multimap', 'memory': 'make_shared make_unique shared_ptr unique_ptr weak_ptr',
    'mutex': 'lock_guard mutex once_flag unique_lock', 'new': 'bad_alloc nothrow', 'numeric': 'accumulate gcd iota lcm partial_sum',
    'optional': 'nullopt optional', 'set': 'set', 'span': 'span', 'sstream': 'istringstream ostringstream stringstream',
    'stdexcept': 'invalid_argument logic_error runtime_error', 'string': 'string stoi to_string', 'string_view': 'string_view',
    'thread': 'this_thread thread', 'tuple': 'apply make_tuple tie tuple tuple_cat tuple_size_v',
    'type_traits': 'conditional_t decay_t invoke_result_t is_base_of_v is_const_v is_same_v remove_const_t remove_cvref_t void_t',
    'typeinfo': 'type_info', 'unordered_map': 'unordered_map', 'utility': 'declval exchange forward index_sequence move pair swap',
    'variant': 'holds_alternative variant visit', 'vector': 'vector'}
# What a standard header has of another one, by the standard or by name.
ALSO = {'string': ('string_view',), 'map': ('utility',), 'tuple': ('utility',), 'unordered_map': ('utility',), 'utility': ('tuple',),
        'array': ('utility',), 'functional': ('utility', 'type_traits'), 'memory': ('utility', 'new'), 'vector': ('utility',),
        'algorithm': ('utility',), 'optional': ('utility',), 'variant': ('utility',), 'concepts': ('type_traits',),
        'exception': ('utility',), 'mutex': ('chrono',), 'condition_variable': ('mutex', 'chrono'), 'thread': ('chrono',),
        'deque': ('utility',), 'stdexcept': ('string',), 'fstream': ('string', 'iterator'), 'sstream': ('string', 'iterator'),
        'iostream': ('string', 'iterator'), 'ostream': ('string', 'iterator'), 'istream': ('string', 'iterator')}


# A row of a table that a macro reads: names of the table, and no use of what else has them.
ROW = r'(?m)^HALFTONE_[A-Z_]+\(([^()]*)\)'
TABLE, TAGS = 'include/halftone/policy/operation_table.hpp', 'include/halftone/policy/operations.hpp'


def code_of(text):
    text = re.sub(ROW, '', re.sub(r'//[^\n]*', '', text))
    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', ' ', text)


def names_of(files, is_qualified):
    """{name: the headers that declare it in a namespace}; where it is not told by one, without names that members have, too."""
    declared, members = collections.defaultdict(set), set()
    for tag in api.tags(with_bodies=True) + list(api.others(files)):
        if tag.scope_kind != 'namespace':
            if tag.name != tag.scope.split('::')[-1]:  # a constructor
                members.add(tag.name)
        elif tag.kind in api.NAMED:
            declared[tag.name].add(tag.file)
    for row in re.findall(ROW, '\n'.join(api.lines_of(TABLE))):
        declared[row.split(',')[0]].add(TAGS)
    others = set() if is_qualified else members | SEVERAL_MEANINGS
    return {name: where for name, where in declared.items()
            if name not in others and len(name) > 3 and not name.startswith(('operator', '__anon'))}


def main():
    files = sorted(os.path.join(folder, name) for folder, _, names in os.walk('include') for name in names
                   if name.endswith(('.hpp', '.cuh')))
    text = {file: '\n'.join(api.lines_of(file)) for file in files}
    names = names_of(files, is_qualified=bool(sys.argv[1:]))
    for file, t in text.items():
        for name in re.findall(r'(?m)^#\s*define (HALFTONE_(?!BODY\b)\w+)', t):
            names.setdefault(name, set()).add(file)
    home = {name: header for header, all_ in STANDARD.items() for name in all_.split()}
    programs = sys.argv[1:]
    for file in programs:
        with open(file, encoding='utf-8') as stream:
            text[file] = stream.read()
    includes = {file: ['include/' + name for name in re.findall(r'(?m)^#\s*(?:include|define HALFTONE_BODY) <(halftone/[^>]+)>', t)]
                for file, t in text.items()}
    of_standard = {file: set(re.findall(r'(?m)^#\s*include <([a-z_0-9]+)>', t)) for file, t in text.items()}
    of_headers, of_programs = r'(?<![\w.>:])(?:\w+::)*(\w+)', r'\b(?:ht|halftone)::(?:nn::|reference::)?(\w+)'
    faults = 0
    for file in programs or files:
        if '.simd.' in file:  # a body is read between others
            continue
        known, left = set(), [file]
        while left:
            one = left.pop()
            if one in text and one not in known:
                known.add(one)
                left += includes[one]
        standard = set().union(*(of_standard[one] for one in known))
        standard |= {also for header in standard for also in ALSO.get(header, ())}
        code = code_of(text[file])
        for name in sorted(set(re.findall(of_programs if programs else of_headers, code)) & names.keys()):
            if not names[name] & known and not re.search(rf'\b(?:struct|class) {name};', code):
                print(f'{file}: uses {name}, and includes none of {" ".join(sorted(names[name]))}')
                faults += 1
        for name in sorted(set(re.findall(r'\bstd::(\w+)', code)) & home.keys()):
            if home[name] not in standard:
                print(f'{file}: uses std::{name} without <{home[name]}>')
                faults += 1
    print(f'{len(programs or files)} files include what declares the names that they use, of {len(names) + len(home)} names'
          if faults == 0 else f'{faults} faults')
    return faults != 0


if __name__ == '__main__':
    sys.exit(main())
