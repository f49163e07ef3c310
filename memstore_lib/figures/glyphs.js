/* Lets a reader move M, choose a kanji and play through M, in every figure of recalled glyphs on the page. All pictures
   and numbers are in the figure already: a sprite for each store, a column for each M and a row for each kanji. Nothing
   moves by itself; who asks for reduced motion gets a button that takes one step instead of one that plays. */
(function () {
  "use strict";
  const PACE = 900; // milliseconds a step
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  for (const figure of document.querySelectorAll(".ms-glyphs:not([data-ready])")) {
    figure.dataset.ready = "";
    const facts = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    const slider = figure.querySelector("input[type=range]");
    const output = figure.querySelector("output");
    const button = figure.querySelector(".ms-play");
    const radios = [...figure.querySelectorAll("input[type=radio]")];
    const pictures = [...figure.querySelectorAll(".ms-picture")];
    const live = figure.querySelector(".ms-live");
    const last = facts.M.length - 1;
    let playing = 0;
    let rest = 0;

    function show() {
      const m = Number(slider.value);
      const k = Math.max(0, radios.findIndex((radio) => radio.checked));
      output.textContent = facts.M[m];
      slider.setAttribute("aria-valuetext", facts.M[m]);
      const said = pictures.map((picture, at) => {
        const view = picture.querySelector(".ms-window");
        const isTrue = picture.classList.contains("ms-true");
        view.setAttribute("viewBox", `${(isTrue ? 0 : m) * facts.size} ${k * facts.size} ${facts.size} ${facts.size}`);
        const [name, ratio, cosine, good] = isTrue ? [] : [facts.names[at - 1], ...facts.numbers[at - 1][k][m]];
        if (!isTrue) {
          picture.querySelector(".ms-ratio").textContent = ratio;
          picture.querySelector(".ms-cosine").textContent = cosine;
          picture.querySelector(".ms-mark").textContent = good ? "✓" : "✗";
        }
        const words = isTrue
          ? `${facts.kanji[k]}, as it was stored`
          : `${facts.kanji[k]} recalled from ${name} with M = ${facts.M[m]}: ratio ${ratio}, cosine ${cosine}`;
        picture.querySelector("svg.marks").setAttribute("aria-label", words);
        return isTrue ? `${facts.kanji[k]}, M = ${facts.M[m]}` : `${name}: ratio ${ratio}, cosine ${cosine}`;
      });
      clearTimeout(rest);
      if (!playing) rest = setTimeout(() => (live.textContent = said.join("; ")), 400);
    }

    function label() {
      button.textContent = playing ? "❚❚ Pause" : still.matches ? "Next M ▸" : "▶ Play";
    }
    function stop() {
      clearInterval(playing);
      playing = 0;
      label();
    }
    function step() {
      slider.value = Number(slider.value) < last ? Number(slider.value) + 1 : 0;
      if (Number(slider.value) === last) stop();
      show();
    }

    button.addEventListener("click", () => {
      if (playing) {
        stop();
        return show();
      }
      if (!still.matches) playing = setInterval(step, PACE);
      label();
      step();
    });
    slider.addEventListener("input", () => {
      stop();
      show();
    });
    radios.forEach((radio) => radio.addEventListener("change", show));
    still.addEventListener("change", stop);
    figure.querySelector(".ms-controls").hidden = false;
    // A browser that goes back to a page restores its inputs: show what they say, and stay silent about it.
    label();
    show();
    clearTimeout(rest);
  }
})();
