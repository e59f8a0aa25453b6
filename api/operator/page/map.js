// The page: what the stream says becomes the state, the state is drawn once a frame.
import { drawDetail } from "./detail.js";
import { Follow } from "./follow.js";
import { drawGateway, drawSandboxes, element, keyed, processLevel, sandboxes, set } from "./tree.js";

const $ = (id) => document.getElementById(id);

class State {
  processes = new Map();
  selected = null;
  filter = "";
  only = false;
  received = 0;

  gateway() { return [...this.processes.values()].find((process) => process.kind === "gateway"); }
  shows(text, how) { return (!this.filter || text.toLowerCase().includes(this.filter)) && (!this.only || how === "warn" || how === "bad"); }

  take(message, whole) {
    if (whole) this.processes.clear();
    for (const id of message.gone ?? []) this.processes.delete(id);
    for (const process of message.processes) this.processes.set(process.id, { ...process, at: performance.now() });
    this.received = performance.now();
    redraw();
  }

  /// What waits goes on waiting between two messages.
  grow(seconds) {
    for (const process of this.processes.values()) {
      if (process.kind !== "gateway") process.stale_ms += seconds * 1000;
      for (const actor of process.actors) {
        if (actor.waiting > 0 || (actor.mailbox > 0 && actor.oldest_ms > 0)) actor.oldest_ms += seconds * 1000;
        if (actor.failed_ms !== undefined) actor.failed_ms += seconds * 1000;
      }
    }
  }

  open(what) {
    const before = this.selected;
    if (!before) this.opener = document.activeElement;
    this.selected = what;
    this.address();
    draw();
    if (what) $("detail").querySelector("button")?.focus({ preventScroll: true });
    else if (before) this.opener?.focus?.({ preventScroll: true });
  }

  /// The address names what is shown, so that it can be kept and passed on.
  address() {
    const at = new URLSearchParams();
    if (!$("view-follow").hidden) at.set("view", "follow");
    if (follow.id) at.set("denial", follow.id);
    for (const [key, value] of Object.entries(this.selected ?? {})) at.set(key, value);
    history.replaceState(null, "", String(at) ? `#${at}` : location.pathname);
  }
}

const state = new State();
const follow = new Follow(state);
let wanted = 0;

function redraw() {
  wanted ||= requestAnimationFrame(() => {
    wanted = 0;
    draw();
  });
}

/// What the filter looks at.
function words(box) {
  const actors = [...(box.supervisor?.actors ?? []), ...(box.sandbox?.actors ?? [])].map((actor) => `${actor.id} ${actor.last_error}`);
  return `${box.workspace}/${box.name} ${box.id} ${box.text ?? ""} ${actors.join(" ")}`;
}

