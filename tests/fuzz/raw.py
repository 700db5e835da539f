"""Mistakes in the text of a YAML file: tags, aliases, recursion, encodings, truncation, sizes."""

import random
from collections.abc import Callable

TAGS = [
    b"!!bool maybe",
    b"!!int ''",
    b"!!float x",
    b"!!binary =",
    b"!!timestamp 2001-99-99",
    b"!!set {a, b}",
    b"!!null x",
]
TAGS += [
    b"!!omap [a: 1]",
    b"!!pairs [a]",
    b"!!python/object:os.system {}",
    b"!x y",
    b"!!map 5",
    b"!!seq {}",
    b"!!str [1]",
]
TAGS += [
    b"2001-02-03",
    b"2001-02-30",
    b"0b2",
    b"0o9",
    b"1:99:99",
    b"190:20:30.15",
    b"0x",
    b"._",
    b"+.inf",
    b"=",
    b"? a",
    b"!!int 0x",
]
TAGS += [
    b"&a {x: *a}",
    b"&a [*a]",
    b"*nowhere",
    b"&b 5",
    b"{<<: 5}",
    b"{<<: [1]}",
    b"{? [a] : b}",
    b"{? {a: b} : c}",
    b"|",
    b">-",
    b"%",
]
TAGS += [
    b"0x" + b"f" * 5000,
    b"9" * 5000,
    b"1e" + b"9" * 400,
    b"-" + b"0" * 1000,
    b'"\\ud800"',
    b'"\\x00"',
    b"'",
    b'"\\q"',
]
JUNK = [
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\t",
    b"\r",
    b"\x85",
    b"\xe2\x80\xa8",
    b"---\n",
    b"...\n",
    b"%YAML 9.9\n---\n",
    b"@",
    b"`",
    b": ",
    b"\n- x\n",
]
LAUGHS = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(9)
)

Spoil = Callable[[random.Random, bytes], bytes]


def spoiled(rng: random.Random, text: bytes) -> bytes:
    """The text with one mistake."""
    return rng.choice(SPOILS)(rng, text)


def cut(rng: random.Random, text: bytes) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def tagged(rng: random.Random, text: bytes) -> bytes:
    """A value replaced by something that YAML has a special reading for."""
    lines = text.splitlines()
    rows = [row for row, line in enumerate(lines) if b": " in line]
    if rows:
        row = rng.choice(rows)
        lines[row] = lines[row].partition(b": ")[0] + b": " + rng.choice(TAGS)
    return b"\n".join(lines) + b"\n"


def inserted(rng: random.Random, text: bytes) -> bytes:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(JUNK) + text[at:]


def flipped(rng: random.Random, text: bytes) -> bytes:
    """Some letters replaced by others."""
    letters = bytearray(text)
    for _ in range(rng.choice([1, 2, 10]) if letters else 0):
        letters[rng.randrange(len(letters))] = rng.randrange(256)
    return bytes(letters)


def repeated(rng: random.Random, text: bytes) -> bytes:
    """A line given again, here or elsewhere."""
    lines = text.splitlines(keepends=True)
    return b"".join([*lines, rng.choice(lines)]) if lines else text


def encoded(rng: random.Random, text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode(
        rng.choice(["utf-16", "utf-32", "utf-8-sig", "latin-1", "utf-7"]), "replace"
    )


def deep(rng: random.Random, text: bytes) -> bytes:
    depth = rng.choice([50, 500, 5000])
    return (
        text
        + b"\nextra: "
        + rng.choice([b"[" * depth + b"]" * depth, b"{a: " * depth + b"1" + b"}" * depth, b"[" * depth])
    )


def large(rng: random.Random, text: bytes) -> bytes:
    """Much of something: letters, lines, items, or a few lines of aliases that stand for billions of items."""
    many = rng.choice(
        [b"x: " + b"y" * 200_000, b"\n".join(b"k%d: 1" % i for i in range(3000)), b"x: [" + b"1," * 5000 + b"]"]
    )
    return rng.choice(
        [
            text + b"\n" + many,
            LAUGHS,
            text + b"\n" + LAUGHS,
            text + b"\nx: &x {<<: *x}",
            text + b"\n" + LAUGHS.replace(b"&i", b"&i !!set"),
        ]
    )


def sent_through(rng: random.Random, text: bytes) -> bytes:
    """An alias of one part in the place of another, or of itself."""
    return text.replace(b"algorithm:\n", b"algorithm: &a\n  lower: *a\n", 1).replace(
        b"clients:\n", b"clients: &c\n", 1
    ) + rng.choice([b"", b"data: *c\n", b"<<: *c\n", b"problem: *a\n"])


SPOILS: list[Spoil] = [
    cut,
    tagged,
    tagged,
    tagged,
    inserted,
    inserted,
    flipped,
    flipped,
    repeated,
    encoded,
    deep,
    large,
    sent_through,
]
