# SPDX-License-Identifier: MIT
"""The check of designators.sh: no assignment takes braces without a type that have designators, however deep.

It reads all headers and .cu files, of tests and programs, too, and what README.md and docs/ show. Source files of C++ are not nvcc's.

    tests/headers/designators.py
"""
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))

STATEMENTS = {'return', 'co_return', 'co_yield', 'else', 'do', 'throw', 'case'}  # words before an expression that are no type
ASSIGNING = {'=', '+=', '-=', '*=', '/=', '%=', '&=', '|=', '^=', '<<=', '>>='}
COMMENT_OR_LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])\'', re.S)
TOKEN = re.compile(r'\w+|->|::|<<=|>>=|[-+*/%&|^=!<>]=|&&|[^\s\w]')
OPENING = {')': '(', ']': '['}
RIGHT = {
    'a declaration': 'template <class T> void f(T t) { pos p = {.size = t}; const pos& q = {.size = t}; std::vector<pos> r = {{.size = t}}; }',
    'a parameter': 'struct s { s(int a, const pos& p = {.size = 3}, pos* q = {}); };',
    'braces with a type': 'template <class T> void f(T t) { p = pos{.size = t}, q.a[0] = two{.a = {.size = t}}, r = {pos{.size = t}}; }',
    'a designator': 'auto p = two{.a = {.size = 3}, .b = {.size = 4}};',
    'braces without designators': 'void f() { p = {1, 2.5, q.size, .5, call({.size = 3})}; if (p == pos{.size = 3}) p = {}; }',
    'a comment': 'int a;  // p = {.size = 3}\nconst char* t = "p = {.size = 3}"; /* p = {.size = 4} */',
}
WRONG = {
    'an assignment': 'void f() { p = {.size = 3}; }',
    'behind a condition': 'void f() { if (a) p = {.size = 3}; }',
    'behind else': 'void f() { if (a) b(); else p = {.size = 3}; }',
    'to a member': 'void f() { this->p[i + 1].a = {.size = 3}; }',
    'through a pointer': 'void f() { *p = {.size = 3}; }',
    'to what a call returns': 'void f() { at(i, {1, 2}) = {.size = 3}; }',
    'of a sum': 'void f() { p += {.size = 3}; }',
    'further inside': 'void f() { p = {1, {.size = 3}}; }',
    'behind a comma': 'void f() { p = 1, q = {.seed = 3,\n .size = 4}; }',
    'in a lambda': 'auto f = [&](auto u) { p = {.size = u}; };',
}


def tokens_of(text):
    """(token, line) of a text's code."""
    text = COMMENT_OR_LITERAL.sub(lambda found: re.sub(r'[^\n]', ' ', found[0]), text)
    line, at, tokens = 1, 0, [(';', 1)]
    for found in TOKEN.finditer(text):
        line, at = line + text.count('\n', at, found.start()), found.start()
        tokens.append((found[0], line))
    return tokens


def is_name(token):
    return (token[0].isalpha() or token[0] == '_') and token not in STATEMENTS


def operand(tokens, last):
    """Where the operand begins that ends with the token `last`: a name with its members, subscripts and arguments."""
    first = last
    while True:
        token = tokens[first][0]
        if token in OPENING:
            depth = 0
            while first > 0:
                depth += (tokens[first][0] == token) - (tokens[first][0] == OPENING[token])
                if depth == 0:
                    break
                first -= 1
            if first == 0 or not (is_name(tokens[first - 1][0]) or tokens[first - 1][0] in OPENING):
                return first
            first -= 1
        elif tokens[first - 1][0] in ('.', '->', '::'):
            if tokens[first - 1][0] == '::' or tokens[first - 2][0] in OPENING or is_name(tokens[first - 2][0]):
                first -= 2
            else:
                return first - 1
        else:
            return first


def is_assigned(tokens, sign):
    """Whether `=` at a place assigns, and is not that of a declaration, a default or a designator."""
    first = operand(tokens, sign - 1)
    if tokens[first][0] == '.':
        return False
    before = first - 1
    while tokens[before][0] in ('*', '&', '&&'):
        before -= 1
    return not (is_name(tokens[before][0]) or tokens[before][0] == '>')


def has_designators(tokens, brace):
    """Whether the braces that open at a place, or braces without a type in them, have designators."""
    open_ = []  # of each bracket whether it is a brace without a type
    for i in range(brace, len(tokens)):
        token, previous = tokens[i][0], tokens[i - 1][0]
        if token in ('{', '(', '['):
            open_.append(token == '{' and (i == brace or previous in ('{', ',', '=')))
        elif token in ('}', ')', ']'):
            open_.pop()
            if not open_:
                return False
        elif token == '.' and previous in ('{', ',') and all(open_) and is_name(tokens[i + 1][0]):
            return True
    return False


def faults(text):
    """The lines of a text that assign braces with designators."""
    tokens = tokens_of(text)
    return [line for i, (token, line) in enumerate(tokens[:-1]) if token in ASSIGNING and tokens[i + 1][0] == '{' and
            (token != '=' or is_assigned(tokens, i)) and has_designators(tokens, i + 1)]


def texts():
    """(path, text) of what nvcc reads; of a document its code, in its lines."""
    for folder in ('include', 'src', 'tests', 'bench', 'examples'):
        for path, _, names in os.walk(folder):
            for name in sorted(names):
                if name.endswith(('.hpp', '.cuh', '.cu')):
                    yield os.path.join(path, name), open(os.path.join(path, name), encoding='utf-8').read()
    for path in ['README.md', *(os.path.join('docs', name) for name in sorted(os.listdir('docs')) if name.endswith('.md'))]:
        shown, lines = False, []
        for line in open(path, encoding='utf-8'):
            shown = re.match(r'```(?:cpp|cuda)$', line) is not None or shown and not line.startswith('```')
            lines.append(line if shown and not line.startswith('```') else '\n')
        yield path, ''.join(lines)


def main():
    for name, text in RIGHT.items():
        if faults(text):
            sys.exit(f'designators: takes {name} for an assignment of designators')
    for name, text in WRONG.items():
        if len(faults(text)) != 1:
            sys.exit(f'designators: does not see a planted assignment {name}')
    count, failed = 0, False
    for path, text in texts():
        count += 1
        if not re.search(r'=\s*\{', text):
            continue
        for line in faults(text):
            failed = True
            print(f'{path}:{line}: assigns braces with designators, whose names nvcc drops in templates; write x = type{{.a = ...}}')
    if failed:
        sys.exit(1)
    print(f'{count} files, no assignment of braces with designators')


main()
