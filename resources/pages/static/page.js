/* A page's own script: draws the curves, and keeps a page that is served up to date. Without it, tables say the same. */
"use strict";
(() => {
  const POLL = 2000, RELOAD = 30000, HEIGHT = 240;
  const read = id => JSON.parse(document.getElementById(id)?.textContent || "null");
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const logs = new Set();
  let plots = [], data = read("curves");

  function number(value) {
    if (value == null) return "-";
    const size = Math.abs(value);
    if (size && (size < 1e-3 || size >= 1e7)) return value.toExponential(3);
    return value.toLocaleString("en", {maximumSignificantDigits: 5});
  }

  /* A round figure beside an axis, short enough for its margin. */
  const label = value => value == null ? "" : number(value).replace(/\.?0+e/, "e");

  /* Checkpoints are ticks at the bottom, incidents and restarts are lines with their kind. */
  function marks(plot) {
    const {ctx, bbox} = plot, ratio = window.devicePixelRatio || 1;
    const within = at => at >= plot.scales.x.min && at <= plot.scales.x.max;
    ctx.save();
    ctx.strokeStyle = colour("--good");
    ctx.lineWidth = 2 * ratio;
    for (const step of data.checkpoints.filter(within)) {
      const x = plot.valToPos(step, "x", true);
      ctx.beginPath(); ctx.moveTo(x, bbox.top + bbox.height); ctx.lineTo(x, bbox.top + bbox.height - 8 * ratio); ctx.stroke();
    }
    ctx.strokeStyle = ctx.fillStyle = colour("--c2");
    ctx.lineWidth = ratio;
    ctx.setLineDash([4 * ratio, 3 * ratio]);
    ctx.font = `${11 * ratio}px system-ui`;
    data.marks.filter(mark => within(mark.step)).forEach((mark, place) => {
      const x = plot.valToPos(mark.step, "x", true);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      const wide = ctx.measureText(mark.kind).width, right = x + 3 * ratio;
      ctx.fillText(mark.kind, right + wide < ctx.canvas.width ? right : x - 3 * ratio - wide, bbox.top + (12 + 12 * (place % 3)) * ratio);
    });
    ctx.restore();
  }

  function columns(figure) {
    return [data.steps, ...figure.series.map(each => each.values), ...(figure.band || [])];
  }

  function draw() {
    plots.forEach(each => each.plot.destroy());
    plots = [];
    for (const figure of data ? data.figures : []) {
      const place = document.getElementById(`curve-${figure.id}`);
      if (!place) continue;
      const axis = {stroke: colour("--ink"), grid: {stroke: colour("--grid"), width: 1}, ticks: {stroke: colour("--grid")}};
      const value = (_, raw) => number(raw);
      const series = figure.series.map((each, n) => ({label: each.label, stroke: colour(`--c${n % 4 + 1}`), width: 1.5,
        dash: n < 4 ? [] : [6, 4], spanGaps: true, value, points: {show: each.values.filter(v => v != null).length < 40}}));
      const count = series.length, band = figure.band ? [
        {label: "lowest", stroke: "transparent", width: 0, spanGaps: true, value, points: {show: false}},
        {label: "highest", stroke: "transparent", width: 0, spanGaps: true, value, points: {show: false}}] : [];
      const plot = new uPlot({
        width: place.clientWidth || 320, height: HEIGHT, cursor: {sync: {key: "steps"}},
        scales: {x: {time: false}, y: logs.has(figure.id) ? {distr: 3} : {}},
        axes: [{...axis, values: (_, at) => at.map(label)}, {...axis, size: 64, values: (_, at) => at.map(label)}],
        series: [{label: "step", value: (_, v) => v == null ? "-" : v.toLocaleString("en")}, ...series, ...band],
        bands: band.length ? [{series: [count + 2, count + 1], fill: colour("--band")}] : [],
        hooks: {draw: [marks]},
      }, columns(figure), place);
      plots.push({plot, place, id: figure.id});
    }
  }

  function update(found) {
    for (const [id, html] of Object.entries(found.sections)) {
      const place = document.getElementById(id);
      if (place && place.innerHTML !== html && !place.contains(document.activeElement)) place.innerHTML = html;
    }
    document.title = found.title;
    document.body.dataset.live = found.live ? "1" : "";
    const before = data ? data.figures.map(each => each.id).join() : "";
    data = found.curves;
    if (data.figures.map(each => each.id).join() !== before) {
      document.getElementById("figures").innerHTML = found.places;
      return draw();
    }
    for (const {plot, id} of plots) plot.setData(columns(data.figures.find(each => each.id === id)), true);
  }

  async function poll() {
    const note = document.getElementById("freshness");
    try {
      const answer = await fetch(`${location.pathname.replace(/\/$/, "")}/live`, {cache: "no-store"});
      if (!answer.ok) throw new Error(answer.status);
      update(await answer.json());
      note.textContent = `as of ${new Date().toISOString().slice(0, 19).replace("T", " ")} UTC`;
    } catch (error) {
      note.textContent = `not up to date: the server does not answer (${error.message})`;
    }
    if (document.body.dataset.live) setTimeout(poll, POLL);
  }

  document.addEventListener("click", event => {
    const id = event.target.dataset?.log;
    if (!id) return;
    logs.has(id) ? logs.delete(id) : logs.add(id);
    event.target.setAttribute("aria-pressed", logs.has(id));
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("resize", () => plots.forEach(each => each.plot.setSize({width: each.place.clientWidth, height: HEIGHT})));
  draw();
  if (document.body.dataset.live) {
    if (document.body.dataset.served && location.protocol.startsWith("http")) setTimeout(poll, POLL);
    else setTimeout(() => location.reload(), RELOAD);
  }
})();
