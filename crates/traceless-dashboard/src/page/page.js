"use strict";

// Milliseconds between two readings.
const EVERY = 500;
// How long samples, and counts of places, stay on the page, in nanoseconds.
const RASTER_NS = 20e9;
const PLACES_NS = 10e9;
// Most samples that a raster draws.
const SAMPLES_MAX = 40000;
const READ = 0;
const WRITE = 1;
const SYNC = 2;

const byId = (id) => document.getElementById(id);

// The token comes behind the # of the address, which no server gets to see. It leaves the address
// at once, and stays with this tab.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token");
}

let token = takeToken();
let paused = false;
let timer = 0;

function count(value) {
  if (value === null || !Number.isFinite(value)) return "-";
  if (value !== 0 && Math.abs(value) < 100 && !Number.isInteger(value)) {
    return value.toPrecision(3);
  }
  return Math.round(value).toLocaleString("en-US");
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function duration(ns) {
  if (ns === null) return "-";
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]];
  const [unit, of] = units.find(([, of]) => ns >= of) ?? ["ns", 1];
  return `${(ns / of).toPrecision(3)} ${unit}`;
}

// The latency that a share of the requests since an earlier reading did not exceed.
function quantile(now, before, share) {
  const known = new Map(before);
  const fresh = now.map(([ns, n]) => [ns, n - (known.get(ns) ?? 0)]);
  const all = fresh.reduce((sum, [, n]) => sum + n, 0);
  let below = 0;
  const found = fresh.find(([, n]) => (below += n) >= share * all && n > 0);
  return all > 0 && found ? found[0] : null;
}

// One side of the page.
class Side {
  constructor(id, path) {
    this.root = byId(id);
    this.path = path;
    this.forget();
  }

  forget() {
    this.next = 0;
    this.last = null;
    this.samples = [];
    this.earlier = [];
  }

  get(selector) {
    return this.root.querySelector(selector);
  }

  async read() {
    const reply = await fetch(`${this.path}?after=${this.next}`, {
      headers: { Authorization: `Bearer ${token}` },
      cache: "no-store",
      signal: AbortSignal.timeout(5000),
    });
    if (reply.status === 401) throw new WrongToken();
    if (!reply.ok) throw new Error(`the server answers ${reply.status}`);
    const now = await reply.json();
    // After a restart everything begins anew.
    if (this.last && now.now < this.last.now) this.forget();
    const before = this.last ?? now;
    this.next = now.next;
    this.last = now;
    this.samples = this.samples.concat(now.samples).filter(([time]) => time > now.now - RASTER_NS);
    this.samples = this.samples.slice(-SAMPLES_MAX);
    this.earlier = this.earlier.filter((one) => one.now > now.now - PLACES_NS);
    this.earlier.push({ now: now.now, places: now.places });
    return [now, before];
  }

  tiles(rows) {
    const nodes = rows.map(([name, value]) => {
      const [box, dt, dd] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
      dt.textContent = name;
      dd.textContent = value;
      box.append(dt, dd);
      return box;
    });
    this.get(".tiles").replaceChildren(...nodes);
  }

  draw() {
    if (!this.last) return;
    const { space, stride, now } = this.last;
    this.get(".sampled").textContent =
      stride > 1 ? `1 of ${stride.toLocaleString("en-US")} sampled` : "all of them";
    this.get(".space").textContent = bytes(space);
    this.drawRaster(now, space);
    this.drawPlaces(space);
  }

  drawRaster(now, space) {
    const { context, width, height, colours } = begin(this.get(".raster"));
    const shown = this.samples.filter(([, op]) => op !== SYNC);
    for (const [time, op, at, len] of shown) {
      const x = width * (1 - (now - time) / RASTER_NS);
      const tall = Math.max(1.5, (height * len) / Math.max(space, 1));
      context.fillStyle = colours[op];
      context.fillRect(x, (height * at) / Math.max(space, 1) - tall / 2, 1.5, tall);
    }
    const writes = shown.filter(([, op]) => op === WRITE).length;
    label(this.get(".raster"), `${shown.length - writes} reads and ${writes} writes drawn`);
  }

  drawPlaces(space) {
    const canvas = this.get(".places");
    const { context, width, height, colours } = begin(canvas);
    const oldest = this.earlier[0].places;
    const fresh = [READ, WRITE].map((op) => this.last.places[op].map((n, i) => n - oldest[op][i]));
    const most = Math.max(1, ...fresh[READ].map((n, i) => n + fresh[WRITE][i]));
    const wide = width / fresh[READ].length;
    fresh[READ].forEach((reads, i) => {
      const [readTall, writeTall] = [reads, fresh[WRITE][i]].map((n) => (height * n) / most);
      context.fillStyle = colours[WRITE];
      context.fillRect(i * wide, height - writeTall, wide - 0.5, writeTall);
      context.fillStyle = colours[READ];
      context.fillRect(i * wide, height - writeTall - readTall, wide - 0.5, readTall);
    });
    const newest = this.samples.findLast(([, op]) => op === WRITE);
    if (newest && space > 0) {
      context.fillStyle = colours.ink;
      context.fillRect((width * newest[2]) / space - 0.75, 0, 1.5, height);
    }
    const parts = fresh[WRITE].filter((n) => n > 0).length;
    const writes = fresh[WRITE].reduce((sum, n) => sum + n, 0);
    const share = Math.max(...fresh[WRITE]) / Math.max(writes, 1);
    const text = writes
      ? `writes in ${parts} of ${fresh[WRITE].length} parts, ${count(100 * share)} % in the busiest`
      : "no writes";
    this.get(".evenness").textContent = text;
    label(canvas, text);
  }
}

