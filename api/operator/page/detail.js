// The panel on the right: one sandbox with all its actors, or one actor.
import { age, drawActors, element, keyed, level, sandboxCard, set, updateCard, WORDS } from "./tree.js";

const FIGURES = [["mailbox", "in mailbox"], ["waiting", "waiting"], ["oldest", "oldest waits"], ["handled", "handled"], ["failed", "failed"], ["restarts", "restarts"]];

function bar(state, back) {
  const close = element("button", { type: "button", className: "plain", textContent: "Close (Esc)" });
  close.addEventListener("click", () => state.open(null));
  const left = element("span");
  if (back) {
    const button = element("button", { type: "button", className: "plain", textContent: "← " + back.name });
    button.addEventListener("click", () => state.open({ sandbox: back.id }));
    left.append(button);
  }
  return element("div", { className: "bar" }, left, close);
}

function drawSandbox(panel, state, box) {
  if (panel.dataset.shows !== box.id) {
    panel.dataset.shows = box.id;
    panel.replaceChildren(bar(state), element("h2", {}, element("span", { className: "mark" }), element("span")), element("p", { className: "crumbs" }), sandboxCard(state));
  }
  set(panel.children[1], "className", box.level);
  set(panel.children[1].lastElementChild, "textContent", box.name);
  set(panel.children[2], "textContent", `${box.workspace ? `workspace ${box.workspace}, ` : ""}${box.id}`);
  updateCard(panel.children[3], box, state);
}

async function ask(process, actor, place) {
  set(place, "className", "summary");
  set(place, "textContent", "asking …");
  set(place, "hidden", false);
  const begun = performance.now();
  try {
    const answer = await (await fetch(`/actors/inspect?process=${encodeURIComponent(process)}&actor=${encodeURIComponent(actor)}`)).json();
    set(place, "className", answer.error ? "summary error" : "summary");
    place.replaceChildren(answer.error ?? answer.summary ?? "", element("small", { textContent: answer.error ? "no answer of the actor" : `its own answer, after ${Math.round(performance.now() - begun)} ms` }));
  } catch {
    set(place, "className", "summary error");
    set(place, "textContent", "the gateway does not answer");
  }
}

function drawActor(panel, state, process, actor, box) {
  const shows = `${process.id} ${actor.id}`;
  if (panel.dataset.shows !== shows) {
    panel.dataset.shows = shows;
    const question = element("button", { type: "button", className: "plain", textContent: "Ask it now" });
    const answer = element("p", { className: "summary", hidden: true });
    question.addEventListener("click", () => ask(process.id, actor.id, answer));
    set(question, "hidden", process.kind === "sandbox");
    panel.replaceChildren(bar(state, box), element("h2", {}, element("span", { className: "mark" }), element("span")), element("p", { className: "crumbs" }), element("p", { className: "summary" }),
      element("p", { className: "summary error", hidden: true }), element("dl", { className: "facts" }), element("h3", { textContent: "Messages a second, by kind" }), element("dl", { className: "rates" }),
      element("p", { className: "note" }), question, answer);
  }
  const how = level(actor, process);
  const [, head, crumbs, summary, error, facts, , rates, note] = panel.children;
  set(head, "className", how);
  set(head.lastElementChild, "textContent", actor.id);
  const where = process.kind === "gateway" ? "gateway" : `${process.kind} of ${process.sandbox}`;
  set(crumbs, "textContent", `${where}${actor.parent ? " › " + actor.parent : ""} › ${actor.kind}; ${WORDS[how]}`);
  set(summary, "textContent", actor.summary || "says nothing of itself");
  set(error, "hidden", !actor.last_error);
  if (actor.last_error) {
    set(error, "className", `summary error ${actor.failed_ms === undefined || actor.failed_ms > 60000 ? "old" : ""}`);
    error.replaceChildren(actor.last_error, element("small", { textContent: actor.failed_ms === undefined ? "last error, from before this page looked" : `last error, ${age(actor.failed_ms)} ago` }));
  }
  const values = { ...actor, oldest: age(actor.oldest_ms) };
  keyed(facts, FIGURES, ([key]) => key, ([, label]) => element("div", {}, element("dt", { textContent: label }), element("dd")), (item, [key]) => {
    set(item.lastElementChild, "textContent", String(values[key]));
    const odd = (key === "restarts" && actor.restarts > 0) || (key === "oldest" && (how === "bad" || how === "warn") && actor.waiting + actor.mailbox > 0);
    set(item, "className", odd ? how === "bad" ? "bad" : "warn" : "");
  });
  const kinds = Object.entries(actor.rates).sort((a, b) => b[1] - a[1]);
  const most = Math.max(...kinds.map(([, rate]) => rate), 0);
  rates.replaceChildren(...kinds.flatMap(([name, rate]) => {
    const line = element("i");
    line.style.width = `${most ? (rate / most) * 100 : 0}%`;
    return [element("dt", { textContent: name, title: name }), element("dd", { className: "barline" }, line), element("dd", { textContent: `${rate}/s` })];
  }));
  set(note, "textContent", process.kind === "sandbox" ? "What a sandbox says of itself is not trusted; it decides nothing." : kinds.length ? "" : "no message within the last seconds");
  set(note, "className", process.kind === "sandbox" ? "note untrusted" : "note");
}

export function drawDetail(panel, state, boxes) {
  const chosen = state.selected;
  let shown = false;
  if (chosen?.sandbox) {
    const box = boxes.find((one) => one.id === chosen.sandbox);
    if (box) drawSandbox(panel, state, box), (shown = true);
  } else if (chosen) {
    const process = state.processes.get(chosen.process);
    const actor = process?.actors.find((one) => one.id === chosen.actor);
    if (actor) {
      const id = process.kind === "gateway" ? actor.id.replace(/^sandbox_entity:/, "") : process.id.slice(process.id.indexOf(":") + 1);
      drawActor(panel, state, process, actor, boxes.find((one) => one.id === id));
      shown = true;
    }
  }
  if (chosen && !shown) {
    panel.dataset.shows = "";
    panel.replaceChildren(bar(state), element("h2", { textContent: "It is gone" }), element("p", { className: "note", textContent: chosen.actor ?? chosen.sandbox }));
    shown = true;
  }
  set(panel, "hidden", !shown);
  document.body.classList.toggle("aside", shown);
}
