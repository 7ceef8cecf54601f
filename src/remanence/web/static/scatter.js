// One score against another. What is brushed goes into the form's number fields, and the form is sent.
import { expressionInterpreter } from "./vega-interpreter.js";

const { vega, vegaLite } = globalThis;
const PAUSE = 250; // a brush moves many times a second; the gallery follows when it rests

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function specification(points, titles, width) {
  const ink = colour("--ink");
  const axis = { labelColor: ink, titleColor: ink, gridColor: colour("--line"), domainColor: ink, tickColor: ink };
  const of = (name, title, type) => ({
    field: name, type: "quantitative", title, scale: { type, nice: false, padding: 8, ...(type === "linear" ? { zero: false } : {}) },
    axis: { ...axis, format: "~g", tickCount: 5 },
  });
  const few = points.classes.length <= 10;
  const brush = { name: "brush", select: { type: "interval", mark: { fill: colour("--accent"), fillOpacity: 0.15, stroke: ink } } };
  return {
    width, height: width < 600 ? 360 : 320, background: null, padding: 4, autosize: { type: "fit", contains: "padding" },
    data: { values: points.x.map((x, i) => ({ x, y: points.y[i], label: points.classes[points.label[i]] })) },
    params: [brush],
    mark: { type: "point", filled: true, size: 26 },
    encoding: {
      x: of("x", titles.x, points.x_scale),
      y: of("y", titles.y, points.y_scale),
      color: {
        condition: few
          ? { param: "brush", field: "label", type: "nominal", scale: { scheme: "tableau10" },
              legend: { orient: "bottom", columns: width < 600 ? 5 : 10, labelColor: ink, titleColor: ink, title: "class", symbolOpacity: 1 } }
          : { param: "brush", value: colour("--accent") },
        value: colour("--faint"),
      },
      opacity: { condition: { param: "brush", value: 0.75 }, value: 0.3 },
    },
    config: { view: { stroke: colour("--line") }, font: "system-ui, sans-serif" },
  };
}

function room(place) {
  const { paddingLeft, paddingRight } = getComputedStyle(place);
  return place.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
}

function fill(form, names, range) {
  names.forEach((name, i) => {
    form.elements[name].value = range ? Number(Math.min(Math.max(range[i], -1e300), 1e300).toPrecision(7)) : "";
  });
}

function follow(view, form) {
  let waiting;
  view.addSignalListener("brush", (_, brushed) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const sorted = (range) => range && [Math.min(...range), Math.max(...range)];
      fill(form, ["from", "to"], sorted(brushed.x));
      fill(form, ["against_from", "against_to"], sorted(brushed.y));
      form.requestSubmit();
    }, PAUSE);
  });
}

let asked = 0;
let shown = null;

async function draw(place) {
  const form = document.getElementById("filter");
  const mine = ++asked;
  const titles = { x: place.dataset.x, y: place.dataset.y };
  const answer = await fetch(place.dataset.points);
  if (!answer.ok) return;
  const points = await answer.json();
  if (mine !== asked) return; // other scores were chosen meanwhile
  const compiled = vegaLite.compile(specification(points, titles, room(place))).spec;
  const runtime = vega.parse(compiled, undefined, { ast: true });
  shown?.finalize();
  place.replaceChildren();
  const view = shown = new vega.View(runtime, { expr: expressionInterpreter, renderer: "canvas", container: place, logLevel: vega.Error });
  await view.runAsync();
  follow(view, form);
  place.dataset.ready = "yes";
}

function begin() {
  const place = document.getElementById("scatter");
  if (!place) return;
  place.hidden = false;
  draw(place);
}

// another pair of scores is another picture, and what was brushed in the last one is gone
document.addEventListener("htmx:afterSettle", (event) => {
  const place = document.getElementById("scatter");
  const wanted = document.getElementById("results")?.dataset;
  if (!place || !wanted || wanted.points === place.dataset.points) return;
  Object.assign(place.dataset, { points: wanted.points, x: wanted.x, y: wanted.y, ready: "" });
  for (const label of document.querySelectorAll("[data-axis]")) label.textContent = wanted[label.dataset.axis];
  const fields = document.getElementById("filter").elements;
  if (fields.of.value !== wanted.x) ["from", "to"].forEach((name) => { fields[name].value = ""; });
  if (fields.against_of.value !== wanted.y) ["against_from", "against_to"].forEach((name) => { fields[name].value = ""; });
  [fields.of.value, fields.against_of.value, fields.against.value] = [wanted.x, wanted.y, wanted.y];
  draw(place);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", begin);
let width = innerWidth;
addEventListener("resize", () => { // a phone that was turned; the keyboard on its screen changes only the height
  if (innerWidth === width) return;
  width = innerWidth;
  begin();
});
begin();
