# SPDX-License-Identifier: MIT
"""docs/troubleshooting.md has a line for each error message, and each of its lines is about one that there is.

    tests/headers/troubleshooting.py             compares, and prints messages without a line and fragments without a message
    tests/headers/troubleshooting.py list        prints all messages with their places

A message is what the headers give to fail<...>, throw, fprintf, or static_assert with `halftone:`, what #error and CMake's FATAL_ERROR
say, and sentences that begin with who says them (`communicator: ...`). What is known only at run time is `…` there.

A line of a table whose first cell begins with `...` is about messages: each `fragment` in that cell is the beginning of one, or of
several that the line describes together, with `…` for whatever stands in between. One that begins with `…` stands anywhere in a
message. Lines whose cell begins otherwise tell what other programs say, or a question.
"""
import glob
import os
import re
import sys

PAGE = 'docs/troubleshooting.md'
HOLE = '…'
LEAST_LETTERS = 6  # a message with fewer of its own is told by what stands in its holes
HEADERS = '**/*.hpp', '**/*.cuh'
# Sentences for people that are no errors: why a strategy was chosen, what a plan does, what a loader of checkpoints went past.
NO_ERRORS = re.compile(r'(math|flash|recorded|planned|not planned|not followed[^:]*|skipped …): ')
ESCAPES = {'n': '\n', 't': '\t', '0': '\0'}
CALL = re.compile(r'\b(fail<(?:typename )?[\w:]+>|fprintf|throw [\w:]*(?:error|out_of_memory)|static_assert|sentence)\s*([({])')
TOKEN = re.compile(r'''//[^\n]*|/\*.*?\*/|R"(\w*)\((.*?)\)\1"|"((?:[^"\\\n]|\\.)*)"|(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])|'(?:[^'\\\n]|\\.)+'|[^"'/R]+|.''', re.S)


def without_comments(text):
    """The source with comments as blanks, and the contents of its string literals, by their place."""
    out, literals, at = [], {}, 0
    for token in TOKEN.finditer(text):
        word = token.group()
        if word.startswith(('//', '/*')):
            word = re.sub(r'[^\n]', ' ', word)
        elif len(word) > 1 and word[0] == '"' or word.startswith('R"'):
            inside = token.group(2)
            if inside is None:
                inside = re.sub(r'\\(.)', lambda m: ESCAPES.get(m.group(1), m.group(1)), token.group(3))
            literals[at] = inside
            word = '"' + re.sub(r'[^\n]', '_', word[1:-1]) + '"'
        elif word[0] == "'" and len(word) > 2:
            literals[at] = ESCAPES.get(word[2], word[2]) if word[1] == '\\' else word[1:-1]
            word = "'" + '_' * (len(word) - 2) + "'"
        out.append(word)
        at += len(word)
    return ''.join(out), literals


def closing(code, start):
    """Where the bracket at `start` closes."""
    depth = 0
    for at in range(start, len(code)):
        if code[at] in '([{':
            depth += 1
        elif code[at] in ')]}':
            depth -= 1
            if depth == 0:
                return at
    return len(code)


def arguments(code, start, end, separators=','):
    """The ranges of what stands between separators, outside of brackets."""
    begin, depth = start, 0
    for at in range(start, end):
        if code[at] in '([{':
            depth += 1
        elif code[at] in ')]}':
            depth -= 1
        elif code[at] in separators and depth == 0:
            yield begin, at
            begin = at + 1
    yield begin, end


LITERALS_ONLY = re.compile(r'''\s*("_*"\s*)+|\s*'_+'\s*''')


def text_of(code, literals, start, end):
    """What an expression prints: the text of literals, and a hole for everything else."""
    part = code[start:end]
    if LITERALS_ONLY.fullmatch(part):
        return ''.join(literals[at] for at in sorted(literals) if start <= at < end)
    inner = re.match(r'\s*(?:[\w:]*\b(?:sentence|string))\s*([({])', part)
    if inner and closing(code, start + inner.start(1)) >= start + len(part.rstrip()) - 1:
        at = start + inner.start(1)
        return joined(code, literals, at + 1, closing(code, at), ',')
    if '+' in part and '"' in part:
        pieces = list(arguments(code, start, end, '+'))
        if len(pieces) > 1:
            return ''.join(text_of(code, literals, *piece) for piece in pieces)
    return HOLE


def joined(code, literals, start, end, separators=','):
    return ''.join(text_of(code, literals, *one) for one in arguments(code, start, end, separators))


