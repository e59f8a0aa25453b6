"""ACT: the shape that the project was given: its rooms, the packages it is made of, one supervisor a sandbox."""

import os
import pathlib
import re
import signal

from conftest import REPOSITORY, WORKSPACE, create_ready, delete_gone
from test_survival import supervisors

ROOMS = ["actors/gateway", "actors/sandbox", "actors/supervisor", "actors/outbox", "actors/denial_aggregator", "actors/endpoint_observer", "messages",
         "proto", "storage", "drivers", "tests"]
TARGET = re.compile(r"^\s*(openshell_\w+|add_(library|executable|subdirectory)|foreach)\(", re.M)


def test_the_folders_of_the_card_hold_targets():
    """ACT-12, ACT-13, ACT-14, ACT-15, ACT-16, ACT-17, ACT-18, ACT-19, ACT-20, ACT-21, ACT-22, ACT-23"""
    assert "project(" in (REPOSITORY / "CMakeLists.txt").read_text()
    described = "\n".join(file.read_text() for file in REPOSITORY.rglob("CMakeLists.txt") if "build" not in file.parts)
    for room in ROOMS:
        folder = REPOSITORY / room
        assert folder.is_dir(), room
        own = folder / "CMakeLists.txt"
        sources = {file.name for file in folder.rglob("*") if file.suffix in (".cpp", ".hpp", ".proto")}
        assert sources, f"{room} is empty"
        assert own.exists() and TARGET.search(own.read_text()) or f"{room}/" in described or f"{folder.name}/" in described, f"{room} has no target"
    assert {file.parent for file in REPOSITORY.rglob("*.proto") if "build" not in file.parts} <= {REPOSITORY / "proto", *(REPOSITORY / "proto").rglob("*")}


def linked(program):
    """Libraries of a program's link line."""
    ninja = (pathlib.Path(os.environ["OPENSHELL_BUILD_DIR"]) / "build.ninja").read_text()
    block = re.search(rf"^build {re.escape(program)}(?: \|[^:]*)?: .*?\n\n", ninja, re.M | re.S)[0]
    return re.search(r"LINK_LIBRARIES = (.*)", block)[1].split()


NEEDED = {
    "bin/openshell-gateway": ["libcaf_core", "libprotobuf", "libgrpc++", "libssl", "libspdlog", "libyaml-cpp"],
    "bin/openshell-supervisor": ["libcaf_core", "libprotobuf", "libgrpc++", "libssl", "libspdlog", "libyaml-cpp"],
    "bin/openshell-sandbox": ["libcaf_core", "libprotobuf", "libgrpc++", "libssl", "libspdlog", "libseccomp"],
    "bin/openshell": ["libprotobuf", "libgrpc++", "libssl", "libyaml-cpp"],
}


def test_programs_link_the_packages_of_the_card():
    """ACT-03, ACT-04, ACT-05, ACT-06, ACT-07, ACT-09, ACT-10, ACT-11: as packages of the system, nothing of theirs in the tree."""
    for program, packages in NEEDED.items():
        libraries = linked(program)
        for package in packages:
            found = [path for path in libraries if re.search(rf"/{re.escape(package)}\.(so|a)", path)]
            assert found and all(path.startswith("/usr/") for path in found), f"{program}: {package}"
    ninja = (pathlib.Path(os.environ["OPENSHELL_BUILD_DIR"]) / "build.ninja").read_text()
    assert re.search(r"LINK_LIBRARIES = .*/usr/\S*/libgtest\.(so|a)", ninja)
    for folder in ("third_party", "vendor", "external"):
        assert not (REPOSITORY / folder).exists()


def test_supervisors_are_processes_of_their_own(client):
    """ACT-36"""
    made = {name: create_ready(client, name) for name in ("act-one", "act-two")}
    try:
        pids = {name: supervisors(reference.id) for name, reference in made.items()}
        assert all(len(each) == 1 for each in pids.values()) and pids["act-one"] != pids["act-two"]
        os.kill(pids["act-one"][0], signal.SIGKILL)
        assert client.exec("act-two", ["echo", "unharmed"], workspace=WORKSPACE).stdout == "unharmed\n"
        assert supervisors(made["act-two"].id) == pids["act-two"]
    finally:
        for name in made:
            delete_gone(client, name)
