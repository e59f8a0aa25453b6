"""PY 19: exec_python: a function of this process, its arguments and its result, in a sandbox whose `python` has the client's cloudpickle."""

import io
import pathlib
import sys
import tarfile

import cloudpickle
import pytest
from conftest import WORKSPACE, create_ready, delete_gone

HOME = "/sandbox/py"
ENVIRONMENT = {"PATH": f"{HOME}/bin:/usr/local/bin:/usr/bin:/bin"}


@pytest.fixture(scope="module")
def snake(client):
    """A virtual environment inside the sandbox, made by the host's python3, with the very cloudpickle that the client has."""
    create_ready(client, "snake")
    version = client.exec("snake", ["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"], workspace=WORKSPACE)
    if version.exit_code != 0 or tuple(map(int, version.stdout.split())) != sys.version_info[:2]:
        delete_gone(client, "snake")
        pytest.skip(f"the host's /usr/bin/python3 is {version.stdout.strip() or 'absent'}, pickles of {sys.version_info[:2]} need the same")
    made = client.exec("snake", ["/usr/bin/python3", "-m", "venv", "--without-pip", HOME], workspace=WORKSPACE, timeout_seconds=60)
    assert made.exit_code == 0, made.stderr
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        tar.add(pathlib.Path(cloudpickle.__file__).parent, "cloudpickle", filter=lambda info: None if "__pycache__" in info.name else info)
    site = f"{HOME}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    put = client.exec("snake", ["tar", "-xzf", "-", "-C", site], workspace=WORKSPACE, stdin=archive.getvalue())
    assert put.exit_code == 0, put.stderr
    yield "snake"
    delete_gone(client, "snake")


def call(client, function, **options):
    return client.exec_python("snake", function, workspace=WORKSPACE, **{"env": ENVIRONMENT, "timeout_seconds": 60, **options})


def test_19_arguments_go_in_and_the_result_comes_out(client, snake):
    def add(a, b, *, scale=1):
        return (a + b) * scale

    assert call(client, add, args=(20, 1), kwargs={"scale": 2}).stdout == "42\n"
    assert call(client, lambda: None).stdout == "", "None is no output"
    assert call(client, lambda text: text[::-1], args=("ü€x",)).stdout == "x€ü\n"


def test_19_a_closure_takes_along_what_it_uses(client, snake):
    prefix = {"say": "hello"}

    def greet(name):
        import os
        return f"{prefix['say']} {name} from uid {'0' if os.getuid() == 0 else 'other'}"

    assert call(client, greet, args=("world",)).stdout == "hello world from uid other\n"


def test_19_an_exception_is_exit_1_with_its_traceback(client, snake):
    def fail():
        raise KeyError("missing thing")

    result = call(client, fail)
    assert result.exit_code == 1 and "KeyError: 'missing thing'" in result.stderr and result.stdout == ""


def test_19_a_payload_near_the_limit_of_32768_bytes_arrives(client, snake):
    blob = "x" * 20_000
    assert call(client, lambda: len(blob)).stdout == "20000\n"


def test_19_environment_and_workdir_hold_for_functions_too(client, snake):
    def where():
        import os
        return f"{os.getcwd()} {os.environ['COLOUR']}"

    assert call(client, where, env={**ENVIRONMENT, "COLOUR": "blue"}, workdir="/tmp").stdout == "/tmp blue\n"


def test_19_a_function_that_hangs_is_ended_by_its_limit(client, snake):
    def hang():
        import time
        time.sleep(300)

    assert call(client, hang, timeout_seconds=2).exit_code == 124


def test_19_a_session_runs_functions_as_well(client, snake):
    session = client.get_session("snake", workspace=WORKSPACE)
    assert session.exec_python(lambda: 6 * 7, env=ENVIRONMENT).stdout == "42\n"


def test_19_where_python_lacks_cloudpickle_the_error_says_so(client, snake):
    result = client.exec_python("snake", lambda: 1, workspace=WORKSPACE, env={"PATH": "/usr/bin:/bin"})
    assert result.exit_code != 0
    assert "cloudpickle" in result.stderr or "not found" in result.stderr
