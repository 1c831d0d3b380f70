"""Skydive's functional tests, one after the other in several labs."""

import collections
import concurrent.futures
import pathlib
import re
import subprocess
import time

import lab as labs
import table

# Test, verdict and cause, by tabs; the others must pass. Of one that cannot run here nothing is started.
KNOWN = pathlib.Path(__file__).with_name("suite.tsv")
CANNOT, FAILS = "cannot run here", "fails"
# Of tests that run where the kernel has something, followed by its name (lab.offers).
NEEDS = "needs "
# Longest time of a test: 30 tries of a second each for several checks.
LONGEST = 900 if labs.EMULATED else 300
# Workflows that Skydive has within it: here they are given to Skua as files.
WORKFLOWS = "statics/workflows"


def known():
    """Verdict and cause by test."""
    lines = [line.split("\t") for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    found = {}
    for test, verdict, cause in lines:
        if not verdict.startswith(NEEDS):
            found[test] = (verdict, cause)
        elif not labs.offers(verdict.removeprefix(NEEDS)):
            found[test] = (CANNOT, cause)
    return found


def tests(skydive):
    """All tests, with the build tag and the name of the file that they are in."""
    found = collections.OrderedDict()
    for path in sorted((skydive.source / "tests").glob("*_test.go")):
        # Some are commented out.
        text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
        tag = re.match(r"// \+build (\w+)", text)
        for test in re.findall(r"^func (Test\w+)\(t ", text, re.M):
            found[test] = (tag and tag.group(1), path.name.removesuffix("_test.go"))
    return found


def fault(out):
    """The line that says why a test failed."""
    said = re.search(r"_test\.go:\d+: (.*)|tests\.go:\d+: ((?:Test failed|Failed|Packet|Fail ).*)|^(panic: .*)", out, re.M)
    lines = [line for line in out.splitlines() if re.search(r"\.go:\d+: ", line)]
    wrong = [line for line in lines if re.search("ailed|rror|xpected|hould|onflict", line)]
    text = wrong[0] if wrong else said.group(0) if said else out[-200:]
    text = re.sub(r"^\s*\w+\.go:\d+: ", "", text)
    if text.endswith("attempts fail:"):
        # What the last try has said.
        tries = re.findall(r"^\s*#\d+: (.*)", out, re.M)
        text = tries[-1] if tries else text
    return text


def one(skydive, test, verbose):
    """Runs a test in a lab of its own: how it ended, why, and in how many seconds."""

    def work(lab):
        for path in sorted((skydive.source / WORKFLOWS).glob("*.yaml")):
            if "Workflow" in test:
                labs.as_client(skydive, lab, "workflow", "create", "--path", path)
        options = ["-test.v", "-test.run", f"^{test}$", "-analyzer.listen", "%s:%d" % labs.OPEN]
        # Rules in parts, as Skydive reads them from OpenFlow itself.
        options += ["-ovs.oflow.native"]
        # Behind this flag tests ask for the past, too, as with a database.
        options += ["-analyzer.topology.backend", "history"]
        environment = lab.environment | {"SKYDIVE_LOGGING_LEVEL": "ERROR"}
        try:
            done = subprocess.run([skydive.tests, *options], capture_output=True, text=True, errors="replace",
                                  cwd=skydive.source / "tests", env=environment, timeout=LONGEST)
            out, passed = done.stdout + done.stderr, done.returncode == 0
        except subprocess.TimeoutExpired as late:
            out, passed = f"test.go:0: failed: no end within {LONGEST} s: {(late.stdout or b'')[-300:]}", False
        log = (lab.folder / "skua.log").read_text()[-3000:]
        return out, passed, log

    begin = time.monotonic()
    try:
        out, passed, log = labs.apart(work)
    except RuntimeError as error:
        out, passed, log = f"lab.go:0: failed: {error}", False, ""
    took = round(time.monotonic() - begin)
    if verbose and not passed:
        out = out[max(out.find("=== RUN"), 0):]
        print(f"---- {test}\n{out[:8000]}\n…\n{out[-1000:]}\n-- skua\n{log}", flush=True)
    if "--- SKIP" in out:
        return "skips itself", fault(out), took
    return ("ok", "", took) if passed and "--- PASS" in out else ("FAIL", fault(out), took)


def show_areas(areas):
    """Prints how the tests of each file ended."""
    head = ("area", "passed", "fails, see suite.tsv", "failed", CANNOT)
    kinds = (("ok", "ok now"), (FAILS,), ("FAIL",), (CANNOT, "skips itself"))
    lines = [(area, *(sum(verdict in kind for verdict in verdicts) for kind in kinds)) for area, verdicts in areas]
    sums = [sum(column) for column in zip(*(line[1:] for line in lines))]
    for line in [head, *lines, ("all", *sums)]:
        print(f"{line[0]:16}" + "".join(f"{cell!s:>22}" for cell in line[1:]))


def run(skydive, asked):
    verdicts = known()
    wanted = [test for test in asked.tests.split(",") if test]
    wanted = {test if test.startswith("Test") else f"Test{test}" for test in wanted}
    rows, waiting = {}, []
    areas = collections.defaultdict(list)
    for test, (tag, area) in tests(skydive).items():
        if test == "TestMain" or wanted and test not in wanted:
            continue
        verdict, cause = verdicts.get(test) or verdicts.get(f"tag {tag}") or ("", "")
        rows[test] = (test.removeprefix("Test"), verdict, cause)
        areas[area].append(test)
        if wanted or verdict != CANNOT:
            waiting.append(test)
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        work = {pool.submit(one, skydive, test, asked.verbose): test for test in waiting}
        for future in concurrent.futures.as_completed(work):
            test = work[future]
            verdict, cause = verdicts.get(test, ("", ""))
            how, why, took = future.result()
            if how == "FAIL" and verdict == FAILS:
                how, why = FAILS, cause
            elif how == "ok" and verdict:
                how, why = "ok now", f"suite.tsv has it as: {verdict}: {cause}"
            rows[test] = (test.removeprefix("Test"), how, why)
            print(f"{how:6} {took:4} s  {test} {table.short(why, 110)}", flush=True)
    table.show(("test", "", "cause"), list(rows.values()))
    show_areas([(area, [rows[test][1] for test in names]) for area, names in areas.items()])
    ran = [row for row in rows.values() if row[1] in ("ok", "ok now", "FAIL", FAILS)]
    passed = sum(row[1].startswith("ok") for row in ran)
    print(f"{passed} of {len(ran)} that run here pass unmodified")
    return sum(row[1] in ("FAIL", "ok now") for row in rows.values())
