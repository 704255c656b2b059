// Keeps the parts of a page that are marked data-live up to date, and switches the colour scheme.
// The server tells only that something has changed; the page is then fetched again and its parts are replaced.
"use strict";

const REST_MS = 300; // between two refreshes
const THEMES = ["system", "light", "dark"];
const said = document.getElementById("live");
let source = null;
let told = null; // the state that the server told last
let shown = document.body.dataset.state; // the state that the page shows
let busy = false;

function say(text) {
  if (said.textContent !== text) said.textContent = text;
}

function replacePart(now, next) {
  if (now.innerHTML === next.innerHTML) return;
  const open = [...now.querySelectorAll("details")].map((one) => one.open);
  const scrolls = [...now.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  const checked = new Map([...now.querySelectorAll("input:checked")].map((one) => [one.name, one.value]));
  const focused = now.contains(document.activeElement) ? document.activeElement : null;
  const href = focused?.getAttribute("href");
  const place = focused ? [...now.querySelectorAll("a, button, input, summary, [tabindex]")].indexOf(focused) : -1;
  now.replaceChildren(...next.childNodes);
  now.querySelectorAll("details").forEach((one, i) => (one.open = open[i] ?? one.open));
  now.querySelectorAll(".scroll").forEach((one, i) => (one.scrollLeft = scrolls[i] ?? 0));
  for (const one of now.querySelectorAll("input[type=radio]")) {
    if (checked.has(one.name)) one.checked = one.value === checked.get(one.name);
  }
  if (focused) {
    const found = [...now.querySelectorAll("a, button, input, summary, [tabindex]")];
    (found.find((one) => href && one.getAttribute("href") === href) ?? found[place])?.focus({ preventScroll: true });
  }
}

function replaceParts(next) {
  const parts = new Map([...next.querySelectorAll("[data-live]")].map((part) => [part.id, part]));
  let before = null;
  for (const [id, part] of parts) {
    const now = document.getElementById(id);
    if (now) replacePart(now, part);
    else if (before) before.after(document.adoptNode(part)); // a plot that the run has only now
    before = document.getElementById(id) ?? before;
  }
}

async function refresh() {
  if (busy || document.hidden || told === shown) return;
  busy = true;
  const state = told;
  try {
    const answer = await fetch(location.href, { cache: "no-store", headers: { accept: "text/html" } });
    if (answer.ok) {
      replaceParts(new DOMParser().parseFromString(await answer.text(), "text/html"));
      shown = state;
      document.body.dataset.shown = state;
      say("live, " + new Date().toLocaleTimeString());
    }
  } catch {
    say("the server does not answer");
  }
  setTimeout(() => {
    busy = false;
    refresh();
  }, REST_MS);
}

function listen() {
  if (source || document.hidden || !document.body.dataset.events) return;
  source = new EventSource(document.body.dataset.events);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => say("the server does not answer"));
  source.addEventListener("change", (event) => {
    told = event.data;
    if (told === shown) document.body.dataset.shown = shown;
    refresh();
  });
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close(); // a browser has six connections for all pages of a server
    source = null;
  } else {
    listen();
  }
});
addEventListener("pagehide", () => {
  source?.close();
  source = null;
});
addEventListener("pageshow", listen);

const button = document.getElementById("theme");
function showTheme() {
  const theme = document.documentElement.dataset.theme ?? "system";
  button.textContent = "Theme: " + theme;
  return theme;
}
button.hidden = false;
showTheme();
button.addEventListener("click", () => {
  const theme = THEMES[(THEMES.indexOf(showTheme()) + 1) % THEMES.length];
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("hipwright-theme", theme);
  } catch {
    // no storage here: the choice lasts until the next page
  }
  showTheme();
});
listen();
