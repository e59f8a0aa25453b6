// What the map is made of: levels of trouble, trees of actors, sandboxes out of processes. And how they are drawn, element by element, so
// that what has the focus keeps it.

export const LONG_WAIT = 30000, SHORT_WAIT = 5000, RECENT = 60000, FULL_MAILBOX = 100, CARDS_UP_TO = 12;
const ORDER = { ok: 0, busy: 1, gone: 2, warn: 3, bad: 4 };
export const WORDS = { ok: "at rest", busy: "busy", gone: "gone", warn: "look at it", bad: "in trouble" };
const WAITS_BY_NATURE = new Set(["exec_registry"]);  // it is asked to wait for the ends of processes

export const worse = (a, b) => (ORDER[b] > ORDER[a] ? b : a);

export function level(actor, process) {
  if (process.ended_ms !== undefined) return "gone";
  const patient = WAITS_BY_NATURE.has(actor.kind);
  const age = actor.waiting + actor.mailbox > 0 && !patient ? actor.oldest_ms : 0;
  if (age >= LONG_WAIT || (actor.kind === "sandbox_entity" && /: error\b/i.test(actor.summary))) return "bad";
  if (age >= SHORT_WAIT || actor.mailbox >= FULL_MAILBOX || (actor.failed_ms !== undefined && actor.failed_ms < RECENT)) return "warn";
  return Object.values(actor.rates).some((rate) => rate > 0) ? "busy" : "ok";
}

export function processLevel(process) {
  if (process.ended_ms !== undefined) return "gone";
  let all = process.stale ? "bad" : process.note && !process.actors.length ? "warn" : "ok";
  for (const actor of process.actors) all = worse(all, level(actor, process));
  return all;
}

export function figure(actor) {
  if (actor.mailbox > 0) return `${actor.mailbox} in mailbox`;
  if (actor.waiting > 0) return `${actor.waiting} waiting`;
  const rate = Object.values(actor.rates).reduce((sum, one) => sum + one, 0);
  return rate > 0 ? `${rate < 10 ? rate.toFixed(1) : Math.round(rate)}/s` : "";
}