function draw() {
  const focused = document.activeElement;
  drawAll();
  // What moved to another place on the page lost the focus on its way.
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

function drawAll() {
  const boxes = sandboxes(state);
  const shown = boxes.filter((box) => state.shows(words(box), box.level));
  drawGateway($("gateway"), state);
  drawSandboxes($("sandboxes"), shown, boxes.length, state);
  const empty = $("empty");
  set(empty, "hidden", shown.length > 0 || !state.received);
  set(empty, "textContent", boxes.length ? "No sandbox fits the filter." : "No sandbox yet: `openshell sandbox create` makes one, and it appears here.");
  set($("sandboxes"), "hidden", shown.length === 0);
  drawTotals(boxes);
  drawDetail($("detail"), state, boxes);
}

function drawTotals(boxes) {
  const actors = [...state.processes.values()].reduce((sum, process) => sum + process.actors.length, 0);
  const bad = boxes.filter((box) => box.level === "bad").length;
  const warn = boxes.filter((box) => box.level === "warn").length;
  const gateway = state.gateway();
  const totals = [["sandboxes", boxes.length, ""], ["actors", actors, ""], ["in trouble", bad, bad ? "bad" : ""], ["to look at", warn, warn ? "warn" : ""]];
  if (gateway && processLevel(gateway) === "bad") document.title = "! OpenShell live map";
  else set(document, "title", bad ? `(${bad}) OpenShell live map` : "OpenShell live map");
  keyed($("totals"), totals, ([name]) => name, ([name]) => element("div", {}, element("dt", { textContent: name }), element("dd")), (item, [, value, how]) => {
    set(item.lastElementChild, "textContent", String(value));
    set(item, "className", how);
  });
}

function live(on, text) {
  const place = $("live");
  set(place, "className", `live ${on ? "on" : "off"}`);
  set(place.lastElementChild, "textContent", text);
}

function listen() {
  const stream = new EventSource("/actors/stream");
  stream.addEventListener("snapshot", (event) => state.take(JSON.parse(event.data), true));
  stream.addEventListener("change", (event) => state.take(JSON.parse(event.data), false));
  stream.addEventListener("open", () => live(true, "live"));
  stream.addEventListener("error", () => {
    live(false, state.received ? "the gateway is away; this is what was known" : "no answer of the gateway");
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  });
}

function choose(view) {
  for (const name of ["map", "follow"]) {
    const here = name === view;
    $(`view-${name}`).hidden = !here;
    $(`tab-${name}`).setAttribute("aria-selected", String(here));
    $(`tab-${name}`).tabIndex = here ? 0 : -1;
  }
  follow.show(view === "follow");
  state.address();
}

/// Arrows go through what can be opened, the way it stands on the page.
function walk(event) {
  const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  const step = steps[event.key];
  const from = document.activeElement;
  if (!step || !from?.matches(".actor, .tile, .head, .denial")) return;
  const here = from.getBoundingClientRect();
  const middle = (box) => [box.left + Math.min(box.width, 40) / 2, box.top + box.height / 2];
  const [x, y] = middle(here);
  let best = null, least = Infinity;
  for (const other of document.querySelectorAll(".actor, .tile, .head, .denial")) {
    if (other === from || !other.offsetParent || other.closest("aside") !== from.closest("aside")) continue;
    const [u, v] = middle(other.getBoundingClientRect());
    const along = step[0] * (u - x) + step[1] * (v - y);
    const across = Math.abs(step[0] ? v - y : u - x);
    if (along < 4) continue;
    const far = along + across * 3;
    if (far < least) [best, least] = [other, far];
  }
  if (!best) return;
  event.preventDefault();
  best.focus();
  best.scrollIntoView({ block: "nearest" });
}

function keys(event) {
  const typing = event.target.matches("input:not([type=checkbox])");
  if (event.key === "Escape") {
    if (typing && event.target.value && event.target.id === "filter") return;
    if (state.selected) state.open(null);
  } else if (event.key === "/" && !typing) {
    event.preventDefault();
    $("filter").focus();
  } else if (!typing) {
    walk(event);
  }
}

function begin() {
  const at = new URLSearchParams(location.hash.slice(1));
  if (at.get("sandbox")) state.selected = { sandbox: at.get("sandbox") };
  else if (at.get("process")) state.selected = { process: at.get("process"), actor: at.get("actor") ?? "" };
  if (at.get("denial")) follow.follow(at.get("denial"));
  for (const name of ["map", "follow"]) {
    $(`tab-${name}`).addEventListener("click", () => choose(name));
    $(`tab-${name}`).addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = name === "map" ? "follow" : "map";
      choose(other);
      $(`tab-${other}`).focus();
    });
  }
  $("filter").addEventListener("input", () => {
    state.filter = $("filter").value.trim().toLowerCase();
    redraw();
  });
  $("only").addEventListener("change", () => {
    state.only = $("only").checked;
    redraw();
  });
  addEventListener("keydown", keys);
  setInterval(() => {
    state.grow(1);
    redraw();
  }, 1000);
  choose(at.get("view") === "follow" ? "follow" : "map");
  listen();
}

begin();
