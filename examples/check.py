#!/usr/bin/env python3
"""The examples work with what is installed: header alone from C and C++, library, pkg-config file.

usage: check.py BUILD_ROOT SOURCE_ROOT SPILLWAYD CC [CXX]
"""
import os
import subprocess
import sys
import tempfile
import time

FLAGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


def run(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **kwargs)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def find(root, name):
    for folder, folders, names in os.walk(root):
        if name in names or name in folders:
            return os.path.join(folder, name)
    sys.exit(f"{name} was not installed")


def expect(got, wanted):
    print(got.strip())
    if wanted not in got:
        sys.exit(f"expected: {wanted}")


def install(build, into):
    run("meson", "install", "-C", build, "--destdir", into, "--no-rebuild")
    return os.path.dirname(find(into, "libspillway.so.0")), find(into, "include")


def wait_for_pool(daemon, command, env):
    for _ in range(200):
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode == 0:
            return done.stdout
        if daemon.poll() is not None:
            sys.exit(f"spillwayd ended: {daemon.returncode}")
        time.sleep(0.05)
    sys.exit(f"the pool did not come up: {done.stderr}")


def main():
    build, source, spillwayd, cc = sys.argv[1:5]
    examples = os.path.join(source, "examples")
    shm = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory(dir=shm) as pool:
        libdir, include = install(build, os.path.join(root, "installed"))
        alone = os.path.join(root, "alone.cc")
        with open(alone, "w", encoding="utf-8") as f:
            f.write("#include <spillway/spillway.h>\n")
        for cxx in sys.argv[5:6]:
            run(cxx, *FLAGS, "-std=c++17", "-fsyntax-only", "-I", include, alone)
        program = os.path.join(root, "attach")
        run(cc, *FLAGS, "-std=c11", os.path.join(examples, "attach.c"), "-I", include,
            "-L", libdir, "-lspillway", "-o", program)
        config = open(find(root, "spillway.pc"), encoding="utf-8").read()
        expect(config, "-lspillway")
        env = dict(os.environ, LD_LIBRARY_PATH=libdir)
        daemon = subprocess.Popen([spillwayd, "--name", "examples", "--shm-dir", pool, "--quiet"])
        try:
            expect(wait_for_pool(daemon, [program, "examples", pool], env),
                   "action 1, 0 of 64 tokens to load")
            lookup = [sys.executable, os.path.join(examples, "lookup.py"), "--pool", "examples",
                      "--lib", os.path.join(libdir, "libspillway.so.0"), "--shm-dir", pool]
            expect(run(*lookup), "miss: 0 of 64 tokens")
            expect(run(*lookup, "--store"), "load: 48 of 64 tokens")
            expect(run(*lookup), "load: 48 of 64 tokens")
        finally:
            daemon.terminate()
            daemon.wait(30)


if __name__ == "__main__":
    main()
