/* Lets the keyboard reach whatever scrolls sideways: long formulas, lines of code, wide tables and outputs.
   Which of them scroll depends on the window, so the page looks again when its width changes. */
(function () {
  "use strict";
  const candidates =
    "mjx-container[display], .math, pre, .cell_output .output, .pst-scrollable-table-container, .ms-table";
  const scrolls = (element) => {
    const style = getComputedStyle(element);
    return (
      (/auto|scroll/.test(style.overflowX) && element.scrollWidth > element.clientWidth) ||
      (/auto|scroll/.test(style.overflowY) && element.scrollHeight > element.clientHeight)
    );
  };

  function update() {
    for (const element of document.querySelectorAll(candidates)) {
      const ours = element.dataset.reach !== undefined;
      if (scrolls(element) && !element.hasAttribute("tabindex")) {
        element.dataset.reach = "";
        element.tabIndex = 0;
      } else if (ours && !scrolls(element)) {
        delete element.dataset.reach;
        element.removeAttribute("tabindex");
      }
    }
  }

  window.addEventListener("load", async () => {
    const typeset = window.MathJax && window.MathJax.startup && window.MathJax.startup.promise;
    await Promise.race([typeset, new Promise((done) => setTimeout(done, 5000))]);
    new ResizeObserver(update).observe(document.querySelector("article") || document.body);
  });
})();
