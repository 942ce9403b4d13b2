# SPDX-License-Identifier: MIT
"""The declarations are those of the headers: text, layout, initial values; and the package uses every function.

usage: test_declarations.py INCLUDE-FOLDER [CC]
"""

import enum
import glob
import os
import re
import subprocess
import sys
import tempfile
from ctypes import sizeof

import tap
from stitch import _declarations as c
from stitch import _core

INCLUDE = sys.argv[1] if len(sys.argv) > 1 else os.path.join(tap.CHECKOUT, "include")
CC = sys.argv[2] if len(sys.argv) > 2 else "cc"
PACKAGE = os.path.dirname(os.path.abspath(c.__file__))


def compiler():
    try:
        subprocess.run([*CC.split(), "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise tap.Skip(f"there is no C compiler ({CC})") from None


def test_generated_file_is_what_the_headers_say():
    compiler()
    script = os.path.join(tap.CHECKOUT, "bindings", "python", "generate.py")
    made = subprocess.run([sys.executable, script, INCLUDE, CC], check=True, capture_output=True, text=True).stdout
    with open(c.__file__, encoding="utf-8") as kept:
        have = kept.read()
    different = [f"{a!r} is now {b!r}" for a, b in zip(have.splitlines(), made.splitlines()) if a != b]
    assert have == made, f"run bindings/python/generate.py: {(different or ['the lengths differ'])[0]}"


def test_layout_and_initial_values():
    compiler()
    lines = [
        "#include <stdio.h>",
        "#include <stitch/stitch.h>",
        "static void bytes(const char *name, const void *p, size_t n)",
        "{",
        '    printf("init %s ", name);',
        "    for (size_t i = 0; i < n; i++)",
        '        printf("%02x", ((const unsigned char *)p)[i]);',
        '    printf("\\n");',
        "}",
        "int main(void)",
        "{",
    ]
    with_init = set()
    for path in glob.glob(os.path.join(INCLUDE, "stitch", "*.h")):
        with open(path, encoding="utf-8") as header:
            with_init.update(re.findall(r"#define (STITCH_\w+)_INIT\b", header.read()))
    for name, struct in c.STRUCTS.items():
        lines.append(f'    printf("size {name} %zu\\n", sizeof({name}));')
        for field in struct._fields_:
            lines.append(
                f'    printf("at {name} {field[0]} %zu %zu\\n", offsetof({name}, {field[0]}), sizeof((({name} *)0)->{field[0]}));'
            )
        if name.upper() in with_init:
            lines += [
                "    {",
                f"        static {name} value = {name.upper()}_INIT;",
                f'        bytes("{name}", &value, sizeof(value));',
                "    }",
            ]
    for kind in vars(c).values():
        if isinstance(kind, type) and issubclass(kind, enum.IntEnum) and kind is not enum.IntEnum:
            lines.append(f'    printf("enum {kind.__name__} %zu\\n", sizeof({kind.__name__}));')
    lines += ["    return 0;", "}"]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
        with open(source, "w", encoding="utf-8") as text:
            text.write("\n".join(lines) + "\n")
        subprocess.run([*CC.split(), "-std=gnu11", "-I", INCLUDE, source, "-o", program], check=True)
        out = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    seen = {"size": 0, "at": 0, "init": 0, "enum": 0}
    for line in out:
        what, name, *rest = line.split()
        seen[what] += 1
        if what == "size":
            assert sizeof(c.STRUCTS[name]) == int(rest[0]), line
        elif what == "at":
            field = getattr(c.STRUCTS[name], rest[0])
            assert (field.offset, field.size) == (int(rest[1]), int(rest[2])), line
        elif what == "init":
            assert bytes(_core.make(c.STRUCTS[name])).hex() == rest[0], line
        else:
            assert int(rest[0]) == 4, line
    assert seen["size"] > 25 and seen["at"] > 250 and seen["init"] == len(with_init) and seen["enum"] > 10, seen


def test_every_function_is_declared_and_used():
    declared = set()
    for path in glob.glob(os.path.join(INCLUDE, "stitch", "*.h")):
        with open(path, encoding="utf-8") as header:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read(), flags=re.S)
        text = re.sub(r"#define[^\n]*(\\\n[^\n]*)*", "", text)
        declared.update(re.findall(r"\w+", found)[-1] for found in re.findall(r"\bSTITCH_API\b([^;{]*?)\(", text))
    assert declared == set(c.functions()), declared ^ set(c.functions())
    sources = ""
    for path in glob.glob(os.path.join(PACKAGE, "*.py")):
        if not path.endswith("_declarations.py"):
            with open(path, encoding="utf-8") as text:
                sources += text.read()
    used = set(re.findall(r"\bstitch_\w+", sources)) | {
        "stitch_reply_" + name for name in ("text", "reasoning", "finish", "notice", "model")
    }
    used |= set(c.INITIALISERS.values()) | {f"stitch_trace_{what}count" for what in ("", "kernel_", "copy_", "gap_")}
    # What Python has in another way: names of enumerators, sizes, look-ups in the copy of an interface, slots, the
    # first code of an error.
    other = {
        "stitch_action_name",
        "stitch_domain_name",
        "stitch_dtype_name",
        "stitch_dtype_parse",
        "stitch_dtype_size",
        "stitch_error_code",
        "stitch_executor_bind_name",
        "stitch_executor_slot",
        "stitch_image_find",
        "stitch_stage_name",
        "stitch_status_name",
        "stitch_trace_kind_name",
    }
    assert declared - used == other, (declared - used) ^ other


def test_names_are_those_of_the_library():
    from stitch._library import lib

    for status in c.stitch_status:
        assert lib.stitch_status_name(status).decode() == "STITCH_" + status.name
    for kind, function, skip in (
        (c.stitch_stage, lib.stitch_stage_name, ("NONE", "COUNT")),
        (c.stitch_action, lib.stitch_action_name, ("NONE",)),
        (c.stitch_dtype, lib.stitch_dtype_name, ("NONE",)),
        (c.stitch_trace_kind, lib.stitch_trace_kind_name, ()),
    ):
        for member in kind:
            assert member.name in skip or function(member).decode() == member.name.lower(), member
    from stitch import _dlpack, _tensors

    for dtype in c.stitch_dtype:
        if dtype:
            size = lib.stitch_dtype_size(dtype)
            assert _dlpack.CODES[dtype][1] == size * 8 and int(_tensors.TYPESTR[dtype][2:]) == size, dtype


if __name__ == "__main__":
    tap.main(sys.modules[__name__])
