// Draws the charts of the page from the numbers in it, each when it comes near the screen.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const colours = [
    "#5b8def", "#e07b39", "#3fa773", "#c45ab3", "#8f8f8f", "#b59a2c", "#2ba6b8", "#d2555a",
    "#7a6ad8", "#6f8f3a", "#a3705c", "#4f7f9f",
  ];
  const phone = window.matchMedia("(max-width: 40rem)");

  // Names of workloads without what all have in common, and short enough to stand below bars.
  const shorten = (name) => {
    const short = name.replaceAll("table-2/", "").replaceAll(/\?[^|+&]*/g, "");
    return short.length > 16 ? `${short.slice(0, 15)}…` : short;
  };
  const number = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toString());

  const legend = (chart) => {
    const list = document.createElement("ul");
    list.className = "legend";
    const entry = (words, style, kind) => {
      const item = document.createElement("li");
      const swatch = document.createElement("span");
      swatch.style.cssText = style;
      swatch.className = kind;
      swatch.setAttribute("aria-hidden", "true");
      item.append(swatch, words);
      list.append(item);
    };
    chart.variants.forEach((name, nth) => {
      entry(name, `background:${colours[nth % colours.length]}`, "");
    });
    if (chart.marks.length > 0) entry("the paper's number", "", "mark");
    return list;
  };

  const draw = (chart, width) => {
    const groups = chart.workloads.length;
    const bars = chart.values.flatMap((values, variant) =>
      values.map((value, at) => ({ variant, group: at, value })).filter((bar) => bar.value !== null));
    const marks = chart.marks.map((mark) => ({
      variant: mark.variant, group: mark.workload, value: mark.paper,
    }));
    const name = (bar) => `${chart.variants[bar.variant]}, ${chart.workloads[bar.group]}`;
    const label = (bar, words) => `${name(bar)}: ${words}${number(bar.value)}`;
    const least = groups * Math.max(26, chart.variants.length * 9 + 12) + 60;
    // No wider than bars of a good size need, so that small charts stand side by side.
    const good = 70 + groups * (chart.variants.length * 34 + 40);
    const wide = Math.max(Math.min(width, Math.max(good, 260)), least);
    const longest = Math.max(...chart.workloads.map((workload) => shorten(workload).length));
    const tilted = (wide - 60) / groups < longest * 7 + 8 && groups > 1;
    const below = tilted ? 26 + longest * 5 : 32;
    const svg = Plot.plot({
      width: wide,
      height: 218 + below,
      marginLeft: 52 + (tilted ? Math.max(0, longest - 8) * 3 : 0),
      marginBottom: below,
      style: { background: "transparent", fontSize: "12px" },
      fx: { domain: chart.workloads.map((_, at) => at), axis: null, padding: 0.18 },
      x: { domain: chart.variants.map((_, at) => at), axis: null, padding: 0.08 },
      y: { label: null, grid: true, nice: true, ticks: 6 },
      marks: [
        Plot.ruleY([0], { strokeOpacity: 0.6 }),
        Plot.axisFx({
          anchor: "bottom", label: null, tickFormat: (at) => shorten(chart.workloads[at]),
          tickRotate: tilted ? -40 : 0, textAnchor: tilted ? "end" : "middle",
        }),
        Plot.barY(bars, {
          fx: "group", x: "variant", y: "value",
          fill: (bar) => colours[bar.variant % colours.length], title: (bar) => label(bar, ""),
        }),
        Plot.tickY(marks, {
          fx: "group", x: "variant", y: "value", stroke: "currentColor", strokeWidth: 3,
          insetLeft: -2, insetRight: -2, title: (mark) => label(mark, "the paper has "),
        }),
      ],
    });
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${chart.metric}: bars; the numbers are in the tables below`);
    return svg;
  };

  const show = (place) => {
    if (place.dataset.drawn) return;
    place.dataset.drawn = "yes";
    const width = place.clientWidth || 640;
    place.replaceChildren(...charts[place.dataset.charts].map((chart) => {
      const figure = document.createElement("figure");
      const heading = document.createElement("h4");
      heading.textContent = chart.metric;
      const scroll = document.createElement("div");
      scroll.className = "scroll";
      scroll.append(draw(chart, width));
      if (scroll.firstChild.width.baseVal.value > width + 1) {
        scroll.tabIndex = 0;
        scroll.setAttribute("role", "region");
        scroll.setAttribute("aria-label", `${chart.metric}: scrolls to the side`);
      }
      figure.append(heading, legend(chart), scroll);
      return figure;
    }));
  };

  const places = [...document.querySelectorAll("[data-charts]")];
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) show(entry.target);
    }
  }, { rootMargin: "800px" });
  places.forEach((place) => near.observe(place));

  const redraw = () => {
    for (const place of places.filter((one) => one.dataset.drawn)) {
      delete place.dataset.drawn;
      show(place);
    }
  };
  let width = window.innerWidth;
  let waiting;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 150);
  });
  phone.addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => {
    places.forEach(show);
    document.querySelectorAll("details").forEach((one) => { one.open = true; });
  });
  document.documentElement.dataset.ready = "yes";
})();
