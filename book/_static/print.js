/* A printed page is light, whatever the reader's theme, and what is folded is open. Afterwards all is as it was.
   Solutions need no script: print.css opens them. */
(function () {
  "use strict";
  const root = document.documentElement;
  const folded = "article details:not(.ms-data):not([open])"; // a figure's rows stay folded: paper has the figure
  let undo = null;

  function prepare() {
    if (undo) return;
    const theme = root.dataset.theme;
    const opened = [...document.querySelectorAll(folded)];
    root.dataset.theme = "light";
    opened.forEach((part) => (part.open = true));
    undo = () => {
      root.dataset.theme = theme;
      opened.forEach((part) => (part.open = false));
      undo = null;
    };
  }
  const restore = () => undo && undo();

  window.addEventListener("beforeprint", prepare);
  window.addEventListener("afterprint", restore);
  matchMedia("print").addEventListener("change", (print) => (print.matches ? prepare() : restore()));
})();
