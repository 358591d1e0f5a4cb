// Light, dark or as the system has it. Runs before the page is drawn, so that it does not flash.
"use strict";
{
  const NAMES = ["system", "light", "dark"];
  let theme = "system";
  try {
    theme = localStorage.getItem("trinity.theme");
  } catch {
    // The browser keeps nothing.
  }
  if (!NAMES.includes(theme)) theme = "system";
  const show = () => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${theme}`;
  };
  show();
  addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      theme = NAMES[(NAMES.indexOf(theme) + 1) % NAMES.length];
      show();
      try {
        localStorage.setItem("trinity.theme", theme);
      } catch {
        // It holds until the page is closed.
      }
    });
  });
}
