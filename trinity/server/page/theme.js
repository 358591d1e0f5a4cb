// Light, dark or as the system has it. Runs before the page is drawn, so that it does not flash.
"use strict";
{
  const NAMES = ["system", "light", "dark"];
  let theme = localStorage.getItem("trinity.theme");
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
      localStorage.setItem("trinity.theme", theme);
      show();
    });
  });
}
