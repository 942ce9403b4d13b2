# SPDX-License-Identifier: MIT
"""Makes one page of a template, a style sheet and scripts.

usage: pack.py OUTPUT.html TEMPLATE.html STYLE.css SCRIPT.js...

The template holds @STYLE@ and @SCRIPT@, and in its content security policy @STYLE-HASH@ and @SCRIPT-HASH@, so that a browser
runs and applies these texts and no others.
"""
import base64
import hashlib
import sys


def sha256(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def main():
    output, template, style, *scripts = sys.argv[1:]
    page, style, script = read(template), read(style), '"use strict";\n' + "".join(read(path) for path in scripts)
    if "</" in script or "<!--" in script or "</" in style:
        sys.exit("a style or script must not hold what could end its element")
    for name, text in (("@STYLE-HASH@", sha256(style)), ("@SCRIPT-HASH@", sha256(script)), ("@STYLE@", style), ("@SCRIPT@", script)):
        if page.count(name) != 1:
            sys.exit(f"{template}: {name} must be there once")
        page = page.replace(name, text)
    if page.count("@DATA@") != 1:
        sys.exit(f"{template}: @DATA@ must be there once")
    with open(output, "w", encoding="utf-8") as f:
        f.write(page)


if __name__ == "__main__":
    main()
