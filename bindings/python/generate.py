# SPDX-License-Identifier: MIT
"""Writes stitch/_declarations.py from the public headers: enumerations, structs, callback types, prototypes, initial
values.

usage: generate.py INCLUDE-FOLDER CC > stitch/_declarations.py

The C preprocessor does the expanding (enumerations come from X-macros), so that what is read here is plain C
declarations. Only this script needs a compiler; the file that it writes is committed, and a test compares the two
(tests/python/test_declarations.py).
"""

import re
import subprocess
import sys

HEAD = '''# SPDX-License-Identifier: MIT
"""Declarations of libstitch for ctypes. Written by bindings/python/generate.py from include/stitch/*.h: do not edit.

Strings that a callback receives are plain addresses (they may lack a NUL); strings that functions return are bytes and
copied, unless the caller has to free them, then they are addresses too.
"""
from __future__ import annotations

import enum
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Tuple

from ._integers import Structure
'''

SCALARS = {
    "void": "None",
    "bool": "c_bool",
    "_Bool": "c_bool",
    "char": "c_char",
    "int": "c_int",
    "double": "c_double",
    "size_t": "c_size_t",
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
}


def preprocess(include, cc):
    """The text that comes from our headers, macros expanded."""
    out = subprocess.run(
        [*cc.split(), "-E", "-x", "c", "-I", include, "-"],
        input="#include <stitch/stitch.h>\n",
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    ours, kept = False, []
    for line in out.splitlines():
        marker = re.match(r'#\s*(?:line\s+)?\d+\s+"([^"]*)"', line)
        if marker:
            ours = "/stitch/" in marker.group(1)
        elif ours and not line.lstrip().startswith("#"):
            kept.append(line)
    return re.sub(r"__attribute__\s*\(\(.*?\)\)\)|__attribute__\s*\(\(.*?\)\)", "", "\n".join(kept))


def macros(include, cc):
    """{name: body} of all macros without parameters that our headers define."""
    out = subprocess.run(
        [*cc.split(), "-E", "-dM", "-x", "c", "-I", include, "-"],
        input="#include <stitch/stitch.h>\n",
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return dict(re.findall(r"^#define (STITCH_\w+) (.+)$", out, re.MULTILINE))


def split(text, separator=","):
    """Splits at separators that are in no brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "([{"
        depth -= c in ")]}"
        if c == separator and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]


class Reader:
    def __init__(self, include, cc):
        self.defined = macros(include, cc)
        self.enums, self.structs, self.callbacks, self.aliases, self.functions, self.opaque = {}, {}, {}, {}, {}, set()
        self.order = []
        for declaration in split(preprocess(include, cc), ";"):
            self.declaration(re.sub(r"\s+", " ", declaration))

    def declaration(self, text):
        if text in ("}", ""):
            return
        enum_ = re.fullmatch(r"typedef enum (\w+) \{(.*)\} (\w+)", text)
        struct = re.fullmatch(r"typedef struct (\w+) \{(.*)\} (\w+)", text)
        opaque = re.fullmatch(r"typedef struct (\w+) (\w+)", text)
        callback = re.fullmatch(r"typedef (.*?)\(\*(\w+)\) ?\((.*)\)", text)
        alias = re.fullmatch(r"typedef (.*?)(\w+)", text)
        function = re.fullmatch(r"((?:[\w*]+ )+\*?)(stitch_\w+)\((.*)\)", text)
        if enum_:
            self.enums[enum_.group(3)] = self.enumerators(enum_.group(2))
        elif struct:
            self.structs[struct.group(3)] = [f for part in split(struct.group(2), ";") for f in self.fields(part)]
            self.order.append(struct.group(3))
        elif opaque:
            self.opaque.add(opaque.group(2))
        elif callback:
            self.callbacks[callback.group(2)] = self.prototype(callback.group(1), callback.group(3), True)
            self.order.append(callback.group(2))
        elif alias:
            self.aliases[alias.group(2)] = alias.group(1).strip()
        elif function:
            self.functions[function.group(2)] = self.prototype(function.group(1), function.group(3), False)
        else:
            raise SystemExit("generate.py does not know this declaration: " + text)

    @staticmethod
    def enumerators(text):
        found, value = [], 0
        for part in split(text):
            name, _, given = part.partition("=")
            value = int(given.strip().strip("()"), 0) if given else value
            found.append((name.strip(), value))
            value += 1
        return found

    def fields(self, text):
        """The (name, ctypes expression)s of "const char *a, *b[8]"."""
        function = re.fullmatch(r"(.*?)\(\*(\w+)\)\((.*)\)", text)
        if function:
            restype, args = self.prototype(function.group(1), function.group(3), True)
            return [(function.group(2), f"CFUNCTYPE({', '.join([restype, *args])})")]
        first, *more = split(text)
        base = re.match(r"((?:const )?(?:unsigned )?\w+) ?(.*)", first)
        fields = []
        for declarator in [base.group(2), *more]:
            stars, name, size = re.fullmatch(r"((?:\*|const| )*)(\w+)(?:\[(\w+)\])?", declarator).groups()
            kind = self.type(f"{base.group(1)} {stars}", "field")
            fields.append((name, f"{kind} * {size}" if size else kind))
        return fields

    def prototype(self, restype, params, callback):
        kinds = []
        for param in split(params) if params.strip() != "void" else []:
            text, size = re.fullmatch(r"(.*?)\w+(\[\w*\])?", param).groups()
            kinds.append(self.type(text + ("*" if size else ""), "callback" if callback else "param"))
        return self.type(restype, "callback" if callback else "result"), kinds

    def type(self, text, where):
        """The ctypes expression of a C type."""
        stars = text.count("*")
        base = re.sub(r"\b(const|struct|enum)\b|\*", " ", text).split()[0]
        if base in self.aliases:
            stars += self.aliases[base].count("*")
            base = re.sub(r"\bconst\b|\*", " ", self.aliases[base]).split()[0]
        const = text.strip().startswith("const")
        if base in self.callbacks:
            return base
        if base in self.enums:
            base = "int"
        if base == "void" or base in self.opaque:
            inner, stars = "c_void_p", stars - 1
            if stars < 0:
                return "None"
        elif base == "char" and stars and (const or where == "field"):
            inner, stars = "c_void_p" if where == "callback" else "c_char_p", stars - 1
        elif base == "char" and stars == 2:
            inner, stars = "c_void_p", 1  # out-parameter that the caller frees
        elif base in self.structs:
            inner = base
        else:
            inner = SCALARS[base]
        return "POINTER(" * stars + inner + ")" * stars

    def initial(self, struct):
        """The non-zero initial values, struct_size apart, of the _INIT macro."""
        body = self.defined.get(struct.upper() + "_INIT")
        if body is None:
            return {}
        values = split(re.fullmatch(r"\{(.*)\}", body.strip()).group(1))
        known = {}
        for (name, _), value in zip(self.structs[struct], values):
            if value in ("NULL", "0", "0.0") or value.startswith("{") or value.startswith("sizeof"):
                continue
            known[name] = value
        return known

    def constants(self):
        wanted = {}
        for name, body in self.defined.items():
            number = re.fullmatch(r"\(?(0x[0-9a-fA-F]+|\d+)[uUlL]*\)?", body.strip())
            text = re.fullmatch(r'"([^"]*)"', body.strip())
            if number:
                wanted[name] = str(int(number.group(1), 0))
            elif text:
                wanted[name] = f'"{text.group(1)}"'
        return wanted


def shared_prefix(names):
    """What all names begin with, up to an underscore: STITCH_DTYPE_."""
    first, last = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))
    return first[: first.rindex("_", 0, same) + 1]


def write(reader, out):
    out.write(HEAD)
    for name, value in sorted(reader.constants().items()):
        out.write(f"\n{name[len('STITCH_'):]} = {value}")
    out.write("\n")
    for name, values in reader.enums.items():
        out.write(f"\n\nclass {name}(enum.IntEnum):\n")
        prefix = shared_prefix([constant for constant, _ in values])
        for constant, value in values:
            out.write(f"    {constant[len(prefix):]} = {value}\n")
    for name in reader.order:
        if name in reader.callbacks:
            restype, args = reader.callbacks[name]
            out.write(f"\n\n{name} = CFUNCTYPE({', '.join([restype, *args])})\n")
            continue
        out.write(f"\n\nclass {name}(Structure):\n    _fields_ = [\n")
        for field, kind in reader.structs[name]:
            out.write(f'        ("{field}", {kind}),\n')
        out.write("    ]\n")
    out.write("\n\n# Structs by name, and what is not zero in them to begin with.\n")
    out.write("STRUCTS: Dict[str, Any] = {\n" + "".join(f'    "{name}": {name},\n' for name in reader.structs) + "}\n")
    out.write("INITIAL: Dict[str, Dict[str, float]] = {\n")
    for name in reader.structs:
        initial = reader.initial(name)
        if initial:
            out.write(f'    "{name}": {{' + ", ".join(f'"{k}": {v}' for k, v in initial.items()) + "},\n")
    out.write("}\n# The functions that initialise options structs.\nINITIALISERS: Dict[str, str] = {\n")
    for name, (_, args) in sorted(reader.functions.items()):
        if name.endswith("_init"):
            out.write(f'    "{args[0][len("POINTER("):-1]}": "{name}",\n')
    out.write(
        "}\n\n\ndef functions() -> Dict[str, Tuple[Any, Tuple[Any, ...]]]:\n"
        '    """Result and parameters of each function; made only when the library is loaded."""\n    return {\n'
    )
    for name, (restype, args) in sorted(reader.functions.items()):
        tail = "," if len(args) == 1 else ""
        out.write(f'        "{name}": ({restype}, ({", ".join(args)}{tail})),\n')
    out.write("    }\n")


def main():
    write(Reader(*sys.argv[1:3]), sys.stdout)


if __name__ == "__main__":
    main()