class WrongToken extends Error {}

function label(canvas, text) {
  canvas.dataset.name ??= canvas.getAttribute("aria-label");
  canvas.setAttribute("aria-label", `${canvas.dataset.name}: ${text}`);
}

// Clears a canvas, in as many dots as the screen has.
function begin(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const colours = { [READ]: colour("--read"), [WRITE]: colour("--write"), ink: colour("--ink") };
  return { context, width, height, colours };
}

const adversary = new Side("adversary", "/adversary.json");
const user = new Side("user", "/user.json");

// What is the same on both sides: rates since the reading before.
function rates(now, before, noun) {
  const seconds = Math.max((now.now - before.now) / 1e9, 1e-9);
  const rate = (field, op) => (now[field][op] - before[field][op]) / seconds;
  return [
    [`reads: ${noun}/s`, count(rate("events", READ))],
    [`writes: ${noun}/s`, count(rate("events", WRITE))],
    ["read per s", bytes(rate("bytes", READ))],
    ["written per s", bytes(rate("bytes", WRITE))],
    ["syncs/s", count(rate("events", SYNC))],
  ];
}

function showAdversary([now, before], [userNow, userBefore]) {
  const written = (a, b) => a.bytes[WRITE] - b.bytes[WRITE];
  const ratio = written(now, before) / written(userNow, userBefore);
  adversary.tiles([
    ...rates(now, before, "accesses"),
    ["written, of the user's", Number.isFinite(ratio) ? `${count(ratio)} times` : "-"],
  ]);
  showAudit(now.audit);
  adversary.draw();
}

// What the audit beside the product has found so far. Unchanged text is not said again.
function showAudit(audit) {
  const text = auditText(audit);
  const line = byId("audit");
  line.classList.toggle("leak", audit.verdict === "leak");
  if (line.textContent !== text) line.textContent = text;
}

function auditText({ verdict, in_turn, out_of_turn, first_out_of_turn, draws, deviation }) {
  if (verdict === "nothing_checked") {
    return draws > 0 ? `Audit: ${count(draws)} draws, too few to judge` : "Audit: nothing checked yet";
  }
  const parts = [];
  if (in_turn + out_of_turn > 0) {
    const first = out_of_turn > 0 ? `, the first at byte ${count(first_out_of_turn)}` : "";
    parts.push(`${count(out_of_turn)} of ${count(in_turn + out_of_turn)} writes out of turn${first}`);
  }
  if (deviation !== null) {
    parts.push(`${count(draws)} draws, uneven by ${deviation.toFixed(1)} standard deviations`);
  }
  const found = verdict === "leak" ? "LEAK" : "no leak found";
  return `Audit: ${found}: ${parts.join("; ")}`;
}

function showUser([now, before]) {
  const late = (op, share) => duration(quantile(now.latencies[op], before.latencies[op], share));
  user.tiles([
    ...rates(now, before, "requests"),
    ["being answered", count(now.in_flight)],
    ["read: half / 99 % within", `${late(READ, 0.5)} / ${late(READ, 0.99)}`],
    ["write: half / 99 % within", `${late(WRITE, 0.5)} / ${late(WRITE, 0.99)}`],
    ["sync: half within", late(SYNC, 0.5)],
  ]);
  user.draw();
  const rows = now.readings.map(([help, value]) => {
    const row = document.createElement("tr");
    row.append(...[help, count(value)].map((text) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      return cell;
    }));
    return row;
  });
  byId("readings").replaceChildren(...rows);
}

function say(text, broken) {
  byId("state").textContent = text;
  byId("state").classList.toggle("broken", broken);
}

async function update() {
  try {
    const [seen, done] = await Promise.all([adversary.read(), user.read()]);
    showAdversary(seen, done);
    showUser(done);
    byId("title").textContent = seen[0].title;
    say("live", false);
  } catch (error) {
    if (error instanceof WrongToken) {
      askForToken();
      return;
    }
    say("not reachable", true);
  }
  wait();
}

function wait() {
  clearTimeout(timer);
  if (!paused && token && !document.hidden) timer = setTimeout(update, EVERY);
}

function askForToken() {
  token = null;
  sessionStorage.removeItem("token");
  byId("login").hidden = false;
  say("a token is needed", true);
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value;
  sessionStorage.setItem("token", token);
  byId("token").value = "";
  byId("login").hidden = true;
  update();
});

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  say(paused ? "paused" : "live", false);
  wait();
});

byId("hide").addEventListener("click", () => {
  user.root.hidden = !user.root.hidden;
  byId("hide").setAttribute("aria-pressed", String(user.root.hidden));
  adversary.draw();
  user.draw();
});

document.addEventListener("visibilitychange", wait);
window.addEventListener("resize", () => {
  adversary.draw();
  user.draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  adversary.draw();
  user.draw();
});

if (token) update();
else askForToken();
