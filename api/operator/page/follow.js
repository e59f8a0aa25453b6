// One denied request, from the program that asked to the policy that came of it.
import { element, keyed, set } from "./tree.js";

const SIGNS = { done: "✓", refused: "✕", waiting: "…", none: "–" };
const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export class Follow {
  constructor(state) {
    this.state = state;
    this.id = "";
    this.list = document.getElementById("denials");
    this.place = document.getElementById("trace");
    this.input = document.getElementById("follow-id");
    document.getElementById("follow-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.follow(this.input.value.trim());
    });
    this.empty();
  }

  show(visible) {
    clearInterval(this.timer);
    if (!visible) return;
    this.look();
    this.timer = setInterval(() => this.look(), 2000);
  }

  follow(id) {
    this.id = id;
    set(this.input, "value", id);
    this.state.address();
    this.place.replaceChildren();
    this.shown = "";
    if (!id) this.empty();
    this.look();
  }

  empty() {
    this.place.replaceChildren(element("p", { className: "empty", textContent: "Choose a denied request, or enter its id: the way from the program to the decision, the proposal and the policy is drawn here." }));
  }

  async look() {
    const read = async (path) => (await fetch(path)).json();
    try {
      this.drawList((await read("/denials")).denials);
      const id = this.id;
      if (id) {
        const trace = await read(`/denials?id=${encodeURIComponent(id)}`);
        if (id === this.id) this.drawTrace(trace);
      }
    } catch { /* the header says that the gateway is away */ }
  }

  name(sandbox) {
    return this.state.processes.get(`supervisor:${sandbox}`)?.sandbox ?? sandbox;
  }

  drawList(denials) {
    if (!denials.length) {
      this.list.replaceChildren(element("li", { className: "note", textContent: "nothing was denied since the gateway started" }));
      delete this.list.firstElementChild.dataset.key;
      return;
    }
    if (this.list.firstElementChild?.className === "note") this.list.replaceChildren();
    keyed(this.list, denials, (one) => one.id, (one) => {
      const button = element("button", { type: "button", className: "denial" }, element("span"), element("small"));
      button.addEventListener("click", () => this.follow(one.id));
      return element("li", {}, button);
    }, (item, one) => {
      const button = item.firstElementChild;
      const text = one.text.replace(/^\S+ \[\w+\] DENIED /, "").replace(/ \[(policy|reason):.*$/, "");
      set(button.firstElementChild, "textContent", text);
      set(button.lastElementChild, "textContent", `${clock(one.at_ms)} · ${this.name(one.sandbox_id)}`);
      set(button, "title", one.text);
      button.setAttribute("aria-pressed", String(one.id === this.id));
    });
  }

  drawTrace(trace) {
    const text = JSON.stringify(trace);
    if (text === this.shown) return;
    this.shown = text;
    if (trace.error) {
      this.place.replaceChildren(element("p", { className: "empty", textContent: trace.error }));
      return;
    }
    const steps = element("ol", { className: "steps" });
    for (const step of trace.steps) {
      const title = element("h3", { textContent: step.title });
      if (step.at_ms) title.append(element("time", { textContent: clock(step.at_ms), dateTime: new Date(step.at_ms).toISOString() }));
      const facts = element("dl");
      for (const [name, value] of Object.entries(step.facts ?? {})) facts.append(element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value })));
      const body = element("p", { textContent: step.text, className: step.id === "decision" || step.text.startsWith("openshell ") ? "line" : "" });
      steps.append(element("li", { className: step.state }, element("span", { className: "dot", textContent: SIGNS[step.state] ?? "", ariaHidden: "true" }), title, body, facts));
    }
    this.place.replaceChildren(element("h2", { textContent: `A denied request of ${trace.denial.sandbox}` }), element("p", { textContent: trace.denial.id }), steps);
  }
}
