"""PY: the pagers of the published package and its lists over all workspaces."""

import grpc
import openshell
import pytest
from conftest import WORKSPACE, delete_gone, wait_until
from openshell._proto import openshell_pb2


@pytest.fixture(scope="module")
def five(client):
    names = [f"row-{i}" for i in range(5)]
    made = {name: client.create(workspace=WORKSPACE, name=name, labels={"set": "rows", "odd": str(i % 2)}) for i, name in enumerate(names)}
    yield made
    for name in names:
        delete_gone(client, name)


def test_13_every_page_but_the_last_names_the_next(client, five):
    tokens, names = [], []
    for page in client.list(workspace=WORKSPACE, page_size=2, label_selector="set=rows"):
        assert len(page.items) <= 2
        tokens.append(page.next_page_token)
        names += [item.name for item in page.items]
    assert tokens[-1] == "" and all(tokens[:-1]) and len(set(tokens)) == len(tokens)
    assert max(len(token.encode()) for token in tokens) <= 256, "so that 10,000 of them fit the client's budget of 1 MiB"
    assert sorted(names) == sorted(five)


def test_13_the_same_token_may_be_sent_again(client, five):
    first = next(iter(client.list(workspace=WORKSPACE, page_size=2, label_selector="set=rows")))
    pages = [next(iter(client.list(workspace=WORKSPACE, page_size=2, page_token=first.next_page_token, label_selector="set=rows"))) for _ in range(2)]
    assert [item.id for item in pages[0].items] == [item.id for item in pages[1].items]
    assert pages[0].next_page_token == pages[1].next_page_token or pages[0].next_page_token


def test_13_a_token_of_another_list_is_refused(client, five):
    token = next(iter(client.list(workspace=WORKSPACE, page_size=2, label_selector="set=rows"))).next_page_token
    for options in ({"label_selector": "odd=1"}, {"page_token": token + "x"}, {"page_token": "junk"}):
        with pytest.raises(openshell.GatewayError) as refused:
            client.list_all(workspace=WORKSPACE, **{"page_token": token, "page_size": 2, **options})
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert [violation.field for violation in refused.value.field_violations] == ["page_token"]


def test_14_page_size_and_selector_are_honoured(client, five):
    assert len(client.list_all(workspace=WORKSPACE, page_size=1, label_selector="set=rows")) == 5
    assert {item.name for item in client.list_all(workspace=WORKSPACE, label_selector="set=rows,odd=1")} == {"row-1", "row-3"}
    assert client.list_all(workspace=WORKSPACE, label_selector="set=none") == []
    assert set(five) <= {item.name for item in client.list_all(workspace=WORKSPACE)}
    for bad in (-1, -(2**31)):
        with pytest.raises(openshell.GatewayError) as refused:
            client.list_all(workspace=WORKSPACE, page_size=bad)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(openshell.GatewayError):
        client.list_all(workspace=WORKSPACE, label_selector="set=rows,,=x")


def test_list_ids_are_those_of_the_sandboxes(client, five):
    ids = client.list_ids(workspace=WORKSPACE, page_size=2, label_selector="set=rows")
    assert sorted(ids) == sorted(each.id for each in five.values())
    assert set(ids) <= set(client.list_ids_for_all_workspaces(page_size=2))


def test_7_all_workspaces_is_asked_for_and_a_workspace_is_never_guessed(client, five):
    pages = list(client.list_for_all_workspaces(page_size=3, label_selector="set=rows"))
    assert [len(page.items) for page in pages] == [3, 2]
    everywhere = client.list_all_for_all_workspaces(label_selector="set=rows")
    assert {(item.workspace, item.name) for item in everywhere} == {(WORKSPACE, name) for name in five}
    with pytest.raises(openshell.GatewayError) as missing:
        client._stub.ListSandboxes(openshell_pb2.ListSandboxesRequest(page_size=100))
    assert missing.value.code() == grpc.StatusCode.INVALID_ARGUMENT and missing.value.field_violations[0].field == "workspace_scope"
    with pytest.raises(openshell.GatewayError) as unknown:
        client.list_all(workspace="no-such-workspace")
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_traversal_sees_each_sandbox_once_while_others_come_and_go(client, five):
    seen, pager = [], client.list(workspace=WORKSPACE, page_size=2, label_selector="set=rows")
    extra = client.create(workspace=WORKSPACE, name="row-00", labels={"set": "rows"})
    try:
        for number, page in enumerate(pager):
            seen += [item.id for item in page.items]
            if number == 0:
                delete_gone(client, "row-00")
        assert len(seen) == len(set(seen)) and {each.id for each in five.values()} <= set(seen)
        assert extra.id not in seen or seen.count(extra.id) == 1
    finally:
        delete_gone(client, "row-00")
    wait_until(lambda: "row-00" not in {item.name for item in client.list_all(workspace=WORKSPACE)}, what="the deleted row's absence")
