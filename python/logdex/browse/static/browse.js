// Copy buttons, and "/" to go to the search. Pages work without this file.
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
