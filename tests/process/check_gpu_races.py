"""The whole way to a GPU and back by real processes on the stand-in driver, for builds with
ThreadSanitizer, under which Criterion doesn't start: daemon, workers that pin and copy, engines that
register, store, load and compare, one of them with its worker inside. A race ends a process with status
66, which fails here.

usage: check_gpu_races.py SPILLWAYD GPU_ENGINE FAKE_CUDA
"""
import os
import subprocess
import sys
import tempfile
import time

DAEMON, ENGINE, DRIVER = sys.argv[1:4]
GPUS = ["GPU-aaaaaaaa-0000-0000-0000-000000000001", "GPU-bbbbbbbb-0000-0000-0000-000000000002"]
LIMIT_S = 60
wrong = []


def start_pool(folder, *options):
    """The daemon, and a file with all that it and its workers say."""
    words = open(folder + "/words", "w+", encoding="utf-8")
    daemon = subprocess.Popen([DAEMON, "--name", "pool", "--shm-dir", folder, "--copier", "cuda",
                               "--cuda-library", DRIVER, "--capacity-chunks", "256",
                               "--chunk-bytes", "4096", "--kv-blocks", "0", "--workers", "2",
                               "--pin-piece", "64KiB", *options],
                              stdout=words, stderr=words)
    return daemon, words


def said(words, text):
    words.seek(0)
    return text in words.read()


def await_words(words, text):
    until = time.monotonic() + LIMIT_S
    while not said(words, text):
        if time.monotonic() > until:
            words.seek(0)
            sys.exit(f"not said within {LIMIT_S} s: {text}\n{words.read()}")
        time.sleep(0.02)


def start_engine(folder, gpu, **env):
    return subprocess.Popen([ENGINE, folder, "pool", DRIVER, gpu, "rounds", "100"],
                            env={**os.environ, **env}, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def end_engine(what, engine):
    output = engine.communicate(timeout=LIMIT_S)[0].decode()
    if engine.returncode != 0 or "rounds 100" not in output:
        wrong.append(f"{what}: exit status {engine.returncode}\n{output}")


def run(*options, inside=None):
    with tempfile.TemporaryDirectory() as folder:
        daemon, words = start_pool(folder, *options)
        await_words(words, '"pool" is ready')
        env = {} if inside is None else {"GPU_ENGINE_INSIDE": str(inside)}
        engines = [start_engine(folder, GPUS[0]), start_engine(folder, GPUS[0]),
                   start_engine(folder, GPUS[1], **env)]
        for number, engine in enumerate(engines):
            end_engine(f"engine {number} {options}", engine)
        daemon.terminate()
        if daemon.wait(timeout=LIMIT_S) != 0:
            wrong.append(f"{options}: the daemon ended with {daemon.returncode}")
        words.seek(0)
        text = words.read()
        for bad in ("ThreadSanitizer", "ended with status", "was killed", "ended badly"):
            if bad in text:
                wrong.append(f"{options}: {bad}\n{text}")


os.environ["FAKE_CUDA_DEVICES"] = ",".join(f"{gpu}@0000:{i}0:00.0" for i, gpu in enumerate(GPUS, 1))
run()
run("--inside", "1", inside=1)
if wrong:
    sys.exit("\n".join(wrong))
