/* Draws the book's figures from one local copy of Vega: those near the screen first, the others when the browser has
   nothing else to do, and all that are left when the page is printed.

   A figure carries Altair's ordinary inline script. That script looks at window.VEGA_DEBUG for the Vega versions on
   the page and fetches from elsewhere those that it misses; then it calls vegaEmbed(element, spec, options). So this
   file, in the page's head, claims the versions and takes the call. In a notebook it is absent and Altair works alone.

   Given by the page: window.MEMSTORE_CHARTS = {bundle: url, versions: {vega, "vega-lite", "vega-embed"}}; the bundle
   sets window.MEMSTORE_VEGA = {vega, vegaLite, vegaEmbed}. Nothing here moves by itself, so there is no motion to
   reduce; colours are CSS variables, so a change of theme needs no redraw. */
(function () {
  "use strict";
  const settings = window.MEMSTORE_CHARTS;
  if (!settings) return;

  const debug = (window.VEGA_DEBUG = window.VEGA_DEBUG || {});
  for (const [library, version] of Object.entries(settings.versions)) {
    debug[library.replace("-", "") + "_version"] = version;
  }

  const waiting = new Map(); // element -> the function that draws it, and says when it is done
  const margin = 1200; // px before the screen, so that a figure is there when a reader arrives
  const near = new IntersectionObserver(
    (entries) => entries.forEach((entry) => entry.isIntersecting && draw(entry.target)),
    { rootMargin: margin + "px 0px" }
  );

  // A figure in a closed dropdown or tab has no width: a chart drawn there would get none either.
  const hasRoom = (element) => (element.checkVisibility?.() ?? true) && element.clientWidth > 0;
  function draw(element) {
    const start = waiting.get(element);
    if (!start || !hasRoom(element)) return null;
    waiting.delete(element);
    near.unobserve(element);
    return start();
  }
  const drawAll = () => Promise.all([...waiting.keys()].map(draw));

  // Printing does not wait. Once Vega is here, a chart takes promises alone, which are kept before the pages are laid
  // out; so Vega is part of what the page loads. What is out of sight is drawn while the reader reads, chart by chart.
  document.addEventListener("DOMContentLoaded", () => waiting.size && loadBundle().catch(() => null));
  const idle = window.requestIdleCallback || ((work) => setTimeout(work, 200));
  function drawTheRest() {
    const next = [...waiting.keys()].find(hasRoom);
    if (next) draw(next).then(() => idle(drawTheRest));
  }
  window.addEventListener("load", () => idle(drawTheRest));
  window.addEventListener("beforeprint", drawAll);
  matchMedia("print").addEventListener("change", (print) => print.matches && drawAll());
  const print = window.print.bind(window); // what the theme's button calls
  window.print = () => drawAll().then(print);

  let bundle = null;
  function loadBundle() {
    bundle =
      bundle ||
      new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = settings.bundle;
        script.onload = () =>
          window.MEMSTORE_VEGA ? resolve(window.MEMSTORE_VEGA) : reject(new Error("the chart library is empty"));
        script.onerror = () => reject(new Error("the chart library could not be loaded"));
        document.head.append(script);
      });
    return bundle;
  }

  // Never rejects: Altair's script would replace the message by its own.
  window.vegaEmbed = function (target, spec, options) {
    const element = typeof target === "string" ? document.querySelector(target) : target;
    return new Promise((resolve) => {
      waiting.set(element, () => {
        const drawn = loadBundle()
          .then((library) => embed(library, element, spec, options))
          .catch((error) => {
            console.error("A figure could not be drawn:", error);
            const message = document.createElement("p");
            message.className = "ms-error";
            message.setAttribute("role", "alert");
            message.textContent = `This figure could not be drawn (${error.message}). Its data is below.`;
            element.replaceChildren(message);
            return null;
          });
        drawn.then(resolve);
        return drawn;
      });
      near.observe(element);
    });
  };

  async function embed(library, element, spec, options) {
    const ours = (spec.usermeta && spec.usermeta.memstore) || { controls: {} };
    const controls = document.createElement("div");
    controls.className = "ms-controls";
    if (Object.keys(ours.controls).length) element.before(controls);
    const style = getComputedStyle(element);
    const result = await library.vegaEmbed(
      element,
      { ...spec, config: { ...spec.config, font: style.fontFamily } },
      { ...options, renderer: "svg", actions: false, bind: controls }
    );
    const view = result.view;
    improveControls(controls, ours.controls, view);
    if (ours.live) announce(element, controls, ours.live, view);
    followWidth(element, view);
    element.classList.add("ms-drawn");
    element.parentElement.style.minHeight = ""; // the room that was kept for it
    return result;
  }

  // Vega's inputs are real inputs with labels; their slider shows a bare number, often a step. Say what it means.
  function improveControls(box, controls, view) {
    for (const [name, about] of Object.entries(controls)) {
      const inputs = [...box.querySelectorAll(`input[name="${name}"]`)];
      if (!inputs.length) continue;
      const row = inputs[0].closest(".vega-bind");
      const title = row.querySelector(".vega-bind-name");
      title.textContent = about.label;
      row.classList.add("ms-" + inputs[0].type);
      if (inputs[0].type === "radio") {
        const group = row.querySelector(".vega-bind-radio");
        group.setAttribute("role", "radiogroup");
        group.setAttribute("aria-label", about.label);
        // Vega names the radios of every chart by the signal alone: two charts on a page would share one choice.
        inputs.forEach((input) => (input.name = name + "-" + (view.msId = view.msId || ++ids)));
      }
      if (inputs[0].type === "range") showValue(inputs[0], about);
      if (about.only) switchOff(inputs[0], about.only, row, view);
    }
  }
  let ids = 0;

  function showValue(input, about) {
    const text = () =>
      about.labels ? about.labels[Math.round((input.value - input.min) / input.step)] : String(+input.value);
    const output = document.createElement("output");
    input.nextElementSibling.replaceWith(output); // Vega's own span, which shows the step
    // Under the name, so that the row keeps one height and the slider one width while the value changes.
    const update = () => {
      output.textContent = text();
      input.setAttribute("aria-valuetext", text());
    };
    input.addEventListener("input", update);
    update();
  }

  function switchOff(input, only, row, view) {
    const [signal, values] = Object.entries(only)[0];
    const update = () => {
      input.disabled = !values.includes(view.signal(signal));
      row.classList.toggle("ms-off", input.disabled);
    };
    view.addSignalListener(signal, update);
    update();
  }

  // The readout is text in the picture; a polite copy tells screen readers, once the slider rests.
  function announce(element, controls, mark, view) {
    const copy = document.createElement("p");
    copy.className = "ms-live";
    copy.setAttribute("aria-live", "polite");
    element.after(copy);
    let rest = 0;
    const read = () => {
      const texts = element.querySelectorAll(`.${mark}_marks text`);
      copy.textContent = [...texts]
        .map((text) => [...(text.children.length ? text.children : [text])].map((line) => line.textContent).join("; "))
        .join("; ");
    };
    controls.addEventListener("input", () => {
      clearTimeout(rest);
      rest = setTimeout(() => view.runAsync().then(read), 400);
    });
  }

  // Vega-Lite's container width listens to the window alone; a sidebar that opens changes the box too.
  function followWidth(element, view) {
    let width = element.clientWidth;
    new ResizeObserver(() => {
      if (element.clientWidth === width || element.clientWidth === 0) return;
      width = element.clientWidth;
      view.signal("width", width).resize().runAsync();
    }).observe(element);
  }
})();
