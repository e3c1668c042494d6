"""Check that a wheel is pure Python, typed, licensed, and holds the package alone."""

import sys
import zipfile

wheel = zipfile.ZipFile(sys.argv[1])
names = wheel.namelist()
strays = [name for name in names if not name.startswith(("pullback/", "pullback-"))]
compiled = [name for name in names if name.endswith((".so", ".pyd", ".dylib", ".nbi", ".nbc", ".pyc"))]
tests = [name for name in names if "/tests/" in name or "/test_" in name]
metadata = next(name for name in names if name.endswith(".dist-info/WHEEL"))

problems = [
    (strays, f"files outside the package: {strays}"),
    (compiled, f"compiled files: {compiled}"),
    (tests, f"tests: {tests}"),
    ("pullback/py.typed" not in names, "no py.typed"),
    (not any(name.endswith("LICENSE") for name in names), "no LICENSE"),
    (b"Root-Is-Purelib: true" not in wheel.read(metadata), "not marked as pure Python"),
]
complaints = [message for found, message in problems if found]
if complaints:
    sys.exit(f"{sys.argv[1]}: " + "; ".join(complaints))
print(f"{len(names)} files, pure Python, typed")
