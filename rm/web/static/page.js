// What htmx does not do for the page: the hands of the circles, keys in the grids, the history of a cell, the pause, logs.
"use strict";
(() => {
  const pause = document.getElementById("pause");
  const lost = document.getElementById("lost");
  const pair = document.getElementById("part-pair");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let paused = false;
  let leaving = false;
  let skewMs = -Infinity; // the server's clock minus ours

  // -- live updates

  const readClock = () => {
    const clock = document.getElementById("clock");
    if (!clock) return;
    // what an answer spent on its way makes the difference look smaller
    skewMs = Math.max(skewMs, Number(clock.dataset.nowUs) / 1000 - Date.now());
    clock.textContent = "as of " + new Date(Number(clock.dataset.nowUs) / 1000).toLocaleTimeString();
  };

  const asked = (ctx) => ctx.sourceEvent?.type === "show"; // by the reader, not by the clock

  document.addEventListener("htmx:before:request", (event) => {
    const { sourceElement, request } = event.detail.ctx;
    const idle = pair && sourceElement === pair && !pair.firstElementChild;
    if (!asked(event.detail.ctx) && (paused || leaving || idle || document.hidden)) return event.preventDefault();
    if (sourceElement.dataset.etag) request.headers["If-None-Match"] = sourceElement.dataset.etag;
  });
  document.addEventListener("htmx:before:response", (event) => {
    if (paused && !asked(event.detail.ctx)) event.preventDefault();
  });
  document.addEventListener("htmx:after:request", (event) => {
    const { sourceElement, response } = event.detail.ctx;
    const etag = response.headers.get("ETag");
    if (etag) sourceElement.dataset.etag = etag;
    lost.hidden = true;
    if (response.status === 401 && !leaving) { // logged out meanwhile: to the login, and back here
      leaving = true;
      location.reload();
    }
  });
  document.addEventListener("htmx:error", () => { lost.hidden = false; });
  document.addEventListener("htmx:after:swap", () => { readClock(); if (!paused) turn(); });

  if (pause) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.setAttribute("aria-pressed", String(paused));
      if (!paused) tick();
    });
  }

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

  // -- the history of a pair, in a panel of its own

  let opener = null;

  function show(search) {
    pair.setAttribute("hx-get", `/part/pair?${search}`);
    history.replaceState(null, "", `/?${search}`);
    htmx.trigger(pair, "show");
  }

  function open(cell) {
    const search = new URLSearchParams(location.search);
    for (const [name, value] of new URLSearchParams(cell.dataset.way)) search.set(name, value);
    opener = cell;
    show(search);
  }

  function shut() {
    const search = new URLSearchParams(location.search);
    for (const name of ["from", "to", "since"]) search.delete(name);
    history.replaceState(null, "", search.size ? `/?${search}` : "/");
    pair.setAttribute("hx-get", "/part/pair");
    delete pair.dataset.etag;
    pair.replaceChildren();
    opener?.focus();
  }

  document.addEventListener("htmx:after:swap", (event) => {
    const { ctx } = event.detail;
    if (!pair || ctx.sourceElement !== pair || !asked(ctx)) return;
    if (!pair.contains(document.activeElement)) document.getElementById("pair")?.focus();
  });
  document.addEventListener("click", (event) => {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const link = event.target.closest?.("#pair a.way, #pair a.shut");
    const cell = link ? null : cellOf(event);
    if (!link && !cell?.dataset.way) return;
    event.preventDefault();
    if (cell) open(cell);
    else if (link.matches(".shut")) shut();
    else show(new URL(link.href).searchParams);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && pair?.firstElementChild) return shut();
    const way = (event.key === "Enter" || event.key === " ") && cellOf(event);
    if (!way || !way.dataset.way) return;
    event.preventDefault();
    open(way);
  });

  // -- arrow keys in the grids

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

  // -- the log of a job: its end, and what is added while it runs

  const LOG_MOST = 1 << 20; // characters that are kept

  async function follow(log) {
    const state = document.getElementById("log-state");
    const text = new TextDecoder();
    const response = await fetch(`${log.dataset.log}&follow=1`);
    if (!response.ok) {
      state.textContent = await response.text();
      return;
    }
    state.textContent = "Followed while the task runs.";
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const below = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      log.append(text.decode(value, { stream: true }));
      while (log.textContent.length > LOG_MOST && log.childNodes.length > 1) log.firstChild.remove();
      if (below) log.scrollTop = log.scrollHeight;
    }
    state.textContent = log.textContent ? "This is the end of the log." : "The log is empty.";
  }

  const log = document.getElementById("log");
  if (log) follow(log).catch(() => { document.getElementById("log-state").textContent = "The log was cut off: load the page again."; });

  readClock();
  if (still.matches) turn(); else tick();
})();
