// Draws what the disk is asked for by two users (traces.js), and counts what differs.
"use strict";

(() => {
  const root = document.getElementById("raster");
  const traces = window.tracelessTraces;
  if (!root || !traces) return;
  const SECONDS = 4;
  const NAMES = { encrypted: "Encrypted only", traceless: "Traceless" };
  const USERS = ["A bookkeeper: pages of a database", "A photographer: file after file"];
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  // Pairs of a first sector and how many, as stretches with where they end.
  const stretches = (numbers) => {
    const found = [];
    for (let at = 0; at < numbers.length; at += 2) {
      found.push([numbers[at], numbers[at] + numbers[at + 1]]);
    }
    return found;
  };
  const runs = {};
  for (const kind of Object.keys(traces)) runs[kind] = traces[kind].map(stretches);

  // How many writes of one user differ from the other's at the same place in time.
  const differing = ([a, b]) => {
    const longer = Math.max(a.length, b.length);
    let count = 0;
    for (let n = 0; n < longer; n++) {
      if (!a[n] || !b[n] || a[n][0] !== b[n][0] || a[n][1] !== b[n][1]) count++;
    }
    return count;
  };

  const choices = root.querySelector(".raster-choices");
  const canvases = [...root.querySelectorAll("canvas")];
  const verdict = root.querySelector(".raster-verdict");
  let kind = "encrypted";
  let begun = 0;
  let frame = 0;

  const draw = (share) => {
    const sectors = Math.max(...runs[kind].flat().map((stretch) => stretch[1]));
    canvases.forEach((canvas, user) => {
      const ratio = window.devicePixelRatio || 1;
      const [width, height] = [canvas.clientWidth, canvas.clientHeight];
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      context.fillStyle = getComputedStyle(canvas).color;
      const writes = runs[kind][user];
      const shown = Math.round(writes.length * share);
      for (let n = 0; n < shown; n++) {
        const [first, end] = writes[n];
        const top = height * first / sectors;
        const tall = Math.max(2, height * (end - first) / sectors);
        context.fillRect(width * n / writes.length, top, 2, tall);
      }
    });
  };

  const describe = () => {
    const count = differing(runs[kind]);
    const all = runs[kind][0].length;
    verdict.textContent = count === 0
      ? `${NAMES[kind]}: all ${all} writes to the disk are at the same places for both users. `
        + "Nothing in them says which user it was."
      : `${NAMES[kind]}: ${count} of ${all} writes to the disk differ, `
        + "and their places are the blocks that were used.";
    canvases.forEach((canvas, user) => {
      const what = count === 0 ? "the same picture for both users" : "a picture of the user's own";
      canvas.setAttribute("aria-label", `${USERS[user]}. ${NAMES[kind]}: ${what}.`);
    });
    root.dataset.differing = count;
  };

  const step = (now) => {
    if (!begun) begun = now;
    const share = still ? 1 : Math.min(1, (now - begun) / 1000 / SECONDS);
    draw(share);
    frame = share < 1 ? requestAnimationFrame(step) : 0;
  };

  const begin = () => {
    cancelAnimationFrame(frame);
    begun = 0;
    describe();
    frame = requestAnimationFrame(step);
  };

  for (const name of Object.keys(NAMES)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = NAMES[name];
    button.setAttribute("aria-pressed", String(name === kind));
    button.addEventListener("click", () => {
      kind = name;
      for (const other of choices.children) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      begin();
    });
    choices.append(button);
  }
  // A new size, or another theme with other colours.
  const redraw = () => {
    if (!frame) draw(1);
  };
  window.addEventListener("resize", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["class"] });
  begin();
})();
