# SPDX-License-Identifier: MIT
"""Compares the public headers with the ABI of the last release (tests/abi/libstitch.abi). Prints TAP.

usage: check.py INCLUDE-FOLDER CC             compare
       check.py --update INCLUDE-FOLDER CC    write the baseline (with a release)

abidw (libabigail) reads the debug information of a small object made here, which sees what a caller sees: the headers. It holds
a pointer to every function and to every type; the library itself would show its private types, which may change. abidiff does
not fit: it cannot be told that a struct with struct_size may grow at its end but not change elsewhere. That the library exports
the functions is another test's business (tests/api/check_symbols.py).
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

BASELINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libstitch.abi")


def declarations(include):
    """The names of all functions and of all complete types."""
    functions, types = set(), set()
    for path in glob.glob(os.path.join(include, "stitch", "*.h")):
        with open(path, encoding="utf-8") as header:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read(), flags=re.S)
        code = re.sub(r"#define[^\n]*(\\\n[^\n]*)*", "", text)
        for declaration in re.findall(r"\bSTITCH_API\b([^;{]*?)\(", code):
            functions.add(re.findall(r"\w+", declaration)[-1])
        types.update(re.findall(r"\btypedef\s+(?:enum|struct|union)\s+(\w+)\s*\{", code))
    return sorted(functions), sorted(types)


def debug_information(include, cc, functions, types):
    """abidw's document as a dictionary from type ids to elements, and the ids of our variables' types."""
    with tempfile.TemporaryDirectory() as folder:
        source, library, out = (os.path.join(folder, name) for name in ("abi.c", "libabi.so", "abi.xml"))
        with open(source, "w", encoding="utf-8") as text:
            text.write("#include <stitch/stitch.h>\n")
            for name in functions:
                text.write(f"extern __typeof__({name}) *const abi_{name};\n__typeof__({name}) *const abi_{name} = {name};\n")
            for name in types:
                text.write(f"extern {name} *abi_{name};\n{name} *abi_{name};\n")
        subprocess.run([*cc.split(), "-std=gnu11", "-g", "-shared", "-fPIC", "-I", include, source, "-o", library], check=True)
        subprocess.run(["abidw", "--out-file", out, library], check=True)
        elements, variables = {}, {}
        for element in xml.parse(out).getroot().iter():
            if element.tag == "var-decl" and element.get("name", "").startswith("abi_"):
                variables[element.get("name")[4:]] = element.get("type-id")
            # A type may be only declared in one place and defined in another, under one id.
            elif "id" in element.attrib and (element.get("id") not in elements or not element.get("is-declaration-only")):
                elements[element.get("id")] = element
        return elements, variables


def spell(elements, type_id):
    """A type in full: typedefs are followed, structs and enums stay names."""
    e = elements[type_id]
    if e.tag in ("type-decl", "class-decl", "union-decl", "enum-decl"):
        return e.get("name")
    inner = spell(elements, e.get("type-id")) if e.get("type-id") else ""
    if e.tag == "typedef-decl":
        return inner
    if e.tag == "pointer-type-def":
        return inner + "*"
    if e.tag == "qualified-type-def":
        return inner + "".join(" " + q for q in ("const", "volatile", "restrict") if e.get(q) == "yes")
    if e.tag == "array-type-def":
        return inner + "".join(f"[{part.get('length')}]" for part in e.findall("subrange"))
    if e.tag == "function-type":
        params = [spell(elements, part.get("type-id")) for part in e.findall("parameter")]
        return f"{spell(elements, e.find('return').get('type-id'))}({', '.join(params)})"
    raise ValueError("abidw wrote a type that is not known here: " + e.tag)


def describe(include, cc):
    """{"function NAME": [type], "enum NAME": ["NAME=value", ...], "struct NAME": ["offset name type", ...]}"""
    functions, types = declarations(include)
    elements, variables = debug_information(include, cc, functions, types)
    abi = {f"function {name}": [spell(elements, variables[name])] for name in functions}
    for name in types:
        e = elements[elements[variables[name]].get("type-id")]
        while e.tag == "typedef-decl":
            e = elements[e.get("type-id")]
        if e.tag == "enum-decl":
            abi[f"enum {name}"] = [f"{part.get('name')}={part.get('value')}" for part in e.findall("enumerator")]
        else:
            members = [(part.get("layout-offset-in-bits", "0"), part.find("var-decl")) for part in e.findall("data-member")]
            abi[f"struct {name}"] = [f"{int(at) // 8} {var.get('name')} {spell(elements, var.get('type-id'))}" for at, var in members]
    return abi


def write(abi, path):
    with open(path, "w", encoding="utf-8") as text:
        for name in sorted(abi):
            text.write(name + "\n" + "".join(f"    {line}\n" for line in abi[name]))


def read(path):
    abi = {}
    with open(path, encoding="utf-8") as text:
        for line in text.read().splitlines():
            if line.startswith("    "):
                lines.append(line.strip())
            else:
                lines = abi[line] = []
    return abi


def compatible(name, old, new):
    """Whether programs that were compiled with the old one may run with the new one."""
    if name.startswith("enum "):
        return set(old) <= set(new)
    if name.startswith("struct ") and old[0].startswith("0 struct_size "):
        return new[: len(old)] == old
    return new == old


def main():
    update = sys.argv[1] == "--update"
    include, cc = sys.argv[-2:]
    if not shutil.which("abidw"):
        print("1..0 # SKIP abidw is not installed (Debian package abigail-tools)")
        return 1 if update else 0
    if update:
        write(describe(include, cc), BASELINE)
        return 0
    if not os.path.exists(BASELINE):
        print("1..0 # SKIP there is no release yet to compare with")
        return 0
    old, new = read(BASELINE), describe(include, cc)
    bad = [name for name in sorted(old) if name not in new or not compatible(name, old[name], new[name])]
    print("1..2")
    print(f"{'ok' if len(old) > 20 else 'not ok'} 1 - the last release was read ({len(old)} functions and types)")
    print(f"{'not ok' if bad else 'ok'} 2 - compatible with the last release")
    for name in bad:
        print(f"# {name}" + ("" if name in new else " is gone"))
        for line in old[name] if name in new else []:
            if line not in new[name]:
                print(f"#   - {line}")
        for line in new.get(name, []):
            if line not in old[name]:
                print(f"#   + {line}")
    return 1 if bad or len(old) <= 20 else 0


if __name__ == "__main__":
    sys.exit(main())
