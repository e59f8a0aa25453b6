"""The page of the live map in a real browser, with made-up actors: 3 and 300 sandboxes, light and dark, by keyboard alone."""

import copy

import pytest
from browser import Browser
from stub_gateway import Stub


@pytest.fixture(scope="module")
def browser():
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def page(browser):
    opened = []

    def show(count):
        stub = Stub(count)
        opened.append(stub)
        browser.theme("light")
        browser.size(1440, 900)
        browser.open("about:blank")
        browser.open(stub.url)
        browser.wait("return document.querySelectorAll('.branch').length === arguments[0]", count, what=f"{count} sandboxes on the page")
        return stub

    yield show
    assert not browser.complaints(), "the console has nothing against the page"
    browser.open("about:blank")
    for stub in opened:
        stub.close()


def fits(browser):
    return browser.run("return document.documentElement.scrollWidth <= innerWidth")


def test_three_sandboxes_show_their_whole_trees(browser, page):
    """ACT-37: every actor of gateway, supervisors and runtimes."""
    page(3)
    text = browser.text()
    for words in ("crawler-0", "builder-1", "reviewer-2", "status_outbox", "exec_registry", "session_registry", "its own word, untrusted", "5 waiting"):
        assert words in text, words
    assert browser.count(".actor.warn") >= 1, "the aggregator that failed is coloured"
    assert fits(browser)
    browser.screenshot("map-3-light")
    browser.theme("dark")
    browser.screenshot("map-3-dark")


def test_three_hundred_sandboxes_are_readable_with_trouble_first(browser, page):
    page(300)
    assert browser.count(".tile") == 300
    first = browser.run("return [...document.querySelectorAll('.tile')].slice(0, 6).map((tile) => tile.className)")
    assert all("bad" in name for name in first[:5]), first
    assert fits(browser)
    narrow = browser.run("return [...document.querySelectorAll('.tile .name')].filter((name) => name.scrollWidth > name.clientWidth).length")
    assert narrow == 0, "no name is cut"
    browser.screenshot("map-300-light")
    browser.theme("dark")
    browser.screenshot("map-300-dark")


def test_an_actor_opens_with_its_state_error_and_rates(browser, page):
    page(6)
    browser.click(".actor.bad[data-actor=status_outbox]")
    text = browser.text("#detail")
    for words in ("3 statuses waiting", "DEADLINE_EXCEEDED", "pump", "0.3/s", "restarts", "supervisor of default/crawler-5"):
        assert words in text, words
    browser.screenshot("actor-light")
    browser.theme("dark")
    browser.screenshot("actor-dark")
    assert browser.run("return location.hash").find("actor=status_outbox") > 0, "the address can be kept"


def test_messages_that_wait_in_a_mailbox_are_trouble_and_grow_older(browser, page):
    """ACT-41: an actor that hangs says nothing any more; what waited when it spoke last waits on."""
    stub = page(3)
    process = copy.deepcopy(stub.world.processes["supervisor:id-1"])
    next(one for one in process["actors"] if one["id"] == "runtime_publisher").update(mailbox=7, oldest_ms=29500, rates={"publish": 0.5, "install": 0.2})
    stub.change(process)
    browser.wait("return document.querySelector('[data-process=\"supervisor:id-1\"][data-actor=runtime_publisher]').classList.contains('bad')", what="30 s are over")
    browser.click('[data-process="supervisor:id-1"][data-actor=runtime_publisher]')
    text = browser.text("#detail")
    for words in ("oldest waits", "in mailbox", "by kind", "publish", "0.5/s"):
        assert words.lower() in text.lower(), words
    browser.screenshot("actor-hangs")


def test_it_can_be_used_by_keyboard_alone(browser, page):
    page(30)
    browser.run("document.querySelector('.tile').focus()")
    browser.press("ArrowRight")
    assert browser.run("return document.activeElement.dataset.sandbox") == browser.run("return document.querySelectorAll('.tile')[1].dataset.sandbox")
    browser.press("ArrowDown", "ArrowLeft")
    here = browser.run("return document.activeElement.dataset.sandbox")
    browser.press("Enter")
    assert browser.run("return !document.getElementById('detail').hidden && document.querySelector('#detail .card').dataset.sandbox") == here
    browser.screenshot("sandbox-of-30")
    browser.press("Escape")
    assert browser.run("return document.getElementById('detail').hidden")
    assert browser.run("return document.activeElement.dataset.sandbox") == here, "the focus is where it was"
    browser.press("/")
    browser.type("#filter", "tester-1")
    browser.wait("return document.querySelectorAll('.branch').length < 10")
    assert all("tester-1" in name for name in browser.run("return [...document.querySelectorAll('.tile .name')].map((name) => name.textContent)"))
    # Everything that can be clicked can be reached.
    assert browser.run("return [...document.querySelectorAll('.tile, .actor, .head, button')].every((one) => one.tagName === 'BUTTON')")


def test_changes_arrive_and_the_focus_stays(browser, page):
    stub = page(3)
    browser.run("document.querySelector('[data-process=\"supervisor:id-1\"][data-actor=session]').focus()")
    process = copy.deepcopy(stub.world.processes["supervisor:id-1"])
    next(one for one in process["actors"] if one["id"] == "session").update(waiting=2, oldest_ms=45000)
    stub.change(process)
    browser.wait("return document.activeElement.classList.contains('bad')", what="the colour of trouble on the focused actor")
    stub.change(gone=("supervisor:id-2", "sandbox:id-2"))
    gateway = copy.deepcopy(stub.world.processes["gateway:openshell"])
    gateway["actors"] = [one for one in gateway["actors"] if one["id"] != "sandbox_entity:id-2"]
    stub.change(gateway)
    browser.wait("return document.querySelectorAll('.branch').length === 2")
    assert browser.run("return document.activeElement.dataset.actor") == "session"


def test_trouble_alone_and_a_narrow_window(browser, page):
    page(60)
    browser.click("#only")
    browser.wait("return document.querySelectorAll('.branch').length < 10 && document.querySelectorAll('.branch').length > 0")
    browser.size(420, 900)
    assert fits(browser)
    browser.screenshot("map-narrow")


def test_a_gateway_that_goes_away_is_said(browser, page):
    stub = page(3)
    stub.close()
    browser.wait("return document.querySelector('#live').className.includes('off')", what="the word that the gateway is away")
    assert browser.count(".branch") == 3, "what was known stays"
    browser.complaints()  # a refused connection is one, and is right


def test_text_of_a_sandbox_is_never_markup(browser, page):
    stub = page(1)
    process = copy.deepcopy(stub.world.processes["sandbox:id-0"])
    process["actors"][0].update(id="<img src=x onerror=alert(1)>", summary="<script>alert(1)</script>", last_error="<b>x</b>")
    process["note"] = "<iframe src=/></iframe>"
    stub.change(process)
    browser.wait("return document.body.innerText.includes('onerror=alert')")
    browser.run("[...document.querySelectorAll('.actor')].find((one) => one.innerText.includes('onerror')).click()")
    assert browser.count("img[src=x]") == 0 and browser.count("#detail script, #detail b, iframe") == 0
    assert "not trusted" in browser.text("#detail")
