"""One request decided by four engines over the same rules and data: compiled, our Rego, `opa bench` and the regorus crate."""

import json
import os
import pathlib
import shutil
import subprocess

COMPILED_OPA, COMPILED_REGORUS, REGO_OPA, REGO_REGORUS = ("rego: times faster than opa, compiled", "rego: times faster than regorus, compiled",
                                                          "rego: one decision beside opa", "rego: times faster than regorus, our Rego")
NAMES = (COMPILED_OPA, COMPILED_REGORUS, REGO_OPA, REGO_REGORUS)
RULES = 100
QUERY = "data.openshell.sandbox.allow_request"


def opa_ns(folder):
    program = shutil.which("opa") or str(pathlib.Path.home() / "go" / "bin" / "opa")
    if not os.access(program, os.X_OK):
        return None, "no opa program (go install github.com/open-policy-agent/opa@latest)"
    words = [program, "bench", "--format", "json", "--benchmem=false"]
    for name in ("rules.rego", "path.rego", "data.json"):
        words += ["-d", str(folder / name)]
    ran = subprocess.run([*words, "-i", str(folder / "input.json"), QUERY], capture_output=True, text=True, timeout=120)
    if ran.returncode != 0:
        return None, f"opa bench: {ran.stderr.strip() or ran.stdout.strip()}"
    told = json.loads(ran.stdout)
    return told["T"] / told["N"], None


def regorus_ns(folder, build, seconds):
    if shutil.which("cargo") is None:
        return None, "no cargo"
    target = build / "bench" / "regorus"
    made = subprocess.run(["cargo", "build", "--quiet", "--release", "--manifest-path", str(pathlib.Path(__file__).parent / "regorus" / "Cargo.toml"), "--target-dir", str(target)],
                          capture_output=True, text=True)
    if made.returncode != 0:
        return None, f"the regorus crate does not build here: {made.stderr.strip()[-300:]}"
    ran = subprocess.run([str(target / "release" / "bench_regorus"), str(folder), QUERY, str(seconds)], capture_output=True, text=True)
    if ran.returncode != 0:
        return None, f"regorus refuses the rules: {ran.stderr.strip()[-300:]}"
    told = json.loads(ran.stdout)
    return (told["ns"], None) if told["value"] is True else (None, f"regorus decides {told['value']}")


def run(report, world, build):
    folder = build / "bench" / "rego"
    folder.mkdir(parents=True, exist_ok=True)
    seconds = report.runs(3, 1)
    ours = json.loads(subprocess.run([str(build / "bench" / "bench_rego"), str(folder), str(RULES), str(seconds)], check=True, capture_output=True, text=True).stdout)
    assert ours["compiled"] is True and ours["rego"] is True, ours
    report.add(f"rego: one request, {RULES} rules, compiled", ours["compiled_ns"] / 1000, "us")
    opa, why = opa_ns(folder)
    if opa is None:
        report.skip("opa", why)
    report.add(f"rego: one request, {RULES} rules, our Rego", ours["rego_ns"] / 1000, "us", rival=opa and opa / 1000, rival_name="opa" if opa else None)
    if opa:
        report.add(COMPILED_OPA, opa / ours["compiled_ns"], "times", goal=20, higher_is_better=True)
    regorus, why = regorus_ns(folder, build, seconds)
    if regorus is None:
        report.skip("regorus", why)
        return
    report.add(COMPILED_REGORUS, regorus / ours["compiled_ns"], "times", goal=20, higher_is_better=True)
    report.add(REGO_REGORUS, regorus / ours["rego_ns"], "times", goal=2, higher_is_better=True, rival=regorus / 1000, rival_name="regorus, us")
