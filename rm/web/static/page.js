// What htmx does not do for the page: the hands of the circles, arrow keys in the grids, and the pause.
"use strict";
(() => {
  const pause = document.getElementById("pause");
  const lost = document.getElementById("lost");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let paused = false;
  let skewMs = -Infinity; // the server's clock minus ours

  // -- live updates

  const readClock = () => {
    const clock = document.getElementById("clock");
    if (!clock) return;
    // what an answer spent on its way makes the difference look smaller
    skewMs = Math.max(skewMs, Number(clock.dataset.nowUs) / 1000 - Date.now());
    clock.textContent = "as of " + new Date(Number(clock.dataset.nowUs) / 1000).toLocaleTimeString();
  };

  document.addEventListener("htmx:before:request", (event) => {
    if (paused || document.hidden) return event.preventDefault();
    const { sourceElement, request } = event.detail.ctx;
    if (sourceElement.dataset.seen) request.headers["X-Seen"] = sourceElement.dataset.seen;
  });
  document.addEventListener("htmx:before:response", (event) => { if (paused) event.preventDefault(); });
  document.addEventListener("htmx:after:request", (event) => {
    const { sourceElement, response } = event.detail.ctx;
    const seen = response.headers.get("X-Seen");
    if (seen) sourceElement.dataset.seen = seen;
    lost.hidden = true;
  });
  document.addEventListener("htmx:error", () => { lost.hidden = false; });
  document.addEventListener("htmx:after:swap", () => { readClock(); if (!paused) turn(); });

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) tick();
  });

  // -- the hands of the circles

  const modulo = (value, period) => ((value % period) + period) % period;

  function turn() {
    const nowUs = (Date.now() + skewMs) * 1000;
    for (const disc of document.querySelectorAll("svg.live")) {
      const perimeterUs = Number(disc.dataset.perimeterUs);
      const sinceUs = (nowUs - Number(disc.dataset.anchorUs)) / Number(disc.dataset.slower);
      const degrees = (360 * modulo(sinceUs, perimeterUs)) / perimeterUs;
      disc.querySelector(".hand").setAttribute("transform", `rotate(${degrees.toFixed(1)})`);
      for (const live of disc.closest(".card").querySelectorAll("li[data-rotation-us]")) {
        const { job, rotationUs, periodUs, lateUs, phases } = live.dataset;
        const dot = disc.querySelector(`.dot[data-job="${Number(job)}"]`);
        const lag = (360 * Number(lateUs)) / perimeterUs;
        const at = modulo(sinceUs - Number(rotationUs) - Number(lateUs), Number(periodUs));
        const sends = JSON.parse(phases).some(([from, to]) => from <= at && at < to);
        dot.setAttribute("transform", `rotate(${(degrees - lag).toFixed(1)})`);
        dot.classList.toggle("sends", sends);
        const phase = live.querySelector(".phase");
        const said = sends ? "▲ communicates" : "▽ computes";
        if (phase.textContent !== said) phase.textContent = said;
      }
    }
  }

  function tick() {
    if (paused || still.matches) return;
    if (!document.hidden) turn();
    requestAnimationFrame(tick);
  }

  // -- the grids: one stop of the Tab key each, arrow keys inside

  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

  const tell = (cell) => {
    const grid = cell.closest("table.grid");
    document.getElementById(`${grid.id}-detail`).textContent = cell.getAttribute("aria-label");
  };
  const cellOf = (event) => event.target.closest?.("table.grid td[tabindex]");

  document.addEventListener("keydown", (event) => {
    const cell = cellOf(event);
    const step = STEPS[event.key];
    if (!cell || !step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const rows = cell.closest("tbody").rows;
    let row = cell.parentNode.sectionRowIndex;
    let column = cell.cellIndex;
    do { // over the cell in which a host would meet itself
      row += step[0];
      column += step[1];
    } while (rows[row]?.cells[column]?.matches(".self"));
    const next = rows[row]?.cells[column];
    if (!next?.hasAttribute("tabindex")) return;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  document.addEventListener("focusin", (event) => { const cell = cellOf(event); if (cell) tell(cell); });
  document.addEventListener("mouseover", (event) => { const cell = cellOf(event); if (cell) tell(cell); });

  readClock();
  if (still.matches) turn(); else tick();
})();