export function age(ms) {
  if (ms < 1000) return `${ms} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  return seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

/// Sandboxes with all that belongs to them, in trouble first, then by name.
export function sandboxes(state) {
  const found = new Map();
  const of = (id) => found.get(id) ?? found.set(id, { id, name: id, workspace: "", level: "ok" }).get(id);
  const gateway = state.gateway();
  for (const actor of gateway?.actors ?? []) {
    if (actor.kind !== "sandbox_entity") continue;
    const box = of(actor.id.slice("sandbox_entity:".length));
    const colon = actor.summary.indexOf(": ");
    box.entity = actor;
    box.name = colon > 0 ? actor.summary.slice(0, colon) : box.id;
    box.text = colon > 0 ? actor.summary.slice(colon + 2) : actor.summary;
    box.level = worse(box.level, level(actor, gateway));
  }
  for (const process of state.processes.values()) {
    if (process.kind === "gateway") continue;
    const box = of(process.id.slice(process.id.indexOf(":") + 1));
    box[process.kind] = process;
    const slash = process.sandbox.indexOf("/");
    if (slash > 0) [box.workspace, box.name] = [process.sandbox.slice(0, slash), process.sandbox.slice(slash + 1)];
    box.level = worse(box.level, processLevel(process));
  }
  const trouble = (box) => Math.max(ORDER[box.level], ORDER.gone);
  return [...found.values()].sort((a, b) => trouble(b) - trouble(a) || a.name.localeCompare(b.name, undefined, { numeric: true }));
}

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/// Sets what differs and nothing else.
export function set(node, key, value) {
  if (node[key] !== value) node[key] = value;
}

/// The children of `parent` become those that `make` and `update` give for `items`; elements of the same key stay.
export function keyed(parent, items, key, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let child = old.get(name);
    old.delete(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
}

function actorButton(state) {
  const button = element("button", { type: "button" }, element("span", { className: "mark" }), element("span", { className: "name" }), element("span", { className: "figure" }));
  button.addEventListener("click", () => state.open({ process: button.dataset.process, actor: button.dataset.actor }));
  return button;
}

function updateActor(button, process, actor, state, label) {
  const how = level(actor, process);
  set(button, "className", `actor ${how}`);
  button.dataset.process = process.id;
  button.dataset.actor = actor.id;
  set(button.children[1], "textContent", label ?? actor.id);
  set(button.children[2], "textContent", figure(actor));
  set(button, "title", actor.summary);
  const open = state.selected?.process === process.id && state.selected?.actor === actor.id;
  button.setAttribute("aria-pressed", String(open));
  button.setAttribute("aria-label", `${label ?? actor.id}, ${WORDS[how]}${figure(actor) ? ", " + figure(actor) : ""}`);
}

/// The tree of one process below `list`.
export function drawActors(list, process, actors, state) {
  const ids = new Set(actors.map((actor) => actor.id));
  const children = new Map();
  for (const actor of actors) {
    const parent = ids.has(actor.parent) && actor.parent !== actor.id ? actor.parent : "";
    children.set(parent, [...(children.get(parent) ?? []), actor]);
  }
  const seen = new Set();
  const draw = (into, parent, depth) => {
    const here = (children.get(parent) ?? []).filter((actor) => !seen.has(actor.id) && depth < 8);
    here.forEach((actor) => seen.add(actor.id));
    keyed(into, here, (actor) => actor.id, () => element("li", {}, actorButton(state), element("ul", { className: "actors" })), (item, actor) => {
      updateActor(item.firstElementChild, process, actor, state);
      draw(item.lastElementChild, actor.id, depth + 1);
    });
    set(into, "hidden", here.length === 0);
  };
  draw(list, "", 0);
}

export function drawGateway(card, state) {
  if (!card.firstElementChild) card.append(element("h2", {}, element("span", { className: "mark" }), element("span"), element("small")), element("ul", { className: "actors" }), element("p", { className: "note" }));
  const process = state.gateway();
  if (!process) return;
  const own = process.actors.filter((actor) => actor.kind !== "sandbox_entity");
  const entities = process.actors.length - own.length;
  const how = own.reduce((all, actor) => worse(all, level(actor, process)), "ok");
  const head = card.firstElementChild;
  set(head, "className", how);
  set(head.children[1], "textContent", "gateway");
  set(head.children[2], "textContent", process.id.slice("gateway:".length));
  drawActors(card.children[1], process, own.filter((actor) => !state.only || ["warn", "bad"].includes(level(actor, process))), state);
  set(card.children[2], "textContent", `${entities} sandbox ${entities === 1 ? "entity" : "entities"} beside it, each with its supervisor`);
}

function group(name) {
  return element("div", {}, element("p", { className: "group" }, element("span", { textContent: name }), element("em")), element("ul", { className: "actors" }), element("p", { className: "note" }));
}

function updateGroup(part, process, state) {
  set(part, "hidden", !process);
  if (!process) return;
  const tag = part.firstElementChild.lastElementChild;
  const silent = process.ended_ms !== undefined ? "session ended" : process.stale ? `silent for ${age(process.stale_ms)}` : "";
  set(tag, "className", `tag ${silent ? "bad" : process.kind === "sandbox" ? "warn" : ""}`);
  set(tag, "textContent", silent || (process.kind === "sandbox" ? "its own word, untrusted" : ""));
  set(tag, "hidden", !tag.textContent);
  drawActors(part.children[1], process, process.actors, state);
  const note = [process.note, process.left_out ? `${process.left_out} more actors are not shown` : ""].filter(Boolean).join("; ");
  set(part.children[2], "textContent", note);
  set(part.children[2], "hidden", !note);
}

/// A sandbox with all its actors.
export function sandboxCard(state) {
  const head = element("button", { type: "button", className: "head" }, element("span", { className: "mark" }), element("b"), element("small"));
  const card = element("div", { className: "card" }, head, element("ul", { className: "actors" }), group("supervisor"), group("sandbox"));
  head.addEventListener("click", () => state.open({ sandbox: card.dataset.sandbox }));
  return card;
}

export function updateCard(card, box, state) {
  card.dataset.sandbox = box.id;
  const head = card.firstElementChild;
  set(head, "className", `head ${box.level}`);
  set(head.children[1], "textContent", box.name);
  set(head.children[2], "textContent", box.text ?? "");
  head.setAttribute("aria-pressed", String(state.selected?.sandbox === box.id));
  head.setAttribute("aria-label", `sandbox ${box.name}, ${WORDS[box.level]}, ${box.text ?? ""}`);
  const gateway = state.gateway();
  keyed(card.children[1], box.entity && gateway ? [box.entity] : [], (actor) => actor.id, () => element("li", {}, actorButton(state)),
    (item, actor) => updateActor(item.firstElementChild, gateway, actor, state, "sandbox_entity (gateway)"));
  updateGroup(card.children[2], box.supervisor, state);
  updateGroup(card.children[3], box.sandbox, state);
}

function tile(state) {
  const button = element("button", { type: "button" }, element("span", { className: "mark" }), element("span", { className: "name" }),
    element("span", { className: "parts", ariaHidden: "true" }, element("i"), element("i"), element("i")));
  button.addEventListener("click", () => state.open({ sandbox: button.dataset.sandbox }));
  return button;
}

function updateTile(button, box, state) {
  button.dataset.sandbox = box.id;
  set(button, "className", `tile ${box.level}`);
  set(button.children[1], "textContent", box.name);
  set(button, "title", `${box.workspace ? box.workspace + "/" : ""}${box.name}: ${box.text ?? ""}`);
  const gateway = state.gateway();
  const parts = [box.entity ? level(box.entity, gateway) : "gone", box.supervisor ? processLevel(box.supervisor) : "gone", box.sandbox ? processLevel(box.sandbox) : "gone"];
  parts.forEach((how, at) => set(button.children[2].children[at], "className", how));
  button.setAttribute("aria-pressed", String(state.selected?.sandbox === box.id));
  button.setAttribute("aria-label", `sandbox ${box.name}, ${WORDS[box.level]}, ${box.text ?? ""}`);
}

export function drawSandboxes(place, boxes, total, state) {
  const cards = total <= CARDS_UP_TO;
  const name = `sandboxes ${cards ? "cards" : "tiles"}`;
  if (place.className !== name) {
    place.className = name;
    place.replaceChildren();
  }
  keyed(place, boxes, (box) => box.id, () => element("div", { className: "branch" }, cards ? sandboxCard(state) : tile(state)), (branch, box) => {
    set(branch, "className", `branch ${box.level}`);
    cards ? updateCard(branch.firstElementChild, box, state) : updateTile(branch.firstElementChild, box, state);
  });
}
