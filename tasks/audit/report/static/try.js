// The field that encodes what one types, with every tokenizer of the page.
"use strict";
const MOST = 20000; // characters that are encoded while one types

class TryOut {
  constructor(encoders) {
    this.encoders = encoders.map((one) => ({...one, box: this.box(one.name)}));
    let waiting = 0;
    for (const id of ["text", "special"]) $(id).addEventListener("input", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(() => this.draw());
    });
    this.draw();
  }

  box(name) {
    const box = element("section"), parts = {count: element("p", "", {className: "note"}), tokens: element("div", "", {className: "tokens"}), ids: element("p", "", {className: "ids"})};
    box.setAttribute("aria-label", `Encoded by ${name}`);
    parts.count.setAttribute("role", "status");
    box.append(element("h3", name), parts.count, parts.tokens, parts.ids);
    $("encoded").append(box);
    return parts;
  }

  draw() {
    const text = $("text").value.slice(0, MOST), options = {special: $("special").checked};
    for (const one of this.encoders) {
      try {
        one.encode ??= makeEncoder(one.spec);
        this.show(one, text, one.encode(text, options));
      } catch (error) {
        if (!(error instanceof CannotEncode)) throw error;
        one.box.count.textContent = `This page cannot encode this exactly, so it gives no ids: ${error.message}. Use tokmill encode.`;
        one.box.tokens.replaceChildren();
        one.box.ids.textContent = "";
      }
    }
  }

  show({spec, box}, text, ids) {
    const bytes = new TextEncoder().encode(text).length, cut = $("text").value.length > MOST ? ` of the first ${MOST.toLocaleString("en")} characters` : "";
    const per = ids.length ? `, ${(bytes / ids.length).toFixed(2)} bytes per token` : "";
    box.count.textContent = `${ids.length.toLocaleString("en")} token${ids.length === 1 ? "" : "s"}${cut}${per}`;
    box.tokens.replaceChildren(...ids.map((id, place) => element("span", tokenText(spec, id), {className: `t t${place % 6}`, title: String(id)})));
    box.ids.textContent = ids.join(" ");
  }
}

ready.then((data) => { window.tryOut = new TryOut(data.encoders); });