def normal(text):
    """One line without backticks, and without who says all messages of the compiler; several holes as one."""
    text = re.sub(r'\s+', ' ', text.replace('`', '')).strip()
    text = re.sub(r'^(static assertion failed: )?halftone: ', '', text)
    return re.sub(f'{HOLE}+', HOLE, text)


def messages_of_header(path):
    with open(path, encoding='utf-8') as stream:
        text = stream.read()
    code, literals = without_comments(text)
    for call in CALL.finditer(code):
        name, start = call.group(1), call.start(2)
        end = closing(code, start)
        line = code.count('\n', 0, call.start()) + 1
        if name == 'static_assert':
            *_, last = arguments(code, start + 1, end)
            said = text_of(code, literals, *last)
            if not said.startswith('halftone: '):
                continue
        else:
            said = joined(code, literals, start + 1, end)
            if name == 'fprintf':
                said = re.sub(r'%[\w.]*', HOLE, said.removeprefix(HOLE))
            if name == 'sentence' and (not re.match(r'[a-z][\w ]*: ', said) or NO_ERRORS.match(said)):
                continue
        if letters(said) >= LEAST_LETTERS:
            yield f'{path}:{line}', normal(said)
    for line in re.finditer(r'^#\s*error\s+"(.*)"', text, re.M):
        yield f'{path}:{text.count(chr(10), 0, line.start()) + 1}', normal(line.group(1))


def messages_of_cmake(path):
    with open(path, encoding='utf-8') as stream:
        text = stream.read()
    for call in re.finditer(r'message\(FATAL_ERROR\s+("(?:[^"\\]|\\.)*"(?:\s+"(?:[^"\\]|\\.)*")*)', text):
        said = ''.join(re.findall(r'"((?:[^"\\]|\\.)*)"', call.group(1)))
        yield f'{path}:{text.count(chr(10), 0, call.start()) + 1}', normal(re.sub(r'\$\{[^}]*\}', HOLE, said))


def all_messages():
    """Each message once, with the first place of each."""
    found = {}
    headers = sorted({path for pattern in HEADERS for path in glob.glob('include/' + pattern, recursive=True)})
    for path in headers:
        for place, message in messages_of_header(path):
            found.setdefault(message, place)
    for path in ['CMakeLists.txt', *sorted(glob.glob('cmake/*'))]:
        for place, message in messages_of_cmake(path):
            found.setdefault(message, place)
    return found


def fragments():
    """The fragments of the page's lines about messages, with the number of their line."""
    with open(PAGE, encoding='utf-8') as stream:
        lines = stream.read().splitlines()
    for number, line in enumerate(lines, 1):
        if not line.startswith('| `'):
            continue
        cell = re.split(r'(?<!\\)\s\|(?:\s|$)', line[2:], maxsplit=1)[0]
        for fragment in re.findall(r'`([^`]+)`', cell):
            yield number, normal(fragment)


def letters(text):
    return len(re.sub(r'\W', '', text))


def is_about(fragment, message):
    """Whether the pieces of a fragment stand in a message in their order; the first at its beginning, if no hole is before it. A name
    that the message has from its caller may be told: `add: the shapes …` of `…: the shapes …`."""
    named = re.fullmatch(r'[a-z]\w*(: .*)', fragment)
    if named and message.startswith(HOLE + ':') and letters(named.group(1)) > 8 and is_about(HOLE + named.group(1), message):
        return True
    pieces = [piece.strip() for piece in fragment.split(HOLE)]
    at = 0
    for index, piece in enumerate(pieces):
        if piece == '':
            continue
        found = message.find(piece, at)
        if found < 0 or (index == 0 and found != 0):
            return False
        at = found + len(piece)
    return True


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
    messages = all_messages()
    if sys.argv[1:] == ['list']:
        for message, place in messages.items():
            print(f'{place}: {message}')
        return 0
    used, faults = set(), 0
    lines = list(fragments())
    for number, fragment in lines:
        if letters(fragment) < 3:
            print(f'{PAGE}:{number}: `{fragment}` says too little')
            faults += 1
    for message, place in messages.items():
        about = [line for line in lines if is_about(line[1], message)]
        used.update(about)
        if not about:
            print(f'{place}: no line in {PAGE} has: {message}')
            faults += 1
    for number, fragment in lines:
        if (number, fragment) not in used:
            print(f'{PAGE}:{number}: no message has: {fragment}')
            faults += 1
    print(f'{len(messages)} messages, {len(lines)} fragments on {len({n for n, _ in lines})} lines; {faults} faults')
    return 1 if faults or not messages or not lines else 0


if __name__ == '__main__':
    sys.exit(main())
