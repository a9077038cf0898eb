// Copy buttons, "/" to go to the search, local times, and the live tail. Pages work without this file.
"use strict";

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = button.parentElement.querySelector("code").textContent.trimEnd();
  const said = button.textContent;
  navigator.clipboard.writeText(text).then(
    () => { button.textContent = "Copied"; },
    () => { button.textContent = "Select it and copy"; },
  ).finally(() => setTimeout(() => { button.textContent = said; }, 1500));
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  const field = document.getElementById("quick");
  if (field) field.focus();
  else location.assign("/search");
});

// The local time next to each time in UTC.
const two = (number) => String(number).padStart(2, "0");

const dayOf = (year, month, day) => `${year}-${two(month + 1)}-${two(day)}`;

function showLocal(root) {
  for (const time of root.querySelectorAll("time:not([data-local])")) {
    time.dataset.local = "";
    const at = new Date(time.dateTime);
    const ahead = -at.getTimezoneOffset();
    if (!ahead) continue;
    const day = dayOf(at.getFullYear(), at.getMonth(), at.getDate());
    const isSameDay = day === dayOf(at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate());
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
    const zone = `${ahead < 0 ? "-" : "+"}${two(Math.floor(Math.abs(ahead) / 60))}:${two(Math.abs(ahead) % 60)}`;
    const local = document.createElement("small");
    local.className = "local";
    local.textContent = `${isSameDay ? "" : `${day} `}${clock} ${zone}`;
    time.append(local);
    document.getElementById("zone").textContent = `, then local: ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
  }
}

showLocal(document);

// The live tail: a poll puts new rows on top. Old rows go, and a page that nobody sees does not ask.
const MOST_TAIL_ROWS = 1000;
const pause = document.querySelector("button[data-pause]");

if (pause) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    const isPaused = pause.getAttribute("aria-pressed") === "true";
    pause.setAttribute("aria-pressed", String(!isPaused));
    pause.textContent = isPaused ? "Pause" : "Go on";
  });
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id !== "poll") return;
  if (document.hidden || pause.getAttribute("aria-pressed") === "true") event.preventDefault();
});

document.addEventListener("htmx:afterRequest", (event) => {
  const state = document.getElementById("tail-state");
  if (state) state.textContent = event.detail.successful ? "" : "No answer; the page goes on asking.";
});

document.addEventListener("htmx:afterSettle", () => {
  showLocal(document);
  const poll = document.getElementById("poll");
  if (!poll) return;
  const rows = poll.parentElement.querySelectorAll("tbody tr");
  for (const row of [...rows].slice(MOST_TAIL_ROWS)) row.remove();
});
